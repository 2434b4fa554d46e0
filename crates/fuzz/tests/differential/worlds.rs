//! Both worlds at once: every step is taken in each, and what came of it is compared.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anabranch_core::rules::{Class, Matches, Moment, Origin, Prefix, Rule, compile};
use anabranch_core::{ClassId, DataPlane, Ended, Family, LinkCounters, LinkId, Time};
use anabranch_fuzz::build::{ACK, FIN, RST, SYN, Says};
use anabranch_fuzz::read::TCP;
use anabranch_fuzz::site::{IPV4, IPV6};
use anabranch_policy::Tried;
use anabranch_policy::abi::{self, BePort, Flow, FlowKey, Traffic};
use anabranch_sim::gateway::Pair;
use anabranch_sim::gateway::replay::{Bound, Replay};
use anabranch_sim::net::{FlowId, SideId};
use anabranch_sim::tcp::{Kind, Segment};
use anyhow::Result;

use crate::loaded::{ESTABLISHED_NS, Loaded, UNANSWERED_NS, external, segment};
use crate::transcript::{
    self, CLASSES, HOSTS, LINKS, PORT, Policy, SERVERS, SLOTS, Site, Step, Way,
};

const LOCAL_ISN: u32 = 1_000_000;
const REMOTE_ISN: u32 = 3_000_000_000;
/// Before both, in the numbers of an earlier connection.
const LONG_AGO: u32 = 1000;
const FIRST_PORT: u16 = 2000;
/// Of IPv4, and what IPv6 has more.
const HEADER_BYTES: u32 = 40;
const MORE_BYTES: u32 = 20;
const DATA: &[u8] = b"0123456789";
/// When a machine has been up for a while.
const BEGIN: Time = Time::from_millis(1_000_000);
/// What both worlds know of a flow's life.
const STATE: u32 = abi::STATE_REPLIED
    | abi::STATE_CONFIRMED
    | abi::STATE_FIN_LOCAL
    | abi::STATE_FIN_REMOTE
    | abi::STATE_CLOSED
    | abi::STATE_ROUTED;

/// A flow of a LAN host.
struct Slot {
    flow: FlowId,
    local: SocketAddr,
    remote: SocketAddr,
    /// The links it sent over, and what it reached there in the simulator.
    servers: Vec<(LinkId, SideId)>,
}

impl Slot {
    /// What is over a link now; what was there before answers no more.
    fn reached(&mut self, (link, server): (LinkId, SideId)) {
        self.servers.retain(|(known, _)| *known != link);
        self.servers.push((link, server));
    }

    fn lan_key(&self) -> FlowKey {
        self.key(abi::SIDE_LAN, self.local.ip())
    }

    /// A LAN endpoint has a port of its own, which links keep.
    fn link_key(&self, link: LinkId, is_routed: bool) -> FlowKey {
        match is_routed {
            true => self.key(abi::SIDE_ROUTED as u8, self.local.ip()),
            false => self.key(abi::side_of_link(link.0), self.external(link)),
        }
    }

    /// What a link has for its host's address.
    fn external(&self, link: LinkId) -> IpAddr {
        external(self.local.ip().into(), link.0)
    }

    fn key(&self, side: u8, local: IpAddr) -> FlowKey {
        FlowKey {
            local: local.into(),
            remote: self.remote.ip().into(),
            local_port: BePort::new(self.local.port()),
            remote_port: BePort::new(self.remote.port()),
            proto: TCP,
            side,
            ..FlowKey::default()
        }
    }
}

pub struct Worlds<'a> {
    programs: &'a mut Loaded,
    simulator: Replay,
    site: Site,
    slots: Vec<Slot>,
    now: Time,
    begun: u16,
    story: String,
}

impl<'a> Worlds<'a> {
    pub fn new(programs: &'a mut Loaded, seed: u64, site: Site, policy: &Policy) -> Result<Self> {
        programs.reset(site.routed)?;
        let mut worlds = Worlds {
            programs,
            simulator: Replay::new(LINKS, site.routed, seed),
            site,
            slots: Vec::new(),
            now: BEGIN,
            begun: 0,
            story: String::new(),
        };
        for slot in 0..SLOTS {
            let fresh = worlds.begin(slot);
            worlds.slots.push(fresh);
        }
        worlds.set_time(BEGIN)?;
        // What the transcript before has left.
        worlds.write_rules(&[])?;
        for class in 0..CLASSES {
            worlds.install(ClassId(class), policy)?;
        }
        Ok(worlds)
    }

    /// What happened so far, a line a step, and how the worlds differ.
    pub fn story(&self) -> &str {
        &self.story
    }

    /// What the programs know of a slot's flow.
    pub fn bound(&self, slot: usize) -> Option<Bound> {
        self.entries(slot).0.map(bound)
    }

    /// Takes a step in both worlds. Whether they are the same after it.
    pub fn step(&mut self, step: &Step) -> Result<bool> {
        let agreed = match step {
            Step::Lan(slot, kind) => self.lan_sends(*slot, *kind)?,
            Step::Server {
                slot,
                way,
                kind,
                news,
            } => self.server_sends(*slot, *way, *kind, *news)?,
            Step::Challenge(slot, way) => self.challenge(*slot, *way)?,
            Step::Probe(slot, nth) => self.answer_probe(*slot, *nth)?,
            Step::Connect(slot) => self.connect(*slot)?,
            Step::Repeat(slot, times) => self.repeat(*slot, *times)?,
            Step::Leave(slot) => self.leave(*slot),
            Step::Pass { ms } => self.pass(Duration::from_millis(*ms))?,
            Step::Install(class, policy) => self.install(ClassId(*class), policy)?,
            Step::Write(rules) => self.write_rules(rules)?,
            Step::End(class, link) => self.end_flows(ClassId(*class), LinkId(*link))?,
        };
        let differences = self.differences()?;
        self.story.push_str(&differences);
        Ok(agreed && differences.is_empty())
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.story, "{line}").expect("a String takes everything");
    }

    // ---- steps: whether both worlds did the same

    fn lan_sends(&mut self, slot: usize, kind: Kind) -> Result<bool> {
        let says = self.host_says(slot, kind);
        self.lan_says(slot, kind, &says)
    }

    fn lan_says(&mut self, slot: usize, kind: Kind, says: &Says) -> Result<bool> {
        let Slot {
            flow,
            local,
            remote,
            ..
        } = self.slots[slot];
        let tries = self.tries(slot);
        let waited = self.simulator.probes(flow) != 0;
        self.programs.set_random(self.simulator.next_draw())?;
        let sent = self.packets_sent()?;
        let outcome = self.programs.lan_sends(segment(local, remote, says))?;
        let is_probe = outcome.reason.name == "PROBE_OUT";
        let really = match outcome.sent.filter(|(_, to)| *to == remote && !is_probe) {
            Some((from, _)) if from == local => self.sends_since(&sent)?,
            Some((from, _)) => link_of(from.ip()),
            None => None,
        };
        let simulated = Segment {
            number: says.seq.wrapping_sub(LOCAL_ISN),
            ..Segment::bare(kind)
        };
        let simulated = self
            .simulator
            .lan_sends(flow, simulated, bytes(local, says));
        // Of what waits the server has heard nothing.
        let is_known = waited || simulated.is_none_or(|server| self.is_known(slot, server));
        let is_new = |link| kind == Kind::Syn || self.is_routed(link);
        if let Some(server) = simulated.filter(|(link, _)| is_new(*link)) {
            let race_copies = self.simulator.race_copies(flow);
            for server in [server].into_iter().chain(race_copies) {
                self.slots[slot].reached(server);
            }
        }
        let simulated = simulated.map(|(link, _)| link);
        self.tell(&format!(
            "{local} sends {kind:?}: {}, {}; in the simulator {}",
            over(really),
            outcome.reason.words,
            over(simulated)
        ));
        if simulated.is_some_and(|link| tries.contains(&link)) && !is_known {
            self.tell("the simulated server takes it for another connection");
            return Ok(false);
        }
        Ok(really == simulated && is_probe == (!waited && self.simulator.probes(flow) != 0))
    }

    /// The RST of a server to a probe, whether there was one or not.
    fn answer_probe(&mut self, slot: usize, nth: Option<usize>) -> Result<bool> {
        let Slot {
            flow,
            local,
            remote,
            ..
        } = self.slots[slot];
        let probes = self.simulator.probes(flow);
        let links: Vec<_> = (0..LINKS).filter(|link| probes >> link & 1 == 1).collect();
        let sent = nth.and_then(|nth| links.get(nth.checked_rem(links.len())?));
        let link = LinkId(*sent.unwrap_or(&(slot as u16 % LINKS)));
        if self.is_routed(link) {
            return Ok(true);
        }
        let says = Says {
            flags: RST,
            ..says(Kind::Rst, LOCAL_ISN, 0)
        };
        let to = SocketAddr::new(self.slots[slot].external(link), local.port());
        let mut outcome = self
            .programs
            .link_brings(link, segment(remote, to, &says))?;
        let is_first = outcome.reason.name == "PROBE_ANSWERED";
        if is_first {
            outcome = self.programs.lan_takes_up(link, &outcome)?;
        }
        let sent = outcome.sent.filter(|(_, to)| is_first && *to == remote);
        let really = sent.and_then(|(from, _)| link_of(from.ip()));
        let bytes = bytes(local, &says);
        let simulated = self.simulator.link_answers_probe(link, flow, bytes);
        if let Some(server) = simulated {
            self.slots[slot].reached(server);
        }
        let simulated = simulated.map(|(link, _)| link);
        self.tell(&format!(
            "{local} is sent the answer to a probe {}: its SYN leaves {}, {}; in the simulator {}",
            over(Some(link)),
            over(really),
            outcome.reason.words,
            over(simulated)
        ));
        Ok(really == simulated)
    }

    /// What left each link, as the programs count.
    fn packets_sent(&mut self) -> Result<Vec<u64>> {
        let counters = self.programs.plane.counters()?;
        Ok(counters
            .iter()
            .map(|link| link.carried().tx_packets)
            .collect())
    }

    /// The link that a packet has left by which bears no address of a link.
    fn sends_since(&mut self, before: &[u64]) -> Result<Option<LinkId>> {
        let now = self.packets_sent()?;
        let mut links = (0..).zip(now.iter().zip(before));
        let found = links.find(|(_, (now, before))| now != before);
        Ok(found.map(|(link, _)| LinkId(link)))
    }

    fn server_sends(&mut self, slot: usize, way: Way, kind: Kind, news: bool) -> Result<bool> {
        let Some(server) = self.server(slot, way) else {
            return Ok(true);
        };
        let says = self.server_says(slot, server.0, kind, news);
        Ok(self.link_brings(slot, server, kind, &says)?.is_some())
    }

    fn challenge(&mut self, slot: usize, way: Way) -> Result<bool> {
        let Some(server) = self.server(slot, way) else {
            return Ok(true);
        };
        // Nothing is judged there.
        if self.is_routed(server.0) {
            return Ok(true);
        }
        let earlier = says(Kind::Ack, REMOTE_ISN - LONG_AGO, LOCAL_ISN - LONG_AGO);
        match self.link_brings(slot, server, Kind::Ack, &earlier)? {
            Some(true) => self.lan_says(slot, Kind::Rst, &says(Kind::Rst, earlier.ack, 0)),
            agreed => Ok(agreed.is_some()),
        }
    }

    /// Whether it arrives, if both worlds agree on that.
    fn link_brings(
        &mut self,
        slot: usize,
        (link, from): (LinkId, SideId),
        kind: Kind,
        says: &Says,
    ) -> Result<Option<bool>> {
        let Slot {
            flow,
            local,
            remote,
            ..
        } = self.slots[slot];
        self.programs.set_random(self.simulator.next_draw())?;
        let to = match self.is_routed(link) {
            true => local,
            false => SocketAddr::new(self.slots[slot].external(link), local.port()),
        };
        let packet = segment(remote, to, says);
        let outcome = self.programs.link_brings(link, packet)?;
        // What the kernel routes stays as it is.
        let is_sent = outcome.sent.is_some_and(|(_, to)| to == local);
        let really = is_sent || outcome.reason.name == "ROUTED_IN";
        let answer = Segment {
            ack: says.ack.wrapping_sub(LOCAL_ISN),
            payload_bytes: says.payload.len() as u16,
            ..Segment::bare(kind)
        };
        let sender = (from, flow);
        let simulated = self
            .simulator
            .link_brings(link, sender, answer, bytes(local, says));
        self.tell(&format!(
            "{local} is sent {kind:?} {}, ack {}: {}, {}; in the simulator {}",
            over(Some(link)),
            answer.ack as i32,
            arrives(really),
            outcome.reason.words,
            arrives(simulated)
        ));
        Ok((really == simulated).then_some(really))
    }

    fn connect(&mut self, slot: usize) -> Result<bool> {
        Ok(self.lan_sends(slot, Kind::Syn)?
            && self.server_sends(slot, Way::Own, Kind::SynAck, true)?
            && self.lan_sends(slot, Kind::Ack)?)
    }

    fn repeat(&mut self, slot: usize, times: u32) -> Result<bool> {
        for _ in 0..times {
            if !self.lan_sends(slot, Kind::Syn)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn leave(&mut self, slot: usize) -> bool {
        let Slot { flow, local, .. } = self.slots[slot];
        self.tell(&format!("{local} is forgotten by its host"));
        self.simulator.forget(flow);
        self.slots[slot] = self.begin(slot);
        true
    }

    /// A host that is silent for longer than the timer of its flow has forgotten it.
    fn pass(&mut self, time: Duration) -> Result<bool> {
        let now = self.now + time;
        for slot in 0..SLOTS {
            if self.runs_out(slot).is_some_and(|end| end < now) {
                self.leave(slot);
            }
        }
        self.tell(&format!("{time:?} pass"));
        self.set_time(now)?;
        self.programs.plane.sweep()?;
        Ok(true)
    }

    fn set_time(&mut self, now: Time) -> Result<()> {
        self.now = now;
        self.simulator.set_time(now);
        self.programs.set_time(now)
    }

    fn install(&mut self, class: ClassId, policy: &Policy) -> Result<bool> {
        self.tell(&format!("{class}: {policy:?}"));
        let counters = self.programs.plane.counters()?;
        let base = |dispatched: u64| if policy.rebase { dispatched } else { 0 };
        let dispatched = counters.iter().map(|link| base(link.flows.dispatched));
        let choice = policy.choice(dispatched);
        for family in Family::ALL {
            self.programs.plane.install(class, family, &choice)?;
        }
        let Ok(()) = self
            .simulator
            .data_plane()
            .install(class, Family::V4, &choice);
        self.introduce();
        Ok(true)
    }

    fn write_rules(&mut self, written: &[transcript::Rule]) -> Result<bool> {
        self.tell(&format!("{written:?}"));
        let rules: Vec<Rule> = written.iter().map(rule).collect();
        let mut compiled = compile(&rules, Moment::new(0, 0), |_| None)?;
        for (class, rule) in compiled.class[1..].iter_mut().zip(written) {
            *class = rule.class;
        }
        self.programs.plane.set_rules(&compiled)?;
        self.simulator.set_rules(compiled);
        self.introduce();
        Ok(true)
    }

    /// What the simulator is told of a flow once, the programs read of every packet.
    fn introduce(&mut self) {
        for (slot, of) in self.slots.iter().enumerate() {
            let (pair, _) = pair(slot, self.site);
            self.simulator
                .introduce(of.flow, pair, (of.local, of.remote));
        }
    }

    /// What is opened at the same time stays.
    fn end_flows(&mut self, class: ClassId, link: LinkId) -> Result<bool> {
        self.set_time(self.now + Duration::from_nanos(1))?;
        let mut really = Ended::default();
        for family in Family::ALL {
            let ended = self.programs.plane.end_flows(class, family, link)?;
            really.tcp += ended.tcp;
            really.udp += ended.udp;
        }
        let Ok(simulated) = self
            .simulator
            .data_plane()
            .end_flows(class, Family::V4, link);
        self.tell(&format!(
            "the flows of {class} on {link:?} end: {really:?}; in the simulator {simulated:?}"
        ));
        Ok(really == simulated)
    }

    // ---- flows

    fn begin(&mut self, slot: usize) -> Slot {
        let (pair, (host, server)) = pair(slot, self.site);
        let local = SocketAddr::new(host, FIRST_PORT + self.begun);
        let remote = SocketAddr::new(server, PORT);
        self.begun += 1;
        Slot {
            flow: self.simulator.begin(pair, (local, remote)),
            local,
            remote,
            servers: Vec::new(),
        }
    }

    /// Both entries of a slot's flow.
    fn entries(&self, slot: usize) -> (Option<Flow>, Option<Flow>) {
        let lan = self.programs.entry(&self.slots[slot].lan_key());
        let key = |lan: Flow| self.link_key(slot, LinkId(lan.link.into()));
        (lan, lan.and_then(|lan| self.programs.entry(&key(lan))))
    }

    /// The links over which the flow's attempt, or the flow, is known at its server.
    fn tries(&self, slot: usize) -> Vec<LinkId> {
        let is_open = |lan: Flow| lan.state & abi::STATE_CLOSED == 0;
        if !self.entries(slot).0.is_some_and(is_open) {
            return Vec::new();
        }
        let links = (0..LINKS).map(LinkId);
        links
            .filter(|link| self.programs.entry(&self.link_key(slot, *link)).is_some())
            .collect()
    }

    fn server(&self, slot: usize, way: Way) -> Option<(LinkId, SideId)> {
        let Slot { flow, servers, .. } = &self.slots[slot];
        match way {
            Way::Own => {
                let own = self.simulator.bound(*flow)?.link;
                servers.iter().find(|(link, _)| *link == own).copied()
            }
            Way::Sent(number) => {
                let (link, server) = servers[number.checked_rem(servers.len())?];
                let mut routed = (0..LINKS).map(LinkId).filter(|link| self.is_routed(*link));
                let any = number % self.site.routed.count_ones().max(1) as usize;
                let by = if self.is_routed(link) {
                    routed.nth(any)?
                } else {
                    link
                };
                Some((by, server))
            }
        }
    }

    fn is_routed(&self, link: LinkId) -> bool {
        self.site.routed >> link.0 & 1 == 1
    }

    /// Whether the slot's host has spoken with this server before, over this link or, without NAT, any other such.
    fn is_known(&self, slot: usize, (link, server): (LinkId, SideId)) -> bool {
        let mut servers = self.slots[slot].servers.iter();
        let is_same =
            |known: LinkId| known == link || self.is_routed(known) && self.is_routed(link);
        servers.any(|(known, side)| *side == server && is_same(*known))
    }

    fn link_key(&self, slot: usize, link: LinkId) -> FlowKey {
        self.slots[slot].link_key(link, self.is_routed(link))
    }

    /// What the flow's host would say, as far as the programs have followed it.
    fn host_says(&self, slot: usize, kind: Kind) -> Says<'static> {
        let (lan, wan) = self.entries(slot);
        match kind {
            Kind::Syn => says(kind, LOCAL_ISN, 0),
            _ => {
                let seq = lan.map_or(LOCAL_ISN + 1, |lan| lan.tcp.end);
                says(kind, seq, wan.map_or(REMOTE_ISN + 1, |wan| wan.tcp.end))
            }
        }
    }

    /// The same of its server behind `link`. `news`: it acknowledges more than the SYN.
    fn server_says(&self, slot: usize, link: LinkId, kind: Kind, news: bool) -> Says<'static> {
        let (lan, _) = self.entries(slot);
        let wan = self.programs.entry(&self.link_key(slot, link));
        let sent = wan.map_or(0, |wan| wan.tcp.end).max(REMOTE_ISN + 1);
        let heard = lan.map_or(LOCAL_ISN + 1, |lan| lan.tcp.end);
        // The number that the host expects.
        let expected = lan.map(|lan| lan.tcp.ack).filter(|ack| *ack != 0);
        match kind {
            Kind::SynAck => says(kind, REMOTE_ISN, LOCAL_ISN + 1),
            Kind::Rst => says(kind, expected.unwrap_or(sent), heard),
            _ => says(kind, sent, if news { heard } else { LOCAL_ISN + 1 }),
        }
    }

    /// When the timer of a slot's flow runs out.
    fn runs_out(&self, slot: usize) -> Option<Time> {
        let (lan, wan) = self.entries(slot);
        let lan = lan?;
        let seen_ns = lan.seen_ns.max(wan.map_or(0, |wan| wan.seen_ns));
        let is_live = lan.state & (abi::STATE_CONFIRMED | abi::STATE_CLOSED);
        let timer_ns = match is_live == abi::STATE_CONFIRMED {
            true => ESTABLISHED_NS,
            false => UNANSWERED_NS,
        };
        Some(Time::from_nanos(seen_ns + timer_ns))
    }

    // ---- comparison

    fn differences(&mut self) -> Result<String> {
        let mut told = String::new();
        let really = self.programs.plane.counters()?;
        let Ok(simulated) = self.simulator.data_plane().counters();
        for (link, (really, simulated)) in really.iter().zip(&simulated).enumerate() {
            // The simulator knows no families. Who shares a place among witnesses is a matter of hashes: the programs' have a secret.
            let all = |link: &LinkCounters| {
                let traffic = Traffic {
                    retrying_hosts: 0,
                    retried_ends: 0,
                    ..link.carried()
                };
                (traffic, link.flows)
            };
            if all(really) != all(simulated) {
                writeln!(told, "link {link}: {really:?}\n  simulated {simulated:?}")?;
            }
        }
        let really = self.programs.plane.openings()?;
        let Ok(simulated) = self.simulator.data_plane().openings();
        if really != simulated {
            writeln!(told, "opened: {really:?}\n  simulated {simulated:?}")?;
        }
        for server in (0..SERVERS).flat_map(servers) {
            let really = self.programs.paths(server);
            let simulated = self.simulator.paths(server).copied();
            if really != simulated {
                writeln!(told, "{server}: {really:?}\n  simulated {simulated:?}")?;
            }
        }
        for (slot, Slot { flow, local, .. }) in self.slots.iter().enumerate() {
            let really = self.bound(slot);
            let simulated = self.simulator.bound(*flow);
            if really != simulated {
                writeln!(told, "{local}: {really:?}\n  simulated {simulated:?}")?;
            }
        }
        Ok(told)
    }
}

/// Who speaks to whom in a slot, and their addresses.
fn pair(slot: usize, site: Site) -> (Pair, (IpAddr, IpAddr)) {
    let is_ipv6 = site.ipv6 >> slot & 1 == 1;
    let (nth, of_server) = (slot as u8 % HOSTS, slot as u8 % SERVERS);
    let (user, server) = match is_ipv6 {
        true => (nth + HOSTS, of_server + SERVERS),
        false => (nth, of_server),
    };
    let family = usize::from(is_ipv6);
    let pair = Pair {
        user: user.into(),
        server: server.into(),
    };
    (pair, (hosts(nth)[family], servers(of_server)[family]))
}

/// Of either family; each is a host of its own.
fn hosts(nth: u8) -> [IpAddr; 2] {
    let [nth, other] = [nth, nth + HOSTS].map(usize::from);
    [IPV4.hosts[nth].0, IPV6.hosts[other].0]
}

fn servers(nth: u8) -> [IpAddr; 2] {
    [&IPV4, &IPV6].map(|site| site.servers[usize::from(nth)])
}

fn rule(written: &transcript::Rule) -> Rule {
    let host = |address: IpAddr| Prefix::new(address, if address.is_ipv6() { 128 } else { 32 });
    let from = written.host.into_iter().flat_map(hosts).map(host);
    let to = written.server.into_iter().flat_map(servers).map(host);
    Rule {
        matches: Matches {
            from: from.map(Origin::Prefix).collect(),
            to: to.collect(),
            ..Matches::default()
        },
        class: Class::default(),
    }
}

fn bound(lan: Flow) -> Bound {
    Bound {
        class: ClassId(lan.class),
        link: LinkId(lan.link.into()),
        state: lan.state & STATE,
        tried: Tried(lan.tried),
    }
}

fn arrives(does: bool) -> &'static str {
    match does {
        true => "arrives",
        false => "does not arrive",
    }
}

fn says(kind: Kind, seq: u32, ack: u32) -> Says<'static> {
    let (payload, flags): (&[u8], _) = match kind {
        Kind::Syn => (&[], SYN),
        Kind::SynAck => (&[], SYN | ACK),
        Kind::Data => (DATA, ACK),
        Kind::Fin => (&[], FIN | ACK),
        Kind::Ack => (&[], ACK),
        Kind::Rst => (&[], RST | ACK),
    };
    Says {
        flags,
        seq,
        ack,
        options: &[],
        payload,
    }
}

/// Of the packet that says it.
fn bytes(local: SocketAddr, says: &Says) -> u32 {
    HEADER_BYTES + MORE_BYTES * u32::from(local.is_ipv6()) + says.payload.len() as u32
}

fn link_of(address: IpAddr) -> Option<LinkId> {
    let link = (0..LINKS).find(|&link| external(address.into(), link) == address);
    link.map(LinkId)
}

fn over(link: Option<LinkId>) -> String {
    match link {
        Some(LinkId(link)) => format!("over link {link}"),
        None => "nowhere".to_owned(),
    }
}
