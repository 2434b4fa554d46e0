//! Which processor a thread runs on.

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

pub const THIS_THREAD: Pid = Pid::from_raw(0);

pub fn count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Keeps a thread on one processor (modulo their number).
pub fn pin(thread: Pid, cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu % count())?;
    sched_setaffinity(thread, &set).context("pinning a thread to a processor")
}
