//! Links between namespaces, carried by a thread of this process.
//!
//! A link is two cables that meet in a namespace of the emulator's own:
//!
//! ```text
//! near end (the customer's) ── veth ── emulator ── veth ── far end (the provider's)
//!                                up →            ← down
//! ```
//!
//! Each direction is a [`Pipe`]: rate, delay, loss, queue, outage, all of which may change while packets are inside.
//! One thread drives every pipe of an emulator. It is made for 500 Mbit/s and 100 000 packets per second in all; the
//! lateness of every packet is recorded, and a [`LinkReport`] says whether the figures can be trusted.
//!
//! Frames are carried whole, ARP included. A frame that no wire could carry (too long, a super-packet, a partial
//! checksum) is refused and counted: [`Emulator::connect`] switches the offloads off at all four cable ends, so such
//! a frame means that somebody switched them on again. A smaller MTU of which senders hear is made by a router behind
//! the link, not by the link, because a link cannot answer: what is longer than [`anabranch_line::Impairments`] say vanishes.

mod engine;
mod packet;
pub mod pipe;

use std::io;
use std::net::IpAddr;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anabranch_line::{Change, Direction, Line, NEAREST};
use hdrhistogram::Histogram;
use nix::sys::eventfd::{EfdFlags, EventFd};
use serde::Serialize;

pub use engine::Faults;
pub(crate) use engine::{PRIORITY, prepare_thread};
pub use packet::MTU_MAX_BYTES;
pub use pipe::{Fates, Pipe, lossless};

use crate::netns::{Namespace, NetnsError};
use engine::{Engine, Lane, Request};
use packet::PacketSocket;

/// A run whose packets were later than this is not valid: p99, on a machine whose cores are shared.
pub const LATENESS_P99_MAX_US: f64 = 600.0;
/// Fewer packets than this have no p99 worth judging.
const LATENESS_PACKETS_MIN: u64 = 1000;

/// Why a link cannot be made or changed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum EmulatorError {
    #[error(transparent)]
    Namespace(#[from] NetnsError),
    #[error("link {link}, {direction}: {problem}")]
    Line {
        link: String,
        direction: &'static str,
        problem: String,
    },
    #[error("link {link}: mtu_bytes = {mtu_bytes}: 576 to {MTU_MAX_BYTES}")]
    Mtu { link: String, mtu_bytes: u32 },
    #[error("emulator: {what}: {source}")]
    Io {
        what: &'static str,
        source: io::Error,
    },
    #[error("the emulator's thread has ended: see its error above, or start another emulator")]
    Stopped,
}

/// Of whatever concerns a link.
pub type Result<T, E = EmulatorError> = std::result::Result<T, E>;

fn io_error(what: &'static str) -> impl Fn(io::Error) -> EmulatorError {
    move |source| EmulatorError::Io { what, source }
}

/// What a link does in each direction: up leads away from the near end, down towards it.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkShape {
    /// Away from the near end.
    pub up: Line,
    /// Towards the near end.
    pub down: Line,
    /// Of IP packets; the devices at both ends get it too.
    pub mtu_bytes: u32,
}

impl LinkShape {
    /// Lossless, the same delay in each direction, MTU 1500.
    pub fn new(down_bps: u64, up_bps: u64, delay_us: u64) -> Self {
        let delay = Duration::from_micros(delay_us);
        Self {
            up: lossless(up_bps, delay),
            down: lossless(down_bps, delay),
            mtu_bytes: MTU_MAX_BYTES,
        }
    }
}

fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Up => "up",
        Direction::Down => "down",
    }
}

/// One end of a link: a device to be made in a namespace.
#[derive(Debug, Clone, Copy)]
pub struct End<'a> {
    /// Where it is made.
    pub namespace: &'a Namespace,
    /// Its name there.
    pub device: &'a str,
}

/// Carries the packets of its links until it is dropped.
#[derive(Debug)]
pub struct Emulator {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    seed: u64,
    distance: Distance,
}

/// How many hops away the host of an address is.
pub type Distance = fn(IpAddr) -> u16;

/// What handles need of the emulator.
#[derive(Debug)]
struct Shared {
    namespace: Namespace,
    requests: Mutex<Sender<Request>>,
    wake: Arc<EventFd>,
}

impl Shared {
    /// Runs `request` on the engine's thread and hands its result back.
    fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Engine) -> T + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = channel();
        let request: Request = Box::new(move |engine| {
            let _ = reply.send(request(engine));
        });
        let requests = self.requests.lock().map_err(|_| EmulatorError::Stopped)?;
        requests.send(request).map_err(|_| EmulatorError::Stopped)?;
        drop(requests);
        self.wake.write(1).map_err(|_| EmulatorError::Stopped)?;
        answer.recv().map_err(|_| EmulatorError::Stopped)
    }

    fn open(&self, device: &str) -> Result<PacketSocket> {
        self.namespace
            .run(|| PacketSocket::open(device))?
            .map_err(io_error("opening a packet socket"))
    }

    /// Makes the cables of the next two ports.
    fn lay(&self, near: End, far: End, mtu_bytes: u32) -> Result<Cables> {
        let port = self.ask(|engine| engine.ports.len())?;
        let devices = [format!("near{}", port / 2), format!("far{}", port / 2)];
        self.plug(near, &devices[0], mtu_bytes)?;
        self.plug(far, &devices[1], mtu_bytes)?;
        let sockets = [self.open(&devices[0])?, self.open(&devices[1])?];
        Ok(Cables {
            devices,
            sockets,
            port,
        })
    }

    /// Makes a cable from `end` to `device` in the emulator's namespace. Nothing but the packet socket is to answer
    /// there.
    fn plug(&self, end: End, device: &str, mtu_bytes: u32) -> Result<()> {
        end.namespace.veth(end.device, &self.namespace, device)?;
        for (namespace, device) in [(end.namespace, end.device), (&self.namespace, device)] {
            namespace.set_mtu(device, mtu_bytes)?;
            namespace.set_offloads(device, false)?;
        }
        self.namespace.ip(&format!("link set {device} arp off"))?;
        Ok(())
    }
}

impl Emulator {
    /// `seed` decides which packets the links lose.
    pub fn start(seed: u64) -> Result<Self> {
        let namespace = Namespace::create("emulator")?;
        namespace.set_ipv6(false)?;
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC);
        let wake = Arc::new(wake.map_err(|errno| io_error("making an eventfd")(errno.into()))?);
        let (sender, requests) = channel();
        let engine =
            Engine::new(requests, Arc::clone(&wake)).map_err(io_error("making its timer"))?;
        let carry = move || {
            if let Err(error) = engine.run() {
                eprintln!("anabranch: the link emulator stopped: {error}");
            }
        };
        let thread = std::thread::Builder::new()
            .name("emulator".into())
            .spawn(carry)
            .map_err(io_error("starting its thread"))?;
        Ok(Self {
            shared: Arc::new(Shared {
                namespace,
                requests: Mutex::new(sender),
                wake,
            }),
            thread: Some(thread),
            seed,
            distance: |_| NEAREST,
        })
    }

    /// Links that are made from here on, and lose by distance, ask this for it.
    pub fn with_distance(mut self, distance: Distance) -> Self {
        self.distance = distance;
        self
    }

    /// The traces of all lines so far begin at `epoch`, which is not in the future; until then, when the emulator began.
    pub fn restart_traces(&self, epoch: Instant) -> Result<()> {
        self.shared.ask(move |engine| engine.restart_traces(epoch))
    }

    /// Connects two ends by a new link. Makes both devices; addresses are the caller's.
    pub fn connect(&self, name: &str, near: End, far: End, shape: LinkShape) -> Result<Link> {
        for (direction, line) in [(Direction::Up, &shape.up), (Direction::Down, &shape.down)] {
            check(name, direction, line)?;
        }
        let mtu_bytes = shape.mtu_bytes;
        if !(576..=MTU_MAX_BYTES).contains(&mtu_bytes) {
            return Err(EmulatorError::Mtu {
                link: name.into(),
                mtu_bytes,
            });
        }
        let cables = self.shared.lay(near, far, mtu_bytes)?;
        let Cables {
            devices,
            sockets,
            port,
        } = cables;
        let (seed, distance) = (self.seed, self.distance);
        let first = self.shared.ask(move |engine| {
            let first = engine.lanes.len();
            for (line, socket) in [shape.up, shape.down].into_iter().zip(sockets) {
                let index = engine.lanes.len();
                // The simulator lays the line down before the one up.
                let pipe = Pipe::new(line, seed, index as u64 ^ 1);
                engine.lanes.push(Lane::new(pipe, mtu_bytes, distance));
                engine.attach(socket, index);
            }
            first
        })?;
        Ok(Link {
            name: name.into(),
            shared: Arc::clone(&self.shared),
            first,
            port,
            devices: devices.to_vec(),
            mtu_bytes,
        })
    }

    /// Connects two more ends by a link that there is: they share its lines, and have cables of their own.
    pub fn join(&self, link: &mut Link, near: End, far: End) -> Result<()> {
        let cables = self.shared.lay(near, far, link.mtu_bytes)?;
        link.devices.extend(cables.devices);
        let first = link.first;
        self.shared.ask(move |engine| {
            for (socket, lane) in cables.sockets.into_iter().zip(first..) {
                engine.attach(socket, lane);
            }
        })
    }
}

/// Near and far, of one pair of ends.
struct Cables {
    devices: [String; 2],
    sockets: [PacketSocket; 2],
    /// That of the near one will be.
    port: usize,
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.shared.ask(|engine| engine.running = false);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn check(link: &str, direction: Direction, line: &Line) -> Result<()> {
    pipe::check(line).map_err(|problem| EmulatorError::Line {
        link: link.into(),
        direction: word(direction),
        problem,
    })
}

/// A handle on a running link. Changes take effect before the call returns; the instant returned is when.
#[derive(Debug, Clone)]
pub struct Link {
    name: String,
    shared: Arc<Shared>,
    /// Its lane up; the lane down follows.
    first: usize,
    /// Of the near end.
    port: usize,
    /// The emulator's ends of the cables, near and far, then those of the ends that joined.
    devices: Vec<String>,
    mtu_bytes: u32,
}

impl Link {
    /// As it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What a direction does at present.
    pub fn line(&self, direction: Direction) -> Result<Line> {
        let lane = self.lane(direction);
        self.shared
            .ask(move |engine| engine.lanes[lane].pipe.line().clone())
    }

    /// Whether packets vanish in any direction.
    pub fn is_cut(&self) -> Result<bool> {
        let lanes = Direction::BOTH.map(|direction| self.lane(direction));
        self.shared
            .ask(move |engine| lanes.iter().any(|lane| engine.lanes[*lane].pipe.is_cut()))
    }

    /// What has become of a direction's packets.
    pub fn fates(&self, direction: Direction) -> Result<Fates> {
        let lane = self.lane(direction);
        self.shared
            .ask(move |engine| engine.lanes[lane].pipe.fates())
    }

    /// Changes one direction, or both at the same moment.
    pub fn apply(&self, direction: Option<Direction>, change: Change) -> Result<Instant> {
        let directions = match direction {
            Some(direction) => vec![direction],
            None => Direction::BOTH.to_vec(),
        };
        for &direction in &directions {
            let mut line = self.line(direction)?;
            if let (Change::Rate(_), Some(_)) = (change, &line.trace) {
                return Err(EmulatorError::Line {
                    link: self.name.clone(),
                    direction: word(direction),
                    problem: "rate: the line follows a trace, which is all the rate it has".into(),
                });
            }
            alter(&mut line, change);
            check(&self.name, direction, &line)?;
        }
        let lanes: Vec<_> = directions
            .into_iter()
            .map(|direction| self.lane(direction))
            .collect();
        self.shared.ask(move |engine| {
            for lane in lanes {
                match change {
                    Change::Cut => engine.cut(lane),
                    Change::Restore => engine.lanes[lane].pipe.restore(),
                    other => engine.change(lane, |line| alter(line, other)),
                }
            }
            Instant::now()
        })
    }

    /// Takes the near end's carrier away, or gives it back: what a modem without power does.
    pub fn set_carrier(&self, on: bool) -> Result<()> {
        let (device, state) = (&self.devices[0], if on { "up" } else { "down" });
        let namespace = &self.shared.namespace;
        namespace.ip(&format!("link set {device} {state}"))?;
        Ok(())
    }

    /// Plugs the near cable in again after its device in `near` was deleted.
    pub fn replug(&self, near: End) -> Result<()> {
        self.shared.plug(near, &self.devices[0], self.mtu_bytes)?;
        let socket = self.shared.open(&self.devices[0])?;
        let port = self.port;
        self.shared.ask(move |engine| engine.reattach(port, socket))
    }

    /// What has happened on the link since it was made.
    pub fn report(&self) -> Result<LinkReport> {
        let mut device_drops = 0;
        for device in &self.devices {
            // A cable that is unplugged has no counters.
            if let Ok(counters) = self.shared.namespace.counters(device) {
                device_drops += counters.rx_dropped + counters.tx_dropped;
            }
        }
        let [up, down] = [Direction::Up, Direction::Down].map(|direction| self.lane(direction));
        let (up, down) = self
            .shared
            .ask(move |engine| (Snapshot::take(engine, up), Snapshot::take(engine, down)))?;
        let (up, down) = (up.report(), down.report());
        Ok(LinkReport {
            name: self.name.clone(),
            up,
            down,
            device_drops,
        })
    }

    fn lane(&self, direction: Direction) -> usize {
        match direction {
            Direction::Up => self.first,
            Direction::Down => self.first + 1,
        }
    }
}

/// An outage is no property of the line: see [`Pipe::cut`].
fn alter(line: &mut Line, change: Change) {
    match change {
        Change::Cut | Change::Restore => {}
        Change::Rate(rate_bps) => line.rate_bps = rate_bps,
        Change::Loss(loss) => line.loss = loss,
        Change::Delay(delay) => line.delay = delay,
        Change::Jitter(jitter) => line.impairments.jitter = jitter,
        Change::Mtu(mtu_bytes) => line.impairments.mtu_bytes = mtu_bytes,
        Change::Passage(passage) => line.impairments.passage = passage,
    }
}

/// How long after its time a packet was handed to the device, at most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Lateness {
    /// How many were measured.
    pub packets: u64,
    /// Median, in µs.
    pub p50_us: f64,
    /// 99th percentile, in µs.
    pub p99_us: f64,
    /// The largest, in µs.
    pub max_us: f64,
}

impl Lateness {
    fn of(histogram: &Histogram<u64>) -> Self {
        let us = |ns: u64| ns as f64 / 1000.0;
        Self {
            packets: histogram.len(),
            p50_us: us(histogram.value_at_quantile(0.5)),
            p99_us: us(histogram.value_at_quantile(0.99)),
            max_us: us(histogram.max()),
        }
    }
}

/// One direction of a link, since it was made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DirectionReport {
    /// As it is by now.
    pub line: Line,
    /// What became of its packets.
    pub fates: Fates,
    /// Packets that have no fate yet.
    pub inside: u64,
    /// Packets that came out while their device was gone or down.
    pub unplugged: u64,
    /// Packets not treated as the line says.
    pub faults: Faults,
    /// Of what it handed on.
    pub lateness: Lateness,
}

/// What the engine's thread hands out: it has no time to compute anything of it.
struct Snapshot {
    line: Line,
    fates: Fates,
    inside: u64,
    unplugged: u64,
    faults: Faults,
    lateness_ns: Histogram<u64>,
}

impl Snapshot {
    fn take(engine: &mut Engine, lane: usize) -> Self {
        engine.count_unread(lane);
        let lane = &engine.lanes[lane];
        Self {
            line: lane.pipe.line().clone(),
            fates: lane.pipe.fates(),
            inside: lane.pipe.inside() as u64,
            unplugged: lane.unplugged,
            faults: lane.faults,
            lateness_ns: lane.lateness_ns.clone(),
        }
    }

    fn report(self) -> DirectionReport {
        DirectionReport {
            line: self.line,
            fates: self.fates,
            inside: self.inside,
            unplugged: self.unplugged,
            faults: self.faults,
            lateness: Lateness::of(&self.lateness_ns),
        }
    }
}

impl DirectionReport {
    fn problems(&self) -> Vec<String> {
        let Faults {
            oversize,
            unsegmented,
            partial_checksum,
            device,
            unread,
        } = self.faults;
        let mut problems = Vec::new();
        for (count, what) in [
            (
                oversize,
                "frames longer than the MTU: set the MTU of both ends",
            ),
            (
                unsegmented,
                "super-packets: switch tso, gso and gro off at both ends",
            ),
            (
                partial_checksum,
                "partial checksums: switch tx checksums off at both ends",
            ),
            (device, "frames refused by the kernel"),
            (
                unread,
                "frames dropped by the kernel before they were read: too much load for this machine",
            ),
        ] {
            if count > 0 {
                problems.push(format!("{count} {what}"));
            }
        }
        let Lateness {
            packets, p99_us, ..
        } = self.lateness;
        if packets >= LATENESS_PACKETS_MIN && p99_us > LATENESS_P99_MAX_US {
            problems.push(format!(
                "lateness p99 {p99_us:.0} µs, {LATENESS_P99_MAX_US:.0} µs allowed: too much load for this machine"
            ));
        }
        problems
    }
}

/// A link, since it was made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LinkReport {
    /// As it was given.
    pub name: String,
    /// Away from the near end.
    pub up: DirectionReport,
    /// Towards the near end.
    pub down: DirectionReport,
    /// Frames the kernel dropped between the cables' ends.
    pub device_drops: u64,
}

impl LinkReport {
    /// Why the figures of this link cannot be trusted; empty if they can.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (direction, report) in [("up", &self.up), ("down", &self.down)] {
            let found = report.problems().into_iter();
            problems
                .extend(found.map(|problem| format!("link {} {direction}: {problem}", self.name)));
        }
        if self.device_drops > 0 {
            problems.push(format!(
                "link {}: {} frames dropped by the kernel between the cables' ends: too much load for this machine",
                self.name, self.device_drops
            ));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    }

    /// The system's allocator, counting what each thread asks for.
    struct Counting;

    // SAFETY: every call goes to the system's allocator as it is.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            ALLOCATIONS.set(ALLOCATIONS.get() + 1);
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
            unsafe { System.dealloc(memory, layout) }
        }
    }

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    #[test]
    fn a_link_in_steady_state_allocates_nothing() {
        let near = Namespace::create("near").unwrap_or_else(|error| panic!("{error}"));
        let far = Namespace::create("far").unwrap();
        let emulator = Emulator::start(1).unwrap();
        let [near_end, far_end] = [&near, &far].map(|namespace| End {
            namespace,
            device: "eth0",
        });
        let shape = LinkShape::new(100_000_000, 100_000_000, 1_000);
        let link = emulator.connect("test", near_end, far_end, shape).unwrap();
        near.add_address("eth0", [192, 0, 2, 1].into(), 24).unwrap();
        far.add_address("eth0", [192, 0, 2, 2].into(), 24).unwrap();
        let flood = || {
            let words = ["-q", "-f", "-c", "500", "-w", "60", "192.0.2.2"];
            near.exec("ping", &words).unwrap();
            let delivered = link.report().unwrap().down.fates.delivered.packets;
            let allocations = emulator.shared.ask(|_| ALLOCATIONS.get()).unwrap();
            (delivered, allocations)
        };
        let (delivered_before, before) = flood();
        let (delivered_after, after) = flood();
        assert!(delivered_after - delivered_before >= 500);
        // The requests of this test themselves: replies and their channels.
        assert!(after - before < 25, "{} allocations", after - before);
    }
}
