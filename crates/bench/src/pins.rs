//! Folders for pinned maps and programs, gone with their value or with the next run.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

const BPF_FS: &str = "/sys/fs/bpf";
const PREFIX: &str = "anabranch-bench-";

pub struct PinFolder(PathBuf);

impl PinFolder {
    /// A fresh name; whoever pins makes the folder.
    pub fn name() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        PinFolder(Path::new(BPF_FS).join(format!("{PREFIX}{}-{number}", std::process::id())))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PinFolder {
    fn drop(&mut self) {
        // Already gone if its user cleaned up.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Where daemons keep the pins of their instances, and how this benchmark's instances begin.
pub const DAEMON_PINS: &str = "/sys/fs/bpf/anabranch";
pub const INSTANCE_PREFIX: &str = "bench-";

/// Removes what interrupted runs left behind.
pub fn remove_stale() {
    for (folder, prefix) in [(BPF_FS, PREFIX), (DAEMON_PINS, INSTANCE_PREFIX)] {
        remove_ownerless(Path::new(folder), prefix);
    }
}

/// Folders named by a process that is gone.
fn remove_ownerless(folder: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let owner = name
            .strip_prefix(prefix)
            .and_then(|rest| rest.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
