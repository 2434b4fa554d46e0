//! Time as the driver tells it.

use std::ops::Add;
use std::time::Duration;

/// Nanoseconds on a monotonic clock: the kernel's in the daemon, a virtual one in the simulator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// When the clock began.
    pub const ZERO: Time = Time(0);

    /// So long after [`Time::ZERO`].
    pub const fn from_nanos(ns: u64) -> Self {
        Time(ns)
    }

    /// So long after [`Time::ZERO`].
    pub const fn from_millis(ms: u64) -> Self {
        Time(ms * 1_000_000)
    }

    /// Since [`Time::ZERO`].
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier`; zero if before it.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    fn add(self, duration: Duration) -> Time {
        Time(
            self.0
                .saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}
