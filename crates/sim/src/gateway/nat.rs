//! The flow table of the gateway.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::time::Duration;

use anabranch_core::{Ended, LinkCounters, LinkId, Time};
use anabranch_policy::abi::{
    Answer, Choice, STATE_CLOSED, STATE_CONFIRMED, STATE_FIN_LOCAL, STATE_FIN_REMOTE,
    STATE_REPLIED, Traffic,
};
use anabranch_policy::tries::Attempt;
use anabranch_policy::{Gauges, Granularity, NO_TABLE, Request, Syn, Tried, choose};

use super::replay::Bound;
use crate::draws::Draws;
use crate::net::{FlowId, Net, Packet, SideId};
use crate::tcp::{Kind, Segment};

/// The stream of the gateway's random numbers; those of links are their numbers.
const STREAM: u64 = 1 << 40;
/// `nat.tcp_unanswered` of the gateway's configuration.
const UNANSWERED: Duration = Duration::from_secs(240);
/// `nat.tcp_established`.
const ESTABLISHED: Duration = Duration::from_secs(7440);

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
    /// When a packet last passed, either way.
    seen: Time,
    /// The greatest number that the remote end acknowledged.
    acked: u32,
    attempt: Attempt,
    /// Bits of `STATE_…`.
    state: u32,
    /// Links that failed it.
    tried: Tried,
}

impl Entry {
    fn link(&self) -> LinkId {
        LinkId(self.attempt.link())
    }

    fn is(&self, state: u32) -> bool {
        self.state & state == state
    }

    /// It ended before its SYN was answered.
    fn is_refused(&self) -> bool {
        self.state & (STATE_CLOSED | STATE_REPLIED) == STATE_CLOSED
    }

    /// Whether a segment of its remote end belongs to a connection whose SYN was answered.
    fn has_heard(&self, segment: &Segment) -> bool {
        self.is(STATE_REPLIED) && (self.is(STATE_CONFIRMED) || !is_earlier(segment.ack))
    }

    /// Whether a bare ACK is of an earlier connection of its ends (`is_challenge` of bpf/lib/tcp.h).
    fn is_challenged(&self, ack: &Segment) -> bool {
        self.state & (STATE_REPLIED | STATE_CLOSED) == 0 && is_earlier(ack.ack)
    }

    /// That takes it away when it is idle for longer (`timer_of` of bpf/lib/sweep.h).
    fn timer(&self) -> Duration {
        match self.is(STATE_CONFIRMED) {
            true => ESTABLISHED,
            false => UNANSWERED,
        }
    }

    fn note(&mut self, state: u32, holds: bool) {
        self.state |= if holds { state } else { 0 };
    }
}

const NO_ENTRY: Entry = Entry {
    opener: SideId::NOBODY,
    peer: SideId::NOBODY,
    seen: Time::ZERO,
    acked: 0,
    attempt: Attempt::new(0),
    state: STATE_CLOSED,
    tried: Tried(0),
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

/// An open flow that its host has forgotten, until the sweep or the end of its link finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Silent {
    /// Its timer.
    runs_out: Time,
    link: LinkId,
    confirmed: bool,
}

/// What a packet from a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// One of a flow.
    InFlow,
    /// One of an earlier connection of its flow's ends, in answer to the SYN.
    Challenge,
    /// One of a try that did not answer its SYN yet.
    Early,
    /// One of no flow.
    Stray,
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
    sessions: BTreeMap<Session, LinkId>,
    traffic: Vec<Traffic>,
    gauges: Box<Gauges>,
    /// How many there are of each.
    silent: BTreeMap<Silent, u64>,
    reassigned: u64,
    draws: Draws,
}

/// A user and a server, or a user as a whole.
type Session = (u32, Option<u32>);

impl Nat {
    pub(super) fn new(links: usize, seed: u64) -> Self {
        Nat {
            choice: Choice::default(),
            entries: Vec::new(),
            earlier: BTreeMap::new(),
            pairs: Vec::new(),
            sessions: BTreeMap::new(),
            traffic: vec![Traffic::default(); links],
            gauges: Box::default(),
            silent: BTreeMap::new(),
            reassigned: 0,
            draws: Draws::new(seed, STREAM),
        }
    }

    /// The label that a flow needs, of its addresses and ports as its opener sends them (`packet_hash` of bpf/lib/open.h).
    pub fn hash(&self, from: SocketAddrV4, to: SocketAddrV4) -> u32 {
        let (src, dst) = ((*from.ip()).into(), (*to.ip()).into());
        self.choice.hash_for(src, dst, from.port(), to.port())
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

    pub(super) fn bound(&self, opener: SideId) -> Option<Bound> {
        self.entry(opener).map(|entry| Bound {
            link: entry.link(),
            state: entry.state,
            tried: entry.tried,
        })
    }

    pub(super) fn next_draw(&self) -> u32 {
        self.draws.peek()
    }

    /// Flows that are open on a link, as the gateway counts.
    pub fn active(&self, link: LinkId) -> u64 {
        let gauge = &self.gauges.target[link.index()];
        gauge.opened.saturating_sub(gauge.closed)
    }

    /// Flows that were ever opened on a link.
    pub fn opened(&self, link: LinkId) -> u64 {
        self.gauges.target[link.index()].opened
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
        while let Some(first) = self.silent.first_entry().filter(|e| e.key().runs_out < now) {
            let (silent, flows) = first.remove_entry();
            self.gauges.target[silent.link.index()].closed += flows;
        }
        let all = self.traffic.iter().zip(&self.gauges.target);
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
            if !entry.is(STATE_CONFIRMED) || entry.link() != link {
                continue;
            }
            if !entry.is(STATE_CLOSED) {
                ended.tcp += 1;
                net.tell(Segment::bare(Kind::Rst), entry.peer, entry.opener);
            }
            self.close(place);
            self.entries[place] = NO_ENTRY;
        }
        ended.tcp += self.end_silent(link);
        ended
    }

    /// The same of those whose host went away: how many there were.
    fn end_silent(&mut self, link: LinkId) -> u64 {
        let mut ended = 0;
        self.silent.retain(|silent, flows| {
            let stays = !silent.confirmed || silent.link != link;
            ended += if stays { 0 } else { *flows };
            stays
        });
        self.gauges.target[link.index()].closed += ended;
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
            return self.open(net, flow);
        };
        let link = entry.link();
        let retries = &mut self.traffic[link.index()].syn_retries;
        match self.choice.judge_syn(entry.state, true, link.0) {
            Syn::Follows => Settled::Bound,
            Syn::Again => {
                *retries += 1;
                Settled::Bound
            }
            Syn::GoesOn => {
                *retries += 1;
                self.leave(net, flow, entry)
            }
            Syn::Anew => {
                self.entries[opener.index()] = NO_ENTRY;
                self.open(net, flow)
            }
        }
    }

    fn open(&mut self, net: &Net, flow: FlowId) -> Settled {
        let Some(link) = self.choose(net, flow, Tried::default()) else {
            return Settled::NoLink;
        };
        self.remember(flow, link);
        Settled::Fresh(link)
    }

    /// The attempt goes on elsewhere, if there is a link for it (`go_on` of bpf/lib/outbound.h).
    fn leave(&mut self, net: &Net, flow: FlowId, entry: Entry) -> Settled {
        let link = entry.link();
        let tried = self.choice.tried_with(entry.tried, link.0);
        let Some(next) = self.choose(net, flow, tried) else {
            return Settled::NoLink;
        };
        self.entries[entry.opener.index()].tried = tried;
        match next == link {
            true => Settled::Bound,
            false => Settled::Onward(next),
        }
    }

    /// The link of a new flow (`choose_link` of bpf/lib/open.h).
    fn choose(&mut self, net: &Net, flow: FlowId, tried: Tried) -> Option<LinkId> {
        let known = |session| self.sessions.get(&session).map(|link| link.0);
        let request = Request {
            tried,
            hash: net.label(flow),
            session: self.session(flow).and_then(known),
            draw: self.draws.next(&self.choice),
            ..Request::default()
        };
        let decision = choose(&self.choice, &self.gauges, &NO_TABLE, &request);
        decision.target.map(LinkId)
    }

    /// What binds the flows of a pair, or of a user, to one link. There are no ports here that are excepted.
    fn session(&self, flow: FlowId) -> Option<Session> {
        let pair = self.pairs.get(flow.index()).copied().unwrap_or_default();
        match self.choice.reach(0) {
            Granularity::Connection => None,
            Granularity::Session => Some((pair.user, Some(pair.server))),
            Granularity::Host => Some((pair.user, None)),
        }
    }

    fn remember(&mut self, flow: FlowId, link: LinkId) {
        if let Some(session) = self.session(flow) {
            self.sessions.insert(session, link);
        }
    }

    pub(super) fn bind(&mut self, opener: SideId, peer: SideId, link: LinkId) {
        grow(&mut self.entries, opener.index(), NO_ENTRY);
        self.entries[opener.index()] = Entry {
            opener,
            peer,
            attempt: Attempt::new(link.0),
            state: 0,
            ..NO_ENTRY
        };
        let gauge = &mut self.gauges.target[link.index()];
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
        self.gauges.target[link.index()].dispatched += 1;
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
        if entry.is_refused() || !earlier && current != (link, from) {
            return false;
        }
        if entry.attempt.answer(link.0) != Answer::First {
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
        self.gauges.target[from.index()].closed += 1;
        self.gauges.target[to.index()].opened += 1;
    }

    // ---- packets of flows

    /// A packet of the LAN: its link and the connection at the server; none if it belongs to no flow.
    pub(super) fn follow_out(
        &mut self,
        net: &Net,
        opener: SideId,
        segment: &Segment,
        bytes: u32,
    ) -> Option<(LinkId, SideId)> {
        let kind = segment.kind;
        let entry = self.entries.get_mut(opener.index())?;
        if entry.opener != opener {
            return None;
        }
        entry.seen = net.now();
        let confirms = entry.is(STATE_REPLIED) && !entry.is(STATE_CONFIRMED) && kind != Kind::Syn;
        let moved = confirms && entry.tried != Tried::default();
        // What has ended stays among the embryos.
        entry.note(STATE_CONFIRMED, confirms && !entry.is(STATE_CLOSED));
        entry.note(STATE_FIN_LOCAL, kind == Kind::Fin);
        let (link, peer) = (entry.link(), entry.peer);
        let resets = kind == Kind::Rst && (entry.is(STATE_REPLIED) || !is_earlier(segment.number));
        let over = entry.is(STATE_FIN_LOCAL | STATE_FIN_REMOTE) || resets;
        if let Some(flow) = net.flow_of(opener).filter(|_| moved) {
            self.remember(flow, link);
        }
        let traffic = &mut self.traffic[link.index()];
        traffic.tx_packets += 1;
        traffic.tx_bytes += u64::from(bytes);
        if over {
            self.close(opener.index());
        }
        Some((link, peer))
    }

    /// A packet from a link (`follow_tcp_in` of bpf/lib/inbound.h).
    pub(super) fn follow_in(&mut self, now: Time, link: LinkId, packet: &Packet) -> Heard {
        let (place, segment) = (packet.to.index(), &packet.segment);
        let Some(entry) = self.entry(packet.to).copied() else {
            return Heard::Stray;
        };
        let is_own = (entry.peer, entry.link()) == (packet.from, link);
        if !is_own && self.earlier_peer(packet.to, link) != Some(packet.from) {
            return Heard::Stray;
        }
        match segment.kind {
            Kind::Rst => {}
            Kind::SynAck if is_own && !entry.is_refused() => {}
            Kind::SynAck => return Heard::Stray,
            _ if is_own && entry.has_heard(segment) => {}
            Kind::Ack if is_own && entry.is_challenged(segment) => return Heard::Challenge,
            _ => return Heard::Early,
        }
        let entry = &mut self.entries[place];
        entry.seen = now;
        entry.note(STATE_REPLIED, segment.kind == Kind::SynAck);
        entry.note(STATE_FIN_REMOTE, segment.kind == Kind::Fin);
        let over = entry.is(STATE_FIN_LOCAL | STATE_FIN_REMOTE) || segment.kind == Kind::Rst;
        let traffic = &mut self.traffic[link.index()];
        traffic.rx_packets += 1;
        traffic.rx_bytes += u64::from(packet.bytes);
        let acked = if is_own { &mut entry.acked } else { &mut 0 };
        if segment.ack > *acked && !is_earlier(segment.ack) {
            *acked = segment.ack;
            traffic.rx_progress += 1;
        }
        if over {
            self.close(place);
        }
        Heard::InFlow
    }

    /// The host has forgotten the flow. A sweep takes away what it left open.
    pub(super) fn forget(&mut self, opener: SideId) {
        let Some(entry) = self.entry(opener) else {
            return;
        };
        if !entry.is(STATE_CLOSED) {
            let silent = Silent {
                runs_out: entry.seen + entry.timer(),
                link: entry.link(),
                confirmed: entry.is(STATE_CONFIRMED),
            };
            *self.silent.entry(silent).or_default() += 1;
        }
        self.entries[opener.index()] = NO_ENTRY;
        self.earlier.remove(&opener.index());
    }

    fn close(&mut self, place: usize) {
        let entry = &mut self.entries[place];
        if !entry.is(STATE_CLOSED) {
            entry.state |= STATE_CLOSED;
            self.gauges.target[entry.link().index()].closed += 1;
            self.earlier.remove(&place);
        }
    }
}

/// Whether a number is before the SYN's, modulo 2^32.
fn is_earlier(number: u32) -> bool {
    (number as i32) < 0
}

fn grow<T: Clone>(places: &mut Vec<T>, index: usize, empty: T) {
    if places.len() <= index {
        places.resize(index + 1, empty);
    }
}
