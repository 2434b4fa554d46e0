use anabranch_scenario::Network;

use super::testbed::{Testbed, Workload, mean_of, most, runs};
use super::*;
use crate::run::tests::context;
use crate::{Files, Options, Sample};

fn files() -> Files {
    Files::of(&EXPERIMENT, None).expect("built in")
}

#[test]
fn links_add_up_to_a_t1_however_many_there_are() {
    for links in [1, 3, 6] {
        let testbed = Testbed::aggregate(&files(), links, Workload(3, 1)).expect("reads");
        let Network::Site(site) = &testbed.scenario().network else {
            panic!("a site");
        };
        let rates = site.links.iter().map(|link| link.down.rate_bps);
        assert_eq!((rates.sum::<u64>(), site.links.len()), (1_536_000, links));
    }
}

#[test]
fn of_lines_that_share_a_rate_the_first_is_cut_however_many_there_are() {
    for links in [1, 3, 6] {
        let testbed = Testbed::cut(&files(), links).expect("reads");
        let scenario = testbed.scenario();
        let Network::Site(site) = &scenario.network else {
            panic!("a site");
        };
        let rates = site.links.iter().map(|link| link.up.rate_bps);
        assert_eq!((rates.sum::<u64>(), site.links.len()), (1_536_000, links));
        let cut: Vec<_> = scenario.faults.iter().map(|fault| &fault.link).collect();
        assert_eq!(cut, [&site.links[0].name]);
    }
}

#[test]
fn a_workload_has_its_users_and_files_and_the_algorithms_the_scenario_names() {
    let testbed = Testbed::of(&files(), "remote.toml", Workload(10, 3)).expect("reads");
    assert_eq!(testbed.scenario().load.users(), 10);
    assert_eq!(
        runs(testbed.scenario(), "WSDM", &[1, 2])
            .expect("is there")
            .len(),
        2
    );
    let unknown = runs(testbed.scenario(), "cyclic", &[1]).unwrap_err();
    assert!(unknown.to_string().contains("lacks cyclic"), "{unknown}");
}

#[test]
fn the_most_and_the_mean_of_several_are_taken_seed_by_seed() {
    let sample = |values: [f64; 2]| -> Sample { [1, 2].into_iter().zip(values).collect() };
    let both = [sample([1.0, 4.0]), sample([3.0, 2.0])];
    assert_eq!(most(&both), sample([3.0, 4.0]));
    assert_eq!(mean_of(&both), sample([2.0, 3.0]));
}

/// The sentence about figure 3: between two measurements, `best` fills one link while the other is idle.
#[test]
fn best_sends_all_sessions_between_two_measurements_to_one_link_and_weighted_does_not() {
    let (options, files) = (
        Options {
            quick: true,
            ..Options::default()
        },
        files(),
    );
    let context = context(&options, &files);
    let findings = fig3::run(&context).expect("runs");
    let observed: Vec<f64> = findings
        .observed
        .iter()
        .map(|(_, observed)| observed.by_seed().into_values().next().expect("a seed")[0])
        .collect();
    assert_eq!(observed, [3.0, 2.0]);
}
