//! How an instance runs, whatever its role: a gateway or a trunk.
//!
//! It starts, and undoes what it did if that fails; then one task takes in turn what happens until a signal says stop;
//! then it ends, so that the host is as it was. What is particular to a role stands behind [`Role`]; what every role
//! has is its [`Shell`].

mod state;
mod trouble;

use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior};

use crate::control::{Call, Server};
use crate::error::Error;
use crate::notify::notify;
use anabranch_api::{Paths, Request, Response};

pub(crate) use state::Shell;

/// Rates are taken, and what failed is tried again.
const TICK: Duration = Duration::from_secs(1);
const CALLS_WAITING_MAX: usize = 16;
/// Ample for one short line to a socket of this machine.
const ANSWER_WRITTEN: Duration = Duration::from_millis(50);

/// What an instance is to the network: all that its loop owns. An error means that the data path cannot be spoken with; it
/// goes on by itself.
pub(crate) trait Role: Sized {
    type Config;
    /// What the log says once packets move.
    const AT_WORK: &'static str;

    /// Tells the data path everything: packets move from here on.
    async fn start(&mut self) -> anyhow::Result<()>;
    fn shell(&self) -> &Shell;
    /// What it is doing now, in a few words.
    fn work(&self) -> String {
        Self::AT_WORK.to_owned()
    }
    /// What whoever watches it should know now, a line each, the gravest first.
    fn alarms(&self) -> Vec<String> {
        self.troubles()
    }
    /// What keeps it from being as it should, a line each: what, where, and what to do.
    fn troubles(&self) -> Vec<String>;
    /// Takes in what happens beside orders and time. Cancel-safe: what then has to be waited for is [`turn`](Self::turn)'s.
    async fn event(&mut self) -> anyhow::Result<()>;
    fn tick(&mut self) -> anyhow::Result<()>;
    /// When to call [`turn`](Self::turn) if nothing happens before.
    fn turn_at(&self) -> Instant;
    /// Does what is due. Called after anything that happened, too.
    async fn turn(&mut self) -> anyhow::Result<()>;
    async fn answer(&mut self, call: Call) -> anyhow::Result<()>;
    /// The configuration as its file has it now, checked.
    async fn read_config(&mut self) -> Result<Self::Config, Error>;
    async fn adopt_config(&mut self, config: Self::Config) -> anyhow::Result<()>;
    /// Detaches the data path, then puts the host back: what is still under way must not meet a host half put back.
    async fn close(self) -> anyhow::Result<()>;

    /// A wrong configuration changes nothing.
    async fn reload(&mut self) -> anyhow::Result<Response> {
        match self.read_config().await {
            Ok(config) => {
                self.adopt_config(config).await?;
                Ok(Response::Done)
            }
            Err(error) => {
                tracing::error!("configuration not reloaded: {error}");
                Ok(Response::Refused {
                    message: error.to_string(),
                })
            }
        }
    }
}

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Reload,
    Stop,
}

/// The signals of this process, as the loop wants them.
pub(crate) fn signals() -> anyhow::Result<mpsc::Receiver<Signal>> {
    let (sender, receiver) = mpsc::channel(1);
    for (kind, meaning) in [
        (SignalKind::hangup(), Signal::Reload),
        (SignalKind::terminate(), Signal::Stop),
        (SignalKind::interrupt(), Signal::Stop),
    ] {
        let mut stream = signal(kind).context("listen to signals")?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() && sender.send(meaning).await.is_ok() {}
        });
    }
    Ok(receiver)
}

/// From start to stop. The caller holds the instance's lock; `ready` is called once packets move.
pub(crate) async fn serve<R: Role>(
    mut role: R,
    paths: &Paths,
    mut signals: mpsc::Receiver<Signal>,
    ready: impl FnOnce(),
) -> Result<(), Error> {
    let (calls, mut requests) = mpsc::channel(CALLS_WAITING_MAX);
    let begun = match Server::listen(&paths.socket(), calls) {
        Ok(server) => role.start().await.map(|()| server),
        refused => refused,
    };
    let server = match begun {
        Ok(server) => server,
        Err(error) if role.shell().adopted => return Err(error.into()),
        Err(error) => {
            role.close().await?;
            return Err(error.into());
        }
    };
    tracing::info!("{}", R::AT_WORK);
    ready();
    notify("READY=1");
    let served = take_turns(&mut role, &mut requests, &mut signals).await;
    notify("STOPPING=1");
    // Whoever asks from here on hears that the daemon is stopping.
    drop(requests);
    let end = served?;
    if end.keep_forwarding {
        tracing::warn!(
            "stopped, by order without a change: the programs go on forwarding, and the next start takes them over"
        );
    } else {
        role.close().await?;
        tracing::info!("stopped; the host is as it was");
    }
    end.answer(server).await;
    Ok(())
}

/// How an instance ends.
#[derive(Debug, Default)]
pub(crate) struct End {
    /// The data path stays as it is, as after a crash.
    keep_forwarding: bool,
    /// Who asked for it by the control socket.
    reply: Option<oneshot::Sender<Response>>,
}

impl End {
    /// Another task writes the answer.
    async fn answer(self, server: Server) {
        if self
            .reply
            .is_some_and(|reply| reply.send(Response::Done).is_ok())
        {
            tokio::time::sleep(ANSWER_WRITTEN).await;
        }
        drop(server);
    }
}

/// What `systemctl status` shows in a line.
fn status_line<R: Role>(role: &R) -> String {
    let work = role.work();
    match &role.alarms()[..] {
        [] => work,
        [one] => format!("{work}; {one}"),
        [first, more @ ..] => format!("{work}; {first} (and {} more)", more.len()),
    }
}

fn tell_manager(line: String, told: &mut String) {
    if line != *told && notify(&format!("STATUS={line}")) {
        *told = line;
    }
}

/// The loop, until a signal says stop.
pub(crate) async fn take_turns<R: Role>(
    role: &mut R,
    calls: &mut mpsc::Receiver<Call>,
    signals: &mut mpsc::Receiver<Signal>,
) -> anyhow::Result<End> {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = String::new();
    loop {
        let turn_at = role.turn_at();
        tokio::select! {
            signal = signals.recv() => match signal {
                Some(Signal::Reload) => drop(role.reload().await?),
                Some(Signal::Stop) | None => return Ok(End::default()),
            },
            taken_in = role.event() => taken_in?,
            Some((request, reply)) = calls.recv() => match request {
                Request::Stop { keep_forwarding } => return Ok(End { keep_forwarding, reply: Some(reply) }),
                request => role.answer((request, reply)).await?,
            },
            _ = tick.tick() => {
                role.tick()?;
                tell_manager(status_line(role), &mut told);
            }
            () = tokio::time::sleep_until(turn_at) => {}
        }
        role.turn().await?;
    }
}
