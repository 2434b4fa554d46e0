//! What the servers of a service have done in each window of time, from counters that only rise.

use std::time::Duration;

/// What the data path has counted of a server so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Bytes that it has sent.
    pub sent_bytes: u64,
    /// Requests that it has begun to answer.
    pub answers: u64,
    /// Sum of the times from a request to the first byte of its answer.
    pub answering: Duration,
    /// Connections that are open now.
    pub open: u64,
}

/// What is known of a server at the end of a window, or of its last check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Bytes sent in the window.
    pub sent_bytes: u64,
    /// Connections open at its end.
    pub open: u64,
    /// Mean time to an answer in the window; none without an answer.
    pub answer_time: Option<Duration>,
    /// That time with a memory of [`MEMORY`] (peak EWMA): a longer one counts at once.
    pub peak: Duration,
    /// How long its last check took; none if that failed, or was not made yet.
    pub check_time: Option<Duration>,
}

/// In this time a peak falls to 1/e. As Finagle's peak EWMA has it by default.
pub const MEMORY: Duration = Duration::from_secs(10);

/// The windows of one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    before: Counted,
    peak: Duration,
}

impl Windows {
    /// From now on.
    pub fn begin(before: Counted) -> Self {
        Self {
            before,
            peak: Duration::ZERO,
        }
    }

    /// Ends a window that has lasted so long, and begins the next.
    pub fn end(&mut self, now: Counted, lasted: Duration) -> Served {
        let before = std::mem::replace(&mut self.before, now);
        let answers = now.answers.saturating_sub(before.answers);
        let answering = now.answering.saturating_sub(before.answering);
        let answer_time = (answers > 0).then(|| answering.div_f64(answers as f64));
        self.peak = peak(self.peak, answer_time, lasted);
        Served {
            sent_bytes: now.sent_bytes.saturating_sub(before.sent_bytes),
            open: now.open,
            answer_time,
            peak: self.peak,
            check_time: None,
        }
    }
}

/// Without an answer it falls as if answers took no time: otherwise nobody would ask a server again that once was slow.
fn peak(before: Duration, measured: Option<Duration>, lasted: Duration) -> Duration {
    let measured = measured.unwrap_or_default();
    let kept = (-lasted.as_secs_f64() / MEMORY.as_secs_f64()).exp();
    measured.max(before.mul_f64(kept) + measured.mul_f64(1.0 - kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const WINDOW: Duration = Duration::from_secs(1);

    #[test]
    fn a_window_has_what_was_counted_since_the_last_one() {
        let mut windows = Windows::begin(Counted {
            sent_bytes: 1000,
            answers: 5,
            answering: 500 * MS,
            open: 3,
        });
        let now = Counted {
            sent_bytes: 1500,
            answers: 7,
            answering: 520 * MS,
            open: 2,
        };
        let served = windows.end(now, WINDOW);
        assert_eq!((served.sent_bytes, served.open), (500, 2));
        assert_eq!(served.answer_time, Some(10 * MS));
        assert_eq!(windows.end(now, WINDOW).answer_time, None);
    }

    #[test]
    fn a_peak_rises_at_once_and_falls_slowly() {
        let risen = peak(MS, Some(100 * MS), WINDOW);
        assert_eq!(risen, 100 * MS);
        let fallen = peak(risen, Some(MS), WINDOW);
        assert!(fallen > 90 * MS && fallen < 91 * MS, "{fallen:?}");
        let unasked = peak(100 * MS, None, MEMORY);
        assert!((unasked.as_secs_f64() - 0.1 / std::f64::consts::E).abs() < 1e-6);
    }
}
