//! The thread that follows the routes: it receives changes, walks tables, writes, and answers the loop after each slice of such
//! work.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use anyhow::Context;
use netlink_packet_route::route::RouteMessage;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rtnetlink::sys::{Socket, protocols::NETLINK_ROUTE};
use tokio::sync::{Notify, oneshot};

use super::store::{Effect, Path};
use super::walk::{Progress, Walk};
use super::wire::{Route as Told, Said, messages};
use super::{Known, ROUTES_MAX, View, limit};
use crate::error::with_causes;
use crate::host::ids;
use crate::observe::{MassKey, Prefix, RouteKind, TABLE_LOCAL, TABLE_MAIN};
use crate::plane::{Error, Route, RouteTable, Verdict};

/// Up to this many routes, a table is read for every snapshot, in a millisecond or two.
const SMALL: usize = 1024;
/// A larger one is read again after this many times as long as that took, ...
const WALK_REST: u32 = 300;
/// ... and not before this.
const WALK_REST_MIN: Duration = Duration::from_secs(30);
/// After a loss of messages, it is read again after this many times as long.
const LOSS_REST: u32 = 4;
/// Number of prefixes written, or of messages received, before the thread looks for more urgent work: some milliseconds.
const SLICE: usize = 2048;
const READS: usize = 256;
/// Maximum length of one message.
const READ_BYTES: usize = 65_536;
/// Receive buffer for changes while the thread is busy: some ten thousand changes.
const NEWS_BYTES: u32 = 32 << 20;
/// linux/rtnetlink.h, enum rtnetlink_groups: devices, routes of IPv4, routes of IPv6.
const GROUPS: [u32; 3] = [1, 7, 11];

/// A request of the loop.
pub enum Order {
    View(oneshot::Sender<anyhow::Result<View>>),
    Own(oneshot::Sender<anyhow::Result<Vec<RouteMessage>>>),
    Write(Box<RouteTable>),
    Tell {
        few: Vec<Route>,
        masses: Vec<(MassKey, Verdict)>,
        told: Sender<anyhow::Result<()>>,
    },
}

/// A pass over all prefixes of the main table, to write them.
#[derive(Debug, Clone, Copy)]
struct Pass {
    after: Option<Prefix>,
    /// Whether it also removes those that belong to no mass.
    cleans: bool,
}

/// The data path's table as it was written.
struct Written {
    table: Option<RouteTable>,
    /// Entries that the loop has set. They take precedence over masses.
    few: BTreeMap<Prefix, Verdict>,
    /// Prefixes that left a mass and are still written.
    stale: BTreeSet<Prefix>,
    pass: Option<Pass>,
    /// The request that waits for the first pass.
    first: Option<Sender<anyhow::Result<()>>>,
    is_told: bool,
    limit: usize,
    beyond: bool,
    /// Whether a prefix could not be written. It is logged once until all are written again.
    has_failed: bool,
}

impl Written {
    fn put(&mut self, prefix: Prefix, verdict: Option<Verdict>) -> Result<(), Error> {
        let Some(table) = &mut self.table else {
            return Ok(());
        };
        let prefix = (prefix.address, prefix.length);
        match verdict {
            Some(verdict) => table.set(&Route { prefix, verdict }),
            None => table.remove(prefix),
        }
    }

    /// Writes or removes a prefix of a mass.
    fn put_of_mass(&mut self, prefix: Prefix, verdict: Option<Verdict>) {
        let verdict = verdict.filter(|_| !self.beyond);
        match self.put(prefix, verdict) {
            Ok(()) => {}
            Err(error) if error.is_full() => self.give_up_masses(),
            Err(error) if !self.has_failed => {
                self.has_failed = true;
                tracing::warn!(
                    "route to {prefix}: the programs do not know it: {}; tried again after the next reading",
                    with_causes(&error)
                );
            }
            Err(_) => {}
        }
    }

    /// Called when the table has less room than it should have.
    fn give_up_masses(&mut self) {
        (self.beyond, self.limit) = (true, 0);
        self.begin_pass(true);
    }

    fn begin_pass(&mut self, cleans: bool) {
        let cleans = cleans || self.pass.is_some_and(|pass| pass.cleans);
        self.pass = Some(Pass {
            after: None,
            cleans,
        });
    }
}

/// The state of the thread.
pub struct Follower {
    orders: Receiver<Order>,
    woken: UnixStream,
    changed: Arc<Notify>,
    news: Socket,
    buffer: Vec<u8>,
    known: Known,
    written: Written,
    /// Devices that are not up.
    down: BTreeSet<u32>,
    walk: Option<Walk>,
    walk_at: Instant,
    last_walk: Duration,
    has_walked: bool,
    has_lost: bool,
    /// Whether the loop has to inspect the host.
    looks: bool,
}

impl Follower {
    /// Receives changes from now on.
    pub fn new(
        orders: Receiver<Order>,
        woken: UnixStream,
        changed: Arc<Notify>,
    ) -> anyhow::Result<Self> {
        let mut news = Socket::new(NETLINK_ROUTE).context("open a netlink socket")?;
        news.bind_auto().context("bind a netlink socket")?;
        // If the process may not have such a large buffer, the default size is used.
        let _ = news.set_rx_buf_sz(NEWS_BYTES);
        for group in GROUPS {
            news.add_membership(group).context("listen to netlink")?;
        }
        news.set_non_blocking(true)
            .context("set up a netlink socket")?;
        Ok(Self {
            orders,
            woken,
            changed,
            news,
            buffer: vec![0; READ_BYTES],
            known: Known::default(),
            written: Written {
                table: None,
                few: BTreeMap::new(),
                stale: BTreeSet::new(),
                pass: None,
                first: None,
                is_told: false,
                limit: ROUTES_MAX,
                beyond: false,
                has_failed: false,
            },
            down: BTreeSet::new(),
            walk: None,
            walk_at: Instant::now(),
            last_walk: Duration::ZERO,
            has_walked: false,
            has_lost: false,
            looks: false,
        })
    }

    /// Runs until no more requests can come.
    pub fn work(&mut self) -> anyhow::Result<()> {
        while self.take_orders()? {
            let more = self.hear()?;
            self.go_on_walking()?;
            self.go_on_writing();
            self.judge_room();
            if std::mem::take(&mut self.looks) {
                self.changed.notify_one();
            }
            if !more && self.written.pass.is_none() {
                self.wait()?;
            }
        }
        Ok(())
    }

    /// Waits for a request, a message, more of a walk, or the time for one.
    fn wait(&mut self) -> anyhow::Result<()> {
        // SAFETY: the socket is open for as long as it is borrowed.
        let news = unsafe { BorrowedFd::borrow_raw(self.news.as_raw_fd()) };
        let mut waits = vec![
            PollFd::new(self.woken.as_fd(), PollFlags::POLLIN),
            PollFd::new(news, PollFlags::POLLIN),
        ];
        let timeout = match &self.walk {
            Some(walk) => {
                waits.push(PollFd::new(walk.fd(), PollFlags::POLLIN));
                PollTimeout::NONE
            }
            None if self.is_small() => PollTimeout::NONE,
            None => {
                let rest = self.walk_at.saturating_duration_since(Instant::now());
                let rest = rest + Duration::from_millis(1);
                PollTimeout::try_from(rest).unwrap_or(PollTimeout::MAX)
            }
        };
        match poll(&mut waits, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("wait for routes"),
        }
        // It only signals that there is a request.
        while (&self.woken).read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
        Ok(())
    }

    /// Whether it is read for every snapshot.
    fn is_small(&self) -> bool {
        !self.has_walked || self.known.met <= SMALL
    }

    // ---- orders

    /// Handles a request. Returns whether there may be more.
    fn take_orders(&mut self) -> anyhow::Result<bool> {
        loop {
            match self.orders.try_recv() {
                Ok(order) => self.take(order)?,
                Err(TryRecvError::Empty) => return Ok(true),
                Err(TryRecvError::Disconnected) => return Ok(false),
            }
        }
    }

    fn take(&mut self, order: Order) -> anyhow::Result<()> {
        match order {
            Order::View(reply) => {
                let seen = self.catch_up();
                self.judge_room();
                // The loop is inspecting the host now, so it need not be notified.
                self.looks = false;
                let view = seen.map(|()| self.known.view(self.written.beyond));
                // The loop may have stopped waiting.
                drop(reply.send(view));
            }
            Order::Own(reply) => {
                let seen = self.catch_up();
                drop(reply.send(seen.and_then(|()| self.known.own())));
            }
            Order::Write(table) => {
                self.written.limit = limit(table.room());
                self.written.table = Some(*table);
            }
            Order::Tell { few, masses, told } => self.tell(few, &masses, told),
        }
        Ok(())
    }

    /// Reads everything that the kernel knows by now, except changes of a large table that the kernel does not report.
    fn catch_up(&mut self) -> anyhow::Result<()> {
        while self.hear()? {}
        if self.walk.is_none() && self.is_small() {
            self.begin_walk()?;
        }
        if self.is_small() {
            while self.walk.is_some() {
                let walk = self.walk.take();
                if let Some(mut walk) = walk {
                    let mut follows = Vec::new();
                    let finished = walk.finish(&mut self.known, |one| follows.push(one));
                    follows.into_iter().for_each(|one| self.follow(one));
                    finished?;
                    self.walked(&walk);
                }
            }
        }
        Ok(())
    }

    // ---- what is heard

    /// Handles messages. Returns whether there may be more.
    fn hear(&mut self) -> anyhow::Result<bool> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let heard = self.hear_by(&mut buffer);
        self.buffer = buffer;
        heard
    }

    fn hear_by(&mut self, buffer: &mut [u8]) -> anyhow::Result<bool> {
        for _ in 0..READS {
            match self.news.recv(&mut &mut *buffer, 0) {
                Ok(read) => messages(&buffer[..read]).for_each(|said| self.hear_one(said)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.has_lost = true;
                    self.walk_at = Instant::now() + self.last_walk * LOSS_REST;
                    self.looks = true;
                }
                Err(error) => return Err(error).context("listen to netlink"),
            }
        }
        Ok(true)
    }

    fn hear_one(&mut self, said: Said<'_>) {
        match said {
            Said::Route(route, mode) => {
                let Some((table, prefix, path)) = self.hear_route(route, true) else {
                    return;
                };
                let effect = self.known.store.add(table, prefix, path, mode);
                self.follow((table, prefix, effect));
            }
            Said::Gone(route) => {
                let Some((table, prefix, path)) = self.hear_route(route, false) else {
                    return;
                };
                let effect = self.known.store.remove(table, prefix, &path);
                self.follow((table, prefix, effect));
                if table == TABLE_LOCAL && prefix == Prefix::host(prefix.address) {
                    self.lose_source(prefix.address);
                }
            }
            Said::Device {
                ifindex,
                is_up,
                is_there,
            } => self.see_device(ifindex, is_up, is_there),
            Said::Refused(_) | Said::Done | Said::Other => {}
        }
    }

    /// The route in a message; none if it is of our own tables, which only the loop uses, or of no use.
    fn hear_route(&mut self, route: Told<'_>, is_there: bool) -> Option<(u32, Prefix, Path)> {
        if route.is_ours && ids::is_own_table(route.table) {
            let place = (route.table, route.prefix, route.path.metric);
            let payload = (route.payload.to_vec(), self.known.phase);
            match is_there {
                true => drop(self.known.own.insert(place, payload)),
                false => drop(self.known.own.remove(&place)),
            }
            self.looks = true;
            return None;
        }
        if let Some(walk) = &mut self.walk {
            walk.hear(route.table, route.prefix);
        }
        (!route.is_throw).then_some((route.table, route.prefix, route.path))
    }

    fn see_device(&mut self, ifindex: u32, is_up: bool, is_there: bool) {
        if is_up && is_there {
            self.down.remove(&ifindex);
            return;
        }
        let was_up = self.down.insert(ifindex);
        if !was_up && is_there {
            return;
        }
        let down = &self.down;
        // The host's own addresses stay as long as their device exists.
        let is_own = |prefix: Prefix, path: &Path| {
            let source = path.source.filter(|_| path.kind == RouteKind::Kernel);
            source.is_some_and(|source| prefix.overlaps(Prefix::host(source)))
        };
        let is_gone = |prefix: Prefix, path: &Path| {
            let mut hops = path.hops.iter();
            let is_down = match is_there || prefix.address.is_ipv6() {
                true => hops.all(|hop| down.contains(&hop.ifindex)),
                // A multipath route vanishes as a whole when one of its devices does.
                false => hops.any(|hop| hop.ifindex == ifindex),
            };
            is_down && !(is_there && is_own(prefix, path))
        };
        let gone = self.known.store.purge(is_gone);
        self.lose(gone);
        if !is_there {
            self.down.remove(&ifindex);
        }
    }

    /// Removes the routes that have an address as their source.
    fn lose_source(&mut self, address: IpAddr) {
        let is_gone = |_, path: &Path| path.source == Some(address);
        if !address.is_ipv4() || self.known.store.is_local(address) {
            return;
        }
        let gone = self.known.store.purge(is_gone);
        self.lose(gone);
    }

    fn lose(&mut self, gone: Vec<(u32, Prefix, Effect)>) {
        for one in gone {
            if let Some(walk) = &mut self.walk {
                walk.hear(one.0, one.1);
            }
            self.follow(one);
        }
        self.looks = true;
    }

    // ---- walks

    fn begin_walk(&mut self) -> anyhow::Result<()> {
        self.has_lost = false;
        self.walk = Some(Walk::begin(&mut self.known)?);
        Ok(())
    }

    fn go_on_walking(&mut self) -> anyhow::Result<()> {
        let is_due = Instant::now() >= self.walk_at && (self.has_lost || !self.is_small());
        if self.walk.is_none() && is_due {
            self.begin_walk()?;
        }
        let Some(mut walk) = self.walk.take() else {
            return Ok(());
        };
        let mut follows = Vec::new();
        let progress = walk.step(&mut self.known, |one| follows.push(one));
        follows.into_iter().for_each(|one| self.follow(one));
        match progress? {
            Progress::Done => self.walked(&walk),
            Progress::Further | Progress::Waits => self.walk = Some(walk),
        }
        Ok(())
    }

    fn walked(&mut self, walk: &Walk) {
        if std::mem::take(&mut self.written.has_failed) {
            self.written.begin_pass(true);
        }
        self.last_walk = walk.took();
        self.has_walked = true;
        let rest = match self.has_lost {
            true => self.last_walk * LOSS_REST,
            false => (self.last_walk * WALK_REST).max(WALK_REST_MIN),
        };
        self.walk_at = Instant::now() + rest;
    }

    // ---- the data path's table

    /// Handles the effect of a change.
    fn follow(&mut self, (table, prefix, effect): (u32, Prefix, Effect)) {
        self.looks |= std::mem::take(&mut self.known.store.masses_changed);
        let is_few = self.written.few.contains_key(&prefix);
        match effect {
            Effect::Nothing => {}
            Effect::Look => self.looks = true,
            Effect::Write(_) if is_few => self.looks = true,
            Effect::Write(verdict) => {
                self.written.stale.remove(&prefix);
                self.written.put_of_mass(prefix, verdict);
            }
            Effect::Left => {
                self.written.stale.insert(prefix);
                self.looks = true;
            }
        }
        let is_gone = table == TABLE_MAIN && !self.known.store.has(prefix);
        if is_gone && self.written.stale.remove(&prefix) && !is_few {
            self.written.put_of_mass(prefix, None);
        }
    }

    fn tell(
        &mut self,
        few: Vec<Route>,
        masses: &[(MassKey, Verdict)],
        told: Sender<anyhow::Result<()>>,
    ) {
        let few = few.into_iter();
        let few = few.map(|route| (Prefix::new(route.prefix.0, route.prefix.1), route.verdict));
        let few: BTreeMap<Prefix, Verdict> = few.collect();
        let (writes, drops) = self.known.store.tell(masses);
        let is_first = !std::mem::replace(&mut self.written.is_told, true);
        let written = self.write_few(few, is_first);
        if writes || drops || is_first {
            self.written.begin_pass(drops);
        }
        match written {
            // The loop may have stopped waiting.
            Ok(()) if is_first => self.written.first = Some(told),
            written => drop(told.send(written.map_err(anyhow::Error::from))),
        }
    }

    fn write_few(&mut self, few: BTreeMap<Prefix, Verdict>, is_first: bool) -> Result<(), Error> {
        let store = &self.known.store;
        if let Some(table) = self.written.table.as_mut().filter(|_| is_first) {
            table.keep_only(|(address, length)| {
                let prefix = Prefix::new(address, length);
                few.contains_key(&prefix) || store.written(prefix).is_some()
            })?;
        }
        let before = std::mem::take(&mut self.written.few);
        for (prefix, verdict) in &few {
            if is_first || before.get(prefix) != Some(verdict) {
                let put = self.written.put(*prefix, Some(*verdict));
                if let Err(error) = put {
                    self.written.few = before;
                    return Err(error);
                }
            }
        }
        let stale = std::mem::take(&mut self.written.stale);
        let gone = before.keys().chain(&stale);
        for prefix in gone.filter(|prefix| !few.contains_key(prefix)) {
            let verdict = self.known.store.written(*prefix);
            self.written.put_of_mass(*prefix, verdict);
        }
        self.written.few = few;
        Ok(())
    }

    /// Writes a slice of a pass.
    fn go_on_writing(&mut self) {
        let Some(mut pass) = self.written.pass.take() else {
            return;
        };
        let rest = self.known.store.after(pass.after);
        let mut more = false;
        for (place, (prefix, verdict)) in rest.enumerate() {
            if place == SLICE {
                more = true;
                break;
            }
            pass.after = Some(prefix);
            let is_few = self.written.few.contains_key(&prefix);
            if !is_few && (verdict.is_some() || pass.cleans) {
                self.written.put_of_mass(prefix, verdict);
            }
        }
        if self.written.pass.is_some() {
            // The table ran out of room, and the pass starts again.
            return;
        }
        if more {
            self.written.pass = Some(pass);
        } else if let Some(first) = self.written.first.take() {
            // The loop may have stopped waiting.
            drop(first.send(Ok(())));
        }
    }

    /// Decides whether masses fit into the table. After they did not, they are written again only when an eighth of it would stay
    /// free.
    fn judge_room(&mut self) {
        let (count, limit) = (self.known.store.len(), self.written.limit);
        let beyond = match self.written.beyond {
            true => count > limit / 8 * 7,
            false => count > limit,
        };
        if beyond != self.written.beyond {
            self.written.beyond = beyond;
            self.written.begin_pass(beyond);
            self.looks = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::sync::mpsc::channel;

    use anabranch_testbed::netns::Namespace;

    use super::*;
    use crate::observe::HostRoute;

    /// Two devices with routers behind them, and many routes by either.
    fn host(routes: usize) -> Namespace {
        let host = Namespace::create("routes").unwrap();
        for (number, device) in (1..).zip(["a0", "b0"]) {
            let far = format!("{device}-far");
            host.veth(device, &host, &far).unwrap();
            host.ip(&format!("link set {far} up")).unwrap();
            host.ip(&format!("link set {device} up")).unwrap();
            for address in [
                format!("192.0.{number}.1/24"),
                format!("192.0.{number}.2/24"),
                format!("2001:db8:{number}::1/64 nodad"),
            ] {
                host.ip(&format!("addr add {address} dev {device}"))
                    .unwrap();
            }
        }
        let mut batch = String::new();
        for number in 0..routes {
            let (device, via) = [("a0", 1), ("b0", 2)][number % 2];
            let (high, low) = (number / 256, number % 256);
            writeln!(
                batch,
                "route add 20.{high}.{low}.0/24 via 192.0.{via}.9 dev {device}"
            )
            .unwrap();
        }
        change(&host, &batch);
        host
    }

    fn change(host: &Namespace, batch: &str) {
        host.exec_with_input("ip", &["-batch", "-"], batch).unwrap();
    }

    fn follower(host: &Namespace) -> Follower {
        let (_, orders) = channel();
        let (woken, _) = UnixStream::pair().unwrap();
        let changed = Arc::new(Notify::new());
        let follow = || Follower::new(orders, woken, changed).unwrap();
        host.run(follow).unwrap()
    }

    fn sorted(mut routes: Vec<HostRoute>) -> Vec<String> {
        // Numbers of masses are as they happened to begin.
        routes.sort_by_key(|route| (route.table, route.prefix, route.metric));
        routes.iter().map(|route| format!("{route:?}")).collect()
    }

    fn known(known: &mut Known) -> (Vec<String>, Vec<String>, usize) {
        let view = known.view(false);
        let masses = view.masses.into_iter().map(|mass| mass.route);
        let mut masses = sorted(masses.collect());
        masses.sort();
        (sorted(view.routes), masses, view.count)
    }

    /// The follower knows what somebody would read anew, once the kernel's own work is done: IPv6 has some of it.
    fn agrees(host: &Namespace, follower: &mut Follower, what: &str) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while let Err(differ) = compare(host, follower) {
            assert!(Instant::now() < deadline, "{what}: {differ}");
        }
    }

    fn compare(host: &Namespace, follower: &mut Follower) -> Result<(), String> {
        let read = || {
            let mut fresh = Known::default();
            let mut walk = Walk::begin(&mut fresh).unwrap();
            walk.finish(&mut fresh, |_| {}).unwrap();
            known(&mut fresh)
        };
        let (routes, masses, count) = host.run(read).unwrap();
        host.run(|| follower.catch_up().unwrap()).unwrap();
        let heard = known(&mut follower.known);
        let beside = |one: &[String], other: &[String]| -> Vec<String> {
            let beside = one.iter().filter(|route| !other.contains(route));
            beside.cloned().collect()
        };
        let (more, less) = (beside(&heard.0, &routes), beside(&routes, &heard.0));
        let is_same = (&heard.1, heard.2) == (&masses, count);
        match more.is_empty() && less.is_empty() && is_same {
            true => Ok(()),
            false => Err(format!(
                "heard {more:?} {} {:?}, there {less:?} {count} {masses:?}",
                heard.2, heard.1
            )),
        }
    }

    #[test]
    fn what_is_heard_of_a_large_table_is_what_the_kernel_has() {
        let host = host(2 * SMALL);
        let mut follower = follower(&host);
        agrees(&host, &mut follower, "at first");
        assert!(!follower.is_small());
        for (what, batch) in [
            (
                "routes replaced, taken away and added beside others",
                "route replace 20.0.1.0/24 via 192.0.1.77 dev a0\n\
                 route del 20.0.2.0/24\n\
                 route add 20.0.3.0/24 via 192.0.1.9 dev a0 metric 9\n\
                 route append 20.0.4.0/24 via 192.0.2.9 dev b0\n\
                 route add default via 192.0.1.9 metric 5\n\
                 route add blackhole 20.200.0.0/16\n\
                 route add default via 192.0.2.9 table 77\n",
            ),
            (
                "routes of several hops",
                "route replace 20.0.5.0/24 nexthop via 192.0.1.9 nexthop via 192.0.2.9\n\
                 route add 2001:db8:9::/48 nexthop via 2001:db8:1::9 nexthop via 2001:db8:2::9\n\
                 route add 2001:db8:a::/48 via 2001:db8:1::9\n\
                 route append 2001:db8:a::/48 via 2001:db8:2::9\n\
                 route del 2001:db8:9::/48 via 2001:db8:1::9\n",
            ),
            (
                "an address that routes come from",
                "route add 20.201.0.0/16 via 192.0.1.9 dev a0 src 192.0.1.2\n\
                 addr del 192.0.1.2/24 dev a0\n",
            ),
            ("a device that goes down", "link set a0 down\n"),
            ("and comes up", "link set a0 up\n"),
            ("a device that is deleted", "link del b0\n"),
        ] {
            change(&host, batch);
            assert!(!follower.is_small(), "{what}: nothing is read anew");
            agrees(&host, &mut follower, what);
        }
    }

    #[test]
    fn what_was_lost_is_read_anew() {
        let host = host(2 * SMALL);
        let mut follower = follower(&host);
        agrees(&host, &mut follower, "at first");
        follower.news.set_rx_buf_sz(4096_u32).unwrap();
        let mut batch = String::new();
        for number in 0..SMALL {
            let (high, low) = (number / 256, number % 256);
            writeln!(batch, "route del 20.{high}.{low}.0/24").unwrap();
        }
        change(&host, &batch);
        host.run(|| follower.catch_up().unwrap()).unwrap();
        assert!(follower.has_lost);
        host.run(|| {
            while follower.has_lost || follower.walk.is_some() {
                follower.go_on_walking().unwrap();
            }
        })
        .unwrap();
        agrees(&host, &mut follower, "after the walk");
    }

    #[test]
    fn masses_without_room_are_the_kernels_until_there_is_room_to_spare() {
        let host = host(2 * SMALL);
        let mut follower = follower(&host);
        follower.written.limit = 2 * SMALL - 200;
        host.run(|| follower.catch_up().unwrap()).unwrap();
        follower.judge_room();
        assert!(follower.written.beyond);
        let mut deleted = 0;
        let mut delete = |count: usize| {
            let mut batch = String::new();
            for number in deleted..deleted + count {
                let (high, low) = (number / 256, number % 256);
                writeln!(batch, "route del 20.{high}.{low}.0/24").unwrap();
            }
            deleted += count;
            change(&host, &batch);
            host.run(|| follower.catch_up().unwrap()).unwrap();
            follower.judge_room();
            follower.written.beyond
        };
        assert!(delete(220), "just as many as there is room for");
        assert!(!delete(SMALL / 4));
    }
}
