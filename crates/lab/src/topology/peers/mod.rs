//! Peers in the gateway's place: the kernel's routes, nftables, and who changes routes meanwhile. Of all links that translate,
//! what leaves is masqueraded.

pub(super) mod bgp;
mod steward;

use anabranch_scenario::{Family, Peer};

use super::spec::CLIENTS_MAX;
use super::{Access, CLIENTS, LAN_DEVICE, Lab, LabError, LabSpec, Result, lan, let_forward, wan};
use anabranch_testbed::netns::Namespace;

pub use steward::Steward;

/// Routing tables of links, and the marks that choose them.
const FIRST_TABLE: usize = 101;
/// Before the routes that the gateway's addresses came with.
const METRIC: u32 = 50;

/// Every ISP has every family. Whoever changes routes meanwhile is handed back.
pub(crate) fn start(peer: Peer, gateway: &Namespace, spec: &LabSpec) -> Result<Option<Steward>> {
    masquerade(gateway, spec)?;
    let_forward(gateway, spec.families)?;
    match peer {
        Peer::OneLink => {}
        Peer::Static => share(gateway, spec)?,
        Peer::Nftables => mark(gateway, spec)?,
        Peer::Ecmp => spread(gateway, spec)?,
        Peer::DeadGateway { .. } | Peer::RouteControl { .. } => {
            bind(gateway, spec)?;
            return Steward::start(peer, gateway, spec).map(Some);
        }
        Peer::Bgp(_) | Peer::Ron { .. } | Peer::Mptcp => return Err(modelled(peer)),
    }
    Ok(None)
}

fn modelled(peer: Peer) -> LabError {
    LabError::Spec {
        key: "policies",
        value: peer.to_string(),
        allowed: "is a model; run it in the simulator".to_owned(),
    }
}

/// The routing tables of the links.
pub(crate) fn tables(spec: &LabSpec) -> impl Iterator<Item = usize> {
    (FIRST_TABLE..).take(spec.isps.len())
}

/// A routing table for each link.
fn lay_tables(gateway: &Namespace, spec: &LabSpec) -> Result<()> {
    for &family in spec.families.list() {
        for (index, access) in accesses(spec, family)?.into_iter().enumerate() {
            let (table, device) = (FIRST_TABLE + index, wan(index));
            let next_hop = access.next_hop;
            gateway.ip(&format!(
                "route add default via {next_hop} dev {device} table {table}"
            ))?;
        }
    }
    Ok(())
}

/// Packets with the number of a link's table as their mark take that link.
fn lay_marks(gateway: &Namespace, spec: &LabSpec) -> Result<()> {
    lay_tables(gateway, spec)?;
    for &family in spec.families.list() {
        for table in tables(spec) {
            let flag = flag(family);
            gateway.ip(&format!(
                "{flag} rule add fwmark {table} lookup {table} priority {table}"
            ))?;
        }
    }
    Ok(())
}

/// Each client has its link, in turn by its number.
fn share(gateway: &Namespace, spec: &LabSpec) -> Result<()> {
    lay_tables(gateway, spec)?;
    for &family in spec.families.list() {
        let tables = (FIRST_TABLE..FIRST_TABLE + spec.isps.len()).cycle();
        let clients = spec.clients_of(family).zip(tables);
        let rule = |(client, table)| format!("rule add from {client} lookup {table}\n");
        let rules: String = clients.map(rule).collect();
        gateway.exec_with_input("ip", &[flag(family), "-batch", "-"], &rules)?;
    }
    Ok(())
}

/// The clients' connections begin over the first link, and join over each other one from an address that has that link.
pub(super) fn multipath(lab: &Lab) -> Result<()> {
    let (spec, gateway) = (&lab.spec, &lab.gateway);
    if let Some(isp) = spec.isps.iter().find(|isp| isp.routed) {
        return Err(LabError::Spec {
            key: "nat",
            value: format!("false for {}", isp.name),
            allowed: "MPTCP needs an address of each link; leave it out".to_owned(),
        });
    }
    masquerade(gateway, spec)?;
    let_forward(gateway, spec.families)?;
    lay_tables(gateway, spec)?;
    let others = spec.isps.len() - 1;
    for namespace in [&lab.clients, &lab.internet] {
        namespace.ip(&format!("mptcp limits set subflows {others}"))?;
    }
    for &family in spec.families.list() {
        let (flag, (_, length)) = (flag(family), lan(family));
        for index in 1..spec.isps.len() {
            let address = CLIENTS.address(family, u32::from(CLIENTS_MAX) + index as u32);
            let table = FIRST_TABLE + index;
            gateway.ip(&format!("{flag} rule add from {address} lookup {table}"))?;
            lab.clients.add_address("lan", address, length)?;
            let endpoint = format!("mptcp endpoint add {address} dev lan subflow");
            lab.clients.ip(&endpoint)?;
        }
    }
    Ok(())
}

/// A random mark for each connection, and a table for each mark.
fn mark(gateway: &Namespace, spec: &LabSpec) -> Result<()> {
    lay_marks(gateway, spec)?;
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
    gateway.nft(&rules)?;
    Ok(())
}

/// A connection whose source is a link's stays there, whatever routes say later.
fn bind(gateway: &Namespace, spec: &LabSpec) -> Result<()> {
    lay_marks(gateway, spec)?;
    let note = |index| {
        let (device, table) = (wan(index), FIRST_TABLE + index);
        format!("oifname {device} ct state new ct mark set {table}\n")
    };
    let notes: String = translating(spec).map(note).collect();
    let rules = format!(
        "table inet anabranch_peer {{
            chain note {{
                type filter hook postrouting priority mangle;
                {notes}
            }}
            chain follow {{
                type filter hook prerouting priority mangle;
                iifname {LAN_DEVICE} meta mark set ct mark
            }}
        }}"
    );
    gateway.nft(&rules)?;
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
    let devices: Vec<_> = translating(spec).map(wan).collect();
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
    gateway.nft(&rules)?;
    Ok(())
}

/// Those of the links that have NAT.
fn translating(spec: &LabSpec) -> impl Iterator<Item = usize> {
    (0..spec.isps.len()).filter(|index| !spec.isps[*index].routed)
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
