//! The `anabranch` command: see [`anabranch_cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    anabranch_cli::run(std::env::args_os(), Vec::new())
}
