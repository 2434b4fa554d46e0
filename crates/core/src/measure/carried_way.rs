use super::{Better, Distance, Measure, Observed, Taken};
use crate::bandwidth::AvailableBandwidth;
use crate::link::Direction;
use crate::link::RateNeed;

/// Bytes carried in the last period in the direction of the flow, if that is known, otherwise in the direction that is the link's
/// bottleneck (Guo 2004 section III.C). A link may carry less than others in total, and still more in the direction that matters.
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

/// At least 1, because weights are ratios.
fn take(link: &Observed<'_>) -> u64 {
    let (up, down) = (link.carried.tx_bytes, link.carried.rx_bytes);
    1 + match link.direction {
        Some(Direction::Up) => up,
        Some(Direction::Down) => down,
        None => down.max(as_down(link, up)),
    }
}

/// Converts bytes upwards to the bytes downwards that use the same share of the rate. Without declared rates, the same number.
fn as_down(link: &Observed<'_>, up: u64) -> u64 {
    let rate = |way: Option<&AvailableBandwidth>| way.map(AvailableBandwidth::rate_bps);
    let rates = rate(link.load.up()).zip(rate(link.load.down()));
    let (rate_up, rate_down) = rates.unwrap_or((1, 1));
    let bytes = u128::from(up) * u128::from(rate_down) / u128::from(rate_up);
    u64::try_from(bytes).unwrap_or(u64::MAX >> 1)
}
