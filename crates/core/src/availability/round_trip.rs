//! The smoothed round trip of probes, from which their deadlines follow.

use std::time::Duration;

/// Smoothed round trip of probes, after RFC 6298 §2, with a lower first variation: a wrong loss costs a sample, not data.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    pub smoothed: Duration,
    variation: Duration,
}

impl RoundTrip {
    /// `allowance` is the part of the measured round trip that the link's load explains. It is subtracted.
    pub fn update(before: Option<RoundTrip>, measured: Duration, allowance: Duration) -> RoundTrip {
        let Some(RoundTrip {
            smoothed,
            variation,
        }) = before
        else {
            return RoundTrip {
                smoothed: measured,
                variation: measured / 8,
            };
        };
        let sample = measured
            .saturating_sub(allowance)
            .max(measured.min(smoothed));
        RoundTrip {
            smoothed: (smoothed * 7 + sample) / 8,
            variation: (variation * 3 + smoothed.abs_diff(sample)) / 4,
        }
    }

    pub fn patience(self) -> Duration {
        self.smoothed + (self.variation * 4).max(Duration::from_millis(50))
    }
}
