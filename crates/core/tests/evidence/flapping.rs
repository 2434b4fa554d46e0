//! Links that come and go.

use super::*;

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
