//! Waiting for programs that were started.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::{LabError, Result, io_error};
use anabranch_testbed::netns::Child;

const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Waits until a program is ready. One that ends before fails with the last words of its log.
pub(super) fn wait_ready(
    program: &str,
    process: &mut Child,
    log: &Path,
    patience: Duration,
    mut is_ready: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        if is_ready()? {
            return Ok(());
        }
        let ended = process.wait(BETWEEN_LOOKS);
        if let Some(exit) = ended.map_err(io_error(format!("waiting for {program}")))? {
            return Err(LabError::Ended {
                program: program.into(),
                exit,
                log: last_words(log),
            });
        }
    }
    Err(LabError::NotReady {
        program: program.into(),
        seconds: patience.as_secs(),
        log: last_words(log),
    })
}

/// Waits until something holds.
pub(crate) fn within(
    patience: Duration,
    what: &str,
    mut holds: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let deadline = Instant::now() + patience;
    while !holds()? {
        if Instant::now() > deadline {
            let seconds = patience.as_secs();
            return Err(LabError::Load(format!("not within {seconds} s: {what}")));
        }
        thread::sleep(BETWEEN_LOOKS);
    }
    Ok(())
}

/// The last lines a process wrote, for an error of one line.
pub(super) fn last_words(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines = text.lines().rev().take(5).collect::<Vec<_>>();
    let mut words = lines.into_iter().rev().collect::<Vec<_>>().join("; ");
    if words.is_empty() {
        words = "(nothing)".into();
    }
    words
}
