//! Hosts that complain of a link, against what its targets answer.

use super::*;

/// What hosts say against a link: so many hosts repeat SYNs to so many ends.
#[derive(Clone, Copy)]
struct Said {
    hosts: u64,
    ends: u64,
}

impl Line {
    /// They repeat SYNs three times a second, for `time`, and the programs count each of them every six seconds. `elsewhere`:
    /// connections are carried over another link meanwhile.
    fn complain(
        &mut self,
        time: Duration,
        said: Said,
        elsewhere: bool,
        answers: impl Fn(usize) -> bool,
    ) {
        for step in 0..time.as_millis() / 50 {
            let mut kinds = KindsHeard::default();
            for kind in &self.elsewhere {
                kinds.hear(*kind, Some(self.now));
            }
            let others = Others {
                heard: Some(self.now),
                carried: Some(self.now).filter(|_| elsewhere),
                kinds,
                ..Others::default()
            };
            self.machine.set_others(self.now, others);
            let is_counted = step % 120 == 0;
            let carried = Traffic {
                syn_retries: u64::from(step % 6 == 0),
                retrying_hosts: if is_counted { said.hosts } else { 0 },
                retried_ends: if is_counted { said.ends } else { 0 },
                ..unanswered()
            };
            self.run(Duration::from_millis(50), &answers, |_| carried);
        }
    }

    fn is_captive(&self) -> bool {
        self.machine.state() == State::Captive
    }
}

/// Only a resolver answers, or what answers in its name; only that and pings.
fn dns_only(target: usize) -> bool {
    target == GATEWAY_OF_KINDS || KINDS[target].kind == Kind::Dns
}

fn dns_and_icmp(target: usize) -> bool {
    target == GATEWAY_OF_KINDS || KINDS[target].kind != Kind::Tcp
}

const SEVERAL: Said = Said { hosts: 2, ends: 2 };

#[test]
fn several_witnesses_outweigh_the_gateway_and_answers_of_one_kind_and_no_more() {
    for (answers, one_host_of_many) in [(near_only as fn(usize) -> bool, false), (dns_only, true)] {
        let said = match one_host_of_many {
            true => Said { hosts: 1, ends: 3 },
            false => SEVERAL,
        };
        let mut line = of_kinds();
        line.run(S(60), answers, |_| nothing());
        assert!(!line.is_down(), "{:?}", line.states);
        let begun = line.now;
        line.complain(S(4), said, true, answers);
        assert!(line.is_captive(), "{:#?}", line.machine);
        let (at, _) = line
            .states
            .iter()
            .rev()
            .find(|(_, state)| *state == State::Captive)
            .unwrap();
        assert!(at.since(begun) < S(2), "after {:?}", at.since(begun));
        assert_eq!(line.falls(begun), [], "no flow ends for what can be forged");
    }
    for (answers, said, elsewhere) in [
        (
            dns_and_icmp as fn(usize) -> bool,
            Said { hosts: 9, ends: 9 },
            true,
        ),
        // One dead server, one host with two.
        (near_only, Said { hosts: 9, ends: 1 }, true),
        (dns_only, Said { hosts: 1, ends: 2 }, true),
        // Nothing is carried over any link: it is not this one.
        (near_only, Said { hosts: 9, ends: 9 }, false),
    ] {
        let mut line = of_kinds();
        line.run(S(60), answers, |_| nothing());
        let begun = line.now;
        line.complain(S(30), said, elsewhere, answers);
        assert!(
            line.states
                .iter()
                .all(|(_, state)| *state != State::Captive),
            "{:?}",
            line.states
        );
        assert_eq!(line.falls(begun), []);
    }
}

#[test]
fn one_host_with_many_dead_ends_outweighs_no_target_while_none_is_silent() {
    let answers = |_: usize| true;
    for (hosts, is_captive) in [(1, false), (2, true)] {
        let mut line = Line::of(&[far(Kind::Icmp)], Config::default());
        line.run(S(60), answers, |_| nothing());
        line.complain(S(10), Said { hosts, ends: 9 }, true, answers);
        let states = &line.states;
        let captive = states.iter().any(|(_, state)| *state == State::Captive);
        assert_eq!(captive, is_captive, "{hosts} hosts: {states:?}");
    }
}

#[test]
fn a_kind_that_is_silent_on_all_links_bears_out_no_host() {
    for (answers, elsewhere) in [
        (dns_only as fn(usize) -> bool, vec![Kind::Dns]),
        (dns_and_icmp, vec![Kind::Dns, Kind::Icmp]),
        (near_only, vec![]),
    ] {
        let mut line = of_kinds();
        line.elsewhere = elsewhere;
        line.run(S(60), answers, |_| nothing());
        let begun = line.now;
        line.complain(S(30), Said { hosts: 1, ends: 9 }, true, answers);
        let states = &line.states;
        let is_captive = states.iter().any(|(_, state)| *state == State::Captive);
        assert!(!is_captive, "{states:?}");
        assert_eq!(line.falls(begun), []);
    }
}

#[test]
fn while_a_host_complains_of_another_link_every_kind_is_asked_once() {
    let mut line = of_kinds();
    line.run(S(60), |_| true, |_| requests());
    let (begun, before) = (line.now, line.probes);
    let others = Others {
        heard: Some(begun),
        complained: Some(begun),
        ..Others::default()
    };
    line.machine.set_others(begun, others);
    line.run(Duration::from_millis(500), |_| true, |_| requests());
    let heard = line.machine.kinds_heard();
    for kind in ALL_KINDS {
        assert!(heard.last(kind) > Some(begun), "{kind}");
    }
    let probes = line.probes - before;
    assert!((3..=4).contains(&probes), "{probes}");
}

#[test]
fn a_link_whose_other_kinds_fell_silent_is_captive_as_well() {
    let mut line = of_kinds();
    line.run(S(60), |_| true, |_| nothing());
    line.complain(S(4), SEVERAL, true, dns_only);
    assert!(line.is_captive(), "{:?}", line.states);
}

#[test]
fn a_link_that_loses_is_not_captive_for_it_and_one_that_is_captive_as_well_is_found() {
    for percent in [10, 36] {
        let mut taken = 0;
        for seed in 0..50 {
            let mut line = of_kinds();
            line.run(S(120), lossy(seed, percent), |_| nothing());
            let begun = line.now;
            let answers = lossy(seed + 1000, percent);
            line.complain(S(30), SEVERAL, true, &answers);
            taken += usize::from(
                line.states
                    .iter()
                    .any(|(_, state)| *state == State::Captive),
            );
            assert_eq!(line.falls(begun), [], "{percent} %, seed {seed}");
        }
        assert_eq!(taken, 0, "of 50 that lose {percent} %");
    }
    for seed in 0..20 {
        let mut line = of_kinds();
        line.run(S(120), lossy(seed, 36), |_| nothing());
        let begun = line.now;
        let chance = lossy(seed + 1000, 36);
        let answers = |target| dns_only(target) && chance(target);
        line.complain(S(15), SEVERAL, true, answers);
        let captive = line
            .states
            .iter()
            .find(|(at, state)| *at > begun && matches!(state, State::Captive | State::Down(_)));
        // It carries nothing: down is no less true of it, where its resolvers' answers are lost, too.
        let (at, _) = captive.unwrap_or_else(|| panic!("seed {seed}: {:?}", line.states));
        assert!(
            at.since(begun) < S(10),
            "seed {seed}: {:?}",
            at.since(begun)
        );
    }
}

#[test]
fn a_captive_link_is_tried_again_after_a_while_and_at_once_when_it_carries_or_another_kind_answers()
{
    let captive = || {
        let mut line = of_kinds();
        line.run(S(60), dns_only, |_| nothing());
        line.complain(S(4), SEVERAL, true, dns_only);
        assert!(line.is_captive());
        line
    };
    let mut line = captive();
    let until = line.machine.held_until().unwrap();
    assert!(until.since(line.now) > S(20));
    let probes = line.probes;
    line.run(S(20), dns_only, |_| nothing());
    assert!(
        line.is_captive() && line.probes - probes < 25,
        "{}",
        line.probes - probes
    );
    line.run(S(12), dns_only, |_| nothing());
    assert!(line.is_up());
    line.complain(S(4), SEVERAL, true, dns_only);
    let again = line.machine.held_until().unwrap();
    assert!(again.since(line.now) > S(25), "a second time, no sooner");

    let mut line = captive();
    line.run(S(5), dns_and_icmp, |_| nothing());
    assert!(line.is_up(), "{:?}", line.states);

    let mut line = captive();
    line.run(S(1), dns_only, |_| requests());
    assert!(line.is_up(), "{:?}", line.states);

    let mut line = captive();
    line.run(S(8), |_| false, |_| nothing());
    assert!(
        line.is_down(),
        "what answers no longer is down: {:?}",
        line.states
    );
}
