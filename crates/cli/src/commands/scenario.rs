//! A scenario file in a world: every policy, seed and point of its sweep, compared in one table.

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::time::Duration;

use anabranch_core::Time;
use anabranch_daemon::BadInput;
use anabranch_lab::netns::NetnsError;
use anabranch_lab::scenario::Setup;
use anabranch_lab::topology::LabError;
use anabranch_scenario::{
    BuildId, Comparison, Finished, Record, Rows, Run, RunError, RunFailed, ScenarioFile, Sweep,
    SweepError, World, draw_pngs, twice,
};
use anyhow::bail;

use crate::args::TrialArgs;
use crate::comparison;
use crate::interrupt::{self, Interrupted};
use crate::output::{prepare, print};
use crate::progress::Trials;

/// `anabranch sim run`. The first run is always held against a second of the same: a simulator that is not deterministic
/// would otherwise go unnoticed.
pub fn simulate(
    args: &TrialArgs,
    jobs: Option<NonZeroUsize>,
    all_twice: bool,
) -> anyhow::Result<()> {
    let once = |run: &Run, progress: &mut dyn FnMut(Duration)| {
        anabranch_sim::run(run, &mut |now| progress(now.since(Time::ZERO)))
    };
    let sweep = plan(args, World::Sim)?;
    interrupt::leave_at_once(kept(args))?;
    let first = sweep.missing().next().map(|run| run.hash.clone());
    let world = |run: &Run, progress: &mut dyn FnMut(Duration)| {
        if all_twice || first.as_ref() == Some(&run.hash) {
            return twice(run, progress, once);
        }
        once(run, progress)
    };
    let finished = complete(sweep, args, jobs, world)?;
    conclude(args, &finished)
}

/// `anabranch lab run`: one laboratory at a time, because each wants the whole machine.
pub fn carry_out(args: &TrialArgs) -> anyhow::Result<()> {
    let sweep = plan(args, World::Lab)?;
    let setup = Setup {
        binary: std::env::current_exe()?,
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
    conclude(args, &finished)
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
        LabError::Namespace(NetnsError::Privilege) => BadInput::new(
            "the laboratory needs root for network namespaces and BPF: run `sudo anabranch lab run`",
        )
        .into(),
        LabError::Spec { .. } => BadInput::new(format!("{run}: {error}")).into(),
        other => anyhow::Error::new(other).context(run),
    }
}

fn kept(args: &TrialArgs) -> String {
    let out = args.out.display();
    format!("complete runs are kept in {out}, the same command goes on from there")
}

fn plan(args: &TrialArgs, world: World) -> anyhow::Result<Sweep> {
    let runs = read(args, world)?.runs();
    prepare(&args.out)?;
    Ok(Sweep::plan(&args.out, world, BuildId::running()?, runs)?)
}

fn complete<E: Display + Send>(
    sweep: Sweep,
    args: &TrialArgs,
    jobs: Option<NonZeroUsize>,
    world: impl Fn(&Run, &mut dyn FnMut(Duration)) -> Result<Record, E> + Sync,
) -> Result<Vec<Finished>, SweepError<E>> {
    let trials = Trials::new(&sweep);
    let rows = if args.csv { Rows::Csv } else { Rows::Parquet };
    let finished = sweep.run(jobs, rows, world, |progress| trials.show(progress));
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
fn conclude(args: &TrialArgs, finished: &[Finished]) -> anyhow::Result<()> {
    let comparison = Comparison::of(finished)?;
    let page = match finished {
        [only] => only.page(),
        _ => comparison.write(&args.out)?,
    };
    if args.png {
        draw_pngs(&args.out)?;
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
