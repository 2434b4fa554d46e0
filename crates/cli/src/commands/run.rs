use std::path::Path;

use anabranch_api::Paths;

use crate::log::{self, Verbosity};

/// Runs the daemon until it is told to stop.
pub fn run(instance: &str, config: &Path, verbosity: Option<&Verbosity>) -> anyhow::Result<()> {
    log::begin(verbosity);
    anabranch_daemon::run(config, &Paths::new(instance)?, || {})?;
    Ok(())
}
