//! Reads all routes of the kernel, in steps of one read.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path as FilePath;
use std::time::{Duration, Instant};

use anabranch_core::Family;
use anyhow::{Context, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::Known;
use super::store::{Effect, Path};
use super::wire::{Route, Said, messages, question};
use crate::host::ids;
use crate::observe::Prefix;
use crate::observe::netlink::IPV6;

/// The kernel returns no more in one read (NLMSG_GOODSIZE and max_recvmsg_len of linux/net/netlink/af_netlink.c).
const READ_BYTES: usize = 65_536;

/// The state of a walk after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// There is more to read now.
    Further,
    /// There will be more to read.
    Waits,
    Done,
}

/// A walk in progress, with a socket of its own.
pub struct Walk {
    socket: Socket,
    buffer: Vec<u8>,
    /// The families that are left, the present one last.
    families: Vec<Family>,
    /// The prefix of the last message: the messages of one prefix come in sequence.
    present: Option<(u32, Prefix, Vec<Path>)>,
    /// Prefixes with a change since the walk began. The change is newer than the result of the walk.
    heard: BTreeSet<(u32, Prefix)>,
    met: usize,
    began: Instant,
}

impl Walk {
    /// Begins a walk in the calling thread's network namespace.
    pub fn begin(known: &mut Known) -> anyhow::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE).context("open a netlink socket")?;
        socket.bind_auto().context("bind a netlink socket")?;
        socket
            .connect(&SocketAddr::new(0, 0))
            .context("connect a netlink socket")?;
        socket
            .set_non_blocking(true)
            .context("set up a netlink socket")?;
        let has_v6 = FilePath::new(IPV6).exists();
        let families = [Family::V6, Family::V4].into_iter();
        let walk = Self {
            socket,
            buffer: vec![0; READ_BYTES],
            families: families
                .filter(|family| *family == Family::V4 || has_v6)
                .collect(),
            present: None,
            heard: BTreeSet::new(),
            met: 0,
            began: Instant::now(),
        };
        known.phase = !known.phase;
        known.store.begin_walk();
        walk.ask()?;
        Ok(walk)
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket is open for as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) }
    }

    /// Reports a change of this prefix.
    pub fn hear(&mut self, table: u32, prefix: Prefix) {
        self.heard.insert((table, prefix));
    }

    /// Time since it began.
    pub fn took(&self) -> Duration {
        self.began.elapsed()
    }

    fn ask(&self) -> anyhow::Result<()> {
        let Some(family) = self.families.last() else {
            return Ok(());
        };
        self.socket
            .send(&question(*family), 0)
            .context("ask for routes")?;
        Ok(())
    }

    /// Reads once, and passes the effects to `follow`.
    pub fn step(
        &mut self,
        known: &mut Known,
        mut follow: impl FnMut((u32, Prefix, Effect)),
    ) -> anyhow::Result<Progress> {
        let Some(family) = self.families.last().copied() else {
            return Ok(Progress::Done);
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        let read = self.socket.recv(&mut &mut buffer[..], 0);
        let read = match read {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.buffer = buffer;
                return Ok(Progress::Waits);
            }
            read => read.context("read routes")?,
        };
        let mut is_over = false;
        for said in messages(&buffer[..read]) {
            match said {
                Said::Route(route, _) => self.meet(known, route, &mut follow),
                Said::Refused(0) => {}
                Said::Refused(code) => {
                    bail!("list routes: {}", std::io::Error::from_raw_os_error(code))
                }
                Said::Done => is_over = true,
                Said::Gone(_) | Said::Device { .. } | Said::Other => {}
            }
        }
        self.buffer = buffer;
        if is_over {
            self.leave_prefix(known, &mut follow);
            known.store.end_walk(family).into_iter().for_each(follow);
            let phase = known.phase;
            let is_of = |prefix: &Prefix| prefix.family() == family;
            known
                .own
                .retain(|(_, prefix, _), (_, seen)| *seen == phase || !is_of(prefix));
            self.families.pop();
            self.ask()?;
        }
        if self.families.is_empty() {
            known.met = self.met;
            return Ok(Progress::Done);
        }
        Ok(Progress::Further)
    }

    fn meet(
        &mut self,
        known: &mut Known,
        route: Route<'_>,
        follow: &mut impl FnMut((u32, Prefix, Effect)),
    ) {
        self.met += 1;
        if route.is_ours && ids::is_own_table(route.table) {
            let place = (route.table, route.prefix, route.path.metric);
            let seen = (route.payload.to_vec(), known.phase);
            known.own.insert(place, seen);
            return;
        }
        let is_same = |(table, prefix, _): &(u32, Prefix, Vec<Path>)| {
            (*table, *prefix) == (route.table, route.prefix)
        };
        if !self.present.as_ref().is_some_and(is_same) {
            self.leave_prefix(known, follow);
        }
        if route.is_throw {
            return;
        }
        let none = (route.table, route.prefix, Vec::new());
        let (_, _, paths) = self.present.get_or_insert(none);
        paths.push(route.path);
    }

    fn leave_prefix(&mut self, known: &mut Known, follow: &mut impl FnMut((u32, Prefix, Effect))) {
        let Some((table, prefix, mut paths)) = self.present.take() else {
            return;
        };
        if self.heard.contains(&(table, prefix)) {
            return;
        }
        paths.sort_by_key(|path| path.metric);
        follow((table, prefix, known.store.set(table, prefix, paths)));
    }

    /// Reads until the end.
    pub fn finish(
        &mut self,
        known: &mut Known,
        mut follow: impl FnMut((u32, Prefix, Effect)),
    ) -> anyhow::Result<()> {
        loop {
            match self.step(known, &mut follow)? {
                Progress::Done => return Ok(()),
                Progress::Further => {}
                Progress::Waits => {
                    let fd = self.fd();
                    let mut waits = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
                    match poll(&mut waits, PollTimeout::NONE) {
                        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                        Err(error) => return Err(error).context("wait for routes"),
                    }
                }
            }
        }
    }
}
