//! Kernel settings. A setting is changed only if necessary, and restored only if it still has the value that we set.

use std::fs;
use std::path::{Path, PathBuf};

use anabranch_core::Family;
use anyhow::Context;
use serde::{Deserialize, Serialize};

const ROOT: &str = "/proc/sys/net/ipv4";
/// Does not exist on a kernel without IPv6.
const ROOT_V6: &str = "/proc/sys/net/ipv6";

/// A setting that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    pub(super) path: PathBuf,
    pub(super) original: String,
    pub(super) ours: String,
}

impl Changed {
    /// The change that gives `key` (below `root`) the value `value`; none if it has that value.
    fn plan(root: &str, key: &str, value: &str) -> anyhow::Result<Option<Self>> {
        let path = Path::new(root).join(key);
        let original = read(&path)?;
        Ok((original != value).then(|| Self {
            path,
            original,
            ours: value.to_owned(),
        }))
    }

    pub fn is_same_setting(&self, other: &Self) -> bool {
        self.path == other.path
    }

    pub fn make(&self) -> anyhow::Result<()> {
        write(&self.path, &self.ours)
    }

    /// Restores it. If its device is gone, so is the setting.
    pub fn undo(&self) -> anyhow::Result<()> {
        match read(&self.path) {
            Ok(value) if value == self.ours => write(&self.path, &self.original),
            _ => Ok(()),
        }
    }
}

/// Enables forwarding: packets that are passed to the kernel (time exceeded, fragments, fallback) need it.
pub fn forwarding(family: Family) -> anyhow::Result<Option<Changed>> {
    match family {
        Family::V4 => Changed::plan(ROOT, "ip_forward", "1"),
        Family::V6 => Changed::plan(ROOT_V6, "conf/all/forwarding", "1"),
    }
}

/// Lets a forwarding device accept router advertisements, which it ignores by default: a link learns its addresses and
/// gateway from them. If advertisements are off (0), another program processes them, and the setting is left alone.
pub fn advertisements(device: &str) -> anyhow::Result<Option<Changed>> {
    let key = format!("conf/{device}/accept_ra");
    match read(&Path::new(ROOT_V6).join(&key)) {
        Ok(heeded) if heeded == "1" => Changed::plan(ROOT_V6, &key, "2"),
        _ => Ok(None),
    }
}

/// Loosens reverse-path filtering, which would drop several kinds of packets if it is strict. Replies to what the kernel's own NAT
/// sent over a link are routed back by the main table, whose default route may be over another link. The same applies to packets of
/// no flow on a link without NAT, to what another program forwards from outside, and to packets from a sublink, which are answered
/// over the trunk. Loose filtering still requires a route to the source.
pub fn loose_filter(device: &str) -> anyhow::Result<Option<Changed>> {
    if in_force(device, "rp_filter")? == "1" {
        Changed::plan(ROOT, &format!("conf/{device}/rp_filter"), "2")
    } else {
        Ok(None)
    }
}

/// Makes a link answer ARP only for its own addresses, and use no others in its requests. By default a host does both on any device
/// with any of its addresses. If two links share a network, their router would learn the wrong hardware address.
pub fn answers_for_itself(device: &str) -> anyhow::Result<[Option<Changed>; 2]> {
    let at_least = |name: &str, wanted: &str| {
        if *in_force(device, name)? < *wanted {
            Changed::plan(ROOT, &format!("conf/{device}/{name}"), wanted)
        } else {
            Ok(None)
        }
    };
    Ok([at_least("arp_ignore", "1")?, at_least("arp_announce", "2")?])
}

/// The value of a setting of IPv4 by which the kernel goes at a device: its own, or that of all devices if it is greater.
pub fn in_force(device: &str, name: &str) -> anyhow::Result<String> {
    let of = |of: &str| read(&Path::new(ROOT).join("conf").join(of).join(name));
    Ok(of("all")?.max(of(device)?))
}

/// The range of ports for the host's own sockets, both ends included.
pub fn ephemeral_ports() -> anyhow::Result<[u16; 2]> {
    let text = read(&Path::new(ROOT).join("ip_local_port_range"))?;
    let ports: Vec<u16> = text
        .split_whitespace()
        .filter_map(|port| port.parse().ok())
        .collect();
    ports
        .try_into()
        .map_err(|_| anyhow::anyhow!("net.ipv4.ip_local_port_range reads {text:?}"))
}

/// Maximum number of entries in the kernel's connection table; before the table exists, the maximum of the smallest hosts.
pub fn conntrack_max() -> u32 {
    const LEAST: u32 = 16_384;
    let text = read(Path::new("/proc/sys/net/netfilter/nf_conntrack_max"));
    text.ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(LEAST)
}

fn read(path: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    Ok(text.trim().to_owned())
}

fn write(path: &Path, value: &str) -> anyhow::Result<()> {
    fs::write(path, value).with_context(|| format!("write {value} to {}", path.display()))
}
