//! What a choice promises, whatever the numbers.

use std::net::{IpAddr, Ipv4Addr};

use anabranch_policy::abi::{Addr, MAX_LINKS, WEIGHT_MAX, WEIGHT_MIN};
use anabranch_policy::{
    Candidate, Candidates, Decision, Dispatch, Fate, Request, Why, flow_hash, hash_vectors, pick,
    reasons, vectors,
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

fn candidates() -> impl Strategy<Value = Candidates> {
    prop::collection::vec(candidate(), 0..=MAX_LINKS).prop_map(Candidates::from_iter)
}

fn dispatch() -> impl Strategy<Value = Dispatch> {
    prop::sample::select(vec![
        Dispatch::Weighted,
        Dispatch::Best,
        Dispatch::Random,
        Dispatch::Hash,
    ])
}

fn request() -> impl Strategy<Value = Request> {
    (dispatch(), any::<u16>(), any::<u32>(), any::<u32>()).prop_map(
        |(dispatch, avoid, hash, random)| Request {
            dispatch,
            avoid: avoid.into(),
            hash,
            random,
        },
    )
}

/// The pool in words: usable and not avoided, or all usable if that leaves none.
fn pool(candidates: &Candidates, avoid: u32) -> (Vec<usize>, bool) {
    let usable: Vec<_> = (0..candidates.count as usize)
        .filter(|i| candidates.usable >> i & 1 == 1)
        .collect();
    let left: Vec<_> = usable
        .iter()
        .copied()
        .filter(|i| avoid >> i & 1 == 0)
        .collect();
    if left.is_empty() {
        (usable, true)
    } else {
        (left, false)
    }
}

/// The choice as its table of rules says it, with 128-bit rational comparison.
fn model(candidates: &Candidates, request: &Request) -> Decision {
    let (pool, retried) = pool(candidates, request.avoid);
    let weight = |i: usize| u128::from(candidates.weight[i].clamp(WEIGHT_MIN, WEIGHT_MAX));
    let load = |i: usize| u128::from(candidates.load[i]);
    let by_ratio = |a: &usize, b: &usize| (load(*a) * weight(*b)).cmp(&(load(*b) * weight(*a)));
    let by_weight = |a: &usize, b: &usize| weight(*b).cmp(&weight(*a));
    let by_load = |a: &usize, b: &usize| load(*a).cmp(&load(*b));
    let nth = |n: u64| pool.get(n as usize).copied();
    let size = pool.len() as u64;
    let (target, why) = match request.dispatch {
        _ if pool.is_empty() => {
            return Decision {
                target: None,
                why: Why::NoneUsable,
            };
        }
        Dispatch::Weighted => (
            pool.iter()
                .copied()
                .min_by(|a, b| by_ratio(a, b).then(by_weight(a, b)).then(a.cmp(b))),
            Why::Weighted,
        ),
        Dispatch::Best => (
            pool.iter()
                .copied()
                .min_by(|a, b| by_weight(a, b).then(by_load(a, b)).then(a.cmp(b))),
            Why::Best,
        ),
        Dispatch::Random => (nth((u64::from(request.random) * size) >> 32), Why::Random),
        Dispatch::Hash => (nth(u64::from(request.hash) % size), Why::Hash),
    };
    let why = match (retried, size) {
        (true, _) => Why::Retried,
        (false, 1) => Why::OnlyOne,
        _ => why,
    };
    Decision {
        target: target.map(|i| i as u8),
        why,
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
        let decision = pick(&all.collect(), &Request::new(Dispatch::Weighted));
        loads[usize::from(decision.target.unwrap())] += 1;
        each(flow, &loads);
    }
}

proptest! {
    #[test]
    fn a_choice_is_what_the_rules_say(c in candidates(), q in request()) {
        prop_assert_eq!(pick(&c, &q), model(&c, &q));
    }

    #[test]
    fn a_target_that_is_not_usable_is_never_chosen(c in candidates(), q in request()) {
        if let Some(target) = pick(&c, &q).target {
            prop_assert!(u32::from(target) < c.count && c.usable >> target & 1 == 1);
        } else {
            prop_assert_eq!(pool(&c, 0).0.len(), 0);
        }
    }

    #[test]
    fn a_target_that_failed_the_flow_is_chosen_only_if_all_have(c in candidates(), q in request()) {
        let decision = pick(&c, &q);
        if let Some(target) = decision.target {
            prop_assert!(q.avoid >> target & 1 == 0 || decision.why == Why::Retried);
        }
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
}

#[test]
fn the_reference_crc_gives_the_published_check_value() {
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
}

#[test]
fn flows_hash_evenly_over_three_targets() {
    let c: Candidates = [Candidate {
        weight: 1,
        load: 0,
        usable: true,
    }; 3]
        .into_iter()
        .collect();
    let mut counts = [0u32; 3];
    for port in 0..30_000u16 {
        let hash = flow_hash(
            Ipv4Addr::new(10, 0, 0, 2).into(),
            Ipv4Addr::new(192, 0, 2, 1).into(),
            port,
            443,
        );
        counts[usize::from(
            pick(
                &c,
                &Request {
                    hash,
                    ..Request::new(Dispatch::Hash)
                },
            )
            .target
            .unwrap(),
        )] += 1;
    }
    assert!(
        counts.iter().all(|count| count.abs_diff(10_000) < 400),
        "{counts:?}: five standard deviations are 408"
    );
}

#[test]
fn random_numbers_spread_over_the_usable_targets_in_equal_parts() {
    let mut c: Candidates = [Candidate {
        weight: 1,
        load: 0,
        usable: true,
    }; 4]
        .into_iter()
        .collect();
    c.usable = 0b1011;
    let mut counts = [0u32; 4];
    for step in 0..3000u32 {
        let random = step * (u32::MAX / 3000);
        counts[usize::from(
            pick(
                &c,
                &Request {
                    random,
                    ..Request::new(Dispatch::Random)
                },
            )
            .target
            .unwrap(),
        )] += 1;
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
    ] {
        assert!(
            seen.iter().filter(|d| d.why == why).count() >= 10,
            "{why:?} must occur often enough to mean something"
        );
    }
    assert!((0..MAX_LINKS as u8).all(|i| seen.iter().any(|d| d.target == Some(i))));
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
