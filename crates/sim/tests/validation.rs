//! The simulator held against theory: every check, with the seeds of a check that counts and shorter runs than the
//! experiment of the same name; so what fails here is what theory refutes.

use anabranch_sim::validation::{
    CODEL, CUBIC, ECN, Effort, FAIRNESS, GOODPUT, HASHES, HYSTART, IDLE, LOST_SYNS, NEWRENO,
    QUEUES, RED, REPEATS, SAWTOOTH, SEEDS, SLOW_START, TAILS, Topic,
};

fn holds(topics: &[Topic], seeds: u64) {
    let seeds: Vec<u64> = (1..=seeds).collect();
    let checks = topics
        .iter()
        .flat_map(|topic| topic.check(&seeds, Effort::Brief));
    let mut broken = Vec::new();
    for check in checks {
        println!("{check}");
        if check.is_refuted() {
            broken.push(check.to_string());
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn queues_wait_and_drop_as_queueing_theory_says() {
    holds(QUEUES, SEEDS);
}

#[test]
fn the_flow_hash_spreads_as_chance_would() {
    holds(HASHES, SEEDS);
}

#[test]
fn gentle_red_drops_along_its_curve() {
    holds(&[RED], SEEDS);
}

#[test]
fn what_is_exact_is_exact() {
    holds(&[IDLE, SLOW_START, CUBIC, HYSTART], 1);
}

#[test]
fn a_lost_syn_costs_a_second_and_no_more() {
    holds(&[LOST_SYNS], SEEDS);
}

#[test]
fn a_probe_repairs_a_lost_tail_in_place_of_a_timeout() {
    holds(&[TAILS], SEEDS);
}

#[test]
fn codel_drops_by_its_law_and_marks_spare_every_repetition() {
    holds(&[CODEL, ECN], 1);
}

#[test]
fn newreno_repairs_many_losses_in_the_time_that_ns2_takes() {
    holds(&[NEWRENO], 1);
}

#[test]
fn one_flow_uses_a_drop_tail_link_as_its_buffer_allows() {
    holds(&[SAWTOOTH], 1);
}

#[test]
fn equal_flows_share_a_bottleneck_fairly() {
    holds(&[FAIRNESS], 3);
}

#[test]
fn a_run_repeats_itself_and_an_unused_link_changes_nothing() {
    holds(&[REPEATS], 3);
}

#[test]
fn goodput_falls_with_loss_as_mathis_and_padhye_say() {
    holds(&[GOODPUT], SEEDS);
}
