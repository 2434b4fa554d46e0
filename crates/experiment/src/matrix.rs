//! Every claim in every deliberately broken world.
//!
//! `expected.toml` names for each claim the mutations under which it does not hold; a [`Matrix`] tells whether that is so, and
//! whether there is a claim that nothing fails.

use serde::Serialize;

use crate::context::Known;
use crate::expected::Verdict;
use crate::judge::Check;
use crate::judged::Judged;
use crate::{ExperimentError, Figure, Options, Progress, Selection, World};

/// Every claim under every mutation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Matrix {
    /// Name and sentence of each, in the order of a row's `fails`.
    pub mutations: Vec<(&'static str, &'static str)>,
    /// One for each claim.
    pub rows: Vec<Row>,
}

/// A claim under every mutation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The figure's `id`.
    pub figure: String,
    /// Its key in `expected.toml`, or the sentence of a theory.
    pub claim: String,
    /// What the file says of it.
    pub stated: Verdict,
    /// The mutations that the file names.
    pub named: Vec<String>,
    /// Whether it fails.
    pub fails: Vec<bool>,
}

impl Row {
    /// Under no mutation yet.
    fn begun(judged: &Judged, check: &Check) -> Row {
        let claim = check.key.as_ref();
        let claim = claim.and_then(|key| judged.claims.get(&check.figure)?.get(key));
        Row {
            figure: check.figure.clone(),
            claim: check.key.clone().unwrap_or_else(|| check.claim.clone()),
            stated: check.stated,
            named: claim.map_or_else(Vec::new, |claim| claim.fails_under.clone()),
            fails: Vec::new(),
        }
    }
}

impl Matrix {
    /// What the file says wrongly, a line for each claim.
    pub fn problems(&self) -> Vec<String> {
        self.rows
            .iter()
            .filter_map(|row| self.problem(row))
            .collect()
    }

    fn problem(&self, row: &Row) -> Option<String> {
        if !matches!(row.stated, Verdict::Reproduced | Verdict::Partly) {
            return None;
        }
        let name = format!("{}.{}", row.figure, row.claim);
        if !row.fails.contains(&true) {
            return Some(format!("{name}: no mutation fails it: state it as sanity"));
        }
        let pairs = self.mutations.iter().zip(&row.fails);
        let held = pairs
            .filter(|(_, fails)| !**fails)
            .map(|((name, _), _)| *name);
        let wrong: Vec<_> = held
            .filter(|held| row.named.iter().any(|named| named == held))
            .collect();
        (!wrong.is_empty()).then(|| format!("{name}: holds under {}", wrong.join(", ")))
    }
}

/// Judges the claims of the selected figures that are simulated under every mutation of the experiment.
///
/// # Errors
/// As [`run`](crate::run()), except that nothing is written.
pub fn mutate(
    selection: &Selection,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Matrix, ExperimentError> {
    let simulated = |figure: &&&'static Figure| figure.worlds.contains(&World::Sim);
    let figures: Vec<_> = selection
        .figures
        .iter()
        .filter(simulated)
        .copied()
        .collect();
    let judged = Judged::new(selection.experiment, options)?;
    let known = Known::default();
    let mutations = selection.experiment.mutations;
    let mut rows: Vec<Row> = Vec::new();
    for (index, mutation) in mutations.iter().enumerate() {
        let context = judged.context(options, progress, &known, mutation);
        let mut checks = Vec::new();
        for figure in &figures {
            progress.figure(figure);
            checks.extend(judged.judge(figure.id, &(figure.run)(&context)?)?);
        }
        if index == 0 {
            rows.extend(checks.iter().map(|check| Row::begun(&judged, check)));
        }
        for (row, check) in rows.iter_mut().zip(&checks) {
            row.fails.push(!check.pass);
        }
    }
    let mutations = mutations.iter();
    Ok(Matrix {
        mutations: mutations.map(|each| (each.name, each.what)).collect(),
        rows,
    })
}

#[cfg(test)]
mod tests {
    use anabranch_scenario::Direction;

    use super::*;
    use crate::run::tests::{Silent, runs, selection};
    use crate::{Context, Files, Findings, Sample, all, simulate};

    fn options() -> Options {
        Options {
            seeds: Some("1..6".parse().expect("seeds")),
            jobs: 2,
            ..Options::default()
        }
    }

    /// The first link's share of the bytes beyond 0.4.
    fn lopsided(context: &Context) -> Result<Findings, ExperimentError> {
        let shares = simulate(context, &runs(context), |_, record| {
            let [first, second] = [0, 1].map(|i| record.series[i].bytes(Direction::Down) as f64);
            first / (first + second) - 0.4
        })?;
        let shares: Sample = context.seeds().into_iter().zip(shares).collect();
        let mut findings = Findings::default();
        findings.observe("share", shares.mean());
        Ok(findings)
    }

    fn matrix(run: fn(&Context) -> Result<Findings, ExperimentError>) -> Matrix {
        mutate(&selection(run), &options(), &Silent).expect("runs")
    }

    #[test]
    fn a_claim_fails_in_the_world_in_which_what_it_is_about_is_broken() {
        let out = tempfile::tempdir().expect("a directory");
        let whole = Options {
            out: out.path().into(),
            ..options()
        };
        let summary = crate::run(&selection(lopsided), &whole, &Silent).expect("runs");
        assert!(summary.passes(), "{:?}", summary.checks);
        let matrix = matrix(lopsided);
        assert_eq!(matrix.rows.len(), 1);
        assert_eq!(matrix.rows[0].fails, [true]);
        assert_eq!(matrix.problems(), [""; 0]);
    }

    #[test]
    fn a_claim_that_nothing_fails_is_told() {
        let matrix = matrix(|context| {
            let seeds = context.seeds().into_iter();
            let half: Sample = seeds.map(|seed| (seed, 0.5)).collect();
            let mut findings = Findings::default();
            findings.observe("share", half.mean());
            Ok(findings)
        });
        let problem = "fig1.share: no mutation fails it: state it as sanity";
        assert_eq!(matrix.problems(), [problem]);
    }

    /// Cheap enough for every day; the others take `anabranch-lab experiment mutate`.
    #[test]
    fn the_claims_of_guos_figure_9_fail_under_their_mutations() {
        let selection =
            Selection::parse("2004-guo-multihoming/fig9", World::Sim).expect("is there");
        let matrix = mutate(&selection, &options(), &Silent).expect("runs");
        assert!(!matrix.rows.is_empty());
        assert_eq!(matrix.problems(), [""; 0]);
    }

    #[test]
    fn every_experiment_names_mutations_that_there_are() {
        for experiment in all() {
            let files = Files::of(experiment, None).expect("built in");
            let expected = experiment.expected(&files).expect("is right");
            assert!(!expected.claims.is_empty());
        }
    }
}
