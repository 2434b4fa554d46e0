//! Worlds that are not what theory is told: what their checks do not notice, they do not check.

use super::Effort;

/// How many times as long a way is that is too long.
pub(super) const FAR: u64 = 4;

/// A topic that measures something else than it says.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// In a word.
    pub name: &'static str,
    /// The topic's title.
    pub topic: &'static str,
    /// In place of the topic's.
    pub measure: fn(seed: u64, effort: Effort) -> Vec<f64>,
}

impl Mutant {
    pub(super) const fn slow_server(
        topic: &'static str,
        measure: fn(u64, Effort) -> Vec<f64>,
    ) -> Mutant {
        Mutant {
            name: "slow-server",
            topic,
            measure,
        }
    }

    /// The round trip is [`FAR`] times as long.
    pub(super) const fn far(topic: &'static str, measure: fn(u64, Effort) -> Vec<f64>) -> Mutant {
        Mutant {
            name: "far",
            topic,
            measure,
        }
    }
}
