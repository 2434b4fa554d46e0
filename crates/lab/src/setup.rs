//! What carries out a scenario here.

use std::path::PathBuf;

use anabranch_workload::client::Stop;

/// What a run needs besides the scenario.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The executable whose `run` is the gateway under test.
    pub binary: PathBuf,
    /// Ends the run early. What has happened by then is recorded, as an invalid run.
    pub stop: Stop,
}
