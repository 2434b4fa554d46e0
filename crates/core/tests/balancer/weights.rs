//! What links are worth.

use anabranch_core::Algorithm;
use anabranch_core::rules::Direction;

use super::*;

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

/// The default class of `directional`, whose flows go that way.
fn directional(direction: Option<Direction>) -> Classes {
    let mut classes = ClassSpec::alone("directional".parse().unwrap());
    for class in classes.values_mut() {
        class.direction = direction;
    }
    classes
}

/// The first link carries more altogether, the second more up.
const ASYMMETRIC: [(u64, u64); 2] = [(MBIT, 6 * MBIT), (2 * MBIT, 3 * MBIT)];

#[test]
fn a_direction_that_is_known_is_the_one_whose_load_counts() {
    for (direction, second) in [(Direction::Up, 50), (Direction::Down, 200)] {
        let mut driver = Driver::with(directional(Some(direction)), equal(2));
        driver.carry(&ASYMMETRIC);
        let weights = driver.weights();
        let ratio = percent(weights[1], weights[0]);
        assert!(ratio.abs_diff(second) <= 3, "{direction:?}: {weights:?}");
    }
}

#[test]
fn of_a_direction_that_is_unknown_the_bottlenecks_load_counts() {
    let mut driver = Driver::with(directional(None), equal(2));
    driver.carry(&ASYMMETRIC);
    assert!(percent(driver.weights()[1], driver.weights()[0]).abs_diff(200) <= 3);

    let narrow_up = vec![
        link("a", 10 * MBIT, 10 * MBIT),
        link("b", 2 * MBIT, 10 * MBIT),
    ];
    let mut driver = Driver::with(directional(None), narrow_up);
    driver.carry(&ASYMMETRIC);
    assert!(percent(driver.weights()[1], driver.weights()[0]).abs_diff(60) <= 2);
}

#[test]
fn loads_are_compared_by_the_rates_of_the_flows_direction() {
    let links = vec![
        link("even", 10 * MBIT, 10 * MBIT),
        link("narrow", 2 * MBIT, 10 * MBIT),
    ];
    let mut driver = Driver::with(directional(Some(Direction::Up)), links);
    driver.carry(&[(MBIT, MBIT), (MBIT, MBIT)]);
    assert!(percent(driver.weights()[1], driver.weights()[0]).abs_diff(20) <= 1);
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
            let traffic = &mut driver.counters[i].traffic[V4];
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
fn the_link_that_answers_the_node_fastest_gets_all_flows_or_most() {
    let ms = Duration::from_millis;
    let mut driver = Driver::new("FRRTFNF", equal(3));
    driver.to_node = vec![ms(40), ms(10), ms(20)];
    driver.run(ms(100), |_| true);
    assert_eq!([driver.choose(), driver.choose(), driver.choose()], [1; 3]);
    driver.to_node = vec![ms(5), ms(10), ms(20)];
    driver.run(ms(100), |_| true);
    assert_eq!(driver.choose(), 0, "measured anew");

    let mut driver = Driver::new("WFRRTFNF", equal(3));
    driver.to_node = vec![ms(40), ms(10), ms(20)];
    driver.run(ms(100), |_| true);
    let mut flows = [0; 3];
    for _ in 0..70 {
        flows[driver.choose()] += 1;
    }
    assert_eq!(flows, [10, 40, 20]);
}

#[test]
fn a_link_over_which_the_node_does_not_answer_is_as_slow_as_patience_is_long() {
    let mut driver = Driver::new("WFRRTFNF", equal(2));
    driver.to_node = vec![PATIENCE / 10; 2];
    driver.run(PATIENCE * 2, |link| link == Driver::id(1));
    let weights = driver.weights();
    assert_eq!(percent(weights[0], weights[1]), 10);
}

#[test]
fn nobody_asks_the_node_for_a_policy_that_does_not_need_it() {
    let node = |policy| {
        let mut driver = Driver::new(policy, equal(2));
        driver.run(Duration::from_secs(1), |_| true);
        let status = driver.core.balancer().status(driver.now);
        status[0].node.map(|node| node.sent)
    };
    assert_eq!(node("RR"), None);
    // One in 20 ms, from the beginning on.
    assert_eq!(node("FRRTFNF"), Some(51));
}

#[test]
fn the_node_is_asked_as_rarely_as_anybody_over_a_metered_link() {
    let links = vec![equal(1).remove(0), metered(equal(1).remove(0))];
    let mut driver = Driver::new("FRRTFNF", links);
    driver.run(Duration::from_secs(1), |_| true);
    let status = driver.core.balancer().status(driver.now);
    let asked = |link: usize| status[link].node.map(|node| node.sent);
    assert_eq!((asked(0), asked(1)), (Some(51), Some(3)));
}

#[test]
fn bytes_are_compared_by_what_a_link_can_carry() {
    let links = || {
        vec![
            link("large", 90 * MBIT, 90 * MBIT),
            link("small", 10 * MBIT, 10 * MBIT),
        ]
    };
    let chosen = |policy| {
        let mut driver = Driver::new(policy, links());
        driver.carry(&[(0, 8 * MBIT), (0, 2 * MBIT)]);
        driver.choose()
    };
    assert_eq!(chosen("LTF"), 1);
    assert_eq!(chosen("WLTF"), 0);
}

#[test]
fn programs_are_told_how_many_response_times_a_flow_waits_for() {
    let rounds = |algorithm| {
        let driver = Driver::with(ClassSpec::alone(algorithm), equal(2));
        driver.choice().expect("a choice was made").rounds
    };
    let adaptive: Algorithm = "adaptive".parse().unwrap();
    assert_eq!(rounds(adaptive), 2);
    let near_and_far_alike = Algorithm {
        rounds: 0,
        ..adaptive
    };
    assert_eq!(rounds(near_and_far_alike), 0);
    assert_eq!(rounds("RR".parse().unwrap()), 0, "nobody asks");
}
