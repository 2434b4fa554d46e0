//! Active evidence that a link works: a request to a target on the internet, and its answer.
//!
//! When to probe, which target's turn it is, and what a lost probe means is the balancer's business. Here one request
//! leaves by one link and its answer is waited for; several targets in turn see to it that one operator's hiccup, or one
//! filtered protocol, costs no link its good name. Unless targets are configured, they are four public resolvers, asked in
//! three ways, the link's gateway, and the resolvers of its lease.

mod page;
mod target;
mod wire;

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

pub use target::{DEFAULT_TARGETS, Page, RESOLVERS, Target, portal_pages};
pub use wire::{Answer, Via, ask_for_reset};

/// Nobody waits longer for an answer: a late one still counts, a later one says nothing.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// What a probe asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inquiry {
    /// Whether a target answers.
    Target(Target),
    /// Whether packets of this length reach a host, and as long ones come back.
    Length {
        /// Far away.
        host: IpAddr,
        /// Of the packet, IP header included.
        bytes: u32,
    },
}

/// Asks over `via`, and returns the answer. `None`: no answer came. Errors prove nothing, neither that a
/// link is down nor that it is up: anybody may forge one, and of those that are the host's own it is told that nothing was sent.
pub async fn probe(inquiry: Inquiry, via: Via) -> Option<Answer> {
    let answer = async {
        match &inquiry {
            Inquiry::Target(target) => ask(target, &via).await,
            Inquiry::Length { host, bytes } => wire::ask_length(*host, *bytes, &via).await,
        }
    };
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(Ok(answer)) => Some(answer),
        Ok(Err(error)) => {
            tracing::debug!(device = via.device, ?inquiry, %error, "probe not sent");
            wire::is_own(&error).then_some(Answer::Inconclusive)
        }
        Err(_) => None,
    }
}

/// Returns when `target` has answered over `via`. Waits for ever if it does not: the caller has the deadline.
async fn ask(target: &Target, via: &Via) -> io::Result<Answer> {
    let asked = Instant::now();
    match target {
        Target::Dns(server) => wire::ask_dns(*server, via).await?,
        Target::Icmp(host) => wire::ask_icmp(*host, via).await?,
        Target::Tcp(port) => return wire::ask_tcp(*port, via).await.map(Answer::Expected),
        Target::Http(page) => return page::ask(page, via).await,
    }
    Ok(Answer::Expected(asked.elapsed()))
}
