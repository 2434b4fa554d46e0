//! One link with a queue at each end of its access line, its traffic, and the balancer that watches it, in virtual time.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use anabranch_core::{
    Algorithm, Balancer, Choice, ClassId, ClassSpec, Config, DataPlane, Driver, Effect, Ended,
    Event, Family, LinkCounters, LinkId, LinkSpec, LinkState, PathStatus, PerFamily, ProbeRequest,
    Time,
};
use anabranch_policy::Granularity;
use anabranch_policy::abi::Traffic;
use anabranch_policy::splitmix::SplitMix64;

/// The link under test. A second one, quiet and healthy, can always take its flows.
pub const LINK: LinkId = LinkId(0);
const OTHER: LinkId = LinkId(1);
/// Of all packets.
const FAMILY: Family = Family::V4;

/// Seeded draws.
pub struct Draw(SplitMix64);

impl Draw {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64(seed))
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0.draw() % limit
    }

    pub fn ms(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_micros(least * 1000 + self.below((most - least) * 1000 + 1))
    }
}

/// A way to drive: with what time has made due, or without.
type Drive = fn(&mut Driver, Time, &mut Meter<'_>) -> Result<Vec<Effect>, Infallible>;

/// A packet that the LAN sends, and what it makes the remote end do.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    pub up_byte: u64,
    /// 0: no reply.
    pub down_byte: u64,
    /// The reply acknowledges new data.
    pub progress: bool,
}

#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// Exchanges at random gaps, whatever becomes of them.
    Open {
        gap_ms: (u64, u64),
        exchange: Exchange,
    },
    /// So many exchanges under way; each reply starts the next, as acknowledgements clock a TCP flow.
    Loop { window: u32, exchange: Exchange },
    /// Packets that come in by themselves, and pass the break: it is one of the way out.
    Noise { gap_ms: (u64, u64), down_byte: u64 },
}

#[derive(Clone, Copy, Debug)]
pub struct Path {
    pub rate_bps: u64,
    /// The longest wait in either queue.
    pub buffer: Duration,
    pub round_trip: Duration,
    /// How far out the link breaks, if it does.
    pub break_distance: Duration,
    pub loss_percent: u64,
}

#[derive(Clone, Copy, Debug)]
enum Packet {
    Data { load: usize, exchange: Exchange },
    Probe { probe: ProbeRequest, sent: Time },
}

#[derive(Clone, Copy, Debug)]
enum Happening {
    Send(usize),
    /// Through the queue towards the LAN.
    Return(Packet),
    Arrive(Packet),
}

pub struct World {
    pub now: Time,
    pub driver: Driver,
    pub events: Vec<(Time, Event)>,
    pub draw: Draw,
    path: Path,
    loads: Vec<Load>,
    cut: Option<Time>,
    traffic: Traffic,
    /// At the last reading of the counters.
    told: Traffic,
    up_free: Time,
    down_free: Time,
    happenings: BTreeMap<(Time, u64), Happening>,
    sequence: u64,
    wakeup_delay: Duration,
    /// What the counters told, whenever data had come in.
    pub heard: Vec<Heard>,
    /// Without NAT, and of a class that chooses for each packet: what comes in is of no flow, and is not counted.
    unheard: bool,
}

/// A reading of the counters.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    pub at: Time,
    /// Packets were sent as well, before what came in or after it.
    pub and_sent: bool,
}

impl World {
    /// The link is declared with its true rate if `declared`.
    pub fn new(seed: u64, path: Path, declared: bool, loads: Vec<Load>) -> Self {
        World::of(seed, path, declared, loads, false)
    }

    /// The same, of packets of no flow.
    pub fn per_packet(seed: u64, path: Path, declared: bool, loads: Vec<Load>) -> Self {
        World::of(seed, path, declared, loads, true)
    }

    fn of(seed: u64, path: Path, declared: bool, loads: Vec<Load>, unheard: bool) -> Self {
        let rate = Some(path.rate_bps).filter(|_| declared);
        let spec = |name: &str| LinkSpec {
            name: name.into(),
            rate_up_bps: rate,
            rate_down_bps: rate,
            routed: unheard,
            ..LinkSpec::default()
        };
        let mut algorithm: Algorithm = "RR".parse().unwrap();
        if unheard {
            algorithm.granularity = Granularity::Packet;
        }
        let classes = ClassSpec::alone(algorithm);
        let links = vec![spec("tested"), spec("quiet")];
        let mut balancer = Balancer::new(Time::ZERO, classes, links, Config::default()).unwrap();
        for link in [LINK, OTHER] {
            balancer.handle_link_state(Time::ZERO, link, FAMILY, LinkState::Present);
        }
        let mut world = World {
            now: Time::ZERO,
            driver: Driver::new(balancer),
            events: Vec::new(),
            draw: Draw::new(seed),
            path,
            cut: None,
            traffic: Traffic::default(),
            up_free: Time::ZERO,
            down_free: Time::ZERO,
            happenings: BTreeMap::new(),
            sequence: 0,
            wakeup_delay: Duration::ZERO,
            heard: Vec::new(),
            told: Traffic::default(),
            unheard,
            loads,
        };
        for load in 0..world.loads.len() {
            let starts = match world.loads[load] {
                Load::Open { .. } | Load::Noise { .. } => 1,
                Load::Loop { window, .. } => window,
            };
            for _ in 0..starts {
                let at = Time::ZERO + world.draw.ms(0, 1000);
                world.schedule(at, Happening::Send(load));
            }
        }
        world
    }

    /// How the link under test fares.
    pub fn status(&self) -> PathStatus {
        let balancer = self.driver.balancer();
        balancer.status(self.now)[LINK.index()].paths[FAMILY].clone()
    }

    /// From `at` on, nothing passes the break.
    pub fn cut(&mut self, at: Time) {
        self.cut = Some(at);
    }

    /// Runs until `end`, or until an event satisfies `stop`; says when that was.
    pub fn run(&mut self, end: Time, stop: impl Fn(&Event) -> bool) -> Option<Time> {
        loop {
            let wake = (self.driver.next_turn() + self.wakeup_delay).max(self.now);
            let next = self.happenings.first_key_value().map(|(&(at, _), _)| at);
            if wake.min(next.unwrap_or(wake)) > end {
                self.now = end;
                return None;
            }
            let told = self.events.len();
            if next.is_some_and(|at| at <= wake) {
                self.happen();
            } else {
                self.now = wake;
                self.wakeup_delay = self.draw.ms(0, 3);
                self.drive(|driver, now, plane| driver.turn(now, plane));
            }
            self.poll();
            if self.events[told..].iter().any(|(_, event)| stop(event)) {
                return Some(self.now);
            }
        }
    }

    /// The quiet link answers its probes at once, which may be reason for more.
    fn poll(&mut self) {
        while self.drive(|driver, now, plane| driver.poll(now, plane)) {}
    }

    /// Whether anything came of it.
    fn drive(&mut self, by: Drive) -> bool {
        let mut plane = Meter {
            now: self.now,
            traffic: self.traffic,
            told: &mut self.told,
            heard: &mut self.heard,
        };
        let Ok(effects) = by(&mut self.driver, self.now, &mut plane);
        for effect in &effects {
            match effect {
                Effect::Probe(probe) => self.send_probe(probe),
                Effect::Ask(_) => {}
                Effect::Event(event) => self.events.push((self.now, *event)),
            }
        }
        !effects.is_empty()
    }

    fn send_probe(&mut self, probe: &ProbeRequest) {
        if probe.link == LINK {
            let (probe, sent) = (*probe, self.now);
            return self.send_up(Packet::Probe { probe, sent }, 60);
        }
        let round_trip = Duration::from_millis(10);
        let balancer = self.driver.balancer_mut();
        balancer.handle_answer(self.now, probe, round_trip);
    }

    fn happen(&mut self) {
        let Some(((at, _), happening)) = self.happenings.pop_first() else {
            return;
        };
        self.now = at;
        match happening {
            Happening::Send(load) => self.start(load),
            Happening::Return(packet) => self.send_down(packet),
            Happening::Arrive(packet) => self.arrive(packet),
        }
    }

    fn start(&mut self, load: usize) {
        let exchange = match self.loads[load] {
            Load::Open {
                gap_ms: (least, most),
                exchange,
            } => {
                let next = self.now + self.draw.ms(least, most);
                self.schedule(next, Happening::Send(load));
                exchange
            }
            Load::Loop { exchange, .. } => exchange,
            Load::Noise {
                gap_ms: (least, most),
                down_byte,
            } => {
                let next = self.now + self.draw.ms(least, most);
                self.schedule(next, Happening::Send(load));
                let exchange = Exchange {
                    up_byte: 0,
                    down_byte,
                    progress: false,
                };
                return self.send_down(Packet::Data { load, exchange });
            }
        };
        self.send_up(Packet::Data { load, exchange }, exchange.up_byte);
    }

    fn send_up(&mut self, packet: Packet, bytes: u64) {
        if matches!(packet, Packet::Data { .. }) {
            self.traffic.tx_packets += 1;
            self.traffic.tx_bytes += bytes;
        }
        let Some(left) = enqueue(self.now, &mut self.up_free, &self.path, bytes) else {
            return self.retry(packet);
        };
        let answers = !matches!(
            packet,
            Packet::Data {
                exchange: Exchange { down_byte: 0, .. },
                ..
            }
        );
        let out = left + self.path.break_distance;
        let back = left
            + self
                .path
                .round_trip
                .saturating_sub(self.path.break_distance);
        if !answers || self.is_cut(out) || self.is_cut(back) {
            return;
        }
        if self.draw.below(100) < self.path.loss_percent {
            return self.retry(packet);
        }
        self.schedule(back, Happening::Return(packet));
    }

    fn send_down(&mut self, packet: Packet) {
        let bytes = match packet {
            Packet::Data { exchange, .. } => exchange.down_byte,
            Packet::Probe { .. } => 100,
        };
        match enqueue(self.now, &mut self.down_free, &self.path, bytes) {
            Some(left) => self.schedule(left + self.path.break_distance, Happening::Arrive(packet)),
            None => self.retry(packet),
        }
    }

    fn arrive(&mut self, packet: Packet) {
        match packet {
            Packet::Data { load, exchange } => {
                if !self.unheard {
                    self.traffic.rx_packets += 1;
                    self.traffic.rx_bytes += exchange.down_byte;
                    self.traffic.rx_progress += u64::from(exchange.progress);
                }
                if matches!(self.loads[load], Load::Loop { .. }) {
                    self.start(load);
                }
            }
            Packet::Probe { probe, sent } => {
                let (now, balancer) = (self.now, self.driver.balancer_mut());
                balancer.handle_answer(now, &probe, now.since(sent));
            }
        }
    }

    /// A flow of a loop sends its lost packet again after a second.
    fn retry(&mut self, packet: Packet) {
        if let Packet::Data { load, .. } = packet
            && matches!(self.loads[load], Load::Loop { .. })
        {
            self.schedule(self.now + Duration::from_secs(1), Happening::Send(load));
        }
    }

    fn is_cut(&self, at: Time) -> bool {
        self.cut.is_some_and(|cut| at >= cut)
    }

    fn schedule(&mut self, at: Time, happening: Happening) {
        self.sequence += 1;
        self.happenings.insert((at, self.sequence), happening);
    }
}

/// The counters of both links, and what of them is noted; nobody moves packets by a choice.
struct Meter<'a> {
    now: Time,
    traffic: Traffic,
    told: &'a mut Traffic,
    heard: &'a mut Vec<Heard>,
}

impl DataPlane for Meter<'_> {
    type Error = Infallible;

    fn counters(&mut self) -> Result<Vec<LinkCounters>, Infallible> {
        let told = std::mem::replace(self.told, self.traffic);
        if told.rx_packets < self.traffic.rx_packets {
            let (at, and_sent) = (self.now, told.tx_packets < self.traffic.tx_packets);
            self.heard.push(Heard { at, and_sent });
        }
        let tested = LinkCounters {
            traffic: PerFamily::only(FAMILY, self.traffic),
            ..LinkCounters::default()
        };
        Ok(vec![tested, LinkCounters::default()])
    }

    fn install(&mut self, _: ClassId, _: Family, _: &Choice) -> Result<(), Infallible> {
        Ok(())
    }

    fn end_flows(&mut self, _: ClassId, _: Family, _: LinkId) -> Result<Ended, Infallible> {
        Ok(Ended::default())
    }
}

/// When the packet leaves a queue, unless that is full.
fn enqueue(now: Time, free: &mut Time, path: &Path, bytes: u64) -> Option<Time> {
    if free.since(now) > path.buffer {
        return None;
    }
    *free = (*free).max(now) + Duration::from_nanos(bytes * 8 * 1_000_000_000 / path.rate_bps);
    Some(*free)
}
