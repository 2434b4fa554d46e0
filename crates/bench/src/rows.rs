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

/// `NAME: LABEL, UNIT, BETTER => TARGETS;` each, or without targets.
macro_rules! rows {
    (@targets) => { &[] };
    (@targets $targets:expr) => { $targets };
    ($($name:literal: $label:literal, $unit:literal, $better:ident $(=> $targets:expr)?;)+) => {
        &[$(Row {
            name: $name,
            label: $label,
            unit: $unit,
            better: Better::$better,
            targets: rows!(@targets $($targets)?),
        }),+]
    };
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
pub fn less_redirect() -> impl Iterator<Item = (&'static str, &'static str)> {
    let names = ROWS.iter().map(|row| row.name);
    names.filter_map(|less| Some((less.strip_suffix("_less_redirect")?, less)))
}

/// All rows, in the order of the table.
pub const ROWS: &[Row] = rows! {
    "goodput_1_stream": "TCP goodput, 1 stream", "Gbit/s", More => GOODPUT;
    "goodput_4_streams": "TCP goodput, 4 streams", "Gbit/s", More => GOODPUT;
    "connections": "TCP connections", "1/s", More => &[Target::Times(1.3, Contender::Nftables)];
    "connections_ipv6": "TCP connections over IPv6", "1/s", More => &[Target::Times(1.3, Contender::Nftables)];
    "packets_64_byte": "64-byte UDP packets, one processor", "1/s", More
        => &[Target::Times(2.0, Contender::Nftables), Target::Times(0.85, Contender::Redirect)];
    "latency_p50": "UDP round trip, median", "µs", Less;
    "latency_p99": "UDP round trip, 99th percentile", "µs", Less;
    "added_latency_p50": "… more than forwarding, median", "µs", Less;
    "added_latency_p99": "… more than forwarding, 99th percentile", "µs", Less;
    "established_tcp_out": "established path, TCP out", "ns", Less => ESTABLISHED;
    "established_tcp_in": "established path, TCP in", "ns", Less => ESTABLISHED;
    "established_udp_out": "established path, UDP out", "ns", Less => ESTABLISHED;
    "established_udp_in": "established path, UDP in", "ns", Less => ESTABLISHED;
    "established_tcp_out_less_redirect": "… TCP out, less redirect alone", "ns", Less;
    "established_tcp_in_less_redirect": "… TCP in, less redirect alone", "ns", Less;
    "established_udp_out_less_redirect": "… UDP out, less redirect alone", "ns", Less;
    "established_udp_in_less_redirect": "… UDP in, less redirect alone", "ns", Less;
    "established_tcp_ipv6_out": "established path, TCP over IPv6 out", "ns", Less => ESTABLISHED;
    "established_tcp_ipv6_in": "established path, TCP over IPv6 in", "ns", Less => ESTABLISHED;
    "established_udp_ipv6_out": "established path, UDP over IPv6 out", "ns", Less => ESTABLISHED;
    "established_udp_ipv6_in": "established path, UDP over IPv6 in", "ns", Less => ESTABLISHED;
    "established_tcp_ipv6_out_less_redirect": "… TCP over IPv6 out, less redirect alone", "ns", Less;
    "established_tcp_ipv6_in_less_redirect": "… TCP over IPv6 in, less redirect alone", "ns", Less;
    "established_udp_ipv6_out_less_redirect": "… UDP over IPv6 out, less redirect alone", "ns", Less;
    "established_udp_ipv6_in_less_redirect": "… UDP over IPv6 in, less redirect alone", "ns", Less;
    "established_tcp_out_1000000_flows": "… TCP out, 1 000 000 flows at random", "ns", Less;
    "established_tcp_in_1000000_flows": "… TCP in, 1 000 000 flows at random", "ns", Less;
    "slowdown_1000000_flows": "1 000 000 flows against 1000", "times", Less => &[Target::AtMost(2.0)];
    "opening_tcp": "opening a TCP flow", "ns", Less;
    "opening_udp": "opening a UDP flow", "ns", Less;
    "choice_16_weighted": "a choice among 16, least load for its weight", "ns", Less => FEW;
    "choice_16_best": "… greatest weight", "ns", Less => FEW;
    "choice_256_weighted": "a choice among 256, least load for its weight", "ns", Less => SCAN;
    "choice_256_best": "… greatest weight", "ns", Less => SCAN;
    "choice_256_table": "… consistent table", "ns", Less => PICK;
    "choice_256_two": "… two at random", "ns", Less => PICK;
    "choice_256_turns": "… in turn", "ns", Less => PICK;
    "rules_63": "the class of a flow, 63 rules less none", "ns", Less => CLASS;
    "packets_64_byte_1000_flows": "64-byte UDP packets, 1000 flows in turn", "1/s", More;
    "packets_64_byte_1000000_flows": "64-byte UDP packets, 1 000 000 flows in turn", "1/s", More;
    "races": "TCP connections, each a race over both links", "1/s", More;
    "races_ipv6": "… over IPv6", "1/s", More;
    "set_up": "set-up of a connection, one by one", "µs", Less;
    "set_up_added": "… more where it races", "µs", Less => RACE;
    "memory_per_flow": "kernel memory per flow at 1 000 000", "bytes", Less => &[Target::AtMost(600.0)];
    "memory_beside_flows": "kernel memory beside the flows", "MB", Less;
};
