//! What tests of a gateway and of a trunk share.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anabranch_daemon::paths::Paths;
use anabranch_lab::netns::Namespace;

/// The daemon as a process of its own. `cargo test` builds the examples beside the tests, `cargo test --test` does not.
pub fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let path = profile.join("examples/daemon");
    assert!(
        path.exists(),
        "run `cargo build -p anabranch-daemon --example daemon` first"
    );
    path
}

/// The file by which an instance that has its files in `dir` has a device of `node` for its own.
pub fn claim(node: &Namespace, dir: &Path, device: &str) -> PathBuf {
    let namespace = node.run(|| std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino());
    let paths = Paths::under(dir, dir, "any").unwrap();
    paths.claim(namespace.unwrap(), device)
}
