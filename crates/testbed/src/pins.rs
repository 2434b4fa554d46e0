//! Folders for pinned maps and programs, gone with their value or with the next run.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::netns::{PREFIX, remove_ownerless};

/// Where the file system of pins is mounted.
const BPF_FS: &str = "/sys/fs/bpf";

/// A place below `/sys/fs/bpf` that nobody else has. Whoever pins makes the folder.
#[derive(Debug)]
pub struct PinFolder(PathBuf);

impl PinFolder {
    /// `anabranch-<pid>-<n>-<label>`. The first of a process removes those whose process is gone.
    pub fn name(label: &str) -> Self {
        static STALE: Once = Once::new();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        STALE.call_once(|| {
            remove_ownerless(Path::new(BPF_FS), PREFIX, |folder| {
                let _ = std::fs::remove_dir_all(folder);
            });
        });
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}-{label}", std::process::id());
        Self(Path::new(BPF_FS).join(name))
    }
}

impl Deref for PinFolder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for PinFolder {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for PinFolder {
    fn drop(&mut self) {
        // Already gone if its user cleaned up.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
