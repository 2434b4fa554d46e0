use std::sync::Arc;

use anabranch_scenario::{Network, Run};

use super::cells::{Group, declaring, percentile_95};
use super::merit::{EBU, SHORT};
use super::*;
use crate::run::tests::context;
use crate::{Files, Options, Sample};

fn files() -> Files {
    Files::of(&EXPERIMENT, None).expect("built in")
}

#[test]
fn nineteen_of_twenty_take_at_most_the_95th_percentile() {
    let values: Vec<f64> = (1..=100).map(f64::from).collect();
    assert_eq!(percentile_95(values), 95.0);
    assert_eq!(percentile_95(vec![3.0, 1.0]), 3.0);
    assert!(percentile_95(Vec::new()).is_nan());
}

#[test]
fn the_best_is_first_equals_share_their_place_and_what_is_missing_has_none() {
    let sample = |value: f64| -> Sample { [(1, value)].into_iter().collect() };
    let all = [2.0, 3.0, 3.0, 1.0].map(sample);
    let ranks = |ranks: Option<Vec<Sample>>| {
        ranks.map(|all| all.iter().map(|it| it.values()[0]).collect::<Vec<_>>())
    };
    assert_eq!(ranks(EBU.ranks(&all)), Some(vec![3.0, 1.5, 1.5, 4.0]));
    assert_eq!(ranks(SHORT.ranks(&all)), Some(vec![2.0, 3.5, 3.5, 1.0]));
    assert_eq!(ranks(SHORT.ranks(&[2.0, f64::NAN].map(sample))), None);
}

#[test]
fn all_cells_are_run_under_the_same_policies_and_adaptive_is_told_no_rate() {
    let (options, files) = (Options::default(), files());
    let context = context(&options, &files);
    let groups = Group::all(&context).expect("reads");
    assert_eq!(
        groups.iter().map(|group| group.cells.len()).sum::<usize>(),
        17
    );
    for group in &groups {
        assert_eq!(
            (group.ranked().len(), group.ablated().len()),
            (25, 7),
            "{}",
            group.name
        );
        for (policy, declares) in [
            ("adaptive", false),
            ("no-race", false),
            ("WSDM", true),
            ("LCF", false),
        ] {
            let runs = group.cells[0].runs(policy, &[1]).expect("is there");
            let Network::Site(site) = &runs[0].scenario.network else {
                panic!("a site");
            };
            let told = |rates: [Option<u64>; 2]| rates.iter().any(Option::is_some);
            let told: Vec<bool> = site
                .links
                .iter()
                .map(|link| told(link.declared_bps()))
                .collect();
            assert_eq!(told, vec![declares; site.links.len()], "{policy}");
        }
    }
}

/// Of what a gateway is told `adaptive` heeds nothing: the same run with rates declared has the same record.
#[test]
fn adaptive_makes_no_use_of_rates() {
    let (options, files) = (Options::default(), files());
    let context = context(&options, &files);
    let group = Group::single(&context, "bloat").expect("reads");
    let run = &group.cells[0].runs("adaptive", &[1]).expect("is there")[0];
    let told = Run::new(
        declaring(&run.scenario, true),
        run.policy,
        run.seed,
        run.point.clone(),
    );
    assert_ne!(told.hash, run.hash);
    let record = |run: &Run| anabranch_sim::run(run, &mut |_| {}).expect("runs");
    let (told, untold) = (record(&told), record(run));
    assert_eq!(told.transfers, untold.transfers);
    assert!(!Arc::ptr_eq(&run.scenario, &group.cells[0].scenario));
}
