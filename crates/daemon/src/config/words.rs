//! Values that are one of a few words.

use serde::Deserialize;

/// What happens to connections from the internet, at a link that translates prefixes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Inbound {
    /// They are dropped, as at any link with NAT.
    #[default]
    Drop,
    /// They reach the LAN.
    Allow,
}

/// From which LAN device a source may come (RFC 3704).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LanSources {
    /// From the one that its route uses.
    Strict,
    /// From any, if routes of the LAN are asymmetric.
    Loose,
}

/// From whom a UDP mapping accepts packets (RFC 4787 REQ-8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UdpFilter {
    /// From addresses the host has sent to.
    AddressDependent,
    /// From anybody.
    EndpointIndependent,
}

/// What happens to new flows of a host over its quota, or when the table is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fallback {
    /// The kernel's own NAT carries them over the first usable link: connectivity without balancing.
    Kernel,
    /// They are refused.
    Refuse,
}

/// What happens to packets from a link to the LAN that belong to no flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forwards {
    /// They are dropped.
    Drop,
    /// They are left to the kernel: the administrator forwards ports, or routes prefixes, by rules of his own.
    Kernel,
}
