//! Measures the simulator against ns-2 and ns-3 on one network: a SACK dumbbell of 45 Mbit/s and 10 ms with a buffer of
//! 400 packets between access links of 100 Mbit/s and 1 ms, endless flows, an acknowledgement per segment.
//!
//! Each run is a process of its own, and all that it takes counts: processor time and peak memory as the kernel tells
//! them of a child that has ended, set-up included. The simulators take turns, all over the same simulated time; a row
//! shows the medians. What a run of a fifth of the time took is then taken off, which leaves the speed without set-up.
//! Last the simulator by itself: how its cost per event and its memory grow with the number of flows, and that memory
//! does not grow with simulated time.

mod contender;
mod dumbbell;
mod gateway;
#[path = "../machine.rs"]
mod machine;
mod report;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

use contender::{Contenders, Name, Outcome};
use report::{Manifest, Report, Row, ScaleRow, Scene};

/// Flows side by side with the others.
const RACES: [u64; 3] = [10, 50, 500];
/// Flows of the simulator by itself, on the dumbbell.
const MANY: [u64; 3] = [50, 500, 5_000];
/// Flows at once through one gateway; the last is left out of a quick run.
const CROWDS: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Simulated seconds after all are open.
const CROWD_S: u64 = 2;

/// Measures the simulator against ns-2 and ns-3, which are left out where they are not installed (Debian packages ns2
/// and libns3-dev). Takes about ten minutes.
#[derive(Debug, Parser)]
#[command(name = "anabranch-bench-sim", version)]
struct Args {
    /// Runs per contender and row
    #[arg(long, value_name = "N", default_value_t = 3)]
    runs: usize,
    /// Simulated seconds of a run
    #[arg(long, value_name = "SECONDS", default_value_t = 100)]
    seconds: u64,
    /// One run of 10 simulated seconds each: for a first impression, not for a claim
    #[arg(long, conflicts_with_all = ["runs", "seconds"])]
    quick: bool,
    /// Where the result goes
    #[arg(long, value_name = "FILE", default_value = "target/bench/sim.json")]
    output: PathBuf,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the dumbbell once, in this process
    Dumbbell { flows: u64, seconds: u64 },
    /// Open so many flows within 10 s through one gateway, run on for so many seconds, in this process
    Gateway { flows: u64, seconds: u64 },
}

impl Args {
    fn runs(&self) -> usize {
        if self.quick { 1 } else { self.runs }
    }

    fn seconds(&self) -> u64 {
        if self.quick { 10 } else { self.seconds }
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    match args.command {
        Some(Command::Dumbbell { flows, seconds }) => return dumbbell::run(flows, seconds),
        Some(Command::Gateway { flows, seconds }) => return gateway::run(flows, seconds),
        None => {}
    }
    ensure!(args.runs() > 0, "--runs 0: at least one run is needed");
    ensure!(args.seconds() > 0, "--seconds 0: nothing would happen");
    let contenders = Contenders::find()?;
    for missing in contenders.missing() {
        println!("{missing}");
    }
    let rows = race(&contenders, &args)?;
    let scale = [many(&contenders, &args)?, crowds(&contenders, &args)?].concat();
    let manifest = Manifest::collect(&contenders, args.runs(), args.seconds())?;
    let report = Report::new(manifest, rows, scale);
    println!("{}\n\n{}", report.table(), report.scale_table());
    report.write(&args.output)?;
    println!("written to {}", args.output.display());
    Ok(())
}

/// Short runs are repeated until a turn has taken this long, since a few of them would measure the machine's mood.
const TURN_S: f64 = 1.;

/// Runs until a turn is over; `run` tells the processor time it took.
fn take_turn(mut run: impl FnMut() -> Result<f64>) -> Result<()> {
    let mut spent_s = 0.;
    while spent_s < TURN_S {
        spent_s += run()?;
    }
    Ok(())
}

/// The contenders take turns.
fn race(contenders: &Contenders, args: &Args) -> Result<Vec<Row>> {
    let names = contenders.names();
    let bar = progress(RACES.len() * args.runs() * names.len());
    let mut rows = Vec::new();
    for flows in RACES {
        let mut row = Row::new(flows);
        for _ in 0..args.runs() {
            for name in &names {
                bar.set_message(format!("{name}, {flows} flows"));
                take_turn(|| {
                    let whole = contenders.run(*name, flows, args.seconds())?;
                    let start = contenders.run(*name, flows, args.seconds() / 5)?;
                    row.add(*name, whole, start);
                    Ok(whole.cpu_s + start.cpu_s)
                })?;
                bar.inc(1);
            }
        }
        rows.push(row);
    }
    bar.finish_and_clear();
    Ok(rows)
}

/// More and more flows on the dumbbell; once four times as long.
fn many(contenders: &Contenders, args: &Args) -> Result<Vec<ScaleRow>> {
    let run = |flows, times| contenders.run(Name::Anabranch, flows, times * args.seconds());
    scale(args, Scene::Dumbbell, &MANY, run)
}

/// More and more flows through one gateway; once four times as long after all are open.
fn crowds(contenders: &Contenders, args: &Args) -> Result<Vec<ScaleRow>> {
    let run = |flows, times| contenders.run_gateway(flows, times * CROWD_S);
    let crowds = CROWDS.len() - usize::from(args.quick);
    scale(args, Scene::Gateway, &CROWDS[..crowds], run)
}

fn scale(
    args: &Args,
    scene: Scene,
    numbers: &[u64],
    run: impl Fn(u64, u64) -> Result<Outcome>,
) -> Result<Vec<ScaleRow>> {
    let bar = progress(numbers.len() * (args.runs() + 1));
    let mut rows = Vec::new();
    for &flows in numbers {
        bar.set_message(format!("{scene:?}, {flows} flows").to_lowercase());
        let mut outcomes = Vec::new();
        for _ in 0..args.runs() {
            take_turn(|| {
                let outcome = run(flows, 1)?;
                outcomes.push(outcome);
                Ok(outcome.cpu_s)
            })?;
            bar.inc(1);
        }
        let longer = run(flows, 4)?;
        bar.inc(1);
        rows.push(ScaleRow::new(scene, flows, &outcomes, &longer));
    }
    bar.finish_and_clear();
    Ok(rows)
}

fn progress(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} ({eta} left)")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(steps as u64).with_style(style)
}
