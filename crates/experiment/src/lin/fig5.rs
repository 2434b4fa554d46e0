//! Figure 5: how often the best link is chosen.

use anabranch_report::chart::Bars;

use super::place::{PLACES, Place, each, hit_ratio};
use crate::{Context, ExperimentError, Findings, Sample};

/// Of [`PLACES`], as published.
const PUBLISHED: [f64; 3] = [0.8978, 0.7132, 0.7664];

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let mut findings = Findings::default();
    let (mut races, mut turns): (Vec<Sample>, Vec<Sample>) = Default::default();
    for name in PLACES {
        let days = Place::new(context, name)?.days(context)?;
        races.push(each(&days, |day| hit_ratio(&day.truth, &day.race)));
        turns.push(each(&days, |day| hit_ratio(&day.truth, &day.turns)));
        let hits = races.last().map(Sample::mean);
        findings.observe(format!("{name}_hits"), hits.expect("just added"));
    }
    findings.observe("ofrp_hits", mean_of(&races).mean());
    findings.observe("rr_hits", mean_of(&turns).mean());
    let bars = Bars::new("Figure 5", "hit ratio", PLACES)
        .series("OFRP", races.iter().map(Sample::plotted))
        .published(PUBLISHED.map(Some))
        .series("round robin", turns.iter().map(Sample::plotted));
    findings.plot("fig5", bars);
    Ok(findings)
}

/// Seed by seed.
pub(super) fn mean_of(samples: &[Sample]) -> Sample {
    let sum = samples[1..]
        .iter()
        .fold(samples[0].clone(), |sum, next| sum.with(next, |a, b| a + b));
    sum.map(|sum| sum / samples.len() as f64)
}
