//! The `anabranch` command, also for programs that bring policies of their own: [`run`] is all of it.
//!
//! It has what runs on a router and nothing else: scenarios, the simulator, the laboratory and the demo are commands of
//! `anabranch-lab` (the crate `anabranch-workbench`).
//!
//! Each subcommand is one file in [`commands`] and one entry in [`args`], where every flag is defined once: parsing,
//! `--help` and completions come from the same line. `run` is the daemon. The others ask — the configuration and the host
//! (`check`), the table of algorithms (`policies`), or the running daemon over its control socket — and show the answer as
//! a table or, with `--json`, as it came.
//!
//! What went wrong is one line on standard error. The exit code tells whose turn it is: 2 if the input has to change
//! before the same command can work, 1 for everything else.

#![deny(missing_docs)]

mod args;
mod commands;
mod control;
mod log;
mod moved;
mod words;

use std::ffi::OsString;
use std::process::ExitCode;

use anabranch_api::ClientError;
use anabranch_config::BadInput;
use anabranch_console::{Failures, args::completions, policies};
use anabranch_core::catalogue::{self, Row};
use anabranch_daemon::Error;
use clap::Parser;

use args::{Args, Command, MemberCommand};

const PROGRAM: &str = "anabranch";
const BAD_INPUT: u8 = 2;
const FAILURES: Failures = Failures {
    program: PROGRAM,
    code: code_of,
};

/// The command with these arguments, the first of which is its name, and with `own` policies beside those of the catalogue.
/// Call it once.
pub fn run<T: Into<OsString> + Clone>(
    args: impl IntoIterator<Item = T>,
    own: Vec<Row>,
) -> ExitCode {
    let result = catalogue::extend(own)
        .map_err(|error| BadInput::new(error.to_string()).into())
        .and_then(|()| dispatch(parse(args)?));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => FAILURES.report(&error),
    }
}

/// Ends the process, as `--help` does, or if the arguments are wrong.
fn parse<T: Into<OsString> + Clone>(args: impl IntoIterator<Item = T>) -> Result<Args, BadInput> {
    let words: Vec<OsString> = args.into_iter().map(Into::into).collect();
    Args::try_parse_from(&words).or_else(|error| match moved::refusal(&error, &words) {
        Some(refusal) => Err(refusal),
        None => error.exit(),
    })
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
        Command::Member(MemberCommand::Doctor { config, json }) => {
            commands::member::doctor(instance, &config, json)
        }
        Command::Service(command) => commands::service::run(instance, command),
        Command::Policies { name, json } => {
            let pages = catalogue::rows().map(Row::page).collect();
            policies::run(pages, name.as_deref(), json)
        }
        Command::Completions { shell } => completions::<Args>(shell),
    }
}

fn code_of(error: &(dyn std::error::Error + 'static)) -> Option<u8> {
    if let Some(error) = error.downcast_ref::<Error>() {
        return Some(error.exit_code());
    }
    let unasked = error.downcast_ref::<ClientError>()?;
    unasked.is_mendable().then_some(BAD_INPUT)
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn the_daemon_says_itself_whose_turn_it_is() {
        let bad = BadInput::new("lan: no LAN device");
        for (error, code) in [
            (anyhow::Error::new(Error::from(bad.clone())), BAD_INPUT),
            (
                Err::<(), _>(Error::from(bad)).context("run").unwrap_err(),
                BAD_INPUT,
            ),
            (Error::from(anyhow!("no memory")).into(), 1),
        ] {
            assert_eq!(FAILURES.exit_code(&error), code, "{error:#}");
        }
    }
}
