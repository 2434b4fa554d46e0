//! What goes to standard output.

use std::fmt::Display;
use std::io::{ErrorKind, Write, stdout};

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

/// Writes indented JSON.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(serde_json::to_string_pretty(value)? + "\n")
}
