//! What happens to a service, as it is drawn.

use anabranch_core::Family;
use anabranch_policy::abi::{NO_TARGET, Set, Target, Ties, Unknown};
use anabranch_policy::splitmix::SplitMix64;
use anabranch_policy::{Choice, Dispatch, Granularity, Load, Without, abi::Consistent};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Of each family.
pub const SERVERS: u16 = 3;
/// Endpoints of clients, each with the virtual endpoint that it calls.
pub const SLOTS: usize = 12;

const DISPATCHES: [Dispatch; 11] = [
    Dispatch::Weighted,
    Dispatch::Best,
    Dispatch::Random,
    Dispatch::Hash,
    Dispatch::HashSum,
    Dispatch::Table,
    Dispatch::RandomTwo,
    Dispatch::Turns,
    Dispatch::Rounds,
    Dispatch::Lots,
    Dispatch::Cold,
];

/// The place of a server of a family.
pub fn place(family: Family, number: u16) -> u16 {
    family.index() as u16 * SERVERS + number
}

/// How servers of a family are chosen from here on.
#[derive(Clone, Debug)]
pub struct Policy {
    dispatch: Dispatch,
    load: Load,
    ties: Ties,
    granularity: Granularity,
    /// Bits of servers.
    usable: u64,
    spare: u64,
    without: Without,
    weights: [u32; SERVERS as usize],
    bound: u32,
    hot: u32,
    /// A window begins: loads are counted from here on.
    rebase: bool,
    table: u64,
}

impl Policy {
    /// The choice among the servers of a family, which have been given so many connections.
    pub fn choice(&self, family: Family, dispatched: impl Fn(u16) -> u64) -> Choice {
        let first = place(family, 0);
        let mut choice = Choice {
            dispatch: self.dispatch.into(),
            load: self.load.into(),
            ties: self.ties.into(),
            count: (2 * SERVERS).into(),
            granularity: self.granularity.into(),
            usable: Set::of_word(self.usable << first),
            spares: 1,
            without: self.without.into(),
            bound: self.bound,
            weights: self.weights.iter().sum(),
            hot: self.hot,
            ..Choice::default()
        };
        choice.spare[0] = Set::of_word((self.spare & !self.usable) << first);
        for (number, weight) in (0..).zip(self.weights) {
            let place = place(family, number);
            let base = dispatched(place) as u32 * u32::from(self.rebase);
            choice.target[usize::from(place)] = Target::new(weight, base);
        }
        choice
    }

    /// With as many slots as a policy of slots may have.
    pub fn table(&self, family: Family) -> Box<Consistent> {
        let mut table = rows(self.table, family);
        table.slots = (1 + self.table % 9) as u16;
        table
    }
}

/// Servers of a family in any order, and now and then none.
pub fn rows(seed: u64, family: Family) -> Box<Consistent> {
    let mut random = SplitMix64(seed);
    let mut rows = Box::<Consistent>::default();
    for target in &mut rows.target {
        let drawn = (random.draw() % 16) as u16;
        *target = match drawn {
            15 => NO_TARGET,
            _ => place(family, drawn % SERVERS),
        };
    }
    rows
}

/// What a segment or datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Syn,
    SynAck,
    Ack,
    Data,
    Fin,
    Rst,
}

/// A server as it is from here on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Site {
    pub limit: u32,
    pub is_dead: bool,
    pub is_lost: bool,
    pub is_direct: bool,
}

#[derive(Clone, Debug)]
pub enum Step {
    /// A client sends. `is_far`: with a number that its server does not expect.
    Client {
        slot: usize,
        kind: Kind,
        is_far: bool,
    },
    /// Its server does, or any.
    Server {
        slot: usize,
        number: Option<u16>,
        kind: Kind,
        news: bool,
    },
    /// A handshake.
    Connect(usize),
    Pass {
        ms: u64,
    },
    Install(Family, Policy),
    Place(Family, u16, Site),
    /// What becomes of packets without an entry, and how many connections a second get one.
    Treat(Unknown, u32),
    /// Where hashes of a family lead, and led until so many seconds from now.
    Hash(Family, Option<(u64, u64, u64)>),
    Sweep,
}

/// Of a service that begins with a policy for each family, and the seed of its random numbers.
pub fn transcript() -> impl Strategy<Value = (u64, [Policy; 2], Vec<Step>)> {
    (any::<u64>(), [policy(), policy()], vec(step(), 1..60))
}

fn step() -> impl Strategy<Value = Step> {
    let slot = 0..SLOTS;
    let client = prop_oneof![
        8 => Just(Kind::Syn),
        3 => Just(Kind::Ack),
        3 => Just(Kind::Data),
        2 => Just(Kind::Fin),
        2 => Just(Kind::Rst),
    ];
    let server = prop_oneof![
        5 => Just(Kind::SynAck),
        1 => Just(Kind::Ack),
        3 => Just(Kind::Data),
        2 => Just(Kind::Fin),
        1 => Just(Kind::Rst),
    ];
    let number = prop_oneof![4 => Just(None), 1 => (0..SERVERS).prop_map(Some)];
    let client = (slot.clone(), client, prop::bool::weighted(0.1));
    let server = (slot.clone(), number, server, prop::bool::weighted(0.8));
    let unknown = select(&[Unknown::Host, Unknown::Drop, Unknown::Hash, Unknown::Peer][..]);
    let hash = (any::<u64>(), any::<u64>(), select(&[0u64, 5, 600][..]));
    prop_oneof![
        20 => client.prop_map(|(slot, kind, is_far)| Step::Client { slot, kind, is_far }),
        14 => server.prop_map(|(slot, number, kind, news)| Step::Server { slot, number, kind, news }),
        8 => slot.prop_map(Step::Connect),
        3 => time().prop_map(|ms| Step::Pass { ms }),
        3 => (family(), policy()).prop_map(|(family, policy)| Step::Install(family, policy)),
        4 => (family(), 0..SERVERS, site()).prop_map(|(family, number, site)| Step::Place(family, number, site)),
        4 => (unknown, 0..3u32).prop_map(|(unknown, limit)| Step::Treat(unknown, limit)),
        3 => (family(), prop::option::weighted(0.8, hash)).prop_map(|(family, hash)| Step::Hash(family, hash)),
        2 => Just(Step::Sweep),
    ]
}

fn family() -> impl Strategy<Value = Family> {
    select(&Family::ALL[..])
}

/// A tick or two, or a timer nearly or in full.
fn time() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 0..3_000u64,
        2 => 29_000..31_000u64,
        2 => 59_000..61_000u64,
        1 => 179_000..181_000u64,
        1 => 7_430_000..7_450_000u64,
    ]
}

fn site() -> impl Strategy<Value = Site> {
    let limit = prop_oneof![1 => Just(0u32), 3 => 1..4u32];
    let rare = || prop::bool::weighted(0.15);
    (limit, rare(), rare(), rare()).prop_map(|(limit, is_dead, is_lost, is_direct)| Site {
        limit,
        is_dead,
        is_lost,
        is_direct,
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    let all = (1u64 << SERVERS) - 1;
    let usable = prop_oneof![3 => Just(all), 1 => Just(0), 3 => 0..=all];
    let by = (
        select(&DISPATCHES[..]),
        select(&[Load::Dispatched, Load::Active][..]),
        select(&[Ties::ByLoad, Ties::First, Ties::Random][..]),
        select(&[Granularity::Connection, Granularity::Host][..]),
    );
    let among = (
        usable,
        prop_oneof![2 => Just(0), 1 => 0..=all],
        select(&[Without::Refuse, Without::Drop, Without::Kernel][..]),
    );
    let numbers = (
        prop::array::uniform3(1..5u32),
        prop_oneof![2 => Just(0u32), 1 => 1024..3000u32],
        0..4u32,
        any::<bool>(),
        any::<u64>(),
    );
    (by, among, numbers).prop_map(|(by, among, numbers)| {
        let (dispatch, load, ties, granularity) = by;
        let (usable, spare, without) = among;
        let (weights, bound, hot, rebase, table) = numbers;
        Policy {
            dispatch,
            load,
            ties,
            granularity,
            usable,
            spare,
            without,
            weights,
            bound,
            hot,
            rebase,
            table,
        }
    })
}
