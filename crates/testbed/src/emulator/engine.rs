//! The thread that carries the packets: reads what has arrived, sends what is due, sleeps until the next is.
//!
//! It sleeps on an absolute timer with a slack of 1 ns, never spins, and has real-time priority; packets are stamped by the kernel when they reach the device,
//! so the time this thread takes to wake up for them is not added to their delay.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::mpsc::Receiver as Requests;
use std::time::{Duration, Instant};

use anabranch_line::{Line, Loss, NEAREST, Nature};
use hdrhistogram::Histogram;
use nix::sys::eventfd::EventFd;
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use nix::time::{ClockId as Clock, clock_gettime};
use serde::Serialize;

use super::Distance;
use super::packet::{BATCH, Flaw, Frames, PacketSocket, Received, Receiver, Sender, Slot};
use super::pipe::{Pipe, Refusal};

/// Batches per direction and turn, so that a flood on one link does not keep the others waiting.
const BATCHES_PER_TURN: usize = 4;

/// Descriptors of [`Engine::watched`] that are not sockets.
const OWN_FDS: usize = 2;

/// Of the engine's thread, among real-time threads.
pub(crate) const PRIORITY: i32 = 1;

/// Packets that were not treated as the line says. A run in which one of these moves is not valid.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// Longer than the link takes.
    pub oversize: u64,
    /// Superpackets that could not be cut into segments.
    pub unsegmented: u64,
    /// Packets whose checksum was left to a device, and could not be completed.
    pub partial_checksum: u64,
    /// The kernel refused a frame we sent.
    pub device: u64,
    /// The kernel dropped arriving frames because this process did not read them in time.
    pub unread: u64,
}

/// What runs inside the engine's thread on behalf of a handle.
pub(super) type Request = Box<dyn FnOnce(&mut Engine) + Send>;

/// A frame on its way, and the place in [`Engine::ports`] of the device it leaves by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Passing {
    slot: Slot,
    leaves: usize,
}

/// One direction of one link.
pub(super) struct Lane {
    pub pipe: Pipe<Passing>,
    pub mtu_bytes: u32,
    pub faults: Faults,
    /// Sent while the device did not exist or was down: what unplugging a cable does.
    pub unplugged: u64,
    pub lateness_ns: Histogram<u64>,
    last_arrival_ns: u64,
    hops: Distance,
}

/// The farther of the two ends of a packet, of which one is no server.
fn hops(ends: Option<[IpAddr; 2]>, distance: Distance) -> u16 {
    let ends = ends.into_iter().flatten().map(distance);
    ends.max().unwrap_or(NEAREST)
}

impl Lane {
    pub(super) fn new(pipe: Pipe<Passing>, mtu_bytes: u32, hops: Distance) -> Self {
        Self {
            pipe,
            mtu_bytes,
            hops,
            faults: Faults::default(),
            unplugged: 0,
            lateness_ns: Histogram::new_with_bounds(1, 10_000_000_000, 3)
                .expect("bounds are in order"),
            last_arrival_ns: 0,
        }
    }

    fn take_in(&mut self, frames: &mut Frames, now: &Now, received: Received, leaves: usize) {
        if let Some(flaw) = received.flaw {
            self.refuse(flaw);
            return frames.give_back(received.slot);
        }
        let arrived_ns = now
            .arrival_ns(received.realtime_ns)
            .max(self.last_arrival_ns);
        self.last_arrival_ns = arrived_ns;
        let slot = received.slot;
        let nature = self.nature(frames, slot);
        let passing = Passing { slot, leaves };
        let offered = self
            .pipe
            .offer_as(arrived_ns, received.ip_bytes, nature, passing);
        if let Err(Refusal::Queue | Refusal::Outage) = offered {
            frames.give_back(slot);
        }
    }

    /// As far as the line asks for it.
    fn nature(&self, frames: &mut Frames, slot: Slot) -> Nature {
        let line = self.pipe.line();
        let mut nature = Nature::ORDINARY;
        if let Loss::PerHop { .. } = line.loss {
            nature.hops = hops(frames.ends(slot), self.hops);
        }
        if !line.impairments.passage.is_all() {
            nature.sort = frames.sort(slot);
        }
        nature
    }

    fn refuse(&mut self, flaw: Flaw) {
        match flaw {
            Flaw::Oversize => self.faults.oversize += 1,
            Flaw::Unsegmented => self.faults.unsegmented += 1,
            Flaw::PartialChecksum => self.faults.partial_checksum += 1,
        }
    }

    fn refused(&mut self, error: &io::Error) {
        match error.raw_os_error() {
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => self.unplugged += 1,
            _ => self.faults.device += 1,
        }
    }

    /// Moves what is due, [`BATCH`] packets at most, to `due`.
    fn take_due(&mut self, frames: &mut Frames, due: &mut Due) {
        due.slots.clear();
        due.leaves.clear();
        due.times_ns.clear();
        let now_ns = monotonic_ns();
        while due.slots.len() < BATCH {
            match self.pipe.pop(now_ns) {
                None => break,
                Some(arrival) if arrival.lost => frames.give_back(arrival.packet.slot),
                Some(arrival) => {
                    due.slots.push(arrival.packet.slot);
                    due.leaves.push(arrival.packet.leaves);
                    due.times_ns.push(arrival.due_ns);
                }
            }
        }
    }

    fn record_lateness(&mut self, times_ns: &[u64]) {
        let now_ns = monotonic_ns();
        for due_ns in times_ns {
            self.lateness_ns.saturating_record((now_ns - due_ns).max(1));
        }
    }
}

/// Packets being sent, and when they should have been.
#[derive(Default)]
struct Due {
    slots: Vec<Slot>,
    /// By which port each.
    leaves: Vec<usize>,
    times_ns: Vec<u64>,
}

impl Due {
    /// Those that leave by the same port as the one before them, with it.
    fn runs(&self) -> impl Iterator<Item = (usize, &[Slot])> {
        let mut rest = &self.slots[..];
        let by_port = self.leaves.chunk_by(|one, next| one == next);
        by_port.map(move |run| {
            let (slots, after) = rest.split_at(run.len());
            rest = after;
            (run[0], slots)
        })
    }
}

/// A device, and the lane that what comes from it takes. What leaves that lane again leaves by the port at its side.
pub(super) struct Port {
    socket: PacketSocket,
    pub lane: usize,
}

/// Both clocks at one moment.
struct Now {
    realtime_ns: u64,
    monotonic_ns: u64,
}

impl Now {
    /// In this order: a pause in between makes packets late, never early.
    fn read() -> Self {
        Self {
            realtime_ns: clock_ns(Clock::CLOCK_REALTIME),
            monotonic_ns: monotonic_ns(),
        }
    }

    /// A kernel time stamp on the monotonic clock. A stamp from the future (the real-time clock was set) means now.
    fn arrival_ns(&self, stamp_ns: Option<u64>) -> u64 {
        let age_ns = stamp_ns.map_or(0, |stamp_ns| self.realtime_ns.saturating_sub(stamp_ns));
        self.monotonic_ns.saturating_sub(age_ns)
    }
}

fn clock_ns(clock: Clock) -> u64 {
    let time = clock_gettime(clock).expect("the clock exists on every Linux");
    Duration::from(time).as_nanos() as u64
}

fn monotonic_ns() -> u64 {
    clock_ns(Clock::CLOCK_MONOTONIC)
}

/// The lanes of all links: what port `i` reads leaves by port `i ^ 1`.
pub(super) struct Engine {
    pub lanes: Vec<Lane>,
    pub ports: Vec<Port>,
    pub running: bool,
    frames: Frames,
    receiver: Receiver,
    sender: Sender,
    due: Due,
    requests: Requests<Request>,
    wake: Arc<EventFd>,
    timer: TimerFd,
    /// The time the timer is set to.
    armed_ns: Option<u64>,
    /// What [`Engine::sleep`] waits for: `wake`, `timer`, then the sockets.
    watched: Vec<libc::pollfd>,
}

impl Engine {
    pub(super) fn new(requests: Requests<Request>, wake: Arc<EventFd>) -> io::Result<Self> {
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC)?;
        let watched = vec![pollfd(&*wake), pollfd(&timer)];
        Ok(Self {
            lanes: Vec::new(),
            ports: Vec::new(),
            running: true,
            frames: Frames::default(),
            receiver: Receiver::new(),
            sender: Sender::new(),
            due: Due::default(),
            requests,
            wake,
            timer,
            armed_ns: None,
            watched,
        })
    }

    /// Carries packets until a request ends it.
    pub(super) fn run(mut self) -> io::Result<()> {
        prepare_thread(PRIORITY)?;
        while self.running {
            self.sleep()?;
            for index in 0..self.ports.len() {
                self.read(index);
            }
            self.obey();
            for index in 0..self.lanes.len() {
                self.write(index);
            }
            self.arm()?;
        }
        Ok(())
    }

    /// Swallows what is inside a lane, and what comes.
    pub(super) fn cut(&mut self, lane: usize) {
        let frames = &mut self.frames;
        self.lanes[lane]
            .pipe
            .cut(monotonic_ns(), |passing| frames.give_back(passing.slot));
    }

    /// All traces begin where they would be had they begun at `epoch`.
    pub(super) fn restart_traces(&mut self, epoch: Instant) {
        let begin_ns = monotonic_ns() - epoch.elapsed().as_nanos() as u64;
        for lane in &mut self.lanes {
            lane.pipe.restart_trace(begin_ns);
        }
    }

    /// Changes what a lane does, from this moment on.
    pub(super) fn change(&mut self, lane: usize, change: impl FnOnce(&mut Line)) {
        let pipe = &mut self.lanes[lane].pipe;
        let mut changed = pipe.line().clone();
        change(&mut changed);
        pipe.set_line(monotonic_ns(), changed);
    }

    /// Adds what the kernel has dropped for want of reading to the faults.
    pub(super) fn count_unread(&mut self, lane: usize) {
        for port in self.ports.iter_mut().filter(|port| port.lane == lane) {
            // The socket of a device that is gone has nothing to say.
            let drops = port.socket.take_drops().unwrap_or_default();
            self.lanes[lane].faults.unread += drops;
        }
    }

    /// What comes from this socket takes `lane`.
    pub(super) fn attach(&mut self, socket: PacketSocket, lane: usize) {
        self.watched.push(pollfd(&socket));
        self.ports.push(Port { socket, lane });
    }

    /// Another socket for the device of a port.
    pub(super) fn reattach(&mut self, port: usize, socket: PacketSocket) {
        self.watched[OWN_FDS + port] = pollfd(&socket);
        self.ports[port].socket = socket;
    }

    /// Waits for a frame, a request or the time of the next departure.
    fn sleep(&mut self) -> io::Result<()> {
        // SAFETY: the array and its length belong together; its descriptors are open as long as the engine.
        let ready = unsafe {
            libc::poll(
                self.watched.as_mut_ptr(),
                self.watched.len() as libc::nfds_t,
                -1,
            )
        };
        if ready < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        if self.watched[1].revents != 0 {
            // Or it would go on being ready, with nothing to arm it for.
            self.timer.unset()?;
            self.armed_ns = None;
        }
        Ok(())
    }

    fn obey(&mut self) {
        if self.watched[0].revents != 0 {
            // Empty already is as good as emptied.
            let _ = self.wake.read();
        }
        while let Ok(request) = self.requests.try_recv() {
            request(self);
        }
    }

    /// Reads what has arrived on a socket.
    fn read(&mut self, index: usize) {
        if self.watched[OWN_FDS + index].revents == 0 {
            return;
        }
        let port = &self.ports[index];
        let lane = &mut self.lanes[port.lane];
        let mtu_bytes = lane.mtu_bytes;
        for _ in 0..BATCHES_PER_TURN {
            let mut now = None;
            let take_in = |frames: &mut Frames, received| {
                // Not before the packets were stamped: they would be taken for earlier than they are.
                let now = now.get_or_insert_with(Now::read);
                lane.take_in(frames, now, received, index ^ 1);
            };
            let count = self
                .receiver
                .receive(&port.socket, &mut self.frames, mtu_bytes, take_in);
            match count {
                Ok(BATCH) => {}
                // The kernel cannot describe a super-packet it does not know to packet sockets (packet(7)).
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    lane.refuse(Flaw::Unsegmented);
                    return;
                }
                // Nothing more, or the device went down: it may come up again.
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Sends what is due on a lane.
    fn write(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        for _ in 0..BATCHES_PER_TURN {
            lane.take_due(&mut self.frames, &mut self.due);
            if self.due.slots.is_empty() {
                return;
            }
            for (port, slots) in self.due.runs() {
                let refused = |error| lane.refused(&error);
                let socket = &self.ports[port].socket;
                self.sender.send(socket, &mut self.frames, slots, refused);
            }
            lane.record_lateness(&self.due.times_ns);
            for &slot in &self.due.slots {
                self.frames.give_back(slot);
            }
        }
    }

    /// Sets the timer to the next departure.
    fn arm(&mut self) -> io::Result<()> {
        let next_ns = self
            .lanes
            .iter()
            .filter_map(|lane| lane.pipe.next_due_ns())
            .min();
        if next_ns == self.armed_ns {
            return Ok(());
        }
        match next_ns {
            None => self.timer.unset()?,
            Some(next_ns) => {
                let at = TimeSpec::from_duration(Duration::from_nanos(next_ns));
                self.timer.set(
                    Expiration::OneShot(at),
                    TimerSetTimeFlags::TFD_TIMER_ABSTIME,
                )?;
            }
        }
        self.armed_ns = next_ns;
        Ok(())
    }
}

fn pollfd(fd: &impl AsFd) -> libc::pollfd {
    libc::pollfd {
        fd: fd.as_fd().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    }
}

/// Exact timers, and the core whenever there is work: a late emulator is a wrong emulator. It sleeps between packets,
/// so the real-time priority takes nothing from the others that a packet would not.
pub(crate) fn prepare_thread(priority: i32) -> io::Result<()> {
    nix::sys::prctl::set_timerslack(1)?;
    let priority = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: plain system call; 0 is the calling thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use nix::sys::eventfd::EfdFlags;

    use super::*;

    /// Or an idle emulator would take a whole processor from all others, at its priority.
    #[test]
    fn a_timer_that_has_fired_wakes_nobody_a_second_time() {
        let (_requests, received) = channel();
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).expect("an eventfd");
        let mut engine = Engine::new(received, Arc::new(wake)).expect("a timer");
        let soon = TimeSpec::from_duration(Duration::from_nanos(1));
        let relative = TimerSetTimeFlags::empty();
        engine
            .timer
            .set(Expiration::OneShot(soon), relative)
            .expect("sets");
        engine.sleep().expect("wakes");
        engine.arm().expect("has nothing to arm");
        // SAFETY: one descriptor, open as long as the engine.
        let ready = unsafe { libc::poll(&raw mut engine.watched[1], 1, 0) };
        assert_eq!(ready, 0);
    }
}
