//! Whose answers and whose silence count, in virtual time: one link, its targets, and what its users see.

use std::time::Duration;

use anabranch_core::availability::{Answers, Availability};
use anabranch_core::bandwidth::LinkLoad;
use anabranch_core::{
    Config, DownCause, LinkSpec, LinkState, Missing, ProbeId, Reach, State, Time,
};
use anabranch_policy::abi::Traffic;

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
    /// Every state that was entered, and when.
    states: Vec<(Time, State)>,
}

impl Line {
    /// Present, and heard of nothing yet.
    fn new(targets: &[Reach]) -> Line {
        let config = Config::default();
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
                if answers(probe.target_index) {
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

#[test]
fn a_link_that_ends_behind_its_gateway_loses_to_its_users_silence_and_is_tried_ever_more_rarely() {
    let mut line = Line::new(&FOUND);
    let gateway_only = |target| target == GATEWAY;
    line.run(S(5), gateway_only, |_| nothing());
    assert!(!line.is_down());
    let begun = line.now;
    for _ in 0..12_000 {
        // Users are elsewhere while it is down.
        let used = !line.is_down();
        line.run(STEP * 5, gateway_only, |_| {
            if used { unanswered() } else { nothing() }
        });
    }
    let falls = line.falls(begun);
    assert!(falls[0].since(begun) < S(3), "{falls:?}");
    let returns = line.returns(begun);
    let rests: Vec<u64> = falls
        .iter()
        .zip(&returns)
        .map(|(fall, back)| back.since(*fall).as_secs())
        .collect();
    assert!(rests.len() < 9, "{rests:?}");
    assert!(
        rests[0] >= 5 && rests[1] >= 5 && rests[2] >= 10 && rests[3] >= 20,
        "{rests:?}"
    );
    let used: Vec<Duration> = returns
        .iter()
        .zip(&falls[1..])
        .map(|(back, fall)| fall.since(*back))
        .collect();
    assert!(
        used.iter().all(|time| *time < S(3)),
        "each trial is short: {used:?}"
    );
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
fn repeated_syns_outweigh_the_gateways_word() {
    let mut line = Line::new(&FOUND);
    let gateway_only = |target| target == GATEWAY;
    line.run(S(5), gateway_only, |_| nothing());
    // Something comes in, and no connection succeeds.
    let syns = |now: Time| match now.as_nanos() / 1_000_000 % 1000 {
        0 => Traffic {
            syn_retries: 1,
            rx_packets: 1,
            ..unanswered()
        },
        _ => nothing(),
    };
    let begun = line.now;
    line.run(S(8), gateway_only, syns);
    assert_ne!(line.falls(begun), [], "{:?}", line.states);
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
