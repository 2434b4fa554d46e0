//! The flow table of the gateway.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use anabranch_core::{Ended, LinkCounters, LinkId, Time};
use anabranch_policy::abi::{Answer, Choice, Gauge, MAX_LINKS, Traffic};
use anabranch_policy::tries::Attempt;
use anabranch_policy::{Candidates, Decision, Dispatch, Granularity, Load, Request, Why, pick};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::net::{FlowId, Net, Packet, SideId};
use crate::tcp::{Kind, Segment};

/// The stream of the gateway's random numbers; those of links are their numbers.
const STREAM: u64 = 1 << 40;
/// `nat.tcp_unanswered` of the gateway's configuration.
const UNANSWERED: Duration = Duration::from_secs(240);

/// The two addresses of a flow, as numbers of user and server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    /// From 0.
    pub user: u32,
    /// From 0.
    pub server: u32,
}

/// What the table knows of a flow.
#[derive(Clone, Copy, Debug)]
struct Entry {
    opener: SideId,
    /// The connection at the server: what came from another belongs to no flow.
    peer: SideId,
    /// The greatest number that the remote end acknowledged.
    acked: u32,
    attempt: Attempt,
    replied: bool,
    confirmed: bool,
    fin_local: bool,
    fin_remote: bool,
    closed: bool,
    /// Links that failed it.
    tried: u16,
}

impl Entry {
    fn link(&self) -> LinkId {
        LinkId(self.attempt.link())
    }
}

const NO_ENTRY: Entry = Entry {
    opener: SideId::NOBODY,
    peer: SideId::NOBODY,
    acked: 0,
    attempt: Attempt::new(0),
    replied: false,
    confirmed: false,
    fin_local: false,
    fin_remote: false,
    closed: true,
    tried: 0,
};

/// What a SYN of the LAN asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// Its flow is bound as it should be.
    Bound,
    /// A new flow is to be bound to this link.
    Fresh(LinkId),
    /// The attempt goes on over this link.
    Onward(LinkId),
    NoLink,
}

/// Flows, the choice among links, and what both count.
#[derive(Debug)]
pub struct Nat {
    choice: Choice,
    /// By the place of the flow's opener.
    entries: Vec<Entry>,
    /// The earlier tries of attempts that nothing answered yet: by the place of the opener, the connections at the server.
    earlier: BTreeMap<usize, Vec<(LinkId, SideId)>>,
    /// By flow.
    pairs: Vec<Pair>,
    /// By user and server; of a user as a whole without a server.
    sessions: BTreeMap<(u32, Option<u32>), LinkId>,
    traffic: Vec<Traffic>,
    gauges: Vec<Gauge>,
    /// Entries whose host went away without a word, which a sweep will find: when, and of which link.
    unanswered: VecDeque<(Time, LinkId)>,
    reassigned: u64,
    random: ChaCha8Rng,
}

impl Nat {
    pub(super) fn new(links: usize, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(STREAM);
        Nat {
            choice: Choice::default(),
            entries: Vec::new(),
            earlier: BTreeMap::new(),
            pairs: Vec::new(),
            sessions: BTreeMap::new(),
            traffic: vec![Traffic::default(); links],
            gauges: vec![Gauge::default(); links],
            unanswered: VecDeque::new(),
            reassigned: 0,
            random,
        }
    }

    /// Says between whom a flow is, before it opens. Without it, all flows are of one pair.
    pub fn introduce(&mut self, flow: FlowId, pair: Pair) {
        grow(&mut self.pairs, flow.index(), Pair::default());
        self.pairs[flow.index()] = pair;
    }

    /// The link that a flow is bound to.
    pub fn link_of(&self, net: &Net, flow: FlowId) -> Option<LinkId> {
        let (opener, _) = net.sides(flow);
        self.entry(opener).map(Entry::link)
    }

    /// Flows that are open on a link, as the gateway counts.
    pub fn active(&self, link: LinkId) -> u64 {
        let gauge = &self.gauges[link.index()];
        gauge.opened.saturating_sub(gauge.closed)
    }

    /// Flows that were ever opened on a link.
    pub fn opened(&self, link: LinkId) -> u64 {
        self.gauges[link.index()].opened
    }

    /// Flows that a repeated SYN moved to another link.
    pub fn reassigned(&self) -> u64 {
        self.reassigned
    }

    // ---- what the daemon asks for

    pub(super) fn install(&mut self, choice: &Choice) {
        self.choice = *choice;
    }

    pub(super) fn counters(&mut self, now: Time) -> Vec<LinkCounters> {
        while let Some((_, link)) = self.unanswered.front().filter(|(due, _)| *due <= now) {
            self.gauges[link.index()].closed += 1;
            self.unanswered.pop_front();
        }
        let all = self.traffic.iter().zip(&self.gauges);
        all.map(|(&traffic, &flows)| LinkCounters { traffic, flows })
            .collect()
    }

    /// What a link has carried, for whoever sends packets over the gateway's links that are of none of its flows.
    pub(crate) fn traffic_mut(&mut self, link: LinkId) -> &mut Traffic {
        &mut self.traffic[link.index()]
    }

    /// Those that are open; a handshake under way moves with its next SYN (`end_entry` of bpf/lib/sweep.h).
    pub(super) fn end_flows(&mut self, net: &mut Net, link: LinkId) -> Ended {
        let mut ended = Ended::default();
        for place in 0..self.entries.len() {
            let entry = self.entries[place];
            if !entry.confirmed || entry.link() != link {
                continue;
            }
            if !entry.closed {
                ended.tcp += 1;
                net.tell(Segment::bare(Kind::Rst), entry.peer, entry.opener);
            }
            self.close(place);
            self.entries[place] = NO_ENTRY;
        }
        ended
    }

    // ---- packets

    fn entry(&self, opener: SideId) -> Option<&Entry> {
        self.entries
            .get(opener.index())
            .filter(|entry| entry.opener == opener)
    }

    /// A SYN of the LAN (`settle_syn` of bpf/lib/outbound.h).
    pub(super) fn settle_syn(&mut self, net: &Net, flow: FlowId) -> Settled {
        let (opener, _) = net.sides(flow);
        let Some(entry) = self.entry(opener).copied() else {
            let link = self.choose(net, flow, 0);
            return link.map_or(Settled::NoLink, Settled::Fresh);
        };
        if entry.confirmed || entry.replied {
            return Settled::Bound;
        }
        let link = entry.link();
        self.traffic[link.index()].syn_retries += 1;
        let usable = self.choice.usable >> link.0 & 1 == 1;
        let tried = if self.choice.syn_retry != 0 {
            entry.tried | 1 << link.0
        } else if usable {
            return Settled::Bound;
        } else {
            0
        };
        let Some(next) = self.choose(net, flow, tried) else {
            return Settled::NoLink;
        };
        self.entries[opener.index()].tried = tried;
        match next == link {
            true => Settled::Bound,
            false => Settled::Onward(next),
        }
    }

    /// The link of a new flow (`choose_link` of bpf/lib/open.h).
    fn choose(&mut self, net: &Net, flow: FlowId, avoid: u16) -> Option<LinkId> {
        let avoid = u32::from(avoid);
        let pair = self.pairs.get(flow.index()).copied().unwrap_or_default();
        let reach = Granularity::try_from(self.choice.granularity).expect("the balancer's own");
        let session = match reach {
            Granularity::Connection => None,
            Granularity::Session => Some((pair.user, Some(pair.server))),
            Granularity::Host => Some((pair.user, None)),
        };
        if let Some(session) = session {
            let known = self.sessions.get(&session).copied();
            let known = known.filter(|link| (self.choice.usable & !avoid) >> link.0 & 1 == 1);
            if known.is_some() {
                return known;
            }
        }
        let dispatch = Dispatch::try_from(self.choice.dispatch).expect("the balancer's own");
        let request = Request {
            dispatch,
            avoid,
            hash: net.label(flow),
            random: self.random.random(),
        };
        let Decision { target, why } = pick(&self.candidates(), &request);
        debug_assert!(target.is_some() || why == Why::NoneUsable);
        let link = LinkId(target?);
        if let Some(session) = session {
            self.sessions.insert(session, link);
        }
        Some(link)
    }

    fn candidates(&self) -> Candidates {
        let choice = &self.choice;
        let mut candidates = Candidates {
            count: choice.count,
            usable: choice.usable,
            ..Candidates::default()
        };
        for (i, target) in choice.target.iter().enumerate().take(MAX_LINKS) {
            candidates.weight[i] = target.weight;
            let Some(gauge) = self.gauges.get(i) else {
                continue;
            };
            candidates.load[i] = if choice.load == Load::Active as u32 {
                gauge.opened.saturating_sub(gauge.closed) as u32
            } else {
                (gauge.dispatched as u32).wrapping_sub(target.dispatched_base)
            };
        }
        candidates
    }

    pub(super) fn bind(&mut self, opener: SideId, peer: SideId, link: LinkId) {
        grow(&mut self.entries, opener.index(), NO_ENTRY);
        self.entries[opener.index()] = Entry {
            opener,
            peer,
            attempt: Attempt::new(link.0),
            closed: false,
            ..NO_ENTRY
        };
        let gauge = &mut self.gauges[link.index()];
        gauge.dispatched += 1;
        gauge.opened += 1;
    }

    // ---- tries of an attempt, as in bpf/lib/attempt.h

    /// The connection at the server that an earlier try over this link began.
    pub(super) fn earlier_peer(&self, opener: SideId, link: LinkId) -> Option<SideId> {
        let tries = self.earlier.get(&opener.index())?;
        let one = tries.iter().find(|(tried, _)| *tried == link)?;
        Some(one.1)
    }

    /// The attempt goes on over another link; its earlier tries may still answer.
    pub(super) fn go_on(&mut self, opener: SideId, peer: SideId, link: LinkId) {
        let entry = &mut self.entries[opener.index()];
        let before = (entry.link(), std::mem::replace(&mut entry.peer, peer));
        let given_up = entry.attempt.go_on(link.0).map(LinkId);
        let tries = self.earlier.entry(opener.index()).or_default();
        tries.retain(|(tried, _)| *tried != link && Some(*tried) != given_up);
        tries.push(before);
        self.gauges[link.index()].dispatched += 1;
        self.count_move(before.0, link);
        self.reassigned += 1;
    }

    /// A SYN-ACK: whether an earlier try has won by it, whose connection is the flow's from here on.
    pub(super) fn answer(&mut self, link: LinkId, packet: &Packet) -> bool {
        let (opener, from) = (packet.to, packet.from);
        let earlier = self.earlier_peer(opener, link) == Some(from);
        let place = opener.index();
        let Some(entry) = self.entries.get_mut(place).filter(|e| e.opener == opener) else {
            return false;
        };
        let current = (entry.link(), entry.peer);
        if !earlier && current != (link, from) || entry.attempt.answer(link.0) != Answer::First {
            return false;
        }
        entry.peer = from;
        self.earlier.remove(&place);
        if earlier {
            self.count_move(current.0, link);
        }
        earlier
    }

    fn count_move(&mut self, from: LinkId, to: LinkId) {
        self.gauges[from.index()].closed += 1;
        self.gauges[to.index()].opened += 1;
    }

    // ---- packets of flows

    /// A packet of the LAN: its link and the connection at the server; none if it belongs to no flow.
    pub(super) fn follow_out(
        &mut self,
        opener: SideId,
        kind: Kind,
        bytes: u32,
    ) -> Option<(LinkId, SideId)> {
        let entry = self.entries.get_mut(opener.index())?;
        if entry.opener != opener {
            return None;
        }
        entry.confirmed |= entry.replied && kind != Kind::Syn;
        entry.fin_local |= kind == Kind::Fin;
        let (link, peer) = (entry.link(), entry.peer);
        let over = entry.fin_local && entry.fin_remote || kind == Kind::Rst;
        let traffic = &mut self.traffic[link.index()];
        traffic.tx_packets += 1;
        traffic.tx_bytes += u64::from(bytes);
        if over {
            self.close(opener.index());
        }
        Some((link, peer))
    }

    /// A packet from a link; false if it belongs to no flow.
    pub(super) fn follow_in(&mut self, link: LinkId, packet: &Packet) -> bool {
        let place = packet.to.index();
        let Some(entry) = self.entries.get_mut(place) else {
            return false;
        };
        if entry.opener != packet.to || entry.peer != packet.from || entry.link() != link {
            return false;
        }
        let segment = &packet.segment;
        entry.replied |= segment.kind == Kind::SynAck;
        entry.fin_remote |= segment.kind == Kind::Fin;
        let over = entry.fin_local && entry.fin_remote || segment.kind == Kind::Rst;
        let traffic = &mut self.traffic[link.index()];
        traffic.rx_packets += 1;
        traffic.rx_bytes += u64::from(packet.bytes);
        if segment.ack > entry.acked {
            entry.acked = segment.ack;
            traffic.rx_progress += 1;
        }
        if over {
            self.close(place);
        }
        true
    }

    /// The host has forgotten the flow. A sweep takes away what it left open.
    pub(super) fn forget(&mut self, now: Time, opener: SideId) {
        let Some(entry) = self.entry(opener) else {
            return;
        };
        if !entry.closed {
            self.unanswered.push_back((now + UNANSWERED, entry.link()));
        }
        self.entries[opener.index()] = NO_ENTRY;
        self.earlier.remove(&opener.index());
    }

    fn close(&mut self, place: usize) {
        let entry = &mut self.entries[place];
        if !std::mem::replace(&mut entry.closed, true) {
            self.gauges[entry.link().index()].closed += 1;
        }
    }
}

fn grow<T: Clone>(places: &mut Vec<T>, index: usize, empty: T) {
    if places.len() <= index {
        places.resize(index + 1, empty);
    }
}
