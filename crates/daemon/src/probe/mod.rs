//! One request to somebody, and its answer.
//!
//! Here one request leaves by one way ([`Via`]) and its answer is waited for. Who is asked when, and what follows from the answer, is decided
//! elsewhere. For a link's availability ([`probe`]) nearly any answer is one, since it came over the link, and several targets in turn see
//! to it that one operator's hiccup, or one filtered protocol, costs no link its good name; unless targets are configured, they are four
//! public resolvers, asked in three ways, the link's gateway, and the resolvers of its lease. For a check ([`test`]) the answer has
//! to be the right one.

mod defaults;
mod page;
pub(crate) mod tls;
mod wire;

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anabranch_core::checks::{Outcome, ProbeTarget};
use hickory_proto::op::ResponseCode;

pub use defaults::{DEFAULT_TARGETS, RESOLVERS, portal_pages};
pub use wire::{Answer, Via, ask_for_reset};

/// Nobody waits longer for an answer: a late one still counts, a later one says nothing.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// What a probe asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inquiry {
    /// Whether a target answers.
    Target(ProbeTarget),
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
async fn ask(target: &ProbeTarget, via: &Via) -> io::Result<Answer> {
    let asked = Instant::now();
    match target {
        ProbeTarget::Dns(server) => wire::ask_dns(*server, via).await.map(drop)?,
        ProbeTarget::Icmp(host) => wire::ask_icmp(*host, via).await?,
        ProbeTarget::Tcp(port) => return wire::ask_tcp(*port, via).await.map(Answer::Expected),
        ProbeTarget::Http(page) => return page::ask(page, via).await,
    }
    Ok(Answer::Expected(asked.elapsed()))
}

/// Asks over `via` for the right answer: an accepted connection, DNS without an error, a page as expected.
pub async fn test(target: ProbeTarget, via: Via, timeout: Duration) -> Outcome {
    match tokio::time::timeout(timeout, ask_right(&target, &via)).await {
        Ok(Ok(Answer::Expected(_))) => Outcome::Success,
        Ok(Ok(Answer::Wrong(words))) => Outcome::Failure(words),
        Ok(Ok(Answer::Inconclusive)) => Outcome::Inconclusive("not sent".to_owned()),
        Ok(Err(error)) if wire::is_own(&error) => {
            Outcome::Inconclusive(format!("not sent: {error}"))
        }
        Ok(Err(error)) => Outcome::Failure(error.to_string()),
        Err(_) => Outcome::Failure(format!("no answer within {timeout:?}")),
    }
}

async fn ask_right(target: &ProbeTarget, via: &Via) -> io::Result<Answer> {
    let asked = Instant::now();
    match target {
        ProbeTarget::Dns(server) => match wire::ask_dns(*server, via).await? {
            ResponseCode::NoError => {}
            code => return Ok(Answer::Wrong(format!("answered {code}"))),
        },
        ProbeTarget::Tcp(port) => wire::connect_to(*port, via).await?,
        ProbeTarget::Icmp(_) | ProbeTarget::Http(_) => return ask(target, via).await,
    }
    Ok(Answer::Expected(asked.elapsed()))
}
