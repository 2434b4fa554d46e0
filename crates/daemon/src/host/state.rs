//! What a daemon has to know of those before it: the links' numbers, people's orders, and what was changed on the host.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::sysctl;
use crate::slots::{Orders, Slots};

/// Written to the state file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub slots: Slots,
    #[serde(default)]
    pub orders: Orders,
    pub sysctls: Vec<sysctl::Changed>,
}

impl State {
    /// As it was written last, with the file's text. A file that says nothing is set aside: packets matter more than orders.
    pub fn read(path: &Path) -> anyhow::Result<(Self, Vec<u8>)> {
        let wrong = match fs::read(path) {
            Ok(text) => match serde_json::from_slice(&text) {
                Ok(state) => return Ok((state, text)),
                Err(error) => error.to_string(),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Default::default()),
            Err(error) => error.to_string(),
        };
        let aside = path.with_extension("json.unreadable");
        fs::rename(path, &aside).with_context(|| {
            format!("set {} aside, which says nothing: {wrong}", path.display())
        })?;
        tracing::warn!(
            "{}: {wrong}; it is set aside as {}: orders of links are forgotten, and settings of the host that an earlier run changed stay as they are",
            path.display(),
            aside.display()
        );
        Ok(Default::default())
    }

    /// In the place of what `path` has. A crash on the way leaves one or the other.
    pub fn write(&self, path: &Path, saved: &mut Vec<u8>) -> anyhow::Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        if text == *saved {
            return Ok(());
        }
        let fresh = path.with_extension("json.new");
        fs::write(&fresh, &text)
            .and_then(|()| fs::rename(&fresh, path))
            .with_context(|| format!("write {}", path.display()))?;
        *saved = text;
        Ok(())
    }

    /// The oldest value is the original; later changes of the same setting are our own.
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
        let aside = fs::read(path.with_extension("json.unreadable"));
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
    fn what_is_no_file_is_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        assert!(State::read(&path).unwrap().1.is_empty(), "nothing there");
        fs::create_dir(&path).unwrap();
        assert_eq!(State::read(&path).unwrap().0, State::default());
        assert!(!path.exists());
    }
}
