//! What tests of a gateway and of a trunk share.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anabranch_api::Paths;
use anabranch_testbed::netns::Namespace;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// A process of its own, as `daemon`. `cargo test` builds the examples beside the tests, `cargo test --test` does not.
pub fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let path = profile.join("examples").join(name);
    assert!(
        path.exists(),
        "run `cargo build --locked --workspace --examples` first"
    );
    path
}

/// The file by which an instance that has its files in `dir` has a device of `node` for its own.
pub fn claim(node: &Namespace, dir: &Path, device: &str) -> PathBuf {
    let namespace = node.run(|| std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino());
    let paths = Paths::under(dir, dir, "any").unwrap();
    paths.claim(namespace.unwrap(), device)
}

/// A file system of its own at a folder, with an option that limits it.
pub struct Limited<'a>(&'a Path);

impl<'a> Limited<'a> {
    pub fn new(folder: &'a Path, limit: &str) -> Self {
        let limited = Self(folder);
        limited.mount(MsFlags::empty(), limit);
        limited
    }

    /// Another limit.
    pub fn set(&self, limit: &str) {
        self.mount(MsFlags::MS_REMOUNT, limit);
    }

    fn mount(&self, flags: MsFlags, limit: &str) {
        let tmpfs = Some("tmpfs");
        mount(tmpfs, self.0, tmpfs, flags, Some(limit)).unwrap();
    }
}

impl Drop for Limited<'_> {
    fn drop(&mut self) {
        let _ = umount2(self.0, MntFlags::MNT_DETACH);
    }
}
