//! Cables, addresses and routes, one by one.

use std::net::IpAddr;

use anabranch_core::rules::Prefix;
use anabranch_scenario::{Families, Family, Tcp};
use anabranch_testbed::emulator::{Emulator, End, Link};
use anabranch_testbed::netns::Namespace;

use super::spec::{Access, LAN_DEVICE, LAN_PREFIX_LEN, LabSpec, SERVERS};
use super::{Result, tcp};

pub(crate) fn settle(namespace: &Namespace, tcp: &Tcp, families: Families) -> Result<()> {
    for (key, value) in tcp::settings(tcp) {
        namespace.set_sysctl(key, &value)?;
    }
    namespace.set_ipv6(families.has(Family::V6))?;
    for scope in ["all", "default"] {
        namespace.set_sysctl(&format!("net/ipv4/conf/{scope}/rp_filter"), "0")?;
    }
    Ok(())
}

pub(crate) fn wan(index: usize) -> String {
    format!("wan{index}")
}

/// Lets the kernel pass on what is not for itself.
pub(crate) fn let_forward(namespace: &Namespace, families: Families) -> Result<()> {
    for family in families.list() {
        let key = match family {
            Family::V4 => "net/ipv4/ip_forward",
            Family::V6 => "net/ipv6/conf/all/forwarding",
        };
        namespace.set_sysctl(key, "1")?;
    }
    Ok(())
}

/// Bits of an address.
pub(crate) fn host_bits(address: IpAddr) -> u8 {
    if address.is_ipv6() { 128 } else { 32 }
}

/// The network that is one address.
pub(super) fn host(address: IpAddr) -> String {
    format!("{address}/{}", host_bits(address))
}

/// The gateway's address on the LAN, and the length of its network.
pub(crate) fn lan(family: Family) -> (IpAddr, u8) {
    match family {
        Family::V4 => ([10, 80, 0, 1].into(), LAN_PREFIX_LEN),
        Family::V6 => ([0xfd00, 0x80, 0, 0, 0, 0, 0, 1].into(), 64),
    }
}

pub(crate) fn lan_network(family: Family) -> String {
    let (address, length) = lan(family);
    Prefix::new(address, length).to_string()
}

/// The network of the web server's addresses.
pub(crate) fn server_network(family: Family) -> String {
    let length = match family {
        Family::V4 => 24,
        Family::V6 => 64,
    };
    Prefix::new(SERVERS.address(family, 0), length).to_string()
}

pub(super) fn lay_lan(spec: &LabSpec, clients: &Namespace, gateway: &Namespace) -> Result<()> {
    clients.veth("lan", gateway, LAN_DEVICE)?;
    clients.set_offloads("lan", spec.lan_offloads)?;
    gateway.set_offloads(LAN_DEVICE, spec.lan_offloads)?;
    let mut batch = String::new();
    for &family in spec.families.list() {
        let (router, length) = lan(family);
        gateway.add_address(LAN_DEVICE, router, length)?;
        let unasked = match family {
            Family::V4 => "",
            Family::V6 => "nodad",
        };
        for address in spec.clients_of(family) {
            batch += &format!("address add {address}/{length} dev lan {unasked}\n");
        }
        let metrics = tcp::route_metrics(&spec.tcp, family);
        batch += &format!("route add default via {router} {metrics}\n");
    }
    clients.exec_with_input("ip", &["-batch", "-"], &batch)?;
    Ok(())
}

pub(super) fn lay_access(
    index: usize,
    spec: &LabSpec,
    emulator: &Emulator,
    gateway: &Namespace,
    router: &Namespace,
) -> Result<Link> {
    let (device, isp) = (wan(index), &spec.isps[index]);
    let near = End {
        namespace: gateway,
        device: &device,
    };
    let far = End {
        namespace: router,
        device: "customer",
    };
    let link = emulator.connect(&isp.name, near, far, isp.shape.clone())?;
    for (_, access) in isp.accesses_of(spec.families) {
        router.add_address("customer", access.next_hop, access.prefix_len)?;
    }
    address_wan(index, spec, gateway)?;
    Ok(link)
}

/// What DHCP and advertisements would do: an address and a default route of each family, the first ISP's preferred.
pub(crate) fn address_wan(index: usize, spec: &LabSpec, gateway: &Namespace) -> Result<()> {
    let mut accesses = spec.isps[index].accesses_of(spec.families);
    accesses.try_for_each(|(_, access)| address_family(index, access, gateway))
}

pub(super) fn address_family(index: usize, access: Access, gateway: &Namespace) -> Result<()> {
    let (device, metric) = (wan(index), 100 + index);
    gateway.add_address(&device, access.address, access.prefix_len)?;
    let next_hop = access.next_hop;
    gateway.ip(&format!(
        "route replace default via {next_hop} dev {device} metric {metric}"
    ))?;
    Ok(())
}

/// The ends of the cable between an ISP's router and the internet, and the length of their network: 192.0.2.0/30 and the
/// following, 2001:db8:2::/64 and the following.
pub(crate) fn transit(index: usize, family: Family) -> ([IpAddr; 2], u8) {
    match family {
        Family::V4 => {
            let first = 4 * index as u8;
            let ends = [first + 1, first + 2].map(|last| [192, 0, 2, last].into());
            (ends, 30)
        }
        Family::V6 => {
            let end = |last| [0x2001, 0xdb8, 2, index as u16, 0, 0, 0, last].into();
            ([end(1), end(2)], 64)
        }
    }
}

/// The line beyond, if it is a new one; `shared` is one that there is.
pub(crate) fn lay_transit(
    index: usize,
    spec: &LabSpec,
    emulator: &Emulator,
    [router, internet]: [&Namespace; 2],
    shared: Option<&mut Link>,
) -> Result<Option<Link>> {
    let device = format!("isp{index}");
    let isp = &spec.isps[index];
    let [near, far] = [(router, "upstream"), (internet, device.as_str())]
        .map(|(namespace, device)| End { namespace, device });
    let hop = match (&isp.beyond, shared) {
        (None, _) => router.veth("upstream", internet, &device).map(|()| None)?,
        (Some(_), Some(line)) => emulator.join(line, near, far).map(|()| None)?,
        (Some(shape), None) => {
            let name = match &isp.shares {
                Some(shared) => format!("{shared}, which is shared"),
                None => format!("{} beyond", isp.name),
            };
            Some(emulator.connect(&name, near, far, shape.clone())?)
        }
    };
    router.set_mtu("upstream", isp.path_mtu_bytes)?;
    internet.set_mtu(&device, isp.path_mtu_bytes)?;
    let_forward(router, spec.families)?;
    for (family, access) in isp.accesses_of(spec.families) {
        let ([router_end, internet_end], length) = transit(index, family);
        router.add_address("upstream", router_end, length)?;
        internet.add_address(&device, internet_end, length)?;
        router.ip(&format!("route add default via {internet_end}"))?;
        route_back(index, access, spec, internet)?;
        if isp.routed {
            lead_lan(access, router)?;
        }
    }
    Ok(hop)
}

/// The router sends to the LAN by the gateway.
pub(super) fn lead_lan(access: Access, router: &Namespace) -> Result<()> {
    let address = access.address;
    let network = lan_network(address.into());
    router.ip(&format!("route replace {network} via {address}"))?;
    Ok(())
}

/// The internet sends to the LAN by this ISP.
pub(crate) fn route_lan(
    index: usize,
    family: Family,
    spec: &LabSpec,
    internet: &Namespace,
) -> Result<()> {
    let route = route_to_lan(index, family, spec);
    internet.ip(&format!("route replace {route}"))?;
    Ok(())
}

/// The internet's route to the LAN by an ISP, in the words of `ip route`.
pub(super) fn route_to_lan(index: usize, family: Family, spec: &LabSpec) -> String {
    let ([router_end, _], _) = transit(index, family);
    let (network, metrics) = (lan_network(family), tcp::route_metrics(&spec.tcp, family));
    format!("{network} via {router_end} {metrics}")
}

/// The server announces its segments even over a smaller path MTU, so that clients have to discover it.
pub(super) fn route_back(
    index: usize,
    access: Access,
    spec: &LabSpec,
    internet: &Namespace,
) -> Result<()> {
    let family = access.address.into();
    let ([router_end, _], _) = transit(index, family);
    let (address, metrics) = (host(access.address), tcp::route_metrics(&spec.tcp, family));
    internet.ip(&format!("route add {address} via {router_end} {metrics}"))?;
    Ok(())
}
