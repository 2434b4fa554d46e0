//! Runs that are kept: what is complete is not run again.
//!
//! Every run has a directory named by its hash (and its world, if that is the laboratory), and a directory that exists
//! is complete. So a sweep that was interrupted goes on where it stopped, and one that was extended runs only what is
//! new. A run that was invalid, was made by another build of the program, or cannot be read back as it was, is run again.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anabranch_scenario::{Record, Run, World};

use crate::{BuildId, Finished, Layout, OutputError, Progress, ResultsDir, RunFailed, execute};

/// The runs of a scenario, in one world, under one directory.
#[derive(Debug)]
pub struct Sweep<'a> {
    results: &'a ResultsDir,
    world: World,
    build: BuildId,
    runs: Vec<Run>,
    done: BTreeMap<usize, Finished>,
    outdated: usize,
}

/// Why a sweep did not complete. What was complete before remains.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum SweepError<E: fmt::Display> {
    #[error(transparent)]
    Run(#[from] RunFailed<RunError<E>>),
    #[error(transparent)]
    Output(#[from] OutputError),
}

/// A run went wrong in its world, or could not be written.
#[derive(Debug)]
pub enum RunError<E> {
    /// The world could not carry it out.
    World(E),
    /// Its directory could not be written.
    Output(OutputError),
}

impl<E: fmt::Display> fmt::Display for RunError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::World(error) => error.fmt(f),
            RunError::Output(error) => error.fmt(f),
        }
    }
}

impl<'a> Sweep<'a> {
    /// Looks which of `runs` are complete under `results`. `build` is the program that carries out what is not.
    pub fn plan(results: &'a ResultsDir, world: World, build: BuildId, runs: Vec<Run>) -> Self {
        let mut sweep = Sweep {
            results,
            world,
            build,
            runs,
            done: BTreeMap::new(),
            outdated: 0,
        };
        for (index, run) in sweep.runs.iter().enumerate() {
            match sweep.complete(run) {
                Some(finished) if finished.manifest.build != sweep.build => sweep.outdated += 1,
                Some(finished) if finished.is_whole(run) => {
                    sweep.done.insert(index, finished);
                }
                _ => {}
            }
        }
        sweep
    }

    /// All runs, in their order.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// How many runs were complete when the sweep was planned.
    pub fn done(&self) -> usize {
        self.done.len()
    }

    /// How many runs were complete, but made by another build: they are carried out again.
    pub fn outdated(&self) -> usize {
        self.outdated
    }

    /// Runs that are to be carried out.
    pub fn missing(&self) -> impl Iterator<Item = &Run> {
        let missing = |(index, _): &(usize, &Run)| !self.done.contains_key(index);
        let runs = self.runs.iter().enumerate().filter(missing);
        runs.map(|(_, run)| run)
    }

    /// Carries out what is missing, and returns all runs in their order. `on_progress` counts the missing runs from 0.
    pub fn run<E: fmt::Display + Send>(
        mut self,
        jobs: Option<NonZeroUsize>,
        layout: Layout,
        world: impl Fn(&Run, &mut dyn FnMut(Duration)) -> Result<Record, E> + Sync,
        on_progress: impl FnMut(Progress),
    ) -> Result<Vec<Finished>, SweepError<E>> {
        let missing: Vec<Run> = self.missing().cloned().collect();
        let mut done = BTreeMap::new();
        for (index, finished) in std::mem::take(&mut self.done) {
            done.insert(index, finished.renamed(&self.runs[index], layout)?);
        }
        let finish = |run: &Run, progress: &mut dyn FnMut(Duration)| {
            let record = world(run, progress).map_err(RunError::World)?;
            Finished::write(&self.of(run), run, record, layout, &self.build)
                .map_err(RunError::Output)
        };
        let mut new = execute(&missing, jobs, finish, on_progress)?.into_iter();
        let all = (0..self.runs.len()).map(|index| done.remove(&index).or_else(|| new.next()));
        Ok(all.flatten().collect())
    }

    fn of(&self, run: &Run) -> PathBuf {
        let name = format!("{}{}", run.hash, self.world.suffix());
        self.results.path().join(name)
    }

    /// The result of `run` in this world, if it is there and valid.
    fn complete(&self, run: &Run) -> Option<Finished> {
        let finished = Finished::read(&self.of(run)).ok()?;
        let manifest = &finished.manifest;
        let same = manifest.hash == run.hash && manifest.world == self.world;
        (same && manifest.valid).then_some(finished)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use anabranch_scenario::{
        Counts, Event, EventKind, Link, LinkReading, LinkState, ScenarioFile, Tally,
    };

    use super::*;
    use crate::{Manifest, Rows};
    use anabranch_scenario::testing::transfer;

    const PARQUET: Layout = Layout {
        rows: Rows::Parquet,
        page: title,
    };
    const CSV: Layout = Layout {
        rows: Rows::Csv,
        page: title,
    };

    /// A page that has nothing but its title.
    fn title(path: &Path, finished: &Finished, _: &Run, record: Record) -> Result<(), OutputError> {
        let Manifest { scenario, .. } = &finished.manifest;
        let text = format!("{scenario}: {}", record.problems.join("; "));
        fs::write(path.join("report.html"), text).unwrap();
        Ok(())
    }

    pub(crate) fn runs(text: &str) -> Vec<Run> {
        let text = format!("{text}\nlink.fiber = {{ rate = \"1mbit\" }}");
        let file = ScenarioFile::parse(Path::new("house.toml"), &text);
        file.unwrap().runs()
    }

    fn empty() -> (tempfile::TempDir, ResultsDir) {
        let out = tempfile::tempdir().unwrap();
        let results = ResultsDir::open(out.path()).unwrap();
        (out, results)
    }

    fn build() -> BuildId {
        BuildId::named("this")
    }

    pub(crate) fn record(run: &Run) -> Record {
        Record {
            world: World::Sim,
            transfers: vec![transfer(0, 0.0, run.seed as f64), transfer(1, 0.5, 2.0)],
            series: Vec::new(),
            events: Vec::new(),
            links: vec![Link {
                name: "fiber".into(),
                down_rate_bps: 1_000_000,
                up_rate_bps: 500_000,
            }],
            counts: Counts {
                offered: Tally {
                    packets: 100,
                    bytes: 150_000,
                },
                lost: Tally {
                    packets: 1,
                    bytes: 1500,
                },
                ..Counts::default()
            },
            conditions: vec![("trajectory".into(), "0123".into())],
            problems: Vec::new(),
        }
    }

    fn complete(results: &ResultsDir, runs: Vec<Run>) -> (Vec<Finished>, usize) {
        let ran = AtomicUsize::new(0);
        let world = |run: &Run, _: &mut dyn FnMut(Duration)| {
            ran.fetch_add(1, Ordering::Relaxed);
            Ok::<_, String>(record(run))
        };
        let sweep = Sweep::plan(results, World::Sim, build(), runs);
        let finished = sweep.run(None, PARQUET, world, |_| {}).unwrap();
        (finished, ran.into_inner())
    }

    #[test]
    fn a_directory_has_everything_and_reads_back() {
        let (_out, results) = empty();
        let (finished, _) = complete(&results, runs("seeds = [4]"));
        let [finished] = &finished[..] else {
            panic!("one run")
        };
        for name in [
            "manifest.json",
            "summary.json",
            "transfers.parquet",
            "links.csv",
            "events.json",
            "report.html",
        ] {
            assert!(finished.directory.join(name).exists(), "{name}");
        }
        assert_eq!(Finished::read(&finished.directory).unwrap(), *finished);
        assert_eq!(finished.transfers().unwrap().len(), 2);
        assert!(finished.manifest.valid);
        assert_eq!(finished.manifest.conditions["trajectory"], "0123");
        assert_eq!(
            finished.manifest.plan["network"]["site"]["links"][0]["name"],
            "fiber"
        );
        assert_eq!(finished.summary.counts.unwrap().loss_ratio(), 0.01);
        assert_eq!(fs::read_to_string(finished.page()).unwrap(), "house: ");
    }

    #[test]
    fn what_is_complete_is_not_run_again() {
        let (_out, results) = empty();
        assert_eq!(complete(&results, runs("seeds = 3")).1, 3);
        let (finished, ran) = complete(&results, runs("seeds = 5"));
        assert_eq!((finished.len(), ran), (5, 2));
        let seeds: Vec<_> = finished.iter().map(|run| run.manifest.seed).collect();
        assert_eq!(seeds, [1, 2, 3, 4, 5]);
        assert_eq!(complete(&results, runs("seeds = 5\nlength = \"9s\"")).1, 5);
    }

    #[test]
    fn what_is_complete_takes_the_names_and_the_format_of_who_asks_again() {
        let (_out, results) = empty();
        let (first, _) = complete(&results, runs("name = \"a\""));
        let swept = "name = \"b\"\npatience = \"10s\"\nsweep = { patience = [\"10s\", \"5s\"] }";
        let world = |run: &Run, _: &mut dyn FnMut(Duration)| Ok::<_, String>(record(run));
        let sweep = Sweep::plan(&results, World::Sim, build(), runs(swept));
        assert_eq!((sweep.runs().len(), sweep.done()), (2, 1));
        let finished = sweep.run(None, CSV, world, |_| {}).unwrap();
        let [again, new] = &finished[..] else {
            panic!("two runs")
        };
        assert_eq!(again.summary, first[0].summary);
        assert_eq!(again.directory, first[0].directory);
        for (run, patience) in [(again, "10s"), (new, "5s")] {
            let read = Finished::read(&run.directory).unwrap();
            assert_eq!(read.manifest.scenario, "b");
            assert_eq!(read.manifest.point["patience"], patience);
            assert!(run.directory.join("transfers.csv").exists());
            assert!(!run.directory.join("transfers.parquet").exists());
        }
        assert_eq!(again.manifest.plan["patience_s"], 10.0);
    }

    #[test]
    fn a_world_leaves_the_results_of_the_other_where_they_are() {
        let (_out, results) = empty();
        complete(&results, runs(""));
        let plan = |world| Sweep::plan(&results, world, build(), runs(""));
        let world = |run: &Run, _: &mut dyn FnMut(Duration)| {
            Ok::<_, String>(Record {
                world: World::Lab,
                ..record(run)
            })
        };
        let lab = plan(World::Lab).run(None, PARQUET, world, |_| {});
        assert!(
            lab.unwrap()[0]
                .directory
                .ends_with(format!("{}-lab", runs("")[0].hash))
        );
        assert_eq!((plan(World::Sim).done(), plan(World::Lab).done()), (1, 1));
    }

    #[test]
    fn what_another_build_made_is_run_again() {
        let (_out, results) = empty();
        complete(&results, runs("seeds = 2"));
        let other = BuildId::named("another");
        let sweep = Sweep::plan(&results, World::Sim, other.clone(), runs("seeds = 3"));
        assert_eq!((sweep.done(), sweep.outdated()), (0, 2));
        let world = |run: &Run, _: &mut dyn FnMut(Duration)| Ok::<_, String>(record(run));
        let finished = sweep.run(None, CSV, world, |_| {}).unwrap();
        assert!(finished.iter().all(|run| run.manifest.build == other));
        let sweep = Sweep::plan(&results, World::Sim, other, runs("seeds = 3"));
        assert_eq!((sweep.done(), sweep.outdated()), (3, 0));
    }

    #[test]
    fn a_record_is_read_back_as_it_was() {
        let (_out, results) = empty();
        let run = &runs("seeds = 4")[0];
        let mut whole = record(run);
        let mut series = run.series();
        let begun = LinkReading {
            down_bytes: 5,
            up_bytes: 7,
            opened: 11,
            ..LinkReading::default()
        };
        let later = LinkReading {
            down_bytes: 1505,
            up_bytes: 107,
            opened: 14,
            flows: 3,
            state: LinkState::Suspect,
        };
        series[0].push(0.0, begun);
        series[0].push(0.1, later);
        let samples = series[0].samples.clone();
        whole.series = series;
        whole.events = vec![Event {
            t_s: 0.05,
            kind: EventKind::Suspect,
            link: Some("fiber".into()),
            text: "fiber, it is \"quiet\"".into(),
        }];
        let world = |_: &Run, _: &mut dyn FnMut(Duration)| Ok::<_, String>(whole.clone());
        let sweep = Sweep::plan(&results, World::Sim, build(), vec![run.clone()]);
        let finished = sweep.run(None, PARQUET, world, |_| {}).unwrap();
        let read = finished[0].record(run).unwrap();
        assert_eq!(read.difference(&whole), None);
        assert_eq!(
            (&read.links, &read.problems),
            (&whole.links, &whole.problems)
        );
        assert_eq!(read.series[0].samples, samples);
        assert_eq!(read.series[0].up_rate_bps, 1_000_000);
    }

    #[test]
    fn what_was_interrupted_is_run_again() {
        let (_out, results) = empty();
        let runs = runs("seeds = 2");
        let stale = unfinished_of(results.path(), &runs[0]);
        fs::create_dir(&stale).unwrap();
        fs::write(stale.join("manifest.json"), "{}").unwrap();
        fs::create_dir(results.path().join(&runs[1].hash)).unwrap();
        let (finished, ran) = complete(&results, runs.clone());
        assert_eq!(ran, 2);
        assert!(!stale.exists());
        fs::remove_file(finished[0].directory.join("transfers.parquet")).unwrap();
        assert_eq!(complete(&results, runs.clone()).1, 1);
        assert_eq!(complete(&results, runs.clone()).1, 0);
        fs::write(finished[1].directory.join("transfers.parquet"), "").unwrap();
        assert_eq!(complete(&results, runs).1, 1);
    }

    fn unfinished_of(directory: &Path, run: &Run) -> PathBuf {
        directory.join(format!("{}.unfinished", run.hash))
    }

    #[test]
    fn an_invalid_run_says_so_and_is_run_again() {
        let (_out, results) = empty();
        let world = |run: &Run, _: &mut dyn FnMut(Duration)| {
            let problems = vec!["fiber: 3 packets appeared from nowhere".to_owned()];
            Ok::<_, String>(Record {
                problems,
                ..record(run)
            })
        };
        let sweep = Sweep::plan(&results, World::Sim, build(), runs(""));
        let finished = sweep.run(None, CSV, world, |_| {}).unwrap();
        assert!(!finished[0].manifest.valid);
        assert!(finished[0].directory.join("transfers.csv").exists());
        let page = fs::read_to_string(finished[0].page()).unwrap();
        assert!(page.contains("from nowhere"));
        assert_eq!(complete(&results, runs("")).1, 1);
        let sweep = Sweep::plan(&results, World::Lab, build(), runs(""));
        assert_eq!(sweep.done(), 0, "another world is another result");
    }

    #[test]
    fn a_failure_leaves_what_was_complete() {
        let (_out, results) = empty();
        let world = |run: &Run, _: &mut dyn FnMut(Duration)| match run.seed {
            3 => Err("no such file".to_owned()),
            _ => Ok(record(run)),
        };
        let sweep = Sweep::plan(&results, World::Sim, build(), runs("seeds = 4"));
        let told = Cell::new(0);
        let failed = sweep.run(NonZeroUsize::new(1), PARQUET, world, |_| {
            told.set(told.get() + 1)
        });
        assert_eq!(
            failed.unwrap_err().to_string(),
            "house, WSDM, seed 3: no such file"
        );
        assert!(told.get() > 0);
        assert_eq!(
            Sweep::plan(&results, World::Sim, build(), runs("seeds = 4")).done(),
            2
        );
    }
}
