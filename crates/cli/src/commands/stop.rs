//! The end of a daemon, in one of two ways: the host is put back as it was, or the programs go on forwarding.

use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anabranch_api::{Client, ClientError, Paths, Request, Response};
use anabranch_console::tell;
use anabranch_daemon::preflight;
use anyhow::ensure;

use crate::PROGRAM;
use crate::control::{answered, unexpected};

/// From the answer to the end of the process.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Returns when the daemon has ended. With `config`, a file that the next start would refuse leaves the data path as it is,
/// unless the service manager stops `unit` for good.
pub fn run(instance: &str, config: Option<&Path>, unit: Option<&str>) -> anyhow::Result<()> {
    let paths = Paths::new(instance)?;
    let mut client = match Client::connect(&paths.socket()) {
        // The service manager calls this after a crash, too.
        Err(ClientError::NotRunning { .. }) if config.is_some() => return Ok(()),
        connected => connected?,
    };
    let refusal = match config {
        Some(file) if !unit.is_some_and(is_stopped_for_good) => preflight::check(file).err(),
        _ => None,
    };
    let keep_forwarding = refusal.is_some();
    if let Some(refusal) = refusal {
        let line = format!(
            "{refusal}; packets go on as before without a daemon: mend that, then start it again"
        );
        tell::warning(PROGRAM, &line);
    }
    match answered(client.call(&Request::Stop { keep_forwarding })?)? {
        Response::Done => wait_for_end(&paths),
        other => unexpected(&other),
    }
}

/// Not to be started again at once. Without an answer of the service manager nobody is taken offline.
fn is_stopped_for_good(unit: &str) -> bool {
    let asked = Command::new("systemctl")
        .args(["list-jobs", "--no-legend", "--plain", "--no-pager", unit])
        .output();
    asked.is_ok_and(|output| is_stop(&String::from_utf8_lossy(&output.stdout), unit))
}

/// `jobs` are lines of number, unit, kind and state.
fn is_stop(jobs: &str, unit: &str) -> bool {
    let mut jobs = jobs.lines().map(str::split_whitespace);
    jobs.any(|mut words| words.nth(1) == Some(unit) && words.next() == Some("stop"))
}

fn wait_for_end(paths: &Paths) -> anyhow::Result<()> {
    let lock = paths.lock();
    let begun = Instant::now();
    while lock.exists() {
        ensure!(
            begun.elapsed() < ENDS_WITHIN,
            "{}: the daemon has put the host back, and its process is still there",
            lock.display()
        );
        sleep(LOOK_AGAIN);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_is_no_stop() {
        let unit = "anabranch.service";
        assert!(is_stop("812 anabranch.service stop running\n", unit));
        for jobs in [
            "",
            "812 anabranch.service restart running\n",
            "811 other.service stop running\n812 anabranch.service restart running\n",
        ] {
            assert!(!is_stop(jobs, unit), "{jobs}");
        }
    }
}
