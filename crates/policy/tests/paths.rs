//! What flows tell of the way to their destinations, and what becomes of that.

use std::net::IpAddr;

use anabranch_policy::abi::MAX_LINKS;
use anabranch_policy::paths::{Known, Path, Paths, Prefix, Silence, syn_sent};
use anabranch_policy::{Choice, Decision, Gauges, NO_TABLE, Request, Tried, Why, choose};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const LIFETIME: u64 = 60 * SECOND;
/// Long after the machine was started.
const NOW: u64 = 1000 * SECOND;

fn learning(usable: u64) -> Choice {
    Choice {
        lifetime_ns: LIFETIME,
        ..Choice::round_robin(MAX_LINKS as u32, usable)
    }
}

/// Links that were answered so long ago, in so many milliseconds.
fn told(answers: &[(u16, u64, u64)]) -> Paths {
    let mut paths = Paths::default();
    for &(link, ago_ns, response_ms) in answers {
        let at = NOW - ago_ns;
        let sent = syn_sent(at - response_ms * MS);
        learning(0).learn_answer(&mut paths.path[usize::from(link)], sent, at);
    }
    paths
}

fn decide(choice: &Choice, paths: Option<&Paths>, now_ns: u64, request: Request) -> Decision {
    let known = choice.know(paths, now_ns, true);
    let request = Request { known, ..request };
    choose(choice, &Gauges::default(), &NO_TABLE, &request)
}

fn decision(usable: u64, paths: &Paths) -> Decision {
    decide(&learning(usable), Some(paths), NOW, Request::default())
}

fn is(target: u16, why: Why) -> Decision {
    Decision {
        target: Some(target),
        why,
    }
}

#[test]
fn a_prefix_has_24_bits_of_ipv4_and_48_of_ipv6() {
    let prefix = |text: &str| Prefix::of(text.parse::<IpAddr>().unwrap());
    for (address, written) in [
        ("198.51.100.7", "198.51.100.0/24"),
        ("2001:db8:1:2::7", "2001:db8:1::/48"),
        ("::1", "::/48"),
        ("0.0.0.1", "0.0.0.0/24"),
    ] {
        assert_eq!(prefix(address).to_string(), written);
    }
    assert_eq!(prefix("198.51.100.7"), prefix("198.51.100.254"));
    assert_ne!(prefix("198.51.100.7"), prefix("198.51.101.7"));
    assert_eq!(prefix("2001:db8:1:2::7"), prefix("2001:db8:1:ffff::"));
    assert_ne!(prefix("2001:db8:1::"), prefix("2001:db8:2::"));
    assert_ne!(prefix("0.0.0.0"), prefix("::"), "of another family");
}

#[test]
fn of_links_that_are_known_the_fastest_takes_the_flow() {
    let paths = told(&[(0, SECOND, 80), (3, SECOND, 20), (5, 2 * SECOND, 40)]);
    assert_eq!(decision(0b10_1001, &paths), is(3, Why::Response));
    assert_eq!(decision(0b10_0001, &paths), is(5, Why::Response));
    let alike = told(&[(4, SECOND, 20), (2, SECOND, 20)]);
    assert_eq!(decision(0b1_0100, &alike), is(2, Why::Response));
}

#[test]
fn a_link_of_which_nothing_is_known_is_asked_by_one_flow_in_a_lifetime() {
    let choice = learning(0b111);
    let mut paths = told(&[(1, SECOND, 20)]);
    let decide = |paths: &Paths, now| decide(&choice, Some(paths), now, Request::default());
    for asked in [0, 2] {
        assert_eq!(decide(&paths, NOW), is(asked, Why::Unknown));
        paths.path[usize::from(asked)].asked_ns = NOW;
    }
    assert_eq!(decide(&paths, NOW), is(1, Why::Response));
    assert_eq!(
        decide(&paths, NOW + LIFETIME - 2 * SECOND),
        is(1, Why::Response)
    );
    // What was known of link 1 has expired before what was asked of the others.
    assert_eq!(decide(&paths, NOW + LIFETIME - SECOND), is(1, Why::Unknown));
    paths.path[1].asked_ns = NOW + LIFETIME - SECOND;
    assert_eq!(decide(&paths, NOW + LIFETIME), is(0, Why::Unknown));
}

#[test]
fn where_nothing_is_known_the_scheme_chooses_and_no_flow_follows_what_has_expired() {
    let choice = learning(0b11);
    let of_scheme = is(0, Why::Weighted);
    assert_eq!(decide(&choice, None, NOW, Request::default()), of_scheme);
    let mut paths = told(&[(1, LIFETIME, 20)]);
    for path in &mut paths.path {
        path.asked_ns = NOW;
    }
    assert_eq!(decision(0b11, &paths), of_scheme);
    let deaf = Choice {
        lifetime_ns: 0,
        ..choice
    };
    let known = told(&[(1, SECOND, 20)]);
    assert_eq!(
        decide(&deaf, Some(&known), NOW, Request::default()),
        of_scheme
    );
}

#[test]
fn what_goes_on_elsewhere_takes_what_is_known_and_asks_nothing() {
    let request = Request {
        tried: Tried::default().with(1),
        ..Request::default()
    };
    let paths = told(&[(1, SECOND, 20), (2, SECOND, 90)]);
    let chosen = decide(&learning(0b1111), Some(&paths), NOW, request);
    assert_eq!(chosen, is(2, Why::Response));
    let alone = told(&[(1, SECOND, 20)]);
    let chosen = decide(&learning(0b1111), Some(&alone), NOW, request);
    assert_eq!(chosen, is(0, Why::Weighted));
}

#[test]
fn what_cannot_tell_asks_nothing() {
    let choice = learning(0b11);
    let paths = told(&[(1, SECOND, 20)]);
    let known = choice.know(Some(&paths), NOW, false);
    let expected = Known {
        fresh: 0b10,
        unknown: 0,
        ..choice.know(Some(&paths), NOW, true)
    };
    assert_eq!(known, expected);
}

#[test]
fn what_binds_a_flow_comes_before_what_is_known() {
    let paths = told(&[(0, SECOND, 20), (1, SECOND, 90)]);
    let bound = Request {
        session: Some(1),
        ..Request::default()
    };
    let chosen = decide(&learning(0b11), Some(&paths), NOW, bound);
    assert_eq!(chosen, is(1, Why::Session));
}

#[test]
fn response_times_are_smoothed_while_they_are_known() {
    let mut paths = told(&[(0, 2 * SECOND, 80)]);
    let answer = |paths: &mut Paths, at: u64, response_ms: u64| {
        let sent = syn_sent(at - response_ms * MS);
        learning(0).learn_answer(&mut paths.path[0], sent, at);
        paths.path[0].response_us
    };
    assert_eq!(answer(&mut paths, NOW, 160), 90_000);
    assert_eq!(answer(&mut paths, NOW + LIFETIME, 20), 20_000);
    assert_eq!(paths.path[0].samples, 3);
}

#[test]
fn a_silence_is_no_response_and_leads_its_own_host_to_other_links_for_a_lifetime() {
    let choice = learning(0b11);
    let mut paths = Paths::default();
    for (link, response_us) in [20_000, 50_000].into_iter().enumerate() {
        paths.path[link] = Path {
            learned_ns: NOW,
            response_us,
            samples: 1,
            ..Path::default()
        };
    }
    let before = paths;
    let mut met = Silence::default();
    // Nobody's timer is so short.
    choice.learn_silence(
        &mut paths.path[0],
        &mut met,
        0,
        syn_sent(NOW),
        NOW + 100 * MS,
    );
    assert_eq!((paths, met), (before, Silence::default()));
    for round in 0..24 {
        let at = NOW + round * MS;
        choice.learn_silence(&mut paths.path[0], &mut met, 0, syn_sent(at - SECOND), at);
    }
    let told = paths.path[0];
    assert_eq!((told.response_us, told.learned_ns), (20_000, NOW));
    assert_eq!(told.failures, 1, "of one host once");

    let heeds = |met: &Silence, at| {
        let mut known = choice.know(Some(&paths), NOW, true);
        choice.heed(&mut known, met, at);
        known.fresh
    };
    assert_eq!(heeds(&Silence::default(), NOW), 0b11, "another host");
    assert_eq!(heeds(&met, NOW), 0b10);
    assert_eq!(heeds(&met, NOW + LIFETIME), 0b11);
    choice.learn_silence(
        &mut paths.path[1].clone(),
        &mut met,
        1,
        syn_sent(NOW - SECOND),
        NOW,
    );
    assert_eq!(heeds(&met, NOW), 0b11, "silent everywhere");
    let again = NOW + LIFETIME;
    choice.learn_silence(
        &mut paths.path[1].clone(),
        &mut met,
        1,
        syn_sent(again - SECOND),
        again,
    );
    assert_eq!((met.links, met.since_ns), (0b10, again));
}

#[test]
fn counts_stop_at_their_greatest_number() {
    let mut path = Path {
        samples: u16::MAX,
        failures: u16::MAX,
        ..Path::default()
    };
    let sent = syn_sent(NOW - SECOND);
    learning(0).learn_answer(&mut path, sent, NOW);
    learning(0).learn_silence(&mut path, &mut Silence::default(), 0, sent, NOW);
    assert_eq!((path.samples, path.failures), (u16::MAX, u16::MAX));
}

#[test]
fn the_time_of_a_syn_is_told_when_the_word_for_it_begins_again() {
    let wraps_ns = (1u64 << 32) * 1000;
    assert_eq!(syn_sent(wraps_ns), 1, "never 0");
    let mut path = Path::default();
    let (before, after) = (wraps_ns - 10 * MS, wraps_ns + 10 * MS);
    learning(0).learn_answer(&mut path, syn_sent(before), after);
    assert_eq!(path.response_us, 20_000);
}

/// What a flow to the prefix meets over the link it takes.
#[derive(Clone, Copy, Debug)]
enum Met {
    Answer(u64),
    Silence,
}

fn met() -> impl Strategy<Value = Met> {
    prop_oneof![(1..2000u64).prop_map(Met::Answer), Just(Met::Silence)]
}

proptest! {
    #[test]
    fn n_links_cost_n_flows_in_a_lifetime_and_all_others_take_the_fastest_that_is_known(
        usable in 1..1u64 << MAX_LINKS,
        flows in prop::collection::vec((0..2 * SECOND, met()), 1..300),
    ) {
        let choice = learning(usable);
        let mut paths = Paths::default();
        let mut asked = [None; MAX_LINKS];
        let mut now = NOW;
        for (gap, met) in flows {
            now += gap;
            let chosen = decide(&choice, Some(&paths), now, Request::default());
            let link = usize::from(chosen.target.unwrap());
            prop_assert_eq!(usable >> link & 1, 1);
            let fresh = |path: &Path| path.learned_ns != 0 && now < path.learned_ns + LIFETIME;
            match chosen.why {
                Why::Unknown => {
                    prop_assert!(asked[link].is_none_or(|at| at + LIFETIME <= now));
                    prop_assert!(!fresh(&paths.path[link]));
                    asked[link] = Some(now);
                    paths.path[link].asked_ns = now;
                }
                Why::Response => {
                    prop_assert!(fresh(&paths.path[link]));
                    let links = (0..MAX_LINKS).filter(|link| usable >> link & 1 == 1);
                    let known = links.map(|link| &paths.path[link]).filter(|path| fresh(path));
                    let least = known.map(|path| path.response_us).min();
                    prop_assert_eq!(Some(paths.path[link].response_us), least);
                }
                why => prop_assert!(matches!(why, Why::Weighted | Why::OnlyOne), "{why:?}"),
            }
            let path = &mut paths.path[link];
            match met {
                Met::Answer(ms) => choice.learn_answer(path, syn_sent(now), now + ms * MS),
                Met::Silence => {
                    let met = &mut Silence::default();
                    choice.learn_silence(path, met, link as u16, syn_sent(now), now + SECOND);
                }
            }
        }
    }
}
