//! The command `anabranch-lab` with a policy of one's own. Without arguments it simulates that policy beside WSDM and RR.

mod policy;

use std::env::args;
use std::process::ExitCode;

fn main() -> ExitCode {
    let scenario = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/examples/own-policy/scenario.toml"
    );
    match args().len() {
        1 => anabranch_workbench::run(["own-policy", "sim", "run", scenario], policy::own()),
        _ => anabranch_workbench::run(args(), policy::own()),
    }
}
