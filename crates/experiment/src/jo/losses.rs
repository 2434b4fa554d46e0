//! Figures 9 and 10: bytes lost in the sublinks' queues, and bins moved.

use anabranch_report::chart::Bars;
use anabranch_scenario::Policy;

use super::runs::{DH, DHFV, KB, Outcomes, SH, words};
use crate::{Context, ExperimentError, Findings};

const POLICIES: [Policy; 3] = [SH, DH, DHFV];
/// Figure 9.
const PUBLISHED_KB: [f64; 3] = [352.0, 39.0, 11.0];

pub(super) fn fig9(context: &Context) -> Result<Findings, ExperimentError> {
    let outcomes = Outcomes::of_jo(context, &POLICIES)?;
    let lost = POLICIES.map(|policy| outcomes.sample(policy, |o| o.lost_bytes / KB));
    let [sh, dh, dhfv] = &lost;
    let mut findings = Findings::default();
    findings.observe("sh", sh.mean());
    findings.observe("dh", dh.mean());
    findings.observe("dhfv", dhfv.mean());
    findings.observe("sh_over_dh", sh.over(dh));
    findings.observe("dhfv_over_dh", dhfv.over(dh));
    for (policy, lost) in POLICIES.into_iter().zip(&lost) {
        let all = lost.plotted();
        findings.note(format!(
            "{policy} lost {} kB (median {:.1}, most {:.1})",
            words(lost, 1),
            all.median,
            all.max
        ));
    }
    let chart = bars("Bytes lost in 20 s", "kB", &POLICIES);
    let chart = chart
        .series("lost", lost.iter().map(|lost| lost.plotted()))
        .published(PUBLISHED_KB.map(Some));
    findings.plot("fig9", chart);
    Ok(findings)
}

pub(super) fn fig10(context: &Context) -> Result<Findings, ExperimentError> {
    let outcomes = Outcomes::of_jo(context, &POLICIES)?;
    let moved = |policy| outcomes.sample(policy, |o| o.reassignments);
    let [sh, dh, dhfv] = POLICIES.map(moved);
    let mut findings = Findings::default();
    findings.observe("sh", sh.greatest());
    findings.observe("dh_over_dhfv", dh.over(&dhfv));
    let reordered = |policy| outcomes.sample(policy, |o| o.reordered);
    let of_dh = reordered(DHFV).over(&reordered(DH));
    findings.observe("dhfv_reordered_of_dh", of_dh);
    for (policy, moved) in [(DH, &dh), (DHFV, &dhfv)] {
        findings.note(format!(
            "{policy} moved {} bins; {} data packets came out of order",
            words(moved, 1),
            words(&reordered(policy), 0)
        ));
    }
    let chart = bars("Bins reassigned in 20 s", "reassignments", &[DH, DHFV]).log_y();
    let chart = chart.series("moved", [dh.plotted(), dhfv.plotted()]);
    findings.plot("fig10", chart);
    Ok(findings)
}

fn bars(title: &str, unit: &str, policies: &[Policy]) -> Bars {
    Bars::new(title, unit, policies.iter().map(Policy::to_string))
}
