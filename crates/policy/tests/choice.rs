//! What a choice promises, whatever the numbers.

use std::net::{IpAddr, Ipv4Addr};

use anabranch_policy::abi::{
    Addr, CONSISTENT_SLOTS, MAX_LINKS, MAX_TARGETS, SPARE_MAX, STATE_CLOSED, STATE_CONFIRMED,
    STATE_HAIRPIN, STATE_REPLIED, TIERS_MAX, Target, Ties, WEIGHT_MAX, WEIGHT_MIN,
};
use anabranch_policy::paths::Known;
use anabranch_policy::tries::Attempt;
use anabranch_policy::{
    Candidate, Choice, Consistent, Decision, Dispatch, Fate, Granularity, NO_TABLE, Request,
    SCHEMES, Set, Syn, Tried, Why, choose, flow_hash, hash_vectors, reasons, session_word, vectors,
};
use proptest::prelude::*;

fn candidate() -> impl Strategy<Value = Candidate> {
    let number = || prop_oneof![0..4u32, 0..=WEIGHT_MAX, any::<u32>()];
    (number(), number(), any::<bool>()).prop_map(|(weight, load, usable)| Candidate {
        weight,
        load,
        usable,
    })
}

/// Few, as many as a gateway's links, and as many as there may be.
fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
    let edges = prop::sample::select(vec![1, 16, 17, 255, 256]);
    let count = prop_oneof![4 => 0..=16usize, 1 => edges, 1 => 0..=MAX_TARGETS];
    count.prop_flat_map(|count| prop::collection::vec(candidate(), count))
}

fn some_port() -> impl Strategy<Value = u16> {
    prop_oneof![1 => prop::sample::select(vec![500, 4500]), 3 => any::<u16>()]
}

fn dispatch() -> impl Strategy<Value = Dispatch> {
    prop::sample::select(&SCHEMES[..])
}

/// Mostly of a flow that nothing binds.
fn request() -> impl Strategy<Value = Request> {
    let bound = || prop_oneof![8 => Just(None), 1 => (0..20u16).prop_map(Some), 1 => any::<u16>().prop_map(Some)];
    let full = prop_oneof![3 => Just(0), 1 => any::<u64>()];
    let tried = prop_oneof![1 => Just(0), 2 => any::<u16>()];
    let numbers = (
        any::<u32>(),
        any::<u32>(),
        prop::bool::weighted(0.2),
        known(),
    );
    (numbers, tried, full, bound(), bound(), bound()).prop_map(
        |((hash, draw, race, known), tried, full, route, session, endpoint)| Request {
            open: 0,
            tried: Tried(tried),
            full,
            hash,
            draw,
            route,
            session,
            endpoint,
            race,
            known,
        },
    )
}

/// Mostly nothing.
fn known() -> impl Strategy<Value = Known> {
    let links = || prop_oneof![3 => Just(0), 1 => 0..1u32 << MAX_LINKS];
    let response_us = prop_oneof![0..4u32, any::<u32>()];
    let response_us = prop::collection::vec(response_us, MAX_LINKS);
    (links(), links(), response_us).prop_map(|(fresh, unknown, response_us)| Known {
        fresh,
        unknown,
        untold: false,
        response_us: response_us.try_into().expect("one of each link"),
        ..Known::default()
    })
}

fn is_avoided(request: &Request, target: usize) -> bool {
    request.tried.0 >> (target % 16) & 1 == 1 || target < 64 && request.full >> target & 1 == 1
}

/// The pool in words: usable and not avoided, or all usable if that leaves none.
fn pool(candidates: &[Candidate], request: &Request) -> (Vec<usize>, bool) {
    let usable: Vec<_> = (0..candidates.len())
        .filter(|&i| candidates[i].usable)
        .collect();
    let left = usable.iter().copied();
    let left: Vec<_> = left.filter(|&i| !is_avoided(request, i)).collect();
    if left.is_empty() {
        (usable, true)
    } else {
        (left, false)
    }
}

/// What binds the flow, if that may take it.
fn bound(candidates: &[Candidate], request: &Request) -> Option<Decision> {
    let usable = |target: &u16| {
        let candidate = candidates.get(usize::from(*target));
        candidate.is_some_and(|candidate| candidate.usable)
    };
    let stays = |target: &u16| usable(target) && !is_avoided(request, usize::from(*target));
    let decision = |target, why| Decision {
        target: Some(target),
        why,
    };
    let route = request.route.filter(usable);
    let session = request.session.filter(stays);
    let endpoint = request.endpoint.filter(stays);
    route
        .map(|target| decision(target, Why::Route))
        .or(session.map(|target| decision(target, Why::Session)))
        .or(endpoint.map(|target| decision(target, Why::Endpoint)))
}

/// What is known of the destination decides, if it is of one of the pool.
fn by_path(pool: &[usize], request: &Request) -> Option<(usize, Why)> {
    let Known {
        fresh,
        unknown,
        response_us,
        ..
    } = request.known;
    let of = |links: u32| {
        let pool = pool.iter().copied().filter(|link| *link < MAX_LINKS);
        pool.filter(move |link| links >> link & 1 == 1)
    };
    let asks = request.tried == Tried::default() && request.full == 0;
    let asked = of(unknown).next().filter(|_| asks);
    let fastest = of(fresh).min_by_key(|link| response_us[*link]);
    asked
        .map(|link| (link, Why::Unknown))
        .or(fastest.map(|link| (link, Why::Response)))
}

/// The choice as its table of rules says it, with 128-bit rational comparison.
fn model(dispatch: Dispatch, candidates: &[Candidate], request: &Request) -> Decision {
    if let Some(decision) = bound(candidates, request) {
        return decision;
    }
    let (pool, retried) = pool(candidates, request);
    let weight = |i: usize| u128::from(candidates[i].weight.clamp(WEIGHT_MIN, WEIGHT_MAX));
    let load = |i: usize| u128::from(candidates[i].load);
    let by_ratio = |a: &usize, b: &usize| (load(*a) * weight(*b)).cmp(&(load(*b) * weight(*a)));
    let by_weight = |a: &usize, b: &usize| weight(*b).cmp(&weight(*a));
    let by_load = |a: &usize, b: &usize| load(*a).cmp(&load(*b));
    let least = |among: &[usize]| {
        let all = among.iter().copied();
        all.min_by(|a, b| by_ratio(a, b).then(by_weight(a, b)))
    };
    let nth = |n: u64| pool.get(n as usize).copied();
    let size = pool.len() as u64;
    let draw = u64::from(request.draw);
    let by_scheme = |dispatch| match dispatch {
        Dispatch::Weighted => (least(&pool), Why::Weighted),
        Dispatch::Best => (
            pool.iter()
                .copied()
                .min_by(|a, b| by_weight(a, b).then(by_load(a, b))),
            Why::Best,
        ),
        Dispatch::Random => (nth((draw * size) >> 32), Why::Random),
        Dispatch::Hash | Dispatch::HashSum => (nth(u64::from(request.hash) % size), Why::Hash),
        Dispatch::Turns => (nth(draw % size), Why::Turn),
        Dispatch::RandomTwo => {
            let first = ((draw >> 16) * size) >> 16;
            let second = ((draw & 0xffff) * (size - 1)) >> 16;
            let second = second + u64::from(second >= first);
            (
                least(&[pool[first as usize], pool[second as usize]]),
                Why::RandomTwo,
            )
        }
        Dispatch::Table
        | Dispatch::Rounds
        | Dispatch::Lots
        | Dispatch::Cold
        | Dispatch::Soonest => {
            unreachable!("they have tests of their own")
        }
    };
    let path = by_path(&pool, request);
    let (target, why) = match (dispatch, path) {
        _ if pool.is_empty() => (None, Why::NoneUsable),
        _ if size == 1 => (nth(0), Why::OnlyOne),
        _ if request.race && !retried => (nth(draw % size), Why::Race),
        (_, Some((target, why))) => (Some(target), why),
        (dispatch, None) => by_scheme(dispatch),
    };
    Decision {
        target: target.map(|i| i as u16),
        why: if retried && target.is_some() {
            Why::Retried
        } else {
            why
        },
    }
}

fn decide(dispatch: Dispatch, candidates: &[Candidate], request: &Request) -> Decision {
    let (choice, gauges) = Choice::among(dispatch, candidates);
    let choice = Choice {
        granularity: Granularity::Session.into(),
        ..choice
    };
    choose(&choice, &gauges, &NO_TABLE, request)
}

proptest! {
    /// The first tier that has a target left is chosen from as if there were no other; where none has, the first.
    #[test]
    fn a_flow_leaves_its_tier_when_all_of_it_has_failed_it(
        dispatch in dispatch(),
        targets in prop::collection::vec((candidate(), 0..=TIERS_MAX), 1..=16usize),
        request in request(),
    ) {
        let candidates: Vec<Candidate> = targets.iter().map(|(candidate, _)| *candidate).collect();
        let (choice, gauges) = Choice::among(dispatch, &candidates);
        let tiers: Vec<Vec<u16>> = (0..TIERS_MAX)
            .map(|tier| (0..).zip(&targets).filter(|(_, (_, its))| *its == tier).map(|(target, _)| target).collect())
            .collect();
        let of = |tier: &[u16]| -> Set { tier.iter().copied().collect() };
        let mut tiered = Choice { usable: of(&tiers[0]), spares: SPARE_MAX as u32, ..choice };
        for (spare, tier) in tiered.spare.iter_mut().zip(&tiers[1..]) {
            *spare = of(tier);
        }
        let unbound = Request { route: None, session: None, endpoint: None, ..request };
        let is_left = |target: &u16| !is_avoided(&request, usize::from(*target));
        let first = tiers.iter().find(|tier| tier.iter().any(is_left)).unwrap_or(&tiers[0]);
        let alone = Choice { usable: of(first), spares: 0, ..choice };
        prop_assert_eq!(
            choose(&tiered, &gauges, &NO_TABLE, &unbound),
            choose(&alone, &gauges, &NO_TABLE, &unbound)
        );
    }

    /// A route of the host goes before the class of a flow, a session does not.
    #[test]
    fn a_route_binds_to_a_link_of_another_class(target in 0..4u16) {
        let (choice, gauges) = Choice::among(Dispatch::Random, &[Candidate { weight: 1, load: 0, usable: true }; 4]);
        let choice = Choice { usable: Set::EMPTY, ..choice };
        let route = Request { route: Some(target), ..Request::default() };
        let session = Request { session: Some(target), ..Request::default() };
        prop_assert_eq!(choose(&choice, &gauges, &NO_TABLE, &route).target, Some(target));
        prop_assert_eq!(choose(&choice, &gauges, &NO_TABLE, &session).target, None);
    }
}

/// CRC-32 bit by bit from its definition: polynomial 0x04c11db7, reflected, all ones in and out.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| crc >> 1 ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), step)
    })
}

/// Dispatches `flows` flows by weight and counts them per target after each.
fn dispatched(weights: &[u32], flows: u32, mut each: impl FnMut(u32, &[u32])) {
    let mut loads = vec![0; weights.len()];
    for flow in 1..=flows {
        let all = weights
            .iter()
            .zip(&loads)
            .map(|(&weight, &load)| Candidate {
                weight,
                load,
                usable: true,
            });
        let all: Vec<_> = all.collect();
        let decision = decide(Dispatch::Weighted, &all, &Request::default());
        loads[usize::from(decision.target.unwrap())] += 1;
        each(flow, &loads);
    }
}

/// Entries of all targets in turn.
fn table(targets: u16) -> Box<Consistent> {
    let mut table = Box::new(NO_TABLE);
    for (slot, entry) in (0..CONSISTENT_SLOTS as u32).zip(&mut table.target) {
        *entry = (slot % u32::from(targets)) as u16;
    }
    table
}

fn all_usable(count: usize) -> Vec<Candidate> {
    let candidate = Candidate {
        weight: 1,
        load: 0,
        usable: true,
    };
    vec![candidate; count]
}

proptest! {
    #[test]
    fn a_choice_is_what_the_rules_say(d in dispatch(), c in candidates(), q in request()) {
        prop_assert_eq!(decide(d, &c, &q), model(d, &c, &q));
    }

    #[test]
    fn a_target_that_is_not_usable_is_never_chosen(d in dispatch(), c in candidates(), q in request()) {
        if let Some(target) = decide(d, &c, &q).target {
            prop_assert!(c[usize::from(target)].usable);
        } else {
            prop_assert!(!c.iter().any(|candidate| candidate.usable));
        }
    }

    #[test]
    fn the_weights_of_a_choice_are_in_their_range(d in dispatch(), c in candidates()) {
        let (choice, _) = Choice::among(d, &c);
        let range = WEIGHT_MIN..=WEIGHT_MAX;
        prop_assert!(choice.target[..c.len()].iter().all(|target| range.contains(&target.weight())));
    }

    /// What no library writes: the program still takes a target out of the pool.
    #[test]
    fn weights_out_of_their_range_lead_to_a_usable_target(d in dispatch(), c in candidates(), q in request()) {
        let (mut choice, gauges) = Choice::among(d, &c);
        for (target, candidate) in choice.target.iter_mut().zip(&c) {
            *target = bytemuck::cast::<[u32; 2], Target>([candidate.weight, 0]);
        }
        let (pool, _) = pool(&c, &q);
        let expected = bound(&c, &q).map_or(pool, |bound| bound.target.map(usize::from).into_iter().collect());
        let chosen = choose(&choice, &gauges, &NO_TABLE, &q).target.map(usize::from);
        prop_assert_eq!(chosen.is_some(), !expected.is_empty());
        prop_assert!(chosen.is_none_or(|chosen| expected.contains(&chosen)));
    }

    #[test]
    fn a_target_that_failed_the_flow_is_chosen_only_if_all_have(d in dispatch(), c in candidates(), q in request()) {
        let decision = decide(d, &c, &q);
        if let Some(target) = decision.target {
            prop_assert!(!is_avoided(&q, target.into()) || [Why::Retried, Why::Route].contains(&decision.why));
        }
    }

    #[test]
    fn targets_beyond_the_count_do_not_matter(c in candidates(), q in request(), d in dispatch(), beyond: u64) {
        let (mut choice, gauges) = Choice::among(d, &c);
        let expected = choose(&choice, &gauges, &NO_TABLE, &q);
        for target in c.len()..MAX_TARGETS {
            choice.usable.word[target / 64] |= beyond & 1 << (target % 64);
        }
        prop_assert_eq!(choose(&choice, &gauges, &NO_TABLE, &q), expected);
    }

    #[test]
    fn the_table_moves_only_the_flows_of_a_target_that_leaves(count in 2..=MAX_TARGETS as u16, gone: u16, hash: u32) {
        let gone = gone % count;
        let (mut choice, gauges) = Choice::among(Dispatch::Table, &all_usable(count.into()));
        let (table, request) = (table(count), Request { hash, ..Request::default() });
        let before = choose(&choice, &gauges, &table, &request);
        let slot = (u64::from(hash) * CONSISTENT_SLOTS as u64) >> 32;
        prop_assert_eq!(before, Decision { target: Some(table.target[slot as usize]), why: Why::Table });
        choice.usable = (0..count).filter(|&target| target != gone).collect();
        let after = choose(&choice, &gauges, &table, &request).target;
        prop_assert!(after.is_some() && after != Some(gone));
        prop_assert!(before.target == Some(gone) || after == before.target);
    }

    #[test]
    fn random_ties_go_to_the_first_target_from_a_random_one_on(c in candidates(), draw: u32, best: bool) {
        let dispatch = if best { Dispatch::Best } else { Dispatch::Weighted };
        // Few loads and weights, so that many are equal.
        let c: Vec<Candidate> = c.iter().map(|one| Candidate { weight: 1 + one.weight % 2, load: one.load % 2, ..*one }).collect();
        let (mut choice, gauges) = Choice::among(dispatch, &c);
        choice.ties = Ties::Random.into();
        let request = Request { draw, ..Request::default() };
        let pool: Vec<usize> = (0..c.len()).filter(|i| c[*i].usable).collect();
        let start = (u64::from(draw) * pool.len() as u64) >> 32;
        let rotated = pool.iter().cycle().skip(start as usize).take(pool.len());
        let key = |i: &&usize| match dispatch {
            Dispatch::Best => (0, u32::MAX - c[**i].weight),
            _ => (c[**i].load * 2 / c[**i].weight, u32::MAX - c[**i].weight),
        };
        let expected = rotated.min_by_key(key).map(|i| *i as u16);
        prop_assert_eq!(choose(&choice, &gauges, &NO_TABLE, &request).target, expected);
    }

    #[test]
    fn slots_are_taken_in_turn_and_an_unusable_one_is_somebody_elses(slots in 1u16..50, turn: u32, unusable in 0u16..5) {
        let (mut choice, gauges) = Choice::among(Dispatch::Rounds, &all_usable(5));
        let mut table = table(5);
        table.slots = slots;
        let request = Request { draw: turn, ..Request::default() };
        let expected = (turn % u32::from(slots) % 5) as u16;
        prop_assert_eq!(choose(&choice, &gauges, &table, &request).target, Some(expected));
        choice.usable = (0..5).filter(|target| *target != unusable).collect();
        let target = choose(&choice, &gauges, &table, &request).target;
        prop_assert!(target != Some(unusable) && target.is_some());
        prop_assert!(expected == unusable || target == Some(expected));
    }

    #[test]
    fn a_choice_holds_for_the_session_but_for_excepted_ports(port in some_port(), excepted in 1..u16::MAX, stick: bool) {
        let mut choice = Choice { stick: stick.into(), ..Choice::default() };
        choice.except[3] = anabranch_policy::abi::BePort::new(excepted);
        let is_ike = [500, 4500].contains(&port);
        let is_bound = is_ike || stick && port != excepted;
        let expected = if is_bound { Granularity::Session } else { Granularity::Connection };
        prop_assert_eq!(choice.reach(port), expected);
        choice.granularity = Granularity::Host.into();
        prop_assert_eq!(choice.reach(port), Granularity::Host);
    }

    #[test]
    fn no_target_ever_gets_a_whole_flow_more_than_its_share(weights in prop::collection::vec(1..1000u32, 2..6)) {
        let sum: u64 = weights.iter().map(|&w| u64::from(w)).sum();
        dispatched(&weights, 500, |flows, loads| {
            for (&weight, &load) in weights.iter().zip(loads) {
                assert!(u64::from(load) * sum < u64::from(flows) * u64::from(weight) + sum, "{weights:?}: {loads:?}");
            }
        });
    }

    #[test]
    fn two_targets_stay_within_one_flow_of_their_shares(a in 1..1000u32, b in 1..1000u32) {
        dispatched(&[a, b], 500, |flows, loads| {
            let share = f64::from(flows) * f64::from(a) / f64::from(a + b);
            assert!((f64::from(loads[0]) - share).abs() < 1.0 + 1e-9, "{loads:?}, share {share}");
        });
    }

    #[test]
    fn after_a_full_cycle_every_target_has_exactly_its_share(weights in prop::collection::vec(1..20u32, 1..6)) {
        let sum: u32 = weights.iter().sum();
        dispatched(&weights, 3 * sum, |flows, loads| {
            if flows % sum == 0 {
                let shares: Vec<_> = weights.iter().map(|w| w * (flows / sum)).collect();
                assert_eq!(loads, shares);
            }
        });
    }

    #[test]
    fn the_hash_of_an_ipv4_flow_is_the_crc_of_the_96_header_bits(s: [u8; 4], d: [u8; 4], sport: u16, dport: u16) {
        let header = [&s[..], &d, &sport.to_be_bytes(), &dport.to_be_bytes()].concat();
        prop_assert_eq!(flow_hash(Ipv4Addr::from(s).into(), Ipv4Addr::from(d).into(), sport, dport), crc32(&header));
    }

    #[test]
    fn the_hash_of_any_other_flow_covers_both_whole_addresses(s: [u8; 16], d: [u8; 16], sport: u16, dport: u16) {
        prop_assume!(IpAddr::from(Addr(s)).is_ipv6() || IpAddr::from(Addr(d)).is_ipv6());
        let header = [&s[..], &d, &sport.to_be_bytes(), &dport.to_be_bytes()].concat();
        prop_assert_eq!(flow_hash(Addr(s), Addr(d), sport, dport), crc32(&header));
    }

    #[test]
    fn by_hash_sum_addresses_and_ports_of_ipv4_are_added(s: u32, d: u32, sport: u16, dport: u16) {
        let sum = u64::from(s) + u64::from(d) + u64::from(sport) + u64::from(dport);
        let [s, d] = [s, d].map(|addr| Ipv4Addr::from(addr).into());
        prop_assert_eq!(by_sum().hash_for(s, d, sport, dport), sum as u32);
    }

    #[test]
    fn by_hash_sum_all_words_of_other_addresses_are_added(s: [u32; 4], d: [u32; 4], sport: u16, dport: u16) {
        let address = |words: [u32; 4]| Addr(bytemuck::cast(words.map(u32::to_be)));
        prop_assume!(address(s).ip().is_ipv6() && address(d).ip().is_ipv6());
        let ports = [sport, dport].map(u32::from);
        let words = s.into_iter().chain(d).chain(ports);
        let sum = words.fold(0, u32::wrapping_add);
        prop_assert_eq!(by_sum().hash_for(address(s), address(d), sport, dport), sum);
    }
}

fn by_sum() -> Choice {
    Choice::among(Dispatch::HashSum, &[]).0
}

/// Guo 2004, section IV.B.2, by hand: 10.0.0.2:1024 to 192.0.2.1:81.
#[test]
fn a_flow_takes_the_link_that_the_published_sum_names() {
    let (client, server) = (Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(192, 0, 2, 1));
    let hash = by_sum().hash_for(client.into(), server.into(), 1024, 81);
    assert_eq!(hash, 167_772_162 + 3_221_225_985 + 1024 + 81);
    let request = Request {
        hash,
        ..Request::default()
    };
    let decision = decide(Dispatch::HashSum, &all_usable(3), &request);
    assert_eq!((decision.target, decision.why), (Some(1), Why::Hash));
}

#[test]
fn the_reference_crc_gives_the_published_check_value() {
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
}

#[test]
fn flows_hash_evenly_over_three_targets() {
    let mut counts = [0u32; 3];
    for port in 0..30_000u16 {
        let hash = flow_hash(
            Ipv4Addr::new(10, 0, 0, 2).into(),
            Ipv4Addr::new(192, 0, 2, 1).into(),
            port,
            443,
        );
        let request = Request {
            hash,
            ..Request::default()
        };
        let decision = decide(Dispatch::Hash, &all_usable(3), &request);
        counts[usize::from(decision.target.unwrap())] += 1;
    }
    assert!(
        counts.iter().all(|count| count.abs_diff(10_000) < 400),
        "{counts:?}: five standard deviations are 408"
    );
}

#[test]
fn random_numbers_spread_over_the_usable_targets_in_equal_parts() {
    let mut four = all_usable(4);
    four[2].usable = false;
    let mut counts = [0u32; 4];
    for step in 0..3000u32 {
        let request = Request {
            draw: step * (u32::MAX / 3000),
            ..Request::default()
        };
        let decision = decide(Dispatch::Random, &four, &request);
        counts[usize::from(decision.target.unwrap())] += 1;
    }
    assert!(
        counts[2] == 0
            && [0, 1, 3]
                .iter()
                .all(|&i: &usize| counts[i].abs_diff(1000) <= 1),
        "{counts:?}"
    );
}

#[test]
fn a_repeated_syn_moves_on_where_paths_are_failed_or_gone() {
    let mut choice = Choice::round_robin(2, 0b01);
    for retries in [0, 1] {
        choice.syn_retry = retries;
        let judge =
            |state, is_same, target| choice.judge_syn(state, is_same, &Attempt::new(target));
        let again = if retries == 1 {
            Syn::GoesOn
        } else {
            Syn::Again
        };
        assert_eq!(judge(0, true, 0), again);
        assert_eq!(judge(0, true, 1), Syn::GoesOn, "its link is not usable");
        assert_eq!(judge(0, false, 0), Syn::Anew, "another connection");
        assert_eq!(judge(STATE_REPLIED, true, 1), Syn::Follows);
        assert_eq!(judge(STATE_HAIRPIN, true, 1), Syn::Follows);
        assert_eq!(judge(STATE_CONFIRMED, false, 1), Syn::Follows);
        assert_eq!(judge(STATE_CONFIRMED | STATE_CLOSED, true, 0), Syn::Anew);
        assert_eq!(judge(STATE_CLOSED, true, 0), Syn::Anew);
        let tried = choice.tried_with(Tried(0b100), 17);
        assert_eq!(tried, Tried(if retries == 1 { 0b110 } else { 0 }));
    }
}

#[test]
fn a_set_has_the_targets_it_was_made_of() {
    let made: Set = [0, 63, 64, 255, 256, 999].into_iter().collect();
    let found: Vec<_> = (0..1000).filter(|&target| made.contains(target)).collect();
    assert_eq!(found, [0, 63, 64, 255]);
}

#[test]
fn the_vectors_are_the_same_every_time_and_meet_every_outcome() {
    let seen: Vec<_> = vectors().iter().map(|v| v.decision).collect();
    assert_eq!(
        seen,
        vectors().iter().map(|v| v.decision).collect::<Vec<_>>()
    );
    for why in [
        Why::NoneUsable,
        Why::OnlyOne,
        Why::Weighted,
        Why::Best,
        Why::Random,
        Why::Hash,
        Why::Retried,
        Why::RandomTwo,
        Why::Turn,
    ] {
        assert!(
            seen.iter().filter(|d| d.why == why).count() >= 10,
            "{why:?} must occur often enough to mean something"
        );
    }
    for count in [1, 16, 17, 255, 256] {
        let among = vectors()
            .into_iter()
            .filter(|v| v.candidates.len() == count);
        assert!(among.count() >= 100, "choices among {count}");
    }
    assert!((0..16).all(|i| seen.iter().any(|d| d.target == Some(i))));
    assert!(seen.iter().any(|d| d.target > Some(200)));
    assert_eq!(hash_vectors().len(), 256);
}

#[test]
fn every_reason_has_a_name_a_fate_and_words() {
    let find = |name| {
        reasons()
            .iter()
            .find(|r| r.name == name)
            .expect("the reason exists")
    };
    assert_eq!(find("TRANSLATED_OUT").fate, Fate::Sent);
    assert_eq!(find("NO_LINK").fate, Fate::Refused);
    assert!(reasons().iter().all(|r| !r.words.is_empty()));
}

/// Times are told in units of four seconds.
#[test]
fn a_session_is_forgotten_when_no_flow_has_begun_for_so_long() {
    const NS: u64 = 1_000_000_000;
    let choice = Choice {
        session_ns: 60 * NS,
        ..Choice::round_robin(2, 0b11)
    };
    let word = session_word(7, 1, 1000 * NS);
    for (seconds, link) in [
        (1000, Some(1)),
        (1059, Some(1)),
        (1069, None),
        (400_000, None),
    ] {
        assert_eq!(
            choice.session_link(word, 7, seconds * NS),
            link,
            "{seconds} s"
        );
    }
    assert_eq!(choice.session_link(word, u64::MAX, 1000 * NS), None);
    assert_eq!(
        Choice::round_robin(2, 0b11).session_link(word, 7, 100_000 * NS),
        Some(1)
    );
}
