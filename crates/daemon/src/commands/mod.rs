//! The operator's own commands, which checks run.
//!
//! A command is anything: it may hang, die, print without end, or want what this process may not do. So commands are run by a helper
//! ([`helper`]), a process that is forked before anything is loaded and anything is given up. Here is the daemon's end of the socket
//! between them. Whatever becomes of the helper, the daemon waits for no answer longer than a command may take. A helper that has ended is not
//! started again, since what it is born with has been given up by then: commands prove nothing from there on, and `status` says so.

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

/// More than checks there can be.
const WAITING_MAX: usize = 1024;
/// The helper tells the time itself; beyond that it is not well.
const HELPER_LATE: Duration = Duration::from_secs(2);
/// Of what the helper says at once.
const LINE_BYTES_MAX: u64 = 4096;

/// One command, as the helper is told of it: in a line of JSON.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    id: u64,
    words: Vec<String>,
    /// Its environment, besides PATH.
    about: BTreeMap<String, String>,
    limit: Duration,
}

/// What came of it.
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
    /// To be called before there is a second thread, and before anything is opened that commands should not have.
    pub fn start() -> anyhow::Result<Self> {
        let (socket, process) = helper::start().context("start the helper that runs commands")?;
        Ok(Self { socket, process })
    }
}

type Waiting = (Order, oneshot::Sender<Outcome>);

/// Runs commands by a helper; a clone does so by the same.
#[derive(Debug, Clone)]
pub struct Commands {
    orders: mpsc::Sender<Waiting>,
    /// Why there is no helper.
    lacks: Option<Arc<str>>,
}

impl Commands {
    /// Within a runtime.
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
                    // At once, or when it is killed; nobody waits for this.
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

    /// Runs `words`, a program and its arguments, with `about` in its environment, for so long at most.
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
        // Full or closed: nothing is run in either case.
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

/// Until the helper ends. Who waits for an answer hears that by their channel's end.
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
                // It waits no longer.
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
