//! Runs of scenarios in the laboratory, one after the other: each wants the whole machine.

use anabranch_lab::scenario::{Setup, run};
use anabranch_scenario::{Record, Run};

use crate::{Context, ExperimentError};

/// A machine that does other work may be too slow for a run, and fast enough for the next.
const TRIES: usize = 3;

/// Carries out every run and returns what `derive` makes of each record, in their order. The gateways are this
/// executable's `anabranch run`. A run whose record says that it is not to be trusted is carried out again, whatever
/// came of it.
///
/// # Errors
/// If a run cannot be carried out, or cannot be trusted however often it is tried.
pub fn carry_out<T>(
    context: &Context,
    runs: &[Run],
    mut derive: impl FnMut(&Run, &Record) -> T,
) -> Result<Vec<T>, ExperimentError> {
    let binary = std::env::current_exe()
        .map_err(|error| ExperimentError::run("finding the running executable", error))?;
    let setup = Setup {
        binary,
        stop: Default::default(),
    };
    let mut derived = Vec::new();
    for each in runs {
        derived.push(derive(each, &valid(each, &setup)?));
        context.progress.runs(derived.len(), runs.len());
    }
    Ok(derived)
}

fn valid(each: &Run, setup: &Setup) -> Result<Record, ExperimentError> {
    let mut problems = Vec::new();
    for _ in 0..TRIES {
        let record = run(each, setup, &mut |_| {})
            .map_err(|error| ExperimentError::run(each.to_string(), error))?;
        if record.problems.is_empty() {
            return Ok(record);
        }
        problems = record.problems;
    }
    let problems = problems.join("; ");
    let reason = format!("invalid {TRIES} times, at last because: {problems}");
    Err(ExperimentError::run(each.to_string(), reason))
}
