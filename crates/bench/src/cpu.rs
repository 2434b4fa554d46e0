//! Which processor a thread runs on.

use anabranch_testbed::cpus;
use anyhow::{Context, Result};
use nix::unistd::Pid;

pub use anabranch_testbed::cpus::THIS_THREAD;

pub fn count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Keeps a thread on one processor (modulo their number).
pub fn pin(thread: Pid, cpu: usize) -> Result<()> {
    cpus::pin(thread, cpu % count()).context("pinning a thread to a processor")
}
