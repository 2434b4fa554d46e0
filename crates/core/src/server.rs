//! How a service spreads connections over its servers.

use std::fmt;
use std::net::{AddrParseError, SocketAddr};
use std::str::FromStr;

use anabranch_policy::abi::{Addr, Consistent, KEYED_WORDS, Set, Ties};
use anabranch_policy::{Candidate, Choice, Dispatch, Granularity, Load};
use serde::{Serialize, Serializer};

use crate::algorithm::{DISPATCHES, word_of, word_of_granularity};
use crate::catalogue::{Cost, Facts, Parts, Sent, TargetKind};
use crate::maglev::{self, Entrant};
use crate::measure::{self, Distance, Measure, Taken};
use crate::served::Served;
use crate::{slots, weights};

/// The quantile of requests in flight above which a server is hot: 2^-0.25, as Wydrowski et al. 2024 section 5.3 found best.
const HOT: f64 = 0.84;

/// What the data path of a service does at each connection, by what it counts then or what was measured in the last window
/// ([`crate::served`]). Each policy is a row of the [`catalogue`](crate::catalogue).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerPolicy {
    /// What is known of a server when one is chosen.
    pub measure: &'static Measure,
    /// How that becomes a choice.
    pub dispatch: Dispatch,
    /// For what a choice holds: a connection, or all of a client's (by a hash of its address).
    pub granularity: Granularity,
    /// Whether the measure, or the share of a table, is divided by the servers' weights.
    pub by_weight: bool,
    /// Which of equally good servers is chosen.
    pub ties: Ties,
    /// How many open connections a server may have, in parts of [`BOUND_ONE`](anabranch_policy::abi::BOUND_ONE) of its share; 0: all. By [`Dispatch::Table`] alone.
    pub bound: u32,
    /// Which servers it suits, and which not.
    pub suits: &'static str,
}

/// A server, as far as a choice goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// How much it takes beside others.
    pub weight: u32,
    /// Takes new connections.
    pub is_usable: bool,
    /// Only where no other does.
    pub is_backup: bool,
    /// Connections that it was given before its share is counted.
    pub base: u32,
    /// Where it listens: what a table knows it by, on all balancers alike.
    pub endpoint: SocketAddr,
    /// What it did in the last window, for policies that go by that.
    pub served: Served,
}

/// A server as it is written: `10.0.0.11:80`, or `10.0.0.11` of one that gets its clients at the port that they called (port 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerAt(pub SocketAddr);

impl fmt::Display for ServerAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.port() {
            0 => write!(f, "{}", self.0.ip()),
            _ => write!(f, "{}", self.0),
        }
    }
}

impl FromStr for ServerAt {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, AddrParseError> {
        let alone = text.parse().map(|address| SocketAddr::new(address, 0));
        alone.or_else(|_| text.parse()).map(Self)
    }
}

impl Member {
    fn name(&self) -> [u64; KEYED_WORDS] {
        let address = u128::from_be_bytes(Addr::from(self.endpoint.ip()).0);
        let port = self.endpoint.port().into();
        [(address >> 64) as u64, address as u64, port, 0, 0]
    }
}

impl ServerPolicy {
    /// The choice among servers by their places; where a place is empty there is none.
    pub fn choice(&self, members: &[Option<Member>]) -> Choice {
        let regular =
            |member: &Option<Member>| member.is_some_and(|one| one.is_usable && !one.is_backup);
        let weights = self.weights(members);
        let candidates = members
            .iter()
            .zip(weights)
            .map(|(member, weight)| Candidate {
                weight,
                load: 0,
                usable: regular(member),
            });
        let candidates: Vec<Candidate> = candidates.collect();
        let (mut choice, _) = Choice::among(self.dispatch, &candidates);
        choice.load = self.load().into();
        choice.ties = self.ties.into();
        choice.hot = hot(members);
        choice.granularity = self.granularity.into();
        let backup =
            |member: &Option<Member>| member.is_some_and(|one| one.is_usable && one.is_backup);
        choice.spare[0] = (0..)
            .zip(members)
            .filter_map(|(place, member)| backup(member).then_some(place))
            .collect();
        choice.spares = 1;
        choice.bound = self.bound;
        let has_regular = choice.usable != Set::EMPTY;
        let takes = |member: &Option<Member>| match has_regular {
            true => regular(member),
            false => backup(member),
        };
        let taking = members.iter().zip(&choice.target);
        let taking = taking.filter(|(member, _)| takes(member));
        choice.weights = taking.map(|(_, target)| target.weight()).sum();
        for (target, member) in choice.target.iter_mut().zip(members) {
            target.dispatched_base = member.map_or(0, |one| one.base);
        }
        choice
    }

    /// The table of a policy that goes by one. In Maglev's, servers that are out of use keep their slots: only connections of their
    /// own move.
    pub fn table(&self, members: &[Option<Member>]) -> Option<Box<Consistent>> {
        let weights = self.weights(members);
        let places = (0..).zip(members).zip(weights);
        let regular = places.filter_map(|((place, member), weight)| {
            let member = member.filter(|one| !one.is_backup)?;
            Some((place, member, weight))
        });
        let usable = regular.clone().filter(|(_, member, _)| member.is_usable);
        let usable = usable.map(|(place, _, weight)| (place, weight));
        match self.dispatch {
            Dispatch::Table => {
                let entrant = |(target, member, weight): (u16, Member, u32)| Entrant {
                    target,
                    name: member.name(),
                    weight,
                };
                Some(maglev::table(&regular.map(entrant).collect::<Vec<_>>()))
            }
            Dispatch::Rounds => Some(slots::rounds(&usable.collect::<Vec<_>>())),
            Dispatch::Lots => Some(slots::lots(&usable.collect::<Vec<_>>())),
            _ => None,
        }
    }

    /// The table of a keyed hash, by which packets without an entry go under any policy.
    pub fn rows(&self, members: &[Option<Member>]) -> Option<Box<Consistent>> {
        let by_hash = Self {
            measure: &measure::NONE,
            bound: 0,
            dispatch: Dispatch::Table,
            by_weight: true,
            ..*self
        };
        by_hash.table(members)
    }

    /// Whether it goes by what servers did in the last window.
    pub fn is_measured(&self) -> bool {
        matches!(self.measure.taken, Taken::EveryWindow(_))
    }

    /// Whether it goes by open connections as they were at one moment, of which servers may tell themselves.
    pub fn goes_by_open(&self) -> bool {
        *self.measure == measure::OPEN_THEN
    }

    /// Whether it goes by how long the servers' checks took.
    pub fn goes_by_checks(&self) -> bool {
        matches!(self.measure.taken, Taken::ByCheck(_))
    }

    /// Whether it goes by what servers sent, which is seen only where that passes by.
    pub fn needs_answers(&self) -> bool {
        self.is_measured() && self.measure.distance != Distance::Local
    }

    /// Whether servers are compared, so that several may be equally good.
    pub fn compares(&self) -> bool {
        matches!(
            self.dispatch,
            Dispatch::Weighted | Dispatch::Best | Dispatch::Cold
        )
    }

    /// By place.
    fn weights(&self, members: &[Option<Member>]) -> Vec<u32> {
        let greatest = members.iter().flatten().map(|member| member.weight).max();
        let weight = |member: &Member| match self.by_weight {
            true => member.weight,
            false => 1,
        };
        let (Taken::EveryWindow(take) | Taken::ByCheck(take)) = self.measure.taken else {
            let weights = members.iter().map(|one| one.as_ref().map_or(1, weight));
            return weights.collect();
        };
        // At least 1, because weights are ratios.
        let measured = |member: &Member| match (self.by_weight, greatest) {
            (true, Some(greatest)) => weights::per_rate(
                1 + take(&member.served),
                member.weight.into(),
                greatest.into(),
            ),
            _ => 1 + take(&member.served),
        };
        let usable = members.iter().flatten().filter(|one| one.is_usable);
        let least = usable.map(measured).min().unwrap_or(1);
        let weight = |member: &Member| weights::of_less(measured(member), least);
        let weights = members.iter().map(|one| one.as_ref().map_or(1, weight));
        weights.collect()
    }

    fn load(&self) -> Load {
        match self.measure.taken {
            Taken::AtChoice(load) => load,
            Taken::EveryWindow(_) | Taken::ByCheck(_) => Load::Active,
            _ => Load::Dispatched,
        }
    }
}

/// From so many open connections on a server is hot: more than [`HOT`] of the servers had as the window ended.
fn hot(members: &[Option<Member>]) -> u32 {
    let usable = members.iter().flatten().filter(|one| one.is_usable);
    let mut open: Vec<u64> = usable.map(|one| one.served.open).collect();
    open.sort_unstable();
    let place = (open.len() as f64 * HOT).ceil() as usize;
    let most = open.get(place.saturating_sub(1)).copied().unwrap_or(0);
    u32::try_from(most).unwrap_or(u32::MAX).saturating_add(1)
}

impl Facts for ServerPolicy {
    fn target(&self) -> TargetKind {
        TargetKind::Server
    }

    fn parts(&self) -> Parts {
        Parts {
            measure: self.measure.name,
            dispatch: match self.dispatch {
                // Of servers alone.
                Dispatch::Table => "table",
                Dispatch::Rounds => "rounds",
                Dispatch::Lots => "lots",
                Dispatch::Cold => "cold",
                dispatch => word_of(&DISPATCHES, dispatch),
            },
            granularity: word_of_granularity(self.granularity),
        }
    }

    fn divided_by(&self) -> Option<&'static str> {
        self.by_weight.then_some("weight")
    }

    fn cost(&self) -> Cost {
        let state = match self.dispatch {
            Dispatch::Turns => "a counter for each service and address family",
            Dispatch::Table | Dispatch::Rounds | Dispatch::Lots => {
                "a table of 25601 slots for each service and address family"
            }
            _ => self.measure.state,
        };
        Cost {
            state,
            probes: match self.goes_by_checks() {
                true => "the check of each server",
                false => "none",
            },
        }
    }

    fn suits(&self) -> Vec<&'static str> {
        vec![self.suits]
    }

    fn sent(&self) -> Sent {
        match self.goes_by_checks() {
            true => Sent::new("those of the checks", "those of the checks"),
            false => Sent::nothing(),
        }
    }
}

/// As its tuple.
impl Serialize for ServerPolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.parts().serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    use anabranch_policy::abi::{BOUND_ONE, Gauges};
    use anabranch_policy::{NO_TABLE, Request, choose};
    use proptest::prelude::*;

    use super::*;
    use crate::Policy;
    use crate::catalogue::find;

    const MEMBER: Member = Member {
        weight: 1,
        is_usable: true,
        is_backup: false,
        base: 0,
        endpoint: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 80),
        served: Served {
            sent_bytes: 0,
            open: 0,
            answer_time: None,
            peak: Duration::ZERO,
            check_time: None,
        },
    };

    fn policy(name: &str) -> ServerPolicy {
        match find(TargetKind::Server, name).map(|row| row.policy) {
            Some(Policy::Service(policy)) => policy,
            other => panic!("{name}: {other:?}"),
        }
    }

    /// Which servers so many connections get that never end.
    fn given(name: &str, members: &[Option<Member>], connections: u32) -> Vec<u16> {
        let policy = policy(name);
        let (choice, table) = (policy.choice(members), policy.table(members));
        let table = table.as_deref().unwrap_or(&NO_TABLE);
        let mut gauges = Gauges::default();
        let targets = (0..connections).map(|turn| {
            let draw = match choice.takes_turns() {
                true => turn,
                false => turn.wrapping_mul(0x9e37_79b9),
            };
            let request = Request {
                draw,
                ..Request::default()
            };
            let target = choose(&choice, &gauges, table, &request).target;
            let target = target.expect("one is usable");
            let gauge = &mut gauges.target[usize::from(target)];
            gauge.dispatched += 1;
            gauge.opened += 1;
            target
        });
        targets.collect()
    }

    fn count(given: &[u16], server: u16) -> usize {
        given.iter().filter(|one| **one == server).count()
    }

    /// All but those by a hash, whose requests differ.
    const POLICIES: [&str; 15] = [
        "RR",
        "WRR",
        "SWRR",
        "random",
        "weighted random",
        "probabilistic",
        "CONN",
        "RT",
        "XSIZE",
        "EWMA",
        "Prequal",
        "probing",
        "LC",
        "WLC",
        "P2C",
    ];

    #[test]
    fn weights_count_where_the_policy_says() {
        let weighted = [3, 2, 1].map(|weight| Some(Member { weight, ..MEMBER }));
        for (name, shares) in [
            ("RR", [20, 20, 20]),
            ("WRR", [30, 20, 10]),
            ("SWRR", [30, 20, 10]),
            ("LC", [20, 20, 20]),
            ("WLC", [30, 20, 10]),
        ] {
            let given = given(name, &weighted, 60);
            assert_eq!(
                [0, 1, 2].map(|server| count(&given, server)),
                shares,
                "{name}"
            );
        }
    }

    #[test]
    fn rounds_keep_the_order_of_the_thesis() {
        let weighted = [4, 3, 2].map(|weight| Some(Member { weight, ..MEMBER }));
        assert_eq!(given("WRR", &weighted, 9), [0, 1, 2, 0, 1, 2, 0, 1, 0]);
    }

    /// Who did this in the last window.
    fn did(served: Served) -> Option<Member> {
        Some(Member { served, ..MEMBER })
    }

    #[test]
    fn a_window_says_who_is_best_and_connections_break_ties() {
        let answered = |ms| Served {
            answer_time: Some(Duration::from_millis(ms)),
            peak: Duration::from_millis(ms),
            ..Served::default()
        };
        let sent = |sent_bytes| Served {
            sent_bytes,
            ..Served::default()
        };
        let open = |open| Served {
            open,
            ..Served::default()
        };
        let checked = |ms| Served {
            check_time: (ms > 0).then(|| Duration::from_millis(ms)),
            ..Served::default()
        };
        for (name, servers, expected) in [
            ("probing", [2, 1, 3].map(checked), [0, 20, 0]),
            ("probing", [2, 0, 3].map(checked), [20, 0, 0]),
            ("RT", [30, 10, 10].map(answered), [0, 10, 10]),
            ("XSIZE", [2000, 7000, 2000].map(sent), [10, 0, 10]),
            ("CONN", [5, 2, 3].map(open), [0, 20, 0]),
        ] {
            let given = given(name, &servers.map(did), 20);
            assert_eq!([0, 1, 2].map(|one| count(&given, one)), expected, "{name}");
        }
        let given = given("EWMA", &[20, 10, 20].map(answered).map(did), 40);
        assert_eq!([0, 1, 2].map(|one| count(&given, one)), [10, 20, 10]);
    }

    #[test]
    fn the_fastest_server_gets_connections_until_it_is_hot() {
        let server = |open, ms| {
            did(Served {
                open,
                peak: Duration::from_millis(ms),
                ..Served::default()
            })
        };
        // 84 % of four servers are four, so that it is hot who has more than each of them had.
        let servers = [server(0, 30), server(5, 10), server(0, 20), server(0, 40)];
        let given = given("Prequal", &servers, 24);
        assert_eq!(given[..6], [1; 6], "with none open yet");
        assert_eq!(given[6..12], [2; 6]);
        assert_eq!(given[12..18], [0; 6]);
        assert_eq!(given[18..], [3; 6]);
    }

    #[test]
    fn if_all_servers_are_hot_the_fewest_connections_decide() {
        let servers = [10, 20].map(|ms| {
            did(Served {
                peak: Duration::from_millis(ms),
                ..Served::default()
            })
        });
        let given = given("Prequal", &servers, 8);
        assert_eq!([0, 1].map(|one| count(&given, one)), [4, 4]);
        assert_eq!(given[0], 0, "the faster of two that are cold");
    }

    #[test]
    fn lots_fall_by_the_inverse_of_the_load() {
        let servers = [0, 1, 3].map(|open| {
            did(Served {
                open,
                ..Served::default()
            })
        });
        let given = given("probabilistic", &servers, 7000);
        for (server, expected) in [(0, 4000), (1, 2000), (2, 1000)] {
            let count = count(&given, server);
            assert!(count.abs_diff(expected) < 200, "{server}: {count}");
        }
    }

    #[test]
    fn equally_good_servers_are_equally_likely() {
        for name in ["LC", "CONN"] {
            let choice = policy(name).choice(&[Some(MEMBER); 3]);
            let chosen = |turn: u32| {
                let draw = turn.wrapping_mul(0x9e37_79b9);
                let request = Request {
                    draw,
                    ..Request::default()
                };
                choose(&choice, &Gauges::default(), &NO_TABLE, &request)
                    .target
                    .unwrap()
            };
            let chosen: Vec<u16> = (0..3000).map(chosen).collect();
            assert!(
                (0..3).all(|one| count(&chosen, one).abs_diff(1000) < 100),
                "{name}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_server_has_more_than_its_bounded_share_of_open_connections(
            weights in proptest::collection::vec(1u32..5, 2..40),
            hashes in proptest::collection::vec(any::<u32>(), 1..400),
            ends in proptest::collection::vec(any::<proptest::sample::Index>(), 0..200),
            percent in 105u32..200,
        ) {
            let members = member_per(&weights);
            let policy = ServerPolicy {
                bound: BOUND_ONE * percent / 100,
                ..policy("Maglev-bounded")
            };
            let (choice, table) = (policy.choice(&members), policy.table(&members).unwrap());
            let all = f64::from(weights.iter().sum::<u32>());
            let mut gauges = Gauges::default();
            let mut held = Vec::new();
            let mut ends = ends.into_iter();
            for hash in hashes {
                let open = held.len() as u32;
                let request = Request { hash, open, ..Request::default() };
                let target = choose(&choice, &gauges, &table, &request).target.expect("one is usable");
                let target = usize::from(target);
                gauges.target[target].opened += 1;
                let gauge = gauges.target[target];
                let share = f64::from(weights[target]) / all * f64::from(open + 1);
                let bound = (share * f64::from(policy.bound) / f64::from(BOUND_ONE)).ceil();
                prop_assert!((gauge.opened - gauge.closed) as f64 <= bound, "{target} of {bound}");
                held.push(target);
                if hash % 3 == 0 && let Some(end) = ends.next() {
                    gauges.target[held.swap_remove(end.index(held.len()))].closed += 1;
                }
            }
        }

        #[test]
        fn few_connections_leave_their_hash_where_the_bound_is_generous(hashes in proptest::collection::vec(any::<u32>(), 1000)) {
            let members = member_per(&[1; 4]);
            let [bounded, plain] = ["Maglev-bounded", "Maglev"].map(policy);
            let table = plain.table(&members).unwrap();
            let [bounded, plain] = [bounded, plain].map(|policy| policy.choice(&members));
            let mut gauges = Gauges::default();
            let mut moved = 0;
            for (open, hash) in (0..).zip(hashes) {
                let request = Request { hash, open, ..Request::default() };
                let target = choose(&bounded, &gauges, &table, &request).target;
                moved += u32::from(target != choose(&plain, &gauges, &table, &request).target);
                gauges.target[usize::from(target.unwrap())].opened += 1;
            }
            prop_assert!(moved < 150, "{moved}");
        }
    }

    fn member_per(weights: &[u32]) -> Vec<Option<Member>> {
        let member = |(port, &weight): (u16, &u32)| {
            let endpoint = SocketAddr::new(MEMBER.endpoint.ip(), port);
            Some(Member {
                weight,
                endpoint,
                ..MEMBER
            })
        };
        (1..).zip(weights).map(member).collect()
    }

    #[test]
    fn who_joins_later_is_given_no_more_than_its_share() {
        let policy = policy("SWRR");
        let mut gauges = Gauges::default();
        (gauges.target[0].dispatched, gauges.target[0].opened) = (1000, 1000);
        let members = [1000, 0].map(|base| Some(Member { base, ..MEMBER }));
        let choice = policy.choice(&members);
        let first = choose(&choice, &gauges, &NO_TABLE, &Request::default()).target;
        assert_eq!(first, Some(0), "both begin anew");
    }

    proptest! {
        #[test]
        fn who_is_usable_takes_connections_and_backups_where_nobody_else_does(
            all in proptest::collection::vec(proptest::option::of((1u32..9, any::<bool>(), any::<bool>())), 1..70),
        ) {
            let members: Vec<Option<Member>> = all
                .iter()
                .map(|one| one.map(|(weight, is_usable, is_backup)| Member { weight, is_usable, is_backup, ..MEMBER }))
                .collect();
            let of_tier = |is_backup: bool| {
                let places = (0..).zip(&members);
                let takes = |one: &Member| one.is_usable && one.is_backup == is_backup;
                places.filter(|(_, one)| one.as_ref().is_some_and(takes)).map(|(place, _)| place).collect::<Vec<u16>>()
            };
            let tier = [of_tier(false), of_tier(true)].into_iter().find(|tier| !tier.is_empty());
            for name in POLICIES {
                match &tier {
                    Some(tier) => prop_assert!(given(name, &members, 40).iter().all(|one| tier.contains(one)), "{}", name),
                    None => {
                        let choice = policy(name).choice(&members);
                        let chosen = choose(&choice, &Gauges::default(), &NO_TABLE, &Request::default());
                        prop_assert_eq!(chosen.target, None);
                    }
                }
            }
        }
    }
}
