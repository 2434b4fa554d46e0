//! The rows of the result: what each is called, which way is better, and what it must reach.

use crate::testbed::Contender;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    More,
    Less,
}

/// A demand on the gateway.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// The ratio to another contender; above 1 is better, whatever the row.
    Times(f64, Contender),
    AtMost(f64),
}

pub struct Row {
    pub name: &'static str,
    pub label: &'static str,
    pub unit: &'static str,
    pub better: Better,
    pub targets: &'static [Target],
}

const fn row(
    name: &'static str,
    label: &'static str,
    unit: &'static str,
    better: Better,
    targets: &'static [Target],
) -> Row {
    Row {
        name,
        label,
        unit,
        better,
        targets,
    }
}

const GOODPUT: &[Target] = &[
    Target::Times(1.1, Contender::Nftables),
    Target::Times(1.0, Contender::Forwarding),
];
const FEW: &[Target] = &[Target::AtMost(150.0)];
const SCAN: &[Target] = &[Target::AtMost(2500.0)];
const CLASS: &[Target] = &[Target::AtMost(300.0)];
const PICK: &[Target] = &[Target::AtMost(300.0)];
/// What a race may add to the fastest link's round trip.
const RACE: &[Target] = &[Target::AtMost(1000.0)];
const ESTABLISHED: &[Target] = &[Target::AtMost(200.0)];

/// Rows, and those of what remains of them without redirect alone.
pub const LESS_REDIRECT: [(&str, &str); 8] = [
    ("established_tcp_out", "established_tcp_out_less_redirect"),
    ("established_tcp_in", "established_tcp_in_less_redirect"),
    ("established_udp_out", "established_udp_out_less_redirect"),
    ("established_udp_in", "established_udp_in_less_redirect"),
    (
        "established_tcp_ipv6_out",
        "established_tcp_ipv6_out_less_redirect",
    ),
    (
        "established_tcp_ipv6_in",
        "established_tcp_ipv6_in_less_redirect",
    ),
    (
        "established_udp_ipv6_out",
        "established_udp_ipv6_out_less_redirect",
    ),
    (
        "established_udp_ipv6_in",
        "established_udp_ipv6_in_less_redirect",
    ),
];

/// All rows, in the order of the table.
pub const ROWS: &[Row] = &[
    row(
        "goodput_1_stream",
        "TCP goodput, 1 stream",
        "Gbit/s",
        Better::More,
        GOODPUT,
    ),
    row(
        "goodput_4_streams",
        "TCP goodput, 4 streams",
        "Gbit/s",
        Better::More,
        GOODPUT,
    ),
    row(
        "connections",
        "TCP connections",
        "1/s",
        Better::More,
        &[Target::Times(1.3, Contender::Nftables)],
    ),
    row(
        "connections_ipv6",
        "TCP connections over IPv6",
        "1/s",
        Better::More,
        &[Target::Times(1.3, Contender::Nftables)],
    ),
    row(
        "packets_64_byte",
        "64-byte UDP packets, one processor",
        "1/s",
        Better::More,
        &[
            Target::Times(2.0, Contender::Nftables),
            Target::Times(0.85, Contender::Redirect),
        ],
    ),
    row(
        "latency_p50",
        "UDP round trip, median",
        "µs",
        Better::Less,
        &[],
    ),
    row(
        "latency_p99",
        "UDP round trip, 99th percentile",
        "µs",
        Better::Less,
        &[],
    ),
    row(
        "added_latency_p50",
        "… more than forwarding, median",
        "µs",
        Better::Less,
        &[],
    ),
    row(
        "added_latency_p99",
        "… more than forwarding, 99th percentile",
        "µs",
        Better::Less,
        &[],
    ),
    row(
        "established_tcp_out",
        "established path, TCP out",
        "ns",
        Better::Less,
        ESTABLISHED,
    ),
    row(
        "established_tcp_in",
        "established path, TCP in",
        "ns",
        Better::Less,
        ESTABLISHED,
    ),
    row(
        "established_udp_out",
        "established path, UDP out",
        "ns",
        Better::Less,
        ESTABLISHED,
    ),
    row(
        "established_udp_in",
        "established path, UDP in",
        "ns",
        Better::Less,
        ESTABLISHED,
    ),
    row(
        "established_tcp_out_less_redirect",
        "… TCP out, less redirect alone",
        "ns",
        Better::Less,
        &[],
    ),
    row(
        "established_tcp_in_less_redirect",
        "… TCP in, less redirect alone",
        "ns",
        Better::Less,
        &[],
    ),
    row(
        "established_udp_out_less_redirect",
        "… UDP out, less redirect alone",
        "ns",
        Better::Less,
        &[],
    ),
    row(
        "established_udp_in_less_redirect",
        "… UDP in, less redirect alone",
        "ns",
        Better::Less,
        &[],
    ),
    row(
        "established_tcp_ipv6_out",
        "established path, TCP over IPv6 out",
        "ns",
        Better::Less,
        ESTABLISHED,
    ),
    row(
        "established_tcp_ipv6_in",
        "established path, TCP over IPv6 in",
        "ns",
        Better::Less,
        ESTABLISHED,
    ),
    row(
        "established_udp_ipv6_out",
        "established path, UDP over IPv6 out",
        "ns",
        Better::Less,
        ESTABLISHED,
    ),
    row(
        "established_udp_ipv6_in",
        "established path, UDP over IPv6 in",
        "ns",
        Better::Less,
        ESTABLISHED,
    ),
    row(
        "established_tcp_ipv6_out_less_redirect",
        "… TCP over IPv6 out, less redirect alone",
        "ns",
        Better::Less,
        &[],
    ),
    row(
        "established_tcp_ipv6_in_less_redirect",
        "… TCP over IPv6 in, less redirect alone",
        "ns",
        Better::Less,
        &[],
    ),
    row(
        "established_udp_ipv6_out_less_redirect",
        "… UDP over IPv6 out, less redirect alone",
        "ns",
        Better::Less,
        &[],
    ),
    row(
        "established_udp_ipv6_in_less_redirect",
        "… UDP over IPv6 in, less redirect alone",
        "ns",
        Better::Less,
        &[],
    ),
    row(
        "established_tcp_out_1000000_flows",
        "… TCP out, 1 000 000 flows at random",
        "ns",
        Better::Less,
        &[],
    ),
    row(
        "established_tcp_in_1000000_flows",
        "… TCP in, 1 000 000 flows at random",
        "ns",
        Better::Less,
        &[],
    ),
    row(
        "slowdown_1000000_flows",
        "1 000 000 flows against 1000",
        "times",
        Better::Less,
        &[Target::AtMost(2.0)],
    ),
    row("opening_tcp", "opening a TCP flow", "ns", Better::Less, &[]),
    row("opening_udp", "opening a UDP flow", "ns", Better::Less, &[]),
    row(
        "choice_16_weighted",
        "a choice among 16, least load for its weight",
        "ns",
        Better::Less,
        FEW,
    ),
    row(
        "choice_16_best",
        "… greatest weight",
        "ns",
        Better::Less,
        FEW,
    ),
    row(
        "choice_256_weighted",
        "a choice among 256, least load for its weight",
        "ns",
        Better::Less,
        SCAN,
    ),
    row(
        "choice_256_best",
        "… greatest weight",
        "ns",
        Better::Less,
        SCAN,
    ),
    row(
        "choice_256_table",
        "… consistent table",
        "ns",
        Better::Less,
        PICK,
    ),
    row(
        "choice_256_two",
        "… two at random",
        "ns",
        Better::Less,
        PICK,
    ),
    row("choice_256_turns", "… in turn", "ns", Better::Less, PICK),
    row(
        "rules_63",
        "the class of a flow, 63 rules less none",
        "ns",
        Better::Less,
        CLASS,
    ),
    row(
        "packets_64_byte_1000_flows",
        "64-byte UDP packets, 1000 flows in turn",
        "1/s",
        Better::More,
        &[],
    ),
    row(
        "packets_64_byte_1000000_flows",
        "64-byte UDP packets, 1 000 000 flows in turn",
        "1/s",
        Better::More,
        &[],
    ),
    row(
        "races",
        "TCP connections, each a race over both links",
        "1/s",
        Better::More,
        &[],
    ),
    row("races_ipv6", "… over IPv6", "1/s", Better::More, &[]),
    row(
        "set_up",
        "set-up of a connection, one by one",
        "µs",
        Better::Less,
        &[],
    ),
    row(
        "set_up_added",
        "… more where it races",
        "µs",
        Better::Less,
        RACE,
    ),
    row(
        "memory_per_flow",
        "kernel memory per flow at 1 000 000",
        "bytes",
        Better::Less,
        &[Target::AtMost(600.0)],
    ),
    row(
        "memory_beside_flows",
        "kernel memory beside the flows",
        "MB",
        Better::Less,
        &[],
    ),
];
