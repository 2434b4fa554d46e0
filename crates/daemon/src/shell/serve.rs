//! Owns what an instance has once for all its roles: the control socket, the signals, the configuration file, and the shutdown.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anabranch_api::{Paths, Request, Response, RoleState, RoleStatus, Status};
use anyhow::anyhow;
use futures_util::future::LocalBoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinSet, LocalSet, spawn_local};
use tracing::{Instrument, Span};

use super::board::{Board, Place};
use super::{Order, Role, Signal, live};
use crate::config::Configuration;
use crate::control::{Call, Server};
use crate::error::{BadInput, Error};
use crate::notify::notify;

const CALLS_WAITING_MAX: usize = 16;
/// Maximum number of orders that wait for one role.
const ORDERS_WAITING_MAX: usize = CALLS_WAITING_MAX;
/// The longest that writing a short line to a local socket may take.
const ANSWER_WRITTEN: Duration = Duration::from_millis(50);

type Life = LocalBoxFuture<'static, anyhow::Result<()>>;
type Begin = Box<dyn FnOnce(mpsc::Receiver<Order>, Place) -> Life>;

/// A role that the file names: ready to start, or the reason why it cannot.
pub(crate) struct Opened {
    name: &'static str,
    answers: fn(&Request) -> bool,
    span: fn() -> Span,
    begin: anyhow::Result<Begin>,
}

impl Opened {
    pub fn new<R: Role + 'static>(role: anyhow::Result<R>) -> Self {
        Self {
            name: R::NAME,
            answers: R::answers,
            span: R::span,
            begin: role.map(|role| -> Begin {
                Box::new(|orders, place| Box::pin(live(role, orders, place)))
            }),
        }
    }
}

/// Runs an instance from start to stop. The caller holds its lock; `ready` is called once packets move. A role that fails is
/// reported, and the others go on; if none is left the instance has failed.
pub(crate) async fn serve(
    roles: Vec<Opened>,
    file: &Path,
    paths: &Paths,
    mut signals: mpsc::Receiver<Signal>,
    ready: impl FnOnce(),
) -> Result<(), Error> {
    let (calls, mut requests) = mpsc::channel(CALLS_WAITING_MAX);
    let server = Server::listen(&paths.socket(), calls);
    let served = async {
        let mut roles = Roles::begin(roles, file, paths);
        let server = match server {
            Ok(server) => server,
            Err(error) => {
                roles.undo().await;
                return Err(error.into());
            }
        };
        roles.start().await?;
        ready();
        notify("READY=1");
        roles.board.open();
        let end = roles.take_turns(&mut requests, &mut signals).await;
        notify("STOPPING=1");
        // Requests from here on are answered: the daemon is stopping.
        drop(requests);
        let end = end?;
        let stopped = roles.stop(end.keep_forwarding).await;
        match (&stopped, end.keep_forwarding) {
            (Err(_), _) => {}
            (Ok(()), false) => tracing::info!("stopped; the host is as it was"),
            (Ok(()), true) => tracing::warn!(
                "stopped, by order without a change: the programs go on forwarding, and the next start takes them over"
            ),
        }
        end.answer(server, &stopped).await;
        Ok(stopped?)
    };
    LocalSet::new().run_until(served).await
}

/// How an instance ends.
#[derive(Debug, Default)]
struct End {
    /// The data path stays as it is, as after a crash.
    keep_forwarding: bool,
    /// The request by the control socket that asked for it, if any.
    reply: Option<oneshot::Sender<Response>>,
}

impl End {
    /// Another task writes the answer.
    async fn answer(self, server: Server, stopped: &anyhow::Result<()>) {
        let response = match stopped {
            Ok(()) => Response::Done,
            Err(error) => failed(format!("{error:#}")),
        };
        if self.reply.is_some_and(|reply| reply.send(response).is_ok()) {
            tokio::time::sleep(ANSWER_WRITTEN).await;
        }
        drop(server);
    }
}

/// A role, as the instance sees it.
struct Seat {
    name: &'static str,
    answers: fn(&Request) -> bool,
    task: Option<tokio::task::Id>,
    place: Place,
    life: Alive,
}

enum Alive {
    Works(mpsc::Sender<Order>),
    /// It has failed. Its data path, if it has one, continues by itself.
    Failed(anyhow::Error),
    Ended,
}

impl Seat {
    /// Passes an order to it. Returns whether it can still take one.
    async fn give(&self, order: Order) -> bool {
        match &self.life {
            Alive::Works(orders) => orders.send(order).await.is_ok(),
            _ => false,
        }
    }

    fn works(&self) -> bool {
        matches!(self.life, Alive::Works(_))
    }

    fn fail(&mut self, error: anyhow::Error) {
        self.place.tell(format!("{} failed: {error:#}", self.name));
        self.life = Alive::Failed(error);
    }

    fn status(&self) -> RoleStatus {
        let why = match &self.life {
            Alive::Failed(error) => Some(format!("{error:#}")),
            _ => None,
        };
        RoleStatus {
            name: self.name.to_owned(),
            state: match why {
                None => RoleState::Works,
                Some(_) => RoleState::Failed,
            },
            why,
        }
    }
}

/// The roles of an instance, and their tasks.
struct Roles {
    instance: String,
    file: PathBuf,
    board: Board,
    seats: Vec<Seat>,
    lives: JoinSet<anyhow::Result<()>>,
}

type Ended = Result<(tokio::task::Id, anyhow::Result<()>), JoinError>;

impl Roles {
    /// Spawns a task for each role, which waits for its first order. If there are several, their log lines begin with their names.
    fn begin(opened: Vec<Opened>, file: &Path, paths: &Paths) -> Self {
        let mut roles = Self {
            instance: paths.instance().to_owned(),
            file: file.to_owned(),
            board: Board::default(),
            seats: Vec::new(),
            lives: JoinSet::new(),
        };
        let is_one_of_several = opened.len() > 1;
        for Opened {
            name,
            answers,
            span,
            begin,
        } in opened
        {
            let (orders, taken) = mpsc::channel(ORDERS_WAITING_MAX);
            let mut seat = Seat {
                name,
                answers,
                task: None,
                place: roles.board.place(),
                life: Alive::Works(orders),
            };
            match begin {
                Ok(begin) => {
                    let span = is_one_of_several.then(span).unwrap_or_else(Span::none);
                    let life = begin(taken, seat.place.clone()).instrument(span);
                    seat.task = Some(roles.lives.spawn_local(life).id());
                }
                Err(error) => seat.fail(error),
            }
            roles.seats.push(seat);
        }
        roles
    }

    /// Starts the roles. One that cannot start does not affect the others.
    async fn start(&mut self) -> anyhow::Result<()> {
        for index in 0..self.seats.len() {
            let (started, is_started) = oneshot::channel();
            let is_given = self.seats[index].give(Order::Start(started)).await;
            if is_given && is_started.await.is_ok() {
                continue;
            }
            while self.seats[index].works() {
                self.wait_for_end().await;
            }
        }
        self.tell_failures()
    }

    /// Undoes what was opened, without starting any role.
    async fn undo(&mut self) {
        for seat in &mut self.seats {
            seat.life = Alive::Ended;
        }
        while !self.lives.is_empty() {
            self.wait_for_end().await;
        }
    }

    async fn stop(&mut self, keep_forwarding: bool) -> anyhow::Result<()> {
        for seat in &self.seats {
            seat.give(Order::Stop { keep_forwarding }).await;
        }
        while !self.lives.is_empty() {
            self.wait_for_end().await;
        }
        self.failure().map_or(Ok(()), Err)
    }

    async fn wait_for_end(&mut self) {
        if let Some(ended) = self.lives.join_next_with_id().await {
            self.note(ended);
        }
    }

    fn note(&mut self, ended: Ended) {
        let (task, ended) = match ended {
            Ok(ended) => ended,
            Err(panicked) => (panicked.id(), Err(panicked.into())),
        };
        let mut seats = self.seats.iter_mut();
        let Some(seat) = seats.find(|seat| seat.task == Some(task)) else {
            return;
        };
        match ended {
            Ok(()) => seat.life = Alive::Ended,
            Err(error) => seat.fail(error),
        }
    }

    /// If no role works, the instance has failed.
    fn tell_failures(&mut self) -> anyhow::Result<()> {
        if !self.seats.iter().any(Seat::works) {
            return self.failure().map_or(Ok(()), Err);
        }
        for seat in &self.seats {
            if let Alive::Failed(error) = &seat.life {
                let name = seat.name;
                tracing::error!(
                    "the {name} has failed, and the rest goes on: {error:#}; what it did with packets stays as it is until the daemon is started again"
                );
            }
        }
        Ok(())
    }

    /// The first failure, which becomes the error of the process; others are logged.
    fn failure(&mut self) -> Option<anyhow::Error> {
        let mut first = None;
        for seat in &mut self.seats {
            let Alive::Failed(error) = std::mem::replace(&mut seat.life, Alive::Ended) else {
                continue;
            };
            match first {
                None => first = Some(error),
                Some(_) => tracing::error!("the {} has failed: {error:#}", seat.name),
            }
        }
        first
    }

    /// Handles requests and signals until one of them says stop.
    async fn take_turns(
        &mut self,
        calls: &mut mpsc::Receiver<Call>,
        signals: &mut mpsc::Receiver<Signal>,
    ) -> anyhow::Result<End> {
        loop {
            tokio::select! {
                signal = signals.recv() => match signal {
                    Some(Signal::Reload) => self.reload(None).await,
                    Some(Signal::Stop) | None => return Ok(End::default()),
                },
                Some(ended) = self.lives.join_next_with_id() => {
                    self.note(ended);
                    self.tell_failures()?;
                }
                Some((request, reply)) = calls.recv() => match request {
                    Request::Stop { keep_forwarding } => return Ok(End { keep_forwarding, reply: Some(reply) }),
                    Request::Reload => self.reload(Some(reply)).await,
                    Request::Status => self.status(reply).await,
                    request => self.pass_on(request, reply).await,
                },
            }
        }
    }

    /// Reloads the file. A wrong one changes nothing in any role.
    async fn reload(&self, reply: Option<oneshot::Sender<Response>>) {
        if let Err(error) = self.check().await {
            tracing::error!("configuration not reloaded: {error}");
            let refused = Response::Refused {
                message: error.to_string(),
            };
            // The client may have disconnected.
            reply.map(|reply| reply.send(refused));
            return;
        }
        let mut adopting = Vec::new();
        for seat in &self.seats {
            let (adopted, is_adopted) = oneshot::channel();
            if seat.give(Order::Adopt(adopted)).await {
                adopting.push(is_adopted);
            }
        }
        spawn_local(async move {
            let mut response = Response::Done;
            for adopted in adopting {
                if adopted.await.is_err() {
                    response = failed("a role has failed while it was given the configuration");
                }
            }
            reply.map(|reply| reply.send(response));
        });
    }

    /// Has every role check the file as it is now.
    async fn check(&self) -> Result<(), Error> {
        let configuration = Arc::new(Configuration::load(&self.file)?);
        let own: Vec<_> = self.seats.iter().map(|seat| seat.name).collect();
        let named = configuration.roles();
        if named != own {
            let problem = format!(
                "{}: it is of a {} now, and this instance runs a {}: start the daemon again for that",
                self.file.display(),
                named.join(" and a "),
                own.join(" and a ")
            );
            return Err(BadInput::new(problem).into());
        }
        for seat in &self.seats {
            let (checked, is_checked) = oneshot::channel();
            let order = Order::Check(Arc::clone(&configuration), checked);
            if seat.give(order).await {
                let ended = |_| anyhow!("the {} has failed meanwhile", seat.name);
                is_checked.await.map_err(ended)??;
            }
        }
        Ok(())
    }

    /// Joins the status of all roles. One that does not answer is shown as failed.
    async fn status(&self, reply: oneshot::Sender<Response>) {
        let mut asked = Vec::new();
        for seat in &self.seats {
            let (part, is_there) = oneshot::channel();
            seat.give(Order::Answer((Request::Status, part))).await;
            asked.push((seat.status(), is_there));
        }
        spawn_local(async move {
            let mut whole: Option<Status> = None;
            let mut roles = Vec::new();
            for (mut role, part) in asked {
                match part.await {
                    Ok(Response::Status(part)) => match &mut whole {
                        Some(whole) => whole.join(*part),
                        None => whole = Some(*part),
                    },
                    Ok(Response::Failed { message }) => role.fail(message),
                    Ok(_) | Err(_) if role.why.is_none() => {
                        role.fail("it has just ended".to_owned())
                    }
                    Ok(_) | Err(_) => {}
                }
                roles.push(role);
            }
            let response = match whole {
                Some(whole) => Response::Status(Box::new(Status { roles, ..whole })),
                None => failed(
                    roles
                        .into_iter()
                        .filter_map(|role| role.why)
                        .collect::<Vec<_>>()
                        .join("; "),
                ),
            };
            // The client may have disconnected.
            let _ = reply.send(response);
        });
    }

    /// Passes a request on to the role that answers it.
    async fn pass_on(&self, request: Request, reply: oneshot::Sender<Response>) {
        let asked = self.seats.iter().find(|seat| (seat.answers)(&request));
        let response = match asked {
            Some(seat) => match &seat.life {
                Alive::Works(orders) => {
                    // A role that has just ended drops the call; then the client is told that the daemon is stopping.
                    let _ = orders.send(Order::Answer((request, reply))).await;
                    return;
                }
                Alive::Failed(error) => failed(format!("the {} has failed: {error:#}", seat.name)),
                Alive::Ended => failed(format!("the {} has ended", seat.name)),
            },
            None => Response::Refused {
                message: self.neither_flows_nor_links(),
            },
        };
        // The client may have disconnected.
        let _ = reply.send(response);
    }

    fn neither_flows_nor_links(&self) -> String {
        let names: Vec<_> = self.seats.iter().map(|seat| seat.name).collect();
        format!(
            "instance {:?} runs a {}, which has neither flows nor links; ask for its status",
            self.instance,
            names.join(" and a ")
        )
    }
}

fn failed(message: impl Into<String>) -> Response {
    Response::Failed {
        message: message.into(),
    }
}
