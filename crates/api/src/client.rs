use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::messages::{Misread, Request, Response, from_line, to_line};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Why the daemon did not answer.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ClientError {
    #[error(
        "{}: anabranch is not running here; start it with `anabranch run --config FILE`",
        socket.display()
    )]
    NotRunning { socket: PathBuf },
    #[error("{}: permission denied; run as root", socket.display())]
    Denied { socket: PathBuf },
    #[error("connect to {}: {error}", socket.display())]
    Connect { socket: PathBuf, error: io::Error },
    #[error("{what}: {error}")]
    Io {
        what: &'static str,
        error: io::Error,
    },
    #[error("write the request: {0}")]
    Request(serde_json::Error),
    #[error("the daemon's answer: {0}")]
    Answer(Misread),
}

impl ClientError {
    /// Whether whoever asks can mend it: by starting the daemon, or by asking as root.
    pub fn is_mendable(&self) -> bool {
        matches!(self, Self::NotRunning { .. } | Self::Denied { .. })
    }
}

/// The command's end of the control socket; blocking.
#[derive(Debug)]
pub struct Client {
    input: BufReader<UnixStream>,
}

impl Client {
    /// # Errors
    /// If nobody listens at `socket`, or whoever asks may not.
    pub fn connect(socket: &Path) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(socket).map_err(|error| unreachable(socket, error))?;
        for set in [UnixStream::set_read_timeout, UnixStream::set_write_timeout] {
            set(&stream, Some(TIMEOUT)).map_err(io_error("control socket"))?;
        }
        Ok(Self {
            input: BufReader::new(stream),
        })
    }

    /// Sends one request and waits for its answer.
    ///
    /// # Errors
    /// If the daemon goes away, or is silent for 30 s; if its answer is of another version.
    pub fn call(&mut self, request: &Request) -> Result<Response, ClientError> {
        let line = to_line(request).map_err(ClientError::Request)?;
        let output = self.input.get_mut();
        output
            .write_all(&line)
            .map_err(io_error("send the request"))?;
        let mut line = String::new();
        self.input
            .read_line(&mut line)
            .map_err(io_error("wait for the daemon's answer"))?;
        from_line(line.as_bytes()).map_err(ClientError::Answer)
    }
}

fn io_error(what: &'static str) -> impl Fn(io::Error) -> ClientError {
    move |error| ClientError::Io { what, error }
}

fn unreachable(socket: &Path, error: io::Error) -> ClientError {
    let socket = socket.to_owned();
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => ClientError::NotRunning { socket },
        ErrorKind::PermissionDenied => ClientError::Denied { socket },
        _ => ClientError::Connect { socket, error },
    }
}
