//! On which processors threads run.

use nix::Result;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The calling one.
pub const THIS_THREAD: Pid = Pid::from_raw(0);

/// Those that the calling thread may run on.
///
/// # Errors
/// The kernel refuses.
pub fn allowed() -> Result<Vec<usize>> {
    let allowed = sched_getaffinity(THIS_THREAD)?;
    let is_allowed = |cpu: &usize| allowed.is_set(*cpu) == Ok(true);
    Ok((0..CpuSet::count()).filter(is_allowed).collect())
}

/// Keeps a thread on one processor.
///
/// # Errors
/// There is no such processor or thread.
pub fn pin(thread: Pid, cpu: usize) -> Result<()> {
    let mut only = CpuSet::new();
    only.set(cpu)?;
    sched_setaffinity(thread, &only)
}
