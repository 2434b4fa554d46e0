use std::time::Duration;

use super::{Better, Distance, Measure, Observed, Taken};
use crate::link::RateNeed;

/// MRT: the last round trip to a fixed node over the link, in nanoseconds (Peng 2005, ΔT and H(P)).
pub static RESPONSE: Measure = Measure {
    name: "response",
    distance: Distance::Node,
    better: Better::Less,
    taken: Taken::BackToBack(take),
    rates: RateNeed::None,
    by_rate: false,
    meaning: "the last round trip over each link",
    state: "the last round trip over each link",
};

/// At least 1, because weights are ratios. A link without a measurement is the last choice.
fn take(link: &Observed<'_>) -> u64 {
    link.response.map_or(u64::MAX, nanoseconds)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1)
}
