//! What an experiment is made of: the texts of its folder under `experiments/`, or of another folder in their place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anabranch_config::{BadInput, read_text};
use anabranch_results::sha256_hex;
use anabranch_scenario::ScenarioFile;

use crate::Experiment;

/// What counts as reproduced.
pub(crate) const EXPECTED: &str = "expected.toml";

/// A text that is built into the program.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// In the experiment's folder.
    pub name: &'static str,
    /// All of it.
    pub text: &'static str,
}

impl File {
    /// Whether a run depends on it.
    fn is_input(&self) -> bool {
        self.name.ends_with(".toml")
    }
}

/// Files of a folder under `experiments/`.
macro_rules! built_in {
    ($folder:literal, [$($name:literal),+ $(,)?]) => {
        &[$($crate::File {
            name: $name,
            text: include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../experiments/",
                $folder,
                "/",
                $name
            )),
        }),+]
    };
}
pub(crate) use built_in;

/// The files that a run depends on: scenarios and `expected.toml`.
#[derive(Clone, Debug)]
pub struct Files {
    folder: Option<PathBuf>,
    texts: BTreeMap<&'static str, String>,
}

impl Files {
    /// Those in `folder`, or the built-in ones.
    ///
    /// # Errors
    /// If one is missing in the folder, or cannot be read.
    pub fn of(experiment: &Experiment, folder: Option<&Path>) -> Result<Files, BadInput> {
        let inputs = experiment.files.iter().filter(|file| file.is_input());
        let text = |file: &File| match folder {
            Some(folder) => Ok((file.name, read_text(&folder.join(file.name))?)),
            None => Ok((file.name, file.text.to_owned())),
        };
        Ok(Files {
            folder: folder.map(Path::to_owned),
            texts: inputs.map(text).collect::<Result<_, BadInput>>()?,
        })
    }

    /// Where they are from; nothing if they are built in.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// All of a file.
    ///
    /// # Panics
    /// If the experiment has no such file.
    pub fn text(&self, name: &str) -> &str {
        &self.texts[name]
    }

    /// How messages call a file.
    pub fn path(&self, name: &str) -> PathBuf {
        match &self.folder {
            Some(folder) => folder.join(name),
            None => PathBuf::from(name),
        }
    }

    /// A file of the experiment as a scenario.
    ///
    /// # Errors
    /// If it is none: with file, line and key.
    pub fn scenario(&self, name: &str) -> Result<ScenarioFile, BadInput> {
        ScenarioFile::parse(&self.path(name), self.text(name))
    }

    /// The scenario at several values of one of its keys, which it must not sweep itself.
    ///
    /// # Errors
    /// If the file is no scenario, or is none at one of these values.
    pub fn swept<V: std::fmt::Debug>(
        &self,
        name: &str,
        key: &str,
        values: &[V],
    ) -> Result<ScenarioFile, BadInput> {
        let text = format!("{}\n[sweep]\n\"{key}\" = {values:?}\n", self.text(name));
        ScenarioFile::parse(&self.path(name), &text)
    }

    /// Names and texts.
    pub(crate) fn texts(&self) -> Vec<(String, String)> {
        let texts = self.texts.iter();
        texts
            .map(|(name, text)| ((*name).to_owned(), text.clone()))
            .collect()
    }

    /// SHA-256 of every file, in hexadecimal, by its name.
    pub fn digests(&self) -> BTreeMap<&'static str, String> {
        let texts = self.texts.iter();
        texts
            .map(|(name, text)| (*name, sha256_hex(text.as_bytes())))
            .collect()
    }
}
