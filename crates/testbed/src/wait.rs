//! Waiting for what comes true by itself.

use std::time::{Duration, Instant};

/// The time between two looks: none of them takes the processor from what is waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Looks again and again whether something holds. Returns the time that it took, or `None` if it does not hold `within` that
/// time.
pub fn holds_within(within: Duration, mut holds: impl FnMut() -> bool) -> Option<Duration> {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() >= within {
            return None;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Some(begun.elapsed())
}

/// The same for tests.
///
/// # Panics
/// If it does not hold in time.
#[track_caller]
pub fn until(what: &str, within: Duration, holds: impl FnMut() -> bool) -> Duration {
    holds_within(within, holds).unwrap_or_else(|| panic!("not within {within:?}: {what}"))
}
