//! Checks in virtual time: what brings a subject up and down, and what a reload leaves as it is.

use std::sync::Arc;
use std::time::Duration;

use anabranch_core::checks::{Ask, Check, Checks, Health, Outcome, Schedule, Test};
use anabranch_core::{Family, Time};
use proptest::prelude::*;

const S: fn(u64) -> Duration = Duration::from_secs;
const SUBJECT: &str = "fiber";

fn schedule() -> Schedule {
    Schedule {
        interval: S(10),
        jitter: 20,
        timeout: S(2),
    }
}

fn command(name: &str) -> Test {
    Test::Command(Arc::new([name.to_owned()]))
}

fn check(tests: &[&str], rise: u32, fall: u32, quorum: usize) -> Check {
    Check {
        tests: tests.iter().map(|name| command(name)).collect(),
        schedule: schedule(),
        rise,
        fall,
        quorum,
    }
}

fn checks(of: Vec<Check>) -> Checks<&'static str> {
    let mut checks = Checks::new(7);
    checks.set(Time::ZERO, [(SUBJECT, of)]);
    checks
}

fn failure() -> Outcome {
    Outcome::Failure("no".to_owned())
}

fn outcome(succeeds: bool) -> Outcome {
    match succeeds {
        true => Outcome::Success,
        false => failure(),
    }
}

/// The next test, whenever it is due.
fn next(checks: &mut Checks<&'static str>) -> Ask<&'static str> {
    let due = checks.next_timeout().unwrap();
    checks.poll_ask(due).unwrap()
}

fn tell(checks: &mut Checks<&'static str>, outcome: Outcome) -> Health {
    let ask = next(checks);
    checks.handle(Time::ZERO, ask.id, outcome);
    checks.health(&SUBJECT)
}

/// The last of `told` are so many alike.
fn ends_with(told: &[bool], succeeds: bool, count: u32) -> bool {
    let alike = told
        .iter()
        .rev()
        .take_while(|one| **one == succeeds)
        .count();
    alike >= count as usize
}

proptest! {
    #[test]
    fn it_turns_only_after_so_many_in_a_row_and_always_then(
        told in prop::collection::vec(any::<bool>(), 1..60),
        rise in 1..6u32,
        fall in 1..6u32,
    ) {
        let mut checks = checks(vec![check(&["a"], rise, fall, 1)]);
        let mut before = checks.health(&SUBJECT);
        for length in 1..=told.len() {
            let told = &told[..length];
            let health = tell(&mut checks, outcome(told[length - 1]));
            if ends_with(told, true, rise) {
                prop_assert_eq!(health, Health::Up);
            } else if ends_with(told, false, fall) {
                prop_assert_eq!(health, Health::Down);
            } else {
                prop_assert_eq!(health, before);
            }
            before = health;
        }
    }

    #[test]
    fn what_was_not_made_changes_nothing(told in prop::collection::vec(any::<Option<bool>>(), 1..60)) {
        let whole = || vec![check(&["a"], 3, 3, 1)];
        let (mut with, mut without) = (checks(whole()), checks(whole()));
        for one in told {
            match one {
                Some(succeeds) => {
                    let other = tell(&mut without, outcome(succeeds));
                    prop_assert_eq!(tell(&mut with, outcome(succeeds)), other);
                }
                None => {
                    let before = with.health(&SUBJECT);
                    let inconclusive = Outcome::Inconclusive("no route".to_owned());
                    prop_assert_eq!(tell(&mut with, inconclusive), before);
                }
            }
        }
    }

    /// By what each of the tests is up, in any order: one more up is never worse, and so is a smaller quorum.
    #[test]
    fn more_tests_that_are_up_are_never_worse(
        up in prop::collection::vec(any::<Option<bool>>(), 1..6),
        better in 0..6usize,
        quorum in 1..7usize,
    ) {
        let names = ["a", "b", "c", "d", "e", "f"];
        let health = |up: &[Option<bool>], quorum: usize| {
            let mut checks = checks(vec![check(&names[..up.len()], 1, 1, quorum)]);
            for _ in up {
                let ask = next(&mut checks);
                let index = names.iter().position(|name| ask.test == command(name)).unwrap();
                if let Some(succeeds) = up[index] {
                    checks.handle(Time::ZERO, ask.id, outcome(succeeds));
                }
            }
            checks.health(&SUBJECT)
        };
        let mut more = up.clone();
        let index = better % up.len();
        more[index] = Some(true);
        prop_assert!(health(&more, quorum) >= health(&up, quorum));
        prop_assert!(health(&up, quorum) >= health(&up, quorum + 1));
        let is_up = |one: &&Option<bool>| **one == Some(true);
        let enough = up.iter().filter(is_up).count() >= quorum.min(up.len());
        prop_assert_eq!(health(&up, quorum) == Health::Up, enough);
    }

    #[test]
    fn a_reload_that_changes_nothing_changes_nothing(
        told in prop::collection::vec(any::<bool>(), 0..40),
        seed in any::<u64>(),
    ) {
        let wanted = || vec![check(&["a", "b"], 2, 3, 1), check(&["c"], 1, 2, 1), check(&["a"], 1, 1, 1)];
        let mut checks = Checks::new(seed);
        checks.set(Time::ZERO, [(SUBJECT, wanted())]);
        for succeeds in told {
            tell(&mut checks, outcome(succeeds));
        }
        let under_way = next(&mut checks);
        let mut reloaded = checks.clone();
        let now = checks.next_timeout().unwrap();
        reloaded.set(now, [(SUBJECT, wanted())]);
        prop_assert_eq!(reloaded.status(&SUBJECT), checks.status(&SUBJECT));
        prop_assert_eq!(reloaded.next_timeout(), checks.next_timeout());
        reloaded.handle(Time::ZERO, under_way.id, failure());
        checks.handle(Time::ZERO, under_way.id, failure());
        prop_assert_eq!(reloaded.status(&SUBJECT), checks.status(&SUBJECT));
    }

    #[test]
    fn a_test_is_made_within_its_jitter(seed in any::<u64>(), jitter in 0..=50u32, interval_ms in 100..100_000u64) {
        let schedule = Schedule {
            interval: Duration::from_millis(interval_ms),
            jitter,
            timeout: Duration::from_millis(50),
        };
        let mut checks = Checks::new(seed);
        let one = Check { schedule, ..check(&["a"], 1, 1, 1) };
        checks.set(Time::ZERO, [(SUBJECT, vec![one])]);
        let mut asked = checks.next_timeout().unwrap();
        prop_assert!(asked.since(Time::ZERO) <= schedule.spread());
        for _ in 0..50 {
            let ask = checks.poll_ask(asked).unwrap();
            checks.handle(Time::ZERO, ask.id, Outcome::Success);
            let after = checks.next_timeout().unwrap().since(asked);
            prop_assert!(after >= schedule.interval - schedule.spread());
            prop_assert!(after <= schedule.interval + schedule.spread());
            asked = asked + after;
        }
    }
}

#[test]
fn those_that_begin_together_do_not_stay_together() {
    let mut checks = Checks::new(1);
    let wanted = (0..50).map(|subject| (subject, vec![check(&["a"], 1, 1, 1)]));
    checks.set(Time::ZERO, wanted);
    let half = Time::ZERO + schedule().spread() / 2;
    let soon = std::iter::from_fn(|| checks.poll_ask(half)).count();
    assert!((10..40).contains(&soon), "{soon}");
}

#[test]
fn it_is_down_with_its_first_check_that_is_and_says_why() {
    let mut checks = checks(vec![check(&["a", "b"], 1, 1, 1), check(&["c"], 1, 1, 1)]);
    assert_eq!(checks.health(&SUBJECT), Health::Unknown);
    for _ in 0..3 {
        tell(&mut checks, Outcome::Success);
    }
    assert_eq!(
        (checks.health(&SUBJECT), checks.failing(&SUBJECT)),
        (Health::Up, None)
    );
    let fail = |checks: &mut Checks<_>, name| loop {
        let ask = next(checks);
        let is_meant = ask.test == command(name);
        checks.handle(Time::ZERO, ask.id, outcome(!is_meant));
        if is_meant {
            break;
        }
    };
    fail(&mut checks, "a");
    assert_eq!(checks.health(&SUBJECT), Health::Up, "b answers");
    fail(&mut checks, "c");
    assert_eq!(checks.health(&SUBJECT), Health::Down);
    let failing = checks.failing(&SUBJECT).unwrap();
    assert_eq!(
        (failing.test, failing.words.as_deref()),
        (command("c"), Some("no"))
    );
}

#[test]
fn a_test_is_not_begun_again_while_it_is_under_way_and_is_told_of_once() {
    let mut checks = checks(vec![check(&["a"], 1, 1, 1)]);
    let ask = next(&mut checks);
    assert_eq!(checks.next_timeout(), None);
    let late = Time::ZERO + S(100);
    assert_eq!(checks.poll_ask(late), None);
    checks.withdraw(ask.id);
    checks.handle(Time::ZERO, ask.id, failure());
    assert_eq!(checks.health(&SUBJECT), Health::Unknown);
    let ask = checks.poll_ask(late).unwrap();
    checks.handle(Time::ZERO, ask.id, Outcome::Success);
    checks.handle(Time::ZERO, ask.id, failure());
    assert_eq!(checks.health(&SUBJECT), Health::Up);
}

#[test]
fn a_test_that_is_not_made_again_and_again_is_told() {
    let mut checks = checks(vec![check(&["a"], 1, 2, 1)]);
    let inconclusive = || Outcome::Inconclusive("no helper".to_owned());
    tell(&mut checks, inconclusive());
    assert_eq!(checks.not_made().count(), 0);
    tell(&mut checks, inconclusive());
    let told = checks.not_made().next().map(|(_, test)| test.words);
    assert_eq!(told.flatten().as_deref(), Some("no helper"));
    tell(&mut checks, Outcome::Success);
    assert_eq!(checks.not_made().count(), 0);
}

#[test]
fn a_reload_keeps_what_is_tested_as_before_and_begins_the_rest() {
    let mut checks = checks(vec![check(&["a", "b"], 1, 1, 2)]);
    for _ in 0..2 {
        tell(&mut checks, failure());
    }
    let now = checks.next_timeout().unwrap();
    let often = Schedule {
        interval: S(1),
        timeout: S(1) / 2,
        ..schedule()
    };
    let changed = Check {
        schedule: often,
        ..check(&["c", "b"], 2, 1, 1)
    };
    checks.set(now, [(SUBJECT, vec![changed])]);
    let health: Vec<_> = checks
        .status(&SUBJECT)
        .iter()
        .map(|test| test.health)
        .collect();
    assert_eq!(health, [Health::Unknown, Health::Down]);
    let due = checks.next_timeout().unwrap();
    assert!(
        due.since(now) <= often.spread(),
        "it does not wait for the former interval"
    );
    checks.set(now, []);
    assert_eq!(
        (checks.health(&SUBJECT), checks.next_timeout()),
        (Health::Up, None)
    );
}

#[test]
fn the_next_process_recalls_what_was_known() {
    let wanted = || vec![check(&["a", "b"], 2, 2, 2)];
    let mut before = checks(wanted());
    for _ in 0..4 {
        tell(&mut before, failure());
    }
    let known: Vec<_> = before
        .remembered()
        .map(|(_, test, health)| (test.clone(), health))
        .collect();
    let mut after = checks(wanted());
    after.recall(|_, test| {
        known
            .iter()
            .find(|(known, _)| known == test)
            .map(|(_, health)| *health)
    });
    assert_eq!(after.health(&SUBJECT), Health::Down);
    assert_eq!(
        tell(&mut after, Outcome::Success),
        Health::Down,
        "one of two successes"
    );
}

#[test]
fn a_family_is_checked_by_what_can_be_asked_of_it() {
    let mut both = check(&["a"], 1, 1, 2);
    both.tests
        .push(Test::Target("icmp:2001:db8::1".parse().unwrap()));
    assert_eq!(both.of(Family::V6).as_ref(), Some(&both));
    assert_eq!(both.of(Family::V4).unwrap().tests, [command("a")]);
    let six = Check {
        tests: both.tests.split_off(1),
        ..both
    };
    assert_eq!(six.of(Family::V4), None);
}

#[test]
fn a_test_that_two_checks_take_over_under_way_is_told_to_both_and_made_again_by_both() {
    let mut checks = checks(vec![check(&["a"], 1, 1, 1)]);
    let under_way = next(&mut checks);
    let wanted = vec![check(&["a"], 1, 2, 1), check(&["a"], 1, 3, 1)];
    checks.set(Time::ZERO, [(SUBJECT, wanted)]);
    checks.handle(Time::ZERO, under_way.id, failure());
    for in_a_row in [1, 2] {
        let known: Vec<u32> = checks
            .status(&SUBJECT)
            .iter()
            .map(|test| test.in_a_row)
            .collect();
        assert_eq!(known, [in_a_row; 2]);
        for _ in 0..2 {
            tell(&mut checks, failure());
        }
    }
}

const MS: fn(u64) -> Duration = Duration::from_millis;

/// One that is up, and was last tested with success at the time that is returned, when that took `took`.
fn suspected(took: Duration, fall: u32) -> (Checks<&'static str>, Time) {
    let mut checks = checks(vec![check(&["a"], 1, fall, 1)]);
    let due = checks.next_timeout().unwrap();
    let ask = checks.poll_ask(due).unwrap();
    checks.handle(due + took, ask.id, Outcome::Success);
    (checks, due + took)
}

#[test]
fn a_test_took_as_long_as_its_last_success_unless_a_failure_came_after_it() {
    let (mut checks, _) = suspected(MS(7), 3);
    assert_eq!(checks.took(&SUBJECT), Some(MS(7)));
    assert_eq!(checks.took(&"another"), None);
    let due = checks.next_timeout().unwrap();
    let ask = checks.poll_ask(due).unwrap();
    assert_eq!(checks.took(&SUBJECT), Some(MS(7)), "while the next is made");
    checks.handle(due + MS(1), ask.id, Outcome::Failure(String::new()));
    assert_eq!(checks.took(&SUBJECT), None);
}

#[test]
fn who_is_suspected_is_tested_at_once_and_until_the_row_is_long_enough() {
    let (mut checks, now) = suspected(MS(1), 3);
    let regular = checks.next_timeout().unwrap();
    checks.suspect(now, &SUBJECT, true);
    let mut at = now;
    for failed in 1..=3 {
        assert_eq!(checks.next_timeout(), Some(at), "after {failed}");
        let ask = checks.poll_ask(at).unwrap();
        assert_eq!(ask.timeout, schedule().timeout / 6);
        checks.suspect(at, &SUBJECT, true);
        checks.handle(at + MS(1), ask.id, failure());
        at = at + MS(100);
    }
    assert_eq!(checks.health(&SUBJECT), Health::Down);
    checks.suspect(at, &SUBJECT, true);
    assert_eq!(checks.next_timeout(), Some(regular), "it is known");
}

#[test]
fn one_success_ends_a_suspicion_and_for_a_while_no_other_counts() {
    let (mut checks, now) = suspected(MS(1), 2);
    let regular = checks.next_timeout().unwrap();
    checks.suspect(now, &SUBJECT, false);
    let ask = checks.poll_ask(now).unwrap();
    assert_eq!(ask.timeout, schedule().timeout);
    checks.handle(now, ask.id, failure());
    let ask = next(&mut checks);
    checks.handle(now + MS(100), ask.id, Outcome::Success);
    for (after, due) in [(101, regular), (599, regular), (600, now + MS(600))] {
        checks.suspect(now + MS(after), &SUBJECT, true);
        assert_eq!(checks.next_timeout(), Some(due), "{after}");
    }
    assert_eq!(checks.health(&SUBJECT), Health::Up);
}

#[test]
fn silence_does_not_wait_for_a_test_under_way_nor_hurry_one_that_takes_long() {
    let (mut checks, now) = suspected(S(1), 1);
    let regular = next(&mut checks);
    checks.suspect(now, &SUBJECT, false);
    assert_eq!(checks.poll_ask(now), None, "one is under way");
    checks.suspect(now, &SUBJECT, true);
    let ask = checks.poll_ask(now).unwrap();
    assert_eq!(ask.timeout, S(2), "twice what it took");
    checks.handle(now, regular.id, failure());
    assert_eq!(checks.health(&SUBJECT), Health::Up, "it was given up");
    checks.withdraw(ask.id);
    assert!(checks.next_timeout().unwrap() > now + S(1));
}
