//! What a scenario's TCP means to this kernel.
//!
//! Congestion control, initial window, minimum RTO, delayed acknowledgements, receive window and segment size are given
//! to routes; SACK, timestamps and ECN are sysctls of the namespace. The kernel counts acknowledged segments, repairs losses
//! by SACK or NewReno with RACK and tail loss probes, and adapts the delay of acknowledgements: that cannot be told
//! otherwise, and [`differences`] names what a scenario wants and does not get.

use anabranch_scenario::{Control, Families, Family, Growth, Ports, Recovery, Tcp};

use super::{LabError, Result};
use anabranch_testbed::netns::Namespace;

/// IPv4 and TCP without options.
const PLAIN_HEADER_BYTES: u32 = 40;
/// What an IPv6 header is longer.
const LONGER_IPV6_BYTES: u32 = 20;
/// Windows above are left to the kernel: its buffers hold less (`tcp_rmem` below).
const WINDOW_MAX_BYTES: u64 = 3_000_000;

/// The sysctls that [`settings`] sets.
pub(super) const SETTINGS: [&str; 7] = [
    "net/ipv4/tcp_no_metrics_save",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "net/ipv4/tcp_slow_start_after_idle",
    "net/ipv4/tcp_sack",
    "net/ipv4/tcp_timestamps",
    "net/ipv4/tcp_ecn",
];

/// What every host of the lab is set to. Buffers are explicit because the kernel's defaults depend on its memory; no
/// host remembers the windows of earlier connections.
pub(super) fn settings(tcp: &Tcp) -> impl Iterator<Item = (&'static str, String)> {
    let flag = |on: bool| u8::from(on).to_string();
    let values = [
        "1".into(),
        "4096\t131072\t6291456".into(),
        "4096\t16384\t4194304".into(),
        "1".into(),
        flag(tcp.recovery.sacks()),
        flag(tcp.header_bytes > PLAIN_HEADER_BYTES),
        flag(tcp.ecn),
    ];
    SETTINGS.into_iter().zip(values)
}

/// Attributes of the routes that connections take, in the words of `ip route`. Packets are as long in both families.
pub(crate) fn route_metrics(tcp: &Tcp, family: Family) -> String {
    // Timestamps are part of the announced segment (RFC 6691).
    let mut announced_bytes = tcp.mss_bytes + tcp.header_bytes.saturating_sub(PLAIN_HEADER_BYTES);
    if family == Family::V6 {
        announced_bytes -= LONGER_IPV6_BYTES.min(announced_bytes);
    }
    let mut metrics = format!(
        "congctl {} initcwnd {} rto_min {}ms advmss {announced_bytes}",
        control(tcp),
        tcp.initial_window,
        tcp.min_rto.as_millis()
    );
    if tcp.delayed_ack.is_none() {
        metrics += " quickack 1";
    }
    let window_bytes = u64::from(tcp.receive_window) * u64::from(tcp.mss_bytes);
    if window_bytes <= WINDOW_MAX_BYTES {
        metrics += &format!(" window {window_bytes}");
    }
    metrics
}

/// The kernel's name of a congestion control.
fn control(tcp: &Tcp) -> &'static str {
    match tcp.control {
        Control::Reno => "reno",
        Control::Cubic | Control::CubicLinux => "cubic",
        Control::Bbr => "bbr",
    }
}

/// The congestion control is given to routes: the sysctl takes, outside the host's own namespace, only what the host
/// allows to everybody (tcp_allowed_congestion_control), which the lab does not change.
pub(crate) fn check(tcp: &Tcp, namespace: &Namespace) -> Result<()> {
    let available = namespace.sysctl("net/ipv4/tcp_available_congestion_control")?;
    let wanted = control(tcp);
    if available.split_whitespace().any(|name| name == wanted) {
        return Ok(());
    }
    Err(LabError::Spec {
        key: "tcp.control",
        value: wanted.to_owned(),
        allowed: format!("this kernel offers {available}"),
    })
}

/// What TCP is told over each family.
pub(crate) fn conditions(tcp: &Tcp, families: Families) -> impl Iterator<Item = (String, String)> {
    families.list().iter().map(|&family| {
        let name = format!("TCP of clients and servers over {family}");
        (name, route_metrics(tcp, family))
    })
}

/// What of a TCP this kernel does otherwise, one sentence each.
pub fn differences(tcp: &Tcp, families: Families) -> Vec<&'static str> {
    let mut differences = Vec::new();
    if families.has(Family::V6) {
        differences.push("of segments the longer header of IPv6 takes 20 bytes");
    }
    if tcp.growth == Growth::PerAck {
        differences.push("the kernel counts acknowledged segments, not acknowledgements");
    }
    if tcp.control.is_cubic() && !tcp.hystart {
        differences.push("the kernel's CUBIC leaves its first slow start by HyStart");
    }
    if tcp.pacing && tcp.control != Control::Bbr {
        differences.push("the kernel paces BBR alone");
    }
    match tcp.recovery {
        Recovery::Reno => differences.push("the kernel without SACK recovers as NewReno does"),
        Recovery::NewReno => differences.push("the kernel's NewReno is slow but steady"),
        Recovery::NewRenoSlowButSteady | Recovery::Sack | Recovery::Rack => {}
    }
    if tcp.ports == Ports::Consecutive {
        differences.push("the kernel draws the ports of connections");
    }
    if tcp.lost_syns != Tcp::default().lost_syns {
        differences.push("the kernel begins with one segment after two lost SYNs");
    }
    differences
}

/// TCP segments sent again since the namespace was made (RFC 4022, tcpRetransSegs).
pub(crate) fn retransmitted(namespace: &Namespace) -> Result<u64> {
    Ok(namespace.protocol_counter("RetransSegs")?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_default_is_what_routes_say_of_linux() {
        assert_eq!(
            route_metrics(&Tcp::default(), Family::V4),
            "congctl cubic initcwnd 10 rto_min 200ms advmss 1460"
        );
        assert_eq!(
            route_metrics(&Tcp::default(), Family::V6),
            "congctl cubic initcwnd 10 rto_min 200ms advmss 1440"
        );
        assert!(differences(&Tcp::default(), Families::V4).is_empty());
        assert_eq!(differences(&Tcp::default(), Families::Both).len(), 1);
    }

    #[test]
    fn what_differs_from_the_default_is_told_or_named() {
        let old = Tcp {
            control: Control::Reno,
            hystart: false,
            pacing: true,
            recovery: Recovery::Reno,
            dsack: false,
            ecn: false,
            growth: Growth::PerAck,
            delayed_ack: None,
            initial_window: 2,
            lost_syns: 1,
            receive_window: 20,
            mss_bytes: 1000,
            header_bytes: 40,
            min_rto: Duration::from_secs(1),
            overhead: Duration::ZERO,
            ports: Ports::Consecutive,
        };
        assert_eq!(
            route_metrics(&old, Family::V4),
            "congctl reno initcwnd 2 rto_min 1000ms advmss 1000 quickack 1 window 20000"
        );
        let off = settings(&old).filter(|(_, value)| value == "0");
        let off: Vec<_> = off.map(|(key, _)| key).collect();
        assert_eq!(
            off,
            [
                "net/ipv4/tcp_sack",
                "net/ipv4/tcp_timestamps",
                "net/ipv4/tcp_ecn"
            ]
        );
        assert_eq!(differences(&old, Families::V4).len(), 5);
        let without_hystart = Tcp {
            hystart: false,
            ..Tcp::default()
        };
        assert_eq!(differences(&without_hystart, Families::V4).len(), 1);
    }
}
