//! Whose answers and whose silence count, in virtual time: one link, its targets, and what its users see.

mod complaints;
mod filtered;
mod flapping;
mod portals;

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

const GATEWAY_OF_KINDS: usize = 6;

/// Nothing beyond the gateway answers.
fn near_only(target: usize) -> bool {
    target == GATEWAY_OF_KINDS
}

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
