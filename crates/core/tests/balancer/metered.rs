//! Metered links.

use super::*;

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
    let is_of_lte = |event: &Event| matches!(event, Event::EndFlows { link, .. } | Event::MoveUdp { link, .. } if link.0 == 1);
    moves.retain(|(event, _)| is_of_lte(event));
    moves
}

#[test]
fn flows_on_a_metered_link_do_what_is_configured_when_a_better_link_returns() {
    assert_eq!(moved(OnReturn::Stay), []);
    assert_eq!(moved(OnReturn::Move), [(end_of(1), Duration::ZERO)]);
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
    let sent = [0, 1].map(|i| driver.path(i).probes_sent);
    assert_eq!((sent[0] > 100, sent[1]), (true, 6), "{sent:?}");
}
