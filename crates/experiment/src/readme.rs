//! The table of an experiment's README, which is that of runs and not of hands.
//!
//! What a README shows is kept beside it as `summary.json`: what runs wrote of the same name, without the values of every
//! seed.

use std::fs;
use std::path::{Path, PathBuf};

use anabranch_results::{OutputError, read_json, write_json};
use serde::{Deserialize, Serialize};

use crate::expected::{Verdict, number};
use crate::findings::Table;
use crate::judge::with_unit;
use crate::{Experiment, Seeds, World};

/// In the experiment's folder, and in the directory of a run.
const SUMMARY: &str = "summary.json";
pub(crate) const README: &str = "README.md";
const BEGIN: &str = "<!-- claims: written by `anabranch-lab experiment readme` -->";
pub(crate) const END: &str = "<!-- end of claims -->";

/// What a README shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// What was run, in the order of the table.
    runs: Vec<Ran>,
    claims: Vec<Row>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tables: Vec<Table>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Ran {
    world: World,
    seeds: Seeds,
    windows: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Row {
    figure: String,
    claim: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<f64>,
    observed: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    unit: String,
    stated: Verdict,
    verdict: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    world: World,
    /// Of a run that was cut into windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    in_windows: Option<(usize, usize)>,
}

/// What is needed of the `summary.json` of a run.
#[derive(Deserialize)]
struct OfRun {
    experiment: String,
    #[serde(flatten)]
    ran: Ran,
    quick: bool,
    valid: bool,
    complete: bool,
    checks: Vec<CheckOfRun>,
    tables: Vec<Table>,
}

#[derive(Deserialize)]
struct CheckOfRun {
    #[serde(flatten)]
    row: Row,
    held: usize,
}

/// Why a README cannot be written.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ReadmeError {
    #[error(
        "{path}: no results of a full and valid run of {experiment}: run it first, or name its --out"
    )]
    NotThat {
        path: PathBuf,
        experiment: &'static str,
    },
    #[error("{path}: the run ended before its last figure: let it go on to its end")]
    Interrupted { path: PathBuf },
    #[error(
        "the first of the runs is cut into windows: name one before it whose observations are shown"
    )]
    OnlyWindows,
    #[error("{path}: between `{BEGIN}` and `{END}` the table is written: put both lines there")]
    NoPlace { path: PathBuf },
    #[error(transparent)]
    Output(#[from] OutputError),
}

/// Writes what the runs in `results` came to into `folder`: `summary.json`, and the table of the README. A run in windows
/// tells in how many a claim held, the others what was observed. Without results the table is that of the `summary.json`
/// that is there.
///
/// # Errors
/// If a directory has no such results, or the README no place for them.
pub fn write_readme(
    experiment: &'static Experiment,
    folder: &Path,
    results: &[PathBuf],
) -> Result<(), ReadmeError> {
    let mut shown = match results {
        [] => read_json(&folder.join(SUMMARY))?,
        _ => Shown::default(),
    };
    for directory in results {
        shown.add(experiment, directory)?;
    }
    let path = folder.join(README);
    let text = fs::read_to_string(&path).map_err(OutputError::io(&path))?;
    let text = shown.within(&text);
    let text = text.ok_or_else(|| ReadmeError::NoPlace { path: path.clone() })?;
    write_json(&folder.join(SUMMARY), &shown)?;
    fs::write(&path, text).map_err(OutputError::io(&path))?;
    Ok(())
}

/// Where the table of a README begins, if it has one.
pub(crate) fn table_begin(readme: &str) -> Option<usize> {
    Some(readme.find(BEGIN)? + BEGIN.len())
}

impl Shown {
    fn add(
        &mut self,
        experiment: &'static Experiment,
        directory: &Path,
    ) -> Result<(), ReadmeError> {
        let not_that = || ReadmeError::NotThat {
            path: directory.join(SUMMARY),
            experiment: experiment.name,
        };
        let of_run: OfRun = read_json(&directory.join(SUMMARY)).map_err(|_| not_that())?;
        if of_run.experiment != experiment.name || of_run.quick || !of_run.valid {
            return Err(not_that());
        }
        if !of_run.complete {
            return Err(ReadmeError::Interrupted {
                path: directory.join(SUMMARY),
            });
        }
        let windows = of_run.ran.windows;
        if windows > 1 && self.claims.is_empty() {
            return Err(ReadmeError::OnlyWindows);
        }
        for CheckOfRun { row, held } in of_run.checks {
            let same = |known: &&mut Row| known.figure == row.figure && known.claim == row.claim;
            match self.claims.iter_mut().find(same) {
                Some(known) if windows > 1 => known.in_windows = Some((held, windows)),
                None if windows == 1 => self.claims.push(row),
                _ => {}
            }
        }
        self.tables.extend(of_run.tables);
        self.runs.push(of_run.ran);
        Ok(())
    }

    /// `readme` with the table in its place, if it has one.
    fn within(&self, readme: &str) -> Option<String> {
        let begin = table_begin(readme)?;
        let end = begin + readme[begin..].find(END)?;
        Some(format!(
            "{}\n{}{}",
            &readme[..begin],
            self.table(),
            &readme[end..]
        ))
    }

    fn table(&self) -> String {
        let runs: Vec<String> = self.runs.iter().map(Ran::words).collect();
        let counts = Verdict::ALL.iter().filter_map(|verdict| {
            let those = self.claims.iter().filter(|row| row.counts_as() == *verdict);
            let count = those.count();
            (count > 0).then(|| format!("{count} {}", verdict.name()))
        });
        let counts: Vec<String> = counts.collect();
        let rows: String = self.claims.iter().map(Row::line).collect();
        let tables: String = self.tables.iter().map(Table::lines).collect();
        format!(
            "{}: {}.\n\n| figure | claim | published | observed | verdict | windows |\n|---|---|---|---|---|---|\n{rows}{tables}",
            counts.join(", "),
            runs.join("; ")
        )
    }
}

impl Ran {
    fn words(&self) -> String {
        let windows = match self.windows {
            1 => String::new(),
            windows => format!(" in {windows} windows"),
        };
        format!("seeds {}{windows} {}", self.seeds, self.world.place())
    }
}

impl Row {
    /// One run in which the whole claim holds makes no more of it than the file does.
    fn counts_as(&self) -> Verdict {
        match (self.stated, self.verdict) {
            (Verdict::Partly, Verdict::Reproduced) => Verdict::Partly,
            (Verdict::Undecided, _) => Verdict::Undecided,
            (_, verdict) => verdict,
        }
    }

    fn line(&self) -> String {
        let Row {
            figure,
            claim,
            verdict,
            unit,
            ..
        } = self;
        let value = |value: f64| number(value);
        let published = self.published.map_or(String::new(), value);
        let observed = self.observed.map_or("–".to_owned(), value);
        let end = |end: Option<f64>| end.map_or("…".to_owned(), value);
        let observed = match (self.low, self.high) {
            (None, None) => observed,
            (low, high) => format!("{observed} [{}, {}]", end(low), end(high)),
        };
        let observed = with_unit(observed, unit);
        let verdict = match (self.counts_as(), self.stated) {
            (counts, stated) if counts != stated => {
                format!("{} (stated {})", verdict.name(), stated.name())
            }
            (counts, _) if counts != *verdict => {
                format!("{} (here {})", counts.name(), verdict.name())
            }
            (counts, _) => counts.name().to_owned(),
        };
        let verdict = match &self.why {
            Some(why) => format!("{verdict}: {why}"),
            None => verdict,
        };
        let windows = self.in_windows;
        let windows = windows.map_or(String::new(), |(held, of)| format!("{held} of {of}"));
        format!("| {figure} | {claim} | {published} | {observed} | {verdict} | {windows} |\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::all;

    fn folder(experiment: &Experiment) -> PathBuf {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
        root.join(experiment.name)
    }

    #[test]
    fn every_readme_shows_what_its_summary_says() {
        let kept = |experiment: &&&Experiment| folder(experiment).join(SUMMARY).exists();
        let experiments: Vec<_> = all().iter().filter(kept).collect();
        assert!(!experiments.is_empty());
        for experiment in experiments {
            let folder = folder(experiment);
            let shown: Shown = read_json(&folder.join(SUMMARY)).expect("reads");
            let readme = fs::read_to_string(folder.join(README)).expect("is there");
            let written = shown.within(&readme).expect("has a place for the table");
            let command = format!("anabranch-lab experiment readme {}", experiment.name);
            assert!(written == readme, "{command}");
        }
    }

    const RUN: &str = r#"{"experiment": "validation", "world": "sim", "seeds": "1001..1020", "windows": 1,
        "quick": false, "valid": true, "complete": true, "checks": [{"figure": "f", "claim": "c", "published": 1.0,
        "observed": 1.5, "low": 1.25, "high": null, "unit": "s", "stated": "partly", "verdict": "partly",
        "why": "w", "world": "sim", "held": 1}],
        "tables": [{"title": "t", "head": ["a", "b"], "rows": [["1", "2"]]}]}"#;

    fn ran(text: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join(SUMMARY), text).expect("writes");
        directory
    }

    #[test]
    fn a_table_shows_a_run_and_in_how_many_windows_of_another_its_claims_held() {
        let validation = &crate::validation::EXPERIMENT;
        let once = ran(RUN);
        let windows = ran(&RUN
            .replace("\"windows\": 1", "\"windows\": 12")
            .replace("1001..1020", "2001..2240"));
        let mut shown = Shown::default();
        assert!(matches!(
            shown.add(validation, windows.path()),
            Err(ReadmeError::OnlyWindows)
        ));
        shown.add(validation, once.path()).expect("adds");
        shown.add(validation, windows.path()).expect("adds");
        let text = shown
            .within(&format!("a\n{BEGIN}\nold\n{END}\nb\n"))
            .expect("has a place");
        let row = "| f | c | 1 | 1.5 [1.25, …] s | partly: w | 1 of 12 |\n";
        assert!(text.contains(row), "{text}");
        assert!(
            text.contains("\nt\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"),
            "{text}"
        );
        assert!(text.starts_with("a\n") && text.ends_with("b\n") && !text.contains("old"));
        assert!(text.contains(
            "1 partly: seeds 1001..1020 in the simulator; seeds 2001..2240 in 12 windows"
        ));
        assert_eq!(shown.within(&text), Some(text.clone()));
        assert_eq!(shown.within("no place"), None);
    }

    #[test]
    fn a_run_in_which_all_of_it_holds_makes_no_more_of_what_is_stated_partly_or_undecided() {
        let mut shown = Shown::default();
        let better = ran(&RUN.replace("\"verdict\": \"partly\"", "\"verdict\": \"reproduced\""));
        shown
            .add(&crate::validation::EXPERIMENT, better.path())
            .expect("adds");
        let table = shown.table();
        assert!(table.starts_with("1 partly: "), "{table}");
        assert!(table.contains("| partly (here reproduced): w |"), "{table}");
        let mut shown = Shown::default();
        let open = RUN.replace("\"stated\": \"partly\"", "\"stated\": \"undecided\"");
        let open = ran(&open.replace("\"verdict\": \"partly\"", "\"verdict\": \"reproduced\""));
        shown
            .add(&crate::validation::EXPERIMENT, open.path())
            .expect("adds");
        let table = shown.table();
        assert!(table.starts_with("1 undecided: "), "{table}");
        assert!(
            table.contains("| undecided (here reproduced): w |"),
            "{table}"
        );
    }

    #[test]
    fn a_quick_run_or_another_experiment_is_shown_nowhere() {
        let quick = ran(&RUN.replace("\"quick\": false", "\"quick\": true"));
        let mut shown = Shown::default();
        let error = shown
            .add(&crate::validation::EXPERIMENT, quick.path())
            .unwrap_err();
        assert!(matches!(error, ReadmeError::NotThat { .. }));
        let other = ran(RUN);
        assert!(shown.add(all()[0], other.path()).is_err());
    }

    #[test]
    fn a_run_that_was_interrupted_is_shown_nowhere() {
        let begun = ran(&RUN.replace("\"complete\": true", "\"complete\": false"));
        let mut shown = Shown::default();
        let refused = shown.add(&crate::validation::EXPERIMENT, begun.path());
        assert!(matches!(refused, Err(ReadmeError::Interrupted { .. })));
        assert_eq!(shown, Shown::default());
    }
}
