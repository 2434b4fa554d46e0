//! Pages, and the portals that answer in their place.

use super::*;

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
