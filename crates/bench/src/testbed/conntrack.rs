//! The kernel's own table of connections must not be what limits nftables.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

const MAX: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
const BUCKETS: &str = "/proc/sys/net/netfilter/nf_conntrack_buckets";
const ROOM: u64 = 2_097_152;

/// Connection tracking with room for every connection of the run; the machine's own limits come back on drop.
#[derive(Debug, Serialize)]
pub struct Conntrack {
    pub nf_conntrack_max: u64,
    pub nf_conntrack_buckets: u64,
    #[serde(skip)]
    before: [(&'static str, u64); 2],
}

impl Conntrack {
    pub fn enlarge() -> Result<Self> {
        let before = [(MAX, read(MAX)?), (BUCKETS, read(BUCKETS)?)];
        let wanted = before.map(|(path, value)| (path, value.max(ROOM)));
        let this = Conntrack {
            nf_conntrack_max: wanted[0].1,
            nf_conntrack_buckets: wanted[1].1,
            before,
        };
        for (path, value) in wanted {
            write(path, value)?;
        }
        Ok(this)
    }
}

impl Drop for Conntrack {
    fn drop(&mut self) {
        for (path, value) in self.before {
            if let Err(error) = write(path, value) {
                eprintln!("{error:#}");
            }
        }
    }
}

fn read(path: &str) -> Result<u64> {
    let text = fs::read_to_string(Path::new(path))
        .with_context(|| format!("reading {path}: is nf_conntrack part of this kernel?"))?;
    text.trim()
        .parse()
        .with_context(|| format!("reading {path}"))
}

fn write(path: &str, value: u64) -> Result<()> {
    fs::write(path, value.to_string()).with_context(|| format!("writing {value} to {path}"))
}
