//! Runs of scenarios in the simulator, many at a time.

use std::any::{Any, TypeId};
use std::num::NonZeroUsize;
use std::time::Duration;

use anabranch_results::{Progress, execute};
use anabranch_scenario::{Record, Run};

use crate::{Context, ExperimentError};

/// Simulates every run on the options' threads and returns what `derive` makes of each record, in the order of the runs.
/// What is broken on purpose is broken here: `derive` sees the run that took place. Those with the first seed are simulated twice ([`Context::trial`]). What `derive` has made of a run is known from then
/// on, for all figures; so it captures nothing.
///
/// # Errors
/// If a run cannot be simulated, or its record says that it is not to be trusted, or is another the second time; if the
/// options' order to stop is given meanwhile.
pub fn simulate<T, F>(context: &Context, runs: &[Run], derive: F) -> Result<Vec<T>, ExperimentError>
where
    T: Clone + Send + 'static,
    F: Fn(&Run, &Record) -> T + Sync + 'static,
{
    const { assert!(size_of::<F>() == 0, "captures nothing") };
    let runs: Vec<Run> = runs.iter().map(context.mutation.run).collect();
    let maker = TypeId::of::<F>();
    let found: Vec<Option<T>> = runs
        .iter()
        .map(|run| context.known(maker, &run.hash))
        .collect();
    let unknown = runs.iter().zip(&found).filter(|(_, made)| made.is_none());
    let missing: Vec<Run> = unknown.map(|(run, _)| run.clone()).collect();
    let derive = |run: &Run, record: &Record| Box::new(derive(run, record)) as Made;
    let mut new = Vec::new();
    for (run, made) in missing.iter().zip(each(context, &missing, &once, &derive)?) {
        let made: T = *made.downcast().expect("of this maker");
        context.keep(maker, &run.hash, made.clone());
        new.push(made);
    }
    let mut new = new.into_iter();
    let all = found.into_iter().map(|found| found.or_else(|| new.next()));
    Ok(all.map(|made| made.expect("one for each run")).collect())
}

fn once(run: &Run) -> Result<Record, ExperimentError> {
    anabranch_sim::run(run, &mut |_| {})
        .map_err(|error| ExperimentError::run("the simulator", error))
}

/// What is made of a record: of one type for all makers, or the threads would be in the program as often as there are makers.
type Made = Box<dyn Any + Send>;

/// [`simulate`], `once` being the simulator and nothing known.
fn each<T: Send>(
    context: &Context,
    runs: &[Run],
    once: &(dyn Fn(&Run) -> Result<Record, ExperimentError> + Sync),
    derive: &(dyn Fn(&Run, &Record) -> T + Sync),
) -> Result<Vec<T>, ExperimentError> {
    let world = |run: &Run, _: &mut dyn FnMut(Duration)| {
        if context.options.stop.is_ordered() {
            return Err(ExperimentError::Interrupted);
        }
        let name = run.to_string();
        let record = context.trial(&name, run.seed, || once(run), Record::difference)?;
        match record.problems.is_empty() {
            true => Ok(derive(run, &record)),
            false => Err(ExperimentError::Invalid {
                run: name,
                problem: record.problems.join("; "),
            }),
        }
    };
    let mut done = 0;
    let on_progress = |progress| {
        if let Progress::Done(_) = progress {
            done += 1;
            context.progress.runs(done, runs.len());
        }
    };
    let jobs = NonZeroUsize::new(context.options.jobs);
    execute(runs, jobs, world, on_progress)
        .map_err(|failed| ExperimentError::of_run(failed.run, failed.error))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};

    use anabranch_scenario::ScenarioFile;

    use super::*;
    use crate::Options;
    use crate::run::tests::{context, files};

    const FILE: &str = "length = \"100ms\"\nseeds = 2\npolicies = [\"RR\", \"WSDM\"]\nlink.a = { rate = \"1mbit\" }";

    fn runs() -> Vec<Run> {
        ScenarioFile::parse(Path::new("house.toml"), FILE)
            .expect("reads")
            .runs()
    }

    fn simulated(run: &Run) -> Result<Record, ExperimentError> {
        anabranch_sim::run(run, &mut |_| {}).map_err(|error| ExperimentError::run("sim", error))
    }

    #[test]
    fn the_first_seed_of_every_policy_is_simulated_twice_but_once_for_all_figures() {
        let (options, files) = (Options::default(), files());
        let context = context(&options, &files);
        let times = AtomicU64::new(0);
        let counted = |run: &Run| {
            times.fetch_add(1, Ordering::Relaxed);
            simulated(run)
        };
        for expected in [6, 10] {
            each(&context, &runs(), &counted, &|_, _| ()).expect("deterministic");
            assert_eq!(times.load(Ordering::Relaxed), expected);
        }
    }

    #[test]
    fn a_run_that_is_another_the_second_time_is_invalid() {
        let (options, files) = (Options::default(), files());
        let context = context(&options, &files);
        let times = AtomicU64::new(0);
        let drifting = |run: &Run| {
            let mut record = simulated(run)?;
            if run.policy.to_string() == "WSDM" {
                record.counts.reordered += times.fetch_add(1, Ordering::Relaxed);
            }
            Ok(record)
        };
        let invalid = each(&context, &runs(), &drifting, &|_, _| ()).unwrap_err();
        assert_eq!(
            invalid.to_string(),
            "house, WSDM, seed 1: the run is invalid: not deterministic: a second run has other counts"
        );
    }

    #[test]
    fn a_run_with_a_problem_is_invalid_whatever_its_seed() {
        let (options, files) = (Options::default(), files());
        let context = context(&options, &files);
        let leaking = |run: &Run| {
            let mut record = simulated(run)?;
            if run.seed == 2 {
                record.problems.push("packets are missing".to_owned());
            }
            Ok(record)
        };
        let invalid = each(&context, &runs(), &leaking, &|_, _| ()).unwrap_err();
        assert_eq!(
            invalid.to_string(),
            "house, RR, seed 2: the run is invalid: packets are missing"
        );
    }
}
