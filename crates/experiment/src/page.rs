//! The page of an experiment.

use std::collections::BTreeMap;

use anabranch_report::chart::Plot;
use anabranch_report::{ClaimRow, ClaimedFigure, ClaimsPage, Headline};
use anabranch_results::OutputError;

use crate::expected::{Verdict, number};
use crate::judge::{Check, with_unit};
use crate::judged::Judged;
use crate::{Figure, Summary};

/// What was drawn, by figure.
pub(crate) type Plots = BTreeMap<&'static str, Vec<Plot>>;

pub(crate) fn render(
    judged: &Judged,
    summary: &Summary,
    plots: &Plots,
) -> Result<String, OutputError> {
    let experiment = judged.experiment;
    let observed = |figure: &&Figure| plots.contains_key(figure.id);
    let figures = experiment.figures.iter().filter(observed);
    let figure = |figure: &Figure| ClaimedFigure {
        title: format!("{}: {}", figure.id, figure.title),
        claims: of(figure, &summary.checks, |check| &check.figure)
            .map(row)
            .collect(),
        notes: of(figure, &summary.notes, |note| note.figure)
            .map(|note| note.text.clone())
            .collect(),
        plots: plots[figure.id].clone(),
    };
    let page = ClaimsPage {
        title: format!("{}: {}", experiment.name, experiment.title),
        lead: lead(summary),
        counts: counts(summary),
        figures: figures.map(figure).collect(),
        readings: judged.readings.clone(),
        files: judged.files.texts(),
    };
    page.render()
}

fn of<'a, T>(
    figure: &Figure,
    all: &'a [T],
    whose: impl Fn(&T) -> &str,
) -> impl Iterator<Item = &'a T> {
    all.iter().filter(move |each| whose(each) == figure.id)
}

fn lead(summary: &Summary) -> String {
    let quick = if summary.quick { ", a quick run" } else { "" };
    format!(
        "Seeds {} {}{quick}; parameters and bounds were chosen on {}. Build {}.",
        summary.seeds,
        summary.world.place(),
        summary.fit,
        &summary.build.as_str()[..16],
    )
}

fn counts(summary: &Summary) -> Vec<Headline> {
    let counted = Verdict::ALL.into_iter().filter_map(|verdict| {
        let those = summary.checks.iter();
        let count = those.filter(|check| check.verdict == verdict).count();
        (count > 0).then(|| Headline::new(verdict.name(), count.to_string()))
    });
    counted.collect()
}

fn row(check: &Check) -> ClaimRow {
    let published = check.published.map(number);
    let verdict = match check.pass {
        true => check.verdict.name().to_owned(),
        false => format!("{}, stated {}", check.verdict.name(), check.stated.name()),
    };
    ClaimRow {
        claim: check.claim.clone(),
        published: published.map_or(String::new(), |value| with_unit(value, &check.unit)),
        observed: check.observed_words(),
        expected: check.expected.clone(),
        verdict,
        agrees: check.pass,
        held: (check.held, check.windows),
        why: check.why.clone(),
    }
}
