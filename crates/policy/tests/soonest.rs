//! The least expected time of a flow, whatever the numbers.

use anabranch_policy::abi::{MAX_LINKS, WEIGHT_MAX, WEIGHT_MIN};
use anabranch_policy::paths::Known;
use anabranch_policy::{
    Candidate, Choice, Decision, Dispatch, Gauges, NO_TABLE, Request, Why, choose,
};
use proptest::prelude::*;

/// What one link is to a flow.
#[derive(Clone, Copy, Debug)]
struct Link {
    weight: u32,
    active: u64,
    is_usable: bool,
    /// None where it is not known for the destination.
    response_us: Option<u32>,
}

fn link() -> impl Strategy<Value = Link> {
    let weight = prop_oneof![WEIGHT_MIN..=WEIGHT_MAX, Just(WEIGHT_MAX), any::<u32>()];
    let active = prop_oneof![0..4u64, 0..100_000u64, any::<u32>().prop_map(u64::from)];
    let response_us = prop::option::of(prop_oneof![0..2_000_000u32, any::<u32>()]);
    let parts = (weight, active, prop::bool::weighted(0.8), response_us);
    parts.prop_map(|(weight, active, is_usable, response_us)| Link {
        weight,
        active,
        is_usable,
        response_us,
    })
}

fn class(links: &[Link], flow_us: u32, rounds: u32) -> (Choice, Gauges, Request) {
    let candidates: Vec<_> = links
        .iter()
        .map(|link| Candidate {
            weight: link.weight,
            load: 0,
            usable: link.is_usable,
        })
        .collect();
    let (choice, mut gauges) = Choice::among(Dispatch::Soonest, &candidates);
    let choice = Choice {
        flow_us,
        rounds,
        ..choice
    };
    let mut known = Known::default();
    for (i, link) in links.iter().enumerate() {
        gauges.target[i].opened = link.active;
        if let Some(response_us) = link.response_us {
            known.fresh |= 1 << i;
            known.response_us[i] = response_us;
        }
    }
    let request = Request {
        known,
        ..Request::default()
    };
    (choice, gauges, request)
}

fn decide(links: &[Link], flow_us: u32, rounds: u32) -> Decision {
    let (choice, gauges, request) = class(links, flow_us, rounds);
    choose(&choice, &gauges, &NO_TABLE, &request)
}

/// As docs/adaptive.md has it, in us.
fn expected_us(link: &Link, flow_us: u32, rounds: u32, is_known: bool) -> u128 {
    let response = u128::from(link.response_us.filter(|_| is_known).unwrap_or(0));
    let sharing = u128::from(link.active.min(0xffff)) + 1;
    let weight = u128::from(link.weight.clamp(WEIGHT_MIN, WEIGHT_MAX));
    let shared = u128::from(flow_us) * sharing * u128::from(WEIGHT_MAX) / weight;
    u128::from(rounds) * response + shared
}

proptest! {
    #[test]
    fn of_the_links_that_are_known_the_one_takes_the_flow_that_is_done_first(
        links in prop::collection::vec(link(), 1..=MAX_LINKS),
        flow_us in 0..=60_000_000u32,
        rounds in 0..32u32,
    ) {
        let usable: Vec<usize> = (0..links.len()).filter(|i| links[*i].is_usable).collect();
        let known: Vec<usize> = usable.iter().copied().filter(|i| links[*i].response_us.is_some()).collect();
        let among = if known.is_empty() { &usable } else { &known };
        let soonest = among
            .iter()
            .min_by_key(|i| expected_us(&links[**i], flow_us, rounds, !known.is_empty()));
        let decision = decide(&links, flow_us, rounds);
        // With none usable, all are: trying beats refusing.
        match usable.len() {
            0 => prop_assert_eq!(decision.target, None),
            1 => prop_assert_eq!(decision, Decision { target: Some(usable[0] as u16), why: Why::OnlyOne }),
            _ => prop_assert_eq!(decision, Decision { target: soonest.map(|i| *i as u16), why: Why::Soonest }),
        }
    }
}

fn alike(active: u64) -> Link {
    Link {
        weight: WEIGHT_MAX,
        active,
        is_usable: true,
        response_us: Some(10_000),
    }
}

#[test]
fn a_flow_waits_for_no_round_trips_where_sharing_a_link_takes_less() {
    let far = Link {
        response_us: Some(110_000),
        ..alike(0)
    };
    // Four round trips of 100 ms more, against flows of 100 ms each.
    assert_eq!(decide(&[alike(3), far], 100_000, 4).target, Some(0));
    assert_eq!(decide(&[alike(5), far], 100_000, 4).target, Some(1));
}

#[test]
fn what_is_not_known_is_asked_where_flows_do_not_race() {
    let (mut choice, gauges, mut request) = class(&[alike(0), alike(0)], 40_000, 4);
    request.known.fresh = 0b01;
    request.known.unknown = 0b10;
    choice.lifetime_ns = 1;
    let asks = choose(&choice, &gauges, &NO_TABLE, &request);
    assert_eq!((asks.target, asks.why), (Some(1), Why::Unknown));
    choice.races = 1;
    assert!(choice.may_race(&request, 0));
    let beyond_the_rate = choose(&choice, &gauges, &NO_TABLE, &request);
    assert_eq!(
        (beyond_the_rate.target, beyond_the_rate.why),
        (Some(0), Why::Soonest)
    );
    request.known.unknown = 0;
    assert!(!choice.may_race(&request, 0), "there is nothing to ask");
    request.known.untold = true;
    assert!(choice.may_race(&request, 0), "nothing was ever told");
}
