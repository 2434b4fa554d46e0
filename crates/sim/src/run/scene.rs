//! A network with its load, its faults and whoever decides in it; and what is written down of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anabranch_core::Time;
use anabranch_scenario::{
    Beyond, Change, Counts, Direction, Event, Fault, Impairments, Line, LinkPlan, LinkReading,
    LinkSeries, Place, Tally,
};

use super::{SimError, nanos};
use crate::gateway::{Lines, Probed};
use crate::link::{self, LinkSpec};
use crate::load::{Carrier, Load};
use crate::net::{FlowId, Net, News, Path, PipeId, SiteId};
use crate::packet::PacketId;
use crate::world::{Onward, Site};

/// Whoever carries the flows of a scenario, and what is asked of it for the record. Its wake-up tokens are below
/// [`Scene::OWN`].
pub(super) trait Way: Site + Carrier {
    /// The world is about to begin.
    fn begin(&mut self, net: &mut Net) {
        let _ = net;
    }

    /// What it believes of each link, and its flows there. The lines know the bytes, which are 0 here.
    fn readings(&self) -> Vec<LinkReading>;

    fn events(&self, names: &[String]) -> Vec<Event> {
        let _ = names;
        Vec::new()
    }

    fn event_of(&self, fault: &Fault) -> Event {
        Event::of(fault)
    }

    fn probed(&self) -> Probed {
        Probed::default()
    }

    fn reassignments(&self) -> u64 {
        0
    }

    /// A line was cut, or is whole again. Whoever has a carrier there loses it, or gets it back.
    fn set_carrier(&mut self, net: &mut Net, line: PipeId, on: bool) {
        let _ = (net, line, on);
    }
}

/// Lines that several links have beyond, down and up.
pub(super) type Shared = BTreeMap<String, (PipeId, PipeId)>;

/// The lines of one link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wires {
    down: PipeId,
    /// None for a sublink of a trunk, which goes one way.
    up: Option<PipeId>,
    /// Down and up.
    beyond: Option<(PipeId, PipeId)>,
    /// Without NAT.
    routed: bool,
}

impl Wires {
    /// `shared` has the lines beyond that were laid for links before this one, by their names.
    pub fn lay(net: &mut Net, plan: &LinkPlan, shared: &mut Shared) -> Wires {
        let (down, up) = (add(net, &plan.down), add(net, &plan.up));
        let beyond = |beyond: &Beyond| {
            let lay = |net: &mut Net| (add(net, &beyond.down), add(net, &beyond.up));
            match &beyond.shared {
                None => lay(net),
                Some(name) => *shared.entry(name.clone()).or_insert_with(|| lay(net)),
            }
        };
        Wires {
            down,
            up: Some(up),
            beyond: plan.beyond.as_ref().map(beyond),
            routed: !plan.nat,
        }
    }

    /// A line that goes one way.
    pub fn one_way(down: PipeId) -> Wires {
        Wires {
            down,
            up: None,
            beyond: None,
            routed: false,
        }
    }

    pub fn lines(&self) -> Lines {
        let up = [self.up, self.beyond.map(|(_, up)| up)];
        let down = [self.beyond.map(|(down, _)| down), Some(self.down)];
        Lines {
            up: up.into_iter().flatten().collect(),
            down: down.into_iter().flatten().collect(),
            routed: self.routed,
        }
    }

    pub fn path_up(&self) -> Path {
        Path::new(&self.lines().up)
    }

    /// The lines that a fault is about.
    fn hit(&self, place: Place, direction: Option<Direction>) -> Option<Vec<PipeId>> {
        let (down, up) = match place {
            Place::LastMile => (self.down, self.up),
            Place::Beyond => self.beyond.map(|(down, up)| (down, Some(up)))?,
        };
        match direction {
            Some(Direction::Down) => Some(vec![down]),
            Some(Direction::Up) => up.map(|up| vec![up]),
            None => Some([Some(down), up].into_iter().flatten().collect()),
        }
    }

    /// The lines that hosts send to, and those that hosts receive from.
    fn ends(&self) -> (Vec<PipeId>, Vec<PipeId>) {
        let lines = self.lines();
        let first = [lines.up.first(), lines.down.first()];
        let last = [lines.up.last(), lines.down.last()];
        let some = |ends: [Option<&PipeId>; 2]| ends.into_iter().flatten().copied().collect();
        (some(first), some(last))
    }

    fn all(&self) -> impl Iterator<Item = PipeId> + use<> {
        let lines = self.lines();
        lines.down.into_iter().chain(lines.up)
    }
}

pub(super) fn add(net: &mut Net, line: &Line) -> PipeId {
    let id = net.add_link(LinkSpec {
        rate_bps: line.rate_bps,
        delay_ns: nanos(line.delay),
        buffer: line.buffer,
        loss: line.loss,
    });
    if let Some(trace) = line.opportunities(0) {
        net.link_mut(id).set_trace(trace);
    }
    net.link_mut(id).set_queue(&line.queue);
    net.set_impairments(id, line.impairments);
    net.audit(id);
    id
}

/// A fault and the lines it is about.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    fault: Fault,
    lines: Vec<PipeId>,
}

/// Finds the lines of every fault.
pub(super) fn place(
    faults: &[Fault],
    names: &[String],
    wires: &[Wires],
) -> Result<Vec<Placed>, SimError> {
    let placed = |fault: &Fault| {
        let at_s = fault.at.as_secs_f64();
        let link = names.iter().position(|name| *name == fault.link);
        let link = link.ok_or_else(|| SimError::FaultLink {
            at_s,
            link: fault.link.clone(),
            links: names.join(", "),
        })?;
        let lines = wires[link].hit(fault.place, fault.direction);
        let lines = lines.ok_or_else(|| SimError::FaultBeyond {
            at_s,
            link: fault.link.clone(),
        })?;
        Ok(Placed {
            fault: fault.clone(),
            lines,
        })
    };
    faults.iter().map(placed).collect()
}

/// A network that lives, and the record of it.
pub(super) struct Scene<W> {
    pub way: W,
    pub load: Load,
    wires: Vec<Wires>,
    names: Vec<String>,
    faults: Vec<Placed>,
    sample: Duration,
    series: Vec<LinkSeries>,
}

impl<W: Way> Scene<W> {
    /// Tokens of the load.
    pub const LOAD: u32 = 1 << 31;
    /// Tokens of the scene itself: a fault by its number, or the sample.
    pub const OWN: u32 = 1 << 30;
    const SAMPLE: u32 = Self::OWN | (Self::OWN - 1);

    pub fn new(
        way: W,
        load: Load,
        wires: Vec<Wires>,
        faults: Vec<Placed>,
        series: Vec<LinkSeries>,
        sample: Duration,
    ) -> Self {
        Scene {
            way,
            load,
            wires,
            names: series.iter().map(|series| series.name.clone()).collect(),
            faults,
            sample,
            series,
        }
    }

    pub fn begin(&mut self, net: &mut Net) {
        for (i, placed) in self.faults.iter().enumerate() {
            net.wake_at(Time::ZERO + placed.fault.at, Self::OWN | i as u32);
        }
        self.way.begin(net);
        self.load.begin(net);
        self.take_sample(net);
        net.wake_at(net.now() + self.sample, Self::SAMPLE);
    }

    fn take_sample(&mut self, net: &mut Net) {
        let t_s = net.now().as_nanos() as f64 / 1e9;
        let readings = self.way.readings();
        let links = self.series.iter_mut().zip(&self.wires).zip(readings);
        for ((series, wires), reading) in links {
            let bytes = |line| net.counters(line).delivered.bytes;
            let reading = LinkReading {
                down_bytes: bytes(wires.down),
                up_bytes: wires.up.map_or(0, bytes),
                ..reading
            };
            series.push(t_s, reading);
        }
    }

    fn strike(&mut self, net: &mut Net, fault: usize) {
        let Placed { fault, lines } = &self.faults[fault];
        for &line in lines {
            match fault.change {
                Change::Cut => {
                    net.cut(line);
                    self.way.set_carrier(net, line, false);
                }
                Change::Restore => {
                    net.restore(line);
                    self.way.set_carrier(net, line, true);
                }
                Change::Rate(rate_bps) => net.set_rate(line, rate_bps),
                Change::Loss(loss) => net.set_loss(line, loss),
                Change::Delay(delay) => net.set_delay(line, nanos(delay)),
                Change::Jitter(jitter) => impair(net, line, |ills| ills.jitter = jitter),
                Change::Mtu(bytes) => impair(net, line, |ills| ills.mtu_bytes = bytes),
                Change::Passage(passage) => impair(net, line, |ills| ills.passage = passage),
            }
        }
    }

    // ---- the record

    pub fn series(&mut self, net: &mut Net) -> Vec<LinkSeries> {
        let now_s = net.now().as_nanos() as f64 / 1e9;
        let sampled = |series: &LinkSeries| series.samples.last().is_some_and(|s| s.t_s >= now_s);
        if !self.series.iter().all(sampled) {
            self.take_sample(net);
        }
        std::mem::take(&mut self.series)
    }

    pub fn events(&self) -> Vec<Event> {
        let mut events = self.way.events(&self.names);
        let faults = self.faults.iter().map(|placed| &placed.fault);
        events.extend(faults.map(|fault| self.way.event_of(fault)));
        events
    }

    pub fn counts(&self, net: &Net) -> Counts {
        let probed = self.way.probed();
        let mut counts = Counts {
            probes: tally(probed.all),
            measuring: tally(probed.measuring),
            retransmitted: tally(net.retransmitted()),
            reordered: net.reordered(),
            reassignments: self.way.reassignments(),
            ..Counts::default()
        };
        let (first, last): (Vec<_>, Vec<_>) = self.wires.iter().map(Wires::ends).unzip();
        for line in each_once(first.into_iter().flatten()) {
            counts.offered += tally(net.counters(line).offered);
        }
        for line in each_once(last.into_iter().flatten()) {
            counts.delivered += tally(net.counters(line).delivered);
        }
        for line in each_once(self.wires.iter().flat_map(Wires::all)) {
            let counters = net.counters(line);
            counts.overflowed += tally(counters.overflowed);
            counts.early += tally(counters.early);
            counts.marked += tally(counters.marked);
            counts.lost += tally(counters.lost);
            counts.cut += tally(counters.cut);
        }
        counts
    }

    /// What cannot be, but was.
    pub fn problems(&self, net: &mut Net) -> Vec<String> {
        let mut problems = Vec::new();
        if !net.conserves() {
            problems.push(format!(
                "packets are missing: {} are on their way, but not all are in a link; every packet is in one place",
                net.packets()
            ));
        }
        let now = net.now();
        for (name, wires) in self.names.iter().zip(&self.wires) {
            let broken = wires
                .all()
                .filter(|&line| !net.link_mut(line).obeys_little(now));
            if broken.count() > 0 {
                problems.push(format!(
                    "link {name} breaks Little's law: the time packets spent in a line is not the integral of their number"
                ));
            }
        }
        problems
    }
}

impl<W: Way> Site for Scene<W> {
    #[inline]
    fn pass(&mut self, net: &mut Net, site: SiteId, packet: PacketId) -> Onward {
        self.way.pass(net, site, packet)
    }

    fn wake(&mut self, net: &mut Net, token: u32) {
        if token & Self::LOAD != 0 {
            self.load.wake(net, &mut self.way, token & !Self::LOAD);
        } else if token == Self::SAMPLE {
            self.take_sample(net);
            net.wake_at(net.now() + self.sample, Self::SAMPLE);
        } else if token & Self::OWN != 0 {
            self.strike(net, (token & !Self::OWN) as usize);
        } else {
            self.way.wake(net, token);
        }
    }

    fn told(&mut self, net: &mut Net, flow: FlowId, news: News) {
        self.load.told(net, &self.way, flow, news);
        self.way.told(net, flow, news);
    }
}

fn impair(net: &mut Net, line: PipeId, change: impl FnOnce(&mut Impairments)) {
    let mut impairments = net.link(line).impairments();
    change(&mut impairments);
    net.set_impairments(line, impairments);
}

/// Lines, of which links may share some.
fn each_once(lines: impl Iterator<Item = PipeId>) -> BTreeSet<PipeId> {
    lines.collect()
}

fn tally(tally: link::Tally) -> Tally {
    Tally {
        packets: tally.packets,
        bytes: tally.bytes,
    }
}
