//! The same scenario in both worlds: the simulator beside real kernels.

use std::path::Path;

use anabranch_report::chart::Chart;
use anabranch_results::Summary;
use anabranch_scenario::{Control, Record, Run, ScenarioFile};

use crate::{Bound, Context, ExperimentError, Findings, carry_out, simulate};

/// Scenarios by what they are called here.
const SCENARIOS: [(&str, &str); 2] = [
    (
        "arrivals",
        include_str!("../../../../experiments/validation/lab-arrivals.toml"),
    ),
    (
        "downloads",
        include_str!("../../../../experiments/validation/lab-downloads.toml"),
    ),
];
/// What every scenario sweeps over.
const CONTROLS: [(&str, Control); 2] = [("reno", Control::Reno), ("cubic", Control::Cubic)];
/// Difference of mean goodputs, as a share.
const GOODPUT_TOLERANCE: f64 = 0.1;
/// Kolmogorov–Smirnov distance of the durations.
const DISTANCE_MAX: f64 = 0.1;

pub(super) fn lab(context: &Context) -> Result<Findings, ExperimentError> {
    let mut findings = Findings::default();
    for (name, text) in SCENARIOS {
        let seeds = context.seeds(3, 1);
        let file = ScenarioFile::parse(Path::new(&format!("lab-{name}.toml")), text)
            .and_then(|file| file.with_seeds(&seeds))
            .map_err(|error| ExperimentError::run(name, error))?;
        let all = file.runs();
        for (word, control) in CONTROLS {
            let runs = all.iter().filter(|run| run.scenario.tcp.control == control);
            let runs: Vec<Run> = runs.cloned().collect();
            let simulated = Seen::together(simulate(context, &runs, Seen::of)?);
            let real = Seen::together(carry_out(context, &runs, Seen::of)?);
            compare(&format!("{name}-{word}"), &simulated, &real, &mut findings)?;
        }
    }
    Ok(findings)
}

/// What users saw in one world.
struct Seen {
    goodput_bps: Vec<f64>,
    /// Of successful transfers.
    durations_s: Vec<f64>,
    /// Packets that found no room in a queue.
    overflowed: u64,
}

impl Seen {
    fn of(_: &Run, record: &Record) -> Self {
        let succeeded = record.transfers.iter().filter(|each| each.outcome.is_ok());
        Self {
            goodput_bps: vec![Summary::of(record).goodput_bps],
            durations_s: succeeded.map(|each| each.duration_s).collect(),
            overflowed: record.counts.overflowed.packets,
        }
    }

    fn together(all: Vec<Self>) -> Self {
        let overflowed = all.iter().map(|seen| seen.overflowed).sum();
        Self {
            overflowed,
            goodput_bps: all
                .iter()
                .flat_map(|seen| seen.goodput_bps.clone())
                .collect(),
            durations_s: all.into_iter().flat_map(|seen| seen.durations_s).collect(),
        }
    }

    fn mean_goodput_bps(&self) -> f64 {
        anabranch_scenario::stats::mean(&self.goodput_bps)
    }
}

fn compare(
    name: &str,
    simulated: &Seen,
    real: &Seen,
    findings: &mut Findings,
) -> Result<(), ExperimentError> {
    findings.check(
        format!("{name}: mean goodput in the simulator over that on real kernels"),
        simulated.mean_goodput_bps() / real.mean_goodput_bps(),
        Bound::around(1.0, GOODPUT_TOLERANCE),
        "",
    );
    findings.check(
        format!("{name}: distance of the distributions of durations (Kolmogorov–Smirnov)"),
        distance(&simulated.durations_s, &real.durations_s),
        Bound::at_most(DISTANCE_MAX),
        "",
    );
    let [here, there] = [simulated, real].map(|seen| {
        format!(
            "{} transfers and {} drops",
            seen.durations_s.len(),
            seen.overflowed
        )
    });
    findings.note(format!("{name}: {here} simulated, {there} on real kernels"));
    let title = format!("The same {name} in both worlds");
    let chart = Chart::new(title, "duration of a transfer", "share of transfers")
        .log_x()
        .seconds_x()
        .cdf("simulator", simulated.durations_s.iter().copied())
        .cdf("real kernels", real.durations_s.iter().copied());
    let svg = chart
        .svg()
        .map_err(|error| ExperimentError::run(name, error))?;
    findings.plot(format!("lab-{name}"), svg);
    Ok(())
}

/// The largest difference of two empirical distribution functions.
fn distance(one: &[f64], other: &[f64]) -> f64 {
    let [one, other] = [one, other].map(|values| {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted
    });
    let share = |sorted: &[f64], value: f64| {
        let below = sorted.partition_point(|each| *each <= value);
        below as f64 / sorted.len().max(1) as f64
    };
    let steps = one.iter().chain(&other);
    let differences = steps.map(|&value| (share(&one, value) - share(&other, value)).abs());
    differences.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_is_the_largest_gap_between_two_distributions() {
        let halves = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(distance(&halves, &halves), 0.0);
        assert_eq!(distance(&halves, &[5.0, 6.0]), 1.0);
        assert_eq!(distance(&halves, &[3.0, 4.0, 3.5, 9.0]), 0.5);
    }

    #[test]
    fn both_worlds_can_run_every_scenario() {
        for (name, text) in SCENARIOS {
            let file = ScenarioFile::parse(Path::new(name), text).unwrap();
            file.fits(anabranch_scenario::World::Lab).unwrap();
            for (_, control) in CONTROLS {
                let runs = file.runs();
                let mine = runs
                    .iter()
                    .filter(|run| run.scenario.tcp.control == control);
                assert_eq!(mine.count(), 3);
            }
        }
    }
}
