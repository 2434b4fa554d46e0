//! What works for one address family and not for the other.

use super::*;

fn dual(policy: &str) -> Driver {
    let mut driver = Driver::new(policy, equal(2));
    for i in 0..2 {
        driver.set_state(i, V6, LinkState::Present);
    }
    driver.run(Duration::from_secs(1), |_| true);
    driver.events.clear();
    driver
}

/// Sent into silence for one family, while the other and its probes are answered.
fn silence_v6(driver: &mut Driver, i: usize) {
    for _ in 0..40 {
        driver.counters[i].traffic[V6].tx_packets += 1;
        let v4 = &mut driver.counters[i].traffic[V4];
        v4.tx_packets += 1;
        v4.rx_packets += 1;
        v4.rx_progress += 1;
        let dead = Driver::id(i);
        driver.run_paths(Duration::from_millis(50), |link, family| {
            (link, family) != (dead, V6)
        });
    }
}

fn ends(driver: &Driver) -> Vec<(u16, Family)> {
    let ends = driver.events.iter().filter_map(|(event, _)| match event {
        Event::EndFlows { link, family, .. } => Some((link.0, *family)),
        _ => None,
    });
    ends.collect()
}

#[test]
fn a_link_whose_ipv6_dies_is_down_for_ipv6_alone_and_loses_its_ipv6_flows_alone() {
    let mut driver = dual("WSDM");
    let before = driver.path(0);
    silence_v6(&mut driver, 0);
    let usable = Family::ALL.map(|family| driver.usable_by(ClassId::DEFAULT, family));
    assert_eq!(usable, [0b11, 0b10]);
    let unanswered = |state| matches!(state, State::Down(DownCause::Unanswered(_)));
    assert!(unanswered(driver.path_for(0, V6).state));
    assert_eq!(driver.path(0).state, State::Up);
    assert_eq!(driver.path(0).since, before.since, "nothing has happened");
    let usable = Family::ALL.map(|family| driver.path_for(0, family).usable);
    assert_eq!(usable, [true, false]);
    assert_eq!(ends(&driver), [(0, V6)]);
    assert!(
        driver
            .events
            .iter()
            .all(|(event, _)| family_of(event) == V6)
    );
}

#[test]
fn the_family_that_is_left_keeps_its_flows_until_another_link_takes_them() {
    let mut driver = dual("WSDM");
    driver.set_state(1, V6, LinkState::Absent(Missing::Address));
    driver.events.clear();
    silence_v6(&mut driver, 0);
    assert_eq!(ends(&driver), [], "no other link has IPv6");
    assert_eq!(driver.usable_by(ClassId::DEFAULT, V6), 0b01);
    driver.set_state(1, V6, LinkState::Present);
    driver.run_paths(Duration::from_secs(2), |link, family| {
        (link, family) != (LinkId(0), V6)
    });
    assert_eq!(ends(&driver), [(0, V6)]);
    assert_eq!(driver.usable_by(ClassId::DEFAULT, V6), 0b10);
}

#[test]
fn a_link_that_has_one_family_takes_no_flows_of_the_other() {
    let mut driver = Driver::new("WSDM", equal(3));
    driver.set_state(1, V6, LinkState::Present);
    driver.run(Duration::from_secs(5), |_| true);
    assert_eq!(driver.usable_by(ClassId::DEFAULT, V4), 0b111);
    assert_eq!(driver.usable_by(ClassId::DEFAULT, V6), 0b010);
    let absent = State::Down(DownCause::Absent(Missing::Device));
    assert_eq!(driver.path_for(0, V6).state, absent);
    assert_eq!(
        driver.path_for(0, V6).probes_sent,
        0,
        "there is nobody to ask"
    );
}

#[test]
fn the_load_of_a_link_is_of_both_families() {
    let mut driver = dual("WSDM");
    let left = |driver: &Driver| {
        let status = driver.core.balancer().status(driver.now);
        [0, 1].map(|i: usize| status[i].available_down_bps.unwrap() / MBIT)
    };
    for _ in 0..200 {
        for (i, families) in [(0, &[V4, V6][..]), (1, &[V4])] {
            for family in families {
                let traffic = &mut driver.counters[i].traffic[*family];
                traffic.rx_packets += 1;
                traffic.rx_progress += 1;
                traffic.tx_packets += 1;
                traffic.rx_bytes += 4 * MBIT / 8 / 20;
            }
        }
        driver.run(Duration::from_millis(50), |_| true);
    }
    assert_eq!(left(&driver), [2, 6]);
    assert!(driver.weights()[0] < driver.weights()[1]);
    let of = |family| driver.choices[&(ClassId::DEFAULT, family)].target;
    assert_eq!(of(V4), of(V6));
}

#[test]
fn an_order_is_of_a_link_whatever_it_carries() {
    let mut driver = dual("WSDM");
    driver.set_admin(0, Admin::Down);
    assert_eq!(ends(&driver), [(0, V4), (0, V6)]);
    let usable = Family::ALL.map(|family| driver.usable_by(ClassId::DEFAULT, family));
    assert_eq!(usable, [0b10, 0b10]);
}

#[test]
fn a_link_is_the_last_where_it_is_the_last_of_one_family() {
    let mut driver = dual("WSDM");
    let is_last = |driver: &Driver| [0, 1].map(|i| driver.core.balancer().is_last(Driver::id(i)));
    assert_eq!(is_last(&driver), [false, false]);
    silence_v6(&mut driver, 0);
    assert_eq!(is_last(&driver), [false, true]);
}
