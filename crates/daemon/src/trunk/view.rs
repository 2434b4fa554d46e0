//! The state of a trunk on the host.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anabranch_config::BadInput;
use anabranch_core::{Family, PerFamily};
use anabranch_dataplane::trunk::{NextHop, SublinkPath};

use super::config::{Config, Sublink};
use super::queues::DeviceQueue;
use crate::observe::{Device, Prefix, Running, Snapshot};

/// Why a sublink cannot be used at present.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Missing {
    #[error("the device does not exist")]
    Device,
    #[error("the device is down or has no carrier")]
    Carrier,
    #[error(
        "no next hop is known: give the sublink `via` or `via6`, or its device an address of a /30 or /31, a /126 or /127 network"
    )]
    NextHop,
}

/// The state of a trunk on the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// The trunk device.
    pub ifindex: Option<u32>,
    /// In the order of the configuration. A path is kept while a cable is unplugged.
    pub sublinks: Vec<SublinkView>,
}

/// The state of a sublink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SublinkView {
    /// Its next hop; none until that is known.
    pub path: Option<SublinkPath>,
    /// Why it cannot carry packets; none if it can.
    pub missing: Option<Missing>,
}

impl View {
    /// Derives it from the configuration and the state of the host.
    pub fn derive(config: &Config, host: &Snapshot) -> Self {
        Self {
            ifindex: host.devices.get(&config.device).map(|d| d.ifindex),
            sublinks: config
                .sublinks
                .iter()
                .map(|sublink| SublinkView::derive(sublink, host))
                .collect(),
        }
    }

    /// The devices of the sublinks, and whether they are running.
    pub fn running(&self) -> Running {
        let sublinks = self.sublinks.iter();
        sublinks
            .filter_map(|sublink| Some((sublink.path?.ifindex, sublink.missing.is_none())))
            .collect()
    }

    /// Bit i is set if sublink i may take packets of a family.
    pub fn usable(&self, family: Family) -> u64 {
        let bits = self.sublinks.iter().enumerate();
        bits.map(|(i, sublink)| u64::from(sublink.is_usable(family)) << i)
            .sum()
    }
}

impl SublinkView {
    fn is_usable(&self, family: Family) -> bool {
        let carries = |path: SublinkPath| path.next_hop.carries(family);
        self.missing.is_none() && self.path.is_some_and(carries)
    }

    fn derive(sublink: &Sublink, host: &Snapshot) -> Self {
        let Some(device) = host.devices.get(&sublink.device) else {
            return Self {
                path: None,
                missing: Some(Missing::Device),
            };
        };
        match path(sublink, device) {
            None => Self {
                path: None,
                missing: Some(Missing::NextHop),
            },
            path => Self {
                path,
                missing: (!device.running).then_some(Missing::Carrier),
            },
        }
    }
}

fn path(sublink: &Sublink, device: &Device) -> Option<SublinkPath> {
    let next_hop = if device.layer3 {
        NextHop::OnlyOne
    } else {
        let found = |family| {
            device
                .addresses
                .iter()
                .find_map(|own| other_end(own, family))
        };
        NextHop::Addresses(PerFamily::from_fn(|family| {
            sublink.via[family].or_else(|| found(family))
        }))
    };
    let leads_on = Family::ALL.iter().any(|family| next_hop.carries(*family));
    leads_on.then_some(SublinkPath {
        ifindex: device.ifindex,
        next_hop,
    })
}

/// The other host of a network with two hosts.
fn other_end(own: &Prefix, family: Family) -> Option<IpAddr> {
    if Family::from(own.address) != family {
        return None;
    }
    let (last_byte, width) = match own.address {
        IpAddr::V4(v4) => (v4.octets()[3], 32),
        IpAddr::V6(v6) => (v6.octets()[15], 128),
    };
    let differs = match width - own.length {
        1 => 1,
        2 if matches!(last_byte & 3, 1 | 2) => 3,
        _ => return None,
    };
    Some(match own.address {
        IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() ^ differs).into()),
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() ^ u128::from(differs)).into()),
    })
}

/// Refuses a configuration that contradicts the state of the host.
pub fn check(config: &Config, host: &Snapshot) -> Result<(), BadInput> {
    let known = || {
        let names = host.devices.keys().map(String::as_str);
        let names: Vec<&str> = names.filter(|name| *name != "lo").collect();
        names.join(", ")
    };
    let Some(trunk) = host.devices.get(&config.device) else {
        return Err(config.bad(format!(
            "trunk.device = {:?}: no such device; this host has: {}",
            config.device,
            known()
        )));
    };
    check_trunk(config, trunk)?;
    for sublink in &config.sublinks {
        let Some(device) = host.devices.get(&sublink.device) else {
            return Err(config.bad(format!(
                "trunk.sublink.{}.device = {:?}: no such device; this host has: {}",
                sublink.name,
                sublink.device,
                known()
            )));
        };
        check_sublink(config, trunk, sublink, device)?;
    }
    Ok(())
}

fn check_trunk(config: &Config, trunk: &Device) -> Result<(), BadInput> {
    let name = &config.device;
    let bad = |problem: String| Err(config.bad(format!("trunk.device = {name:?}: {problem}")));
    if trunk.layer3 {
        return bad(
            "packets on it have no Ethernet header; take a dummy, veth or bridge device".to_owned(),
        );
    }
    if trunk.resolves {
        return bad(format!(
            "it would ask for neighbours that nobody answers for; run `ip link set {name} arp off`"
        ));
    }
    Ok(())
}

fn check_sublink(
    config: &Config,
    trunk: &Device,
    sublink: &Sublink,
    device: &Device,
) -> Result<(), BadInput> {
    let Sublink {
        name, device: on, ..
    } = sublink;
    if trunk.mtu > device.mtu {
        return Err(config.bad(format!(
            "trunk.device = {:?}: its MTU {} is above the {} of sublink {name} ({on}); run `ip link set {} mtu {}`",
            config.device, trunk.mtu, device.mtu, config.device, device.mtu
        )));
    }
    if path(sublink, device).is_none() {
        return Err(config.bad(format!(
            "trunk.sublink.{name}.device = {on:?}: {}",
            Missing::NextHop
        )));
    }
    Ok(())
}

/// Refuses a scheme that watches queues if there are none, or if their size is unknown.
pub fn check_queues(
    config: &Config,
    view: &View,
    queues: &BTreeMap<u32, DeviceQueue>,
) -> Result<(), BadInput> {
    for (sublink, seen) in config.sublinks.iter().zip(&view.sublinks) {
        let Some(path) = seen.path else { continue };
        let queue = queues.get(&path.ifindex).cloned().unwrap_or_default();
        let Sublink { name, device, .. } = sublink;
        let bad = |problem: String| {
            let scheme = config.scheme.row().name;
            Err(config.bad(format!("trunk.sublink.{name}: {scheme} {problem}")))
        };
        if !queue.exists() {
            return bad(format!(
                "watches its queue, and device {device} keeps none; give it one, for instance `tc qdisc add dev {device} root tbf rate 100mbit burst 5kb limit 1250kb`"
            ));
        }
        if sublink.buffer_bytes(queue.limit_bytes).is_none() {
            return bad(format!(
                "must know how much its queue ({}) holds; give it `buffer` or `rate`",
                queue.kind
            ));
        }
    }
    Ok(())
}
