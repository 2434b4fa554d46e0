use anabranch_report::chart::Chart;
use anabranch_scenario::stats::{mean, median};
use anabranch_scenario::{Record, Run};

use super::SEEDS;
use super::trace::{Row, Trace};
use crate::{Context, ExperimentError, Findings, simulate};

/// The hour of the trace, as drawn.
const DRAWN_S: f64 = 3_600.0;

/// What two links carry at one time, each as a share of its rate.
#[derive(Clone, Copy, Debug)]
struct Loads {
    t_s: f64,
    sum: f64,
    difference: f64,
}

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let seeds = context.seeds(SEEDS.0, SEEDS.1);
    let runs = Row::Load.runs(&Trace::One.over(2)?, &seeds);
    let loads = simulate(context, &runs, loads)?;
    // A link alone can carry a sum of 1.
    let high: Vec<f64> = loads
        .iter()
        .map(|l| difference(l, |sum| sum > 1.5))
        .collect();
    let low: Vec<f64> = loads
        .iter()
        .map(|l| difference(l, |sum| sum < 1.0))
        .collect();
    let mut findings = Findings::default();
    findings.observe("high_load", median(&high));
    findings.observe("low_load", median(&low));
    findings.plot("fig10", plot(&loads[0])?);
    Ok(findings)
}

fn loads(_: &Run, record: &Record) -> Vec<Loads> {
    let [first, second] = &record.series[..] else {
        return Vec::new();
    };
    let share = |bps: f64| bps / first.up_rate_bps as f64;
    let pairs = first.samples.iter().zip(&second.samples);
    let loads = pairs.map(|(a, b)| Loads {
        t_s: a.t_s,
        sum: share(a.up_bps + b.up_bps),
        difference: share((a.up_bps - b.up_bps).abs()),
    });
    loads.filter(|loads| loads.sum > 0.0).collect()
}

/// The mean of difference over sum where the sum is as asked.
fn difference(loads: &[Loads], asked: impl Fn(f64) -> bool) -> f64 {
    let asked = loads.iter().filter(|loads| asked(loads.sum));
    let relative: Vec<f64> = asked.map(|loads| loads.difference / loads.sum).collect();
    mean(&relative)
}

fn plot(loads: &[Loads]) -> Result<String, ExperimentError> {
    let drawn = || loads.iter().filter(|loads| loads.t_s <= DRAWN_S);
    let chart = Chart::new("Figure 10", "time, s", "load, of one link's rate")
        .dashed("sum", drawn().map(|loads| (loads.t_s, loads.sum)))
        .line(
            "difference",
            drawn().map(|loads| (loads.t_s, loads.difference)),
        )
        .in_ink();
    chart
        .svg()
        .map_err(|error| ExperimentError::run("fig10.svg", error))
}
