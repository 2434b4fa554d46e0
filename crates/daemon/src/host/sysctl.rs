//! Kernel settings: changed only where they stand in the way, put back only where they still are as we left them.

use std::fs;
use std::path::{Path, PathBuf};

use anabranch_core::Family;
use anyhow::Context;
use serde::{Deserialize, Serialize};

const ROOT: &str = "/proc/sys/net/ipv4";
/// Not there on a kernel without IPv6.
const ROOT_V6: &str = "/proc/sys/net/ipv6";

/// A setting that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    pub(super) path: PathBuf,
    pub(super) original: String,
    pub(super) ours: String,
}

impl Changed {
    /// What is to be changed at `key` (below `root`) to read `value`; `None` if it does already.
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

    /// A device that is gone has taken its settings with it.
    pub fn undo(&self) -> anyhow::Result<()> {
        match read(&self.path) {
            Ok(value) if value == self.ours => write(&self.path, &self.original),
            _ => Ok(()),
        }
    }
}

/// Packets passed to the kernel (time exceeded, fragments, fallback) must be forwarded.
pub fn forwarding(family: Family) -> anyhow::Result<Option<Changed>> {
    match family {
        Family::V4 => Changed::plan(ROOT, "ip_forward", "1"),
        Family::V6 => Changed::plan(ROOT_V6, "conf/all/forwarding", "1"),
    }
}

/// A device that forwards hears no router's advertisements, unless it is told to all the same: a link learns its addresses and
/// gateway of them. Who has turned them off has others who hear them.
pub fn advertisements(device: &str) -> anyhow::Result<Option<Changed>> {
    let key = format!("conf/{device}/accept_ra");
    match read(&Path::new(ROOT_V6).join(&key)) {
        Ok(heeded) if heeded == "1" => Changed::plan(ROOT_V6, &key, "2"),
        _ => Ok(None),
    }
}

/// Replies to what the kernel's own NAT sent over a link are routed back by the main table, whose default may be another
/// link; so is what a link without NAT brings for no flow, and what somebody forwards from outside; what comes over a sublink is
/// answered over the trunk. Strict reverse-path filtering would drop all of it. Loose filtering still wants a route to the
/// source.
pub fn loose_filter(device: &str) -> anyhow::Result<Option<Changed>> {
    let of = |name: &str| read(&Path::new(ROOT).join("conf").join(name).join("rp_filter"));
    let strict = of("all")?.max(of(device)?) == "1";
    if strict {
        Changed::plan(ROOT, &format!("conf/{device}/rp_filter"), "2")
    } else {
        Ok(None)
    }
}

/// A host answers on any device for any address of its own, and asks with any. Where two links share a network their router would learn
/// the wrong card, so that each link speaks for its own addresses alone.
pub fn answers_for_itself(device: &str) -> anyhow::Result<[Option<Changed>; 2]> {
    let at_least = |name: &str, wanted: &str| {
        let of = |of: &str| read(&Path::new(ROOT).join("conf").join(of).join(name));
        if *of("all")?.max(of(device)?) < *wanted {
            Changed::plan(ROOT, &format!("conf/{device}/{name}"), wanted)
        } else {
            Ok(None)
        }
    };
    Ok([at_least("arp_ignore", "1")?, at_least("arp_announce", "2")?])
}

/// The ports the host's own sockets get, both ends included.
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

/// Entries of the kernel's connection table; before there is one, what the smallest hosts have.
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
