//! The flow table of the gateway.

mod attempt;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anabranch_core::{ClassId, Ended, LinkCounters, LinkId, Opening as Opened, Question, Time};
use anabranch_peers::Table;
use anabranch_policy::abi::{
    BePort, Choice, SIDE_ROUTED, STATE_CLOSED, STATE_CONFIRMED, STATE_FIN_LOCAL, STATE_FIN_REMOTE,
    STATE_REPLIED, STATE_ROUTED, Traffic, Traits,
};
use anabranch_policy::paths::{Paths, Prefix, syn_sent};
use anabranch_policy::tries::Attempt;
use anabranch_policy::witness::Witnesses;
use anabranch_policy::{
    Gauges, Granularity, NO_TABLE, PerFamily, Request, Rules, Syn, Tried, Why, Without,
    choose_and_race, session_word,
};

use super::FAMILY;
use super::told::{Told, Try};
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

/// The ends of a connection: who opens it, and to whom.
pub type Ends = (SocketAddr, SocketAddr);

/// What stands for all links without NAT where a server's connections are told apart by the address it knows.
const OWN: LinkId = LinkId(SIDE_ROUTED as u16);

/// Sessions are told apart by what they are.
const NO_HASH: u64 = 0;
/// Every connection is TCP, and comes by the one device of the LAN.
const TCP: u8 = 6;
const LAN_DEVICE: u32 = 1;

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
    class: ClassId,
    /// That it goes to.
    prefix: Prefix,
    /// Whose it is.
    user: u32,
    /// Whom it counts against in its class, where that has a quota.
    charged: Option<u32>,
    /// It began with what was no SYN.
    joined: bool,
    /// Its link is that whose probe was answered first, or will be: its SYN waits.
    probed: bool,
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
    class: ClassId::DEFAULT,
    prefix: Prefix::NONE,
    user: 0,
    charged: None,
    joined: false,
    probed: false,
};

/// A choice that was made.
#[derive(Clone, Copy, Debug)]
struct Chosen {
    link: LinkId,
    /// That the SYN takes as well, as bits.
    rivals: u32,
    /// Probes take them, and the SYN waits.
    waits: bool,
    /// What no other flow is to ask of its destination's prefix: links, as bits.
    asked: u32,
}

/// A flow that is to be bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begun {
    class: ClassId,
    pub link: LinkId,
    /// That its SYN takes as well, as bits.
    rivals: u32,
    /// Probes take them, and the SYN waits.
    waits: bool,
    /// Links that failed it before.
    tried: Tried,
    /// It begins with what is no SYN.
    joins: bool,
}

/// What a packet of the LAN asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// Its flow is bound as it should be.
    Bound,
    /// The same, and it is the SYN of a race, which takes all its links again.
    Again,
    /// A new flow is to be bound.
    Fresh(Begun),
    /// The attempt goes on over this link.
    Onward(LinkId),
    /// The same as a new flow: of another class, or because NAT stands between both links. The connection at the server, if it
    /// has been tried before.
    Anew(Begun, Option<SideId>),
    /// It goes over this link and belongs to no flow.
    Alone(LinkId),
    /// The same, and its flow of before is forgotten. The connection at the server, as in `Anew`.
    AloneAnew(LinkId, Option<SideId>),
    /// Its connection may take no link that is left, for what is known of it.
    Unknown,
    /// Its host is told that there is none.
    NoLink,
    /// There is none, and nobody is told.
    Dropped,
}

/// An open flow that its host has forgotten, until the sweep or the end of its link finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Silent {
    /// Its timer.
    runs_out: Time,
    link: LinkId,
    confirmed: bool,
    class: ClassId,
    charged: Option<u32>,
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
    rules: Box<Rules>,
    /// Links without NAT, as bits.
    routed: u64,
    /// By class.
    choices: Vec<Choice>,
    /// By the place of the flow's opener.
    entries: Vec<Entry>,
    /// The earlier tries of attempts that nothing answered yet: by the place of the opener, the connections at the server. The
    /// one of links without NAT is there while the attempt is on another, under `OWN`.
    earlier: BTreeMap<usize, Vec<(LinkId, SideId)>>,
    /// By flow.
    openings: Vec<Opening>,
    /// Where routes say which link is the way.
    table: Option<Table>,
    /// By class, user and server; of a user as a whole without a server.
    sessions: BTreeMap<Session, u64>,
    /// When each class will have all its races again, in ns (`bpf/policy/race.h`).
    races: BTreeMap<ClassId, u64>,
    /// Live flows of each user in a class that has a quota.
    shares: BTreeMap<(ClassId, u32), u32>,
    told: Told,
    /// Of classes that survey their destinations, since somebody asked.
    opened: Vec<Opened>,
    traffic: Vec<Traffic>,
    witnesses: Vec<Witnesses>,
    gauges: Box<Gauges>,
    /// How many there are of each.
    silent: BTreeMap<Silent, u64>,
    reassigned: u64,
    draws: Draws,
}

/// Of a class, a user and a server, or a user as a whole.
type Session = (ClassId, u32, Option<u32>);

/// What is known of a flow before it opens.
#[derive(Clone, Copy, Debug, Default)]
struct Opening {
    pair: Pair,
    class: ClassId,
    /// Of the server.
    port: u16,
    /// Of its address.
    prefix: Prefix,
    /// Its remote end.
    to: Option<SocketAddr>,
}

/// What the gateway knows of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Whose choice it was.
    pub class: ClassId,
    /// That its packets take.
    pub link: LinkId,
    /// Bits of `STATE_…`.
    pub state: u32,
    /// Links that failed it.
    pub tried: Tried,
}

impl Nat {
    pub(super) fn new(links: usize, routed: u64, seed: u64) -> Self {
        Nat {
            rules: Rules::none(),
            routed,
            choices: vec![Choice::default()],
            entries: Vec::new(),
            earlier: BTreeMap::new(),
            openings: Vec::new(),
            table: None,
            sessions: BTreeMap::new(),
            races: BTreeMap::new(),
            shares: BTreeMap::new(),
            told: Told::default(),
            opened: Vec::new(),
            traffic: vec![Traffic::default(); links],
            witnesses: (0..links).map(|_| Witnesses::default()).collect(),
            gauges: Box::default(),
            silent: BTreeMap::new(),
            reassigned: 0,
            draws: Draws::new(seed, STREAM),
        }
    }

    /// The label that a flow needs, of its addresses and ports as its opener sends them (`packet_hash` of bpf/lib/open.h).
    pub fn hash(&self, ends: Ends) -> u32 {
        let (from, to) = ends;
        let (src, dst) = (from.ip().into(), to.ip().into());
        self.choice(self.class_of(ends))
            .hash_for(src, dst, from.port(), to.port())
    }

    /// Says between whom a flow is, before it opens, and again where the rules have changed since. Without it, all flows are of
    /// one pair and the default class.
    pub fn introduce(&mut self, flow: FlowId, pair: Pair, ends: Ends) {
        let opening = Opening {
            pair,
            class: self.class_of(ends),
            port: ends.1.port(),
            prefix: Prefix::of(ends.1.ip()),
            to: Some(ends.1),
        };
        grow(&mut self.openings, flow.index(), Opening::default());
        self.openings[flow.index()] = opening;
    }

    /// What rules look at of a connection between these ends.
    fn class_of(&self, (from, to): Ends) -> ClassId {
        let traits = Traits {
            src: from.ip().into(),
            dst: to.ip().into(),
            sport: BePort::new(from.port()),
            dport: BePort::new(to.port()),
            proto: TCP,
            ifindex: LAN_DEVICE,
            ..Traits::default()
        };
        ClassId(self.rules.class_of(&traits) as u8)
    }

    fn opening(&self, flow: FlowId) -> Opening {
        self.openings.get(flow.index()).copied().unwrap_or_default()
    }

    /// One that was never installed takes no flows.
    fn choice(&self, class: ClassId) -> &Choice {
        self.choices.get(class.index()).unwrap_or(&self.choices[0])
    }

    pub(super) fn is_routed(&self, link: LinkId) -> bool {
        self.routed >> link.0 & 1 == 1
    }

    /// What tells connections at a server apart that take `link`.
    fn side_of(&self, link: LinkId) -> LinkId {
        if self.is_routed(link) { OWN } else { link }
    }

    /// The link that a flow is bound to.
    pub fn link_of(&self, net: &Net, flow: FlowId) -> Option<LinkId> {
        let (opener, _) = net.sides(flow);
        self.entry(opener).map(Entry::link)
    }

    pub(super) fn bound(&self, opener: SideId) -> Option<Bound> {
        self.entry(opener).map(|entry| Bound {
            class: entry.class,
            link: entry.link(),
            state: entry.state,
            tried: entry.tried,
        })
    }

    pub(super) fn paths(&self, prefix: Prefix) -> Option<&Paths> {
        self.told.paths(prefix)
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

    pub(super) fn install(&mut self, class: ClassId, choice: &Choice) {
        grow(&mut self.choices, class.index(), Choice::default());
        self.choices[class.index()] = *choice;
    }

    /// Routes that bind new flows, of classes of any choice.
    pub(super) fn set_table(&mut self, table: Option<Table>) {
        self.table = table;
    }

    /// The number of the user, and the prefix of the server.
    pub(super) fn between(&self, flow: FlowId) -> (u32, Prefix) {
        let Opening { pair, prefix, .. } = self.opening(flow);
        (pair.user, prefix)
    }

    /// Which class new flows are of.
    pub fn set_rules(&mut self, rules: Box<Rules>) {
        self.rules = rules;
    }

    pub(super) fn counters(&mut self, now: Time) -> Vec<LinkCounters> {
        while let Some(first) = self.silent.first_entry().filter(|e| e.key().runs_out < now) {
            let (silent, flows) = first.remove_entry();
            self.gauges.target[silent.link.index()].closed += flows;
            self.release(silent.class, silent.charged, flows as u32);
        }
        let all = self.traffic.iter().zip(&self.gauges.target);
        all.map(|(&traffic, &flows)| LinkCounters {
            traffic: PerFamily::only(FAMILY, traffic),
            flows,
        })
        .collect()
    }

    /// What a link has carried, for whoever sends packets over the gateway's links that are of none of its flows.
    pub(crate) fn traffic_mut(&mut self, link: LinkId) -> &mut Traffic {
        &mut self.traffic[link.index()]
    }

    /// Those that are open; a handshake under way moves with its next SYN. One without NAT is forgotten, and what its host sends
    /// next joins another link (`end_entry` of bpf/lib/sweep.h).
    pub(super) fn end_flows(&mut self, net: &mut Net, class: ClassId, link: LinkId) -> Ended {
        let mut ended = Ended::default();
        for place in 0..self.entries.len() {
            let entry = self.entries[place];
            let stays = !entry.is(STATE_CONFIRMED) && !entry.is(STATE_ROUTED);
            if stays || (entry.class, entry.link()) != (class, link) {
                continue;
            }
            if !entry.is(STATE_CLOSED) && entry.is(STATE_ROUTED) {
                ended.udp += 1;
            } else if !entry.is(STATE_CLOSED) {
                ended.tcp += 1;
                net.tell(Segment::bare(Kind::Rst), entry.peer, entry.opener);
            }
            self.close(place);
            self.entries[place] = NO_ENTRY;
        }
        let silent = self.end_silent(class, link);
        match self.is_routed(link) {
            true => ended.udp += silent,
            false => ended.tcp += silent,
        }
        ended
    }

    /// The same of those whose host went away: how many there were.
    fn end_silent(&mut self, class: ClassId, link: LinkId) -> u64 {
        let is_routed = self.is_routed(link);
        let ends = |it: &Silent| it.confirmed || is_routed;
        let (gone, stays): (BTreeMap<_, _>, _) = std::mem::take(&mut self.silent)
            .into_iter()
            .partition(|(it, _)| ends(it) && (it.class, it.link) == (class, link));
        self.silent = stays;
        for (silent, flows) in &gone {
            self.release(silent.class, silent.charged, *flows as u32);
        }
        let ended = gone.values().sum();
        self.gauges.target[link.index()].closed += ended;
        ended
    }

    // ---- packets

    fn entry(&self, opener: SideId) -> Option<&Entry> {
        self.entries
            .get(opener.index())
            .filter(|entry| entry.opener == opener)
    }

    /// Whether what is no SYN may begin a flow: its host has one that is not known here, as after the end of a link.
    pub(super) fn may_join(&self, opener: SideId) -> bool {
        self.routed != 0 && self.entry(opener).is_none()
    }

    /// A SYN of the LAN, or a packet that may join (`settle_tcp` of bpf/lib/outbound.h).
    pub(super) fn settle(&mut self, net: &Net, flow: FlowId, kind: Kind) -> Settled {
        match kind {
            Kind::Syn => self.settle_syn(net, flow),
            Kind::Rst if !self.is_per_packet(self.opening(flow).class) => Settled::Unknown,
            _ => self.open(net, flow, Tried::default(), !self.routed, false),
        }
    }

    /// A SYN of the LAN (`settle_syn` of bpf/lib/outbound.h).
    fn settle_syn(&mut self, net: &Net, flow: FlowId) -> Settled {
        let (opener, _) = net.sides(flow);
        let Some(entry) = self.entry(opener).copied() else {
            return self.open(net, flow, Tried::default(), 0, true);
        };
        let is_of_other = self.opening(flow).class != entry.class;
        let choice = &self.choices[entry.class.index()];
        match choice.judge_syn(entry.state, !entry.joined, &entry.attempt) {
            Syn::Again | Syn::GoesOn if is_of_other => {
                self.begin_anew(net, flow, entry, Tried::default())
            }
            Syn::Follows => Settled::Bound,
            Syn::Again => {
                self.repeat(net.now(), flow, &entry);
                match entry.attempt.is_race() && self.take_race(net.now(), entry.class) {
                    true => Settled::Again,
                    false => Settled::Bound,
                }
            }
            Syn::GoesOn => {
                self.repeat(net.now(), flow, &entry);
                self.leave(net, flow, entry)
            }
            Syn::Anew => {
                self.close(opener.index());
                self.entries[opener.index()] = NO_ENTRY;
                self.open(net, flow, Tried::default(), 0, !entry.attempt.waits())
            }
        }
    }

    /// A SYN that nothing has answered is repeated (`count_syn_retry` of bpf/lib/outbound.h).
    fn repeat(&mut self, now: Time, flow: FlowId, entry: &Entry) {
        let Pair { user, server } = self.opening(flow).pair;
        let link = entry.link().index();
        let news = self.witnesses[link].repeat(user, server, now.as_nanos());
        let traffic = &mut self.traffic[link];
        traffic.syn_retries += 1;
        traffic.retrying_hosts += u64::from(news.host);
        traffic.retried_ends += u64::from(news.end);
        let others = entry.attempt.others().map(LinkId);
        let rivals = others.filter(|_| entry.attempt.is_race());
        for link in rivals.chain([entry.link()]) {
            let one = self.one_try(entry, link);
            let choice = &self.choices[entry.class.index()];
            self.told.repeat(now, choice, one);
        }
    }

    fn one_try(&self, entry: &Entry, link: LinkId) -> Try {
        Try {
            place: entry.opener.index(),
            side: self.side_of(link),
            link,
            prefix: entry.prefix,
            user: entry.user,
        }
    }

    /// An attempt that nothing answered is forgotten for one outside the links `tried`: by the rules of today it is of another
    /// class (`judge_syn` of bpf/lib/outbound.h), or it goes on where its address is another.
    fn begin_anew(&mut self, net: &Net, flow: FlowId, entry: Entry, tried: Tried) -> Settled {
        let place = entry.opener.index();
        let mut tries = self.earlier.remove(&place).unwrap_or_default();
        tries.push((self.side_of(entry.link()), entry.peer));
        self.close(place);
        self.entries[place] = NO_ENTRY;
        let known = |side: LinkId| {
            let one = tries.iter().find(|(tried, _)| *tried == side);
            one.map(|(_, peer)| *peer)
        };
        match self.open(net, flow, tried, 0, true) {
            Settled::Fresh(begun) => {
                let side = self.side_of(begun.link);
                if let Some(own) = known(OWN).filter(|_| side != OWN) {
                    self.earlier.insert(place, vec![(OWN, own)]);
                }
                Settled::Anew(begun, known(side))
            }
            Settled::Alone(link) => Settled::AloneAnew(link, known(OWN)),
            settled => settled,
        }
    }

    fn is_per_packet(&self, class: ClassId) -> bool {
        self.choice(class).granularity == u32::from(Granularity::Packet)
    }

    /// A packet of a class that keeps no flows (`route_by_itself` of bpf/lib/route.h).
    fn send_alone(&mut self, net: &Net, flow: FlowId, class: ClassId) -> Settled {
        if self.routed == 0 {
            return self.without_link(class);
        }
        let chosen = self.choose(net, flow, class, Tried::default(), !self.routed, false);
        match chosen.filter(|chosen| self.is_routed(chosen.link)) {
            Some(Chosen { link, .. }) => Settled::Alone(link),
            None => self.without_link(class),
        }
    }

    /// What goes over a link by itself.
    pub(super) fn count_alone(&mut self, link: LinkId, bytes: u32) {
        self.gauges.target[link.index()].dispatched += 1;
        self.count_tx(link, bytes);
    }

    pub(super) fn count_tx(&mut self, link: LinkId, bytes: u32) {
        let traffic = &mut self.traffic[link.index()];
        traffic.tx_packets += 1;
        traffic.tx_bytes += u64::from(bytes);
    }

    /// A new flow outside the links `tried`, and outside those of `barred` whatever else is left, which may race or not.
    fn open(
        &mut self,
        net: &Net,
        flow: FlowId,
        tried: Tried,
        barred: u64,
        may_race: bool,
    ) -> Settled {
        let Opening { class, pair, .. } = self.opening(flow);
        if self.is_per_packet(class) {
            return self.send_alone(net, flow, class);
        }
        let quota = self.choice(class).flows_per_host;
        let held = self.shares.get(&(class, pair.user)).copied();
        if quota > 0 && held.unwrap_or_default() >= quota {
            return Settled::NoLink;
        }
        let may_race = may_race && self.routed == 0;
        let Some(chosen) = self.choose(net, flow, class, tried, barred, may_race) else {
            return self.without_link(class);
        };
        let Chosen {
            link,
            rivals,
            waits,
            ..
        } = chosen;
        if barred >> link.0 & 1 == 1 {
            return Settled::Unknown;
        }
        self.note_asked(net, flow, chosen);
        self.note_opening(flow, class);
        self.remember(net, flow, class, link);
        Settled::Fresh(Begun {
            class,
            link,
            rivals,
            waits,
            tried,
            joins: barred != 0,
        })
    }

    /// What becomes of a flow for which its class has no link (`reason_without_link` of bpf/lib/open.h).
    fn without_link(&self, class: ClassId) -> Settled {
        match Without::try_from(self.choice(class).without) {
            Ok(Without::Drop) => Settled::Dropped,
            _ => Settled::NoLink,
        }
    }

    /// The attempt goes on elsewhere, if there is a link for it (`go_on` of bpf/lib/outbound.h).
    fn leave(&mut self, net: &Net, flow: FlowId, entry: Entry) -> Settled {
        let link = entry.link();
        let tried = self.choice(entry.class).tried_with(entry.tried, link.0);
        let mark = self.draws.mark();
        let Some(chosen) = self.choose(net, flow, entry.class, tried, 0, false) else {
            return self.without_link(entry.class);
        };
        let next = chosen.link;
        if self.is_routed(link) != self.is_routed(next) {
            self.draws.repeat(mark);
            return self.begin_anew(net, flow, entry, tried);
        }
        self.note_asked(net, flow, chosen);
        let place = &mut self.entries[entry.opener.index()];
        (place.tried, place.probed) = (tried, false);
        match next == link {
            true => Settled::Bound,
            false if self.is_routed(link) => self.move_over(entry, next),
            false => Settled::Onward(next),
        }
    }

    /// To the server, nothing happens.
    fn move_over(&mut self, entry: Entry, next: LinkId) -> Settled {
        self.entries[entry.opener.index()].attempt = Attempt::new(next.0);
        self.gauges.target[next.index()].dispatched += 1;
        self.count_move(entry.link(), next);
        self.reassigned += 1;
        Settled::Bound
    }

    /// Whether a class has a race left, which is then gone (`bpf/policy/race.h`).
    fn take_race(&mut self, now: Time, class: ClassId) -> bool {
        let full_ns = self.races.get(&class).copied().unwrap_or_default();
        let next = self.choice(class).spend_race(full_ns, now.as_nanos());
        next.map(|next| self.races.insert(class, next)).is_some()
    }

    /// No other flow asks what this one is to tell (`note_asked` of bpf/lib/paths.h).
    fn note_asked(&mut self, net: &Net, flow: FlowId, chosen: Chosen) {
        let prefix = self.opening(flow).prefix;
        self.told.ask(net.now(), prefix, chosen.asked);
    }

    /// Who surveys hears of it (`report_opening` of bpf/lib/survey.h).
    fn note_opening(&mut self, flow: FlowId, class: ClassId) {
        if let Some(to) = self
            .opening(flow)
            .to
            .filter(|_| self.choice(class).surveys != 0)
        {
            self.opened.push(Opened { class, to });
        }
    }

    pub(super) fn openings(&mut self) -> Vec<Opened> {
        std::mem::take(&mut self.opened)
    }

    /// The answer to a question that was asked of a destination of a class (`hear_survey` of bpf/lib/survey.h).
    pub(super) fn hear_survey(&mut self, now: Time, question: &Question, asked: Time) {
        let choice = &self.choices[question.class.index()];
        let sent = syn_sent(asked.as_nanos());
        let of = (Prefix::of(question.to.ip()), question.link);
        self.told.learn_of(now, choice, sent, of);
    }

    /// The link of a new flow (`choose_link` of bpf/lib/open.h), which may race or not. Those of `avoided` it takes if no other
    /// is left.
    fn choose(
        &mut self,
        net: &Net,
        flow: FlowId,
        class: ClassId,
        tried: Tried,
        avoided: u64,
        may_race: bool,
    ) -> Option<Chosen> {
        let choice = self.choices.get(class.index()).unwrap_or(&self.choices[0]);
        let known = |session| {
            let word = *self.sessions.get(&session)?;
            choice.session_link(word, NO_HASH, net.now().as_nanos())
        };
        let session = self.session(flow, class).and_then(known);
        let (user, prefix) = self.between(flow);
        let route = self.table.as_ref().map(|table| table.link(user, prefix).0);
        let mut request = Request {
            tried,
            full: avoided,
            route,
            hash: net.label(flow),
            session,
            known: self
                .told
                .know(net.now(), choice, (user, prefix), avoided == 0),
            ..Request::default()
        };
        if may_race && choice.may_race(&request, 0) {
            request.race = self.take_race(net.now(), class);
        }
        let choice = self.choices.get(class.index()).unwrap_or(&self.choices[0]);
        request.draw = self.draws.next(class, choice, request.race);
        let (decision, rivals, asked) = choose_and_race(choice, &self.gauges, &NO_TABLE, &request);
        Some(Chosen {
            link: LinkId(decision.target?),
            rivals,
            waits: decision.why == Why::Probed,
            asked: if request.known.tells() { asked } else { 0 },
        })
    }

    /// What binds the flows of a pair, or of a user, to one link.
    fn session(&self, flow: FlowId, class: ClassId) -> Option<Session> {
        let Opening { pair, port, .. } = self.opening(flow);
        match self.choice(class).reach(port) {
            Granularity::Connection | Granularity::Packet => None,
            Granularity::Session => Some((class, pair.user, Some(pair.server))),
            Granularity::Host => Some((class, pair.user, None)),
        }
    }

    fn remember(&mut self, net: &Net, flow: FlowId, class: ClassId, link: LinkId) {
        if let Some(session) = self.session(flow, class) {
            let word = session_word(NO_HASH, link.0, net.now().as_nanos());
            self.sessions.insert(session, word);
        }
    }

    /// So many flows less of a user in a class with a quota.
    fn release(&mut self, class: ClassId, charged: Option<u32>, flows: u32) {
        let share = charged.and_then(|user| self.shares.get_mut(&(class, user)));
        if let Some(share) = share {
            *share -= flows;
        }
    }

    pub(super) fn bind(&mut self, net: &Net, flow: FlowId, begun: Begun) {
        let Begun { class, link, .. } = begun;
        let (opener, peer) = net.sides(flow);
        let has_quota = self.choice(class).flows_per_host > 0;
        let charged = has_quota.then(|| self.opening(flow).pair.user);
        if let Some(user) = charged {
            *self.shares.entry((class, user)).or_default() += 1;
        }
        grow(&mut self.entries, opener.index(), NO_ENTRY);
        let entry = Entry {
            opener,
            peer,
            attempt: match begun.rivals {
                0 => Attempt::new(link.0),
                rivals if begun.waits => Attempt::probe(link.0, rivals),
                rivals => Attempt::race(link.0, rivals),
            },
            state: if self.is_routed(link) {
                STATE_ROUTED
            } else {
                0
            },
            class,
            prefix: self.opening(flow).prefix,
            user: self.opening(flow).pair.user,
            charged,
            tried: begun.tried,
            joined: begun.joins,
            probed: begun.waits,
            seen: net.now(),
            ..NO_ENTRY
        };
        self.entries[opener.index()] = entry;
        self.send_syns(net.now(), &entry);
        let gauge = &mut self.gauges.target[link.index()];
        gauge.dispatched += 1;
        gauge.opened += 1;
    }

    /// The SYN of a flow that was bound takes its link, or all those of its race.
    fn send_syns(&mut self, now: Time, entry: &Entry) {
        self.told.forget(entry.opener.index());
        let links = entry.attempt.others().map(LinkId);
        let tells = !entry.joined && !entry.probed;
        for link in links.chain([entry.link()]).filter(|_| tells) {
            let one = self.one_try(entry, link);
            let choice = &self.choices[entry.class.index()];
            self.told.send(now, choice, one);
        }
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
        let is_open = entry.tried != Tried::default() || entry.attempt.is_race() || entry.probed;
        let moved = confirms && is_open;
        // What has ended stays among the embryos.
        entry.note(STATE_CONFIRMED, confirms && !entry.is(STATE_CLOSED));
        entry.note(STATE_FIN_LOCAL, kind == Kind::Fin);
        let (link, peer) = (entry.link(), entry.peer);
        let is_of_flow = entry.state & (STATE_REPLIED | STATE_ROUTED) != 0;
        let resets = kind == Kind::Rst && (is_of_flow || !is_earlier(segment.number));
        let over = entry.is(STATE_FIN_LOCAL | STATE_FIN_REMOTE) || resets;
        let class = entry.class;
        if let Some(flow) = net.flow_of(opener).filter(|_| moved) {
            self.remember(net, flow, class, link);
        }
        self.count_tx(link, bytes);
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
            _ if entry.attempt.waits() => return Heard::Early,
            Kind::Rst => {}
            Kind::SynAck if is_own && !entry.is_refused() => {}
            Kind::SynAck => return Heard::Stray,
            _ if is_own && entry.has_heard(segment) => {}
            Kind::Ack if is_own && entry.is_challenged(segment) => return Heard::Challenge,
            _ => return Heard::Early,
        }
        self.entries[place].note(STATE_REPLIED, segment.kind == Kind::SynAck);
        self.hear(now, link, packet, is_own);
        Heard::InFlow
    }

    /// The same from a link without NAT, which judges nothing (`follow_routed_in` of bpf/lib/inbound.h). Whatever its flow hears
    /// answers it.
    pub(super) fn follow_routed_in(&mut self, now: Time, link: LinkId, packet: &Packet) {
        let Some(entry) = self
            .entry(packet.to)
            .copied()
            .filter(|e| e.is(STATE_ROUTED))
        else {
            return;
        };
        if packet.segment.kind == Kind::SynAck && !entry.is(STATE_REPLIED) {
            let one = self.one_try(&entry, entry.link());
            let choice = &self.choices[entry.class.index()];
            self.told.answer(now, choice, one);
        }
        let is_own = entry.link() == link;
        let replies = packet.segment.kind != Kind::Rst;
        self.entries[packet.to.index()].note(STATE_REPLIED, replies);
        self.hear(now, link, packet, is_own);
    }

    /// A flow hears a packet from a link, its own or not.
    fn hear(&mut self, now: Time, link: LinkId, packet: &Packet, is_own: bool) {
        let (place, segment) = (packet.to.index(), &packet.segment);
        let entry = &mut self.entries[place];
        entry.seen = now;
        entry.note(STATE_FIN_REMOTE, segment.kind == Kind::Fin);
        let over = entry.is(STATE_FIN_LOCAL | STATE_FIN_REMOTE) || segment.kind == Kind::Rst;
        let traffic = &mut self.traffic[link.index()];
        traffic.rx_packets += 1;
        traffic.rx_bytes += u64::from(packet.bytes);
        let is_routed = entry.is(STATE_ROUTED);
        let acked = if is_own || is_routed {
            &mut entry.acked
        } else {
            &mut 0
        };
        if segment.ack > *acked && !is_earlier(segment.ack) {
            *acked = segment.ack;
            // What another link without NAT brings says nothing of the one that the flow's packets take.
            traffic.rx_progress += u64::from(is_own || !is_routed);
        }
        if over {
            self.close(place);
        }
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
                class: entry.class,
                charged: entry.charged,
            };
            *self.silent.entry(silent).or_default() += 1;
        }
        self.entries[opener.index()] = NO_ENTRY;
        self.earlier.remove(&opener.index());
        self.told.forget(opener.index());
    }

    fn close(&mut self, place: usize) {
        let entry = &mut self.entries[place];
        if !entry.is(STATE_CLOSED) {
            entry.state |= STATE_CLOSED;
            let Entry { class, charged, .. } = *entry;
            self.gauges.target[entry.link().index()].closed += 1;
            self.release(class, charged, 1);
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
