//! Figure 6: throughput of the chosen link beside the most and the least that any link has.

use anabranch_report::chart::Bars;

use super::fig5::mean_of;
use super::place::{Day, PLACES, Place, Round, each, mean_bps, share_of_best};
use crate::{Context, ExperimentError, Findings, Sample};

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let mut findings = Findings::default();
    let mut all = Vec::new();
    for name in PLACES {
        let days = Place::new(context, name)?.days(context)?;
        findings.observe(format!("{name}_selected"), each(&days, selected).mean());
        all.push(days);
    }
    let means = |of: fn(&Day) -> f64| -> Sample {
        mean_of(&all.iter().map(|days| each(days, of)).collect::<Vec<_>>())
    };
    findings.observe("ofrp_selected", means(selected).mean());
    findings.observe("rr_selected", means(in_turn).mean());
    findings.observe("de_rr_selected", each(&all[0], in_turn).mean());
    findings.observe("least_under_rr", means(least).over(&means(in_turn)));
    findings.observe("missed_by_little", means(when_missed).mean());
    findings.observe("with_loss_known", means(with_loss).over(&means(selected)));
    let series = |of: &dyn Fn(&Day) -> f64| {
        let each = all.iter().map(|days| each(days, of).map(|bps| bps / 8e3));
        each.map(|sample| sample.plotted()).collect::<Vec<_>>()
    };
    let of = |links: fn(&Day) -> Vec<usize>| {
        series(&move |day| mean_bps(&day.truth, links(day).into_iter()))
    };
    let bars = Bars::new("Figure 6", "mean throughput, kB/s", PLACES)
        .series(
            "maximum",
            of(|day| day.truth.iter().map(Round::best).collect()),
        )
        .series("selected", of(|day| day.race.clone()))
        .series("round robin", of(|day| day.turns.clone()))
        .series("minimum", series(&|day| mean_of_rounds(day, least_of)));
    findings.plot("fig6", bars);
    Ok(findings)
}

fn selected(day: &Day) -> f64 {
    share_of_best(&day.truth, day.race.iter().copied())
}

fn in_turn(day: &Day) -> f64 {
    share_of_best(&day.truth, day.turns.iter().copied())
}

/// What the paper leaves for later: round trips joined with losses, here those that are put in, which nobody can know.
fn with_loss(day: &Day) -> f64 {
    share_of_best(&day.truth, day.truth.iter().map(Round::least_rtt_root_loss))
}

fn least(day: &Day) -> f64 {
    mean_of_rounds(day, least_of) / mean_of_rounds(day, |round| round.throughput_bps[round.best()])
}

fn least_of(round: &Round) -> f64 {
    round
        .throughput_bps
        .iter()
        .copied()
        .fold(f64::INFINITY, f64::min)
}

fn mean_of_rounds(day: &Day, of: fn(&Round) -> f64) -> f64 {
    day.truth.iter().map(of).sum::<f64>() / day.truth.len() as f64
}

/// Of the best link, over the rounds in which another was chosen; all of it if there were none.
fn when_missed(day: &Day) -> f64 {
    let rounds = day.truth.iter().zip(&day.race);
    let missed = rounds.filter(|(round, link)| round.best() != **link);
    let (truth, links): (Vec<Round>, Vec<usize>) =
        missed.map(|(round, link)| (round.clone(), *link)).unzip();
    match truth.is_empty() {
        true => 1.0,
        false => share_of_best(&truth, links.into_iter()),
    }
}
