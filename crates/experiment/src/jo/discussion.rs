//! Section IV.E: what the paper claims without a figure.

use anabranch_report::chart::{Bars, Chart};
use anabranch_scenario::Policy;

use super::runs::{DH, DHFV, EQUAL, JO, KB, Outcome, Outcomes, SH, by_point, words};
use crate::{Context, ExperimentError, Findings};

const POLICIES: [Policy; 3] = [SH, DH, DHFV];
const SUBLINKS: [u32; 4] = [2, 4, 8, 16];
/// Users of the paper.
pub(super) const FULL_USERS: u32 = 1200;
/// Fewer of them, each as busy as there.
const USERS: [u32; 4] = [300, 600, 900, FULL_USERS];

pub(super) fn equal(context: &Context) -> Result<Findings, ExperimentError> {
    let outcomes = Outcomes::of(context, context.files.scenario(EQUAL)?, &POLICIES)?;
    let lost = |policy| outcomes.sample(policy, |o| o.lost_bytes / KB);
    let mut findings = Findings::default();
    findings.observe("dhfv_over_dh", lost(DHFV).over(&lost(DH)));
    for policy in POLICIES {
        findings.note(format!("{policy} lost {} kB", words(&lost(policy), 1)));
    }
    let title = "Bytes lost by flows of equal rate";
    let chart = Bars::new(title, "kB", POLICIES.iter().map(Policy::to_string));
    let chart = chart.series("lost", POLICIES.map(|policy| lost(policy).plotted()));
    findings.plot("equal", chart);
    Ok(findings)
}

pub(super) fn sublinks(context: &Context) -> Result<Findings, ExperimentError> {
    let file = context.files.swept(JO, "trunk.sublinks", &SUBLINKS)?;
    let outcomes = Outcomes::of(context, file, &[SH, DHFV])?;
    let imbalance =
        |sublinks: u32| outcomes.sample_at(SH, &sublinks.to_string(), Outcome::imbalance);
    let mut findings = Findings::default();
    for pair in SUBLINKS.windows(2) {
        let growth = imbalance(pair[1]).over(&imbalance(pair[0]));
        findings.observe(format!("growth_{}_{}", pair[0], pair[1]), growth);
    }
    for sublinks in SUBLINKS {
        let imbalance = words(&imbalance(sublinks), 2);
        findings.note(format!("SH, {sublinks} sublinks: {imbalance}"));
    }
    let title = "Most over mean traffic of a sublink";
    let chart = [SH, DHFV].into_iter().fold(
        Chart::new(title, "sublinks", "greatest over mean"),
        |chart, policy| {
            let points = by_point(&outcomes, policy, &points(&SUBLINKS), Outcome::imbalance);
            chart.estimates(policy.to_string(), points)
        },
    );
    findings.plot("sublinks", chart);
    Ok(findings)
}

pub(super) fn load(context: &Context) -> Result<Findings, ExperimentError> {
    let file = context.files.swept(JO, "workload.users", &USERS)?;
    let outcomes = Outcomes::of(context, file, &POLICIES)?;
    let [least, .., full] = USERS;
    let lost = |users: u32| outcomes.sample_at(SH, &users.to_string(), |o| o.lost_bytes);
    let moved = |users: u32| outcomes.sample_at(DH, &users.to_string(), |o| o.reassignments);
    let mut findings = Findings::default();
    findings.observe("sh_lost_at_least_load", lost(least).over(&lost(full)));
    findings.observe("dh_moved_at_least_load", moved(least).over(&moved(full)));
    let mut chart = Chart::new("Bytes lost against the load", "users", "kB");
    for policy in POLICIES {
        let lost = by_point(&outcomes, policy, &points(&USERS), |o| o.lost_bytes / KB);
        chart = chart.estimates(policy.to_string(), lost);
    }
    findings.plot("load", chart);
    Ok(findings)
}

fn points(values: &[u32]) -> Vec<(String, f64)> {
    let values = values.iter();
    values
        .map(|value| (value.to_string(), f64::from(*value)))
        .collect()
}
