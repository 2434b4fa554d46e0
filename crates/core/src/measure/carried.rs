use super::{Better, Distance, Measure, Observed, Taken};
use crate::link::RateNeed;

/// Bytes carried in the last period, in both directions.
pub static CARRIED: Measure = Measure {
    name: "carried",
    distance: Distance::LastMile,
    better: Better::Less,
    taken: Taken::EveryPeriod(take),
    rates: RateNeed::None,
    by_rate: true,
    meaning: "bytes that each link has carried in both directions",
    state: "two counters, read every period",
};

/// At least 1, because weights are ratios.
fn take(link: &Observed<'_>) -> u64 {
    1 + link.carried.tx_bytes + link.carried.rx_bytes
}
