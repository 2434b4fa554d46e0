//! Figures 11 and 12: what the lines carried, and what TCP made of it.

use anabranch_report::chart::{Bars, Chart};
use anabranch_scenario::Policy;
use anabranch_scenario::stats::mean;

use super::SEEDS;
use super::runs::{DH, DHFV, DRR, INTERVAL_S, Outcome, Outcomes, SH, SINGLE, jo, unplotted, words};
use crate::{Context, ExperimentError, Findings};

const METHODS: [Policy; 3] = [SH, DH, DHFV];
const MB: f64 = 1e6;

pub(super) fn fig11(context: &Context) -> Result<Findings, ExperimentError> {
    let policies = [SINGLE, SH, DH, DHFV];
    let outcomes = outcomes(context, &policies)?;
    let mut findings = Findings::default();
    // First transmissions: what is sent twice fills a line and serves nobody.
    let useful = |policy| outcomes.mean(policy, |o| 100.0 * useful_utilisation(o));
    let best = METHODS.map(useful).into_iter().fold(0.0, f64::max);
    findings.observe("best_of_single", 100.0 * best / useful(SINGLE));
    for policy in policies {
        let all = outcomes.estimate(policy, |o| 100.0 * o.utilisation());
        findings.note(format!(
            "{policy}: {} % with retransmissions, {:.2} % without",
            words(all, 2),
            useful(policy)
        ));
    }
    let mut chart = Chart::new("Utilisation of all sublinks together", "time in s", "%");
    for policy in policies {
        chart = chart.line(policy.to_string(), mean_load(&outcomes, policy));
    }
    findings.plot("fig11", chart.svg().map_err(unplotted)?);
    Ok(findings)
}

pub(super) fn fig12(context: &Context) -> Result<Findings, ExperimentError> {
    let policies = [SINGLE, SH, DH, DHFV, DRR];
    let outcomes = outcomes(context, &policies)?;
    let sent = |policy| outcomes.estimate(policy, |o| o.sent_bytes).scaled(MB);
    let received = |policy| outcomes.estimate(policy, |o| o.received_bytes).scaled(MB);
    let mut findings = Findings::default();
    let single = received(SINGLE).mean;
    let of_single = |policy| 100.0 * received(policy).mean / single;
    findings.observe("dhfv_of_single", of_single(DHFV));
    findings.observe("dh_below_dhfv", of_single(DHFV) - of_single(DH));
    findings.observe("sh_below_dh", of_single(DH) - of_single(SH));
    let waste = METHODS.map(|policy| 1.0 - received(policy).mean / sent(policy).mean);
    findings.observe("least_waste", 100.0 * waste.into_iter().fold(1.0, f64::min));
    findings.observe(
        "single_received_of_sent",
        100.0 * single / sent(SINGLE).mean,
    );
    for policy in policies {
        findings.note(format!(
            "{policy}: sent {} MB, received {} MB, {:.2} % of the undivided link's",
            words(sent(policy), 2),
            words(received(policy), 2),
            of_single(policy)
        ));
    }
    let chart = Bars::new(
        "TCP bytes in 20 s",
        "MB",
        policies.iter().map(Policy::to_string),
    )
    .series("sent", policies.map(sent))
    .series("received", policies.map(received));
    findings.plot("fig12", chart.svg().map_err(unplotted)?);
    Ok(findings)
}

fn outcomes(context: &Context, policies: &[Policy]) -> Result<Outcomes, ExperimentError> {
    Outcomes::of(context, jo()?, policies, &context.seeds(SEEDS.0, SEEDS.1))
}

fn useful_utilisation(outcome: &Outcome) -> f64 {
    let repeated = outcome.retransmitted_bytes / outcome.carried_bytes;
    outcome.utilisation() * (1.0 - repeated)
}

/// Over the seeds, in every interval.
fn mean_load(outcomes: &Outcomes, policy: Policy) -> Vec<(f64, f64)> {
    let loads: Vec<Vec<f64>> = outcomes.under(policy).map(Outcome::load).collect();
    let intervals = loads.first().map_or(0, Vec::len);
    let at = |i: usize| loads.iter().map(|load| load[i]).collect::<Vec<f64>>();
    (0..intervals)
        .map(|i| ((i as f64 + 0.5) * INTERVAL_S, 100.0 * mean(&at(i))))
        .collect()
}
