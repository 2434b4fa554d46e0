use anabranch_report::chart::Chart;
use anabranch_scenario::{Record, Run};

use super::trace::{Row, Trace};
use crate::{Context, ExperimentError, Findings, Sample, simulate};

const LONGEST: usize = 100;
const DRAWN_EVERY: usize = 3;

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let seeds = context.seeds();
    let mut runs = Vec::new();
    for isps in [1, 2, 3] {
        runs.extend(Row::Load.runs(&Trace::One.over(context.files, isps)?, &seeds));
    }
    let longest_s = simulate(context, &runs, longest_s)?;
    // By number of ISPs, then seed.
    let cases: Vec<&[Vec<f64>]> = longest_s.chunks(seeds.len()).collect();
    let sum_s = |case: &[Vec<f64>]| -> Sample {
        let sums_s = case.iter().map(|longest_s| longest_s.iter().sum());
        seeds.iter().copied().zip(sums_s).collect()
    };
    let one_s = sum_s(cases[0]);
    let mut findings = Findings::default();
    findings.observe("two_isps", one_s.per(&sum_s(cases[1])).median());
    findings.observe("three_isps", one_s.per(&sum_s(cases[2])).median());
    findings.plot("fig8", plot(&seeds, &cases));
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

/// The medians over the seeds at some of the ranks.
fn plot(seeds: &[u64], cases: &[&[Vec<f64>]]) -> Chart {
    let chart = Chart::new("Figure 8", "connections, the longest first", "duration, s");
    let names = ["one ISP", "two ISPs", "three ISPs"].into_iter();
    names.zip(cases).fold(chart, |chart, (name, case)| {
        let at = |rank: usize| {
            let durations_s = case.iter().map(|longest_s| longest_s[rank]);
            let durations_s: Sample = seeds.iter().copied().zip(durations_s).collect();
            ((rank + 1) as f64, durations_s.plotted_median())
        };
        chart.estimates(name, (0..LONGEST).step_by(DRAWN_EVERY).map(at))
    })
}
