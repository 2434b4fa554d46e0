//! What goes to standard output.

use std::fmt::Display;
use std::io::{ErrorKind, Write, stdout};

use anabranch_config::BadInput;
use anabranch_results::ResultsDirError;
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

/// A directory that cannot take results is for the user to change.
pub fn unusable(error: &ResultsDirError) -> BadInput {
    BadInput::new(format!("--out {error}"))
}

/// Writes indented JSON.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(serde_json::to_string_pretty(value)? + "\n")
}
