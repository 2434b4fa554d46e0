//! What comes before what: counters, choices, events, ends.

use super::*;

#[test]
fn there_is_no_choice_before_the_first_counters() {
    let mut balancer = balancer("WSDM");
    balancer.handle_link_state(Time::ZERO, LinkId(0), V4, LinkState::Present);
    assert_eq!(balancer.poll_choice(), None);
    balancer.handle_counters(Time::ZERO, &[LinkCounters::default(); 2]);
    assert_eq!(poll_usable(&mut balancer), Some((ClassId::DEFAULT, 0b01)));
}

#[test]
fn round_robin_counts_on_until_the_usable_links_change() {
    let mut driver = Driver::new("RR", equal(3));
    driver.counters[0].flows.dispatched = 100;
    driver.run(Duration::from_secs(5), |_| true);
    assert_eq!(driver.choice().unwrap().target[0].dispatched_base, 0);
    driver.set_absent(2);
    assert_eq!(driver.choice().unwrap().target[0].dispatched_base, 100);
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
    assert_eq!(told[1], (end_of(0), 0b10));
    assert_eq!(told.len(), 2);
}

#[test]
fn events_wait_for_the_choice_to_be_polled() {
    let mut driver = Driver::new("WSDM", equal(2));
    let absent = LinkState::Absent(Missing::Device);
    driver
        .core
        .balancer_mut()
        .handle_link_state(driver.now, LinkId(0), V4, absent);
    assert_eq!(driver.core.balancer_mut().poll_event(), None);
    assert_eq!(
        poll_usable(driver.core.balancer_mut()),
        Some((ClassId::DEFAULT, 0b10))
    );
    assert_eq!(poll_usable(driver.core.balancer_mut()), None);
    assert!(matches!(
        driver.core.balancer_mut().poll_event(),
        Some(Event::LinkDown { .. })
    ));
    assert_eq!(driver.core.balancer_mut().poll_event(), Some(end_of(0)));
}

#[test]
fn a_choice_that_would_change_nothing_is_not_made() {
    let mut driver = Driver::new("WSDM", equal(2));
    driver.run(Duration::from_secs(1), |_| true);
    driver.choices.clear();
    driver.run(Duration::from_secs(5), |_| true);
    assert_eq!(driver.choice(), None);
}

#[test]
fn a_suspicion_is_told_only_when_a_probe_is_lost() {
    let mut driver = Driver::new("WSDM", equal(2));
    for _ in 0..20 {
        driver.counters[0].traffic[V4].tx_packets += 1;
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
        family: V4,
        suspicion: Suspicion::Silent,
    };
    assert_eq!(driver.events[0], (silent, 0b11));
}

#[test]
fn flows_of_the_only_link_are_not_ended_until_another_can_take_them() {
    let mut driver = Driver::new("WSDM", equal(2));
    driver.set_absent(1);
    driver.run(Duration::from_secs(1), |_| true);
    driver.events.clear();
    driver.silence(&[0]);
    assert!(matches!(driver.path(0).state, State::Down(_)));
    assert!(
        !driver
            .events
            .iter()
            .any(|(e, _)| matches!(e, Event::EndFlows { .. })),
        "nobody takes them"
    );
    driver.set_present(1);
    driver.run(Duration::from_secs(2), |link| link == LinkId(1));
    assert_eq!(driver.events.last(), Some(&(end_of(0), 0b10)));
}

#[test]
fn links_that_all_fail_and_return_at_once_keep_their_flows() {
    let mut driver = Driver::new("WSDM", equal(2));
    for counters in &mut driver.counters {
        counters.traffic[V4].tx_packets += 1;
    }
    driver.run(Duration::from_millis(650), |_| false);
    driver.run(Duration::from_millis(700), |_| true);
    assert_eq!(driver.usable(), 0b11);
    let ends = |(event, _): &(Event, u64)| matches!(event, Event::EndFlows { .. });
    assert!(!driver.events.iter().any(ends), "{:?}", driver.events);
}

#[test]
fn an_algorithm_that_measures_wakes_nobody_more_often_where_nothing_is_carried() {
    let turns = |algorithm: &str| {
        let mut driver = Driver::new(algorithm, equal(2));
        driver.run(Duration::from_secs(5), |_| true);
        let end = driver.now + Duration::from_secs(10);
        let mut turns = 0;
        while driver.core.next_turn() <= end {
            let next = driver.core.next_turn().since(driver.now);
            driver.run(next, |_| true);
            turns += 1;
        }
        turns
    };
    assert_eq!(turns("WMIRBF"), turns("RR"));
}
