//! What stands between the LAN and the ISPs: anabranch, or a peer to compare it with.

use std::fmt::Write;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anabranch_api::Paths;
use anabranch_scenario::{Declared, Peer};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::lay::{lead_lan, route_lan};
use super::peers::Steward;
use super::peers::bgp::Speakers;
use super::ready::last_words;
use super::ready::wait_ready;
use super::{
    IspSpec, LAN_DEVICE, Lab, LabError, LabSpec, Result, io_error, let_forward, peers, wan,
};
use anabranch_testbed::netns::{Child, Exit, Namespace, remove_ownerless};

const READY: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(10);
/// Instances of labs are `lab<pid>-<n>`.
const INSTANCE_PREFIX: &str = "lab";

/// What to put into the gateway's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gateway {
    /// The product. `settings` are lines of TOML that follow the generated `lan` and `link` entries.
    Anabranch {
        /// The executable.
        binary: PathBuf,
        /// TOML.
        settings: String,
    },
    /// What is no product of ours.
    Peer(Peer),
    /// The kernel's own forwarding over the first ISP, without translation: the internet is told the way to the LAN.
    Forwarding,
    /// Nothing: addresses and routes are there, forwarding is off.
    Nothing,
}

impl Gateway {
    /// Whether it is the hosts that use all links.
    pub(super) fn is_multipath(&self) -> bool {
        *self == Self::Peer(Peer::Mptcp)
    }

    pub(super) fn start(&self, lab: &Lab) -> Result<Running> {
        Ok(match self {
            Self::Anabranch { binary, settings } => {
                let text = configuration(&lab.spec, settings);
                Running::Anabranch(Anabranch::start(&lab.gateway, binary, &text)?)
            }
            Self::Peer(Peer::Mptcp) => {
                peers::multipath(lab)?;
                Running::Endpoints
            }
            Self::Peer(Peer::Bgp(bgp)) => Running::Speakers(Speakers::start(*bgp, lab)?),
            Self::Peer(peer) => {
                let steward = peers::start(*peer, &lab.gateway, &lab.spec)?;
                steward.map_or(Running::Kernel, Running::Steward)
            }
            Self::Forwarding => {
                forward(lab)?;
                Running::Kernel
            }
            Self::Nothing => Running::Kernel,
        })
    }
}

/// What a gateway under test is while it runs.
#[derive(Debug)]
pub(super) enum Running {
    Anabranch(Anabranch),
    Steward(Steward),
    Speakers(Speakers),
    /// The hosts' own connections.
    Endpoints,
    /// Nothing but what the kernel was told.
    Kernel,
}

impl Running {
    /// Why what it did cannot be trusted, if it cannot.
    pub fn failure(&self) -> Option<String> {
        match self {
            Self::Steward(steward) => steward.failure().map(str::to_owned),
            Self::Speakers(speakers) => speakers.failure(),
            Self::Anabranch(_) | Self::Endpoints | Self::Kernel => None,
        }
    }
}

/// The configuration of a gateway in this lab: the LAN, and a line per link. Settings come last because they may open a table.
pub fn configuration(spec: &LabSpec, settings: &str) -> String {
    let mut text = format!("lan = [\"{LAN_DEVICE}\"]\n");
    for (index, isp) in spec.isps.iter().enumerate() {
        let link = words_of(isp, &wan(index)).join(", ");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "link.{} = {{ {link} }}", isp.name);
    }
    text + settings
}

fn words_of(isp: &IspSpec, device: &str) -> Vec<String> {
    let mut words = vec![format!("device = \"{device}\"")];
    let rates = match isp.told.rates {
        Declared::Actual(false) => None,
        Declared::Actual(true) => Some((isp.shape.down.rate_bps, isp.shape.up.rate_bps)),
        Declared::Rates { down_bps, up_bps } => Some((down_bps, up_bps)),
    };
    if let Some((down_bps, up_bps)) = rates {
        words.push(format!("down = \"{down_bps}bit\", up = \"{up_bps}bit\""));
    }
    if isp.told.metered {
        words.push("metered = true".into());
    }
    if isp.routed {
        words.push("nat = false".into());
    }
    words.extend(isp.told.weight.map(|weight| format!("weight = {weight}")));
    words
}

fn forward(lab: &Lab) -> Result<()> {
    let first = &lab.spec.isps[0];
    for (family, access) in first.accesses_of(lab.spec.families) {
        if !first.routed {
            lead_lan(access, &lab.routers[0])?;
        }
        route_lan(0, family, &lab.spec, &lab.internet)?;
    }
    let_forward(&lab.gateway, lab.spec.families)
}

/// A running `anabranch run`. When the value goes, so does what the instance keeps on this machine.
#[derive(Debug)]
pub struct Anabranch {
    binary: PathBuf,
    instance: String,
    directory: TempDir,
    process: Child,
}

impl Anabranch {
    /// Starts `binary` in `namespace` under an instance name of its own and waits until it answers.
    pub fn start(namespace: &Namespace, binary: &Path, configuration: &str) -> Result<Self> {
        static STALE: Once = Once::new();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        STALE.call_once(remove_stale);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory =
            TempDir::with_prefix("anabranch-lab-").map_err(io_error("making a directory"))?;
        let path = directory.path().join("anabranch.toml");
        std::fs::write(&path, configuration)
            .map_err(io_error(format!("writing {}", path.display())))?;
        let instance = format!("{INSTANCE_PREFIX}{}-{number}", std::process::id());
        let process = launch(namespace, binary, &instance, directory.path())?;
        let mut anabranch = Self {
            binary: binary.to_owned(),
            instance,
            directory,
            process,
        };
        anabranch.wait_ready()?;
        Ok(anabranch)
    }

    /// Its `--instance`.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Where it keeps its files and pins.
    pub fn paths(&self) -> Result<Paths> {
        Paths::new(&self.instance).map_err(|error| LabError::Gateway(error.to_string()))
    }

    /// The daemon.
    pub fn process(&mut self) -> &mut Child {
        &mut self.process
    }

    /// The configuration file: rewrite it, then [`Anabranch::reload`].
    pub fn configuration(&self) -> PathBuf {
        self.directory.path().join("anabranch.toml")
    }

    /// Where its standard output and error go.
    pub fn log(&self) -> PathBuf {
        self.directory.path().join("anabranch.log")
    }

    /// Runs `anabranch <words> --instance <this>` and returns what it printed.
    pub fn ask(&self, words: &[&str]) -> Result<String> {
        ask(&self.binary, &self.instance, words)
    }

    /// `anabranch status --json`.
    pub fn status(&self) -> Result<serde_json::Value> {
        let text = self.ask(&["status", "--json"])?;
        serde_json::from_str(&text).map_err(|error| LabError::Command {
            command: "anabranch status --json".into(),
            stderr: format!("not JSON: {error}"),
        })
    }

    /// SIGHUP: read the configuration again.
    pub fn reload(&self) {
        self.process.signal(Signal::SIGHUP);
    }

    /// SIGTERM, and SIGKILL for a process that does not end.
    pub fn stop(&mut self) -> Result<Exit> {
        self.process
            .terminate(GRACE)
            .map_err(io_error("stopping anabranch"))
    }

    /// SIGKILL: what a crash does.
    pub fn kill(&mut self) -> Result<()> {
        self.process.signal(Signal::SIGKILL);
        let ended = self
            .process
            .wait(GRACE)
            .map_err(io_error("killing anabranch"))?;
        ended.map(drop).ok_or_else(|| LabError::NotReady {
            program: "anabranch killed with SIGKILL".into(),
            seconds: GRACE.as_secs(),
            log: last_words(&self.log()),
        })
    }

    /// Starts it again in `namespace` with the same instance and configuration, after [`Anabranch::kill`] or
    /// [`Anabranch::stop`].
    pub fn restart(&mut self, namespace: &Namespace) -> Result<()> {
        self.process = launch(
            namespace,
            &self.binary,
            &self.instance,
            self.directory.path(),
        )?;
        self.wait_ready()
    }

    fn wait_ready(&mut self) -> Result<()> {
        let (log, binary, instance) = (self.log(), &self.binary, &self.instance);
        let answers = || Ok(ask(binary, instance, &["status", "--json"]).is_ok());
        wait_ready("anabranch", &mut self.process, &log, READY, answers)
    }
}

impl Drop for Anabranch {
    fn drop(&mut self) {
        // One that does not end in time is killed with its value.
        let _ = self.stop();
        remove_instance(&self.instance);
    }
}

fn ask(binary: &Path, instance: &str, words: &[&str]) -> Result<String> {
    let mut command = Command::new(binary);
    command.args(words).args(["--instance", instance]);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(io_error(format!("running {}", binary.display())))?;
    if !output.status.success() {
        return Err(LabError::Command {
            command: format!("{} {}", binary.display(), words.join(" ")),
            stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Removes what instances keep whose lab was killed with them. Runs by itself before the first [`Anabranch::start`] of
/// a process.
fn remove_stale() {
    let Ok(any) = Paths::new(INSTANCE_PREFIX) else {
        return;
    };
    let directories = [Some(any.runtime_dir()), any.pins().parent()];
    for directory in directories.into_iter().flatten() {
        remove_ownerless(directory, INSTANCE_PREFIX, |entry| {
            if let Some(instance) = entry.file_stem().and_then(|stem| stem.to_str()) {
                remove_instance(instance);
            }
        });
    }
}

/// What is already gone is no error.
fn remove_instance(instance: &str) {
    let Ok(paths) = Paths::new(instance) else {
        return;
    };
    let _ = std::fs::remove_dir_all(paths.pins());
    let states = ["gateway", "trunk"].map(|role| paths.state_of(role));
    for file in [paths.socket(), paths.lock()].iter().chain(&states) {
        let _ = std::fs::remove_file(file);
    }
}

fn launch(namespace: &Namespace, binary: &Path, instance: &str, directory: &Path) -> Result<Child> {
    let log = directory.join("anabranch.log");
    let open = || File::options().create(true).append(true).open(&log);
    let failed = || io_error(format!("opening {}", log.display()));
    let mut command = Command::new(binary);
    command
        .arg("run")
        .arg("--config")
        .arg(directory.join("anabranch.toml"));
    command.args(["--instance", instance]).stdin(Stdio::null());
    command
        .stdout(open().map_err(failed())?)
        .stderr(open().map_err(failed())?);
    Ok(namespace.spawn(command)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Told;
    use anabranch_testbed::emulator::LinkShape;

    #[test]
    fn the_generated_configuration_is_what_is_told_and_the_settings() {
        let shape = LinkShape::new(50_000_000, 10_000_000, 0);
        let lte = IspSpec {
            routed: true,
            told: Told {
                rates: Declared::Actual(false),
                metered: true,
                weight: Some(3),
            },
            ..IspSpec::new(1, "lte", shape.clone())
        };
        let isps = vec![IspSpec::new(0, "fiber", shape), lte];
        assert_eq!(
            configuration(&LabSpec::new(isps), "policy = \"rr\"\n"),
            r#"lan = ["lan0"]
link.fiber = { device = "wan0", down = "50000000bit", up = "10000000bit" }
link.lte = { device = "wan1", metered = true, nat = false, weight = 3 }
policy = "rr"
"#
        );
    }
}
