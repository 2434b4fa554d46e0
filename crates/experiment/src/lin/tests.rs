use super::place::{PLACES, Place, Round, hit_ratio, share_of_best};
use super::*;
use crate::run::tests::context;
use crate::{Files, Options};

fn files() -> Files {
    Files::of(&EXPERIMENT, None).expect("built in")
}

fn round(throughput_bps: [f64; 3], setup_s: [f64; 3], loss: [f64; 3]) -> Round {
    Round {
        throughput_bps: throughput_bps.to_vec(),
        setup_s: setup_s.map(Some).to_vec(),
        loss: loss.to_vec(),
    }
}

#[test]
fn hits_and_shares_are_of_the_best_link_of_each_round() {
    let truth = [
        round([4.0, 2.0, 1.0], [0.1; 3], [0.01; 3]),
        round([1.0, 2.0, 6.0], [0.1; 3], [0.01; 3]),
    ];
    assert_eq!(hit_ratio(&truth, &[0, 1]), 0.5);
    assert_eq!(share_of_best(&truth, [0, 1].into_iter()), 0.6);
}

#[test]
fn loss_counts_by_its_root_and_a_link_of_unknown_round_trip_not_at_all() {
    let mut known = round([0.0; 3], [0.1, 0.15, 0.05], [0.04, 0.01, 0.01]);
    assert_eq!(known.least_rtt_root_loss(), 2);
    known.setup_s[2] = None;
    assert_eq!(known.least_rtt_root_loss(), 1);
}

#[test]
fn a_day_has_a_truth_for_every_choice_and_is_another_elsewhere() {
    let (options, files) = (Options::default(), files());
    let context = context(&options, &files);
    let days = |name| {
        let mut place = Place::new(&context, name).expect("reads");
        place.rounds = 4;
        place.days(&context).expect("runs").remove(0).1
    };
    let [de, us, _] = PLACES.map(days);
    assert_ne!(de.truth[0].loss, us.truth[0].loss);
    assert_eq!(de.truth.len(), de.race.len());
    let whole = de
        .truth
        .iter()
        .all(|round| round.throughput_bps.iter().all(|bps| *bps > 0.0));
    assert!(whole, "every download arrives: {:?}", de.truth);
    let turns: Vec<usize> = de.turns.iter().take(3).copied().collect();
    let mut sorted = turns.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [0, 1, 2], "{turns:?}");
}
