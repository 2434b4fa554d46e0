//! The flow table of the gateway.

mod attempt;
mod follow;
mod opening;
mod orders;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anabranch_core::{ClassId, LinkId, Opening as Opened, Time};
use anabranch_peers::Table;
use anabranch_policy::abi::{BePort, Choice, SIDE_ROUTED, STATE_CLOSED, Settings, Traffic, Traits};
use anabranch_policy::paths::{Paths, Prefix};
use anabranch_policy::tries::Attempt;
use anabranch_policy::witness::Witnesses;
use anabranch_policy::{Gauges, Rules, Tried};

use super::told::{Told, Try};
use crate::draws::Draws;
use crate::net::{FlowId, Net, SideId};

/// The stream of the gateway's random numbers; those of links are their numbers.
const STREAM: u64 = 1 << 40;
/// `nat.tcp_unanswered` of the gateway's configuration.
const UNANSWERED_NS: u64 = 240_000_000_000;
/// `nat.tcp_established`.
const ESTABLISHED_NS: u64 = 7_440_000_000_000;

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

/// A flow that is to be bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begun {
    class: ClassId,
    pub link: LinkId,
    /// That its SYN takes as well, as bits.
    race_copies: u32,
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
    ends_with_link: bool,
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
    /// How long flows may be idle.
    settings: Box<Settings>,
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
            settings: Box::new(Settings {
                unconfirmed_ns: UNANSWERED_NS,
                tcp_established_ns: ESTABLISHED_NS,
                ..Settings::default()
            }),
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

    /// The label that a flow needs, of its addresses and ports as its opener sends them (`packet_hash` of bpf/lib/gateway/open.h).
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

    /// The number of the user, and the prefix of the server.
    pub(super) fn between(&self, flow: FlowId) -> (u32, Prefix) {
        let Opening { pair, prefix, .. } = self.opening(flow);
        (pair.user, prefix)
    }

    /// What a link has carried, for whoever sends packets over the gateway's links that are of none of its flows.
    pub(crate) fn traffic_mut(&mut self, link: LinkId) -> &mut Traffic {
        &mut self.traffic[link.index()]
    }

    fn entry(&self, opener: SideId) -> Option<&Entry> {
        self.entries
            .get(opener.index())
            .filter(|entry| entry.opener == opener)
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

    pub(super) fn count_tx(&mut self, link: LinkId, bytes: u32) {
        let traffic = &mut self.traffic[link.index()];
        traffic.tx_packets += 1;
        traffic.tx_bytes += u64::from(bytes);
    }

    /// So many flows less of a user in a class with a quota.
    fn release(&mut self, class: ClassId, charged: Option<u32>, flows: u32) {
        let share = charged.and_then(|user| self.shares.get_mut(&(class, user)));
        if let Some(share) = share {
            *share -= flows;
        }
    }

    fn count_move(&mut self, from: LinkId, to: LinkId) {
        self.gauges.target[from.index()].closed += 1;
        self.gauges.target[to.index()].opened += 1;
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
