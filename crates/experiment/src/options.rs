//! How an experiment is run, and who hears of its progress.

use std::path::PathBuf;

use anabranch_results::{BuildId, OutputError, Sweep};
use anabranch_workload::client::Stop;

use crate::{Figure, Seeds, World};

/// How far the work on a figure is, for whoever draws a progress bar. Called from several threads.
pub trait Progress: Sync {
    /// A figure begins.
    fn figure(&self, figure: &Figure);
    /// So many of so many runs of it are done.
    fn runs(&self, done: usize, of: usize);
    /// Some runs may be there already; those of another build are not used.
    fn resumed(&self, _sweep: &Sweep) {}
}

/// How an experiment is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where its runs take place.
    pub world: World,
    /// The executable of the gateway under test, for runs in the laboratory.
    pub binary: PathBuf,
    /// Fewer seeds and shorter runs, in which a claim whose interval crosses the border is left open.
    pub quick: bool,
    /// Instead of those that `expected.toml` judges.
    pub seeds: Option<Seeds>,
    /// The seeds are cut into so many, and every claim is judged in each.
    pub windows: u64,
    /// A folder whose scenarios and `expected.toml` stand in for the built-in ones.
    pub files: Option<PathBuf>,
    /// Plots and results go here.
    pub out: PathBuf,
    /// Every plot is written as PNG too.
    pub png: bool,
    /// Runs at a time.
    pub jobs: usize,
    /// Ends the experiment early, with [`ExperimentError::Interrupted`](crate::ExperimentError::Interrupted).
    pub stop: Stop,
}

impl Default for Options {
    /// The simulator, in full, one run at a time, into the present directory.
    fn default() -> Self {
        Options {
            world: World::Sim,
            binary: PathBuf::new(),
            quick: false,
            seeds: None,
            windows: 1,
            files: None,
            out: PathBuf::new(),
            png: false,
            jobs: 1,
            stop: Stop::default(),
        }
    }
}

impl Options {
    /// Which build makes the results, that of the gateway under test included.
    pub(crate) fn build(&self) -> Result<BuildId, OutputError> {
        match self.world {
            World::Lab => BuildId::running_with(&self.binary),
            World::Sim => BuildId::running(),
        }
    }
}
