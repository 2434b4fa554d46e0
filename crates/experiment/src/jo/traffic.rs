//! Figures 6 to 8: what each sublink carries over time.

use anabranch_report::chart::Chart;
use anabranch_scenario::Policy;

use super::runs::{CAPACITY_BPS, DH, DHFV, INTERVAL_S, Outcome, Outcomes, SH};
use crate::{Context, ExperimentError, Findings};

pub(super) fn fig6(context: &Context) -> Result<Findings, ExperimentError> {
    let outcomes = Outcomes::of_jo(context, &[SH])?;
    let mut findings = drawn("fig6", &outcomes, SH)?;
    let saturated = outcomes.sample(SH, |o| 100.0 * o.saturated());
    findings.observe("saturated", saturated.mean());
    Ok(findings)
}

pub(super) fn fig7(context: &Context) -> Result<Findings, ExperimentError> {
    let outcomes = Outcomes::of_jo(context, &[SH, DH])?;
    let mut findings = drawn("fig7", &outcomes, DH)?;
    observe_imbalance(&mut findings, &outcomes, DH);
    Ok(findings)
}

pub(super) fn fig8(context: &Context) -> Result<Findings, ExperimentError> {
    let outcomes = Outcomes::of_jo(context, &[SH, DHFV])?;
    let mut findings = drawn("fig8", &outcomes, DHFV)?;
    observe_imbalance(&mut findings, &outcomes, DHFV);
    let saturated = |policy| outcomes.sample(policy, Outcome::saturated);
    findings.observe("saturated_of_sh", saturated(DHFV).over(&saturated(SH)));
    Ok(findings)
}

/// The imbalance beyond 1 as a part of that of SH.
fn observe_imbalance(findings: &mut Findings, outcomes: &Outcomes, policy: Policy) {
    let of = |policy| outcomes.sample(policy, |o| o.imbalance() - 1.0);
    findings.observe("imbalance_of_sh", of(policy).over(&of(SH)));
}

/// The figure as in the paper: one seed, a line per sublink.
fn drawn(name: &str, outcomes: &Outcomes, policy: Policy) -> Result<Findings, ExperimentError> {
    let mut findings = Findings::default();
    let Some((run, outcome)) = outcomes.under(policy).next() else {
        return Ok(findings);
    };
    let sublinks = outcome.sublinks_bps.len();
    let rate = CAPACITY_BPS / sublinks as f64 / 1e6;
    let title = format!("Traffic of each sublink under {policy} (seed {})", run.seed);
    let mut chart = Chart::new(title, "time in s", "Mbit in each second")
        .range_y(0.0..rate * 1.1)
        .dashed("capacity", [(0.0, rate), (outcome.length_s, rate)])
        .in_ink();
    for (i, bps) in outcome.sublinks_bps.iter().enumerate() {
        let middle = |i: usize| (i as f64 + 0.5) * INTERVAL_S;
        let points = bps.iter().enumerate();
        let points = points.map(|(i, bps)| (middle(i), bps / 1e6));
        chart = chart.line(format!("sublink {i}"), points);
    }
    findings.plot(name, chart);
    Ok(findings)
}
