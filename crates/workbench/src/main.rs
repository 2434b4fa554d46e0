//! The `anabranch-lab` command: see [`anabranch_workbench`].

use std::process::ExitCode;

fn main() -> ExitCode {
    anabranch_workbench::run(std::env::args_os(), Vec::new())
}
