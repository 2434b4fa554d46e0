//! Section IV.E: what the paper claims without a figure.

use anabranch_report::chart::{Bars, Chart};
use anabranch_scenario::Policy;
use anabranch_scenario::stats::Estimate;

use super::SEEDS;
use super::runs::{self, DH, DHFV, Outcome, Outcomes, SH, estimate, unplotted, words};
use crate::{Context, ExperimentError, Findings};

/// Of a sweep: a point costs as much as a figure.
const SWEEP_SEEDS: (u64, u64) = (10, 2);
const SUBLINKS: [u32; 4] = [2, 4, 8, 16];
/// Users of the paper's 1200, each as busy as there.
const USERS: [u32; 4] = [300, 600, 900, 1200];

pub(super) fn equal(context: &Context) -> Result<Findings, ExperimentError> {
    let policies = [SH, DH, DHFV];
    let seeds = context.seeds(SEEDS.0, SEEDS.1);
    let outcomes = Outcomes::of(context, runs::equal()?, &policies, &seeds)?;
    let lost = |policy| outcomes.estimate(policy, |o| o.lost_bytes).scaled(1000.0);
    let mut findings = Findings::default();
    findings.observe("dhfv_over_dh", lost(DHFV).mean / lost(DH).mean);
    for policy in policies {
        findings.note(format!("{policy} lost {} kB", words(lost(policy), 1)));
    }
    let title = "Bytes lost by flows of equal rate";
    let chart = Bars::new(title, "kB", policies.iter().map(Policy::to_string));
    findings.plot(
        "equal",
        chart
            .series("lost", policies.map(lost))
            .svg()
            .map_err(unplotted)?,
    );
    Ok(findings)
}

pub(super) fn sublinks(context: &Context) -> Result<Findings, ExperimentError> {
    let file = runs::jo_at("trunk.sublinks", &SUBLINKS)?;
    let outcomes = swept(context, file, &[SH, DHFV])?;
    let imbalance = |policy| by_point(&outcomes, policy, &SUBLINKS, Outcome::imbalance);
    let of_sh = imbalance(SH);
    let growth = of_sh.windows(2).map(|pair| pair[1].1.mean / pair[0].1.mean);
    let mut findings = Findings::default();
    findings.observe("least_growth", growth.fold(f64::INFINITY, f64::min));
    for (sublinks, imbalance) in &of_sh {
        findings.note(format!("SH, {sublinks} sublinks: {}", words(*imbalance, 2)));
    }
    let chart = Chart::new(
        "Most over mean traffic of a sublink",
        "sublinks",
        "greatest over mean",
    );
    let chart = chart
        .estimates("SH", of_sh)
        .estimates("DHFV", imbalance(DHFV));
    findings.plot("sublinks", chart.svg().map_err(unplotted)?);
    Ok(findings)
}

pub(super) fn load(context: &Context) -> Result<Findings, ExperimentError> {
    let policies = [SH, DH, DHFV];
    let outcomes = swept(context, runs::jo_at("workload.users", &USERS)?, &policies)?;
    let lost = |policy| by_point(&outcomes, policy, &USERS, |o| o.lost_bytes / 1000.0);
    let moved = |policy| by_point(&outcomes, policy, &USERS, |o| o.reassignments);
    let (sh, dh) = (lost(SH), moved(DH));
    let mut findings = Findings::default();
    findings.observe(
        "sh_lost_at_least_load",
        sh[0].1.mean / sh[USERS.len() - 1].1.mean,
    );
    findings.observe(
        "dh_moved_at_least_load",
        dh[0].1.mean / dh[USERS.len() - 1].1.mean,
    );
    let mut chart = Chart::new("Bytes lost against the load", "users", "kB");
    for policy in policies {
        chart = chart.estimates(policy.to_string(), lost(policy));
    }
    findings.plot("load", chart.svg().map_err(unplotted)?);
    Ok(findings)
}

fn swept(
    context: &Context,
    file: anabranch_scenario::ScenarioFile,
    policies: &[Policy],
) -> Result<Outcomes, ExperimentError> {
    let seeds = context.seeds(SWEEP_SEEDS.0, SWEEP_SEEDS.1);
    Outcomes::of(context, file, policies, &seeds)
}

/// Over the seeds, at every point of the sweep.
fn by_point(
    outcomes: &Outcomes,
    policy: Policy,
    points: &[u32],
    of: impl Fn(&Outcome) -> f64,
) -> Vec<(f64, Estimate)> {
    let at = |point: u32| {
        let here = outcomes.under(policy).filter(|o| o.point == Some(point));
        (f64::from(point), estimate(here.map(&of)))
    };
    points.iter().map(|&point| at(point)).collect()
}
