use anabranch_core::multilink::{Parameters, Recipient};
use anabranch_scenario::{Load, Network, Run};

use super::EXPERIMENT;
use super::laboratory::scaled;
use super::runs::{CAPACITY_BPS, EQUAL, JO, flow_bytes};
use crate::Files;

fn files() -> Files {
    Files::of(&EXPERIMENT, None).unwrap()
}

#[test]
fn the_scenario_is_that_of_the_paper_where_the_paper_says_what_it_is() {
    let file = files().scenario(JO).unwrap();
    let scenario = file.first();
    let Network::Trunk(trunk) = &scenario.network else {
        panic!("a trunk");
    };
    assert_eq!(trunk.sublinks.len(), 8);
    assert_eq!((trunk.clients, trunk.servers), (1200, 4));
    for sublink in &trunk.sublinks {
        assert_eq!(sublink.rate_bps, 5_592_000);
        assert_eq!(
            sublink.buffer,
            anabranch_scenario::Buffer::Bytes(559_200 / 8)
        );
        assert_eq!(sublink.delay.as_millis(), 1);
    }
    assert_eq!(trunk.single.rate_bps as f64, CAPACITY_BPS);
    let control = Parameters {
        shrink_percent: 5,
        target: Recipient::Lighter,
        ..Parameters::default()
    };
    assert_eq!(trunk.control, control);
    assert_eq!(scenario.limit.as_secs(), 20);
}

/// The sizes of the largest flows are those of the files, whose sum does not depend on the seed.
#[test]
fn every_seed_has_the_same_flows_and_files_bring_most_of_their_bytes() {
    let file = files().scenario(JO).unwrap().with_seeds(&[1, 2]).unwrap();
    let runs = file.runs();
    let of_seed = |seed| {
        let run = runs.iter().find(|run| run.seed == seed).unwrap();
        flow_bytes(&run.scenario, run)
    };
    for bytes in [of_seed(1), of_seed(2)] {
        assert_eq!(bytes.len(), 55 + 390 + 9000 + 9000);
        assert!(bytes.is_sorted_by(|a, b| a >= b));
        let files: u64 = bytes[..55].iter().sum();
        let share = files as f64 / bytes.iter().sum::<u64>() as f64;
        assert!((0.65..0.75).contains(&share), "{share}");
    }
    assert_ne!(of_seed(1), of_seed(2));
}

#[test]
fn the_laboratory_has_the_scenario_at_a_quarter_of_its_size() {
    let file = files().scenario(JO).unwrap();
    let run = &file.runs()[0];
    let scaled = scaled(run);
    let trunk = |run: &Run| match &run.scenario.network {
        Network::Trunk(trunk) => trunk.clone(),
        other => panic!("{other:?}"),
    };
    let (full, quarter) = (trunk(run), trunk(&scaled));
    assert_eq!(quarter.sublinks.len(), 8);
    assert_eq!(quarter.sublinks[7].rate_bps, 1_398_000);
    assert_eq!(
        quarter.sublinks[7].buffer,
        anabranch_scenario::Buffer::Bytes(17_475)
    );
    assert_eq!(quarter.single.rate_bps * 4, full.single.rate_bps);
    assert_eq!(quarter.access.rate_bps * 4, full.access.rate_bps);
    assert_eq!((quarter.clients, quarter.servers), (300, 4));
    assert_eq!(quarter.control, full.control);
    let flows = |run: &Run| flow_bytes(&run.scenario, run).len();
    assert!(flows(run).abs_diff(4 * flows(&scaled)) <= 8);
}

#[test]
fn sweeps_and_the_flows_of_equal_rate_are_scenarios_too() {
    let users = files().swept(JO, "workload.users", &[300, 1200]).unwrap();
    let points: Vec<_> = users
        .scenarios()
        .map(|(point, _)| point[0].1.as_str())
        .collect();
    assert_eq!(points, ["300", "1200"]);
    let equal = files().scenario(EQUAL).unwrap();
    let Load::Arrivals(plan) = &equal.first().load else {
        panic!("arrivals");
    };
    assert!(plan.arrivals().all(|arrival| arrival.bytes == 12_500));
}
