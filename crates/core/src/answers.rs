//! What a data path tells when it is asked.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Where a flow stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowState {
    /// Not answered yet, or its handshake is not complete.
    Embryo,
    /// Answered: a packet has passed each way.
    Established,
    /// One side has sent its FIN.
    Closing,
    /// Over; its entries serve the last segments.
    Closed,
}

/// One flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRow {
    /// `tcp`, `udp`, `icmp` or `icmp6`.
    pub proto: String,
    /// Where it stands.
    pub state: FlowState,
    /// The link's number.
    pub link: u16,
    /// The number of its class.
    pub class: u8,
    /// Why it was chosen.
    pub why: String,
    /// The LAN host's end.
    pub local: SocketAddr,
    /// What the local end is to the internet.
    pub external: SocketAddr,
    /// UDP and ICMP: the first of possibly several.
    pub remote: SocketAddr,
    /// Over its link; segments of superpackets counted one by one.
    pub packets_out: u64,
    /// Of IP packets, over its link.
    pub bytes_out: u64,
    /// Into the LAN.
    pub packets_in: u64,
    /// Of IP packets, into the LAN.
    pub bytes_in: u64,
    /// Since its first packet.
    pub age_ms: u64,
    /// Since its last packet of either direction.
    pub idle_ms: u64,
    /// Links on which its SYN got no answer.
    pub tried: Vec<u16>,
}

/// What flows have told of one place that they go to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefixRow {
    /// Its addresses, as `198.51.100.0/24` or `2001:db8:1::/48`.
    pub prefix: String,
    /// A destination in it is probed because it is used much.
    #[serde(default)]
    pub listed: bool,
    /// Each link of which something was told, or asked.
    pub paths: Vec<PathRow>,
}

/// The same over one link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRow {
    /// The link's number.
    pub link: u16,
    /// From SYN to SYN/ACK, smoothed; none if no flow has told.
    pub response_us: Option<u32>,
    /// Since a flow has told last.
    pub learned_ms_ago: Option<u64>,
    /// Since a flow was last sent there for nothing else than to tell.
    pub asked_ms_ago: Option<u64>,
    /// SYNs that were answered; 65535 may be more.
    pub samples: u16,
    /// SYNs that were repeated before an answer; 65535 may be more.
    pub failures: u16,
}

/// The transport of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proto {
    /// IP protocol 6.
    Tcp,
    /// IP protocol 17.
    Udp,
}

impl Proto {
    /// Of the IP header.
    pub const fn number(self) -> u8 {
        match self {
            Proto::Tcp => 6,
            Proto::Udp => 17,
        }
    }
}

/// What one link brought to the choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weighed {
    /// The link's number.
    pub link: u16,
    /// Whether it takes new flows.
    pub usable: bool,
    /// As the choice has it, without a unit.
    pub weight: u32,
    /// Flows dispatched in the current window, or active, as the policy counts.
    pub load: u32,
    /// Of its destination's prefix, from SYN to SYN/ACK; none if that is not known, or the class does not ask.
    #[serde(default)]
    pub response_us: Option<u32>,
}

/// The program's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// None: the kernel's own routing decides, or nothing can be sent.
    pub link: Option<u16>,
    /// The number of the class that takes it.
    pub class: u8,
    /// Why this link, or why none.
    pub why: String,
    /// The flow exists already: the link is a fact, not a forecast.
    pub bound: bool,
    /// Of addresses and ports: their sum under `hash-sum`, their CRC-32 under any other policy.
    pub hash: u32,
    /// What the choice was made from; empty if it fell otherwise.
    pub weighed: Vec<Weighed>,
}

/// How often packets left for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonCount {
    /// Its name in `reasons.h`.
    pub name: String,
    /// `sent`, `passed`, `dropped` or `refused`.
    pub fate: String,
    /// What it means, for people.
    pub words: String,
    /// Since the instance began.
    pub packets: u64,
}

impl ReasonCount {
    /// Those that have happened, the most frequent first.
    pub fn by_frequency(mut counts: Vec<Self>) -> Vec<Self> {
        counts.retain(|count| count.packets > 0);
        counts.sort_by_key(|count| std::cmp::Reverse(count.packets));
        counts
    }
}
