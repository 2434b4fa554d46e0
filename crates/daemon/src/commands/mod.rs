//! Runs the operator's commands for checks.
//!
//! A command may be any program: it may hang, die, print without end, or need what this process may not do. So commands are run by
//! a helper ([`helper`]), a process that is forked before anything is loaded and any privilege is dropped. This is the daemon's end
//! of the socket to it. The daemon waits for an answer no longer than a command may take, whatever happens to the helper. A helper
//! that has ended is not started again, because the privileges it begins with are gone by then. From then on commands prove
//! nothing, and `status` says so.

mod helper;

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream as Socket;
use std::sync::Arc;
use std::time::Duration;

use anabranch_core::checks::Outcome;
use anyhow::Context;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

/// Maximum number of waiting commands: more than checks can have.
const WAITING_MAX: usize = 1024;
/// The helper enforces time limits itself. If it is later than this, it does not work.
const HELPER_LATE: Duration = Duration::from_secs(2);
/// Maximum length of a line from the helper.
const LINE_BYTES_MAX: u64 = 4096;

/// One command, sent to the helper as a line of JSON.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    id: u64,
    words: Vec<String>,
    /// Its environment, besides PATH.
    about: BTreeMap<String, String>,
    limit: Duration,
}

/// The result of a command.
#[derive(Debug, Serialize, Deserialize)]
struct Done {
    id: u64,
    outcome: Outcome,
}

/// A helper that has just been started.
#[derive(Debug)]
pub struct Helper {
    socket: Socket,
    process: Pid,
}

impl Helper {
    /// To be called before there is a second thread, and before anything is opened that commands must not have.
    pub fn start() -> anyhow::Result<Self> {
        let (socket, process) = helper::start().context("start the helper that runs commands")?;
        Ok(Self { socket, process })
    }
}

type Waiting = (Order, oneshot::Sender<Outcome>);

/// Runs commands by a helper; clones use the same one.
#[derive(Debug, Clone)]
pub struct Commands {
    orders: mpsc::Sender<Waiting>,
    /// Why there is no helper; none if there is one.
    lacks: Option<Arc<str>>,
}

impl Commands {
    /// Must be called within a runtime.
    pub fn by(helper: anyhow::Result<Helper>) -> Self {
        let (orders, waiting) = mpsc::channel(WAITING_MAX);
        let speaking = helper.and_then(|helper| {
            helper.socket.set_nonblocking(true)?;
            Ok((UnixStream::from_std(helper.socket)?, helper.process))
        });
        match speaking {
            Ok((stream, process)) => {
                tokio::spawn(async move {
                    if let Err(error) = speak(stream, waiting).await {
                        tracing::debug!("commands: {error:#}");
                    }
                    // Returns at once, or when the helper is killed; nothing waits for it.
                    tokio::task::spawn_blocking(move || waitpid(process, None));
                });
                Self {
                    orders,
                    lacks: None,
                }
            }
            Err(error) => Self {
                orders,
                lacks: Some(format!("commands are not run: {error:#}").into()),
            },
        }
    }

    /// Runs `words`, a program and its arguments, with `about` in its environment, for at most `limit`.
    pub async fn run(
        &self,
        words: &[String],
        about: BTreeMap<String, String>,
        limit: Duration,
    ) -> Outcome {
        let not_run = |why: &str| Outcome::Inconclusive(why.to_owned());
        if let Some(lacks) = &self.lacks {
            return not_run(lacks);
        }
        let (reply, outcome) = oneshot::channel();
        let order = Order {
            id: 0,
            words: words.to_vec(),
            about,
            limit,
        };
        // If the channel is full or closed, the command is not run.
        let _ = self.orders.try_send((order, reply));
        match tokio::time::timeout(limit + HELPER_LATE, outcome).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => not_run(
                "commands are not run: the helper for them has ended; start the daemon again",
            ),
            Err(_) => not_run("commands are not run: the helper for them does not answer"),
        }
    }
}

/// Runs until the helper ends. Then the channels of those who wait for answers are closed.
async fn speak(stream: UnixStream, mut waiting: mpsc::Receiver<Waiting>) -> anyhow::Result<()> {
    let (read, mut write) = stream.into_split();
    let (lines, mut done) = mpsc::channel(1);
    tokio::spawn(listen(BufReader::new(read), lines));
    let mut asked = BTreeMap::new();
    let mut count = 0;
    loop {
        tokio::select! {
            order = waiting.recv() => {
                let Some((order, reply)) = order else {
                    return Ok(());
                };
                count += 1;
                asked.insert(count, reply);
                let order = Order { id: count, ..order };
                write.write_all(&line(&order)?).await?;
            }
            done = done.recv() => {
                let Some(Done { id, outcome }) = done else {
                    return Ok(());
                };
                // The receiver may have stopped waiting.
                asked.remove(&id).map(|reply| reply.send(outcome));
            }
        }
    }
}

async fn listen(
    mut read: BufReader<impl tokio::io::AsyncRead + Unpin>,
    lines: mpsc::Sender<Done>,
) -> anyhow::Result<()> {
    let mut text = Vec::new();
    loop {
        text.clear();
        let mut bounded = (&mut read).take(LINE_BYTES_MAX);
        bounded.read_until(b'\n', &mut text).await?;
        lines.send(serde_json::from_slice(&text)?).await?;
    }
}

fn line(message: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}
