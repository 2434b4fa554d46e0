//! Estimates from counters: the available bandwidth of a link, and how long packets may wait in its queue.

use std::time::Duration;

use anabranch_policy::abi;

use crate::link::LinkSpec;
use crate::time::Time;

/// Available bandwidth of one direction: the physical rate that is not used, averaged over about a second.
///
/// It is Peng 2005 eq. 6 with two corrections. The equation is printed with MAX, which would never fall below capacity; it must be
/// a clamp: `AB(t) = clamp(AB(t') + FB·(t−t') − bytes(t',t), 0, FB·1 s)`. And the earlier balance must decay over the second of the
/// clamp. Otherwise the bucket is refilled as fast as it is used, and shows an idle link under any load up to the rate. Towards the
/// LAN no more than the rate can ever arrive, so it would always show an idle link there. The corrected equation is
/// `AB(t) = clamp(AB(t')·(1 − (t−t')/1 s) + FB·(t−t') − bytes(t',t), 0, FB·1 s)`. Under a steady load it converges to FB − load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvailableBandwidth {
    rate_bps: u64,
    available_bit: u64,
    updated: Time,
}

const MEMORY: Duration = Duration::from_secs(1);

impl AvailableBandwidth {
    /// Starts with the whole rate available.
    pub fn new(now: Time, rate_bps: u64) -> Self {
        AvailableBandwidth {
            rate_bps,
            available_bit: rate_bps,
            updated: now,
        }
    }

    /// Reports the bytes that were carried since the last call.
    pub fn carry(&mut self, now: Time, bytes: u64) {
        let elapsed = now.since(self.updated);
        let counted = elapsed.min(MEMORY);
        let kept = bits_in(self.available_bit, MEMORY - counted);
        let carried_bit = u128::from(bytes) * 8 * counted.as_nanos() / elapsed.as_nanos().max(1);
        let filled = u128::from(kept) + u128::from(bits_in(self.rate_bps, counted));
        self.available_bit = filled.saturating_sub(carried_bit).min(self.rate_bps.into()) as u64;
        self.updated = now;
    }

    /// bit/s that could be carried in the next second in addition to the present load.
    pub fn bps(&self) -> u64 {
        self.available_bit
    }

    /// bit/s in proportion to which new flows are distributed: at least a hundredth of the rate, so that flows on saturated links
    /// are distributed by rate.
    pub fn shared_bps(&self) -> u64 {
        self.bps().max(self.rate_bps / 100)
    }

    /// bit/s: the physical rate.
    pub fn rate_bps(&self) -> u64 {
        self.rate_bps
    }
}

/// An estimate of the queue before a link of this rate, from the bytes sent towards it: `v ← max(0, v + bytes − rate·dt)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtualQueue {
    rate_bps: u64,
    limit: Duration,
    queued_bit: u64,
    updated: Time,
}

impl VirtualQueue {
    /// An empty queue. Packets that would wait longer than `limit` are taken to be dropped.
    pub fn new(now: Time, rate_bps: u64, limit: Duration) -> Self {
        VirtualQueue {
            rate_bps,
            limit,
            queued_bit: 0,
            updated: now,
        }
    }

    /// Reports the bytes that were sent since the last call.
    pub fn send(&mut self, now: Time, bytes: u64) {
        let drained = u128::from(bits_in(self.rate_bps, now.since(self.updated)));
        let queued = (u128::from(self.queued_bit) + u128::from(bytes) * 8).saturating_sub(drained);
        self.queued_bit = queued.min(u128::from(bits_in(self.rate_bps, self.limit))) as u64;
        self.updated = now;
    }

    /// How long a packet that is sent at `now` waits.
    pub fn delay(&self, now: Time) -> Duration {
        let ns = u128::from(self.queued_bit) * 1_000_000_000 / u128::from(self.rate_bps.max(1));
        Duration::from_nanos(ns as u64).saturating_sub(now.since(self.updated))
    }
}

/// The load of a link, in both directions.
#[derive(Clone, Copy, Debug)]
pub struct LinkLoad {
    up: Option<AvailableBandwidth>,
    down: Option<AvailableBandwidth>,
    up_queue: Option<VirtualQueue>,
}

impl LinkLoad {
    /// With the declared rates of a link, unused at `now`.
    pub fn new(now: Time, spec: &LinkSpec, queue_max: Duration) -> Self {
        LinkLoad {
            up: spec
                .rate_up_bps
                .map(|rate| AvailableBandwidth::new(now, rate)),
            down: spec
                .rate_down_bps
                .map(|rate| AvailableBandwidth::new(now, rate)),
            up_queue: spec
                .rate_up_bps
                .map(|rate| VirtualQueue::new(now, rate, queue_max)),
        }
    }

    /// Reports the traffic since the last call.
    pub fn carry(&mut self, now: Time, carried: &abi::Traffic) {
        if let Some(up) = &mut self.up {
            up.carry(now, carried.tx_bytes);
        }
        if let Some(queue) = &mut self.up_queue {
            queue.send(now, carried.tx_bytes);
        }
        if let Some(down) = &mut self.down {
            down.carry(now, carried.rx_bytes);
        }
    }

    /// Towards the internet; none if the rate is not declared.
    pub fn up(&self) -> Option<&AvailableBandwidth> {
        self.up.as_ref()
    }

    /// Towards the LAN; none if the rate is not declared.
    pub fn down(&self) -> Option<&AvailableBandwidth> {
        self.down.as_ref()
    }

    /// How long a probe that is sent at `now` waits for packets sent before; zero if the rate is not declared.
    pub fn queue_up(&self, now: Time) -> Duration {
        self.up_queue
            .map_or(Duration::ZERO, |queue| queue.delay(now))
    }

    /// Whether packets may wait in a queue that cannot be observed: towards the LAN the queue at the ISP, if more than a fifth of
    /// the last second's capacity was used; or any direction whose rate is not declared.
    ///
    /// Such a queue sends without pause, so if nothing at all arrives there is none.
    pub fn may_queue_unseen(&self) -> bool {
        self.up.is_none()
            || self
                .down
                .is_none_or(|down| down.bps() < down.rate_bps() / 5 * 4)
    }
}

/// Bits that pass in `duration`, at most `u64::MAX`.
fn bits_in(rate_bps: u64, duration: Duration) -> u64 {
    let bits = u128::from(rate_bps).saturating_mul(duration.as_nanos()) / 1_000_000_000;
    u64::try_from(bits).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MBIT: u64 = 1_000_000;

    #[test]
    fn an_idle_link_has_its_whole_rate_left_and_never_more() {
        let mut ab = AvailableBandwidth::new(Time::ZERO, 10 * MBIT);
        ab.carry(Time::from_millis(60_000), 0);
        assert_eq!(ab.bps(), 10 * MBIT);
    }

    /// After ten seconds of a steady load, read every 50 ms.
    fn left_under(load_bps: u64, rate_bps: u64) -> u64 {
        let mut ab = AvailableBandwidth::new(Time::ZERO, rate_bps);
        for step in 1..=200 {
            ab.carry(Time::from_millis(50 * step), load_bps / 8 / 20);
        }
        ab.bps()
    }

    #[test]
    fn under_a_steady_load_the_rest_of_the_rate_is_left() {
        assert!(left_under(6 * MBIT, 8 * MBIT).abs_diff(2 * MBIT) < MBIT / 100);
        assert!(left_under(8 * MBIT, 8 * MBIT) < MBIT / 100);
        assert_eq!(left_under(80 * MBIT, 8 * MBIT), 0);
    }

    #[test]
    fn a_load_that_ended_is_forgotten_within_seconds() {
        let mut ab = AvailableBandwidth::new(Time::ZERO, MBIT);
        ab.carry(Time::from_millis(1000), MBIT);
        assert_eq!(ab.bps(), 0);
        ab.carry(Time::from_millis(1500), 0);
        assert_eq!(ab.bps(), MBIT / 2);
        ab.carry(Time::from_millis(4000), 0);
        assert_eq!(ab.bps(), MBIT);
    }

    #[test]
    fn a_late_reading_spreads_its_bytes_over_the_time_it_covers() {
        let mut ab = AvailableBandwidth::new(Time::ZERO, MBIT);
        ab.carry(Time::from_millis(10_000), 10 * MBIT / 2 / 8);
        assert_eq!(ab.bps(), MBIT / 2);
    }

    #[test]
    fn a_virtual_queue_drains_at_the_rate_and_is_bounded() {
        let mut queue = VirtualQueue::new(Time::ZERO, MBIT, Duration::from_secs(2));
        queue.send(Time::ZERO, 125_000);
        assert_eq!(queue.delay(Time::ZERO), Duration::from_secs(1));
        assert_eq!(
            queue.delay(Time::from_millis(400)),
            Duration::from_millis(600)
        );
        queue.send(Time::from_millis(400), 12_500_000);
        assert_eq!(queue.delay(Time::from_millis(400)), Duration::from_secs(2));
    }

    #[test]
    fn an_unseen_queue_is_possible_after_a_burst_and_on_links_of_unknown_rate() {
        let declared = LinkSpec {
            rate_up_bps: Some(MBIT),
            rate_down_bps: Some(MBIT),
            ..LinkSpec::default()
        };
        let mut load = LinkLoad::new(Time::ZERO, &declared, Duration::from_secs(3));
        assert!(!load.may_queue_unseen());
        load.carry(
            Time::from_millis(250),
            &abi::Traffic {
                rx_bytes: 60_000,
                ..Default::default()
            },
        );
        assert!(load.may_queue_unseen());
        assert!(
            LinkLoad::new(Time::ZERO, &LinkSpec::default(), Duration::from_secs(3))
                .may_queue_unseen()
        );
    }

    proptest! {
        #[test]
        fn available_bandwidth_stays_between_zero_and_the_rate(
            rate in 1..100_000_000_000u64,
            steps in prop::collection::vec((0..5_000_000_000u64, any::<u32>()), 1..50),
        ) {
            let mut ab = AvailableBandwidth::new(Time::ZERO, rate);
            let mut now = Time::ZERO;
            for (ns, bytes) in steps {
                now = now + Duration::from_nanos(ns);
                ab.carry(now, bytes.into());
                prop_assert!(ab.bps() <= rate);
            }
        }
    }
}
