//! How long a host takes to send what its TCP has said, or its gateway asks: as ns-2's `overhead_`, a time drawn for each packet, none of which
//! overtakes another of its side. Hosts that take no time at all keep step where networks are alike (Floyd and Jacobson, On
//! Traffic Phase Effects in Packet-Switched Gateways, 1992).

use anabranch_core::Time;
use anabranch_policy::splitmix::SplitMix64;

/// Tells these draws from those of congestion control, which have the same stream.
const STREAM: u64 = 0x6f76_6572_6865_6164;

/// Of one side of a connection, or of what a gateway asks over one link.
#[derive(Debug)]
pub(crate) struct Overhead {
    most_ns: u64,
    random: SplitMix64,
    last_ns: u64,
}

impl Overhead {
    /// Of a host that takes up to `most_ns`, unless that is nothing.
    pub fn new(most_ns: u64, stream: u64) -> Option<Self> {
        (most_ns > 0).then_some(Overhead {
            most_ns,
            random: SplitMix64(stream ^ STREAM),
            last_ns: 0,
        })
    }

    /// When a packet leaves that is sent now.
    pub fn leaves(&mut self, now: Time) -> Time {
        let late_ns = self.random.draw() % (self.most_ns + 1);
        self.last_ns = self.last_ns.max(now.as_nanos() + late_ns);
        Time::from_nanos(self.last_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST_NS: u64 = 100_000;

    #[test]
    fn packets_leave_in_their_order_and_no_later_than_told() {
        let mut overhead = Overhead::new(MOST_NS, 1).expect("some");
        let mut last = Time::ZERO;
        let mut late_ns = Vec::new();
        for now_ns in (0..100_000_000).step_by(30_000) {
            let leaves = overhead.leaves(Time::from_nanos(now_ns));
            assert!(leaves >= last);
            last = leaves;
            late_ns.push(leaves.as_nanos() - now_ns);
        }
        assert!(late_ns.iter().all(|late_ns| *late_ns <= MOST_NS));
        assert!(late_ns.iter().any(|late_ns| *late_ns < MOST_NS / 10));
        assert!(late_ns.iter().any(|late_ns| *late_ns > MOST_NS * 9 / 10));
    }

    #[test]
    fn every_side_draws_by_itself_and_the_same_again() {
        let first = |stream| {
            let mut overhead = Overhead::new(MOST_NS, stream).expect("some");
            overhead.leaves(Time::ZERO)
        };
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
        assert!(Overhead::new(0, 1).is_none());
    }
}
