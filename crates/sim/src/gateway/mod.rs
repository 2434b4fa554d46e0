//! The gateway of a site with several links, with or without NAT, and the balancer that rules it.
//!
//! What the loaded programs do with a packet, [`Nat`] does with a simulated one: flows are bound to links by the same choice
//! (`anabranch_policy::choose`), a repeated SYN goes on over another link where the policy says so, the first answer to any of
//! its tries wins ([`anabranch_policy::tries`]), what belongs to no flow is answered with RST, and the same counters count;
//! `crates/fuzz/tests/differential` holds it to that, by [`replay`]. What the daemon does, [`Gateway`] does in virtual time: it
//! drives the same [`Balancer`] by the same [`Driver`], sends its probes through the simulated queues, installs its choices, and
//! then ends the flows of links that are gone.
//!
//! The hosts of the LAN stand at the gateway: their packets need no time to reach it, nor to come back from it. A flow's
//! forward path is [`Gateway::LAN`] and nothing more; the rest is decided here.
//!
//! To a server a connection over a link with NAT is the link's, and what it says takes that link. Connections over links
//! without NAT have the host's own address, whichever of them their packets take, and the internet sends to that address
//! ([`Gateway::INTERNET`]) over the first of these links that announces it.

mod nat;
mod peer;
mod programs;
pub mod replay;
mod told;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use anabranch_core::{
    Balancer, ClassId, DataPlane, Driver, Effect, Ended, Event, Family, Kind as ProbeKind,
    LinkCounters, LinkId, LinkState, LinkStatus, Opening, PathStatus, ProbeId, ProbeRequest, Reach,
    TargetSpec, Time, Whom,
};
use anabranch_policy::abi::Choice;
use anabranch_policy::splitmix::mix;

use crate::link::{Service, Tally};
use crate::net::{FlowId, Net, News, Overhead, Packet, PipeId, SideId, SiteId};
use crate::packet::PacketId;
use crate::tcp::{Kind, Segment};
use crate::world::{Onward, Site};

pub use nat::{Ends, Nat, Pair};
pub use peer::PeerSite;
use programs::Programs;
pub(crate) use programs::Runs;

/// Of an ICMP echo request without data with its IP header, as the daemon's prober sends it.
const PROBE_BYTES: u32 = 28;
/// Of the RST that answers a probe of a destination: IP and TCP without options.
const RST_BYTES: u32 = 40;
/// Of Ethernet.
const DEVICE_MTU: u32 = 1500;
/// Answers to older probes are not waited for, as in the balancer.
const PROBES_AWAITED: u64 = 128;
/// Of every packet that is simulated; links are absent for the other.
pub(crate) const FAMILY: Family = Family::V4;
/// Links of a gateway, and so the distance between the numbers of its kinds of sites.
const LINKS: u16 = anabranch_policy::abi::MAX_LINKS as u16;

/// One link: its lines from the gateway to the servers and back, and what is known at the servers.
#[derive(Clone, Debug)]
pub struct Lines {
    /// One or two.
    pub up: Vec<PipeId>,
    /// One or two, that of the servers' side first.
    pub down: Vec<PipeId>,
    /// No NAT: the addresses of the LAN are announced over it while none of its lines is cut.
    pub routed: bool,
}

/// What lines may tell it by.
fn service_of(kind: ProbeKind) -> Option<Service> {
    match kind {
        ProbeKind::Dns => Some(Service::Dns),
        ProbeKind::Icmp => Some(Service::Icmp),
        ProbeKind::Tcp | ProbeKind::Http => None,
    }
}

/// Each kind counts its own.
fn number_of(whom: Whom, id: ProbeId) -> u32 {
    const KINDS: u32 = 3;
    let kind = match whom {
        Whom::Target(_) => 0,
        Whom::Node => 1,
        Whom::Host { .. } => 2,
    };
    (id.0 as u32).wrapping_mul(KINDS) + kind
}

fn bytes_of(whom: Whom) -> u32 {
    match whom {
        Whom::Target(_) | Whom::Node => PROBE_BYTES,
        Whom::Host { bytes, .. } => bytes,
    }
}

/// Probes that were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    /// All of them.
    pub all: Tally,
    /// Those that the algorithm measures a round trip with: to the fixed node, or to the destination of a connection; what races send
    /// over links that do not win; and a peer's own.
    pub measuring: Tally,
}

impl Probed {
    fn count_measuring(&mut self, bytes: u32) {
        self.all.add(bytes);
        self.measuring.add(bytes);
    }

    fn count(&mut self, whom: Whom) {
        match whom {
            Whom::Node => self.count_measuring(bytes_of(whom)),
            Whom::Target(_) | Whom::Host { .. } => self.all.add(bytes_of(whom)),
        }
    }
}

/// A gateway and its balancer.
#[derive(Debug)]
pub struct Gateway {
    programs: Programs,
    driver: Driver,
    /// Each probe that was not answered yet, by the number its packet bears, and when it was sent.
    probes: BTreeMap<(LinkId, u32), (ProbeRequest, Time)>,
    /// What its host takes to send a probe, by link; empty for no time at all.
    overheads: Vec<Overhead>,
    /// Whom probes ask, if anything was said of it.
    targets: Vec<TargetSpec>,
    /// When its one valid wake-up comes.
    wakes: Time,
    turned: Time,
    events: Vec<(Time, Event)>,
    ended: Ended,
}

impl Gateway {
    /// The first and only hop of a flow's forward path.
    pub const LAN: SiteId = SiteId(0);
    /// Where the internet has a packet to the address of a LAN host, and chooses the link for it.
    pub const INTERNET: SiteId = SiteId(u16::MAX);
    /// Its other sites have numbers below this.
    pub const SITES: u16 = 1 + 3 * LINKS;
    /// The token of its wake-ups.
    pub const WAKE: u32 = 0;

    /// A gateway whose links, in the order of the balancer's, are `lines`. Call [`Gateway::begin`] before the world runs.
    pub fn new(balancer: Balancer, lines: &[Lines], seed: u64) -> Self {
        Gateway {
            programs: Programs::new(lines, seed),
            driver: Driver::new(balancer),
            probes: BTreeMap::new(),
            overheads: Vec::new(),
            targets: Vec::new(),
            wakes: Time::ZERO,
            turned: Time::ZERO,
            events: Vec::new(),
            ended: Ended::default(),
        }
    }

    /// Its host takes up to `most_ns` to send a probe, each time another time.
    pub fn set_overhead(&mut self, most_ns: u64, seed: u64) {
        let links = self.programs.links().map(|link| u64::from(link.0));
        let overhead = |link| Overhead::new(most_ns, mix(seed) ^ link);
        self.overheads = links.filter_map(overhead).collect();
    }

    /// Whom it asks over each link; where there are none, one far target. Those that are near stand between a link's last mile and what is
    /// beyond.
    pub fn set_targets(&mut self, targets: Vec<TargetSpec>) {
        let far = targets.iter().filter(|target| target.reach == Reach::Far);
        let hosts = far.count();
        for link in self.programs.links().filter(|_| !targets.is_empty()) {
            let balancer = self.driver.balancer_mut();
            balancer.set_targets(link, FAMILY, &targets);
            balancer.set_length(Time::ZERO, link, FAMILY, DEVICE_MTU, hosts);
        }
        self.targets = targets;
    }

    /// All links are there; the first counters are read, and the first choice is installed.
    pub fn begin(&mut self, net: &mut Net) {
        for link in self.programs.links() {
            self.driver.balancer_mut().handle_link_state(
                net.now(),
                link,
                FAMILY,
                LinkState::Present,
            );
        }
        self.turn(net);
    }

    // ---- getters

    /// As of the last turn.
    pub fn status(&self) -> Vec<LinkStatus> {
        self.driver.balancer().status(self.turned)
    }

    /// The same of each link's path for the packets that are simulated.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (LinkId, PathStatus)> {
        let all = self.status().into_iter();
        all.map(|status| (status.link, status.paths[FAMILY].clone()))
    }

    /// What the balancer told, in the order of time.
    pub fn events(&self) -> &[(Time, Event)] {
        &self.events
    }

    /// Flows that were ended with their links.
    pub fn ended(&self) -> Ended {
        self.ended
    }

    // ---- the daemon's part

    /// Does what is due, and what follows from it in the order it comes in.
    fn turn(&mut self, net: &mut Net) {
        self.turned = net.now();
        let mut plane = Plane {
            nat: &mut self.programs.nat,
            net,
        };
        let Ok(effects) = self.driver.turn(self.turned, &mut plane);
        for effect in effects {
            match effect {
                Effect::Probe(probe) => self.send_probe(net, probe),
                Effect::Ask(question) => self.programs.ask(net, question),
                Effect::Event(event) => self.hear(net, event),
            }
        }
        self.wake_in_time(net);
    }

    fn hear(&mut self, net: &mut Net, event: Event) {
        self.events.push((self.turned, event));
        if let Event::EndFlows { class, link, .. } = event {
            let ended = self.programs.nat.end_flows(net, class, link);
            self.ended.tcp += ended.tcp;
            self.ended.udp += ended.udp;
        }
    }

    fn wake_in_time(&mut self, net: &mut Net) {
        let at = self.driver.next_turn();
        // Time passes between two turns, as it does for the daemon.
        let at = at.max(net.now() + Duration::from_nanos(1));
        if self.wakes <= net.now() || at < self.wakes {
            self.wakes = at;
            net.wake_at(at, Gateway::WAKE);
        }
    }

    fn send_probe(&mut self, net: &mut Net, probe: ProbeRequest) {
        if let Some(forgotten) = probe.id.0.checked_sub(PROBES_AWAITED) {
            let forgotten = number_of(probe.whom, ProbeId(forgotten));
            self.probes.remove(&(probe.link, forgotten));
        }
        let number = number_of(probe.whom, probe.id);
        self.probes.insert((probe.link, number), (probe, net.now()));
        self.programs.probed.count(probe.whom);
        let overhead = self.overheads.get_mut(probe.link.index());
        let leaves = overhead.map_or(net.now(), |overhead| overhead.leaves(net.now()));
        let port = &self.programs.ports[probe.link.index()];
        let far = (port.probe, None);
        let (path, service) = match probe.whom {
            Whom::Target(index) => self.targets.get(index).map_or(far, |target| {
                (port.probe_of(target.reach), service_of(target.kind))
            }),
            Whom::Node => far,
            Whom::Host { .. } => (port.probe, Some(Service::Icmp)),
        };
        let packet = Packet {
            segment: Segment {
                number,
                ..Segment::bare(Kind::Ack)
            },
            from: SideId::NOBODY,
            to: SideId::NOBODY,
            path,
            due_ns: u64::MAX,
            bytes: bytes_of(probe.whom),
            label: Packet::label_of(service),
        };
        net.send_at(leaves, packet);
    }

    fn hear_answer(&mut self, net: &mut Net, link: LinkId, number: u32) {
        if let Some((probe, sent)) = self.probes.remove(&(link, number)) {
            let round_trip = net.now().since(sent);
            self.driver
                .balancer_mut()
                .handle_answer(net.now(), &probe, round_trip);
            self.turn(net);
        }
    }

    fn inbound(&mut self, net: &mut Net, link: LinkId, id: PacketId) -> Onward {
        let packet = net.packet(id);
        let Packet {
            from, to, segment, ..
        } = *packet;
        let is_of_nobody = from == SideId::NOBODY && to == SideId::NOBODY;
        match is_of_nobody && segment.kind != Kind::SynAck {
            true => {
                self.hear_answer(net, link, segment.number);
                Onward::Nowhere
            }
            false => self.programs.inbound(net, link, id),
        }
    }
}

impl Runs for Gateway {
    fn programs(&self) -> &Programs {
        &self.programs
    }

    fn programs_mut(&mut self) -> &mut Programs {
        &mut self.programs
    }
}

impl Site for Gateway {
    fn pass(&mut self, net: &mut Net, site: SiteId, packet: PacketId) -> Onward {
        match site {
            Gateway::LAN => self.programs.outbound(net, packet),
            Gateway::INTERNET => self.programs.answer_own(net, packet),
            SiteId(inner @ 1..=LINKS) => self.inbound(net, LinkId(inner - 1), packet),
            SiteId(outer) if outer <= 2 * LINKS => {
                let link = LinkId(outer - 1 - LINKS);
                self.programs.reflect(net, link, packet)
            }
            SiteId(near) => {
                let link = LinkId(near - 1 - 2 * LINKS);
                self.programs.reflect_near(net, link, packet)
            }
        }
    }

    fn wake(&mut self, net: &mut Net, _: u32) {
        if self.wakes == net.now() {
            self.turn(net);
        }
    }

    fn told(&mut self, net: &mut Net, flow: FlowId, news: News) {
        if news == News::Gone {
            self.programs.forget(net, flow);
        }
    }
}

/// The simulated data path for the time of one call.
struct Plane<'a> {
    nat: &'a mut Nat,
    net: &'a mut Net,
}

impl DataPlane for Plane<'_> {
    type Error = Infallible;

    fn counters(&mut self) -> Result<Vec<LinkCounters>, Infallible> {
        Ok(self.nat.counters(self.net.now()))
    }

    fn install(
        &mut self,
        class: ClassId,
        family: Family,
        choice: &Choice,
    ) -> Result<(), Infallible> {
        if family == FAMILY {
            self.nat.install(class, choice);
        }
        Ok(())
    }

    fn openings(&mut self) -> Result<Vec<Opening>, Infallible> {
        Ok(self.nat.openings())
    }

    fn end_flows(
        &mut self,
        class: ClassId,
        family: Family,
        link: LinkId,
    ) -> Result<Ended, Infallible> {
        Ok(match family == FAMILY {
            true => self.nat.end_flows(self.net, class, link),
            false => Ended::default(),
        })
    }
}
