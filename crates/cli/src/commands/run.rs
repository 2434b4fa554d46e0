use std::io::{IsTerminal, stderr};
use std::path::Path;

use anabranch_api::Paths;
use tracing_subscriber::EnvFilter;

/// Runs the daemon until it is told to stop. `RUST_LOG` chooses what it tells.
pub fn run(instance: &str, config: &Path) -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal() && console::colors_enabled_stderr())
        .with_target(false)
        .init();
    anabranch_daemon::run(config, &Paths::new(instance)?, || {})?;
    Ok(())
}
