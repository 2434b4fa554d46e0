//! Runs the roles of an instance: a gateway, services, a trunk, a member, or several of them.
//!
//! Each role has its own task ([`live`]): it starts, and undoes what it did if that fails; then it handles one event at a time,
//! until it is told to stop; then it restores the host. All tasks share one thread, and none changes the state of another: while
//! one waits for the host, fails, or has ended, the others go on. [`Role`] is what differs between roles; what every role has is
//! its [`Shell`]. [`serve`] owns what the instance has once (the socket, the signals, the file), and passes on [`Order`]s.

mod board;
mod serve;
mod state;
mod trouble;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior};
use tracing::Span;

use crate::config::Configuration;
use crate::control::Call;
use crate::error::Error;
use anabranch_api::{Request, Response, Status};

pub(crate) use board::Place;
pub(crate) use serve::{Opened, serve};
pub(crate) use state::Shell;

/// How often rates are computed, and failed actions are tried again.
const TICK: Duration = Duration::from_secs(1);
/// When a role that waits for nothing wakes up.
pub(crate) const NEVER: Duration = Duration::from_secs(3600);

/// A role, with all state that its task owns. An error means that the data path cannot be reached; the data path
/// continues by itself.
pub(crate) trait Role: Sized {
    type Config;
    /// Its name in messages.
    const NAME: &'static str;
    /// The log message once packets are forwarded.
    const AT_WORK: &'static str;

    /// Its part of a file; none if the file has no such role.
    fn config_of(configuration: &Configuration) -> Option<Self::Config>;
    /// The name that its lines of the log begin with if there are several roles.
    fn span() -> Span;
    /// Whether a request is for this role. A request for the status is for every role.
    fn answers(_: &Request) -> bool {
        false
    }
    /// Writes everything to the data path: packets move from here on.
    async fn start(&mut self) -> anyhow::Result<()>;
    fn shell(&self) -> &Shell;
    /// What it is doing now, in a few words.
    fn work(&self) -> String {
        Self::AT_WORK.to_owned()
    }
    /// Alarms for whoever watches it, a line each, the gravest first.
    fn alarms(&self) -> Vec<String> {
        self.troubles()
    }
    /// Troubles that keep it from working as configured, a line each: what, where, and what to do.
    fn troubles(&self) -> Vec<String>;
    /// Waits for the next event that is neither an order nor time, and notes it. Cancel-safe: [`turn`](Self::turn) does what takes
    /// time.
    async fn event(&mut self) -> anyhow::Result<()>;
    fn tick(&mut self) -> anyhow::Result<()>;
    /// When to call [`turn`](Self::turn) if no event comes before.
    fn turn_at(&self) -> Instant;
    /// Does what is due. Called after each event, too.
    async fn turn(&mut self) -> anyhow::Result<()>;
    async fn answer(&mut self, call: Call) -> anyhow::Result<()>;
    /// Checks that this host can do what a configuration says. Changes nothing that affects packets.
    async fn check_config(&mut self, config: &Self::Config) -> Result<(), Error>;
    /// Applies a checked configuration, and replies when that is done.
    async fn adopt_config(
        &mut self,
        config: Self::Config,
        reply: oneshot::Sender<Response>,
    ) -> anyhow::Result<()>;
    /// Detaches the data path, then restores the host: packets under way must not meet a host that is half restored.
    async fn close(self) -> anyhow::Result<()>;
}

/// Answers a request for the status.
pub(crate) fn tell_status(
    status: Result<Status, anabranch_dataplane::Error>,
    reply: oneshot::Sender<Response>,
) {
    let response = match status {
        Ok(status) => Response::Status(Box::new(status)),
        Err(error) => Response::Failed {
            message: error.to_string(),
        },
    };
    // The client may have disconnected.
    let _ = reply.send(response);
}

/// An order to a role.
#[derive(Debug)]
pub(crate) enum Order {
    /// Start: always the first order. Replies when packets move, and never if they do not.
    Start(oneshot::Sender<()>),
    Answer(Call),
    /// Check that it can do what this file says.
    Check(Arc<Configuration>, oneshot::Sender<Result<(), Error>>),
    /// Apply the file that it has checked last.
    Adopt(oneshot::Sender<Response>),
    Stop {
        /// The data path stays as it is, as after a crash.
        keep_forwarding: bool,
    },
}

/// The order that a signal gives.
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

/// Runs a role from start to stop. If the first order is not to start, it undoes what was opened.
async fn live<R: Role>(
    mut role: R,
    mut orders: mpsc::Receiver<Order>,
    place: Place,
) -> anyhow::Result<()> {
    let started = match orders.recv().await {
        Some(Order::Start(started)) => role.start().await.map(|()| Some(started)),
        _ => Ok(None),
    };
    let started = match started {
        Ok(Some(started)) => started,
        Err(error) if role.shell().adopted => return Err(error),
        Ok(None) if role.shell().adopted => return Ok(()),
        undone => {
            role.close().await?;
            return undone.map(drop);
        }
    };
    tracing::info!("{}", R::AT_WORK);
    // The instance waits for it.
    let _ = started.send(());
    let keeps_forwarding = take_turns(&mut role, &mut orders, &place).await?;
    match keeps_forwarding {
        true => Ok(()),
        false => role.close().await,
    }
}

/// The loop of a role. It ends with an order to stop, and returns whether the data path has to continue.
pub(crate) async fn take_turns<R: Role>(
    role: &mut R,
    orders: &mut mpsc::Receiver<Order>,
    place: &Place,
) -> anyhow::Result<bool> {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut checked = None;
    loop {
        let turn_at = role.turn_at();
        tokio::select! {
            order = orders.recv() => match order {
                Some(Order::Answer(call)) => role.answer(call).await?,
                Some(Order::Check(configuration, reply)) => {
                    let (config, said) = check(role, &configuration).await;
                    checked = config;
                    // The instance waits for it.
                    let _ = reply.send(said);
                }
                Some(Order::Adopt(reply)) => if let Some(config) = checked.take() {
                    role.adopt_config(config, reply).await?;
                },
                Some(Order::Stop { keep_forwarding }) => return Ok(keep_forwarding),
                Some(Order::Start(_)) => {}
                None => return Ok(false),
            },
            taken_in = role.event() => taken_in?,
            _ = tick.tick() => {
                role.tick()?;
                place.tell(status_line(role));
            }
            () = tokio::time::sleep_until(turn_at) => {}
        }
        role.turn().await?;
    }
}

/// Checks the role's part of a file.
async fn check<R: Role>(
    role: &mut R,
    configuration: &Configuration,
) -> (Option<R::Config>, Result<(), Error>) {
    let Some(config) = R::config_of(configuration) else {
        return (None, Ok(()));
    };
    match role.check_config(&config).await {
        Ok(()) => (Some(config), Ok(())),
        refused => (None, refused),
    }
}

/// The role's line in `systemctl status`.
fn status_line<R: Role>(role: &R) -> String {
    let work = role.work();
    match &role.alarms()[..] {
        [] => work,
        [one] => format!("{work}; {one}"),
        [first, more @ ..] => format!("{work}; {first} (and {} more)", more.len()),
    }
}

#[cfg(test)]
mod tests;
