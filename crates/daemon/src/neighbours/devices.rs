//! Findings about devices and addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anabranch_api::{Finding, Severity};

use super::{
    BRIDGE_PORT, DUPLICATE_ADDRESS, SHARED_SEGMENT, UNLISTED_NETWORK, finding, is_configured,
};
use crate::config::Config;
use crate::observe::{Device, Prefix, Snapshot};

/// Kinds of devices behind which there are no hosts.
const WITHOUT_HOSTS: [&str; 6] = ["dummy", "ifb", "sit", "ip6tnl", "vrf", "nlmon"];

pub fn findings(config: &Config, host: &Snapshot) -> Vec<Finding> {
    let mut all = ports(config, host);
    all.extend(duplicates(config, host));
    all.extend(unlisted(config, host));
    all.extend(segments(config, host));
    all
}

/// Links whose devices have addresses in the same network: two ports of a modem, two sticks of the same make.
fn segments(config: &Config, host: &Snapshot) -> Vec<Finding> {
    let devices: Vec<_> = config
        .links
        .iter()
        .filter_map(|link| Some((&link.device, host.devices.get(&link.device)?)))
        .collect();
    let pairs = devices.iter().enumerate().flat_map(|(index, one)| {
        let others = &devices[index + 1..];
        others.iter().map(move |other| (one, other))
    });
    let shared = pairs.filter_map(|((one, device), (other, others))| {
        let mut networks = device.addresses.iter();
        let network = networks.find(|own| others.addresses.iter().any(|other| own.overlaps(*other)))?;
        Some(finding(
            Severity::Note,
            SHARED_SEGMENT,
            format!("{one} and {other}"),
            format!(
                "both are in {}: what is for one may come by the other, and is taken there; each answers ARP for its own addresses alone",
                network.network()
            ),
            "nothing to do; if one line is behind both, configure one link of them".to_owned(),
        ))
    });
    shared.collect()
}

/// Devices that are ports of a bridge. A bridge takes the packets of its ports before routing, so a program at a port would take
/// them from the bridge.
fn ports(config: &Config, host: &Snapshot) -> Vec<Finding> {
    let known = |name: &String| Some((name.clone(), host.devices.get(name)?));
    let lan = config.lan.iter().filter_map(known);
    let lan = lan.map(|(name, device)| ("lan".to_owned(), name, device));
    let links = config.links.iter().filter_map(|link| {
        let (name, device) = known(&link.device)?;
        Some((format!("link.{}.device", link.name), name, device))
    });
    let ports = lan.chain(links).filter_map(|(key, name, device)| {
        let master = device.master.as_ref()?;
        let (kind, bridge) = (&master.kind, &master.device);
        let meaning = format!("{key} names {name}, a port of {kind} {bridge}, which takes its packets: it has no program");
        let cure = format!("write {bridge:?} in its place, or take {name} out of {bridge}");
        Some(finding(Severity::Refused, BRIDGE_PORT, name, meaning, cure))
    });
    ports.collect()
}

fn duplicates(config: &Config, host: &Snapshot) -> Vec<Finding> {
    let mut all = Vec::new();
    let mut holders: BTreeMap<IpAddr, Vec<&str>> = BTreeMap::new();
    for (name, device) in &host.devices {
        for address in device
            .disputed
            .iter()
            .filter(|_| is_configured(config, name))
        {
            all.push(finding(
                Severity::Trouble,
                DUPLICATE_ADDRESS,
                format!("{address} on {name}"),
                format!(
                    "another host of {name}'s line has {address}, so that this host does not use it"
                ),
                "give one of the two another address".to_owned(),
            ));
        }
        for address in &device.addresses {
            holders.entry(address.address).or_default().push(name);
        }
    }
    let is_lan = |name: &&str| config.lan.iter().any(|lan| lan == name);
    for (address, names) in holders {
        if names.len() > 1 && names.iter().any(is_lan) {
            all.push(finding(
                Severity::Trouble,
                DUPLICATE_ADDRESS,
                format!("{address} on {}", names.join(" and ")),
                "what hosts of the LAN send to it is answered by either device".to_owned(),
                "give one of the devices another address".to_owned(),
            ));
        }
    }
    all
}

/// Networks for which the kernel forwards and that are not balanced.
fn unlisted(config: &Config, host: &Snapshot) -> Vec<Finding> {
    let is_network = |prefix: &&Prefix| !prefix.is_of_line() && prefix.length < bits(prefix) - 1;
    let leads_out = |device: &Device| {
        let mut routes = host.routes.iter().filter(|route| route.prefix.length == 0);
        routes.any(|route| route.hops.iter().any(|hop| hop.ifindex == device.ifindex))
    };
    let has_hosts = |name: &str, device: &Device| {
        let is_other = name != "lo" && !is_configured(config, name) && device.master.is_none();
        let has_kind = !WITHOUT_HOSTS.contains(&device.kind.as_str());
        is_other && device.running && has_kind && !leads_out(device)
    };
    let devices = host.devices.iter();
    let unlisted = devices.filter(|(name, device)| has_hosts(name, device));
    let with_network = unlisted.filter_map(|(name, device)| {
        let network = device.addresses.iter().find(is_network)?.network();
        let meaning = format!(
            "hosts of {network} are in no `lan`: the kernel forwards for them, without balancing"
        );
        let cure = format!("add {name:?} to `lan` to balance them, or leave it as it is");
        Some(finding(
            Severity::Note,
            UNLISTED_NETWORK,
            name,
            meaning,
            cure,
        ))
    });
    with_network.collect()
}

fn bits(prefix: &Prefix) -> u8 {
    if prefix.address.is_ipv4() { 32 } else { 128 }
}
