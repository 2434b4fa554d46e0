//! Published claims: which there are, and whether they hold here.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anabranch_config::BadInput;
use anabranch_experiment::{
    Experiment, ExperimentError, Figure, Options, Progress, SelectError, Selection, Summary, World,
    all,
};
use anabranch_results::Sweep;
use anabranch_workload::client::Stop;
use anyhow::bail;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::interrupt::{self, Interrupted};
use crate::output::{print, print_json, unusable};
use crate::privilege;
use crate::progress;
use crate::table::{self, Columns};

const BAR: &str = "{prefix:<8} {bar:40} {pos} of {len} runs  {elapsed}";

pub fn list(json: bool) -> anyhow::Result<()> {
    if json {
        let figure = |figure: &Figure| {
            let worlds: Vec<_> = figure.worlds.iter().map(|world| world.name()).collect();
            json!({ "id": figure.id, "title": figure.title, "worlds": worlds })
        };
        let experiments = all().iter().map(|experiment| {
            let figures: Vec<_> = experiment.figures.iter().map(figure).collect();
            json!({
                "name": experiment.name,
                "title": experiment.title,
                "figures": figures,
                "omitted": experiment.omitted,
            })
        });
        return print_json(&experiments.collect::<Vec<_>>());
    }
    let mut columns = Columns::new(&["experiment", "figure", "worlds", "what it shows"]);
    for experiment in all() {
        let title = experiment.title.to_owned();
        columns.row([
            experiment.name.to_owned(),
            String::new(),
            String::new(),
            title,
        ]);
        for figure in experiment.figures {
            let worlds: Vec<_> = figure.worlds.iter().map(|world| world.name()).collect();
            columns.row([
                String::new(),
                figure.id.to_owned(),
                worlds.join(", "),
                figure.title.to_owned(),
            ]);
        }
        for omitted in experiment.omitted {
            columns.row([
                String::new(),
                omitted.id.to_owned(),
                "none".to_owned(),
                omitted.why.to_owned(),
            ]);
        }
    }
    print(columns)
}

pub fn run(
    name: &str,
    world: Option<World>,
    quick: bool,
    out: PathBuf,
    png: bool,
) -> anyhow::Result<()> {
    let (selection, world) =
        select(name, world).map_err(|error| BadInput::new(error.to_string()))?;
    if world == World::Lab {
        privilege::laboratory()?;
    }
    let options = Options {
        world,
        quick,
        stop: end_by_interrupt(world, &out)?,
        out,
        png,
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
    };
    let figures = Figures::default();
    let summary = anabranch_experiment::run(&selection, &options, &figures);
    figures.finish();
    let summary = summary.map_err(|error| explained(error, &options.out))?;
    print(told(&summary))?;
    if !name.contains('/') {
        print(elsewhere(selection.experiment, world))?;
    }
    let results = options.out.join("summary.json");
    print(format!("results: {}\n", results.display()))?;
    let failed = summary.checks.iter().filter(|check| !check.pass).count();
    if failed > 0 {
        bail!("{failed} of {} claims do not hold", summary.checks.len());
    }
    Ok(())
}

/// Figures of a whole experiment that only another world can run, a line for each.
fn elsewhere(experiment: &Experiment, world: World) -> String {
    let figures = experiment.figures.iter();
    let elsewhere = figures.filter(|figure| !figure.worlds.contains(&world));
    let line = |figure: &Figure| {
        let Figure { id, title, .. } = figure;
        format!(
            "left out: {id}, {title}: anabranch experiment run {}/{id}\n",
            experiment.name
        )
    };
    elsewhere.map(line).collect()
}

/// A laboratory has to be taken down, virtual time has not.
fn end_by_interrupt(world: World, out: &Path) -> anyhow::Result<Stop> {
    match world {
        World::Lab => interrupt::stop(),
        World::Sim => {
            let out = out.display();
            interrupt::leave_at_once(format!("the figures that are complete are in {out}"))?;
            Ok(Stop::default())
        }
    }
}

fn explained(error: ExperimentError, out: &Path) -> anyhow::Error {
    match error {
        ExperimentError::Interrupted => {}
        ExperimentError::Directory(error) => return unusable(&error).into(),
        other => return other.into(),
    }
    let out = out.display();
    let kept =
        format!("complete figures and runs are kept in {out}, the same command goes on from there");
    Interrupted { kept }.into()
}

/// Without a world, the first that can run what is asked for.
fn select(name: &str, world: Option<World>) -> Result<(Selection, World), SelectError> {
    let parse = |world| Selection::parse(name, world).map(|selection| (selection, world));
    match world {
        Some(world) => parse(world),
        None => parse(World::Sim).or_else(|error| match error {
            SelectError::World { .. } => parse(World::Lab),
            other => Err(other),
        }),
    }
}

/// Each claim beside what was observed, then what a reader should know besides.
fn told(summary: &Summary) -> String {
    let mut columns = Columns::new(&["figure", "verdict", ">observed", ">expected", "claim"]);
    for check in &summary.checks {
        let verdict = match check.pass {
            true => table::good("holds").to_string(),
            false => table::bad("FAILS").to_string(),
        };
        columns.row([
            check.figure.clone(),
            verdict,
            check.observed_words(),
            check.expected.clone(),
            check.claim.clone(),
        ]);
    }
    let notes = summary.notes.iter();
    let notes = notes.map(|note| format!("\n{}: {}", note.figure, note.text));
    let notes: String = notes.collect();
    let repeated = match summary.repeated {
        0 => String::new(),
        repeated => format!("\nruns repeated with the same result: {repeated}"),
    };
    format!("{columns}{notes}{repeated}\n")
}

/// A bar per figure, on standard error.
#[derive(Default)]
struct Figures(Mutex<Option<ProgressBar>>);

impl Figures {
    fn with(&self, change: impl FnOnce(&mut Option<ProgressBar>)) {
        // A bar is whole whatever happened to who drew it.
        change(
            &mut self
                .0
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner()),
        );
    }

    fn finish(&self) {
        self.with(|bar| {
            if let Some(bar) = bar.take() {
                bar.finish_and_clear();
            }
        });
    }
}

impl Progress for Figures {
    fn resumed(&self, sweep: &Sweep) {
        self.with(|bar| {
            progress::resumed(sweep, |line| match bar {
                Some(bar) if !bar.is_hidden() => bar.println(line),
                _ => eprintln!("{line}"),
            })
        });
    }

    fn figure(&self, figure: &Figure) {
        self.finish();
        let bar = ProgressBar::new(0).with_prefix(figure.id);
        let style =
            ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
        if bar.is_hidden() {
            eprintln!("{}: {}", figure.id, figure.title);
        }
        self.with(|current| *current = Some(bar));
    }

    fn runs(&self, done: usize, of: usize) {
        self.with(|bar| {
            if let Some(bar) = bar {
                bar.set_length(of as u64);
                bar.set_position(done as u64);
            }
        });
    }
}
