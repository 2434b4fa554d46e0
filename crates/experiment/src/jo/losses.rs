//! Figures 9 and 10: bytes lost in the sublinks' queues, and bins moved.

use anabranch_report::chart::Bars;
use anabranch_scenario::Policy;

use super::SEEDS;
use super::runs::{DH, DHFV, Outcomes, SH, jo, unplotted, words};
use crate::{Context, ExperimentError, Findings};

const KB: f64 = 1000.0;

pub(super) fn fig9(context: &Context) -> Result<Findings, ExperimentError> {
    let policies = [SH, DH, DHFV];
    let outcomes = outcomes(context, &policies)?;
    let lost = |policy| outcomes.estimate(policy, |o| o.lost_bytes).scaled(KB);
    let [sh, dh, dhfv] = policies.map(lost);
    let mut findings = Findings::default();
    findings.observe("sh", sh.mean);
    findings.observe("dh", dh.mean);
    findings.observe("dhfv", dhfv.mean);
    findings.observe("sh_over_dh", sh.mean / dh.mean);
    findings.observe("dhfv_over_dh", dhfv.mean / dh.mean);
    for (policy, lost) in policies.into_iter().zip([sh, dh, dhfv]) {
        findings.note(format!(
            "{policy} lost {} kB (median {:.1}, most {:.1})",
            words(lost, 1),
            lost.median,
            lost.max
        ));
    }
    let chart = bars("Bytes lost in 20 s", "kB", &policies);
    findings.plot(
        "fig9",
        chart
            .series("lost", [sh, dh, dhfv])
            .svg()
            .map_err(unplotted)?,
    );
    Ok(findings)
}

pub(super) fn fig10(context: &Context) -> Result<Findings, ExperimentError> {
    let policies = [SH, DH, DHFV];
    let outcomes = outcomes(context, &policies)?;
    let moved = |policy| outcomes.estimate(policy, |o| o.reassignments);
    let [sh, dh, dhfv] = policies.map(moved);
    let mut findings = Findings::default();
    findings.observe("sh", sh.max);
    findings.observe("dh_over_dhfv", dh.mean / dhfv.mean);
    for (policy, moved) in [(DH, dh), (DHFV, dhfv)] {
        let reordered = outcomes.estimate(policy, |o| o.reordered);
        findings.note(format!(
            "{policy} moved {} bins; {} data packets came out of order",
            words(moved, 1),
            words(reordered, 0)
        ));
    }
    let chart = bars("Bins reassigned in 20 s", "reassignments", &[DH, DHFV]).log_y();
    findings.plot(
        "fig10",
        chart.series("moved", [dh, dhfv]).svg().map_err(unplotted)?,
    );
    Ok(findings)
}

fn outcomes(context: &Context, policies: &[Policy]) -> Result<Outcomes, ExperimentError> {
    Outcomes::of(context, jo()?, policies, &context.seeds(SEEDS.0, SEEDS.1))
}

fn bars(title: &str, unit: &str, policies: &[Policy]) -> Bars {
    Bars::new(title, unit, policies.iter().map(Policy::to_string))
}
