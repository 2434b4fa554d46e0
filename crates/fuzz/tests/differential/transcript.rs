//! What happens to a gateway, as it is drawn.

use anabranch_policy::abi::{BePort, SPARE_MAX, Set, Target};
use anabranch_policy::{Choice, Dispatch, Granularity, Load, SCHEMES, Without};
use anabranch_sim::tcp::Kind;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Two more than an attempt has tries: it can give one up, and come back to it.
pub const LINKS: u16 = 6;
/// Flows at a time.
pub const SLOTS: usize = 5;
/// Of the destination of every flow.
pub const PORT: u16 = 80;
/// The default class, and two that rules name.
pub const CLASSES: u8 = 3;
/// Of LAN hosts, and of servers, of one family. A host is of one family: both worlds count flows by hosts.
pub const HOSTS: u8 = 3;
pub const SERVERS: u8 = 2;

/// Who is of a class: flows of one host, to one server, or of all where none is said.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub host: Option<u8>,
    pub server: Option<u8>,
    pub class: u8,
}

/// The choice of a class as it is from here on.
#[derive(Clone, Debug)]
pub struct Policy {
    dispatch: Dispatch,
    load: Load,
    granularity: Granularity,
    stick: bool,
    syn_retry: bool,
    usable: u64,
    spare: [u64; SPARE_MAX],
    without: Without,
    flows_per_host: u32,
    session_s: u64,
    weights: [u32; LINKS as usize],
    races: u32,
    holds: bool,
    lifetime_s: u64,
    surveys: bool,
    by_loss: bool,
    /// Loads are counted from here on.
    pub rebase: bool,
}

impl Policy {
    /// SYNs race over these links, as bits.
    pub fn racing(usable: u64) -> Self {
        Policy {
            usable,
            syn_retry: false,
            races: 1000,
            ..Self::turns()
        }
    }

    /// Answers are remembered for some seconds.
    pub fn learning(self) -> Self {
        Policy {
            lifetime_s: 2,
            ..self
        }
    }

    /// All links in turn, and a repeated SYN goes on.
    pub fn turns() -> Self {
        Policy {
            dispatch: Dispatch::Turns,
            load: Load::Dispatched,
            granularity: Granularity::Connection,
            stick: false,
            syn_retry: true,
            usable: (1 << LINKS) - 1,
            spare: [0; SPARE_MAX],
            without: Without::Refuse,
            flows_per_host: 0,
            session_s: 0,
            weights: [1; LINKS as usize],
            races: 0,
            holds: false,
            lifetime_s: 0,
            surveys: false,
            by_loss: false,
            rebase: false,
        }
    }

    /// With loads counted from `dispatched` of each link.
    pub fn choice(&self, dispatched: impl Iterator<Item = u64>) -> Choice {
        let mut choice = Choice {
            dispatch: self.dispatch.into(),
            load: self.load.into(),
            count: LINKS.into(),
            syn_retry: self.syn_retry.into(),
            granularity: self.granularity.into(),
            stick: self.stick.into(),
            usable: Set::of_word(self.usable),
            spares: SPARE_MAX as u32,
            spare: self.spare.map(Set::of_word),
            without: self.without.into(),
            flows_per_host: self.flows_per_host,
            races: self.races,
            holds: self.holds.into(),
            // As 50 kB are to 10 Mbit/s.
            flow_us: 40_000,
            rounds: 4,
            session_ns: self.session_s * 1_000_000_000,
            lifetime_ns: self.lifetime_s * 1_000_000_000,
            surveys: self.surveys.into(),
            by_loss: self.by_loss.into(),
            working: Set::of_word(self.usable),
            ..Choice::default()
        };
        choice.except[0] = BePort::new(443);
        let targets = choice.target.iter_mut().zip(self.weights);
        for ((target, weight), dispatched) in targets.zip(dispatched) {
            *target = Target::new(weight, dispatched as u32);
        }
        choice
    }
}

/// Over which of its links a server's segment comes. To what it knows by a host's own address any link without NAT may bring it.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// The flow's own.
    Own,
    /// That of the n-th of those over which it was ever spoken to.
    Sent(usize),
}

#[derive(Clone, Debug)]
pub enum Step {
    /// A LAN host sends a segment of the flow in a slot.
    Lan(usize, Kind),
    /// A server answers it. `news`: it acknowledges all that it was sent, and not the SYN alone.
    Server {
        slot: usize,
        way: Way,
        kind: Kind,
        news: bool,
    },
    /// A server that has an earlier connection of the ends of a flow answers for that, and the LAN host resets it.
    Challenge(usize, Way),
    /// A server answers a probe that the flow's SYN waits for: the n-th, or one that was never sent.
    Probe(usize, Option<usize>),
    /// A handshake over the flow's link.
    Connect(usize),
    /// So many SYNs.
    Repeat(usize, u32),
    /// The LAN host forgets the flow; the slot is another's.
    Leave(usize),
    Pass {
        ms: u64,
    },
    /// Of a class.
    Install(u8, Policy),
    Write(Vec<Rule>),
    /// The flows that a class has on a link end.
    End(u8, u16),
}

/// What a gateway is told first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Site {
    /// The links that have no NAT, as bits.
    pub routed: u64,
    /// The slots whose flows are of IPv6.
    pub ipv6: u32,
}

/// Of a gateway that begins with a choice, and the seed of its random numbers.
pub fn transcript() -> impl Strategy<Value = (u64, Site, Policy, Vec<Step>)> {
    let routed = prop_oneof![
        3 => Just(0),
        3 => 1..1u64 << LINKS,
        1 => Just((1u64 << LINKS) - 1),
    ];
    let all = (1u32 << SLOTS) - 1;
    let ipv6 = prop_oneof![1 => Just(0), 1 => Just(all), 1 => 0..=all];
    let site = (routed, ipv6).prop_map(|(routed, ipv6)| Site { routed, ipv6 });
    (any::<u64>(), site, policy(), vec(step(), 1..80))
}

fn step() -> impl Strategy<Value = Step> {
    let slot = 0..SLOTS;
    let lan = prop_oneof![
        8 => Just(Kind::Syn),
        3 => Just(Kind::Ack),
        3 => Just(Kind::Data),
        2 => Just(Kind::Fin),
        1 => Just(Kind::Rst),
    ];
    let server = prop_oneof![
        6 => Just(Kind::SynAck),
        2 => Just(Kind::Ack),
        3 => Just(Kind::Data),
        2 => Just(Kind::Fin),
        1 => Just(Kind::Rst),
    ];
    let way = prop_oneof![3 => Just(Way::Own), 2 => (0..8usize).prop_map(Way::Sent)];
    let challenge = (slot.clone(), way.clone());
    let probe = (slot.clone(), prop::option::weighted(0.9, 0..8usize));
    let server = (slot.clone(), way, server, any::<bool>());
    prop_oneof![
        20 => (slot.clone(), lan).prop_map(|(slot, kind)| Step::Lan(slot, kind)),
        20 => server.prop_map(|(slot, way, kind, news)| Step::Server { slot, way, kind, news }),
        3 => challenge.prop_map(|(slot, way)| Step::Challenge(slot, way)),
        6 => probe.prop_map(|(slot, nth)| Step::Probe(slot, nth)),
        6 => slot.clone().prop_map(Step::Connect),
        2 => (slot.clone(), 2..12u32).prop_map(|(slot, times)| Step::Repeat(slot, times)),
        2 => slot.prop_map(Step::Leave),
        3 => time().prop_map(|ms| Step::Pass { ms }),
        4 => (0..CLASSES, policy()).prop_map(|(class, policy)| Step::Install(class, policy)),
        2 => vec(rule(), 0..4).prop_map(Step::Write),
        2 => (0..CLASSES, 0..LINKS).prop_map(|(class, link)| Step::End(class, link)),
    ]
}

fn rule() -> impl Strategy<Value = Rule> {
    let some = |count: u8| prop_oneof![1 => Just(None), 2 => (0..count).prop_map(Some)];
    (some(HOSTS), some(SERVERS), 0..CLASSES).prop_map(|(host, server, class)| Rule {
        host,
        server,
        class,
    })
}

/// A tick or two, a SYN's timer, the timer of a handshake or nearly, that of a connection.
fn time() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 0..3_000u64,
        3 => 3_000..120_000u64,
        2 => 239_000..242_000u64,
        1 => 7_000_000..7_500_000u64,
    ]
}

/// The simulator's gateway knows no routes by one link, no excepted ports and no table of shares.
fn policy() -> impl Strategy<Value = Policy> {
    let dispatch = prop_oneof![4 => select(&SCHEMES[..]), 1 => Just(Dispatch::Soonest)];
    let granularity = prop_oneof![
        2 => Just(Granularity::Connection),
        1 => Just(Granularity::Session),
        1 => Just(Granularity::Host),
        1 => Just(Granularity::Packet),
    ];
    let usable = prop_oneof![2 => Just((1u64 << LINKS) - 1), 1 => Just(0), 3 => 0..1u64 << LINKS];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let load = select(&[Load::Dispatched, Load::Active][..]);
    let weights = prop::array::uniform6(1..5u32);
    let spare = prop_oneof![2 => Just(0u64), 1 => 0..1u64 << LINKS];
    let without = select(&[Without::Refuse, Without::Drop][..]);
    let flows_per_host = prop_oneof![3 => Just(0u32), 1 => 1..3u32];
    let session_s = select(&[0, 60, 600][..]);
    let races = prop_oneof![2 => Just(0u32), 1 => 1..3u32, 1 => Just(1000)];
    let races = (races, any::<bool>());
    let lifetime_s = select(&[0, 0, 2, 60][..]);
    let lifetime_s = (lifetime_s, prop::bool::weighted(0.3), any::<bool>());
    let class = (
        prop::array::uniform3(spare),
        without,
        flows_per_host,
        session_s,
        races,
        lifetime_s,
    );
    (dispatch, load, granularity, usable, weights, flags, class).prop_map(
        |(
            dispatch,
            load,
            granularity,
            usable,
            weights,
            (stick, syn_retry, rebase),
            (
                spare,
                without,
                flows_per_host,
                session_s,
                (races, holds),
                (lifetime_s, surveys, by_loss),
            ),
        )| Policy {
            dispatch,
            load,
            granularity,
            stick,
            syn_retry,
            usable,
            spare,
            without,
            flows_per_host,
            session_s,
            weights,
            races,
            holds,
            lifetime_s,
            surveys,
            by_loss,
            rebase,
        },
    )
}
