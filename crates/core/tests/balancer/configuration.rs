//! New configurations, and data paths that were there before.

use super::*;

#[test]
fn a_configuration_that_cannot_work_is_refused_with_the_link_and_what_it_needs() {
    let build = |algorithm: &str, links| {
        Balancer::new(
            Time::ZERO,
            ClassSpec::alone(algorithm.parse().unwrap()),
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
    assert_eq!(
        build("WFRRTFNF", equal(2)).to_string(),
        "policy `WFRRTFNF` measures round trips to a fixed node: name one in `probe.node`"
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
fn a_new_configuration_leaves_what_is_known_of_links_that_stay() {
    let mut driver = Driver::new("WSDM", equal(3));
    driver.set_admin(1, Admin::Drain);
    driver.silence(&[0]);
    let mut links = equal(3);
    links[2].name = "another".into();
    let round_robin = ClassSpec::alone("RR".parse().unwrap());
    driver
        .core
        .balancer_mut()
        .reconfigure(driver.now, round_robin, links, Config::default())
        .unwrap();
    driver.poll(&|_, _| false);
    let status = driver.core.balancer().status(driver.now);
    assert!(matches!(
        driver.path(0).state,
        State::Down(DownCause::Unanswered(Suspicion::Silent))
    ));
    assert_eq!(status[1].admin, Admin::Drain);
    assert_eq!(
        driver.path(2).state,
        State::Down(DownCause::Absent(Missing::Device)),
        "never seen"
    );
    assert_eq!(driver.choice().unwrap().syn_retry, 0);
}

#[test]
fn a_new_configuration_that_is_refused_changes_nothing() {
    let mut driver = Driver::new("WSDM", equal(2));
    driver.choices.clear();
    let none = vec![];
    let refused = driver.core.balancer_mut().reconfigure(
        driver.now,
        ClassSpec::alone("RR".parse().unwrap()),
        none,
        Config::default(),
    );
    assert_eq!(refused, Err(BuildError::LinkCount(0)));
    driver.run(Duration::from_secs(1), |_| true);
    assert_eq!(
        (
            driver.core.balancer().status(driver.now).len(),
            driver.choice()
        ),
        (2, None)
    );
}

#[test]
fn an_adopted_data_path_starts_its_window_at_what_it_has_dispatched_before() {
    let mut driver = Driver::new("RR", equal(2));
    let mut balancer = balancer("RR");
    driver.counters[1].flows.dispatched = (1 << 32) + 7;
    balancer.handle_counters(Time::ZERO, &driver.counters);
    assert_eq!(
        balancer.poll_choice().unwrap().2.target[1].dispatched_base,
        7
    );
}

#[test]
fn flows_that_an_adopted_data_path_has_on_an_absent_link_end() {
    let mut balancer = balancer("WSDM");
    balancer.handle_link_state(Time::ZERO, LinkId(0), V4, LinkState::Present);
    assert_eq!(
        balancer.poll_event(),
        None,
        "the other link may be told of next"
    );
    balancer.handle_counters(Time::ZERO, &[LinkCounters::default(); 2]);
    assert!(poll_usable(&mut balancer).is_some());
    assert_eq!(poll_usable(&mut balancer), None);
    assert_eq!(balancer.poll_event(), Some(end_of(1)));
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

/// Over links of which the first has no NAT if `routed`.
fn turn(driver: &mut Driver, count: usize, routed: bool) {
    let mut links = equal(count);
    links[0].routed = routed;
    let classes = ClassSpec::alone("RR".parse().unwrap());
    let balancer = driver.core.balancer_mut();
    balancer
        .reconfigure(driver.now, classes, links, Config::default())
        .unwrap();
    driver.events.clear();
    driver.poll(&|_, _| true);
}

#[test]
fn a_link_that_loses_or_gets_nat_leaves_the_choice_then_its_flows_end_then_it_is_used_again() {
    let mut driver = Driver::new("RR", equal(2));
    driver.set_admin(1, Admin::Drain);
    driver.set_admin(1, Admin::Up);
    for routed in [true, false] {
        turn(&mut driver, 2, routed);
        assert_eq!(driver.events, [(end_of(0), 0b10)]);
        driver.set_present(0);
        assert_eq!(driver.usable(), 0b11, "used while it is asked");
        driver.events.clear();
        driver.run(Duration::from_secs(5), |_| true);
        let is_up = |(event, _): &(Event, u64)| matches!(event, Event::LinkUp { .. });
        assert!(driver.events.iter().all(is_up), "{:?}", driver.events);
    }
}

#[test]
fn the_flows_of_a_link_that_turns_end_even_if_it_is_the_only_one() {
    let mut driver = Driver::new("RR", equal(1));
    turn(&mut driver, 1, true);
    assert_eq!(driver.events, [(end_of(0), 0)]);
    driver.set_present(0);
    assert_eq!(driver.usable(), 0b1);
    // A loss like any other: nobody can take its flows.
    driver.events.clear();
    driver.set_absent(0);
    let ended = |(event, _): &(Event, u64)| matches!(event, Event::EndFlows { .. });
    assert!(!driver.events.iter().any(ended), "{:?}", driver.events);
}

#[test]
fn an_order_outlives_the_turn_of_a_link() {
    let mut driver = Driver::new("RR", equal(2));
    driver.set_admin(0, Admin::Drain);
    turn(&mut driver, 2, true);
    driver.set_present(0);
    assert_eq!(driver.usable(), 0b10);
}
