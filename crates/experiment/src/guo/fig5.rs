use anabranch_report::chart::Chart;

use super::prefixes::COUNT;
use crate::{Context, ExperimentError, Findings, Sample};

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let (mut findings, mut curves) = (Findings::default(), Vec::new());
    for seed in context.seeds() {
        let run = format!("a week's connections, seed {seed}");
        let covered = context.numbers(&run, seed, || Ok(covered(&visits(context, seed))))?;
        curves.push((seed, covered));
    }
    let shares = curves
        .iter()
        .map(|(seed, covered)| (*seed, covered[COUNT / 10 - 1]));
    findings.observe("top_tenth", shares.collect::<Sample>().mean());
    let curve = curves[0].1.iter().enumerate();
    let points = curve.map(|(i, share)| ((i + 1) as f64 / COUNT as f64, *share));
    let chart = Chart::new(
        "Figure 5",
        "share of the prefixes, the most visited first",
        "share of the connections",
    );
    findings.plot("fig5", chart.line("a week", points));
    Ok(findings)
}

/// Of each prefix in the whole week.
fn visits(context: &Context, seed: u64) -> Vec<u32> {
    let week = context.prefixes().week(seed);
    week.iter().map(|days| days.iter().sum()).collect()
}

/// What share of all visits go to so many of the most visited.
fn covered(visits: &[u32]) -> Vec<f64> {
    let mut visits = visits.to_vec();
    visits.sort_unstable_by(|a, b| b.cmp(a));
    let all: u32 = visits.iter().sum();
    let sums = visits.iter().scan(0, |sum, visits| {
        *sum += visits;
        Some(*sum)
    });
    sums.map(|sum: u32| f64::from(sum) / f64::from(all))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_visited_come_first() {
        assert_eq!(covered(&[1, 5, 2]), [0.625, 0.875, 1.0]);
    }
}
