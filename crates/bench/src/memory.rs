//! The memory that the kernel uses itself, bytes.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// When it has come to rest: so long within so much, and when that is given up.
const SETTLED_FOR: Duration = Duration::from_millis(500);
const SETTLED_BYTES: u64 = 4 << 20;
const SETTLED_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// For tables and all else.
pub fn used() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
    let bytes = |key: &str| -> Result<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        let kib = line.and_then(|rest| rest.split_whitespace().next());
        Ok(kib
            .with_context(|| format!("no {key} in /proc/meminfo"))?
            .parse::<u64>()?
            * 1024)
    };
    Ok(bytes("Slab:")? + bytes("VmallocUsed:")? + bytes("Percpu:")?)
}

/// The same once it has stayed so for a while: the kernel frees large maps in its own time, and what goes while others
/// come would be taken off their size.
pub fn settled() -> Result<u64> {
    let until = Instant::now() + SETTLED_WITHIN;
    let (mut level, mut since) = (used()?, Instant::now());
    while since.elapsed() < SETTLED_FOR {
        ensure!(
            Instant::now() < until,
            "the kernel's memory does not come to rest"
        );
        std::thread::sleep(LOOK_EVERY);
        let now = used()?;
        if now.abs_diff(level) > SETTLED_BYTES {
            (level, since) = (now, Instant::now());
        }
    }
    Ok(level)
}

/// Waits until hardly more than `level` is used, or that is given up.
pub fn wait_for_return_to(level: u64) -> Result<()> {
    let until = Instant::now() + SETTLED_WITHIN;
    while used()? > level + SETTLED_BYTES && Instant::now() < until {
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
