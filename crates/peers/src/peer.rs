//! What stands in the gateway's place, and with which parameters.

use std::time::Duration;

use serde::Serialize;

/// Something else in the gateway's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Peer {
    /// The first link carries all, whatever becomes of it.
    OneLink,
    /// Each source has its link, whatever becomes of it: static sharing.
    Static,
    /// nftables gives each connection a random mark, and the mark a link, whatever becomes of that.
    Nftables,
    /// One route of the Linux kernel with all links as next hops, by a hash of addresses and ports.
    Ecmp,
    /// Connections of hosts take all links at once, where the other end speaks MPTCP, too.
    Mptcp,
    /// Of several default routes the first whose gateway answers.
    DeadGateway {
        /// A gateway that is silent for so long is dead.
        #[serde(rename = "after_s", serialize_with = "seconds")]
        after: Duration,
    },
    /// Providers are told of the site's addresses, and tell the internet.
    Bgp(Bgp),
    /// Latency and loss are measured for each prefix over each link, and the best link is its route.
    RouteControl {
        /// Between two measurements.
        #[serde(rename = "period_s", serialize_with = "seconds")]
        period: Duration,
    },
    /// A resilient overlay network of the site's addresses at its providers and a node at each prefix.
    Ron {
        /// By which ways are compared.
        metric: Metric,
    },
}

/// A multihomed site that speaks BGP with its providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bgp {
    /// Whose the site's addresses are.
    pub addresses: Addresses,
    /// From a change of what is announced until the whole internet has heard of it.
    #[serde(rename = "converge_s", serialize_with = "seconds")]
    pub converge: Duration,
    /// Whether BFD watches the last miles, beside the hold timer.
    pub bfd: bool,
}

/// By what a resilient overlay network compares ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Round trips.
    #[default]
    Latency,
    /// Probes that were lost.
    Loss,
    /// What a TCP connection would get, from both.
    Throughput,
}

/// Whose addresses a site has that speaks BGP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Addresses {
    /// Its own, one prefix, which all providers announce: the first carries all.
    Independent,
    /// Each host's are of one provider; those of a provider that is lost are announced to the whole internet by another (RFC 2260,
    /// auto route injection; Guo's case 1).
    Injected,
    /// The same, but the provider itself sends what is lost of its own through a tunnel by another (RFC 2260; Guo's
    /// case 2): nobody else has to hear of it.
    Tunnelled,
}

fn seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

impl Peer {
    /// Whether the laboratory has it.
    pub fn is_real(self) -> bool {
        match self {
            Peer::Bgp(bgp) => bgp.addresses == Addresses::Independent,
            Peer::Ron { .. } => false,
            _ => true,
        }
    }

    /// Whether the simulator has it.
    pub fn is_modelled(self) -> bool {
        self != Peer::Mptcp
    }
}
