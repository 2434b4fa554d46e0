//! A line, as a scenario describes it and as the simulator and the emulator carry it out: a rate, a delay, a buffer before
//! it, losses on it, and what may change while packets are on it. In place of a constant rate it may have a [`Trace`].
//!
//! [`Loss::strikes`] is a law that both follow with their own random numbers; [`ManagedQueue`] is a queue that decides what
//! leaves it, for whoever asks it for the next packet. Nothing else here carries a packet.

#![deny(missing_docs)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod impairments;
mod managed;
mod queue;
mod trace;

use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

pub use impairments::{Impairments, MTU_MAX_BYTES, MTU_MIN_BYTES, Nature, Passage, Service, Sort};
pub use managed::{Leaving, ManagedQueue, Waiting};
pub use queue::{Codel, FqCodel, Queue, Red};
pub use trace::{Cable, Lte, Malformed, OPPORTUNITY_BYTES, Opportunities, Trace, TraceSource};

/// Which way along a line, or the bytes of a transfer go. The user always opens the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the server to the user.
    #[default]
    Down,
    /// From the user to the server.
    Up,
}

impl Direction {
    /// Both, downstream first.
    pub const BOTH: [Direction; 2] = [Direction::Down, Direction::Up];

    /// As in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Down => "down",
            Direction::Up => "up",
        }
    }
}

/// One direction of a line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Of IP packets, above 0; with a trace its mean.
    pub rate_bps: u64,
    /// When it carries how much, if its rate is not constant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceSource>,
    /// Propagation, one way.
    #[serde(rename = "delay_s", serialize_with = "seconds")]
    pub delay: Duration,
    /// Of the queue before the line.
    pub buffer: Buffer,
    /// Of what the line carries, whatever its queue.
    pub loss: Loss,
    /// How that queue is managed.
    pub queue: Queue,
    /// What else it does to packets.
    #[serde(flatten)]
    pub impairments: Impairments,
}

/// How much may wait for a line, the packet in transmission included; what finds no room is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Buffer {
    /// Bytes of packets.
    Bytes(u64),
    /// Packets, whatever their size.
    Packets(u64),
    /// Everything.
    Unlimited,
}

/// Hops to the server that is nearest, and to whoever is none.
pub const NEAREST: u16 = 1;

/// What a line loses, whatever its queue.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Nothing.
    None,
    /// Each packet with the same probability, independently.
    Independent {
        /// Of losing a packet, 0 to 1.
        probability: f64,
    },
    /// Gilbert–Elliott: a chain of two states that steps before each packet, and begins in the good one.
    Bursty {
        /// Probability of a step from the good state to the bad, 0 to 1.
        good_to_bad: f64,
        /// Probability of a step back, 0 to 1.
        bad_to_good: f64,
        /// Probability of losing a packet in the good state, 0 to 1.
        loss_good: f64,
        /// The same in the bad state.
        loss_bad: f64,
    },
    /// By distance: each packet with the same probability at each hop to its server or from there, independently.
    PerHop {
        /// Of losing a packet at one hop, 0 to 1.
        probability: f64,
    },
}

impl Line {
    /// The trace that it follows from a time on, if it has one.
    pub fn opportunities(&self, begin_ns: u64) -> Option<Opportunities> {
        let trace = self.trace.as_ref()?.trace();
        Some(Opportunities::new(trace, begin_ns))
    }
}

impl Loss {
    /// Whether it takes the next packet, whose server is so many hops away. `bad` is the state of its chain, `happens` draws with a
    /// given probability.
    pub fn strikes(self, bad: &mut bool, hops: u16, mut happens: impl FnMut(f64) -> bool) -> bool {
        match self {
            Loss::None => false,
            Loss::Independent { probability } => happens(probability),
            Loss::PerHop { probability } => happens(1.0 - (1.0 - probability).powi(hops.into())),
            Loss::Bursty {
                good_to_bad,
                bad_to_good,
                loss_good,
                loss_bad,
            } => {
                *bad ^= happens(if *bad { bad_to_good } else { good_to_bad });
                happens(if *bad { loss_bad } else { loss_good })
            }
        }
    }
}

/// What may happen to a line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The line becomes a blackhole: what is on it and what comes is swallowed, and its carrier stays. A sublink of a trunk
    /// loses its carrier, and the trunk goes around it as soon as it sees that.
    Cut,
    /// The line is whole again.
    Restore,
    /// In bit/s, of a line without a trace. What waits is sent at the new rate.
    #[serde(rename = "rate_bps")]
    Rate(u64),
    /// Of packets whose transmission begins after the change.
    Loss(Loss),
    /// For packets whose transmission begins after the change; none overtakes another.
    #[serde(rename = "delay_s", serialize_with = "seconds")]
    Delay(Duration),
    /// For packets that come after the change, as the two below.
    #[serde(rename = "jitter_s", serialize_with = "seconds")]
    Jitter(Duration),
    /// What is longer vanishes.
    #[serde(rename = "mtu_bytes")]
    Mtu(Option<u32>),
    /// Which packets it carries at all.
    Passage(Passage),
}

/// Packets and bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// How many.
    pub packets: u64,
    /// Theirs together.
    pub bytes: u64,
}

impl Tally {
    /// Counts one packet of so many bytes.
    pub fn add(&mut self, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
    }

    /// None if packets were counted and their bytes were not: no packet is empty.
    pub fn counted_bytes(&self) -> Option<u64> {
        (self.packets == 0 || self.bytes > 0).then_some(self.bytes)
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// Writes a time as seconds, for fields whose names end with `_s`.
///
/// # Errors
/// Those of the serializer.
pub fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_by_distance_grows_with_it_and_is_one_hop_of_one() {
        let of = |probability: f64, hops| {
            let mut drawn = None;
            let strikes = Loss::PerHop { probability }.strikes(&mut false, hops, |probability| {
                drawn = Some(probability);
                true
            });
            assert!(strikes);
            drawn.expect("it draws")
        };
        for (probability, hops, expected) in [
            (0.01, 0, 0.0),
            (0.01, 1, 0.01),
            (0.01, 2, 0.0199),
            (0.5, 3, 0.875),
            (1.0, 4, 1.0),
            (0.01, u16::MAX, 1.0),
        ] {
            let drawn = of(probability, hops);
            assert!(
                (drawn - expected).abs() < 1e-12,
                "{probability} {hops}: {drawn}"
            );
        }
    }

    #[test]
    fn packets_without_bytes_are_packets_whose_bytes_nobody_counted() {
        let bytes = |packets, bytes| Tally { packets, bytes }.counted_bytes();
        assert_eq!([bytes(0, 0), bytes(2, 90)], [Some(0), Some(90)]);
        assert_eq!(bytes(2, 0), None);
    }
}
