//! The version before this one (`bpf/include/former.h`), as it leaves an instance's pins.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anabranch_dataplane::{Build, Pinned};
use anabranch_policy::abi::{ABI_VERSION, FORMER_VERSION};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/former.bpf.o"));

/// Its programs. What opens them takes them for ours, until they are [left](leave).
pub fn build() -> Build {
    Build {
        object: OBJECT.to_vec(),
        ..Build::default()
    }
}

/// Where an instance has its pins.
pub fn folder(pins: &Path) -> PathBuf {
    Pinned::Gateway.folder(pins, FORMER_VERSION)
}

/// Leaves an instance that was opened with its programs as its process does.
pub fn leave(pins: &Path) {
    fs::rename(Pinned::Gateway.folder(pins, ABI_VERSION), folder(pins)).unwrap();
}
