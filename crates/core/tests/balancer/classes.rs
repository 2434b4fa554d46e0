//! Several classes over the same links: each has a choice of its own.

use super::*;

use anabranch_core::LinkSet;
use anabranch_core::rules::{Direction, WhenNone};
use anabranch_policy::abi;

const BULK: ClassId = ClassId(1);
const VIDEO: ClassId = ClassId(7);

fn set(bits: u64) -> LinkSet {
    let links = (0..16).filter(|link| bits >> link & 1 == 1);
    links.map(LinkId).collect()
}

fn class(algorithm: &str, tiers: &[u64], when_none: WhenNone) -> ClassSpec {
    ClassSpec {
        tiers: Some(tiers.iter().map(|tier| set(*tier)).collect()),
        ..over_all(algorithm, when_none)
    }
}

/// Without tiers.
fn over_all(algorithm: &str, when_none: WhenNone) -> ClassSpec {
    let algorithm: anabranch_core::Algorithm = algorithm.parse().unwrap();
    ClassSpec {
        when_none,
        ..algorithm.into()
    }
}

/// A default class of WSDM, and others.
fn with(others: &[(ClassId, ClassSpec)]) -> Classes {
    let mut classes = ClassSpec::alone("WSDM".parse().unwrap());
    classes.extend(others.iter().cloned());
    classes
}

fn reconfigure(driver: &mut Driver, classes: Classes, links: Vec<LinkSpec>) {
    let now = driver.now;
    let balancer = driver.core.balancer_mut();
    balancer
        .reconfigure(now, classes, links, Config::default())
        .unwrap();
    driver.poll(&|_, _| true);
}

/// Usable, spare and working links of a class, as installed.
fn paths(driver: &Driver, class: ClassId) -> (u64, Vec<u64>, u64) {
    let choice = &driver.choices[&(class, V4)];
    let spare = choice.spare.iter().map(|tier| tier.word[0]);
    (
        choice.usable.word[0],
        spare.take(choice.spares as usize).collect(),
        choice.working.word[0],
    )
}

fn ends(driver: &Driver) -> Vec<Event> {
    let events = driver.events.iter().map(|(event, _)| *event);
    events
        .filter(|event| matches!(event, Event::EndFlows { .. }))
        .collect()
}

#[test]
fn a_class_takes_its_first_tier_with_a_link_left_and_spares_those_after_it() {
    let bulk = class("RR", &[0b001, 0b110, 0b1000], WhenNone::Any);
    let mut driver = Driver::with(with(&[(BULK, bulk)]), equal(4));
    assert_eq!(paths(&driver, BULK), (0b0001, vec![0b0110, 0b1000], 0b1111));
    driver.set_absent(1);
    assert_eq!(paths(&driver, BULK), (0b0001, vec![0b0100, 0b1000], 0b1101));
    driver.silence(&[0]);
    assert_eq!(paths(&driver, BULK), (0b0100, vec![0b1000], 0b1100));
    driver.set_admin(2, Admin::Drain);
    assert_eq!(paths(&driver, BULK), (0b1000, vec![], 0b1000));
    driver.set_admin(2, Admin::Up);
    driver.run(Duration::from_secs(3), |_| true);
    assert_eq!(
        paths(&driver, BULK),
        (0b0001, vec![0b0100, 0b1000], 0b1101),
        "new flows go back by themselves"
    );
}

#[test]
fn metered_links_rest_in_classes_without_tiers_only() {
    let links = || {
        let mut links = equal(2);
        links[1].metered = true;
        links
    };
    let bulk = class("RR", &[0b11], WhenNone::Any);
    let any = over_all("RR", WhenNone::Any);
    let driver = Driver::with(with(&[(BULK, bulk), (VIDEO, any)]), links());
    assert_eq!(driver.usable(), 0b01);
    assert_eq!(driver.usable_of(VIDEO), 0b01);
    assert_eq!(driver.usable_of(BULK), 0b11);
    assert_eq!(paths(&driver, VIDEO).1, [], "a metered link is no spare");
}

#[test]
fn a_class_that_has_no_link_left_takes_those_of_the_default_class_or_says_what_else() {
    for (when_none, usable, code) in [
        (WhenNone::Any, 0b110, abi::Without::Refuse),
        (WhenNone::Drop, 0, abi::Without::Drop),
        (WhenNone::Kernel, 0, abi::Without::Kernel),
    ] {
        let bulk = class("RR", &[0b001], when_none);
        let mut driver = Driver::with(with(&[(BULK, bulk)]), equal(3));
        assert_eq!(paths(&driver, BULK), (0b001, vec![], 0b111));
        driver.silence(&[0]);
        assert_eq!(
            paths(&driver, BULK),
            (usable, vec![], 0b110),
            "{when_none:?}"
        );
        assert_eq!(driver.choices[&(BULK, V4)].without, u32::from(code));
    }
}

#[test]
fn a_class_of_no_tier_never_has_a_link() {
    let bulk = class("RR", &[], WhenNone::Drop);
    let mut driver = Driver::with(with(&[(BULK, bulk)]), equal(2));
    driver.silence(&[0]);
    driver.run(Duration::from_secs(3), |_| true);
    assert_eq!(paths(&driver, BULK), (0, vec![], 0b11));
}

#[test]
fn when_every_link_is_down_a_class_takes_its_first_tier_that_is_present() {
    let bulk = class("RR", &[0b001, 0b010], WhenNone::Drop);
    let mut driver = Driver::with(with(&[(BULK, bulk)]), equal(3));
    driver.set_absent(0);
    driver.silence(&[1, 2]);
    assert_eq!(driver.usable(), 0b110);
    assert_eq!(paths(&driver, BULK), (0b010, vec![], 0b110));
}

#[test]
fn flows_end_in_the_classes_that_have_another_link_for_them() {
    let bulk = class("RR", &[0b01, 0b10], WhenNone::Drop);
    let video = class("RR", &[0b01], WhenNone::Drop);
    let mut driver = Driver::with(with(&[(BULK, bulk), (VIDEO, video)]), equal(2));
    driver.silence(&[0]);
    let ended = [ClassId::DEFAULT, BULK].map(|class| end_in(class, 0));
    assert_eq!(ends(&driver), ended);
    driver.run(Duration::from_secs(3), |_| true);
    driver.silence(&[0]);
    assert_eq!(ends(&driver)[2..], ended, "every time it is lost");
}

#[test]
fn no_flow_ends_whose_class_has_lost_its_last_link_before_anybody_heard_of_the_end() {
    let bulk = class("RR", &[0b100], WhenNone::Drop);
    for ms in 1900..2200 {
        let mut driver = Driver::with(with(&[(BULK, bulk.clone())]), equal(4));
        driver.run(Duration::from_millis(ms), |_| false);
        driver.run(Duration::from_millis(100), |link| 0b101 >> link.0 & 1 == 1);
        for (event, installed) in &driver.events {
            if let Event::EndFlows { .. } = event {
                assert_ne!(*installed, 0, "{ms}: {event:?}");
            }
        }
    }
}

#[test]
fn no_flow_ends_before_the_choice_of_every_class_is_polled() {
    let bulk = class("RR", &[0b01, 0b10], WhenNone::Drop);
    let mut driver = Driver::with(with(&[(BULK, bulk)]), equal(2));
    let absent = LinkState::Absent(Missing::Device);
    let balancer = driver.core.balancer_mut();
    balancer.handle_link_state(driver.now, LinkId(0), V4, absent);
    for class in [ClassId::DEFAULT, BULK] {
        assert_eq!(balancer.poll_event(), None);
        assert_eq!(poll_usable(balancer), Some((class, 0b10)));
    }
    assert_eq!(poll_usable(balancer), None);
    assert!(matches!(
        balancer.poll_event(),
        Some(Event::LinkDown { .. })
    ));
    assert_eq!(balancer.poll_event(), Some(end_of(0)));
}

#[test]
fn flows_of_a_later_tier_do_what_their_class_says_when_a_link_of_an_earlier_one_returns() {
    let bulk = |on_return| ClassSpec {
        on_return,
        ..class("RR", &[0b01, 0b10], WhenNone::Any)
    };
    for (on_return, moved) in [
        (None, vec![]),
        (Some(OnReturn::Stay), vec![]),
        (Some(OnReturn::Move), vec![end_in(BULK, 1)]),
    ] {
        let mut driver = Driver::with(with(&[(BULK, bulk(on_return))]), equal(2));
        driver.silence(&[0]);
        driver.events.clear();
        driver.run(Duration::from_secs(3), |_| true);
        assert_eq!(driver.usable_of(BULK), 0b01);
        assert_eq!(ends(&driver), moved, "{on_return:?}");
    }
}

#[test]
fn the_windows_of_a_class_are_its_own() {
    let bulk = class("RR", &[0b011], WhenNone::Any);
    let mut driver = Driver::with(with(&[(BULK, bulk)]), equal(3));
    let base = |driver: &Driver, class| driver.choices[&(class, V4)].target[0].dispatched_base;
    driver.counters[0].flows.dispatched = 100;
    driver.run(Duration::from_secs(1), |_| true);
    assert_ne!(base(&driver, ClassId::DEFAULT), 0, "WSDM has periods");
    assert_eq!(base(&driver, BULK), 0, "RR has no period");
    driver.set_absent(2);
    assert_eq!(base(&driver, ClassId::DEFAULT), 100, "links have changed");
    assert_eq!(base(&driver, BULK), 0, "not those of this class");
    driver.set_absent(1);
    assert_eq!(base(&driver, BULK), 100);
}

#[test]
fn a_class_whose_direction_is_known_is_weighed_by_that() {
    let towards = |direction| ClassSpec {
        direction: Some(direction),
        ..over_all("WSDM", WhenNone::Any)
    };
    let links = vec![
        link("down", 5 * MBIT, 100 * MBIT),
        link("even", 50 * MBIT, 50 * MBIT),
    ];
    let classes = [
        (BULK, towards(Direction::Up)),
        (VIDEO, towards(Direction::Down)),
    ];
    let mut driver = Driver::with(with(&classes), links);
    driver.carry(&[(MBIT, MBIT), (MBIT, MBIT)]);
    let parts = |class| {
        let target = &driver.choices[&(class, V4)].target;
        target[0].weight() * 100 / target[1].weight()
    };
    assert!((8..=11).contains(&parts(BULK)), "{}", parts(BULK));
    assert!((190..=210).contains(&parts(VIDEO)), "{}", parts(VIDEO));
}

#[test]
fn rates_are_needed_of_the_links_that_a_class_names() {
    let links = || {
        vec![
            link("a", MBIT, MBIT),
            LinkSpec {
                name: "b".into(),
                ..LinkSpec::default()
            },
        ]
    };
    let build = |tiers: &[u64]| {
        let mut classes = ClassSpec::alone("RR".parse().unwrap());
        classes.insert(BULK, class("WSDM", tiers, WhenNone::Any));
        Balancer::new(Time::ZERO, classes, links(), Config::default()).map(drop)
    };
    assert_eq!(build(&[0b01]), Ok(()));
    for named in [&[0b10][..], &[0b01, 0b10]] {
        let refused = build(named).unwrap_err();
        assert!(
            matches!(&refused, BuildError::RateMissing { link, .. } if link == "b"),
            "{refused}"
        );
    }
}

#[test]
fn classes_that_cannot_be_are_refused() {
    let build = |classes| Balancer::new(Time::ZERO, classes, equal(2), Config::default());
    let refused = |classes| build(classes).unwrap_err().to_string();
    assert_eq!(refused(Classes::new()), "there is no default class");
    let bulk = || class("RR", &[0b01], WhenNone::Any);
    assert_eq!(
        refused(with(&[(ClassId(64), bulk())])),
        "class 64 is beyond the last, which is 63"
    );
    assert_eq!(
        refused(with(&[(BULK, class("RR", &[1; 5], WhenNone::Any))])),
        "class 1 has 5 tiers, allowed: at most 4"
    );
    assert!(build(with(&[(ClassId(63), bulk())])).is_ok());
}

#[test]
fn a_class_that_stays_keeps_its_window_while_others_come_change_and_go() {
    let bulk = || class("RR", &[0b01, 0b10], WhenNone::Any);
    let video = || class("RR", &[0b11], WhenNone::Any);
    let mut driver = Driver::with(with(&[(BULK, bulk())]), equal(2));
    driver.counters[0].flows.dispatched = 100;
    driver.run(Duration::from_secs(1), |_| true);
    driver.choices.clear();
    reconfigure(
        &mut driver,
        with(&[(BULK, bulk()), (VIDEO, video())]),
        equal(2),
    );
    let base = |driver: &Driver, class| driver.choices[&(class, V4)].target[0].dispatched_base;
    assert_eq!(base(&driver, VIDEO), 100, "a window that begins");
    assert!(
        !driver.choices.contains_key(&(BULK, V4)),
        "there is no news of it"
    );

    let after = [(
        BULK,
        ClassSpec {
            tiers: Some(vec![set(0b01)]),
            ..bulk()
        },
    )];
    reconfigure(&mut driver, with(&after), equal(2));
    assert_eq!(paths(&driver, BULK), (0b01, vec![], 0b11));
    assert_eq!(base(&driver, BULK), 0, "it takes the same links still");

    driver.choices.clear();
    driver.counters[0].flows.dispatched = 200;
    driver.run(Duration::from_secs(1), |_| true);
    driver.set_absent(0);
    assert!(!driver.choices.contains_key(&(VIDEO, V4)), "it is gone");
    driver.set_present(0);
    driver.run(Duration::from_secs(1), |_| true);
    driver.counters[0].flows.dispatched = 300;
    driver.run(Duration::from_secs(1), |_| true);

    driver.choices.clear();
    let again = with(&[
        (BULK, class("WRR", &[0b01], WhenNone::Any)),
        (VIDEO, video()),
    ]);
    reconfigure(&mut driver, again, equal(2));
    assert_eq!(
        base(&driver, BULK),
        300,
        "another algorithm, another window"
    );
    assert_eq!(driver.usable_of(VIDEO), 0b11, "installed once more");
}

#[test]
fn a_class_that_stays_loses_flows_on_a_lost_link_no_second_time() {
    let bulk = || class("RR", &[0b01, 0b10], WhenNone::Any);
    let mut driver = Driver::with(with(&[(BULK, bulk())]), equal(2));
    driver.silence(&[0]);
    assert_eq!(ends(&driver).len(), 2);
    let mut links = equal(2);
    links[1].rate_up_bps = Some(MBIT);
    reconfigure(&mut driver, with(&[(BULK, bulk())]), links);
    assert_eq!(ends(&driver).len(), 2);
}

/// Anything that can happen to four links.
#[derive(Clone, Debug)]
enum Transition {
    Present(usize),
    Absent(usize),
    Admin(usize, Admin),
    Wait { ms: u64, answering: u64 },
}

fn transition() -> impl Strategy<Value = Transition> {
    let admin = prop::sample::select(vec![Admin::Up, Admin::Drain, Admin::Down]);
    prop_oneof![
        (0..4usize).prop_map(Transition::Present),
        (0..4usize).prop_map(Transition::Absent),
        (0..4usize, admin).prop_map(|(link, admin)| Transition::Admin(link, admin)),
        (0..3000u64, 0..16u64).prop_map(|(ms, answering)| Transition::Wait { ms, answering }),
    ]
}

fn spec() -> impl Strategy<Value = ClassSpec> {
    let algorithm = prop::sample::select(vec!["RR", "WSDM", "LTF"]);
    let when_none = prop::sample::select(vec![WhenNone::Any, WhenNone::Drop, WhenNone::Kernel]);
    let tiers = prop::option::of(prop::collection::vec(0..16u64, 0..=4usize));
    (algorithm, tiers, when_none).prop_map(|(algorithm, tiers, when_none)| match tiers {
        Some(tiers) => class(algorithm, &tiers, when_none),
        None => over_all(algorithm, when_none),
    })
}

/// What of the links counts, by what is told of them: those that work, and of these those that are not metered.
fn links_left(driver: &Driver, present: u64) -> (u64, u64) {
    let status = driver.core.balancer().status(driver.now);
    let bits = |is: &dyn Fn(&anabranch_core::LinkStatus) -> bool| -> u64 {
        let those = status.iter().filter(|link| is(link));
        those.map(|link| 1 << link.link.0).sum()
    };
    let up = |link: &anabranch_core::LinkStatus| link.admin == Admin::Up;
    let alive = bits(&|link| up(link) && !matches!(link.paths[V4].state, State::Down(_)));
    let working = if alive == 0 {
        bits(&up) & present
    } else {
        alive
    };
    let unmetered = alive & bits(&|link| !link.metered);
    (working, if unmetered == 0 { working } else { unmetered })
}

/// As [`ClassSpec`] says it.
fn expected(spec: &ClassSpec, (working, preferred): (u64, u64), default: Option<u64>) -> Vec<u64> {
    let tiers = spec.tiers.iter().flatten();
    let tiers = tiers.map(|tier| tier.targets().word[0]);
    let left: Vec<u64> = tiers
        .map(|tier| tier & working)
        .filter(|t| *t != 0)
        .collect();
    match (left.is_empty(), &spec.tiers, spec.when_none) {
        (false, ..) => left,
        (true, None, _) => vec![preferred],
        (true, Some(_), WhenNone::Any) => vec![default.unwrap_or(preferred)],
        (true, Some(_), _) => vec![0],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_happens_every_class_takes_what_its_tiers_say_and_loses_flows_only_to_other_links(
        others in prop::collection::btree_map(1..64u8, spec(), 0..5usize),
        transitions in prop::collection::vec(transition(), 1..30),
    ) {
        let others: Vec<_> = others.into_iter().map(|(id, spec)| (ClassId(id), spec)).collect();
        let classes = with(&others);
        let mut links = equal(4);
        links[3].metered = true;
        let mut driver = Driver::with(classes.clone(), links);
        let mut present = 0b1111;
        for transition in transitions {
            match transition {
                Transition::Present(i) => {
                    present |= 1 << i;
                    driver.set_present(i);
                }
                Transition::Absent(i) => {
                    present &= !(1 << i);
                    driver.set_absent(i);
                }
                Transition::Admin(i, admin) => driver.set_admin(i, admin),
                Transition::Wait { ms, answering } => {
                    driver.run(Duration::from_millis(ms), |link| answering >> link.0 & 1 == 1);
                }
            }
            let left = links_left(&driver, present);
            for (id, spec) in &classes {
                let default = (*id != ClassId::DEFAULT).then(|| driver.usable());
                let want = expected(spec, left, default);
                let (usable, spare, working) = paths(&driver, *id);
                prop_assert_eq!((usable, &spare[..], working), (want[0], &want[1..], left.0), "{:?}", spec);
            }
            for (event, installed) in &driver.events {
                if let Event::EndFlows { link, .. } = event {
                    prop_assert_eq!(installed >> link.0 & 1, 0, "flows end on a link that gets new ones");
                    prop_assert_ne!(*installed, 0, "flows end although no link takes them");
                }
            }
        }
    }
}
