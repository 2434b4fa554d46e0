use anabranch_report::chart::Chart;
use anabranch_scenario::stats::mean;
use anabranch_scenario::{Record, Run};

use super::trace::{Row, Trace};
use crate::{Context, ExperimentError, Findings, Sample, simulate};

/// The hour of the trace, as drawn.
const DRAWN_S: f64 = 3_600.0;

/// Whether a sum of two links' loads belongs to a band.
type Band = fn(f64) -> bool;

/// Where the sum of the loads lies. A link alone can carry 1.
const BANDS: [(&str, Band); 2] = [
    ("high_load", |sum| sum > 1.5),
    ("low_load", |sum| sum < 1.0),
];

/// What two links carry at one time, each as a share of its rate.
#[derive(Clone, Copy, Debug)]
struct Loads {
    t_s: f64,
    sum: f64,
    difference: f64,
}

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let seeds = context.seeds();
    let scenario = Trace::One.over(context.files, 2)?;
    let carried = |row: Row| simulate(context, &row.runs(&scenario, &seeds), loads);
    let (by_load, by_hash) = (carried(Row::Load)?, carried(Row::Hash)?);
    let mut findings = Findings::default();
    for (key, asked) in BANDS {
        let differences = |carried: &[Vec<Loads>]| -> Sample {
            let differences = carried.iter().map(|loads| difference(loads, asked));
            seeds.iter().copied().zip(differences).collect()
        };
        let (load, hash) = (differences(&by_load), differences(&by_hash));
        findings.observe(key, load.median());
        findings.observe(format!("{key}_against_hash"), load.minus(&hash).mean());
    }
    findings.plot("fig10", plot(&by_load[0]));
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

fn plot(loads: &[Loads]) -> Chart {
    let drawn = || loads.iter().filter(|loads| loads.t_s <= DRAWN_S);
    Chart::new("Figure 10", "time, s", "load, of one link's rate")
        .dashed("sum", drawn().map(|loads| (loads.t_s, loads.sum)))
        .line(
            "difference",
            drawn().map(|loads| (loads.t_s, loads.difference)),
        )
        .in_ink()
}
