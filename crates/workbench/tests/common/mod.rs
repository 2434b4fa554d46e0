//! What tests of the command share.

use std::path::Path;
use std::process::Command;

/// `anabranch-lab`, with the gateway that it runs beside it: `cargo test` builds both, `cargo test --test` only what the tests
/// are of.
pub fn laboratory() -> Command {
    let lab = Path::new(env!("CARGO_BIN_EXE_anabranch-lab"));
    let how = "run `cargo test --locked --workspace --test usage --no-run` first: it builds both commands";
    assert!(lab.with_file_name("anabranch").exists(), "{how}");
    Command::new(lab)
}
