//! Programs on the ground, each with a file for what it says.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use anabranch_testbed::netns::{Child, Namespace};

use crate::topology::{Result, io_error};

/// Starts a program of words without quotes; what it says goes to a file of its name.
pub(super) fn program(
    namespace: &Namespace,
    line: &str,
    directory: &Path,
    name: &str,
) -> Result<Child> {
    let log = directory.join(format!("{name}.log"));
    let open = || File::options().create(true).append(true).open(&log);
    let failed = || io_error(format!("opening {}", log.display()));
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).stdin(Stdio::null());
    command.stdout(open().map_err(failed())?);
    command.stderr(open().map_err(failed())?);
    Ok(namespace.spawn(command)?)
}

/// Files of process ids have fixed places under /run, so that who writes some is given a /run of its own. `line` is shell's.
pub(super) fn in_own_run(line: &str) -> String {
    format!("mount -t tmpfs run /run && {line}")
}

/// Runs a line of shell, whose mounts nobody else sees.
pub(super) fn start_script(
    namespace: &Namespace,
    line: &str,
    directory: &Path,
    name: &str,
) -> Result<Child> {
    let script = directory.join(format!("{name}.sh"));
    let text = format!("#!/bin/sh\n{line}\n");
    std::fs::write(&script, text).map_err(io_error(format!("writing {}", script.display())))?;
    let line = format!(
        "unshare --mount --propagation private sh {}",
        script.display()
    );
    program(namespace, &line, directory, name)
}
