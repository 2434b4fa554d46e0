//! What an experiment came to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anabranch_report::Drawn;
use anabranch_results::BuildId;
use serde::Serialize;

use crate::findings::Table;
use crate::judge::Check;
use crate::judged::Judged;
use crate::{Seeds, World};

/// The result of an experiment; written as `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Its name.
    pub experiment: &'static str,
    /// Where it ran.
    pub world: World,
    /// Whether it had fewer seeds and shorter runs.
    pub quick: bool,
    /// What made it.
    pub build: BuildId,
    /// Those that were judged.
    pub seeds: Seeds,
    /// Those that parameters and bounds were chosen on.
    pub fit: Seeds,
    /// Every claim was judged in so many windows of the seeds.
    pub windows: usize,
    /// The folder of the files; none if they are those built in.
    pub folder: Option<PathBuf>,
    /// SHA-256 of the files, by their names.
    pub files: BTreeMap<&'static str, String>,
    /// No problems.
    pub valid: bool,
    /// Why a run cannot be trusted; with it the experiment ends.
    pub problems: Vec<String>,
    /// Runs that were carried out twice.
    pub repeated: usize,
    /// All figures that were to be run are in it.
    pub complete: bool,
    /// Every claim with its verdict.
    pub checks: Vec<Check>,
    /// What a reader should know beside them.
    pub notes: Vec<Note>,
    /// What the README shows under the claims.
    pub(crate) tables: Vec<Table>,
    /// Those of all figures.
    pub plots: Drawn,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Note {
    pub figure: &'static str,
    pub text: String,
}

impl Summary {
    pub(crate) fn begun(judged: &Judged, build: BuildId) -> Self {
        let Judged {
            experiment,
            files,
            trial,
            ..
        } = judged;
        Summary {
            experiment: experiment.name,
            world: trial.world,
            quick: trial.quick,
            build,
            seeds: trial.seeds,
            fit: trial.fit,
            windows: trial.windows.len(),
            folder: files.folder().map(Path::to_owned),
            files: files.digests(),
            valid: true,
            problems: Vec::new(),
            repeated: 0,
            complete: false,
            checks: Vec::new(),
            notes: Vec::new(),
            tables: Vec::new(),
            plots: Drawn::default(),
        }
    }

    /// Whether the runs can be trusted and agree with what is stated of all claims.
    pub fn passes(&self) -> bool {
        self.valid && self.checks.iter().all(|check| check.pass)
    }
}
