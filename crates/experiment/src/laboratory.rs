//! Runs of scenarios in the laboratory: one after the other, where each wants the whole machine, or side by side.

use std::num::NonZeroUsize;

use anabranch_lab::scenario::{Setup, run};
use anabranch_report::layout;
use anabranch_results::{
    Finished, OutputError, Progress, ResultsDir, Rows, RunError, RunFailed, Sweep, SweepError,
};
use anabranch_scenario::{Record, Run, World};

use crate::{Context, ExperimentError};

/// A machine that does other work may be too slow for a run, and fast enough for the next.
const TRIES: usize = 3;
/// In the directory of the results: a directory per run.
const RUNS: &str = "runs";

/// Carries out every run alone and returns what `derive` makes of each record, in their order. The gateways are
/// `anabranch run` of the options' executable. A run whose record says that it is not to be trusted is carried out again, whatever
/// came of it. What is complete is kept, and not carried out again by the same build.
///
/// # Errors
/// If a run cannot be carried out, or cannot be trusted however often it is tried; if the options' order to stop is
/// given meanwhile.
pub fn carry_out<T>(
    context: &Context,
    runs: &[Run],
    derive: impl FnMut(&Run, &Record) -> T,
) -> Result<Vec<T>, ExperimentError> {
    carried_out(context, runs, NonZeroUsize::MIN, derive)
}

/// As [`carry_out`], as many at a time as the options allow: of lines so slow that a machine has room for several laboratories.
///
/// # Errors
/// As [`carry_out`].
pub fn carry_out_side_by_side<T>(
    context: &Context,
    runs: &[Run],
    derive: impl FnMut(&Run, &Record) -> T,
) -> Result<Vec<T>, ExperimentError> {
    let jobs = NonZeroUsize::new(context.options.jobs).unwrap_or(NonZeroUsize::MIN);
    carried_out(context, runs, jobs, derive)
}

fn carried_out<T>(
    context: &Context,
    runs: &[Run],
    jobs: NonZeroUsize,
    mut derive: impl FnMut(&Run, &Record) -> T,
) -> Result<Vec<T>, ExperimentError> {
    let finished = kept(context, runs, jobs)?;
    let each = runs.iter().zip(&finished);
    each.map(|(run, finished)| Ok(derive(run, &finished.record(run).map_err(unkept)?)))
        .collect()
}

/// Every run, from this time or an earlier one.
fn kept(
    context: &Context,
    runs: &[Run],
    jobs: NonZeroUsize,
) -> Result<Vec<Finished>, ExperimentError> {
    let setup = Setup {
        binary: context.options.binary.clone(),
        stop: context.options.stop.clone(),
    };
    let build = context.options.build().map_err(unkept)?;
    let directory = ResultsDir::open(&context.options.out.join(RUNS))?;
    let sweep = Sweep::plan(&directory, World::Lab, build, runs.to_vec());
    context.progress.resumed(&sweep);
    let mut done = sweep.done();
    context.progress.runs(done, runs.len());
    let on_progress = |progress| {
        if let Progress::Done(_) = progress {
            done += 1;
            context.progress.runs(done, runs.len());
        }
    };
    let world = |run: &Run, _: &mut dyn FnMut(std::time::Duration)| valid(run, &setup);
    sweep
        .run(Some(jobs), layout(Rows::Parquet), world, on_progress)
        .map_err(explained)
}

fn valid(each: &Run, setup: &Setup) -> Result<Record, ExperimentError> {
    let mut problems = Vec::new();
    for _ in 0..TRIES {
        let record = run(each, setup, &mut |_| {});
        if setup.stop.is_ordered() {
            return Err(ExperimentError::Interrupted);
        }
        let record = record.map_err(|error| ExperimentError::run("the laboratory", error))?;
        if record.problems.is_empty() {
            return Ok(record);
        }
        problems = record.problems;
    }
    Err(ExperimentError::Invalid {
        run: each.to_string(),
        problem: format!("tried {TRIES} times, at last: {}", problems.join("; ")),
    })
}

fn explained(error: SweepError<ExperimentError>) -> ExperimentError {
    match error {
        SweepError::Run(RunFailed {
            run,
            error: RunError::World(error),
        }) => ExperimentError::of_run(run, error),
        SweepError::Run(other) => ExperimentError::run(other.run, other.error),
        SweepError::Output(error) => unkept(error),
    }
}

fn unkept(error: OutputError) -> ExperimentError {
    ExperimentError::run("keeping the runs", error)
}
