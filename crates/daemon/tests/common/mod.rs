//! What tests of a gateway and of a trunk share.

use std::path::{Path, PathBuf};

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
