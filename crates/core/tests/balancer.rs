//! What the balancer asks of the data path, and in which order.

use std::convert::Infallible;
use std::time::Duration;

use anabranch_core::{
    Admin, Algorithm, Balancer, BuildError, Choice, Config, DataPlane, DownCause, Effect, Ended,
    Event, LinkCounters, LinkId, LinkSpec, LinkState, Missing, OnReturn, State, Suspicion, Time,
};
use anabranch_policy::abi::WEIGHT_MAX;
use anabranch_policy::{Gauges, NO_TABLE, Request, choose};
use proptest::prelude::*;

const MBIT: u64 = 1_000_000;

/// What the counters are, and what was installed.
struct Plane<'a> {
    counters: &'a [LinkCounters],
    choice: &'a mut Option<Choice>,
}

impl DataPlane for Plane<'_> {
    type Error = Infallible;

    fn counters(&mut self) -> Result<Vec<LinkCounters>, Infallible> {
        Ok(self.counters.to_vec())
    }

    fn install(&mut self, choice: &Choice) -> Result<(), Infallible> {
        *self.choice = Some(*choice);
        Ok(())
    }

    fn end_flows(&mut self, _: LinkId) -> Result<Ended, Infallible> {
        Ok(Ended::default())
    }
}

/// A way to drive: with what time has made due, or without.
type Drive =
    fn(&mut anabranch_core::Driver, Time, &mut Plane<'_>) -> Result<Vec<Effect>, Infallible>;

/// Two or more links, told of what the test wants.
struct Driver {
    core: anabranch_core::Driver,
    now: Time,
    counters: Vec<LinkCounters>,
    choice: Option<Choice>,
    /// In the order they were polled, with the usable links installed at that moment.
    events: Vec<(Event, u64)>,
}

fn link(name: &str, up_bps: u64, down_bps: u64) -> LinkSpec {
    LinkSpec {
        name: name.into(),
        rate_up_bps: Some(up_bps),
        rate_down_bps: Some(down_bps),
        ..LinkSpec::default()
    }
}

fn metered(spec: LinkSpec) -> LinkSpec {
    LinkSpec {
        metered: true,
        ..spec
    }
}

fn equal(count: usize) -> Vec<LinkSpec> {
    (0..count)
        .map(|i| link(&format!("isp{i}"), 10 * MBIT, 10 * MBIT))
        .collect()
}

impl Driver {
    /// All links present and proven.
    fn new(algorithm: &str, links: Vec<LinkSpec>) -> Driver {
        let mut driver = Driver::absent(algorithm, links);
        for i in 0..driver.counters.len() {
            driver.set_present(i);
        }
        driver.count();
        driver.events.clear();
        driver
    }

    fn absent(algorithm: &str, links: Vec<LinkSpec>) -> Driver {
        let counters = vec![LinkCounters::default(); links.len()];
        let algorithm: Algorithm = algorithm.parse().unwrap();
        let balancer = Balancer::new(Time::ZERO, algorithm, links, Config::default()).unwrap();
        Driver {
            core: anabranch_core::Driver::new(balancer),
            now: Time::ZERO,
            counters,
            choice: None,
            events: Vec::new(),
        }
    }

    /// Chooses as the programs do, and counts the flow.
    fn choose(&mut self) -> usize {
        let choice = self.choice.expect("a choice was made");
        let mut gauges = Gauges::default();
        for (gauge, counters) in gauges.target.iter_mut().zip(&self.counters) {
            *gauge = counters.flows;
        }
        let decision = choose(&choice, &gauges, &NO_TABLE, &Request::default());
        let chosen = usize::from(decision.target.expect("a link is usable"));
        self.counters[chosen].flows.dispatched += 1;
        chosen
    }

    fn id(i: usize) -> LinkId {
        LinkId(i as u16)
    }

    fn set_present(&mut self, i: usize) {
        self.core
            .balancer_mut()
            .handle_link_state(self.now, Self::id(i), LinkState::Present);
        self.poll(&|_| true);
    }

    fn set_absent(&mut self, i: usize) {
        let absent = LinkState::Absent(Missing::Carrier);
        self.core
            .balancer_mut()
            .handle_link_state(self.now, Self::id(i), absent);
        self.poll(&|_| true);
    }

    fn set_admin(&mut self, i: usize, admin: Admin) {
        self.core
            .balancer_mut()
            .set_admin(self.now, Self::id(i), admin);
        self.poll(&|_| true);
    }

    fn count(&mut self) {
        let now = self.now;
        let (core, mut plane) = self.parts();
        let Ok(()) = core.read_counters(now, &mut plane);
        self.poll(&|_| true);
    }

    /// Lets time pass; probes of the links that `answer` are answered at once.
    fn run(&mut self, duration: Duration, answer: impl Fn(LinkId) -> bool) {
        let end = self.now + duration;
        while self.core.next_turn() <= end {
            self.now = self.core.next_turn().max(self.now);
            self.drive(|core, now, plane| core.turn(now, plane), &answer);
            self.poll(&answer);
        }
        self.now = end;
    }

    fn poll(&mut self, answer: &dyn Fn(LinkId) -> bool) {
        while self.drive(|core, now, plane| core.poll(now, plane), answer) {}
    }

    /// Whether anything came of it.
    fn drive(&mut self, by: Drive, answer: &dyn Fn(LinkId) -> bool) -> bool {
        let now = self.now;
        let (core, mut plane) = self.parts();
        let Ok(effects) = by(core, now, &mut plane);
        for effect in &effects {
            self.take(*effect, answer);
        }
        !effects.is_empty()
    }

    fn take(&mut self, effect: Effect, answer: &dyn Fn(LinkId) -> bool) {
        match effect {
            Effect::Event(event) => self.events.push((event, self.usable())),
            Effect::Probe(probe) if answer(probe.link) => {
                let round_trip = Duration::from_millis(20);
                self.core
                    .balancer_mut()
                    .handle_answer(self.now, probe.link, probe.id, round_trip);
            }
            Effect::Probe(_) => {}
        }
    }

    fn parts(&mut self) -> (&mut anabranch_core::Driver, Plane<'_>) {
        let plane = Plane {
            counters: &self.counters,
            choice: &mut self.choice,
        };
        (&mut self.core, plane)
    }

    /// As installed.
    fn usable(&self) -> u64 {
        self.choice.map_or(0, |choice| choice.usable.word[0])
    }

    fn weights(&self) -> Vec<u32> {
        let choice = self.choice.expect("a choice was made");
        choice.target[..self.counters.len()]
            .iter()
            .map(|target| target.weight())
            .collect()
    }

    /// Takes a link down by silence: packets go out, nothing comes in, probes are lost.
    fn silence(&mut self, dead: &[usize]) {
        for &i in dead {
            self.counters[i].traffic.tx_packets += 1;
        }
        let dead: Vec<_> = dead.iter().map(|&i| Self::id(i)).collect();
        self.run(Duration::from_secs(2), |link| !dead.contains(&link));
    }

    /// Carries the same load on each link for ten seconds.
    fn carry(&mut self, load_bps: &[(u64, u64)]) {
        for _ in 0..200 {
            for (counters, (up_bps, down_bps)) in self.counters.iter_mut().zip(load_bps) {
                counters.traffic.tx_packets += 1;
                counters.traffic.rx_packets += 1;
                counters.traffic.rx_progress += 1;
                counters.traffic.tx_bytes += up_bps / 8 / 20;
                counters.traffic.rx_bytes += down_bps / 8 / 20;
            }
            self.run(Duration::from_millis(50), |_| true);
        }
    }
}

/// The first as a percentage of the second.
fn percent(part: u32, whole: u32) -> u32 {
    (u64::from(part) * 100 / u64::from(whole)) as u32
}

#[test]
fn there_is_no_choice_before_the_first_counters() {
    let mut balancer = Balancer::new(
        Time::ZERO,
        Algorithm::default(),
        equal(2),
        Config::default(),
    )
    .unwrap();
    balancer.handle_link_state(Time::ZERO, LinkId(0), LinkState::Present);
    assert_eq!(balancer.poll_choice(), None);
    balancer.handle_counters(Time::ZERO, &[LinkCounters::default(); 2]);
    assert_eq!(
        balancer.poll_choice().map(|choice| choice.usable.word[0]),
        Some(0b01)
    );
}

#[test]
fn an_adopted_data_path_starts_its_window_at_what_it_has_dispatched_before() {
    let mut driver = Driver::new("RR", equal(2));
    let mut balancer = Balancer::new(
        Time::ZERO,
        "RR".parse().unwrap(),
        equal(2),
        Config::default(),
    )
    .unwrap();
    driver.counters[1].flows.dispatched = (1 << 32) + 7;
    balancer.handle_counters(Time::ZERO, &driver.counters);
    assert_eq!(balancer.poll_choice().unwrap().target[1].dispatched_base, 7);
}

#[test]
fn round_robin_counts_on_until_the_usable_links_change() {
    let mut driver = Driver::new("RR", equal(3));
    driver.counters[0].flows.dispatched = 100;
    driver.run(Duration::from_secs(5), |_| true);
    assert_eq!(driver.choice.unwrap().target[0].dispatched_base, 0);
    driver.set_absent(2);
    assert_eq!(driver.choice.unwrap().target[0].dispatched_base, 100);
}

#[test]
fn a_dead_link_leaves_the_choice_before_its_flows_end() {
    let mut driver = Driver::new("WSDM", equal(2));
    driver.silence(&[0]);
    let silent = DownCause::Unanswered(Suspicion::Silent);
    let told = &driver.events[1..];
    assert!(
        matches!(told[0], (Event::LinkDown { link: LinkId(0), cause, .. }, 0b10) if cause == silent)
    );
    assert_eq!(told[1], (Event::EndFlows { link: LinkId(0) }, 0b10));
    assert_eq!(told.len(), 2);
}

#[test]
fn events_wait_for_the_choice_to_be_polled() {
    let mut driver = Driver::new("WSDM", equal(2));
    let absent = LinkState::Absent(Missing::Device);
    driver
        .core
        .balancer_mut()
        .handle_link_state(driver.now, LinkId(0), absent);
    assert_eq!(driver.core.balancer_mut().poll_event(), None);
    assert_eq!(
        driver
            .core
            .balancer_mut()
            .poll_choice()
            .map(|choice| choice.usable.word[0]),
        Some(0b10)
    );
    assert!(matches!(
        driver.core.balancer_mut().poll_event(),
        Some(Event::LinkDown { .. })
    ));
    assert_eq!(
        driver.core.balancer_mut().poll_event(),
        Some(Event::EndFlows { link: LinkId(0) })
    );
}

#[test]
fn a_link_without_traffic_is_probed_once_a_second_and_looks_as_steady_as_it_is() {
    let mut driver = Driver::new("WSDM", equal(2));
    let status = |driver: &Driver| driver.core.balancer().status(driver.now).remove(0);
    driver.run(Duration::from_secs(2), |_| true);
    let before = status(&driver);
    driver.run(Duration::from_millis(9900), |_| true);
    assert!((8..=10).contains(&(status(&driver).probes_sent - before.probes_sent)));
    for _ in 0..500 {
        driver.run(Duration::from_millis(7), |_| true);
        let now = status(&driver);
        assert_eq!((now.state, now.since), (State::Up, before.since));
    }
    driver.set_admin(0, Admin::Drain);
    assert_eq!(status(&driver).since, driver.now, "an order is a change");
}

#[test]
fn the_only_link_is_not_held_down_and_one_of_two_is() {
    for (others, held) in [(0, false), (1, true)] {
        let mut driver = Driver::new("WSDM", equal(1 + others));
        for _ in 0..4 {
            driver.silence(&[0]);
            driver.run(Duration::from_secs(2), |_| true);
        }
        let status = driver.core.balancer().status(driver.now).remove(0);
        assert_eq!(status.held_until.is_some(), held, "{status:?}");
        assert_eq!(driver.usable() & 1 == 0, held);
        assert!(status.falls > 1);
    }
}

#[test]
fn a_link_that_is_held_down_is_let_go_when_the_other_is_lost_or_by_order() {
    for by_order in [false, true] {
        let mut driver = Driver::new("WSDM", equal(2));
        for _ in 0..2 {
            driver.silence(&[0]);
            driver.run(Duration::from_secs(2), |_| true);
        }
        assert_eq!(driver.usable(), 0b10);
        match by_order {
            true => driver.set_admin(0, Admin::Up),
            false => driver.set_absent(1),
        }
        assert_eq!(driver.usable() & 1, 1);
    }
}

#[test]
fn the_last_link_that_works_is_known() {
    let mut driver = Driver::new(
        "WSDM",
        vec![equal(1).remove(0), metered(link("lte", MBIT, MBIT))],
    );
    let is_last = |driver: &Driver| [0, 1].map(|i| driver.core.balancer().is_last(Driver::id(i)));
    assert_eq!(
        is_last(&driver),
        [false, false],
        "the metered one takes over"
    );
    driver.set_admin(1, Admin::Drain);
    assert_eq!(is_last(&driver), [true, false]);
    driver.set_admin(0, Admin::Drain);
    assert_eq!(is_last(&driver), [false, false], "nothing is used");
}

/// What becomes of a metered link's flows, and when, after a better link has returned.
fn moved(on_return: OnReturn) -> Vec<(Event, Duration)> {
    let lte = LinkSpec {
        on_return,
        ..metered(link("lte", MBIT, MBIT))
    };
    let mut driver = Driver::new("WSDM", vec![equal(1).remove(0), lte]);
    driver.run(Duration::from_secs(10), |_| true);
    driver.silence(&[0]);
    assert_eq!(driver.usable(), 0b10);
    let mut moves = Vec::new();
    let mut returned = None;
    for _ in 0..200 {
        driver.events.clear();
        driver.run(Duration::from_millis(50), |_| true);
        if driver.usable() == 0b01 {
            let after = driver.now.since(*returned.get_or_insert(driver.now));
            moves.extend(driver.events.iter().map(|(event, _)| (*event, after)));
        }
    }
    let is_of_lte = |event: &Event| matches!(event, Event::EndFlows { link } | Event::MoveUdp { link, .. } if link.0 == 1);
    moves.retain(|(event, _)| is_of_lte(event));
    moves
}

#[test]
fn flows_on_a_metered_link_do_what_is_configured_when_a_better_link_returns() {
    assert_eq!(moved(OnReturn::Stay), []);
    assert_eq!(
        moved(OnReturn::Move),
        [(Event::EndFlows { link: LinkId(1) }, Duration::ZERO)]
    );
    let idle = moved(OnReturn::Idle);
    let waits: Vec<u128> = idle
        .iter()
        .map(|(event, _)| match event {
            Event::MoveUdp { idle, .. } => idle.as_millis(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        waits,
        [1000, 1000, 1000, 0],
        "after pauses, and at last in any case"
    );
    assert!(idle[3].1 < Duration::from_secs(5), "{idle:?}");
}

#[test]
fn flows_of_the_only_link_are_not_ended_until_another_can_take_them() {
    let mut driver = Driver::new("WSDM", equal(2));
    driver.set_absent(1);
    driver.events.clear();
    driver.silence(&[0]);
    assert!(matches!(
        driver.core.balancer().status(driver.now)[0].state,
        State::Down(_)
    ));
    assert!(
        !driver
            .events
            .iter()
            .any(|(e, _)| matches!(e, Event::EndFlows { .. })),
        "nobody takes them"
    );
    driver.set_present(1);
    driver.run(Duration::from_secs(2), |link| link == LinkId(1));
    assert_eq!(
        driver.events.last(),
        Some(&(Event::EndFlows { link: LinkId(0) }, 0b10))
    );
}

#[test]
fn when_probes_say_every_link_is_down_all_that_are_present_are_used() {
    let mut driver = Driver::new("WSDM", equal(3));
    driver.set_absent(2);
    driver.silence(&[0, 1]);
    assert!(
        driver
            .core
            .balancer()
            .status(driver.now)
            .iter()
            .all(|link| matches!(link.state, State::Down(_)))
    );
    assert_eq!(driver.usable(), 0b011);
}

#[test]
fn a_metered_link_takes_flows_only_while_no_other_can() {
    let mut driver = Driver::new(
        "WSDM",
        vec![equal(1).remove(0), metered(link("lte", MBIT, MBIT))],
    );
    assert_eq!(driver.usable(), 0b01);
    driver.silence(&[0]);
    assert_eq!(driver.usable(), 0b10);
    driver.run(Duration::from_secs(3), |_| true);
    assert_eq!(driver.usable(), 0b01, "new flows go back by themselves");
}

#[test]
fn a_metered_link_is_probed_less_often() {
    let mut driver = Driver::new(
        "WSDM",
        vec![equal(1).remove(0), metered(link("lte", MBIT, MBIT))],
    );
    driver.run(Duration::from_secs(115), |_| true);
    let sent: Vec<_> = driver
        .core
        .balancer()
        .status(driver.now)
        .iter()
        .map(|link| link.probes_sent)
        .collect();
    assert_eq!((sent[0] > 100, sent[1]), (true, 6), "{sent:?}");
}

#[test]
fn a_drained_link_gets_no_new_flows_and_keeps_those_it_has() {
    let mut driver = Driver::new("WSDM", equal(2));
    driver.set_admin(0, Admin::Drain);
    assert_eq!((driver.usable(), driver.events.len()), (0b10, 0));
    driver.set_admin(0, Admin::Up);
    assert_eq!((driver.usable(), driver.events.len()), (0b11, 0));
}

#[test]
fn a_link_taken_down_by_the_operator_loses_its_flows_once() {
    let mut driver = Driver::new("WSDM", equal(2));
    driver.set_admin(0, Admin::Down);
    driver.set_admin(0, Admin::Down);
    driver.run(Duration::from_secs(30), |_| true);
    let ended = driver
        .events
        .iter()
        .filter(|(e, _)| matches!(e, Event::EndFlows { .. }));
    assert_eq!(ended.count(), 1);
}

#[test]
fn a_link_the_operator_has_taken_away_is_not_used_even_as_the_last() {
    let mut driver = Driver::new("WSDM", equal(2));
    driver.set_admin(0, Admin::Drain);
    driver.set_absent(1);
    assert_eq!(driver.usable(), 0);
}

#[test]
fn a_link_that_was_absent_is_used_again_when_it_has_answered() {
    let mut driver = Driver::new("WSDM", equal(2));
    driver.set_absent(0);
    driver.run(Duration::from_secs(5), |_| true);
    driver.events.clear();
    driver.set_present(0);
    assert_eq!(driver.usable(), 0b10, "not heard yet");
    driver.run(Duration::from_millis(500), |_| true);
    assert_eq!(driver.usable(), 0b11);
    let (event, _) = driver.events[0];
    assert!(
        matches!(event, Event::LinkUp { link: LinkId(0), down_for } if down_for.as_millis() > 5000),
        "{event:?}"
    );
}

#[test]
fn counters_that_begin_anew_are_no_evidence_and_no_load() {
    let mut driver = Driver::new("WSDM", equal(1));
    driver.counters[0].traffic.tx_packets = 1000;
    driver.counters[0].traffic.rx_packets = 1000;
    driver.run(Duration::from_millis(60), |_| true);
    driver.counters[0] = LinkCounters::default();
    driver.run(Duration::from_millis(60), |_| true);
    driver.counters[0].traffic.tx_bytes = 1;
    driver.run(Duration::from_millis(60), |_| true);
    assert!(
        driver.core.balancer().status(driver.now)[0]
            .available_up_bps
            .unwrap()
            > 9 * MBIT
    );
}

#[test]
fn weights_follow_what_is_left_towards_the_lan() {
    let mut driver = Driver::new("WMIRBF", equal(2));
    driver.carry(&[(0, 0), (0, 6 * MBIT)]);
    let weights = driver.weights();
    assert_eq!(weights[0], WEIGHT_MAX);
    assert!(
        (38..=42).contains(&percent(weights[1], weights[0])),
        "{weights:?}"
    );
}

#[test]
fn saturated_links_share_by_their_rates() {
    let links = vec![
        link("large", 100 * MBIT, 100 * MBIT),
        link("small", 10 * MBIT, 10 * MBIT),
    ];
    let mut driver = Driver::new("WMIRBF", links);
    driver.carry(&[(0, 110 * MBIT), (0, 11 * MBIT)]);
    let weights = driver.weights();
    assert_eq!(percent(weights[1], weights[0]), 10);
}

/// Much towards the LAN, or much towards the internet.
fn lopsided() -> Vec<LinkSpec> {
    vec![
        link("down", 5 * MBIT, 100 * MBIT),
        link("even", 50 * MBIT, 50 * MBIT),
    ]
}

#[test]
fn wsdm_weighs_a_site_of_downloads_by_the_way_down() {
    let mut driver = Driver::new("WSDM", lopsided());
    driver.carry(&[(20_000, MBIT), (20_000, MBIT)]);
    let weights = driver.weights();
    assert!(
        (48..=52).contains(&percent(weights[1], weights[0])),
        "{weights:?}"
    );
}

#[test]
fn wsdm_weighs_a_site_of_uploads_by_the_way_up() {
    let mut driver = Driver::new("WSDM", lopsided());
    driver.carry(&[(MBIT, 20_000), (MBIT, 20_000)]);
    let weights = driver.weights();
    assert!(
        (6..=10).contains(&percent(weights[0], weights[1])),
        "{weights:?}"
    );
}

#[test]
fn wsdm_turns_away_from_a_link_whose_way_up_is_full_of_acknowledgements() {
    let links = vec![
        link("choked", MBIT, 100 * MBIT),
        link("even", 50 * MBIT, 50 * MBIT),
    ];
    let mut driver = Driver::new("WSDM", links);
    driver.carry(&[(MBIT, 30 * MBIT), (MBIT, 30 * MBIT)]);
    let weights = driver.weights();
    assert!(percent(weights[0], weights[1]) < 5, "{weights:?}");
}

#[test]
fn the_link_of_the_fewest_bytes_has_the_greatest_weight_under_ltf() {
    let mut driver = Driver::new("LTF", equal(2));
    driver.carry(&[(0, 4 * MBIT), (0, MBIT)]);
    assert_eq!(driver.weights()[1], WEIGHT_MAX);
    assert!((24..=26).contains(&percent(driver.weights()[0], WEIGHT_MAX)));
}

#[test]
fn weighted_round_robin_takes_declared_weights_before_rates() {
    let links = lopsided();
    assert_eq!(
        Driver::new("WRR", links.clone()).weights(),
        [WEIGHT_MAX, WEIGHT_MAX / 2]
    );
    let weigh = |weight| {
        move |spec| LinkSpec {
            weight: Some(weight),
            ..spec
        }
    };
    let weighed: Vec<_> = links
        .into_iter()
        .zip([1, 4])
        .map(|(spec, w)| weigh(w)(spec))
        .collect();
    assert_eq!(
        Driver::new("WRR", weighed).weights(),
        [WEIGHT_MAX / 4, WEIGHT_MAX]
    );
}

#[test]
fn a_choice_that_would_change_nothing_is_not_made() {
    let mut driver = Driver::new("WSDM", equal(2));
    driver.run(Duration::from_secs(1), |_| true);
    driver.choice = None;
    driver.run(Duration::from_secs(5), |_| true);
    assert_eq!(driver.choice, None);
}

#[test]
fn a_configuration_that_cannot_work_is_refused_with_the_link_and_what_it_needs() {
    let build = |algorithm: &str, links| {
        Balancer::new(
            Time::ZERO,
            algorithm.parse().unwrap(),
            links,
            Config::default(),
        )
        .unwrap_err()
    };
    let bare = |name: &str| LinkSpec {
        name: name.into(),
        ..LinkSpec::default()
    };
    assert_eq!(
        build("wsdm", vec![link("a", 1, 1), bare("b")]).to_string(),
        "policy `WSDM` needs `down` or `up` of link `b`: declare it, or choose a policy that needs no rate"
    );
    assert_eq!(build("RR", vec![]), BuildError::LinkCount(0));
    assert_eq!(build("RR", equal(17)), BuildError::LinkCount(17));
    assert!(matches!(
        build("RR", vec![link("a", 0, 1)]),
        BuildError::RateZero { .. }
    ));
    let weighed = |weight| LinkSpec {
        weight,
        ..link("a", 1, 1)
    };
    assert!(matches!(
        build("WRR", vec![weighed(Some(1)), weighed(None)]),
        BuildError::WeightsMixed { .. }
    ));
    assert!(matches!(
        build("WRR", vec![weighed(Some(0))]),
        BuildError::WeightRange { weight: 0, .. }
    ));
}

#[test]
fn a_suspicion_is_told_only_when_a_probe_is_lost() {
    let mut driver = Driver::new("WSDM", equal(2));
    for _ in 0..20 {
        driver.counters[0].traffic.tx_packets += 1;
        driver.run(Duration::from_secs(1), |_| true);
    }
    assert_eq!(
        driver.events,
        [],
        "every pause in the traffic was answered for by a probe"
    );
    driver.silence(&[0]);
    let silent = Event::Suspected {
        link: LinkId(0),
        suspicion: Suspicion::Silent,
    };
    assert_eq!(driver.events[0], (silent, 0b11));
}

#[test]
fn flows_that_an_adopted_data_path_has_on_an_absent_link_end() {
    let mut balancer = Balancer::new(
        Time::ZERO,
        Algorithm::default(),
        equal(2),
        Config::default(),
    )
    .unwrap();
    balancer.handle_link_state(Time::ZERO, LinkId(0), LinkState::Present);
    assert_eq!(
        balancer.poll_event(),
        None,
        "the other link may be told of next"
    );
    balancer.handle_counters(Time::ZERO, &[LinkCounters::default(); 2]);
    assert!(balancer.poll_choice().is_some());
    assert_eq!(
        balancer.poll_event(),
        Some(Event::EndFlows { link: LinkId(1) })
    );
}

#[test]
fn flows_that_an_adopted_data_path_has_on_a_metered_link_live_on() {
    let links = vec![equal(1).remove(0), metered(link("lte", MBIT, MBIT))];
    let mut driver = Driver::absent("WSDM", links);
    driver.set_present(0);
    driver.set_present(1);
    driver.count();
    driver.run(Duration::from_secs(3), |_| true);
    assert_eq!(driver.usable(), 0b01);
    let ended = |(event, _): &(Event, u64)| matches!(event, Event::EndFlows { .. });
    assert!(!driver.events.iter().any(ended), "{:?}", driver.events);
}

#[test]
fn a_new_configuration_leaves_what_is_known_of_links_that_stay() {
    let mut driver = Driver::new("WSDM", equal(3));
    driver.set_admin(1, Admin::Drain);
    driver.silence(&[0]);
    let mut links = equal(3);
    links[2].name = "another".into();
    let round_robin = "RR".parse().unwrap();
    driver
        .core
        .balancer_mut()
        .reconfigure(driver.now, round_robin, links, Config::default())
        .unwrap();
    driver.poll(&|_| false);
    let status = driver.core.balancer().status(driver.now);
    assert!(matches!(
        status[0].state,
        State::Down(DownCause::Unanswered(Suspicion::Silent))
    ));
    assert_eq!(status[1].admin, Admin::Drain);
    assert_eq!(
        status[2].state,
        State::Down(DownCause::Absent(Missing::Device)),
        "never seen"
    );
    assert_eq!(driver.choice.unwrap().syn_retry, 0);
}

#[test]
fn a_new_configuration_that_is_refused_changes_nothing() {
    let mut driver = Driver::new("WSDM", equal(2));
    driver.choice = None;
    let none = vec![];
    let refused = driver.core.balancer_mut().reconfigure(
        driver.now,
        "RR".parse().unwrap(),
        none,
        Config::default(),
    );
    assert_eq!(refused, Err(BuildError::LinkCount(0)));
    driver.run(Duration::from_secs(1), |_| true);
    assert_eq!(
        (
            driver.core.balancer().status(driver.now).len(),
            driver.choice
        ),
        (2, None)
    );
}

#[test]
fn few_flows_are_shared_by_weight_although_each_has_a_period_of_its_own() {
    let mut driver = Driver::new(
        "WSDM",
        vec![
            link("a", 6 * MBIT, 30 * MBIT),
            link("b", 2 * MBIT, 10 * MBIT),
        ],
    );
    let mut flows = [0; 2];
    for _ in 0..40 {
        flows[driver.choose()] += 1;
        driver.run(Duration::from_millis(250), |_| true);
    }
    assert_eq!(flows, [30, 10]);
}

/// Every millisecond a download of one second may begin; the choice is the packet path's own.
#[test]
fn links_of_unlike_rates_are_loaded_alike_under_wsdm() {
    let rates = [100 * MBIT, 50 * MBIT, 10 * MBIT];
    let links = rates
        .iter()
        .map(|&rate| link("isp", rate / 5, rate))
        .collect();
    let mut driver = Driver::new("WSDM", links);
    let mut ends = std::collections::BTreeMap::<u64, [u64; 3]>::new();
    let (mut live, mut carried, mut most) = ([0u64; 3], [0u64; 3], [0u64; 3]);
    // 80 downloads per second of 1.6 Mbit/s over one second each: 128 of 160 Mbit/s.
    for ms in 0..20_000u64 {
        let now_ending = ends.remove(&ms).unwrap_or_default();
        (0..3).for_each(|i| live[i] -= now_ending[i]);
        if ms * 80 % 1000 < 80 {
            let chosen = driver.choose();
            live[chosen] += 1;
            ends.entry(ms + 1000).or_default()[chosen] += 1;
        }
        for i in 0..3 {
            let bits = (live[i] * 1600).min(rates[i] / 1000);
            most[i] = most[i].max(live[i] * 1_600_000 * 100 / rates[i]);
            carried[i] += if ms >= 5000 { bits } else { 0 };
            let traffic = &mut driver.counters[i].traffic;
            traffic.rx_bytes += bits / 8;
            traffic.tx_bytes += bits / 8 / 30;
            traffic.rx_packets += 1;
            traffic.tx_packets += 1;
            traffic.rx_progress += 1;
        }
        driver.run(Duration::from_millis(1), |_| true);
    }
    let used: Vec<_> = (0..3).map(|i| carried[i] * 100 / (rates[i] * 15)).collect();
    assert!(
        used.iter().all(|percent| (60..=95).contains(percent)),
        "{used:?} % used, at most {most:?} % asked for"
    );
}

#[test]
fn links_that_all_fail_and_return_at_once_keep_their_flows() {
    let mut driver = Driver::new("WSDM", equal(2));
    for counters in &mut driver.counters {
        counters.traffic.tx_packets += 1;
    }
    driver.run(Duration::from_millis(650), |_| false);
    driver.run(Duration::from_millis(700), |_| true);
    assert_eq!(driver.usable(), 0b11);
    let ends = |(event, _): &(Event, u64)| matches!(event, Event::EndFlows { .. });
    assert!(!driver.events.iter().any(ends), "{:?}", driver.events);
}

/// Anything that can happen to three links.
#[derive(Clone, Debug)]
enum Transition {
    Present(usize),
    Absent(usize),
    Admin(usize, Admin),
    Wait { ms: u64, answering: u32 },
    Traffic { tx: u32, rx: u32, progress: u32 },
}

fn transition() -> impl Strategy<Value = Transition> {
    let admin = prop::sample::select(vec![Admin::Up, Admin::Drain, Admin::Down]);
    prop_oneof![
        (0..3usize).prop_map(Transition::Present),
        (0..3usize).prop_map(Transition::Absent),
        (0..3usize, admin).prop_map(|(link, admin)| Transition::Admin(link, admin)),
        (0..3000u64, 0..8u32).prop_map(|(ms, answering)| Transition::Wait { ms, answering }),
        (0..8u32, 0..8u32, 0..8u32).prop_map(|(tx, rx, progress)| Transition::Traffic {
            tx,
            rx,
            progress
        }),
    ]
}

/// What holds whatever happened: the promises of the crate, in terms of what was told to the balancer.
struct Oracle {
    present: [bool; 3],
    admin: [Admin; 3],
}

impl Oracle {
    fn check(&self, driver: &Driver) {
        let usable = driver.usable();
        assert_eq!(
            usable,
            driver.core.balancer().usable().targets().word[0],
            "the installed choice is the balancer's"
        );
        let eligible = |i: &usize| self.present[*i] && self.admin[*i] == Admin::Up;
        for i in (0..3).filter(|i| usable >> i & 1 == 1) {
            assert!(
                eligible(&i),
                "link {i} is used: present {:?}, {:?}",
                self.present,
                self.admin
            );
        }
        assert_eq!(
            usable == 0,
            (0..3).filter(eligible).count() == 0,
            "refused only if nothing is left"
        );
        let alive_unmetered = driver
            .core
            .balancer()
            .status(driver.now)
            .iter()
            .any(|l| l.usable && !l.metered && !matches!(l.state, State::Down(_)));
        assert!(
            !(alive_unmetered && usable >> 2 == 1),
            "the metered link rests while another works"
        );
        for (event, installed) in &driver.events {
            if let Event::EndFlows { link } = event {
                assert!(
                    installed >> link.0 & 1 == 0,
                    "flows end on a link that gets new ones"
                );
                assert!(*installed != 0, "flows end although no link takes them");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_happens_only_fit_links_are_used_and_flows_end_only_when_others_take_them(
        transitions in prop::collection::vec(transition(), 1..40),
    ) {
        let mut links = equal(3);
        links[2].metered = true;
        let mut driver = Driver::new("WSDM", links);
        let mut oracle = Oracle { present: [true; 3], admin: [Admin::Up; 3] };
        for transition in transitions {
            match transition {
                Transition::Present(i) => {
                    oracle.present[i] = true;
                    driver.set_present(i);
                }
                Transition::Absent(i) => {
                    oracle.present[i] = false;
                    driver.set_absent(i);
                }
                Transition::Admin(i, admin) => {
                    oracle.admin[i] = admin;
                    driver.set_admin(i, admin);
                }
                Transition::Wait { ms, answering } => {
                    driver.run(Duration::from_millis(ms), |link| answering >> link.0 & 1 == 1);
                }
                Transition::Traffic { tx, rx, progress } => {
                    for (i, counters) in driver.counters.iter_mut().enumerate() {
                        counters.traffic.tx_packets += u64::from(tx >> i & 1);
                        counters.traffic.rx_packets += u64::from(rx >> i & 1);
                        counters.traffic.rx_progress += u64::from(progress >> i & rx >> i & 1);
                    }
                }
            }
            oracle.check(&driver);
        }
    }
}
