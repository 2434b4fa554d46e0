//! The `anabranch` command, also for programs that bring policies of their own: [`run`] is all of it.
//!
//! Each subcommand is one file in [`commands`] and one entry in [`args`], where every flag is defined once: parsing,
//! `--help` and completions come from the same line. Some subcommands do something: `run` is the daemon, `sim`, `lab` and
//! `experiment` run scenarios in a world of their own, `demo` a certain one in the laboratory. The others ask — the configuration and the host (`check`), the table of algorithms (`policies`), or
//! the running daemon over its control socket — and show the answer as a table or, with `--json`, as it came.
//!
//! What went wrong is one line on standard error. The exit code tells whose turn it is: 2 if the input has to change
//! before the same command can work, 130 if somebody interrupted it, 1 for everything else.

#![deny(missing_docs)]

mod args;
mod commands;
mod comparison;
mod control;
mod demo;
mod failure;
mod interrupt;
mod log;
mod output;
mod privilege;
mod progress;
mod table;

use std::ffi::OsString;
use std::process::ExitCode;

use anabranch_config::BadInput;
use anabranch_core::catalogue::{self, Row};
use clap::Parser;

use args::{Args, Command, ExperimentCommand, LabCommand, SimCommand};

/// The command with these arguments, the first of which is its name, and with `own` policies beside those of the catalogue.
/// Call it once: laboratories start the running executable again, as the gateway under test, with arguments for this.
pub fn run<T: Into<OsString> + Clone>(
    args: impl IntoIterator<Item = T>,
    own: Vec<Row>,
) -> ExitCode {
    let extended = catalogue::extend(own).map_err(|error| BadInput::new(error.to_string()));
    let result = extended
        .map_err(anyhow::Error::from)
        .and_then(|()| dispatch(Args::parse_from(args)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}

fn dispatch(args: Args) -> anyhow::Result<()> {
    let instance = &args.instance;
    match args.command {
        Command::Run { config, log } => commands::run::run(instance, &config, log.as_ref()),
        Command::Reload => commands::reload::run(instance),
        Command::Stop { config, unit } => {
            commands::stop::run(instance, config.as_deref(), unit.as_deref())
        }
        Command::Check {
            config,
            explain: Some(flows),
            ..
        } => commands::check::explain(&config, &flows),
        Command::Check {
            config, offline, ..
        } => commands::check::run(&config, offline),
        Command::Status {
            json,
            check: true,
            quiet,
        } => commands::status::check(instance, json, quiet),
        Command::Status { json, .. } => commands::status::run(instance, json),
        Command::Flows(args) => commands::flows::run(instance, &args),
        Command::Prefixes(args) => commands::prefixes::run(instance, &args),
        Command::Explain(args) => commands::explain::run(instance, &args),
        Command::Link {
            action,
            name,
            force,
        } => commands::link::run(instance, action, name, force),
        Command::Policies { name, json } => commands::policies::run(name.as_deref(), json),
        Command::Demo(args) => demo::run(&args),
        Command::Sim {
            command:
                SimCommand::Run {
                    trials,
                    jobs,
                    twice,
                },
        } => commands::scenario::simulate(&trials, jobs, twice),
        Command::Lab {
            command: LabCommand::Run { trials },
        } => commands::scenario::carry_out(&trials),
        Command::Lab {
            command: LabCommand::Attack(args),
        } => commands::attack::run(&args),
        Command::Lab {
            command: LabCommand::Neighbours(args),
        } => commands::neighbours::run(&args),
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
        Command::Completions { shell } => commands::completions::run(shell),
    }
}
