//! `service.NAME.poll`: whether servers are asked for their load.

use std::time::Duration;

use anabranch_config::Span;
use anabranch_core::{Policy, ServerPolicy};
use anabranch_dataplane::services::{Forwarding, Listen, Protocol};

use super::{Refused, ServiceTable};

/// As docs/member.md has it for `load_port`.
const PORT: u16 = 6090;
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_secs(60);

/// How servers are asked for their load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Poll {
    /// Time from one question to the next.
    pub interval: Duration,
    /// UDP port of the servers.
    pub port: u16,
}

pub(super) fn poll(
    table: &ServiceTable,
    policy: ServerPolicy,
    forwarding: Forwarding,
    listen: &[Listen],
) -> Result<Option<Poll>, Refused> {
    let Some(Span(interval)) = table.poll else {
        let idle = || {
            (
                "poll_port",
                "nobody is asked without `poll`; leave it out".to_owned(),
            )
        };
        return table.poll_port.map_or(Ok(None), |_| Err(idle()));
    };
    let refused = |problem: String| Err(("poll", problem));
    if !policy.goes_by_open() {
        let policy = Policy::Service(policy);
        return refused(format!(
            "the policy {policy} does not go by it; write policy = \"CONN\" or \"probabilistic\", or leave it out"
        ));
    }
    if forwarding == Forwarding::Nat {
        return refused(
            "only a server that answers clients itself ([member]) says its load; write forwarding = \"direct\" or \"tunnel\", or leave it out".to_owned(),
        );
    }
    if listen.iter().all(|one| one.protocol == Protocol::Udp) {
        return refused("servers count connections of TCP alone; leave it out".to_owned());
    }
    if !(INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) {
        return refused(format!(
            "a time from {INTERVAL_MIN:?} to {INTERVAL_MAX:?} is allowed"
        ));
    }
    let port = table.poll_port.unwrap_or(PORT);
    match port {
        0 => Err(("poll_port", "a port from 1 on".to_owned())),
        port => Ok(Some(Poll { interval, port })),
    }
}
