//! Section III.C: how often the queues are looked at. "If the load-balancing interval (25ms) is reduced, the load balancing
//! effect becomes better, but the amount of reassignments may increase."

use anabranch_report::chart::Chart;
use anabranch_scenario::Policy;

use super::runs::{DH, DHFV, JO, KB, Outcome, Outcomes, by_point, words};
use crate::{Context, ExperimentError, Findings};

const INTERVALS_MS: [u32; 4] = [5, 10, 25, 50];
/// Each with the paper's, the shorter first.
const PAIRS_MS: [(u32, u32); 3] = [(5, 25), (10, 25), (25, 50)];

fn written(ms: u32) -> String {
    format!("{ms}ms")
}

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let intervals = INTERVALS_MS.map(|ms| (written(ms), f64::from(ms)));
    let file = context
        .files
        .swept(JO, "trunk.check", &INTERVALS_MS.map(written))?;
    let outcomes = Outcomes::of(context, file, &[DH, DHFV])?;
    let lost = |policy: Policy, at: &str| outcomes.sample_at(policy, at, |o| o.lost_bytes / KB);
    let moved = |policy: Policy, at: &str| outcomes.sample_at(policy, at, |o| o.reassignments);
    let mut findings = Findings::default();
    for (shorter, longer) in PAIRS_MS {
        let [short, long] = [shorter, longer].map(written);
        findings.observe(
            format!("dh_lost_{shorter}_{longer}"),
            lost(DH, &short).over(&lost(DH, &long)),
        );
        findings.observe(
            format!("dh_moved_{shorter}_{longer}"),
            moved(DH, &short).over(&moved(DH, &long)),
        );
    }
    for policy in [DH, DHFV] {
        for (at, _) in &intervals {
            findings.note(format!(
                "{policy} every {at}: lost {} kB, moved {} bins",
                words(&lost(policy, at), 1),
                words(&moved(policy, at), 0)
            ));
        }
    }
    let chart = |title: &str, unit: &str, of: fn(&Outcome) -> f64| {
        let chart = Chart::new(title, "ms between two looks", unit);
        [DH, DHFV].into_iter().fold(chart, |chart, policy| {
            let points = by_point(&outcomes, policy, &intervals, of);
            chart.estimates(policy.to_string(), points)
        })
    };
    let lost = chart("Bytes lost in 20 s", "kB", |o| o.lost_bytes / KB);
    findings.plot("interval-lost", lost);
    let moved = chart("Bins reassigned in 20 s", "reassignments", |o| {
        o.reassignments
    });
    findings.plot("interval-moved", moved);
    Ok(findings)
}
