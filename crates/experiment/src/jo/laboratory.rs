//! The scaled load on real kernels, spread by the product.

use anabranch_report::chart::Bars;
use anabranch_scenario::Policy;

use super::runs::{DH, DHFV, Outcome, Outcomes, SH, lab, trials, unplotted, words};
use crate::{Context, ExperimentError, Findings, carry_out};

/// Of a full run, and of a quick one: a run takes as long as it lasts.
const SEEDS: (u64, u64) = (3, 1);

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let policies = [SH, DH, DHFV];
    let seeds = context.seeds(SEEDS.0, SEEDS.1);
    let runs = trials(lab()?, &policies, &seeds)?;
    let outcomes = Outcomes::from(carry_out(context, &runs, Outcome::of)?);
    let lost = |policy| outcomes.estimate(policy, |o| o.lost_bytes).scaled(1000.0);
    let moved = |policy| outcomes.estimate(policy, |o| o.reassignments);
    let reordered = |policy| outcomes.estimate(policy, |o| o.reordered);
    let mut findings = Findings::default();
    findings.observe(
        "sh_reordered_of_dh",
        reordered(SH).mean / reordered(DH).mean,
    );
    findings.observe("dhfv_lost_of_sh", lost(DHFV).mean / lost(SH).mean);
    findings.observe("dh_over_dhfv_moves", moved(DH).mean / moved(DHFV).mean);
    for policy in policies {
        findings.note(format!(
            "{policy}: lost {} kB, moved {} bins, {} packets out of order",
            words(lost(policy), 1),
            words(moved(policy), 1),
            words(reordered(policy), 0)
        ));
    }
    let title = "Bytes lost in 20 s on real kernels, at a quarter of the size";
    let chart = Bars::new(title, "kB", policies.iter().map(Policy::to_string));
    let chart = chart.series("lost", policies.map(lost));
    findings.plot("lab", chart.svg().map_err(unplotted)?);
    Ok(findings)
}
