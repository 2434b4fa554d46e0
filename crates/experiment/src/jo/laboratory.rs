//! The scaled load on real kernels, spread by the product.

use anabranch_report::chart::Bars;
use anabranch_scenario::Policy;

use super::runs::{DH, DHFV, LAB, Outcome, Outcomes, SH, trials, words};
use crate::{Context, ExperimentError, Findings, carry_out};

const POLICIES: [Policy; 3] = [SH, DH, DHFV];
const KB: f64 = 1000.0;

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let runs = trials(context.files.scenario(LAB)?, &POLICIES, &context.seeds())?;
    let outcomes = carry_out(context, &runs, Outcome::of)?;
    let outcomes = Outcomes::paired(runs, outcomes);
    let lost = |policy| outcomes.sample(policy, |o| o.lost_bytes / KB);
    let moved = |policy| outcomes.sample(policy, |o| o.reassignments);
    let reordered = |policy| outcomes.sample(policy, |o| o.reordered);
    let mut findings = Findings::default();
    findings.observe("sh_reordered_of_dh", reordered(SH).over(&reordered(DH)));
    findings.observe("dhfv_lost_of_sh", lost(DHFV).over(&lost(SH)));
    findings.observe("dh_over_dhfv_moves", moved(DH).over(&moved(DHFV)));
    for policy in POLICIES {
        findings.note(format!(
            "{policy}: lost {} kB, moved {} bins, {} packets out of order",
            words(&lost(policy), 1),
            words(&moved(policy), 1),
            words(&reordered(policy), 0)
        ));
    }
    let title = "Bytes lost in 20 s on real kernels, at a quarter of the size";
    let chart = Bars::new(title, "kB", POLICIES.iter().map(Policy::to_string));
    let chart = chart.series("lost", POLICIES.map(|policy| lost(policy).plotted()));
    findings.plot("lab", chart);
    Ok(findings)
}
