//! The state file: what the next daemon has to know. It has the links' numbers, the operator's orders, and what was changed on the
//! host.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use super::next_hops::NextHop;
use super::sysctl;
use crate::aside::{make_way, set_aside};
use crate::slots::{Orders, Slots, Tested};

/// How often a file is read again if reading fails.
const READINGS: usize = 3;

/// The content of the state file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub slots: Slots,
    #[serde(default)]
    pub orders: Orders,
    #[serde(default)]
    pub tested: Tested,
    pub sysctls: Vec<sysctl::Changed>,
    /// Entries of the kernel's neighbour table that are ours.
    #[serde(default)]
    pub next_hops: BTreeSet<NextHop>,
    /// Addresses of the host that are ours.
    #[serde(default)]
    pub addresses: BTreeSet<IpAddr>,
}

impl State {
    /// Reads the state, and the text of the file. A file without valid content is moved away, and its copy is read: forwarding
    /// matters more than orders.
    pub fn read(path: &Path) -> anyhow::Result<(Self, Vec<u8>)> {
        let wrong = match read(path) {
            Ok(known) => return Ok(known),
            Err(wrong) => wrong,
        };
        let aside = set_aside(path);
        let copied = read(&copy_of(path)).ok();
        let copied = copied.filter(|(_, text)| !text.is_empty());
        let lost = match copied {
            Some(_) => "what its copy says is taken in its place",
            None => {
                "orders of links are forgotten, and settings of the host that an earlier run changed stay as they are"
            }
        };
        tracing::warn!("{}: {wrong}; {aside}: {lost}", path.display());
        // An empty text, so that the file is written again in either case.
        Ok((
            copied.map(|(state, _)| state).unwrap_or_default(),
            Vec::new(),
        ))
    }

    /// Replaces the file and then its copy, so that after a crash at any time one of them is complete.
    pub fn write(&self, path: &Path, saved: &mut Vec<u8>) -> anyhow::Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        if text == *saved {
            return Ok(());
        }
        for path in [path, &copy_of(path)] {
            let fresh = path.with_extension("json.new");
            for path in [path, &fresh] {
                make_way(path, "file", Metadata::is_file);
            }
            fs::write(&fresh, &text)
                .and_then(|()| fs::rename(&fresh, path))
                .with_context(|| format!("write {}", path.display()))?;
        }
        *saved = text;
        Ok(())
    }

    /// Removes file and copy. It is no error if they do not exist.
    pub fn remove(path: &Path) -> anyhow::Result<()> {
        for path in [path, &copy_of(path)] {
            make_way(path, "file", Metadata::is_file);
            match fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("remove {}", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Keeps the oldest value of a setting, which is the original one; later changes are our own.
    pub fn remember(&mut self, change: sysctl::Changed) {
        if !self
            .sysctls
            .iter()
            .any(|known| known.is_same_setting(&change))
        {
            self.sysctls.push(change);
        }
    }
}

fn copy_of(path: &Path) -> PathBuf {
    path.with_extension("json.copy")
}

/// Reads a file that belongs to this user, with its text; empty if it does not exist. The error says what is wrong with it. A
/// failed read may succeed at once when it is repeated.
fn read(path: &Path) -> Result<(State, Vec<u8>), String> {
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Default::default()),
        found => found.map_err(|error| error.to_string())?,
    };
    if !found.is_file() {
        return Err("it is no file".to_owned());
    }
    if found.uid() != geteuid().as_raw() {
        return Err(format!("it belongs to user {}", found.uid()));
    }
    let readings = (0..READINGS).map(|_| fs::read(path));
    let text = readings.reduce(|read, again| read.or(again));
    let text = text.map_or(Ok(Vec::new()), |text| {
        text.map_err(|error| error.to_string())
    })?;
    let state = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    Ok((state, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str =
        r#"{ "slots": { "fiber": 0, "lte": 1 }, "orders": { "lte": "drain" }, "sysctls": [] }"#;

    /// What is read of a file with such text, and whether it was set aside.
    fn read(text: &[u8]) -> (State, bool) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        fs::write(&path, text).unwrap();
        let (state, _) = State::read(&path).unwrap();
        let aside = fs::read(path.with_extension("json.set-aside"));
        assert!(aside.as_ref().is_ok_and(|aside| aside == text) || path.exists());
        (state, aside.is_ok())
    }

    #[test]
    fn a_file_that_was_cut_anywhere_is_set_aside() {
        let (whole, set_aside) = read(WHOLE.as_bytes());
        assert!(!set_aside && whole.slots.iter().count() == 2 && !whole.orders.is_empty());
        for length in 0..WHOLE.len() {
            let cut = read(&WHOLE.as_bytes()[..length]);
            assert_eq!(cut, (State::default(), true), "{length} bytes");
        }
    }

    #[test]
    fn a_file_that_says_what_cannot_be_is_set_aside() {
        for text in [
            &b"\xff\0"[..],
            b"[]",
            br#"{ "slots": { "fiber": 0, "lte": 0 }, "sysctls": [] }"#,
            br#"{ "slots": { "fiber": 16 }, "sysctls": [] }"#,
            br#"{ "of": "another program" }"#,
        ] {
            let shown = String::from_utf8_lossy(text);
            assert_eq!(read(text), (State::default(), true), "{shown}");
        }
    }

    #[test]
    fn what_is_no_file_is_set_aside_as_often_as_it_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        assert!(State::read(&path).unwrap().1.is_empty(), "nothing there");
        for number in 0..3 {
            match number {
                0 => fs::create_dir_all(path.join("full")).unwrap(),
                1 => nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap(),
                _ => std::os::unix::fs::symlink(folder.path(), &path).unwrap(),
            }
            assert_eq!(State::read(&path).unwrap().0, State::default());
            assert!(!path.exists());
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_file_of_another_user_is_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        fs::write(&path, WHOLE).unwrap();
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        assert_eq!(State::read(&path).unwrap().0, State::default());
        assert!(!path.exists());
    }

    /// Of the file, of its copy, and of what either is written to first.
    #[test]
    fn a_file_is_written_whatever_stands_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        let state: State = serde_json::from_str(WHOLE).unwrap();
        for name in ["json", "json.new", "json.copy", "json.json.new"] {
            let place = path.with_extension(name);
            for make in [
                |place: &Path| fs::create_dir_all(place.join("full")).unwrap(),
                |place: &Path| nix::unistd::mkfifo(place, nix::sys::stat::Mode::S_IRWXU).unwrap(),
                |place: &Path| std::os::unix::fs::symlink("/nowhere", place).unwrap(),
            ] {
                make(&place);
                state.write(&path, &mut Vec::new()).unwrap();
                assert_eq!(State::read(&path).unwrap().0, state, "{name}");
                make_way(&place, "nothing", |_| false);
                make(&place);
                State::remove(&path).unwrap();
                make_way(&place, "nothing", |_| false);
            }
        }
    }

    #[test]
    fn what_was_lost_of_a_file_its_copy_knows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        let state: State = serde_json::from_str(WHOLE).unwrap();
        state.write(&path, &mut Vec::new()).unwrap();
        for text in ["", "{", "[]"] {
            fs::write(&path, text).unwrap();
            assert_eq!(State::read(&path).unwrap().0, state, "{text:?}");
        }
        State::remove(&path).unwrap();
        assert_eq!(State::read(&path).unwrap().0, State::default());
    }
}
