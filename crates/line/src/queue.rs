//! What a scenario says of the queue before a line.

use std::time::Duration;

use serde::Serialize;

use crate::seconds;

/// How the queue before a line is managed. Whatever it is, nothing finds room beyond the line's buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Queue {
    /// First in, first out, and nothing is dropped but for want of room.
    #[default]
    DropTail,
    /// Drops at arrival, by the mean length.
    Red(Red),
    /// Drops at departure, by how long packets have waited.
    Codel(Codel),
    /// A CoDel for each flow, served in turn.
    FqCodel(FqCodel),
}

impl Queue {
    /// As in files.
    pub fn name(&self) -> &'static str {
        match self {
            Queue::DropTail => "drop-tail",
            Queue::Red(_) => "red",
            Queue::Codel(_) => "codel",
            Queue::FqCodel(_) => "fq-codel",
        }
    }
}

/// Random early detection (Floyd and Jacobson 1993): packets are dropped with a probability that rises from 0 at
/// `min_bytes` of mean queue to `max_probability` at `max_bytes`, and all of them above that, or above twice that if it
/// is gentle.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Red {
    /// Mean queue up to which nothing is dropped.
    pub min_bytes: u64,
    /// Mean queue at which the probability is `max_probability`.
    pub max_bytes: u64,
    /// Of a drop at `max_bytes`, 0 to 1.
    pub max_probability: f64,
    /// Whether the probability rises on, from `max_probability` at `max_bytes` to 1 at twice that (Floyd 2000).
    pub gentle: bool,
    /// Of the present queue in the moving mean.
    pub weight: f64,
    /// Whether ECN-capable packets are marked instead (RFC 3168), as long as not all are dropped.
    pub ecn: bool,
}

/// Controlled delay (RFC 8289).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Codel {
    /// What packets may wait for longer than an interval without harm.
    #[serde(rename = "target_s", serialize_with = "seconds")]
    pub target: Duration,
    /// Over which the least wait is looked for: about the longest round trip.
    #[serde(rename = "interval_s", serialize_with = "seconds")]
    pub interval: Duration,
    /// Nothing is dropped that leaves no more than this behind: a full packet.
    pub mtu_bytes: u32,
    /// Whether ECN-capable packets are marked instead (RFC 3168).
    pub ecn: bool,
}

/// Flow queueing with controlled delay (RFC 8290).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FqCodel {
    /// Of each queue.
    #[serde(flatten)]
    pub codel: Codel,
    /// What a queue may send in its turn.
    pub quantum_bytes: u32,
    /// Queues, over which flows are spread by their hash.
    pub flows: u32,
}
