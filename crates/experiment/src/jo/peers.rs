//! What others make of the same trunk, and of reordering: the Linux bonding driver's hash, packets in order again at the
//! far end (RFC 1990), and senders that know a packet that is late from one that is lost (section IV.E).

use std::sync::Arc;

use anabranch_report::chart::Bars;
use anabranch_scenario::{Policy, Recovery, Run, Scenario, Spread};

use super::runs::{DH, DHFV, JO, KB, Outcome, Outcomes, SH, SINGLE, trials, words};
use crate::{Context, ExperimentError, Findings, Sample, simulate};

const BONDING: Policy = Policy::trunk(Spread::Bonding);
const MLPPP: Policy = Policy::trunk(Spread::Mlppp);
const POLICIES: [Policy; 5] = [SH, BONDING, DH, DHFV, MLPPP];

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let policies: Vec<Policy> = POLICIES.into_iter().chain([SINGLE]).collect();
    let outcomes = Outcomes::of_jo(context, &policies)?;
    let lost = |policy| outcomes.sample(policy, |o| o.lost_bytes / KB);
    let received = |policy| outcomes.sample(policy, |o| o.received_bytes);
    let mut findings = Findings::default();
    let of_bonding = lost(DHFV).over(&lost(BONDING));
    findings.observe("dhfv_lost_of_bonding", of_bonding);
    let of_mlppp = received(DHFV).over(&received(MLPPP));
    findings.observe("dhfv_received_of_mlppp", of_mlppp);
    let reordered = |policy| outcomes.sample(policy, |o| o.reordered);
    findings.observe("mlppp_reordered", reordered(MLPPP).greatest());
    for policy in POLICIES {
        let of_single = received(policy).per(&received(SINGLE));
        findings.note(format!(
            "{policy}: lost {} kB, {} packets out of order, received {} % of the undivided link's",
            words(&lost(policy), 1),
            words(&reordered(policy), 0),
            words(&of_single.map(|part| 100.0 * part), 2)
        ));
    }
    let title = "Bytes lost in 20 s, peers included";
    let chart = Bars::new(title, "kB", POLICIES.iter().map(Policy::to_string));
    let chart = chart.series("lost", POLICIES.map(|policy| lost(policy).plotted()));
    findings.plot("peers", chart);
    Ok(findings)
}

/// Senders by what they make of reordering.
const SENDERS: [(&str, Recovery, bool); 4] = [
    ("Reno's own", Recovery::Reno, false),
    ("SACK", Recovery::Sack, false),
    ("SACK with DSACK", Recovery::Sack, true),
    ("RACK", Recovery::Rack, true),
];

/// What TCP does not receive under DH that it would over the undivided link, in percent.
pub(super) fn dsack(context: &Context) -> Result<Findings, ExperimentError> {
    let penalties = SENDERS.map(|sender| penalty(context, sender));
    let [reno, sack, dsack, rack] = penalties;
    let [reno, sack, dsack, rack] = [reno?, sack?, dsack?, rack?];
    let mut findings = Findings::default();
    findings.observe("dsack_of_reno", dsack.over(&reno));
    findings.observe("dsack_of_sack", dsack.over(&sack));
    findings.observe("rack_of_reno", rack.over(&reno));
    findings.observe("dsack", dsack.mean());
    findings.observe("rack", rack.mean());
    let all = [reno, sack, dsack, rack];
    for ((sender, ..), penalty) in SENDERS.iter().zip(&all) {
        let penalty = words(penalty, 2);
        findings.note(format!("{sender}: DH receives {penalty} % less"));
    }
    let title = "Received less under DH than over the undivided link";
    let chart = Bars::new(title, "%", SENDERS.map(|(sender, ..)| sender.to_owned()));
    let chart = chart.series("less", all.map(|penalty| penalty.plotted()));
    findings.plot("dsack", chart);
    Ok(findings)
}

fn penalty(
    context: &Context,
    (_, recovery, dsack): (&str, Recovery, bool),
) -> Result<Sample, ExperimentError> {
    let file = context.files.scenario(JO)?;
    let with = |run: Run| {
        let mut scenario = Scenario::clone(&run.scenario);
        scenario.tcp.recovery = recovery;
        scenario.tcp.dsack = dsack;
        Run::new(Arc::new(scenario), run.policy, run.seed, run.point)
    };
    let runs = trials(file, &[DH, SINGLE], &context.seeds())?;
    let runs: Vec<Run> = runs.into_iter().map(with).collect();
    let outcomes = simulate(context, &runs, Outcome::of)?;
    let outcomes = Outcomes::paired(runs, outcomes);
    let received = |policy| outcomes.sample(policy, |o| o.received_bytes);
    Ok(received(DH).with(&received(SINGLE), |dh, single| 100.0 * (1.0 - dh / single)))
}
