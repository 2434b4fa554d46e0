//! From a selection of figures to a summary.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use anabranch_report::{Drawings, Drawn};
use anabranch_results::{OutputError, ResultsDir, Sweep, repeat, write_json};
use anabranch_workload::client::Stop;
use serde::Serialize;

use crate::claim::{self, Check, Claims};
use crate::{ExperimentError, Figure, Findings, Selection, World};

/// How far the work on a figure is, for whoever draws a progress bar. Called from several threads.
pub trait Progress: Sync {
    /// A figure begins.
    fn figure(&self, figure: &Figure);
    /// So many of so many runs of it are done.
    fn runs(&self, done: usize, of: usize);
    /// Some runs may be there already; those of another build are not used.
    fn resumed(&self, _sweep: &Sweep) {}
}

/// How an experiment is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where its runs take place.
    pub world: World,
    /// Fewer seeds and shorter runs; claims that need more are left out.
    pub quick: bool,
    /// Plots and results go here.
    pub out: PathBuf,
    /// Every plot is written as PNG too.
    pub png: bool,
    /// Runs at a time.
    pub jobs: usize,
    /// Ends the experiment early, with [`ExperimentError::Interrupted`].
    pub stop: Stop,
}

impl Default for Options {
    /// The simulator, in full, one run at a time, into the present directory.
    fn default() -> Self {
        Options {
            world: World::Sim,
            quick: false,
            out: PathBuf::new(),
            png: false,
            jobs: 1,
            stop: Stop::default(),
        }
    }
}

const SUMMARY: &str = "summary.json";
/// The first seed of whatever is simulated, which is simulated twice.
pub(crate) const FIRST_SEED: u64 = 1;

/// What a figure is given.
pub struct Context<'a> {
    /// How the experiment is run.
    pub options: &'a Options,
    /// Hears of runs as they begin and end.
    pub progress: &'a dyn Progress,
    /// What was carried out twice.
    repeated: Mutex<BTreeSet<String>>,
}

impl<'a> Context<'a> {
    /// With nothing carried out yet.
    pub fn new(options: &'a Options, progress: &'a dyn Progress) -> Self {
        Context {
            options,
            progress,
            repeated: Mutex::default(),
        }
    }

    /// Seeds from the first to `full`, or to `quick` in a quick run.
    pub fn seeds(&self, full: u64, quick: u64) -> Vec<u64> {
        (FIRST_SEED..=if self.options.quick { quick } else { full }).collect()
    }

    /// What `once` comes to in virtual time. With the first seed it is carried out twice, but once for all figures.
    ///
    /// # Errors
    /// If `once` fails, or comes to something else the second time: `difference` tells in which part.
    pub fn trial<T>(
        &self,
        run: &str,
        seed: u64,
        mut once: impl FnMut() -> Result<T, ExperimentError>,
        difference: impl FnOnce(&T, &T) -> Option<&'static str>,
    ) -> Result<T, ExperimentError> {
        if seed != FIRST_SEED || !self.repeated().insert(run.to_owned()) {
            return once();
        }
        match repeat(once, difference)? {
            (result, None) => Ok(result),
            (_, Some(problem)) => Err(ExperimentError::Invalid {
                run: run.to_owned(),
                problem,
            }),
        }
    }

    /// A trial whose result is compared as a whole.
    pub fn numbers<T: PartialEq>(
        &self,
        run: &str,
        seed: u64,
        once: impl FnMut() -> Result<T, ExperimentError>,
    ) -> Result<T, ExperimentError> {
        self.trial(run, seed, once, |a, b| (a != b).then_some("numbers"))
    }

    fn repeated(&self) -> MutexGuard<'_, BTreeSet<String>> {
        // A set is whole whatever happened to who filled it.
        self.repeated
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The result of an experiment; written as `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Its name.
    pub experiment: &'static str,
    /// Where it ran.
    pub world: World,
    /// Whether it had fewer seeds and shorter runs.
    pub quick: bool,
    /// No problems.
    pub valid: bool,
    /// Why a run cannot be trusted; with it the experiment ends.
    pub problems: Vec<String>,
    /// Runs that were carried out twice.
    pub repeated: usize,
    /// Every claim with its verdict.
    pub checks: Vec<Check>,
    /// What a reader should know beside them.
    pub notes: Vec<Note>,
    /// Those of all figures.
    pub plots: Drawn,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Note {
    pub figure: &'static str,
    pub text: String,
}

impl Summary {
    fn begun(experiment: &'static str, options: &Options) -> Self {
        Summary {
            experiment,
            world: options.world,
            quick: options.quick,
            valid: true,
            problems: Vec::new(),
            repeated: 0,
            checks: Vec::new(),
            notes: Vec::new(),
            plots: Drawn::default(),
        }
    }

    /// Whether the runs can be trusted and all claims hold.
    pub fn passes(&self) -> bool {
        self.valid && self.checks.iter().all(|check| check.pass)
    }
}

/// Where a summary grows, in place of that of an earlier experiment, whose plots go away with it.
struct Written<'a> {
    directory: &'a Path,
    earlier: Drawn,
}

impl<'a> Written<'a> {
    fn new(results: &'a ResultsDir) -> Self {
        let directory = results.path();
        let earlier = Drawn::of(&directory.join(SUMMARY));
        Written { directory, earlier }
    }

    /// What is drawn is named before it is there, so that whatever is there is named.
    fn write(&mut self, summary: &Summary, drawings: &Drawings) -> Result<(), OutputError> {
        std::mem::take(&mut self.earlier).remove_from(self.directory)?;
        write_json(&self.directory.join(SUMMARY), summary)?;
        drawings.write(self.directory)
    }
}

/// Runs the figures one after the other; writes plots and `summary.json` into the options' directory as they come.
///
/// # Errors
/// If a run fails or is invalid, which the summary says too; if a claim goes unobserved, or a file cannot be written. A
/// claim that does not hold is no error: see [`Summary::passes`].
pub fn run(
    selection: &Selection,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Summary, ExperimentError> {
    let experiment = selection.experiment;
    let claims = claim::read(experiment.name, experiment.expected)?;
    let context = Context::new(options, progress);
    let results = ResultsDir::open(&options.out)?;
    let mut written = Written::new(&results);
    let mut summary = Summary::begun(experiment.name, options);
    for figure in &selection.figures {
        progress.figure(figure);
        let findings = (figure.run)(&context);
        summary.repeated = context.repeated().len();
        if let Err(problem @ ExperimentError::Invalid { .. }) = &findings {
            summary.valid = false;
            summary.problems.push(format!("{}: {problem}", figure.id));
            written.write(&summary, &Drawings::default())?;
        }
        let findings = findings?;
        let checks = judge(figure.id, &findings, &claims, options)?;
        summary.checks.extend(checks);
        let note = |text| Note {
            figure: figure.id,
            text,
        };
        summary.notes.extend(findings.notes.into_iter().map(note));
        let drawings = Drawings::new(findings.plots, options.png)?;
        summary.plots.extend(drawings.drawn());
        written.write(&summary, &drawings)?;
    }
    Ok(summary)
}

/// Every claim beside its observation, in the order they were observed.
fn judge(
    figure: &str,
    findings: &Findings,
    claims: &Claims,
    options: &Options,
) -> Result<Vec<Check>, ExperimentError> {
    let none = Default::default();
    let mine = claims.get(figure).unwrap_or(&none);
    let mut seen = BTreeSet::new();
    let mut checks = Vec::new();
    for (key, value) in &findings.observed {
        let claim = mine
            .get(key)
            .filter(|claim| claim.world == options.world)
            .ok_or_else(|| ExperimentError::Unexpected {
                figure: figure.into(),
                claim: key.clone(),
            })?;
        if !seen.insert(key.as_str()) {
            return Err(ExperimentError::Twice {
                figure: figure.into(),
                claim: key.clone(),
            });
        }
        if claim.is_asked(options.world, options.quick) {
            checks.push(claim.check(figure, *value));
        }
    }
    let missing = mine.iter().find(|(key, claim)| {
        claim.is_asked(options.world, options.quick) && !seen.contains(key.as_str())
    });
    if let Some((key, _)) = missing {
        return Err(ExperimentError::Unobserved {
            figure: figure.into(),
            claim: key.clone(),
        });
    }
    checks.extend(findings.computed_checks(figure));
    Ok(checks)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use anabranch_results::ResultsDirError;
    use serde_json::Value;

    use super::*;
    use crate::Experiment;

    const EXPECTED: &str = "
[fig1.share]
claim = \"half of it arrives\"
published = 0.5
min = 0.4
max = 0.6
[fig1.tail]
claim = \"the tail is long\"
min = 10
full_only = true
[fig1.lab]
claim = \"half of it arrives on real kernels\"
min = 0.3
world = \"lab\"
";

    pub(crate) struct Silent;

    impl Progress for Silent {
        fn figure(&self, _: &Figure) {}
        fn runs(&self, _: usize, _: usize) {}
    }

    type RunFigure = fn(&Context) -> Result<Findings, ExperimentError>;

    /// The result, and the summary that was written.
    fn results(run_figure: RunFigure) -> (Result<Summary, ExperimentError>, Value) {
        let directory = tempfile::tempdir().expect("a directory");
        let summary = run_in(directory.path(), false, run_figure);
        let written = fs::read_to_string(directory.path().join("summary.json"));
        let written = written.map(|text| serde_json::from_str(&text).expect("JSON"));
        (summary, written.unwrap_or_default())
    }

    fn run_in(out: &Path, png: bool, run_figure: RunFigure) -> Result<Summary, ExperimentError> {
        let figures: &'static [Figure] = Box::leak(Box::new([Figure {
            id: "fig1",
            title: "a figure",
            worlds: &[World::Sim],
            run: run_figure,
        }]));
        let experiment: &'static Experiment = Box::leak(Box::new(Experiment {
            name: "x",
            title: "an experiment",
            figures,
            omitted: &[],
            expected: EXPECTED,
        }));
        let options = Options {
            quick: true,
            out: out.into(),
            png,
            ..Options::default()
        };
        let selection = Selection {
            experiment,
            figures: figures.iter().collect(),
        };
        run(&selection, &options, &Silent)
    }

    fn summary(run_figure: RunFigure) -> Result<Summary, ExperimentError> {
        let (summary, written) = results(run_figure);
        let summary = summary?;
        let checks = written["checks"].as_array().map(Vec::len);
        assert_eq!(checks, Some(summary.checks.len()));
        assert_eq!(written["valid"], true);
        Ok(summary)
    }

    fn observing(keys: &[(&str, f64)]) -> Result<Findings, ExperimentError> {
        let mut findings = Findings::default();
        for (key, value) in keys {
            findings.observe(*key, *value);
        }
        Ok(findings)
    }

    #[test]
    fn an_observation_is_judged_by_its_claim() {
        let held = summary(|_| observing(&[("share", 0.55)])).expect("runs");
        assert!(held.passes());
        assert_eq!(held.checks[0].published, Some(0.5));
        let broken = summary(|_| observing(&[("share", 0.7)])).expect("runs");
        assert!(!broken.passes());
    }

    #[test]
    fn a_quick_run_does_not_judge_claims_that_need_all_seeds() {
        let both = summary(|_| observing(&[("share", 0.5), ("tail", 1.0)])).expect("runs");
        assert_eq!(both.checks.len(), 1);
    }

    #[test]
    fn a_claim_left_out_and_one_nobody_expects_are_errors() {
        let left_out = summary(|_| observing(&[])).unwrap_err();
        assert_eq!(
            left_out.to_string(),
            "fig1 did not observe `share`, which expected.toml asks for"
        );
        let unknown = summary(|_| observing(&[("share", 0.5), ("colour", 1.0)])).unwrap_err();
        assert!(matches!(unknown, ExperimentError::Unexpected { .. }));
        let elsewhere = summary(|_| observing(&[("share", 0.5), ("lab", 1.0)])).unwrap_err();
        assert!(matches!(elsewhere, ExperimentError::Unexpected { .. }));
        let twice = summary(|_| observing(&[("share", 0.5), ("share", 0.5)])).unwrap_err();
        assert!(matches!(twice, ExperimentError::Twice { .. }));
    }

    #[test]
    fn a_claim_with_computed_bounds_is_judged_too() {
        let computed = summary(|_| {
            let mut findings = observing(&[("share", 0.5)])?;
            findings.check("W = 1/(μ − λ)", 2.1, claim::Bound::around(2.0, 0.02), "s");
            Ok(findings)
        });
        let computed = computed.expect("runs");
        assert_eq!(computed.checks.len(), 2);
        assert!(!computed.passes());
    }

    #[test]
    fn a_figure_that_loses_determinism_ends_the_experiment_and_marks_its_summary() {
        let (summary, written) = results(|context| {
            let mut drifting = 0.5;
            let mut measure = |seed| {
                context.numbers("a queue", seed, || {
                    drifting += 1e-9;
                    Ok(drifting)
                })
            };
            measure(2).expect("carried out once");
            let share = measure(1)?;
            observing(&[("share", share)])
        });
        let problem =
            "a queue: the run is invalid: not deterministic: a second run has other numbers";
        assert_eq!(summary.unwrap_err().to_string(), problem);
        assert_eq!(written["valid"], false);
        assert_eq!(written["problems"][0], format!("fig1: {problem}"));
    }

    #[test]
    fn a_summary_counts_what_was_carried_out_twice() {
        let summary = summary(|context| {
            let share = context.numbers("a queue", 1, || Ok(0.5))?;
            context.numbers("a queue", 2, || Ok(0.6))?;
            observing(&[("share", share)])
        });
        assert_eq!(summary.expect("runs").repeated, 1);
    }

    fn plotting(names: &[&str]) -> Result<Findings, ExperimentError> {
        let mut findings = observing(&[("share", 0.5)])?;
        for name in names {
            let svg = r#"<svg xmlns="http://www.w3.org/2000/svg" width="8" height="4"></svg>"#;
            findings.plot(*name, svg.to_owned());
        }
        Ok(findings)
    }

    #[test]
    fn an_experiment_takes_the_plots_of_the_former_away_and_no_file_of_a_user() {
        let directory = tempfile::tempdir().expect("a directory");
        let out = directory.path();
        fs::write(out.join("mine.svg"), "mine").expect("writes");
        run_in(out, true, |_| plotting(&["one", "two"])).expect("runs");
        assert!(out.join("one.png").exists() && out.join("two.svg").exists());
        let failed = run_in(out, false, |_| observing(&[]));
        assert!(failed.is_err() && out.join("two.svg").exists());
        let summary = run_in(out, false, |_| plotting(&["two", "three"])).expect("runs");
        let mut names: Vec<_> = fs::read_dir(out)
            .expect("is there")
            .map(|entry| entry.expect("is there").file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["mine.svg", "summary.json", "three.svg", "two.svg"]);
        assert_eq!(Drawn::of(&out.join(SUMMARY)), summary.plots);
    }

    #[test]
    fn an_experiment_is_refused_where_another_writes() {
        let directory = tempfile::tempdir().expect("a directory");
        let _held = ResultsDir::open(directory.path()).expect("free");
        let refused = run_in(directory.path(), false, |_| panic!("runs"));
        assert!(matches!(
            refused,
            Err(ExperimentError::Directory(ResultsDirError::InUse { .. }))
        ));
    }
}
