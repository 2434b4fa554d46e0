//! The `anabranch-lab` command, also for programs that bring policies of their own: [`run`] is all of it.
//!
//! It shows, simulates, floods and measures what `anabranch` does on a router: `sim` and `run` carry out scenarios, in
//! virtual time and on this machine's kernel; `demo` a certain one, with a picture; `attack` and `neighbours` are stress tests
//! of the gateway; `experiment` holds claims of papers against runs. Each subcommand is one file in [`commands`] and one entry
//! in [`args`]. What it shares with `anabranch` (tables, failures, completions) is in `anabranch-console`.
//!
//! The gateway under test is a program of its own: the executable `anabranch` beside this one, or else on PATH
//! ([`anabranch_lab::product`]).
//!
//! What went wrong is one line on standard error. The exit code tells whose turn it is: 2 if the input has to change
//! before the same command can work, 130 if somebody interrupted it, 1 for everything else.

#![deny(missing_docs)]

mod args;
mod commands;
mod comparison;
mod demo;
mod interrupt;
mod preconditions;
mod progress;

use std::ffi::OsString;
use std::process::ExitCode;

use anabranch_config::BadInput;
use anabranch_console::{Failures, args::completions, policies};
use anabranch_core::catalogue::Row;
use clap::Parser;

use args::{Args, Command, ExperimentCommand, SimCommand};
use interrupt::Interrupted;

const PROGRAM: &str = "anabranch-lab";
const FAILURES: Failures = Failures {
    program: PROGRAM,
    code: |error| error.is::<Interrupted>().then_some(interrupt::EXIT_CODE),
};

/// The command with these arguments, the first of which is its name, and with `own` policies beside those of the catalogue.
/// Call it once. A gateway under test knows those policies if its own program brings them, too.
pub fn run<T: Into<OsString> + Clone>(
    args: impl IntoIterator<Item = T>,
    own: Vec<Row>,
) -> ExitCode {
    let extended =
        anabranch_scenario::extend(own).map_err(|error| BadInput::new(error.to_string()));
    let result = extended
        .map_err(anyhow::Error::from)
        .and_then(|()| dispatch(Args::parse_from(args)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => FAILURES.report(&error),
    }
}

fn dispatch(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Demo(args) => demo::run(&args),
        Command::Sim {
            command:
                SimCommand::Run {
                    trials,
                    jobs,
                    twice,
                },
        } => commands::scenario::simulate(&trials, jobs, twice),
        Command::Run { trials } => commands::scenario::carry_out(&trials),
        Command::Attack(args) => commands::attack::run(&args),
        Command::Neighbours(args) => commands::neighbours::run(&args),
        Command::Experiment { command } => match command {
            ExperimentCommand::List { json } => commands::experiment::list(json),
            ExperimentCommand::Run(args) => commands::experiment::run(&args),
            ExperimentCommand::Mutate { claims, json } => {
                commands::experiment::mutate(&claims, json)
            }
            ExperimentCommand::Readme {
                name,
                results,
                files,
            } => commands::experiment::readme(&name, &results, files),
            ExperimentCommand::Guide => commands::experiment::guide(),
            ExperimentCommand::Export { name, directory } => {
                commands::experiment::export(&name, directory)
            }
        },
        Command::Policies { name, json } => {
            let pages = anabranch_scenario::pages().collect();
            policies::run(pages, name.as_deref(), json)
        }
        Command::Completions { shell } => completions::<Args>(shell),
    }
}
