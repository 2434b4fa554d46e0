//! An example of how a measure is added: this file, and a row. Only tests use it.

use super::{Better, Distance, Measure, Observed, Taken};
use crate::link::RateNeed;

/// Packets carried in the last period, in both directions.
pub static PACKETS: Measure = Measure {
    name: "toy-packets",
    distance: Distance::LastMile,
    better: Better::Less,
    taken: Taken::EveryPeriod(take),
    rates: RateNeed::None,
    by_rate: false,
    meaning: "packets that each link has carried",
    state: "two counters, read every period",
};

fn take(link: &Observed<'_>) -> u64 {
    1 + link.carried.tx_packets + link.carried.rx_packets
}
