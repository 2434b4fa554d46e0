//! Figure 4: throughput of every link and of the chosen one, round by round.

use anabranch_report::chart::Chart;

use super::place::{Day, PLACES, Place, each};
use crate::{Context, ExperimentError, Findings};

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let mut findings = Findings::default();
    for (name, part) in PLACES.into_iter().zip(["a", "b", "c"]) {
        let place = Place::new(context, name)?;
        let days = place.days(context)?;
        findings.observe(format!("{name}_overlaps"), each(&days, overlaps).mean());
        let chart = drawn(&format!("Figure 4 ({part}), {name}"), &place, &days[0].1);
        findings.plot(format!("fig4{part}"), chart);
    }
    Ok(findings)
}

/// Share of the rounds in which the chosen link is within a tenth of the best one.
fn overlaps(day: &Day) -> f64 {
    let rounds = day.truth.iter().zip(&day.race);
    let near = rounds.filter(|(round, link)| {
        let bps = &round.throughput_bps;
        bps.get(**link)
            .is_some_and(|chosen| *chosen >= 0.9 * bps[round.best()])
    });
    near.count() as f64 / day.truth.len() as f64
}

fn drawn(title: &str, place: &Place, day: &Day) -> Chart {
    let chart = Chart::new(title, "round", "throughput, kB/s");
    let links = place.links().into_iter().enumerate();
    let chart = links.fold(chart, |chart, (link, name)| {
        let rounds = day.truth.iter().zip(1..);
        let points =
            rounds.map(|(round, number)| (f64::from(number), round.throughput_bps[link] / 8e3));
        chart.line(name, points)
    });
    let rounds = day.truth.iter().zip(&day.race).zip(1..);
    let selected = rounds.filter_map(|((round, link), number)| {
        Some((f64::from(number), round.throughput_bps.get(*link)? / 8e3))
    });
    chart.points("selected", selected)
}
