//! A scenario file in a world: every policy, seed and point of its sweep, compared in one table.

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::time::Duration;

use anabranch_config::BadInput;
use anabranch_console::output::print;
use anabranch_core::Time;
use anabranch_lab::scenario::Setup;
use anabranch_lab::topology::LabError;
use anabranch_report::{ComparisonPage, draw_pngs, layout};
use anabranch_results::{
    BuildId, Comparison, Finished, ResultsDir, Rows, RunError, RunFailed, Sweep, SweepError, twice,
};
use anabranch_scenario::{Record, Run, ScenarioFile, World};
use anyhow::bail;

use crate::args::TrialArgs;
use crate::comparison;
use crate::interrupt::{self, Interrupted};
use crate::preconditions::{self, unusable};
use crate::progress::Trials;

/// `anabranch-lab sim run`. The first run is always held against a second of the same: a simulator that is not deterministic
/// would otherwise go unnoticed.
pub fn simulate(
    args: &TrialArgs,
    jobs: Option<NonZeroUsize>,
    all_twice: bool,
) -> anyhow::Result<()> {
    let once = |run: &Run, progress: &mut dyn FnMut(Duration)| {
        anabranch_sim::run(run, &mut |now| progress(now.since(Time::ZERO)))
    };
    let runs = read(args, World::Sim)?.runs();
    let results = opened(args)?;
    let sweep = Sweep::plan(&results, World::Sim, BuildId::running()?, runs);
    interrupt::leave_at_once(kept(args))?;
    let first = sweep.missing().next().map(|run| run.hash.clone());
    let world = |run: &Run, progress: &mut dyn FnMut(Duration)| {
        if all_twice || first.as_ref() == Some(&run.hash) {
            return twice(run, progress, once);
        }
        once(run, progress)
    };
    let finished = complete(sweep, args, jobs, world)?;
    conclude(args, World::Sim, &results, &finished)
}

/// `anabranch-lab run`: one laboratory at a time, because each wants the whole machine.
pub fn carry_out(args: &TrialArgs) -> anyhow::Result<()> {
    let runs = read(args, World::Lab)?.runs();
    let binary = preconditions::laboratory()?;
    let results = opened(args)?;
    let build = BuildId::running_with(&binary)?;
    let sweep = Sweep::plan(&results, World::Lab, build, runs);
    let setup = Setup {
        binary,
        stop: interrupt::stop()?,
    };
    let world = |run: &Run, progress: &mut dyn FnMut(Duration)| -> Result<Record, Failure> {
        let record = anabranch_lab::scenario::run(run, &setup, progress);
        match setup.stop.is_ordered() {
            true => Err(Failure::Interrupted),
            false => record.map_err(Failure::Lab),
        }
    };
    let alone = Some(NonZeroUsize::MIN);
    let finished = complete(sweep, args, alone, world).map_err(|error| explained(error, args))?;
    conclude(args, World::Lab, &results, &finished)
}

/// Why a run in the laboratory has no record.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Lab(LabError),
    #[error("interrupted")]
    Interrupted,
}

/// What the user can mend is bad input, whatever it is wrapped in.
fn explained(error: SweepError<Failure>, args: &TrialArgs) -> anyhow::Error {
    let SweepError::Run(RunFailed {
        error: RunError::World(failure),
        run,
    }) = error
    else {
        return error.into();
    };
    let error = match failure {
        Failure::Interrupted => return Interrupted { kept: kept(args) }.into(),
        Failure::Lab(error) => error,
    };
    match error {
        LabError::Spec { .. } => {
            BadInput::new(format!("{}: {error} ({run})", args.file.display())).into()
        }
        other => anyhow::Error::new(other).context(run),
    }
}

fn kept(args: &TrialArgs) -> String {
    let out = args.out.display();
    format!("complete runs are kept in {out}, the same command goes on from there")
}

/// The directory of the results. Opened last: what is refused makes no directory.
fn opened(args: &TrialArgs) -> Result<ResultsDir, BadInput> {
    ResultsDir::open(&args.out).map_err(|error| unusable(&error))
}

fn complete<E: Display + Send>(
    sweep: Sweep<'_>,
    args: &TrialArgs,
    jobs: Option<NonZeroUsize>,
    world: impl Fn(&Run, &mut dyn FnMut(Duration)) -> Result<Record, E> + Sync,
) -> Result<Vec<Finished>, SweepError<E>> {
    let trials = Trials::new(&sweep);
    let rows = if args.csv { Rows::Csv } else { Rows::Parquet };
    let finished = sweep.run(jobs, layout(rows), world, |progress| trials.show(progress));
    trials.finish();
    finished
}

fn read(args: &TrialArgs, world: World) -> Result<ScenarioFile, BadInput> {
    let mut file = ScenarioFile::load(&args.file)?;
    if !args.policies.is_empty() {
        file = file.with_policies(&args.policies)?;
    }
    if !args.seeds.is_empty() {
        file = file.with_seeds(&args.seeds)?;
    }
    file.fits(world)?;
    Ok(file)
}

/// The table, where the reports are, and whether all of it can be trusted.
fn conclude(
    args: &TrialArgs,
    world: World,
    results: &ResultsDir,
    finished: &[Finished],
) -> anyhow::Result<()> {
    let comparison = Comparison::of(world, finished)?;
    let page = match finished {
        [only] => only.page(),
        _ => ComparisonPage(&comparison).write(results, args.png)?,
    };
    if args.png {
        finished
            .iter()
            .try_for_each(|run| draw_pngs(&run.directory))?;
    }
    let table = comparison::columns(&comparison);
    print(format!("{table}\nreport: {}\n", page.display()))?;
    let invalid: Vec<_> = finished.iter().filter(|run| !run.manifest.valid).collect();
    let Some(first) = invalid.first() else {
        return Ok(());
    };
    bail!(
        "{} of {} runs are invalid; {}: {}",
        invalid.len(),
        finished.len(),
        first.directory.display(),
        first.manifest.problems.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::FAILURES;

    const FILE: &str = "length = \"1s\"\nseeds = 2\nlink.a = { rate = \"1mbit\" }\n";

    fn arguments(directory: &Path) -> TrialArgs {
        let file = directory.join("house.toml");
        fs::write(&file, FILE).unwrap();
        TrialArgs {
            file,
            policies: Vec::new(),
            seeds: Vec::new(),
            out: directory.join("results"),
            csv: false,
            png: false,
        }
    }

    fn simulated(
        run: &Run,
        _: &mut dyn FnMut(Duration),
    ) -> Result<Record, anabranch_sim::SimError> {
        anabranch_sim::run(run, &mut |_| {})
    }

    fn carried_out<E: Display + Send>(
        directory: &Path,
        world: impl Fn(&Run, &mut dyn FnMut(Duration)) -> Result<Record, E> + Sync,
    ) -> (Vec<Finished>, anyhow::Result<()>) {
        let args = arguments(directory);
        let runs = read(&args, World::Sim).unwrap().runs();
        let results = opened(&args).unwrap();
        let sweep = Sweep::plan(&results, World::Sim, BuildId::running().unwrap(), runs);
        let finished = complete(sweep, &args, None, world);
        let finished = finished.unwrap_or_else(|error| panic!("{error}"));
        let concluded = conclude(&args, World::Sim, &results, &finished);
        (finished, concluded)
    }

    fn assert_invalid(finished: &[Finished], concluded: anyhow::Result<()>, problem: &str) {
        let [valid, invalid] = finished else {
            panic!("two seeds")
        };
        let kept = Finished::read(&invalid.directory).unwrap().manifest;
        assert!(valid.manifest.valid && !kept.valid);
        assert_eq!(kept.problems, [problem]);
        let error = concluded.unwrap_err();
        assert_eq!(FAILURES.exit_code(&error), 1);
        let words = error.to_string();
        assert!(
            words.starts_with("1 of 2 runs are invalid") && words.ends_with(problem),
            "{words}"
        );
    }

    #[test]
    fn a_run_that_loses_packets_is_marked_invalid_fails_the_command_and_is_run_again() {
        let directory = tempfile::tempdir().unwrap();
        let problem = "packets are missing";
        let world = |run: &Run, progress: &mut dyn FnMut(Duration)| {
            let mut record = simulated(run, progress)?;
            if run.seed == 2 {
                record.problems.push(problem.to_owned());
            }
            Ok::<_, anabranch_sim::SimError>(record)
        };
        let (finished, concluded) = carried_out(directory.path(), world);
        assert_invalid(&finished, concluded, problem);
        let times = AtomicUsize::new(0);
        let world = |run: &Run, progress: &mut dyn FnMut(Duration)| {
            assert_eq!(run.seed, 2);
            times.fetch_add(1, Ordering::Relaxed);
            simulated(run, progress)
        };
        let (_, concluded) = carried_out(directory.path(), world);
        concluded.unwrap();
        assert_eq!(times.into_inner(), 1);
    }

    #[test]
    fn a_run_that_is_another_the_second_time_is_marked_invalid_and_fails_the_command() {
        let directory = tempfile::tempdir().unwrap();
        let world = |run: &Run, progress: &mut dyn FnMut(Duration)| {
            let times = std::cell::Cell::new(0);
            twice(run, progress, |run, progress| {
                times.set(times.get() + 1);
                let mut record = simulated(run, progress)?;
                if (run.seed, times.get()) == (2, 2) {
                    record.transfers[0].duration_s += 1e-9;
                }
                Ok::<_, anabranch_sim::SimError>(record)
            })
        };
        let (finished, concluded) = carried_out(directory.path(), world);
        let problem = "not deterministic: a second run has other transfers";
        assert_invalid(&finished, concluded, problem);
    }
}
