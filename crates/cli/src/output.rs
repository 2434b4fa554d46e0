//! What goes to standard output.

use std::fmt::Display;
use std::fs;
use std::io::{ErrorKind, Write, stdout};
use std::path::Path;

use anabranch_daemon::BadInput;
use anyhow::Context;
use serde::Serialize;

/// Writes a text as it is. A reader that has seen enough and left (`| head`) is no error.
pub fn print(text: impl Display) -> anyhow::Result<()> {
    let mut output = stdout().lock();
    match write!(output, "{text}").and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("standard output")
        }
        _ => Ok(()),
    }
}

/// Makes a directory of results and tries whether it can be written: better told before hours of runs than after them.
pub fn prepare(out: &Path) -> Result<(), BadInput> {
    let trial = out.join(".writable");
    let tried = fs::create_dir_all(out)
        .and_then(|()| fs::write(&trial, ""))
        .and_then(|()| fs::remove_file(&trial));
    tried.map_err(|error| {
        let out = out.display();
        BadInput::new(format!(
            "--out {out}: {error}; name a directory that can be written"
        ))
    })
}

/// Writes indented JSON.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(serde_json::to_string_pretty(value)? + "\n")
}
