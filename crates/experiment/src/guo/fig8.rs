use anabranch_report::chart::Chart;
use anabranch_scenario::stats::median;
use anabranch_scenario::{Record, Run};

use super::SEEDS;
use super::trace::{Row, Trace};
use crate::{Context, ExperimentError, Findings, simulate};

const LONGEST: usize = 100;

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let seeds = context.seeds(SEEDS.0, SEEDS.1);
    let mut runs = Vec::new();
    for isps in [1, 2, 3] {
        runs.extend(Row::Load.runs(&Trace::One.over(isps)?, &seeds));
    }
    let longest_s = simulate(context, &runs, longest_s)?;
    // By number of ISPs, then seed.
    let cases: Vec<&[Vec<f64>]> = longest_s.chunks(seeds.len()).collect();
    let mut findings = Findings::default();
    for (isps, key) in [(2, "two_isps"), (3, "three_isps")] {
        let pairs = cases[0].iter().zip(cases[isps - 1]);
        let sum = |longest_s: &[f64]| longest_s.iter().sum::<f64>();
        let factors: Vec<f64> = pairs.map(|(one, more)| sum(one) / sum(more)).collect();
        findings.observe(key, median(&factors));
    }
    findings.plot("fig8", plot(&cases)?);
    Ok(findings)
}

/// The longest durations, the longest first.
fn longest_s(_: &Run, record: &Record) -> Vec<f64> {
    let durations_s = record.transfers.iter().map(|transfer| transfer.duration_s);
    let mut longest_s: Vec<f64> = durations_s.collect();
    longest_s.sort_by(|a, b| b.total_cmp(a));
    longest_s.truncate(LONGEST);
    longest_s
}

/// The medians over the seeds at each rank.
fn plot(cases: &[&[Vec<f64>]]) -> Result<String, ExperimentError> {
    let chart = Chart::new("Figure 8", "connections, the longest first", "duration, s");
    let names = ["one ISP", "two ISPs", "three ISPs"];
    let chart = names
        .into_iter()
        .zip(cases)
        .fold(chart, |chart, (name, seeds)| {
            let at = |rank: usize| {
                let durations_s: Vec<f64> = seeds.iter().map(|longest_s| longest_s[rank]).collect();
                ((rank + 1) as f64, median(&durations_s))
            };
            chart.line(name, (0..LONGEST).map(at))
        });
    chart
        .svg()
        .map_err(|error| ExperimentError::run("fig8.svg", error))
}
