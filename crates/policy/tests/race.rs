//! What a race promises, whatever its links and whoever answers first.

use anabranch_policy::abi::{Answer, MAX_LINKS};
use anabranch_policy::tries::Attempt;
use anabranch_policy::{Choice, Gauges, NO_TABLE, Request, Syn, Why, choose_and_race};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

fn racing(usable: u64, races: u32) -> Choice {
    Choice {
        races,
        ..Choice::round_robin(MAX_LINKS as u32, usable)
    }
}

fn raced(choice: &Choice, draw: u32) -> (u16, u32) {
    let request = Request {
        race: true,
        draw,
        ..Request::default()
    };
    let (decision, race_copies, _) =
        choose_and_race(choice, &Gauges::default(), &NO_TABLE, &request);
    assert_eq!(decision.why, Why::Race);
    (decision.target.expect("a link"), race_copies)
}

fn links(attempt: &Attempt) -> u32 {
    attempt
        .others()
        .fold(1 << attempt.link(), |all, link| all | 1 << link)
}

/// Two at least.
fn several() -> impl Strategy<Value = u32> {
    (1..1u32 << MAX_LINKS).prop_filter("several links", |links| links.count_ones() > 1)
}

proptest! {
    #[test]
    fn the_first_answer_of_any_link_wins_and_all_others_come_late(
        usable in several(),
        draw in any::<u32>(),
        answers in prop::collection::vec(0..MAX_LINKS as u16, 1..40),
    ) {
        let (first, race_copies) = raced(&racing(usable.into(), 1), draw);
        let mut attempt = Attempt::race(first, race_copies);
        let mut winner = None;
        for link in answers {
            let expected = match winner {
                _ if usable >> link & 1 == 0 => Answer::Foreign,
                None => Answer::First,
                Some(winner) if winner == link => Answer::Again,
                Some(_) => Answer::Late,
            };
            prop_assert_eq!(attempt.answer(link), expected);
            if expected == Answer::First {
                winner = Some(link);
                prop_assert_eq!(attempt.link(), link);
            }
            prop_assert_eq!(links(&attempt), usable, "no try is lost, and none is made up");
            prop_assert_eq!(attempt.is_open(), winner.is_none());
        }
    }

    #[test]
    fn a_race_that_goes_on_elsewhere_gives_no_link_up(
        usable in several(),
        draw in any::<u32>(),
        onward in prop::collection::vec(0..MAX_LINKS as u16, 1..20),
    ) {
        let (first, race_copies) = raced(&racing(usable.into(), 1), draw);
        let mut attempt = Attempt::race(first, race_copies);
        let mut all = usable;
        for next in onward {
            prop_assert_eq!(attempt.go_on(next), None);
            all |= 1 << next;
            prop_assert_eq!((attempt.link(), links(&attempt)), (next, all));
        }
    }

    #[test]
    fn links_take_turns_in_being_the_first_of_all_that_take_new_flows(usable in several()) {
        let choice = racing(usable.into(), 1);
        let count = usable.count_ones();
        let mut firsts = Vec::new();
        for draw in 0..2 * count {
            let (first, race_copies) = raced(&choice, draw);
            prop_assert_eq!(race_copies | 1 << first, usable);
            prop_assert_eq!(race_copies >> first & 1, 0);
            let order: Vec<_> = Attempt::race(first, race_copies).others().collect();
            prop_assert!(order.is_sorted_by_key(|link| (link + 16 - first) % 16), "{:?}", order);
            firsts.push(first);
        }
        let expected: Vec<_> = (0..16).filter(|link| usable >> link & 1 == 1).collect();
        prop_assert_eq!(&firsts[..expected.len()], &expected[..]);
        prop_assert_eq!(&firsts[expected.len()..], &expected[..]);
    }

    #[test]
    fn no_class_has_more_races_than_its_rate_and_those_of_one_second(
        races in 1..1000u32,
        gaps in prop::collection::vec(0..SECOND / 50, 1..400),
    ) {
        let choice = racing(0b11, races);
        let (mut full, mut now, mut granted) = (0, SECOND, 0u64);
        for gap in gaps {
            now += gap;
            if let Some(next) = choice.spend_race(full, now) {
                prop_assert!(next > full);
                full = next;
                granted += 1;
            }
            let allowed = u64::from(races) + (now - SECOND) * u64::from(races) / SECOND + 1;
            prop_assert!(granted <= allowed, "{granted} of {allowed}");
        }
    }
}

#[test]
fn a_class_that_has_not_raced_for_a_second_has_all_its_races_again() {
    let choice = racing(0b11, 3);
    let (mut full, mut granted) = (0, Vec::new());
    for now in [SECOND, 3 * SECOND] {
        while let Some(next) = choice.spend_race(full, now) {
            full = next;
            granted.push(now);
        }
    }
    assert_eq!(granted, [[SECOND; 3], [3 * SECOND; 3]].concat());
}

#[test]
fn what_is_bound_or_carries_data_or_is_of_a_class_without_races_does_not_race() {
    let choice = racing(0b11, 1);
    let free = Request::default();
    assert!(choice.may_race(&free, 0));
    assert!(!choice.may_race(&free, 1), "its SYN carries data");
    assert!(!racing(0b11, 0).may_race(&free, 0));
    let one = Some(1);
    for bound in [
        Request { route: one, ..free },
        Request {
            session: one,
            ..free
        },
        Request {
            endpoint: one,
            ..free
        },
    ] {
        assert!(!choice.may_race(&bound, 0), "{bound:?}");
    }
}

#[test]
fn one_usable_link_is_no_race() {
    let request = Request {
        race: true,
        ..Request::default()
    };
    let alone = racing(0b100, 1);
    let (decision, race_copies, _) =
        choose_and_race(&alone, &Gauges::default(), &NO_TABLE, &request);
    assert_eq!((decision.why, race_copies), (Why::OnlyOne, 0));
}

#[test]
fn a_repeated_syn_of_a_race_takes_the_same_links_again_unless_its_own_is_gone() {
    let choice = Choice {
        syn_retry: 1,
        ..racing(0b011, 1)
    };
    let judge = |attempt| choice.judge_syn(0, true, &attempt);
    assert_eq!(judge(Attempt::new(0)), Syn::GoesOn);
    assert_eq!(judge(Attempt::race(0, 0b010)), Syn::Again);
    assert_eq!(judge(Attempt::race(2, 0b011)), Syn::GoesOn);
}

proptest! {
    #[test]
    fn of_probes_the_first_to_be_answered_has_the_syn_and_no_other_is_left(
        usable in several(),
        draw in any::<u32>(),
        answers in prop::collection::vec(0..MAX_LINKS as u16, 1..40),
    ) {
        let choice = Choice { holds: 1, ..racing(usable.into(), 1) };
        let request = Request { race: true, draw, ..Request::default() };
        let (decision, race_copies, _) = choose_and_race(&choice, &Gauges::default(), &NO_TABLE, &request);
        prop_assert_eq!(decision.why, Why::Probed);
        let mut attempt = Attempt::probe(decision.target.expect("a link"), race_copies);
        prop_assert_eq!(links(&attempt), usable);
        for link in answers {
            let is_first = attempt.waits() && usable >> link & 1 == 1;
            let before = attempt;
            prop_assert_eq!(attempt.answer_probe(link), is_first);
            if is_first {
                prop_assert_eq!(attempt, Attempt::new(link));
            } else {
                prop_assert_eq!(attempt, before);
            }
        }
    }
}

#[test]
fn a_syn_that_is_repeated_while_it_waits_begins_anew() {
    for syn_retry in [0, 1] {
        let choice = Choice {
            syn_retry,
            ..racing(0b11, 1)
        };
        let attempt = Attempt::probe(0, 0b10);
        assert_eq!(choice.judge_syn(0, true, &attempt), Syn::Anew);
    }
}
