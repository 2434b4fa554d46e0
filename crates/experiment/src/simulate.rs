//! Runs of scenarios in the simulator, many at a time.

use std::num::NonZeroUsize;

use anabranch_core::Time;
use anabranch_scenario::{self as scenario, Record, Run, execute};

use crate::{Context, ExperimentError};

/// Simulates every run on the options' threads and returns what `derive` makes of each record, in the order of the runs.
///
/// # Errors
/// If a run cannot be simulated, or its record says that it is not to be trusted; if the options' order to stop is given
/// meanwhile.
pub fn simulate<T: Send>(
    context: &Context,
    runs: &[Run],
    derive: impl Fn(&Run, &Record) -> T + Sync,
) -> Result<Vec<T>, ExperimentError> {
    let world = |run: &Run, tell: &mut dyn FnMut(std::time::Duration)| {
        if context.options.stop.is_ordered() {
            return Err(ExperimentError::Interrupted);
        }
        let record = anabranch_sim::run(run, &mut |now| tell(now.since(Time::ZERO)))
            .map_err(|error| ExperimentError::run("the simulator", error))?;
        match record.problems.first() {
            Some(problem) => Err(ExperimentError::run("the simulator", problem)),
            None => Ok(derive(run, &record)),
        }
    };
    let mut done = 0;
    let on_progress = |progress| {
        if let scenario::Progress::Done(_) = progress {
            done += 1;
            context.progress.runs(done, runs.len());
        }
    };
    let jobs = NonZeroUsize::new(context.options.jobs);
    execute(runs, jobs, world, on_progress)
        .map_err(|failed| ExperimentError::of_run(failed.run, failed.error))
}
