//! Figure 10: when sessions end, and how fast they were, at (10,3) with a congested last mile.

use anabranch_report::chart::Chart;
use anabranch_scenario::{Record, Run};

use super::testbed::{Testbed, Workload, runs};
use crate::{Context, ExperimentError, Findings, Sample, simulate};

/// Of (a) and (b).
const ALGORITHMS: [(&str, &str); 2] = [("WMORBF", "a"), ("FRRTDF", "b")];

/// One run.
#[derive(Clone, Debug, PartialEq)]
struct Sessions {
    longest_s: f64,
    /// End and throughput of each.
    drawn: Vec<(f64, f64)>,
}

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let testbed = Testbed::of(context.files, "last-mile.toml", Workload(10, 3))?;
    let seeds = context.seeds();
    let mut findings = Findings::default();
    let mut longest = Vec::new();
    for (name, part) in ALGORITHMS {
        let seen = simulate(context, &runs(testbed.scenario(), name, &seeds)?, sessions)?;
        let of_seed = seeds.iter().copied();
        longest.push(of_seed.zip(seen.iter().map(|it| it.longest_s)).collect());
        let title = format!("Figure 10 ({part})");
        let chart = Chart::new(title, "end of a session, s", "throughput, kbit/s");
        findings.plot(
            format!("fig10{part}"),
            chart.points(name, seen[0].drawn.clone()),
        );
    }
    let [wmorbf, frrtdf]: [Sample; 2] = longest.try_into().expect("two algorithms");
    findings.observe("wmorbf_longest_over_frrtdf", wmorbf.over(&frrtdf));
    Ok(findings)
}

fn sessions(_: &Run, record: &Record) -> Sessions {
    let arrived = record.transfers.iter().filter(|it| it.outcome.is_ok());
    let drawn =
        |it: &anabranch_workload::Transfer| (it.start_s + it.duration_s, it.throughput_bps() / 1e3);
    Sessions {
        longest_s: arrived.clone().map(|it| it.duration_s).fold(0.0, f64::max),
        drawn: arrived.map(drawn).collect(),
    }
}
