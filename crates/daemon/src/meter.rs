//! Rates over the last tick, from counters.

use std::time::Duration;

use anabranch_policy::abi::Traffic;

/// Bit/s; `tx` is towards the internet.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Rate {
    pub tx_bps: f64,
    pub rx_bps: f64,
}

/// Computes rates from the counters of two ticks.
#[derive(Debug, Default)]
pub struct Meter {
    at: Duration,
    before: Vec<Traffic>,
    rates: Vec<Rate>,
}

impl Meter {
    /// Reports the counters of all slots, in order. `at` is a monotonic time.
    pub fn tick(&mut self, at: Duration, traffic: impl Iterator<Item = Traffic>) {
        let elapsed_s = (at - self.at).as_secs_f64();
        let traffic: Vec<Traffic> = traffic.collect();
        self.rates = self
            .before
            .iter()
            .zip(&traffic)
            .map(|(before, after)| rate(before, after, elapsed_s))
            .collect();
        self.before = traffic;
        self.at = at;
    }

    /// Zero until two ticks have passed.
    pub fn rate(&self, slot: usize) -> Rate {
        self.rates.get(slot).copied().unwrap_or_default()
    }
}

/// Zero if the counters were reset.
fn rate(before: &Traffic, after: &Traffic, elapsed_s: f64) -> Rate {
    let bps = |before: u64, after: u64| {
        if elapsed_s > 0.0 {
            after.saturating_sub(before) as f64 * 8.0 / elapsed_s
        } else {
            0.0
        }
    };
    Rate {
        tx_bps: bps(before.tx_bytes, after.tx_bytes),
        rx_bps: bps(before.rx_bytes, after.rx_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_difference_of_two_ticks() {
        let traffic = |tx_bytes, rx_bytes| Traffic {
            tx_bytes,
            rx_bytes,
            ..Traffic::default()
        };
        let mut meter = Meter::default();
        meter.tick(Duration::from_secs(1), [traffic(5000, 0)].into_iter());
        assert_eq!(meter.rate(0), Rate::default());
        meter.tick(Duration::from_secs(3), [traffic(5250, 1000)].into_iter());
        assert_eq!(
            meter.rate(0),
            Rate {
                tx_bps: 1000.0,
                rx_bps: 4000.0
            }
        );
        meter.tick(Duration::from_secs(4), [traffic(0, 1000)].into_iter());
        assert_eq!(meter.rate(0), Rate::default());
    }
}
