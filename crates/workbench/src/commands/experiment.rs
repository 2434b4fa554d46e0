//! Published claims: which there are, and whether they hold here.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anabranch_config::BadInput;
use anabranch_console::output::{print, print_json};
use anabranch_console::table::{self, Columns};
use anabranch_experiment::{
    Check, Experiment, ExperimentError, Figure, Matrix, Options, Progress, Row, SelectError,
    Selection, Summary, Verdict, World, all, write_guide, write_readme,
};
use anabranch_results::Sweep;
use anabranch_workload::client::Stop;
use anyhow::bail;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::args::{ClaimArgs, ExperimentArgs};
use crate::interrupt::{self, Interrupted};
use crate::preconditions::{self, unusable};
use crate::progress;

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
    }
    print(columns)
}

pub fn run(args: &ExperimentArgs) -> anyhow::Result<()> {
    let (selection, world) = select(&args.claims.name, args.world)?;
    let binary = match world {
        World::Lab => preconditions::laboratory()?,
        World::Sim => PathBuf::new(),
    };
    let options = Options {
        world,
        binary,
        windows: args.windows,
        stop: end_by_interrupt(world, &args.out)?,
        out: args.out.clone(),
        png: args.png,
        ..options(&args.claims, &selection)
    };
    let figures = Figures::default();
    let summary = anabranch_experiment::run(&selection, &options, &figures);
    figures.finish();
    let summary = summary.map_err(|error| explained(error, &options.out))?;
    print(told(&summary))?;
    if !args.claims.name.contains('/') {
        print(elsewhere(selection.experiment, world))?;
    }
    let report = options.out.join("report.html");
    print(format!("report: {}\n", report.display()))?;
    let failed = summary.checks.iter().filter(|check| !check.pass).count();
    if failed > 0 {
        let of = summary.checks.len();
        bail!("{failed} of {of} claims turned out otherwise than expected.toml states");
    }
    Ok(())
}

pub fn mutate(args: &ClaimArgs, json: bool) -> anyhow::Result<()> {
    let (selection, _) = select(&args.name, Some(World::Sim))?;
    interrupt::leave_at_once("nothing was written".to_owned())?;
    let options = options(args, &selection);
    let figures = Figures::default();
    let matrix = anabranch_experiment::mutate(&selection, &options, &figures);
    figures.finish();
    let matrix = matrix.map_err(|error| explained(error, &options.out))?;
    match json {
        true => print_json(&matrix)?,
        false => print(shown(&matrix))?,
    }
    let problems = matrix.problems();
    if !problems.is_empty() {
        bail!(
            "{} claims are stated wrongly: {}",
            problems.len(),
            problems.join("; ")
        );
    }
    Ok(())
}

/// A row for each claim, a column for each mutation.
fn shown(matrix: &Matrix) -> String {
    let names = matrix.mutations.iter().map(|(name, _)| *name);
    let titles: Vec<_> = ["figure", "claim", "stated"]
        .into_iter()
        .chain(names)
        .collect();
    let mut columns = Columns::new(&titles);
    for row in &matrix.rows {
        let Row {
            figure,
            claim,
            stated,
            fails,
            ..
        } = row;
        let fails = fails.iter().map(|fails| if *fails { "x" } else { "." });
        let cells = [figure, claim, stated.name()].into_iter().chain(fails);
        columns.cells(cells.map(str::to_owned).collect());
    }
    let legend = matrix.mutations.iter();
    let legend: String = legend
        .map(|(name, what)| format!("\n{name}: {what}"))
        .collect();
    format!("{columns}{legend}\n")
}

pub fn readme(name: &str, results: &[PathBuf], files: Option<PathBuf>) -> anyhow::Result<()> {
    let (selection, _) = select(name, None)?;
    let experiment = selection.experiment;
    let folder = files.unwrap_or_else(|| Path::new("experiments").join(experiment.name));
    write_readme(experiment, &folder, results).map_err(|error| BadInput::new(error).into())
}

pub fn guide() -> anyhow::Result<()> {
    Ok(write_guide(Path::new("."))?)
}

pub fn export(name: &str, directory: Option<PathBuf>) -> anyhow::Result<()> {
    let (selection, _) = select(name, None)?;
    let directory = directory.unwrap_or_else(|| PathBuf::from(selection.experiment.name));
    let cannot = |error: std::io::Error| BadInput::new(format!("{}: {error}", directory.display()));
    fs::create_dir(&directory).map_err(cannot)?;
    for file in selection.experiment.files {
        fs::write(directory.join(file.name), file.text).map_err(cannot)?;
    }
    let files = selection.experiment.files.iter();
    let names: Vec<_> = files.map(|file| file.name).collect();
    print(format!("{}: {}\n", directory.display(), names.join(", ")))
}

fn options(args: &ClaimArgs, selection: &Selection) -> Options {
    let all_processors = || std::thread::available_parallelism().map_or(1, usize::from);
    Options {
        quick: args.quick,
        seeds: args.seeds,
        files: files(args, selection.experiment),
        jobs: args.jobs.map_or_else(all_processors, NonZeroUsize::get),
        ..Options::default()
    }
}

/// The folder that was named, or the experiment's own where one stands.
fn files(args: &ClaimArgs, experiment: &Experiment) -> Option<PathBuf> {
    let own = Path::new("experiments").join(experiment.name);
    args.files.clone().or_else(|| own.is_dir().then_some(own))
}

/// Figures of a whole experiment that only another world can run, a line for each.
fn elsewhere(experiment: &Experiment, world: World) -> String {
    let figures = experiment.figures.iter();
    let elsewhere = figures.filter(|figure| !figure.worlds.contains(&world));
    let line = |figure: &Figure| {
        let Figure { id, title, .. } = figure;
        format!(
            "left out: {id}, {title}: anabranch-lab experiment run {}/{id}\n",
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
        ExperimentError::File(bad) => return bad.into(),
        ExperimentError::Windows(_) => return BadInput::new(error.to_string()).into(),
        other => return other.into(),
    }
    let out = out.display();
    let kept =
        format!("complete figures and runs are kept in {out}, the same command goes on from there");
    Interrupted { kept }.into()
}

/// Without a world, the first that can run what is asked for.
fn select(name: &str, world: Option<World>) -> Result<(Selection, World), BadInput> {
    let parse = |world| Selection::parse(name, world).map(|selection| (selection, world));
    let selected = match world {
        Some(world) => parse(world),
        None => parse(World::Sim).or_else(|error| match error {
            SelectError::World { .. } => parse(World::Lab),
            other => Err(other),
        }),
    };
    selected.map_err(|error| BadInput::new(error.to_string()))
}

/// Each claim beside what was observed, then what a reader should know besides.
fn told(summary: &Summary) -> String {
    let mut columns = Columns::new(&[
        "figure",
        "verdict",
        ">held",
        ">observed",
        ">expected",
        "claim",
    ]);
    for check in &summary.checks {
        columns.row([
            check.figure.clone(),
            verdict(check),
            format!("{} of {}", check.held, check.windows),
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
    format!("{columns}{notes}{repeated}\n{}\n", counted(summary))
}

fn verdict(check: &Check) -> String {
    let found = check.verdict.name();
    match (check.pass, check.verdict) {
        (true, Verdict::Undecided) => table::doubtful(found).to_string(),
        (true, _) => table::good(found).to_string(),
        (false, _) => {
            let stated = check.stated.name();
            table::bad(format!("{found}, stated {stated}")).to_string()
        }
    }
}

/// How many claims have which verdict.
fn counted(summary: &Summary) -> String {
    let counts = Verdict::ALL.map(|verdict| {
        let those = summary.checks.iter();
        (
            verdict,
            those.filter(|check| check.verdict == verdict).count(),
        )
    });
    let words = counts.iter().filter(|(_, count)| *count > 0);
    let words: Vec<_> = words
        .map(|(verdict, count)| format!("{count} {}", verdict.name()))
        .collect();
    format!("claims: {} (seeds {})", words.join(", "), summary.seeds)
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
