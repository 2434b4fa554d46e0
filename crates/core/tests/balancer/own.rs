//! Policies of somebody's own.

use anabranch_core::measure::Measure;
use anabranch_core::{Algorithm, LinkView, OwnPolicy};

use super::*;

/// Forgets everything.
#[derive(Debug)]
struct Rule(fn(&LinkView<'_>) -> u64);

impl OwnPolicy for Rule {
    fn weigh(&mut self, _: Time, links: &[LinkView<'_>]) -> Vec<u64> {
        links.iter().map(self.0).collect()
    }
}

fn classes(measure: &'static Measure) -> Classes {
    ClassSpec::alone(Algorithm::own(measure))
}

static SECOND: Measure = Measure::own("second", || {
    Box::new(Rule(|link| u64::from(link.link == LinkId(1))))
});

#[test]
fn new_flows_are_given_in_proportion_to_the_weights() {
    static THRICE: Measure = Measure::own("thrice", || {
        Box::new(Rule(|link| 5 + 10 * u64::from(link.link.0)))
    });
    let mut driver = Driver::with(classes(&THRICE), equal(2));
    assert_eq!(driver.weights()[1], WEIGHT_MAX);
    assert_eq!(percent(driver.weights()[0], WEIGHT_MAX), 33);
    let chosen: usize = (0..400).map(|_| driver.choose()).sum();
    assert_eq!(chosen, 300);
}

#[test]
fn a_link_without_weight_takes_flows_only_where_no_other_can() {
    let mut driver = Driver::with(classes(&SECOND), equal(3));
    assert_eq!(driver.usable(), 0b010);
    assert!((0..100).all(|_| driver.choose() == 1));
    driver.silence(&[1]);
    assert_eq!(driver.usable(), 0b101, "it died");
    assert_eq!(driver.weights()[0], driver.weights()[2]);
    driver.run(Duration::from_secs(30), |_| true);
    assert_eq!(driver.usable(), 0b010, "it returned");
    let ended = |link| driver.events.contains(&(end_of(link), 0b101));
    assert_eq!([0, 1, 2].map(ended), [false, true, false]);
}

#[test]
fn other_classes_fall_back_to_the_links_that_the_default_class_s_policy_leaves() {
    let mut classes = classes(&SECOND);
    let third = ClassSpec {
        tiers: Some(vec![[LinkId(2)].into_iter().collect()]),
        ..ClassSpec::from("RR".parse::<Algorithm>().unwrap())
    };
    classes.insert(ClassId(1), third);
    let mut driver = Driver::with(classes, equal(3));
    assert_eq!(driver.usable_of(ClassId(1)), 0b100);
    driver.set_absent(2);
    assert_eq!(driver.usable_of(ClassId(1)), 0b010);
}

#[test]
fn a_policy_that_gives_no_weight_leaves_all_links_alike() {
    #[derive(Debug)]
    struct Silent;
    impl OwnPolicy for Silent {
        fn weigh(&mut self, _: Time, _: &[LinkView<'_>]) -> Vec<u64> {
            Vec::new()
        }
    }
    static SILENT: Measure = Measure::own("silent", || Box::new(Silent));
    let driver = Driver::with(classes(&SILENT), equal(3));
    assert_eq!(driver.usable(), 0b111);
    let weights = driver.weights();
    assert!(weights.iter().all(|weight| *weight == weights[0]));
}

#[test]
fn it_is_shown_what_links_carry_have_left_and_hold() {
    let ratio = |measure, opened: u64| {
        let mut driver = Driver::with(classes(measure), equal(2));
        driver.counters[1].flows.opened = opened;
        driver.carry(&[(MBIT, 4 * MBIT), (2 * MBIT, MBIT)]);
        percent(driver.weights()[1], driver.weights()[0])
    };
    static DOWN: Measure = Measure::own("down", || Box::new(Rule(|link| link.down_bps)));
    assert_eq!(ratio(&DOWN, 0), 25);
    static UP: Measure = Measure::own("up", || Box::new(Rule(|link| 4 * MBIT - link.up_bps)));
    assert_eq!(ratio(&UP, 0), 66);
    static LEFT: Measure = Measure::own("left", || {
        Box::new(Rule(|link| 10 * MBIT - link.left_down_bps.unwrap()))
    });
    assert!((24..=26).contains(&ratio(&LEFT, 0)));
    static OPEN: Measure = Measure::own("open", || Box::new(Rule(|link| 100 / (1 + link.active))));
    assert_eq!(ratio(&OPEN, 3), 25);
    static NEAR: Measure = Measure::own("near", || {
        Box::new(Rule(|link| {
            let path = link.paths[V4];
            u64::from(path.state == State::Up && path.round_trip.is_some() && link.takes_flows)
        }))
    });
    assert_eq!(ratio(&NEAR, 0), 100);
}

#[test]
fn what_it_remembers_outlives_a_configuration_that_changes_nothing_of_it() {
    #[derive(Debug, Default)]
    struct Older(u64);
    impl OwnPolicy for Older {
        fn weigh(&mut self, _: Time, _: &[LinkView<'_>]) -> Vec<u64> {
            self.0 += 1;
            vec![self.0, 1]
        }
    }
    static OLDER: Measure = Measure::own("older", || Box::<Older>::default());
    let mut driver = Driver::with(classes(&OLDER), equal(2));
    let mut configured = |classes: Classes| {
        driver.run(Duration::from_secs(5), |_| true);
        let balancer = driver.core.balancer_mut();
        let done = balancer.reconfigure(driver.now, classes, equal(2), Config::default());
        done.unwrap();
        driver.run(Duration::from_millis(100), |_| true);
        driver.weights()[1]
    };
    let (same, other) = (configured(classes(&OLDER)), configured(classes(&SECOND)));
    let anew = configured(classes(&OLDER));
    assert!(same <= WEIGHT_MAX / 50, "{same}");
    assert_eq!(other, WEIGHT_MAX);
    assert!(anew >= WEIGHT_MAX / 5, "{anew}");
}
