//! Peers in the gateway's place: the kernel's routes, and nftables. Of all links that translate, what leaves is masqueraded.

use anabranch_scenario::{Family, Peer};

use super::{Access, LAN_DEVICE, LabError, LabSpec, Result, let_forward, wan};
use anabranch_testbed::netns::Namespace;

/// Routing tables of links, and the marks that choose them.
const FIRST_TABLE: usize = 101;
/// Before the routes that the gateway's addresses came with.
const METRIC: u32 = 50;

/// Every ISP has every family.
pub(crate) fn start(peer: Peer, gateway: &Namespace, spec: &LabSpec) -> Result<()> {
    match peer {
        Peer::OneLink => {}
        Peer::Nftables => mark(gateway, spec)?,
        Peer::Ecmp => spread(gateway, spec)?,
        Peer::Static | Peer::DeadGateway { .. } | Peer::Bgp(_) => return Err(modelled(peer)),
        Peer::RouteControl { .. } | Peer::Ron { .. } => return Err(modelled(peer)),
    }
    masquerade(gateway, spec)?;
    let_forward(gateway, spec.families)
}

fn modelled(peer: Peer) -> LabError {
    LabError::Spec {
        key: "policies",
        value: peer.to_string(),
        allowed: "is a model; run it in the simulator".to_owned(),
    }
}

/// A random mark for each connection, and a table for each mark.
fn mark(gateway: &Namespace, spec: &LabSpec) -> Result<()> {
    for &family in spec.families.list() {
        for (index, access) in accesses(spec, family)?.into_iter().enumerate() {
            let (table, device) = (FIRST_TABLE + index, wan(index));
            let (flag, next_hop) = (flag(family), access.next_hop);
            gateway.ip(&format!(
                "route add default via {next_hop} dev {device} table {table}"
            ))?;
            gateway.ip(&format!(
                "{flag} rule add fwmark {table} lookup {table} priority {table}"
            ))?;
        }
    }
    let rules = format!(
        "table inet anabranch_peer {{
            chain choose {{
                type filter hook prerouting priority mangle;
                iifname {LAN_DEVICE} ct state new ct mark set numgen random mod {} offset {FIRST_TABLE}
                iifname {LAN_DEVICE} meta mark set ct mark
            }}
        }}",
        spec.isps.len()
    );
    gateway.exec_with_input("nft", &["-f", "-"], &rules)?;
    Ok(())
}

/// One route with every link as a next hop, which the kernel chooses by the hash of addresses and ports.
fn spread(gateway: &Namespace, spec: &LabSpec) -> Result<()> {
    for &family in spec.families.list() {
        let hops: String = accesses(spec, family)?
            .iter()
            .enumerate()
            .map(|(index, access)| {
                format!(
                    " nexthop via {} dev {} weight 1",
                    access.next_hop,
                    wan(index)
                )
            })
            .collect();
        let flag = flag(family);
        gateway.ip(&format!("{flag} route add default metric {METRIC}{hops}"))?;
        let policy = match family {
            Family::V4 => "net/ipv4/fib_multipath_hash_policy",
            Family::V6 => "net/ipv6/fib_multipath_hash_policy",
        };
        gateway.set_sysctl(policy, "1")?;
    }
    Ok(())
}

fn masquerade(gateway: &Namespace, spec: &LabSpec) -> Result<()> {
    let links = spec.isps.iter().enumerate();
    let translating = links.filter(|(_, isp)| !isp.routed);
    let devices: Vec<_> = translating.map(|(index, _)| wan(index)).collect();
    if devices.is_empty() {
        return Ok(());
    }
    let rules = format!(
        "table inet anabranch_peer {{
            chain translate {{
                type nat hook postrouting priority srcnat;
                oifname {{ {} }} masquerade
            }}
        }}",
        devices.join(", ")
    );
    gateway.exec_with_input("nft", &["-f", "-"], &rules)?;
    Ok(())
}

/// Of every ISP.
fn accesses(spec: &LabSpec, family: Family) -> Result<Vec<Access>> {
    let access = |isp: &super::IspSpec| {
        isp.access[family].ok_or_else(|| LabError::NoSuchFamily {
            link: isp.name.clone(),
            family,
        })
    };
    spec.isps.iter().map(access).collect()
}

/// Of `ip`.
fn flag(family: Family) -> &'static str {
    match family {
        Family::V4 => "-4",
        Family::V6 => "-6",
    }
}
