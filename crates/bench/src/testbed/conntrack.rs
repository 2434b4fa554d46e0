//! The kernel's own table of connections must not be what limits nftables.

use std::fs;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};
use serde::Serialize;

const MAX: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
const BUCKETS: &str = "/proc/sys/net/netfilter/nf_conntrack_buckets";
const ROOM: u64 = 2_097_152;

/// Connection tracking with room for every connection of the run; the machine's own limits come back on drop, and when
/// SIGINT or SIGTERM ends the process.
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
        restore_when_interrupted(before)?;
        for (path, value) in wanted {
            write(path, value)?;
        }
        Ok(this)
    }
}

/// To be called before other threads start: they, and processes, inherit that the signals are left to this one.
fn restore_when_interrupted(before: [(&'static str, u64); 2]) -> Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block().context("blocking signals")?;
    thread::spawn(move || {
        if let Ok(signal) = signals.wait() {
            restore(before);
            std::process::exit(128 + signal as i32);
        }
    });
    Ok(())
}

fn restore(before: [(&'static str, u64); 2]) {
    for (path, value) in before {
        if let Err(error) = write(path, value) {
            eprintln!("{error:#}");
        }
    }
}

impl Drop for Conntrack {
    fn drop(&mut self) {
        restore(self.before);
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
