//! What every test tells the gateway: the addresses of a site with links, the timers of the RFCs, a fair choice.

use std::net::Ipv4Addr;

use anabranch_core::Choice;
use anabranch_dataplane::Settings;
use anabranch_policy::abi;

pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub const SECOND_CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
pub const GATEWAY_LAN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub const EXTERNAL: [Ipv4Addr; 2] = [Ipv4Addr::new(203, 0, 113, 2), Ipv4Addr::new(192, 0, 2, 2)];
pub const ISP: [Ipv4Addr; 2] = [Ipv4Addr::new(203, 0, 113, 1), Ipv4Addr::new(192, 0, 2, 1)];
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
pub const SECOND_SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 11);

pub const SECOND_NS: u64 = 1_000_000_000;

/// The defaults of RFC 5382 and RFC 4787.
pub fn settings() -> Settings {
    Settings {
        tcp_established_ns: 7440 * SECOND_NS,
        tcp_transitory_ns: 240 * SECOND_NS,
        udp_ns: 300 * SECOND_NS,
        icmp_ns: 60 * SECOND_NS,
        unconfirmed_ns: 240 * SECOND_NS,
        forwards_kernel: 0,
        routed: 0,
        quota_per_host: 2000,
        flows_max: 4096,
        port_min: 1024,
        port_max: 65535,
        ephemeral_min: 32768,
        ephemeral_max: 60999,
        udp_filter_open: 0,
        fallback_mark: 0,
        unconfirmed_per_host: 1024,
        flows_per_device: 0,
        unconfirmed_per_device: 0,
        lan_sources_loose: 0,
        reserved: [0; abi::RESERVED_MAX],
        routes_kernel: 0,
        zero: 0,
    }
}

/// Round-robin over the links in `usable`.
pub fn round_robin(usable: u64) -> Choice {
    Choice::round_robin(2, usable)
}
