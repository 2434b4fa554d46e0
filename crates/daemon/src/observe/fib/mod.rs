//! Follows the routes of the host, change by change.
//!
//! A routing daemon may keep a full table of the internet in the kernel, and change a hundred routes a second. Such a table cannot
//! be read again at every change. So a thread reads it once ([`store`]), receives the changes from then on, and is the only
//! writer of the data path's table of destinations:
//!
//! - It writes the few prefixes that the daemon's loop derives from a snapshot, on request ([`Fib::tell`]).
//! - It writes the prefixes of a mass, all of which have the same verdict, as they change, without asking the loop.
//!
//! The loop inspects the host when something other than the prefixes of a mass has changed, and waits for the thread no longer than
//! for a slice of its work.
//!
//! The kernel does not report everything. When a device goes down, or an address that is the source of routes is removed, IPv4
//! routes vanish without a message (fib_sync_down_dev and fib_sync_down_addr of linux/net/ipv4/fib_semantics.c), so the thread does
//! the same. And messages for which there is no room are lost. Therefore all routes are also walked from time to time: a small
//! table for every snapshot, a large one after a loss, and once in [`WALK_REST`] times the time that it takes. A change that is
//! received during a walk is newer than the result of the walk.
//!
//! If there are more routes than the table has room for, no mass is written ([`View::beyond`]), and destinations without an
//! entry are left to the kernel.

mod follow;
mod store;
mod walk;
mod wire;

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anabranch_policy::abi;
use anyhow::{Context, bail};
use netlink_packet_route::route::RouteMessage;
use rtnetlink::packet_core::Parseable;
use tokio::sync::{Notify, oneshot};

use self::follow::{Follower, Order};
use self::store::Store;
use self::walk::Walk;
use super::{HostRoute, Mass, MassKey, Prefix};
use crate::plane::{Route, RouteTable, Verdict};

/// How long the loop waits for the table to be written: the first time, a million routes take some seconds.
const TOLD_WITHIN: Duration = Duration::from_secs(60);

/// Masses are written up to this many routes. The rest of the table is for other routes.
pub const ROUTES_MAX: usize = limit(abi::ROUTES_MAX);

const fn limit(room: usize) -> usize {
    room / 16 * 15
}

/// The present routes of the host.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// All but those of masses.
    pub routes: Vec<HostRoute>,
    /// Groups of prefixes with the same route.
    pub masses: Vec<Mass>,
    /// Number of prefixes in the main table.
    pub count: usize,
    /// Whether the data path's table has no room for them.
    pub beyond: bool,
}

/// Reads all routes of the calling thread's network namespace once.
pub fn read() -> anyhow::Result<View> {
    let mut known = Known::default();
    Walk::begin(&mut known)?.finish(&mut known, |_| {})?;
    let beyond = known.store.len() > ROUTES_MAX;
    Ok(known.view(beyond))
}

/// Reads our own routes in our tables of all instances once.
pub fn read_own() -> anyhow::Result<Vec<RouteMessage>> {
    let mut known = Known::default();
    Walk::begin(&mut known)?.finish(&mut known, |_| {})?;
    known.own()
}

/// The thread that follows the routes of one network namespace.
pub struct Fib {
    orders: Sender<Order>,
    wake: UnixStream,
    changed: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Fib {
    /// For the calling thread's network namespace.
    pub fn follow() -> anyhow::Result<Self> {
        let (orders, ordered) = channel();
        let (wake, woken) = UnixStream::pair().context("make a pair of sockets")?;
        for socket in [&wake, &woken] {
            socket.set_nonblocking(true).context("a pair of sockets")?;
        }
        let changed = Arc::new(Notify::new());
        let mut follower = Follower::new(ordered, woken, Arc::clone(&changed))?;
        let follow = move || {
            if let Err(error) = follower.work() {
                tracing::error!("routes are no longer followed: {error:#}");
            }
        };
        let thread = std::thread::Builder::new()
            .name("routes".to_owned())
            .spawn(follow)
            .context("start the thread that follows routes")?;
        Ok(Self {
            orders,
            wake,
            changed,
            thread: Some(thread),
        })
    }

    /// Notified when something other than the prefixes of masses has changed.
    pub fn changes(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// The present routes.
    pub async fn view(&self) -> anyhow::Result<View> {
        let (reply, answer) = oneshot::channel();
        self.order(Order::View(reply))?;
        answer.await.context(ENDED)?
    }

    /// Our own routes in tables of our own, of all instances.
    pub async fn own(&self) -> anyhow::Result<Vec<RouteMessage>> {
        let (reply, answer) = oneshot::channel();
        self.order(Order::Own(reply))?;
        answer.await.context(ENDED)?
    }

    /// Has it write this table from the next [`tell`](Self::tell) on.
    pub fn write(&self, table: RouteTable) -> anyhow::Result<()> {
        self.order(Order::Write(Box::new(table)))
    }

    /// Has the table hold `few`, and the prefixes of these masses with a verdict each. Returns when the few are there; the first
    /// time, when all are.
    pub fn tell(&self, few: &[Route], masses: &[(MassKey, Verdict)]) -> anyhow::Result<()> {
        let (told, done) = channel();
        self.order(Order::Tell {
            few: few.to_vec(),
            masses: masses.to_vec(),
            told,
        })?;
        match done.recv_timeout(TOLD_WITHIN) {
            Ok(written) => written,
            Err(RecvTimeoutError::Timeout) => bail!("the table is still being written"),
            Err(RecvTimeoutError::Disconnected) => bail!(ENDED),
        }
    }

    fn order(&self, order: Order) -> anyhow::Result<()> {
        self.orders.send(order).ok().context(ENDED)?;
        // What cannot take one more byte wakes already.
        let _ = (&self.wake).write(&[0]);
        Ok(())
    }
}

const ENDED: &str = "the thread that follows routes ended";

impl Drop for Fib {
    fn drop(&mut self) {
        (self.orders, _) = channel();
        let _ = (&self.wake).write(&[0]);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Table, destination and metric of a route of ours.
type OwnPlace = (u32, Prefix, u32);

/// Routes as they are known, and our own as the kernel told them, with whether the walk has seen them.
#[derive(Default)]
struct Known {
    store: Store,
    own: BTreeMap<OwnPlace, (Vec<u8>, bool)>,
    phase: bool,
    /// Routes of all tables that the last walk met.
    met: usize,
}

impl Known {
    fn view(&mut self, beyond: bool) -> View {
        let (routes, masses) = self.store.view();
        View {
            routes,
            masses,
            count: self.store.len(),
            beyond,
        }
    }

    fn own(&self) -> anyhow::Result<Vec<RouteMessage>> {
        let payloads = self.own.values();
        payloads
            .map(|(payload, _)| RouteMessage::parse(payload).context("a route of ours"))
            .collect()
    }
}
