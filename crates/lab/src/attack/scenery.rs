//! Scenes, set up on the site.

use std::net::IpAddr;

use anabranch_scenario::Family;
use anabranch_testbed::netns::Namespace;

use super::scene::Scene;
use super::service::virtual_address;
use super::site::{ATTACKER, CONTAINER, HOST_DEVICE, ISP_DEVICE, Site, foreign};
use crate::topology::{CLIENTS, LAN_DEVICE, Result, host_bits, lan, server_network, transit, wan};

/// All that a captive link lets through.
const CAPTIVE: &str = "table inet captive {
    chain forward {
        type filter hook forward priority filter; policy drop;
        meta l4proto { icmp, ipv6-icmp } accept
        udp dport 53 accept
        udp sport 53 accept
    }
}
";

impl Scene {
    /// Before the gateway starts.
    pub fn prepare(self, site: &Site) -> Result<()> {
        match self {
            Self::BesideRules => add_rule(site),
            Self::Container => publish(site),
            Self::KnownNeighbours => introduce(site),
            Self::Advertised => follow_advertisements(site),
            Self::Service => prepare_balancer(site),
            Self::Plain | Self::Captive | Self::Learning => Ok(()),
        }
    }

    /// Once the gateway is ready.
    pub fn break_link(self, site: &Site) -> Result<()> {
        if let Some(broken) = self.broken() {
            site.routers[broken].nft(CAPTIVE)?;
        }
        Ok(())
    }
}

/// As a mesh VPN has it: a table of its own before the main table, for a network that nobody here asks.
fn add_rule(site: &Site) -> Result<()> {
    let (family, network) = match site.family() {
        Family::V4 => ("-4", "10.99.0.0/16"),
        Family::V6 => ("-6", "fd7a:115c:a1e0::/48"),
    };
    for words in [
        format!("{family} route add unreachable {network} table 52"),
        format!("{family} rule add pref 5270 lookup 52"),
    ] {
        site.gateway.ip(&words)?;
    }
    Ok(())
}

/// The questions that come in by links are the container's, and what it answers to nobody ends at the ISPs.
fn publish(site: &Site) -> Result<()> {
    let family = site.family();
    let (flag, ip, server) = match (family, CONTAINER.address(family, 1)) {
        (Family::V4, server) => ("-4", "ip", server.to_string()),
        (Family::V6, server) => ("-6", "ip6", format!("[{server}]")),
    };
    let rules = format!(
        "table inet container {{
            chain publish {{
                type nat hook prerouting priority dstnat;
                iifname \"wan*\" udp dport 53 dnat {ip} to {server}
            }}
        }}"
    );
    site.gateway.nft(&rules)?;
    let (nobody, length) = foreign(family);
    for router in &site.routers {
        router.ip(&format!("{flag} route add blackhole {nobody}/{length}"))?;
    }
    Ok(())
}

fn introduce(site: &Site) -> Result<()> {
    let (gateway, internet, family) = (&site.gateway, &site.internet, site.family());
    let (router, _) = lan(family);
    for host in [&site.victim, &site.newcomer] {
        know(host, HOST_DEVICE, router, (gateway, LAN_DEVICE))?;
    }
    for (index, isp) in site.routers.iter().enumerate() {
        let ([near, far], _) = transit(index, family);
        let (upstream, device) = ("upstream", format!("isp{index}"));
        know(
            isp,
            ISP_DEVICE,
            site.external_of(index),
            (gateway, &wan(index)),
        )?;
        know(isp, upstream, far, (internet, &device))?;
        know(internet, &device, near, (isp, upstream))?;
    }
    Ok(())
}

/// Whose address is that of a device elsewhere, and will be.
fn know(
    host: &Namespace,
    device: &str,
    address: IpAddr,
    (other, its): (&Namespace, &str),
) -> Result<()> {
    let mac = other.mac(its)?.map(|byte| format!("{byte:02x}")).join(":");
    let known = format!("neigh replace {address} lladdr {mac} dev {device} nud permanent");
    host.ip(&known).map(drop).map_err(Into::into)
}

/// Though they forward.
fn follow_advertisements(site: &Site) -> Result<()> {
    for index in 0..site.routers.len() {
        for (key, value) in [("accept_ra", "2"), ("autoconf", "1")] {
            let key = format!("net/ipv6/conf/{}/{key}", wan(index));
            site.gateway.set_sysctl(&key, value)?;
        }
    }
    Ok(())
}

/// The balancer has the virtual address, knows the servers' network, and reaches everybody else by the attacker.
fn prepare_balancer(site: &Site) -> Result<()> {
    let (balancer, family) = (&site.gateway, site.family());
    let address = virtual_address(family);
    balancer.add_address("lo", address, host_bits(address))?;
    // A default route alone would not do for servers.
    let servers = server_network(family);
    balancer.ip(&format!("route add {servers} via {}", site.next_hop()))?;
    let (network, length) = foreign(family);
    let attacker = CLIENTS.address(family, ATTACKER);
    balancer.ip(&format!(
        "route add {network}/{length} via {attacker} dev {LAN_DEVICE}"
    ))?;
    balancer.set_sysctl("net/ipv4/ip_local_port_range", "1024 65535")?;
    balancer.set_sysctl("net/ipv4/tcp_tw_reuse", "1")?;
    Ok(balancer.set_sysctl("net/core/somaxconn", "4096")?)
}
