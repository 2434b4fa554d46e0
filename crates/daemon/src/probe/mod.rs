//! Active evidence that a link works: a request to a target on the internet, and its answer.
//!
//! When to probe, which target's turn it is, and what a lost probe means is the balancer's business. Here one request
//! leaves by one link and its answer is waited for; several targets in turn see to it that one operator's hiccup, or one
//! filtered protocol, costs no link its good name.

mod target;
mod wire;

use std::time::Duration;

pub use target::{DEFAULT_TARGETS, Target};
pub use wire::Via;

/// Nobody waits longer for an answer: a late one still counts, a later one says nothing.
const PATIENCE: Duration = Duration::from_secs(10);

/// What became of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Answered {
        round_trip: Duration,
    },
    /// It could not be sent, or the network refused it: no answer will come.
    Failed,
}

/// Asks `target` over `via`. `None`: no answer came.
pub async fn probe(target: Target, via: Via) -> Option<Outcome> {
    match tokio::time::timeout(PATIENCE, wire::ask(target, &via)).await {
        Ok(Ok(round_trip)) => Some(Outcome::Answered { round_trip }),
        Ok(Err(error)) => {
            tracing::debug!(device = via.device, %target, %error, "probe failed");
            Some(Outcome::Failed)
        }
        Err(_) => None,
    }
}
