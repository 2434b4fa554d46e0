//! The owner of a claim: by the content of its file, and by the programs of that instance.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anabranch_api::Paths;
use anyhow::Context;

pub(super) fn network_namespace() -> anyhow::Result<u64> {
    let namespace = std::fs::metadata("/proc/thread-self/ns/net").context("network namespace")?;
    Ok(namespace.ino())
}

/// Whether a process of the instance wrote the claim at `path`.
pub(super) fn is_of(instance: &Paths, path: &Path) -> bool {
    // To open something that is no file may block.
    let is_file = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    let written = is_file.then(|| std::fs::read_to_string(path).unwrap_or_default());
    owner(written.unwrap_or_default().trim()).1 == instance.instance()
}

/// Whether an instance other than `paths` left a claim, and its programs are still pinned.
pub(super) fn is_of_ended(paths: &Paths, left: &str) -> bool {
    let (_, instance) = owner(left);
    let there = paths.of(instance).is_ok_and(|paths| has_programs(&paths));
    instance != paths.instance() && there
}

/// Its pins are in folders of their own. What others have pinned there is not counted.
pub(super) fn has_programs(instance: &Paths) -> bool {
    let entries = std::fs::read_dir(instance.pins());
    let mut entries = entries.into_iter().flatten().flatten();
    entries.any(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
}

/// Process and instance in a claim.
pub(super) fn owner(written: &str) -> (&str, &str) {
    written.split_once(' ').unwrap_or((written, ""))
}

/// What a holder wrote, or a placeholder if there was no room for it.
pub(super) fn known(written: &str) -> &str {
    match written {
        "" => "(unknown: there was no room to write its id)",
        written => written,
    }
}

/// Whether the process that wrote this has ended.
pub(super) fn has_ended(written: &str) -> bool {
    let process = written.split(' ').next().unwrap_or_default();
    let is_process = process.parse::<u32>().is_ok();
    is_process && !Path::new("/proc").join(process).exists()
}
