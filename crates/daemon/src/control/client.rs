use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use super::{Request, Response};
use crate::error::{BadInput, Error};

const TIMEOUT: Duration = Duration::from_secs(30);

/// The command's end of the control socket; blocking.
pub struct Client {
    input: BufReader<UnixStream>,
}

impl Client {
    pub fn connect(socket: &Path) -> Result<Self, Error> {
        let stream = UnixStream::connect(socket).map_err(|error| unreachable(socket, error))?;
        stream
            .set_read_timeout(Some(TIMEOUT))
            .context("control socket")?;
        stream
            .set_write_timeout(Some(TIMEOUT))
            .context("control socket")?;
        Ok(Self {
            input: BufReader::new(stream),
        })
    }

    /// Sends one request and waits for its answer.
    pub fn call(&mut self, request: &Request) -> Result<Response, Error> {
        let mut json = serde_json::to_vec(request).context("write the request")?;
        json.push(b'\n');
        self.input
            .get_mut()
            .write_all(&json)
            .context("send the request")?;
        let mut line = String::new();
        self.input
            .read_line(&mut line)
            .context("wait for the daemon's answer")?;
        Ok(serde_json::from_str(&line).context("the daemon's answer is of another version")?)
    }
}

fn unreachable(socket: &Path, error: std::io::Error) -> Error {
    let socket = socket.display();
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => BadInput::new(format!(
            "{socket}: anabranch is not running here; start it with `anabranch run --config FILE`"
        ))
        .into(),
        ErrorKind::PermissionDenied => {
            BadInput::new(format!("{socket}: permission denied; run as root")).into()
        }
        _ => anyhow::Error::new(error)
            .context(format!("connect to {socket}"))
            .into(),
    }
}
