//! A scenario with a trunk on real kernels: `trunk ANABRANCH SCENARIO`, the executable of the product and a scenario
//! file. Prints a row for every run of the file.

use std::path::PathBuf;
use std::process::ExitCode;

use anabranch_lab::scenario::Setup;
use anabranch_lab::trunk;
use anabranch_scenario::{Record, Run, ScenarioFile};
use anabranch_workload::Outcome;
use anabranch_workload::client::Stop;

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [binary, scenario] = &arguments[..] else {
        eprintln!("usage: trunk ANABRANCH SCENARIO");
        return ExitCode::from(2);
    };
    let file = match ScenarioFile::load(scenario) {
        Ok(file) => file,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    println!(
        "{:12} {:>5} {:>9} {:>9} {:>9} {:>8} {:>7} {:>9} {:>9} {:>6}",
        "spread",
        "seed",
        "completed",
        "Mbit/s",
        "lost B",
        "resent",
        "moved",
        "reordered",
        "max/min",
        "valid"
    );
    for run in file.runs() {
        let setup = Setup {
            binary: binary.clone(),
            stop: Stop::default(),
        };
        match trunk::run(&run, &setup, &mut |_| {}) {
            Ok(record) => print_row(&run, &record),
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn print_row(run: &Run, record: &Record) {
    let completed = record
        .transfers
        .iter()
        .filter(|transfer| transfer.outcome == Outcome::Ok)
        .count();
    let bytes = record
        .series
        .iter()
        .filter_map(|series| series.samples.last().map(|last| last.down_bytes));
    let (most, least) = (bytes.clone().max(), bytes.min());
    let seconds = record.series[0].samples.last().map_or(1.0, |last| last.t_s);
    let counts = &record.counts;
    println!(
        "{:12} {:>5} {:>4}/{:<4} {:>9.2} {:>9} {:>8} {:>7} {:>9} {:>9.2} {:>6}",
        run.policy.to_string(),
        run.seed,
        completed,
        record.transfers.len(),
        counts.delivered.bytes as f64 * 8.0 / seconds / 1e6,
        counts.overflowed.bytes,
        counts.retransmitted.packets,
        counts.reassignments,
        counts.reordered,
        most.unwrap_or(0) as f64 / least.unwrap_or(0).max(1) as f64,
        record.problems.is_empty()
    );
    for problem in &record.problems {
        println!("  {problem}");
    }
    if std::env::var_os("ANABRANCH_VERBOSE").is_some() {
        for (name, words) in &record.conditions {
            println!("  {name}: {words}");
        }
    }
}
