//! Flows as people see them: both entries of a pair in one row.

use std::{collections::HashMap, net::SocketAddr, time::Duration};

use anabranch_core::{FlowRow, FlowState};
use anabranch_policy::Tried;
use anabranch_policy::abi::{self, Flow, FlowKey, Why};

/// Rows from the entries of both tables. `now` is CLOCK_MONOTONIC.
pub fn rows(entries: Vec<(FlowKey, Flow)>, now: Duration) -> Vec<FlowRow> {
    // Of an entry that was met twice, the later counts.
    let (lan, wan): (HashMap<_, _>, HashMap<_, _>) = entries
        .into_iter()
        .filter(|(_, flow)| flow.state & abi::STATE_PERMISSION == 0)
        .partition(|(key, _)| key.side == abi::SIDE_LAN);
    let mut rows: Vec<_> = lan
        .iter()
        .map(|(key, flow)| row(key, flow, wan.get(&other_key(key, flow)), now))
        .collect();
    rows.sort_by(|a, b| {
        (a.link, &a.proto, a.local, a.remote).cmp(&(b.link, &b.proto, b.local, b.remote))
    });
    rows
}

/// The link key of a LAN entry, as `make_other_key` in `bpf/lib/gateway/flow.h`.
fn other_key(key: &FlowKey, flow: &Flow) -> FlowKey {
    let other = FlowKey {
        local: flow.other_local,
        local_port: flow.other_port,
        side: abi::side_of(flow),
        ..*key
    };
    match flow.state & abi::STATE_APART {
        0 => other,
        _ => FlowKey {
            remote: abi::Addr::default(),
            remote_port: abi::BePort::default(),
            ..other
        },
    }
}

fn row(key: &FlowKey, lan: &Flow, wan: Option<&Flow>, now: Duration) -> FlowRow {
    let now_ns = now.as_nanos() as u64;
    let seen_ns = lan.seen_ns.max(wan.map_or(0, |flow| flow.seen_ns));
    let millis = |since_ns: u64| now_ns.saturating_sub(since_ns) / 1_000_000;
    FlowRow {
        proto: protocol(key.proto).to_owned(),
        state: state(lan.state),
        link: lan.link.into(),
        class: lan.class,
        why: why(lan.why),
        local: SocketAddr::new(key.local.ip(), key.local_port.get()),
        external: SocketAddr::new(lan.other_local.ip(), lan.other_port.get()),
        remote: remote(key, lan),
        packets_out: lan.packets,
        bytes_out: lan.bytes,
        packets_in: wan.map_or(0, |flow| flow.packets),
        bytes_in: wan.map_or(0, |flow| flow.bytes),
        age_ms: millis(lan.opened_ns),
        idle_ms: millis(seen_ns),
        tried: (0..abi::MAX_LINKS as u16)
            .filter(|&link| Tried(lan.tried).contains(link))
            .collect(),
    }
}

fn remote(key: &FlowKey, lan: &Flow) -> SocketAddr {
    if i32::from(key.proto) == libc::IPPROTO_TCP {
        SocketAddr::new(key.remote.ip(), key.remote_port.get())
    } else {
        SocketAddr::new(lan.first_remote().ip(), lan.first_remote_port.get())
    }
}

fn protocol(proto: u8) -> &'static str {
    match i32::from(proto) {
        libc::IPPROTO_TCP => "tcp",
        libc::IPPROTO_UDP => "udp",
        libc::IPPROTO_ICMPV6 => "icmp6",
        _ => "icmp",
    }
}

fn state(bits: u32) -> FlowState {
    if bits & abi::STATE_CLOSED != 0 {
        FlowState::Closed
    } else if bits & abi::STATE_CONFIRMED == 0 {
        FlowState::Unconfirmed
    } else if bits & (abi::STATE_FIN_LOCAL | abi::STATE_FIN_REMOTE) != 0 {
        FlowState::Closing
    } else {
        FlowState::Established
    }
}

/// The reason of a choice in words.
pub fn why(value: u8) -> String {
    match Why::try_from(u32::from(value)) {
        Ok(Why::NoneUsable) => "no link is usable",
        Ok(Why::OnlyOne) => "the only usable link",
        Ok(Why::Weighted) => "least load for its weight",
        Ok(Why::Best) => "greatest weight",
        Ok(Why::Random) => "random",
        Ok(Why::Hash) => "hash of addresses and ports",
        Ok(Why::Retried) => "every link had failed this flow",
        Ok(Why::Route) => "a specific route names it",
        Ok(Why::Session) => "session: the same pair of hosts uses it",
        Ok(Why::Host) => "the same LAN host uses it",
        Ok(Why::Endpoint) => "the same LAN address and port uses it",
        Ok(Why::Table) => "table of shares",
        Ok(Why::RandomTwo) => "the less loaded of two at random",
        Ok(Why::Turn) => "its turn",
        Ok(Why::Response) => "least response time for the destination's prefix",
        Ok(Why::Unknown) => "to learn its response time for the destination's prefix",
        Ok(Why::Soonest) => "expected to be done there first",
        Ok(Why::Loss) => "least response time times root of loss for the destination's prefix",
        Ok(Why::Race) => "the first to answer",
        Ok(Why::Probed) => "the first whose probe is answered",
        Ok(Why::Cold) => "best of those with few open flows",
        Err(_) => "unknown",
    }
    .to_owned()
}
