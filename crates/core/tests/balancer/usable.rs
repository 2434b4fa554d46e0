//! Which links are used: those that work, and the operator lets.

use super::*;

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
    driver.counters[0].traffic[V4].tx_packets = 1000;
    driver.counters[0].traffic[V4].rx_packets = 1000;
    driver.run(Duration::from_millis(60), |_| true);
    driver.counters[0] = LinkCounters::default();
    driver.run(Duration::from_millis(60), |_| true);
    driver.counters[0].traffic[V4].tx_bytes = 1;
    driver.run(Duration::from_millis(60), |_| true);
    assert!(
        driver.core.balancer().status(driver.now)[0]
            .available_up_bps
            .unwrap()
            > 9 * MBIT
    );
}
