//! Waiting for programs that were started.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::{LabError, Result, io_error, last_words};
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
