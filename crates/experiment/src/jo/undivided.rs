use anabranch_report::chart::Chart;

use super::SEEDS;
use super::runs::{
    INTERVAL_S, Outcomes, SINGLE, estimate, flow_bytes, jo, trials, unplotted, words,
};
use crate::{Context, ExperimentError, Findings};

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let seeds = context.seeds(SEEDS.0, SEEDS.1);
    let outcomes = Outcomes::of(context, jo()?, &[SINGLE], &seeds)?;
    let mut findings = Findings::default();
    let utilisation = outcomes.estimate(SINGLE, |o| 100.0 * o.utilisation());
    let peak = outcomes.estimate(SINGLE, |o| 100.0 * o.peak());
    findings.observe("utilisation", utilisation.mean);
    findings.observe("peak", peak.mean);
    findings.observe(
        "lost_bytes",
        outcomes.estimate(SINGLE, |o| o.lost_bytes).max,
    );
    findings.note(format!(
        "utilisation {} %, peak of {INTERVAL_S} s {} % (mean and 95 % interval of {} seeds)",
        words(utilisation, 2),
        words(peak, 1),
        utilisation.count
    ));
    concentration(&seeds, &mut findings)?;
    let first = outcomes.all().first();
    let load = first.map(|o| o.load()).unwrap_or_default();
    let chart = Chart::new(
        "Load of the undivided link",
        "time in s",
        "% of the capacity",
    );
    findings.plot(
        "undivided",
        chart
            .line("single", series(&load, 100.0))
            .svg()
            .map_err(unplotted)?,
    );
    Ok(findings)
}

/// Middles of the intervals against values in percent.
fn series(values: &[f64], unit: f64) -> Vec<(f64, f64)> {
    let middle = |i: usize| (i as f64 + 0.5) * INTERVAL_S;
    let points = values.iter().enumerate();
    points.map(|(i, value)| (middle(i), value * unit)).collect()
}

/// How much of the load the largest flows are.
fn concentration(seeds: &[u64], findings: &mut Findings) -> Result<(), ExperimentError> {
    let runs = trials(jo()?, &[SINGLE], seeds)?;
    let flows: Vec<Vec<u64>> = runs
        .iter()
        .map(|run| flow_bytes(&run.scenario, run))
        .collect();
    let share = |part: f64| {
        let of_run = |bytes: &Vec<u64>| {
            let largest = (bytes.len() as f64 * part).round() as usize;
            let sum = |bytes: &[u64]| bytes.iter().sum::<u64>() as f64;
            100.0 * sum(&bytes[..largest]) / sum(bytes)
        };
        estimate(flows.iter().map(of_run)).mean
    };
    findings.observe("largest_thousandth", share(0.001));
    findings.observe("largest_hundredth", share(0.01));
    let count = flows.first().map_or(0, Vec::len);
    findings.note(format!("{count} flows in 20 s, the paper: about 50 000"));
    Ok(())
}
