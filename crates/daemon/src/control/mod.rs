//! The control socket: one JSON object per line, a request each, answered in order.
//!
//! Connections are served by tasks that only read and write; every request is answered by the daemon's own loop, which
//! owns all state. Requests are small and bounded; so are the connections.

use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anabranch_api::{Misread, Request, Response, VERSION, from_line, to_line_of};
use anyhow::Context;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::aside::make_way;
use crate::error::is_full;

const REQUEST_BYTES_MAX: u64 = 4096;
const CONNECTIONS_MAX: usize = 64;
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const BIND_AGAIN: Duration = Duration::from_secs(1);
/// How long a client may take to read an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// A request and where its answer goes.
pub type Call = (Request, oneshot::Sender<Response>);

/// The listening socket. Dropping it removes the file and ends all connections.
pub struct Server {
    path: PathBuf,
    task: AbortHandle,
}

impl Server {
    /// Listens at `path`, and replaces a socket that a killed daemon left there: the caller holds the instance's lock. Anything
    /// that is no socket is moved away. If there is no room for the socket, it is created as soon as there is.
    pub fn listen(path: &Path, calls: mpsc::Sender<Call>) -> anyhow::Result<Self> {
        let path = path.to_owned();
        let listener = match bind(&path) {
            Err(error) if is_full(&error) => {
                let shown = path.display();
                tracing::warn!(
                    "control socket {shown}: {error}; nothing can be asked until there is room"
                );
                None
            }
            bound => Some(bound.with_context(|| format!("listen at {}", path.display()))?),
        };
        let place = path.clone();
        let task = tokio::spawn(async move {
            let listener = match listener {
                Some(listener) => listener,
                None => bind_later(&place).await,
            };
            accept(listener, calls).await;
        });
        Ok(Self {
            path,
            task: task.abort_handle(),
        })
    }
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    make_way(path, "socket", |found| found.file_type().is_socket());
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

async fn bind_later(path: &Path) -> UnixListener {
    loop {
        tokio::time::sleep(BIND_AGAIN).await;
        if let Ok(listener) = bind(path) {
            return listener;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Since when a client has sent no request; none while it is being answered.
type Idle = Arc<Mutex<Option<Instant>>>;

struct Connection {
    idle: Idle,
    task: AbortHandle,
}

impl Connection {
    fn begin(stream: UnixStream, calls: mpsc::Sender<Call>) -> Self {
        let idle = Idle::new(Mutex::new(Some(Instant::now())));
        let theirs = Arc::clone(&idle);
        let serving = async move {
            if let Err(error) = serve(stream, calls, &theirs).await {
                tracing::debug!("control connection: {error:#}");
            }
        };
        Self {
            idle,
            task: tokio::spawn(serving).abort_handle(),
        }
    }

    fn idle_since(&self) -> Option<Instant> {
        *self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Accepts every client. If there are too many, the one that has been idle for longest is disconnected.
async fn accept(listener: UnixListener, calls: mpsc::Sender<Call>) {
    let mut connections: Vec<Connection> = Vec::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.retain(|connection| !connection.task.is_finished());
                if connections.len() < CONNECTIONS_MAX || drop_idlest(&mut connections) {
                    connections.push(Connection::begin(stream, calls.clone()));
                }
            }
            Err(error) => {
                tracing::warn!("control socket: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Disconnects the client that has been idle for longest. Returns whether one was idle.
fn drop_idlest(connections: &mut Vec<Connection>) -> bool {
    let idle = connections
        .iter()
        .enumerate()
        .filter_map(|(index, connection)| Some((connection.idle_since()?, index)));
    let Some((_, index)) = idle.min() else {
        return false;
    };
    connections.swap_remove(index).task.abort();
    true
}

async fn serve(stream: UnixStream, calls: mpsc::Sender<Call>, idle: &Idle) -> anyhow::Result<()> {
    let set_idle = |since| *idle.lock().unwrap_or_else(PoisonError::into_inner) = since;
    let (input, mut output) = stream.into_split();
    let mut input = BufReader::new(input);
    loop {
        let mut line = Vec::new();
        let mut bounded = (&mut input).take(REQUEST_BYTES_MAX);
        set_idle(Some(Instant::now()));
        let length =
            tokio::time::timeout(IDLE_TIMEOUT, bounded.read_until(b'\n', &mut line)).await??;
        set_idle(None);
        if length == 0 {
            return Ok(());
        }
        let whole = line.last() == Some(&b'\n');
        let (version, response) = if whole {
            answer(&line, &calls).await
        } else {
            (VERSION, too_long())
        };
        let line = encode(version, response).await?;
        tokio::time::timeout(WRITE_TIMEOUT, output.write_all(&line)).await??;
        anyhow::ensure!(whole, "request cut short");
    }
}

/// Encodes an answer in another thread, because a list may be long and the daemon's loop must not wait for it.
async fn encode(version: u32, response: Response) -> anyhow::Result<Vec<u8>> {
    let is_long = matches!(response, Response::Flows { .. } | Response::Prefixes { .. });
    let encode = move || to_line_of(version, &response);
    Ok(match is_long {
        true => tokio::task::spawn_blocking(encode).await??,
        false => encode()?,
    })
}

fn too_long() -> Response {
    Response::Refused {
        message: format!("a request is one line of at most {REQUEST_BYTES_MAX} bytes"),
    }
}

/// Answers a line. Also returns the version for the answer: a client of another version must be able to read why it is refused.
async fn answer(line: &[u8], calls: &mpsc::Sender<Call>) -> (u32, Response) {
    let request = match from_line(line) {
        Ok(request) => request,
        Err(error) => {
            let version = match error {
                Misread::Version(version) => version,
                Misread::Json(_) => VERSION,
            };
            let message = format!("not a request: {error}");
            return (version, Response::Refused { message });
        }
    };
    let (reply, response) = oneshot::channel();
    let stopping = || Response::Failed {
        message: "the daemon is stopping".to_owned(),
    };
    let response = match calls.send((request, reply)).await {
        Ok(()) => response.await.unwrap_or_else(|_| stopping()),
        Err(_) => stopping(),
    };
    (VERSION, response)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};

    use anabranch_api::{Client, LinkAction};

    use super::*;

    /// A server whose loop answers `Reload` with `Done` and the rest with its request's name.
    fn serve_in_background(path: PathBuf) -> std::thread::JoinHandle<()> {
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let (calls, mut requests) = mpsc::channel(4);
                let _server = Server::listen(&path, calls).unwrap();
                ready.send(()).unwrap();
                while let Some((request, reply)) = requests.recv().await {
                    let last = request == Request::Reload;
                    let response = if last {
                        Response::Done
                    } else {
                        Response::Refused {
                            message: format!("{request:?}"),
                        }
                    };
                    let _ = reply.send(response);
                    if last {
                        // The answer is written by another task of this runtime.
                        tokio::task::yield_now().await;
                        tokio::task::yield_now().await;
                        return;
                    }
                }
            });
        });
        is_ready.recv().unwrap();
        thread
    }

    #[test]
    fn requests_are_answered_in_order_and_garbage_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("test.sock");
        let server = serve_in_background(path.clone());
        let mut client = Client::connect(&path).unwrap();
        let asked = Request::Link {
            name: "fiber".into(),
            action: LinkAction::Drain,
            force: false,
        };
        let Response::Refused { message } = client.call(&asked).unwrap() else {
            panic!("not refused")
        };
        assert_eq!(message, format!("{asked:?}"));

        let mut raw = std::os::unix::net::UnixStream::connect(&path).unwrap();
        raw.write_all(b"{\"request\":\"flows\",\"limit\":1,\"extra\":1}\n")
            .unwrap();
        let mut lines = BufReader::new(raw.try_clone().unwrap()).lines();
        assert!(
            lines.next().unwrap().unwrap().contains("not a request"),
            "an unknown key"
        );
        for version in [3, 99] {
            let line = format!("{{\"api\":{version},\"request\":\"status\"}}\n");
            raw.write_all(line.as_bytes()).unwrap();
            let refused = lines.next().unwrap().unwrap();
            let begins = format!("{{\"api\":{version},\"response\":\"refused\",");
            assert!(refused.starts_with(&begins), "it reads that: {refused}");
            let says = format!("version {version} of the control protocol");
            assert!(refused.contains(&says), "{refused}");
        }
        raw.write_all(&vec![b'x'; REQUEST_BYTES_MAX as usize])
            .unwrap();
        assert!(
            lines
                .next()
                .unwrap()
                .unwrap()
                .contains("at most 4096 bytes")
        );

        assert!(matches!(
            client.call(&Request::Reload).unwrap(),
            Response::Done
        ));
        server.join().unwrap();
        assert!(!path.exists(), "the socket is removed");
        let gone = Client::connect(&path).err().unwrap().to_string();
        assert!(gone.contains("not running"), "{gone}");
    }

    #[test]
    fn clients_that_only_wait_make_room_for_one_that_asks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("test.sock");
        let server = serve_in_background(path.clone());
        let connect = |_| std::os::unix::net::UnixStream::connect(&path).unwrap();
        let mut idle: Vec<_> = (0..CONNECTIONS_MAX + 20).map(connect).collect();
        let asked = std::time::Instant::now();
        let mut client = Client::connect(&path).unwrap();
        client.call(&Request::Status).unwrap();
        assert!(asked.elapsed() < Duration::from_secs(5));

        let mut answer = [0; 64];
        let oldest = std::io::Read::read(&mut idle[0], &mut answer);
        assert_eq!(oldest.unwrap(), 0, "the oldest made room");
        let youngest = idle.last_mut().unwrap();
        youngest.write_all(b"{\"request\":\"status\"}\n").unwrap();
        let heard = std::io::Read::read(youngest, &mut answer).unwrap();
        assert!(heard > 0, "the youngest did not");
        client.call(&Request::Reload).unwrap();
        server.join().unwrap();
    }
}
