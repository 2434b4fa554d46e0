//! From a selection of figures to a summary.

use std::fs;
use std::path::Path;

use anabranch_report::chart::Plot;
use anabranch_report::{Drawings, Drawn};
use anabranch_results::{OutputError, ResultsDir, write_json};

use crate::context::Known;
use crate::judged::Judged;
use crate::page::{self, Plots};
use crate::summary::Note;
use crate::{ExperimentError, Mutation, Options, Progress, Selection, Summary};

const SUMMARY: &str = "summary.json";
/// For people.
const PAGE: &str = "report.html";

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
    fn write(
        &mut self,
        summary: &Summary,
        drawings: &Drawings,
        page: &str,
    ) -> Result<(), OutputError> {
        std::mem::take(&mut self.earlier).remove_from(self.directory)?;
        write_json(&self.directory.join(SUMMARY), summary)?;
        let path = self.directory.join(PAGE);
        fs::write(&path, page).map_err(OutputError::io(&path))?;
        drawings.write(self.directory)
    }
}

/// Runs the figures one after the other; writes plots, `summary.json` and `report.html` into the options' directory as they
/// come.
///
/// # Errors
/// If a file of the experiment is wrong, or the seeds cannot be cut; if a run fails or is invalid, which the summary says
/// too; if a claim goes unobserved, or a file cannot be written. A claim of which a run says otherwise than its file is no
/// error: see [`Summary::passes`].
pub fn run(
    selection: &Selection,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Summary, ExperimentError> {
    let judged = Judged::new(selection.experiment, options)?;
    let known = Known::default();
    let context = judged.context(options, progress, &known, &Mutation::NONE);
    let results = ResultsDir::open(&options.out)?;
    let mut written = Written::new(&results);
    let mut summary = Summary::begun(&judged, options.build()?);
    let mut plots = Plots::new();
    for (index, figure) in selection.figures.iter().enumerate() {
        progress.figure(figure);
        let findings = (figure.run)(&context);
        summary.repeated = context.repeated();
        if let Err(problem @ ExperimentError::Invalid { .. }) = &findings {
            summary.valid = false;
            summary.problems.push(format!("{}: {problem}", figure.id));
            let page = page::render(&judged, &summary, &plots)?;
            written.write(&summary, &Drawings::default(), &page)?;
        }
        let findings = findings?;
        let checks = judged.judge(figure.id, &findings)?;
        summary.checks.extend(checks);
        let note = |text| Note {
            figure: figure.id,
            text,
        };
        summary.notes.extend(findings.notes.into_iter().map(note));
        summary.tables.extend(findings.tables);
        summary.complete = index + 1 == selection.figures.len();
        let svg = |(name, plot): &(String, Plot)| Ok((name.clone(), plot.svg()?));
        let svgs: Result<Vec<_>, OutputError> = findings.plots.iter().map(svg).collect();
        let drawings = Drawings::new(svgs?, options.png)?;
        summary.plots.extend(drawings.drawn());
        let shown = findings.plots.into_iter().map(|(_, plot)| plot);
        plots.insert(figure.id, shown.collect());
        let page = page::render(&judged, &summary, &plots)?;
        written.write(&summary, &drawings, &page)?;
    }
    Ok(summary)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use anabranch_report::chart::Chart;
    use anabranch_results::ResultsDirError;
    use anabranch_scenario::{Network, Run, Scenario, ScenarioFile};
    use serde_json::Value;

    use super::*;
    use crate::{
        Context, Experiment, Figure, File, Files, Findings, Observation, Region, Seeds, Verdict,
        World,
    };

    const EXPECTED: &str = "
[seeds]
fit = \"101..120\"
judge = \"1..20\"
quick = 3
lab = 2
[fig1.share]
claim = \"half of it arrives\"
published = 0.5
min = 0.4
max = 0.6
verdict = \"reproduced\"
fails_under = [\"other-way\"]
[fig1.lab]
claim = \"half of it arrives on real kernels\"
min = 0.3
verdict = \"sanity\"
why = \"it always does\"
world = \"lab\"
";

    pub(crate) struct Silent;

    /// With seed 1 alone.
    pub(crate) fn context<'a>(options: &'a Options, files: &'a Files) -> Context<'a> {
        let seeds = Seeds::new(1, 1).expect("a seed");
        let known = Box::leak(Box::default());
        Context::new(options, &Silent, files, seeds, known)
    }

    /// No scenario.
    pub(crate) fn files() -> Files {
        Files::of(experiment(&[]), None).expect("built in")
    }

    fn experiment(figures: &'static [Figure]) -> &'static Experiment {
        const FILES: &[File] = &[File {
            name: crate::files::EXPECTED,
            text: EXPECTED,
        }];
        Box::leak(Box::new(Experiment {
            name: "x",
            title: "an experiment",
            figures,
            mutations: &[OTHER_WAY],
            files: FILES,
        }))
    }

    const OTHER_WAY: Mutation = Mutation {
        name: "other-way",
        what: "links in the other order",
        run: |run| {
            let mut scenario = Scenario::clone(&run.scenario);
            if let Network::Site(site) = &mut scenario.network {
                site.links.reverse();
            }
            Run::new(Arc::new(scenario), run.policy, run.seed, run.point.clone())
        },
        ..Mutation::NONE
    };

    impl Progress for Silent {
        fn figure(&self, _: &Figure) {}
        fn runs(&self, _: usize, _: usize) {}
    }

    pub(crate) type RunFigure = fn(&Context) -> Result<Findings, ExperimentError>;

    /// The result, and the summary that was written.
    fn results(run_figure: RunFigure) -> (Result<Summary, ExperimentError>, Value) {
        let directory = tempfile::tempdir().expect("a directory");
        let summary = run_in(directory.path(), false, run_figure);
        let written = fs::read_to_string(directory.path().join("summary.json"));
        let written = written.map(|text| serde_json::from_str(&text).expect("JSON"));
        (summary, written.unwrap_or_default())
    }

    /// Two links, of which the first has most of the rate.
    pub(crate) fn runs(context: &Context) -> Vec<Run> {
        let text = "length = \"2s\"\npolicies = [\"WSDM\"]\nlink.a = { rate = \"9mbit\" }\nlink.b = { rate = \"1mbit\" }";
        let file = ScenarioFile::parse(Path::new("house.toml"), text).expect("reads");
        file.with_seeds(&context.seeds()).expect("reads").runs()
    }

    /// One figure with the claims of [`EXPECTED`].
    pub(crate) fn selection(run_figure: RunFigure) -> Selection {
        let figures: &'static [Figure] = Box::leak(Box::new([Figure {
            id: "fig1",
            title: "a figure",
            worlds: &[World::Sim],
            run: run_figure,
        }]));
        Selection {
            experiment: experiment(figures),
            figures: figures.iter().collect(),
        }
    }

    fn run_in(out: &Path, png: bool, run_figure: RunFigure) -> Result<Summary, ExperimentError> {
        let options = Options {
            quick: true,
            out: out.into(),
            png,
            ..Options::default()
        };
        run(&selection(run_figure), &options, &Silent)
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
            findings.observe(*key, Observation::Exact(*value));
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
            findings.check(
                "W = 1/(μ − λ)",
                Observation::Exact(2.1),
                Region::around(2.0, 0.02),
                "s",
                Verdict::Reproduced,
            );
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
            findings.plot(*name, Chart::new(*name, "x", "y"));
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
        assert_eq!(
            names,
            [
                "mine.svg",
                "report.html",
                "summary.json",
                "three.svg",
                "two.svg"
            ]
        );
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
