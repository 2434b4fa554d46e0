use anabranch_report::chart::Chart;

use super::runs::{INTERVAL_S, JO, Outcomes, PEAK_INTERVAL_S, SINGLE, flow_bytes, trials, words};
use crate::{Context, ExperimentError, Findings, Sample};

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let outcomes = Outcomes::of_jo(context, &[SINGLE])?;
    let mut findings = Findings::default();
    let utilisation = outcomes.sample(SINGLE, |o| 100.0 * o.utilisation());
    let peak = outcomes.sample(SINGLE, |o| 100.0 * o.peak);
    findings.observe("utilisation", utilisation.mean());
    findings.observe("peak", peak.mean());
    let lost = outcomes.sample(SINGLE, |o| o.lost_bytes);
    findings.observe("lost_bytes", lost.greatest());
    findings.note(format!(
        "utilisation {} %, peak of {PEAK_INTERVAL_S} s {} %",
        words(&utilisation, 2),
        words(&peak, 1)
    ));
    concentration(context, &mut findings)?;
    let first = outcomes.under(SINGLE).next();
    let load = first.map(|(_, outcome)| outcome.load()).unwrap_or_default();
    let chart = Chart::new(
        "Load of the undivided link",
        "time in s",
        "% of the capacity",
    );
    let chart = chart.line("single", series(&load, 100.0));
    findings.plot("undivided", chart);
    Ok(findings)
}

/// Middles of the intervals against values in percent.
fn series(values: &[f64], unit: f64) -> Vec<(f64, f64)> {
    let middle = |i: usize| (i as f64 + 0.5) * INTERVAL_S;
    let points = values.iter().enumerate();
    points.map(|(i, value)| (middle(i), value * unit)).collect()
}

/// How much of the load the largest flows are.
fn concentration(context: &Context, findings: &mut Findings) -> Result<(), ExperimentError> {
    let runs = trials(context.files.scenario(JO)?, &[SINGLE], &context.seeds())?;
    let flows: Vec<(u64, Vec<u64>)> = runs
        .iter()
        .map(|run| (run.seed, flow_bytes(&run.scenario, run)))
        .collect();
    let share = |part: f64| {
        let of_run = |(seed, bytes): &(u64, Vec<u64>)| {
            let largest = (bytes.len() as f64 * part).round() as usize;
            let sum = |bytes: &[u64]| bytes.iter().sum::<u64>() as f64;
            (*seed, 100.0 * sum(&bytes[..largest]) / sum(bytes))
        };
        flows.iter().map(of_run).collect::<Sample>()
    };
    findings.observe("largest_thousandth", share(0.001).mean());
    findings.observe("largest_hundredth", share(0.01).mean());
    let count = flows.first().map_or(0, |(_, bytes)| bytes.len());
    findings.note(format!("{count} flows in 20 s, the paper: about 50 000"));
    Ok(())
}
