//! The paper's scenario at a quarter of its size on real kernels, spread by the product.

use std::sync::Arc;

use anabranch_report::chart::Bars;
use anabranch_scenario::{Buffer, Line, Load, Network, Policy, Run, Scenario};
use anabranch_workload::Pattern;

use super::runs::{DH, DHFV, JO, KB, Outcome, Outcomes, SH, trials, words};
use crate::{Context, ExperimentError, Findings, carry_out};

const POLICIES: [Policy; 3] = [SH, DH, DHFV];
/// Of hosts, and of every rate; a shaped line of a DS3 and 1200 hosts are too much for one machine.
const SCALE: u32 = 4;

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let runs = trials(context.files.scenario(JO)?, &POLICIES, &context.seeds())?;
    let runs: Vec<Run> = runs.iter().map(scaled).collect();
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

/// A run with fewer users on slower lines: the part of every line in use, how long its queue is in time, and how long a
/// file takes for its bytes change with nothing but the scale.
pub(super) fn scaled(run: &Run) -> Run {
    let mut scenario = Scenario::clone(&run.scenario);
    if let Network::Trunk(trunk) = &mut scenario.network {
        trunk.clients /= SCALE;
        let lines = [
            &mut trunk.single,
            &mut trunk.back,
            &mut trunk.access,
            &mut trunk.server_access,
        ];
        for line in lines.into_iter().chain(&mut trunk.sublinks) {
            slow(line);
        }
    }
    if let Load::Arrivals(plan) = &mut scenario.load
        && let Pattern::Mix(mix) = &mut plan.pattern
    {
        mix.users /= SCALE;
    }
    Run::new(Arc::new(scenario), run.policy, run.seed, run.point.clone())
}

fn slow(line: &mut Line) {
    line.rate_bps /= u64::from(SCALE);
    if let Buffer::Bytes(bytes) = &mut line.buffer {
        *bytes /= u64::from(SCALE);
    }
}
