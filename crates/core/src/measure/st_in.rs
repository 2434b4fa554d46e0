use super::{Better, Distance, Measure, Observed, Taken};
use crate::bandwidth::AvailableBandwidth;
use crate::link::RateNeed;

/// ST: available bandwidth towards the LAN.
pub static ST_IN: Measure = Measure {
    name: "st-in",
    distance: Distance::LastMile,
    better: Better::More,
    taken: Taken::EveryPeriod(take),
    rates: RateNeed::Down,
    by_rate: false,
    meaning: "available bandwidth of each link towards the LAN",
    state: "a bucket of the rate down, filled every 50 ms",
};

fn take(link: &Observed<'_>) -> u64 {
    link.load.down().map_or(0, AvailableBandwidth::shared_bps)
}
