//! Figures 11 and 12: what the lines carried, and what TCP made of it.

use anabranch_report::chart::{Bars, Chart};
use anabranch_scenario::Policy;
use anabranch_scenario::stats::Estimate;

use super::runs::{DH, DHFV, DRR, INTERVAL_S, Outcome, Outcomes, SH, SINGLE, words};
use crate::{Context, ExperimentError, Findings};

const MB: f64 = 1e6;

/// Utilisation as the paper plots it, with what is sent twice.
pub(super) fn fig11(context: &Context) -> Result<Findings, ExperimentError> {
    let policies = [SINGLE, SH, DH, DHFV];
    let outcomes = Outcomes::of_jo(context, &policies)?;
    let mut findings = Findings::default();
    let all = |policy| outcomes.sample(policy, |o| 100.0 * o.utilisation());
    for (policy, key) in [(SH, "sh"), (DH, "dh"), (DHFV, "dhfv")] {
        let of_single = all(policy).over(&all(SINGLE));
        findings.observe(format!("{key}_of_single"), of_single);
    }
    for policy in policies {
        let useful = outcomes.sample(policy, |o| 100.0 * useful_utilisation(o));
        findings.note(format!(
            "{policy}: {} % with retransmissions, {} % without",
            words(&all(policy), 2),
            words(&useful, 2)
        ));
    }
    let mut chart = Chart::new("Utilisation of all sublinks together", "time in s", "%");
    for policy in policies {
        chart = chart.estimates(policy.to_string(), load(&outcomes, policy));
    }
    findings.plot("fig11", chart);
    Ok(findings)
}

pub(super) fn fig12(context: &Context) -> Result<Findings, ExperimentError> {
    let policies = [SINGLE, SH, DH, DHFV, DRR];
    let outcomes = Outcomes::of_jo(context, &policies)?;
    let sent = |policy| outcomes.sample(policy, |o| o.sent_bytes / MB);
    let received = |policy| outcomes.sample(policy, |o| o.received_bytes / MB);
    // Of what is sent, what is not received.
    let wasted = |policy| received(policy).with(&sent(policy), |got, sent| 1.0 - got / sent);
    let mut findings = Findings::default();
    findings.observe("dhfv_of_single", received(DHFV).over(&received(SINGLE)));
    findings.observe("dh_of_dhfv", received(DH).over(&received(DHFV)));
    findings.observe("sh_of_dh", received(SH).over(&received(DH)));
    let least = wasted(SH).with(&wasted(DH), f64::min);
    let least = least.with(&wasted(DHFV), f64::min);
    findings.observe("least_waste", least.map(|part| 100.0 * part).mean());
    let single = received(SINGLE).over(&sent(SINGLE));
    findings.observe("single_received_of_sent", single);
    for policy in policies {
        let of_single = received(policy).per(&received(SINGLE));
        findings.note(format!(
            "{policy}: sent {} MB, received {} MB, {} % of the undivided link's",
            words(&sent(policy), 2),
            words(&received(policy), 2),
            words(&of_single.map(|part| 100.0 * part), 2)
        ));
    }
    let chart = Bars::new(
        "TCP bytes in 20 s",
        "MB",
        policies.iter().map(Policy::to_string),
    )
    .series("sent", policies.map(|policy| sent(policy).plotted()))
    .series(
        "received",
        policies.map(|policy| received(policy).plotted()),
    );
    findings.plot("fig12", chart);
    Ok(findings)
}

fn useful_utilisation(outcome: &Outcome) -> f64 {
    let repeated = outcome.retransmitted_bytes / outcome.carried_bytes;
    outcome.utilisation() * (1.0 - repeated)
}

/// In percent, over the seeds, in every interval.
fn load(outcomes: &Outcomes, policy: Policy) -> Vec<(f64, Estimate)> {
    let intervals = outcomes
        .under(policy)
        .map(|(_, outcome)| outcome.load().len());
    let at = |i: usize| {
        let load = outcomes.sample(policy, |o| 100.0 * o.load()[i]);
        ((i as f64 + 0.5) * INTERVAL_S, load.plotted())
    };
    (0..intervals.min().unwrap_or(0)).map(at).collect()
}
