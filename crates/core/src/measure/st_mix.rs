use std::time::Duration;

use super::{Better, Distance, Measure, Observed, Taken};
use crate::bandwidth::{AvailableBandwidth, LinkLoad};
use crate::link::Direction;
use crate::link::RateNeed;

/// Peng's ST: how much more traffic of the site's mixture of directions the link can carry.
///
/// If a share f of the site's traffic goes down and 1−f goes up, this is `min(AB_down / f, AB_up / (1−f))`, over the declared
/// directions. One direction alone is not enough: downloads hardly use the uplink, but they stall if acknowledgements do
/// not get through. The lesser of the two without weighting would let a small but idle uplink hide a large
/// downlink.
pub static ST_MIX: Measure = Measure {
    name: "st-mix",
    distance: Distance::LastMile,
    better: Better::More,
    taken: Taken::EveryPeriod(take),
    rates: RateNeed::Either,
    by_rate: false,
    meaning: "available bandwidth of each link for the site's mixture of directions",
    state: "a bucket of each declared rate, filled every 50 ms",
};

fn take(link: &Observed<'_>) -> u64 {
    link.mixture.room(link.load)
}

/// Bytes of the site in both directions, with exponential decay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mixture {
    up_byte: u64,
    down_byte: u64,
}

impl Mixture {
    const MEMORY: Duration = Duration::from_secs(10);

    /// Assumed until more than a page's worth of traffic was measured: nine tenths go down.
    const PRIOR: Mixture = Mixture {
        up_byte: 10_000,
        down_byte: 90_000,
    };

    /// A download: an acknowledgement of 52 bytes for two segments of 1500.
    const DOWN: Mixture = Mixture {
        up_byte: 0,
        down_byte: 487_000,
    };

    /// An upload: the reverse.
    const UP: Mixture = Mixture {
        up_byte: 5_182_000,
        down_byte: 0,
    };

    /// The mixture of traffic that goes in one direction.
    pub(crate) const fn of(direction: Direction) -> &'static Mixture {
        match direction {
            Direction::Down => &Self::DOWN,
            Direction::Up => &Self::UP,
        }
    }

    pub(crate) fn add(&mut self, elapsed: Duration, up_byte: u64, down_byte: u64) {
        let kept = Self::MEMORY.saturating_sub(elapsed).as_nanos();
        let decay = |bytes: u64| (u128::from(bytes) * kept / Self::MEMORY.as_nanos()) as u64;
        self.up_byte = decay(self.up_byte) + up_byte;
        self.down_byte = decay(self.down_byte) + down_byte;
    }

    /// How much of this mixture the link can still take, in bit/s of both directions together.
    fn room(&self, load: &LinkLoad) -> u64 {
        let up = self.up_byte + Self::PRIOR.up_byte;
        let down = self.down_byte + Self::PRIOR.down_byte;
        let room = |left: Option<&AvailableBandwidth>, part: u64| {
            let all = u128::from(up + down);
            left.map(|left| (u128::from(left.shared_bps()) * all / u128::from(part)) as u64)
        };
        [room(load.up(), up), room(load.down(), down)]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(0)
    }
}
