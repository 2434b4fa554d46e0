//! What can be read from a data path: flows, response times of prefixes, an explanation, counters of reasons.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// The state of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowState {
    /// Unconfirmed: not answered yet, or its handshake is not complete.
    Unconfirmed,
    /// Answered: a packet has passed each way.
    Established,
    /// One side has sent its FIN.
    Closing,
    /// Closed; its entries are kept for the last segments.
    Closed,
}

/// One flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRow {
    /// `tcp`, `udp`, `icmp` or `icmp6`.
    pub proto: String,
    /// Its state.
    pub state: FlowState,
    /// The link's number.
    pub link: u16,
    /// The number of its class.
    pub class: u8,
    /// Why this link was chosen.
    pub why: String,
    /// The LAN host's end.
    pub local: SocketAddr,
    /// The local end as the internet sees it.
    pub external: SocketAddr,
    /// The remote end; for UDP and ICMP the first of possibly several.
    pub remote: SocketAddr,
    /// Packets sent over its link; segments of superpackets are counted one by one.
    pub packets_out: u64,
    /// Bytes of IP packets sent over its link.
    pub bytes_out: u64,
    /// Packets sent into the LAN.
    pub packets_in: u64,
    /// Bytes of IP packets sent into the LAN.
    pub bytes_in: u64,
    /// Time since its first packet.
    pub age_ms: u64,
    /// Time since its last packet in either direction.
    pub idle_ms: u64,
    /// Links on which its SYN got no answer.
    pub tried: Vec<u16>,
}

/// What flows have shown about one destination prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefixRow {
    /// The prefix, as `198.51.100.0/24` or `2001:db8:1::/48`.
    pub prefix: String,
    /// Whether a destination in it is probed because it is popular.
    #[serde(default)]
    pub listed: bool,
    /// The links over which it was measured, or tried.
    pub paths: Vec<PathRow>,
}

/// A destination prefix over one link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRow {
    /// The link's number.
    pub link: u16,
    /// Response time from SYN to SYN/ACK, smoothed; none before the first.
    pub response_us: Option<u32>,
    /// Time since the last measurement.
    pub learned_ms_ago: Option<u64>,
    /// Time since a flow was last sent over this link just to measure it.
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

/// One link in a choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weighed {
    /// The link's number.
    pub link: u16,
    /// Whether it takes new flows.
    pub usable: bool,
    /// Its weight in the choice, without a unit.
    pub weight: u32,
    /// Flows dispatched in the current window, or active, as the policy counts.
    pub load: u32,
    /// Response time of the destination's prefix, from SYN to SYN/ACK; none if unknown, or if the class does not measure it.
    #[serde(default)]
    pub response_us: Option<u32>,
}

/// The answer of the loaded program: which link a flow would take, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The link; none: the kernel's own routing decides, or nothing can be sent.
    pub link: Option<u16>,
    /// The number of the class that takes it.
    pub class: u8,
    /// The reason for this link, or for none.
    pub why: String,
    /// Whether the flow exists already: then this is its link, not a forecast.
    pub bound: bool,
    /// Hash of addresses and ports: their sum under `hash-sum`, their CRC-32 under any other policy.
    pub hash: u32,
    /// The links with the values they were compared by; empty if the choice was made in another way.
    pub weighed: Vec<Weighed>,
}

/// Counter of one reason for the fate of packets.
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
    /// The reasons that have occurred, the most frequent first.
    pub fn by_frequency(mut counts: Vec<Self>) -> Vec<Self> {
        counts.retain(|count| count.packets > 0);
        counts.sort_by_key(|count| std::cmp::Reverse(count.packets));
        counts
    }
}
