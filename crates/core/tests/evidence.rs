//! Whose answers and whose silence count, in virtual time: one link, its targets, and what its users see.

use std::cell::RefCell;
use std::time::Duration;

use anabranch_core::availability::{Answers, Availability, KindsHeard, Others};
use anabranch_core::bandwidth::LinkLoad;
use anabranch_core::{
    Config, DownCause, Kind, LinkSpec, LinkState, Missing, ProbeId, Reach, State, TargetSpec, Time,
};
use anabranch_policy::abi::Traffic;
use anabranch_policy::splitmix::SplitMix64;

const STEP: Duration = Duration::from_millis(10);
const S: fn(u64) -> Duration = Duration::from_secs;

/// Four resolvers and the gateway.
const FOUND: [Reach; 5] = [Reach::Far, Reach::Far, Reach::Far, Reach::Far, Reach::Near];
const GATEWAY: usize = 4;

fn requests() -> Traffic {
    Traffic {
        tx_packets: 1,
        rx_packets: 1,
        rx_progress: 1,
        ..Traffic::default()
    }
}

fn unanswered() -> Traffic {
    Traffic {
        tx_packets: 1,
        ..Traffic::default()
    }
}

fn nothing() -> Traffic {
    Traffic::default()
}

struct Line {
    machine: Availability,
    load: LinkLoad,
    now: Time,
    round_trip: Duration,
    under_way: Vec<(Time, ProbeId)>,
    probes: u64,
    /// Pages that somebody else answers for.
    wrong: fn(usize) -> bool,
    /// Kinds of far targets that answer over another link.
    elsewhere: Vec<Kind>,
    /// Every state that was entered, and when.
    states: Vec<(Time, State)>,
}

impl Line {
    /// Present, and heard of nothing yet.
    fn new(targets: &[Reach]) -> Line {
        let spec = |reach: &Reach| TargetSpec {
            reach: *reach,
            kind: Kind::Dns,
        };
        let specs: Vec<_> = targets.iter().map(spec).collect();
        Line::of(&specs, Config::default())
    }

    fn of(targets: &[TargetSpec], config: Config) -> Line {
        let load = LinkLoad::new(Time::ZERO, &LinkSpec::default(), config.queue_max);
        let mut machine = Availability::new(Time::ZERO, config, false);
        machine.set_targets(targets);
        machine.set_link_state(Time::ZERO, LinkState::Present);
        Line {
            states: vec![(Time::ZERO, machine.state())],
            machine,
            load,
            now: Time::ZERO,
            round_trip: Duration::from_millis(20),
            under_way: Vec::new(),
            probes: 0,
            wrong: |_| false,
            elsewhere: ALL_KINDS.to_vec(),
        }
    }

    fn run(
        &mut self,
        time: Duration,
        answers: impl Fn(usize) -> bool,
        carried: impl Fn(Time) -> Traffic,
    ) {
        let end = self.now + time;
        while self.now < end {
            self.now = self.now + STEP;
            if self.now.as_nanos().is_multiple_of(50_000_000) {
                self.machine
                    .observe(self.now, &carried(self.now), &self.load);
            }
            self.machine.tick(self.now, &self.load);
            let now = self.now;
            let due: Vec<_> = self
                .under_way
                .extract_if(.., |(at, _)| *at <= now)
                .collect();
            for (_, id) in due {
                self.machine.answer(now, id, self.round_trip);
            }
            while let Some(probe) = self.machine.next_probe(now, &self.load) {
                self.probes += 1;
                if (self.wrong)(probe.target_index) {
                    self.machine.answer_wrong(now, probe.id);
                } else if answers(probe.target_index) {
                    self.under_way.push((now + self.round_trip, probe.id));
                }
            }
            let state = self.machine.state();
            if self.states.last().is_none_or(|(_, last)| *last != state) {
                self.states.push((now, state));
            }
        }
    }

    fn is_up(&self) -> bool {
        self.machine.state() == State::Up
    }

    fn is_down(&self) -> bool {
        matches!(self.machine.state(), State::Down(_))
    }

    /// How often it went down since `from`.
    fn falls(&self, from: Time) -> Vec<Time> {
        let is_down = |state: &State| matches!(state, State::Down(_));
        let fell = self
            .states
            .windows(2)
            .filter(|pair| !is_down(&pair[0].1) && is_down(&pair[1].1));
        fell.map(|pair| pair[1].0)
            .filter(|at| *at >= from)
            .collect()
    }

    fn returns(&self, from: Time) -> Vec<Time> {
        let is_down = |state: &State| matches!(state, State::Down(_));
        let rose = self
            .states
            .windows(2)
            .filter(|pair| is_down(&pair[0].1) && !is_down(&pair[1].1));
        rose.map(|pair| pair[1].0)
            .filter(|at| *at >= from)
            .collect()
    }
}

#[test]
fn where_resolvers_are_filtered_a_link_is_used_on_its_gateways_word_and_its_users_traffic() {
    let mut line = Line::new(&FOUND);
    let filtered = |target| target == GATEWAY;
    line.run(S(5), filtered, |_| nothing());
    // PossiblyDown(Idle) is an idle probe under way.
    assert!(!line.is_down(), "{:?}", line.states);
    assert!(line.machine.is_near_only(line.now));
    let settled = line.now;
    // A page every four seconds, and pauses between.
    let pages = |now: Time| {
        if (now.as_nanos() / 1_000_000_000).is_multiple_of(4) {
            requests()
        } else {
            nothing()
        }
    };
    line.run(S(900), filtered, pages);
    assert_eq!(line.falls(settled), [], "{:?}", line.states);
}

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

/// Nothing beyond the gateway answers; only a resolver does, or what answers in its name; only that and pings.
fn near_only(target: usize) -> bool {
    target == GATEWAY_OF_KINDS
}

fn dns_only(target: usize) -> bool {
    target == GATEWAY_OF_KINDS || KINDS[target].kind == Kind::Dns
}

fn dns_and_icmp(target: usize) -> bool {
    target == GATEWAY_OF_KINDS || KINDS[target].kind != Kind::Tcp
}

const GATEWAY_OF_KINDS: usize = 6;
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

/// How many probes of a hundred are lost.
fn lossy(seed: u64, percent: u64) -> impl Fn(usize) -> bool {
    let draws = RefCell::new(SplitMix64(seed));
    move |_| draws.borrow_mut().draw() % 100 >= percent
}

#[test]
fn a_link_that_loses_is_not_taken_for_dead_and_its_cut_is_found_all_the_same() {
    const SEEDS: std::ops::Range<u64> = 0..20;
    for (round_trip_loss, within) in [(10, Duration::from_millis(1500)), (36, S(3))] {
        for seed in SEEDS {
            let mut line = of_kinds();
            let answers = lossy(seed, round_trip_loss);
            line.run(S(60), |_| true, |_| nothing());
            line.run(S(600), &answers, |_| nothing());
            let begun = line.now;
            let mut lossy_minutes = 0;
            for _ in 0..20 {
                line.run(S(60), &answers, |_| nothing());
                lossy_minutes += u32::from(line.machine.quality(line.now).is_lossy());
            }
            let told = format!("{round_trip_loss} %, seed {seed}");
            assert_eq!(line.falls(begun), [], "{told}: {:#?}", line.machine);
            assert!(lossy_minutes > 13, "{told}: {lossy_minutes}");
            line.run(S(60), &answers, |_| requests());
            let cut = line.now;
            line.run(S(5), |_| false, |_| unanswered());
            let after = line.falls(cut).first().map(|fall| fall.since(cut));
            assert!(
                after.is_some_and(|after| after <= within),
                "{told}: {after:?}"
            );
        }
    }
}

#[test]
fn a_verdict_waits_for_word_of_another_link_but_not_for_long() {
    for (heard, within_ms) in [(true, 800), (false, 1800)] {
        let mut line = of_kinds();
        line.run(S(60), |_| true, |_| requests());
        let cut = line.now;
        for _ in 0..60 {
            let others = Others {
                heard: Some(if heard { line.now } else { cut }),
                ..Others::default()
            };
            line.machine.set_others(line.now, others);
            line.run(Duration::from_millis(50), |_| false, |_| unanswered());
        }
        let after = line.falls(cut)[0].since(cut).as_millis();
        let least = if heard { 0 } else { 1000 };
        assert!((least..=within_ms).contains(&after), "{heard}: {after} ms");
    }
}

#[test]
fn while_all_links_are_silent_gateways_are_heard() {
    let mut line = of_kinds();
    line.run(S(60), |_| true, |_| nothing());
    let cut = line.now;
    for _ in 0..200 {
        let others = Others {
            heard: Some(cut),
            all_silent: line.now.since(cut) > S(2),
            ..Others::default()
        };
        line.machine.set_others(line.now, others);
        line.run(Duration::from_millis(50), near_only, |_| nothing());
    }
    assert_eq!(line.machine.state(), State::Up, "{:?}", line.states);
}

/// Without NAT, whose answers all come by another link.
fn routed(targets: &[Reach]) -> Line {
    let mut line = Line::new(targets);
    line.machine.set_answers(Answers::Anywhere);
    line
}

#[test]
fn a_link_without_nat_whose_answers_come_by_another_is_asked_and_stays_in_use() {
    let filtered = |target| target == GATEWAY;
    for answers in [&(|_| true) as &dyn Fn(usize) -> bool, &filtered] {
        let mut line = routed(&FOUND);
        line.run(S(5), answers, |_| nothing());
        let (begun, idle) = (line.now, line.probes);
        let retried = |now: Time| Traffic {
            syn_retries: u64::from(now.as_nanos().is_multiple_of(1_000_000_000)),
            ..unanswered()
        };
        line.run(S(600), answers, retried);
        assert_eq!(line.falls(begun), [], "{:?}", line.states);
        let a_second = (line.probes - idle) / 600;
        assert!((3..10).contains(&a_second), "{a_second} probes a second");
    }
}

#[test]
fn a_link_without_nat_that_answers_no_probe_is_down_within_a_second_under_traffic() {
    let mut line = routed(&FOUND);
    line.run(S(5), |_| true, |_| unanswered());
    let cut = line.now;
    line.run(S(2), |_| false, |_| unanswered());
    let falls = line.falls(cut);
    assert!(
        falls.len() == 1 && falls[0].since(cut) < S(1),
        "{falls:?}: {:?}",
        line.states
    );
}

#[test]
fn a_gateway_that_answers_keeps_no_link_up_whose_internet_answered_before() {
    let mut line = Line::new(&FOUND);
    line.run(S(60), |_| true, |_| nothing());
    assert!(!line.is_down());
    let cut = line.now;
    line.run(S(250), |target| target == GATEWAY, |_| nothing());
    let falls = line.falls(cut);
    assert!(falls.len() == 1 && falls[0].since(cut) < S(3), "{falls:?}");
    assert!(line.is_down());
    // It may be the resolvers that were switched off: after five minutes it is given a trial.
    line.run(S(120), |target| target == GATEWAY, |_| nothing());
    assert!(!line.is_down(), "{:?}", line.states);
}

#[test]
fn targets_that_never_answered_cost_a_link_nothing_while_another_does() {
    let mut line = Line::new(&FOUND);
    line.run(S(10), |target| target == 2, |_| nothing());
    assert!(!line.is_down());
    let settled = line.now;
    line.run(S(600), |target| target == 2, |_| nothing());
    assert_eq!(line.falls(settled), []);
    assert_eq!(line.machine.loss().0, 0, "no loss counts");
    let records = line.machine.targets();
    assert!(
        records.iter().all(|record| record.sent > 0),
        "each is tried: {records:?}"
    );
    assert!(!line.machine.is_near_only(line.now));
}

#[test]
fn a_target_that_stops_answering_while_others_do_is_soon_left_alone() {
    let mut line = Line::new(&FOUND);
    line.run(S(60), |_| true, |_| nothing());
    let before = line.now;
    line.run(S(600), |target| target != 1, |_| nothing());
    assert_eq!(line.falls(before), []);
    assert!(line.machine.targets()[1].lost_in_a_row >= 3);
    assert_eq!(line.machine.loss().0, 0);
}

#[test]
fn users_traffic_brings_up_a_link_whose_targets_are_all_silent() {
    let mut line = Line::new(&[Reach::Far; 4]);
    line.run(S(10), |_| false, |_| nothing());
    assert!(line.is_down());
    // It is the only link, and used nevertheless.
    line.run(S(2), |_| false, |_| requests());
    assert!(line.is_up(), "{:?}", line.states);
    let settled = line.now;
    line.run(S(60), |_| false, |_| requests());
    assert_eq!(line.falls(settled), []);
}

#[test]
fn a_cut_while_nobody_sends_is_found_within_three_seconds_for_a_probe_a_second() {
    for (round_trip_ms, phase) in [5, 40, 150, 400]
        .into_iter()
        .flat_map(|rtt| (0..12).map(move |phase| (rtt, phase)))
    {
        let mut line = Line::new(&FOUND);
        line.round_trip = Duration::from_millis(round_trip_ms);
        line.run(S(3) + STEP * 9 * phase, |_| true, |_| nothing());
        let before = line.probes;
        line.run(S(60), |_| true, |_| nothing());
        assert!(line.probes - before <= 60, "{}", line.probes - before);
        let cut = line.now;
        line.run(S(4), |_| false, |_| nothing());
        let falls = line.falls(cut);
        let after = falls.first().map(|fall| fall.since(cut));
        assert!(
            after.is_some_and(|after| after < S(3)),
            "{round_trip_ms} ms, {phase}: {after:?}"
        );
    }
}

/// Up and down every three seconds, as a link at the edge of its range.
fn flap(line: &mut Line, times: u64) {
    for _ in 0..times {
        line.run(S(2), |_| true, |_| requests());
        line.run(S(1), |_| false, |_| unanswered());
    }
}

#[test]
fn a_flapping_link_is_readmitted_ever_more_rarely_and_forgiven_when_it_is_quiet() {
    let mut line = Line::new(&[Reach::Far]);
    line.run(S(5), |_| true, |_| requests());
    let begun = line.now;
    flap(&mut line, 6);
    assert!(
        line.returns(begun).len() <= 2,
        "in 18 s: {:?}",
        line.returns(begun)
    );
    flap(&mut line, 34);
    let readmitted = line.returns(begun).len();
    assert!(
        (3..=6).contains(&readmitted),
        "{readmitted} times in two minutes"
    );
    let (falls, first) = line.machine.falls(line.now);
    assert!(falls >= 3 && first.is_some());

    line.run(S(1000), |_| true, |_| requests());
    assert!(line.is_up());
    assert_eq!(line.machine.falls(line.now), (0, None));
    let fell = line.now;
    flap(&mut line, 1);
    line.run(S(2), |_| true, |_| requests());
    assert_eq!(line.returns(fell).len(), 1, "a single fall costs nothing");
}

#[test]
fn a_link_that_is_held_down_answers_says_until_when_and_can_be_released() {
    let mut line = Line::new(&[Reach::Far]);
    line.run(S(5), |_| true, |_| nothing());
    flap(&mut line, 2);
    line.run(S(1), |_| true, |_| nothing());
    assert_eq!(
        line.machine.state(),
        State::Down(DownCause::HeldDown),
        "{:?}",
        line.states
    );
    let until = line.machine.held_until().unwrap();
    assert!(until > line.now && until.since(line.now) <= S(10));
    let probes = line.probes;
    line.run(S(3), |_| true, |_| nothing());
    assert!(
        line.probes - probes <= 4,
        "held down, it is probed as an idle link"
    );
    let mut released = line.machine.clone();
    released.release(line.now);
    assert_eq!(released.state(), State::Up);
    line.run(until.since(line.now) + STEP, |_| true, |_| nothing());
    assert!(!line.is_down());
}

#[test]
fn a_device_that_comes_and_goes_flaps_as_well() {
    let mut line = Line::new(&[Reach::Far]);
    line.run(S(2), |_| true, |_| nothing());
    for _ in 0..3 {
        line.machine
            .set_link_state(line.now, LinkState::Absent(Missing::Carrier));
        line.machine.set_link_state(line.now, LinkState::Present);
        line.run(S(12), |_| true, |_| nothing());
    }
    assert_eq!(line.machine.falls(line.now).0, 3);
    line.machine
        .set_link_state(line.now, LinkState::Absent(Missing::Carrier));
    line.machine.set_link_state(line.now, LinkState::Present);
    line.run(S(12), |_| true, |_| nothing());
    assert_eq!(line.machine.state(), State::Down(DownCause::HeldDown));
}

const fn far(kind: Kind) -> TargetSpec {
    TargetSpec {
        reach: Reach::Far,
        kind,
    }
}

/// As a link has them by default, and its gateway.
const KINDS: [TargetSpec; 7] = [
    far(Kind::Dns),
    far(Kind::Tcp),
    far(Kind::Icmp),
    far(Kind::Dns),
    far(Kind::Tcp),
    far(Kind::Icmp),
    TargetSpec {
        reach: Reach::Near,
        kind: Kind::Icmp,
    },
];

/// As the daemon configures it.
fn of_kinds() -> Line {
    let config = Config {
        measures: true,
        ..Config::default()
    };
    Line::of(&KINDS, config)
}

const ALL_KINDS: [Kind; 3] = [Kind::Dns, Kind::Tcp, Kind::Icmp];

#[test]
fn one_or_two_ways_of_asking_that_are_filtered_cost_a_link_nothing_from_the_start_or_later() {
    let traffic: [fn(Time) -> Traffic; 2] = [
        |_| nothing(),
        |now| match (now.as_nanos() / 1_000_000_000).is_multiple_of(4) {
            true => unanswered(),
            false => nothing(),
        },
    ];
    for (filtered, known_s) in ALL_KINDS
        .iter()
        .flat_map(|one| {
            [
                vec![*one],
                ALL_KINDS.into_iter().filter(|kind| kind != one).collect(),
            ]
        })
        .flat_map(|filtered| [0, 2, 60].map(|known_s| (filtered.clone(), known_s)))
    {
        for carried in traffic {
            let mut line = of_kinds();
            line.run(S(known_s), |_| true, |_| nothing());
            let passes = |target: usize| !filtered.contains(&KINDS[target].kind);
            line.run(S(300), passes, carried);
            let falls = line.falls(Time::ZERO);
            assert_eq!(falls, [], "{filtered:?} after {known_s} s");
            let mut told = line.machine.filtered();
            told.sort();
            let mut wanted = filtered.clone();
            wanted.sort();
            assert_eq!(
                told,
                wanted,
                "after {known_s} s: {:#?}",
                line.machine.targets()
            );
            let quality = line.machine.quality(line.now);
            assert!(quality.judged > 0 && !quality.is_lossy(), "{quality:?}");
            line.run(S(120), |_| true, |_| nothing());
            assert_eq!(line.machine.filtered(), [], "{filtered:?}");
        }
    }
}

#[test]
fn a_cut_is_found_as_fast_with_several_ways_of_asking_and_with_some_of_them_filtered() {
    for filtered in [vec![], vec![Kind::Dns], vec![Kind::Icmp, Kind::Dns]] {
        for (known_s, phase) in [3, 10, 60]
            .into_iter()
            .flat_map(|s| (0..12).map(move |phase| (s, phase)))
        {
            let passes = |target: usize| !filtered.contains(&KINDS[target].kind);
            let mut line = of_kinds();
            line.run(S(known_s) + STEP * 9 * phase, passes, |_| requests());
            let cut = line.now;
            line.run(S(3), |_| false, |_| unanswered());
            let after = line.falls(cut).first().map(|fall| fall.since(cut));
            assert!(
                after.is_some_and(|after| after < S(1)),
                "{filtered:?}, {known_s} s, {phase}: {after:?}"
            );
            line.run(S(10), passes, |_| nothing());
            assert!(!line.is_down());
            let idle = line.now;
            line.run(S(20), passes, |_| nothing());
            let cut = line.now;
            line.run(S(4), |_| false, |_| nothing());
            let after = line.falls(idle).first().map(|fall| fall.since(cut));
            assert!(
                after.is_some_and(|after| after < S(3)),
                "{filtered:?}: {after:?}"
            );
        }
    }
}

#[test]
fn a_link_that_returns_while_a_way_of_asking_is_filtered_is_soon_in_use() {
    let mut line = of_kinds();
    line.run(S(60), |_| true, |_| nothing());
    line.run(S(10), |_| false, |_| nothing());
    assert!(line.is_down());
    let mended = line.now;
    let passes = |target: usize| KINDS[target].kind != Kind::Dns;
    line.run(S(10), passes, |_| nothing());
    let after = line.returns(mended)[0].since(mended);
    assert!(after < S(4), "{after:?}");
}

/// Two pages beside what a link is asked by default.
const PAGES: [TargetSpec; 9] = {
    let [a, b, c, d, e, f, g] = KINDS;
    [a, b, c, d, e, f, g, far(Kind::Http), far(Kind::Http)]
};

#[test]
fn a_portal_is_noticed_takes_the_link_out_of_use_and_gives_it_back() {
    let mut line = Line::of(&PAGES, Config::default());
    line.run(S(120), |_| true, |_| requests());
    assert!(line.is_up() && line.machine.portal().is_none());
    let pages = line.machine.targets()[7].sent + line.machine.targets()[8].sent;
    assert!((4..=6).contains(&pages), "{pages} pages in two minutes");
    let begun = line.now;
    line.wrong = |target| target >= 7;
    line.run(S(60), |target| target < 7, |_| requests());
    let fell = line.falls(begun)[0].since(begun);
    assert!(fell <= S(32), "asked every 30 s: {fell:?}");
    assert_eq!(line.machine.state(), State::Down(DownCause::Portal));
    let probes = line.probes;
    line.run(S(60), |target| target < 7, |_| nothing());
    assert_eq!(line.machine.state(), State::Down(DownCause::Portal));
    assert!(line.probes - probes < 100, "{}", line.probes - probes);
    let paid = line.now;
    line.wrong = |_| false;
    line.run(S(20), |_| true, |_| nothing());
    let back = line.returns(paid)[0].since(paid);
    assert!(back < S(7), "{back:?}");
}

#[test]
fn a_link_that_begins_behind_a_portal_is_out_of_use_at_once() {
    let mut line = Line::of(&PAGES, Config::default());
    line.wrong = |target| target >= 7;
    line.run(S(2), |target| target < 7, |_| nothing());
    assert_eq!(line.machine.state(), State::Down(DownCause::Portal));
}

#[test]
fn a_page_that_changed_alone_is_no_portal_and_one_that_is_lost_takes_nothing_down() {
    let mut line = Line::of(&PAGES, Config::default());
    line.run(S(60), |_| true, |_| nothing());
    line.wrong = |target| target == 7;
    line.run(S(300), |target| target != 7, |_| nothing());
    assert_eq!(line.falls(Time::ZERO), []);
    line.wrong = |_| false;
    line.run(S(300), |target| target < 7, |_| nothing());
    assert_eq!(line.falls(Time::ZERO), []);
}

#[test]
fn a_page_alone_is_asked_as_any_target_is() {
    let mut line = Line::of(&[far(Kind::Http)], Config::default());
    line.run(S(10), |_| true, |_| nothing());
    assert!(!line.is_down());
    let cut = line.now;
    line.run(S(4), |_| false, |_| nothing());
    assert!(line.falls(cut)[0].since(cut) < S(3));
    line.run(S(10), |_| true, |_| nothing());
    assert!(!line.is_down());
    line.wrong = |_| true;
    line.run(S(10), |_| true, |_| nothing());
    assert_eq!(line.machine.state(), State::Down(DownCause::Portal));
}

#[test]
fn a_busy_link_that_is_measured_shows_its_loss_and_is_not_taken_down_by_it() {
    let mut line = of_kinds();
    line.run(S(60), |_| true, |_| requests());
    let clean = line.machine.quality(line.now);
    assert!(clean.judged > 30 && clean.lost == 0, "{clean:?}");
    let asked = std::cell::Cell::new(0);
    let lossy = |_| {
        asked.set(asked.get() + 1);
        asked.get() % 9 != 0
    };
    line.run(S(60), lossy, |_| requests());
    let quality = line.machine.quality(line.now);
    assert!(quality.is_lossy(), "{quality:?}");
    assert_eq!(line.falls(Time::ZERO), []);
    assert!(line.is_up() && line.machine.filtered().is_empty());
    let before = line.probes;
    line.run(S(60), |_| true, |_| nothing());
    assert!(line.probes - before <= 60, "{}", line.probes - before);
}

#[test]
fn a_link_whose_check_is_down_is_down_whatever_answers_and_up_when_it_is_not() {
    let mut line = Line::new(&FOUND);
    line.run(S(5), |_| true, |_| requests());
    assert!(line.is_up());
    let down = State::Down(DownCause::Check);
    line.machine.set_check(line.now, true);
    line.run(S(60), |_| true, |_| requests());
    assert_eq!(line.machine.state(), down);
    line.machine.set_check(line.now, false);
    assert!(line.is_up(), "the first fall costs nothing");
    // A link that is lost meanwhile is down for that, and for its check when it answers again.
    line.machine.set_check(line.now, true);
    line.run(S(30), |_| false, |_| unanswered());
    assert!(matches!(
        line.machine.state(),
        State::Down(DownCause::Unanswered(_))
    ));
    line.run(S(30), |_| true, |_| nothing());
    assert_eq!(line.machine.state(), down);
    line.machine
        .set_link_state(line.now, LinkState::Absent(Missing::Carrier));
    line.machine.set_check(line.now, false);
    line.machine.set_check(line.now, true);
    let absent = State::Down(DownCause::Absent(Missing::Carrier));
    assert_eq!(line.machine.state(), absent);
    line.machine.set_link_state(line.now, LinkState::Present);
    line.run(S(30), |_| true, |_| nothing());
    assert_eq!(line.machine.state(), down);
}
