//! Sends one request, and receives its answer.
//!
//! A request leaves by one path ([`Via`]). Other modules decide who is probed when, and what follows from the answer. For the
//! availability of a link ([`probe`]) nearly any answer will do, because it came over the link. Several targets take turns, so that
//! a problem of one operator, or one filtered protocol, does not take a link down. Unless targets are configured, they are four
//! public resolvers, probed in three ways, the link's gateway, and the resolvers of its lease. For a check ([`test`]) the answer
//! has to be the expected one.

mod defaults;
mod names;
mod page;
pub(crate) mod tls;
mod wire;

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anabranch_core::checks::{Outcome, ProbeTarget};
use hickory_proto::op::ResponseCode;

pub use defaults::{DEFAULT_TARGETS, RESOLVERS, portal_pages};
pub(crate) use names::{DNS_PORT, lookup};
pub use wire::{Answer, Via, ask_for_reset};

/// How long an answer is waited for: a late one still counts, but after this time it says nothing.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The request of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inquiry {
    /// Does a target answer?
    Target(ProbeTarget),
    /// Do packets of this length arrive at a host, and its answers of the same length here?
    Length {
        /// A host on the internet.
        host: IpAddr,
        /// Of the packet, IP header included.
        bytes: u32,
    },
}

/// Sends a request over `via`, and returns the answer; none if no answer came. Errors from the network prove neither that a link is
/// down nor that it is up, because anybody can forge one. Errors of this host mean that nothing was sent, and are returned as that.
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

/// Returns when `target` has answered over `via`. Never returns if it does not; the caller has a deadline.
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

/// Tests for the expected answer over `via`: an accepted connection, DNS without an error, a page with the expected content.
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
