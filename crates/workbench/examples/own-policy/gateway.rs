//! The command `anabranch` with a policy of one's own, for routers and for the laboratory beside it.

mod policy;

use std::process::ExitCode;

fn main() -> ExitCode {
    anabranch_cli::run(std::env::args_os(), policy::own())
}
