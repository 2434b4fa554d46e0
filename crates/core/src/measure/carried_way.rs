use super::{Better, Distance, Measure, Observed, Taken};
use crate::bandwidth::AvailableBandwidth;
use crate::link::Direction;
use crate::link::RateNeed;

/// Bytes carried in the last period in the direction of the flow, where that is known, else in the link's bottleneck direction
/// (Guo 2004 section III.C): a link may carry less than others altogether, and more of what the flow will add to.
pub static CARRIED_WAY: Measure = Measure {
    name: "carried-way",
    distance: Distance::LastMile,
    better: Better::Less,
    taken: Taken::EveryPeriod(take),
    rates: RateNeed::None,
    by_rate: true,
    meaning: "bytes that each link has carried in the flow's direction",
    state: "two counters, read every period",
};

/// Never 0, of which no ratio can be taken.
fn take(link: &Observed<'_>) -> u64 {
    let (up, down) = (link.carried.tx_bytes, link.carried.rx_bytes);
    1 + match link.direction {
        Some(Direction::Up) => up,
        Some(Direction::Down) => down,
        None => down.max(as_down(link, up)),
    }
}

/// The bytes on the way down that use as much of its rate as these do of the rate up; of undeclared rates as many.
fn as_down(link: &Observed<'_>, up: u64) -> u64 {
    let rate = |way: Option<&AvailableBandwidth>| way.map(AvailableBandwidth::rate_bps);
    let rates = rate(link.load.up()).zip(rate(link.load.down()));
    let (rate_up, rate_down) = rates.unwrap_or((1, 1));
    let bytes = u128::from(up) * u128::from(rate_down) / u128::from(rate_up);
    u64::try_from(bytes).unwrap_or(u64::MAX >> 1)
}
