use super::{Better, Distance, Measure, Observed, Taken};
use crate::bandwidth::AvailableBandwidth;
use crate::link::RateNeed;

/// ST: available bandwidth towards the internet.
pub static ST_OUT: Measure = Measure {
    name: "st-out",
    distance: Distance::LastMile,
    better: Better::More,
    taken: Taken::EveryPeriod(take),
    rates: RateNeed::Up,
    by_rate: false,
    meaning: "available bandwidth of each link towards the internet",
    state: "a bucket of the rate up, filled every 50 ms",
};

fn take(link: &Observed<'_>) -> u64 {
    link.load.up().map_or(0, AvailableBandwidth::shared_bps)
}
