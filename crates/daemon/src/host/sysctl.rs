//! Kernel settings: changed only where they stand in the way, put back only where they still are as we left them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

const ROOT: &str = "/proc/sys/net/ipv4";

/// A setting that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    path: PathBuf,
    original: String,
    ours: String,
}

impl Changed {
    /// What is to be changed at `key` (below net.ipv4) to read `value`; `None` if it does already.
    fn plan(key: &str, value: &str) -> anyhow::Result<Option<Self>> {
        let path = Path::new(ROOT).join(key);
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
pub fn forwarding() -> anyhow::Result<Option<Changed>> {
    Changed::plan("ip_forward", "1")
}

/// Replies to what the kernel's own NAT sent over a link are routed back by the main table, whose default may be another
/// link; so is what a link without NAT brings for no flow; what comes over a sublink is answered over the trunk. Strict
/// reverse-path filtering would drop all three. Loose filtering still wants a route to the source.
pub fn loose_filter(device: &str) -> anyhow::Result<Option<Changed>> {
    let of = |name: &str| read(&Path::new(ROOT).join("conf").join(name).join("rp_filter"));
    let strict = of("all")?.max(of(device)?) == "1";
    if strict {
        Changed::plan(&format!("conf/{device}/rp_filter"), "2")
    } else {
        Ok(None)
    }
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
