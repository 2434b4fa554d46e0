//! Who is measured, and how a run of each is started and paid for.

use std::fmt;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

const NS2_SCRIPT: &str = include_str!("../../sim/dumbbell.tcl");
const NS3_PROGRAM: &str = include_str!("../../sim/dumbbell.cc");
const NS3_HEADER: &str = "ns3/core-module.h";
const NS3_LIBRARIES: [&str; 6] = [
    "-lns3-applications",
    "-lns3-point-to-point",
    "-lns3-internet",
    "-lns3-traffic-control",
    "-lns3-network",
    "-lns3-core",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    Anabranch,
    /// As a user writes it.
    Ns2,
    /// With headers left out and routes set by hand.
    Ns2Tuned,
    Ns3,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Name::Anabranch => "anabranch",
            Name::Ns2 => "ns-2",
            Name::Ns2Tuned => "ns-2 tuned",
            Name::Ns3 => "ns-3",
        })
    }
}

/// What a run achieved and what it took.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Data segments delivered in order.
    pub segments: u64,
    /// What the simulator scheduled and met, if it tells.
    pub events: Option<u64>,
    pub cpu_s: f64,
    pub peak_bytes: u64,
}

impl Outcome {
    pub fn segments_per_s(&self) -> f64 {
        self.segments as f64 / self.cpu_s
    }
}

/// The simulators on this machine.
pub struct Contenders {
    anabranch: PathBuf,
    ns2: Result<PathBuf, String>,
    ns3: Result<PathBuf, String>,
    /// Holds the script and the program; removed at the end.
    _folder: TempDir,
}

impl Contenders {
    pub fn find() -> Result<Self> {
        let folder = tempfile::tempdir().context("making a folder for the other simulators")?;
        Ok(Contenders {
            anabranch: std::env::current_exe()?,
            ns2: prepare_ns2(folder.path())?,
            ns3: prepare_ns3(folder.path())?,
            _folder: folder,
        })
    }

    pub fn names(&self) -> Vec<Name> {
        let others = [
            (Name::Ns2, &self.ns2),
            (Name::Ns2Tuned, &self.ns2),
            (Name::Ns3, &self.ns3),
        ];
        let here = others.into_iter().filter(|(_, other)| other.is_ok());
        [Name::Anabranch]
            .into_iter()
            .chain(here.map(|(name, _)| name))
            .collect()
    }

    /// Why somebody is left out.
    pub fn missing(&self) -> impl Iterator<Item = &String> {
        [&self.ns2, &self.ns3]
            .into_iter()
            .filter_map(|other| other.as_ref().err())
    }

    pub fn run(&self, name: Name, flows: u64, seconds: u64) -> Result<Outcome> {
        let mut command = match (name, &self.ns2, &self.ns3) {
            (Name::Ns2 | Name::Ns2Tuned, Ok(script), _) => {
                let mut command = Command::new("ns");
                command.arg(script);
                command
            }
            (Name::Ns3, _, Ok(program)) => Command::new(program),
            (Name::Anabranch, ..) => {
                let mut command = Command::new(&self.anabranch);
                command.arg("dumbbell");
                command
            }
            (Name::Ns2 | Name::Ns2Tuned, Err(why), _) | (Name::Ns3, _, Err(why)) => bail!("{why}"),
        };
        command.args([flows.to_string(), seconds.to_string()]);
        if name == Name::Ns2Tuned {
            command.arg("tuned");
        }
        measure(command).with_context(|| format!("{name} with {flows} flows over {seconds} s"))
    }

    /// So many flows through one gateway, in the simulator.
    pub fn run_gateway(&self, flows: u64, seconds: u64) -> Result<Outcome> {
        let mut command = Command::new(&self.anabranch);
        command.args(["gateway".to_owned(), flows.to_string(), seconds.to_string()]);
        measure(command).with_context(|| format!("{flows} flows through a gateway"))
    }
}

fn prepare_ns2(folder: &Path) -> Result<Result<PathBuf, String>> {
    let nothing = Command::new("ns").arg("/dev/null").output();
    if !nothing.is_ok_and(|output| output.status.success()) {
        return Ok(Err(
            "ns-2 is not installed (Debian package ns2): left out".to_owned()
        ));
    }
    let script = folder.join("dumbbell.tcl");
    std::fs::write(&script, NS2_SCRIPT)?;
    Ok(Ok(script))
}

fn prepare_ns3(folder: &Path) -> Result<Result<PathBuf, String>> {
    if !has_header(NS3_HEADER) {
        return Ok(Err(
            "ns-3 is not installed (Debian packages libns3-dev and g++): left out".to_owned(),
        ));
    }
    let (source, program) = (folder.join("dumbbell.cc"), folder.join("dumbbell"));
    std::fs::write(&source, NS3_PROGRAM)?;
    let status = Command::new("g++")
        .args(["-std=c++17", "-O2", "-o"])
        .args([&program, &source])
        .args(NS3_LIBRARIES)
        .status()
        .context("compiling for ns-3 with g++")?;
    ensure!(status.success(), "g++ could not compile for ns-3: {status}");
    Ok(Ok(program))
}

fn has_header(name: &str) -> bool {
    let probe = Command::new("g++")
        .args(["-std=c++17", "-fsyntax-only", "-include", name, "-x", "c++"])
        .arg("/dev/null")
        .stderr(Stdio::null())
        .status();
    probe.is_ok_and(|status| status.success())
}

/// Runs `command`, whose output begins with the delivered segments.
fn measure(mut command: Command) -> Result<Outcome> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut said = String::new();
    let mut output = child.stdout.take().context("its output is a pipe")?;
    output.read_to_string(&mut said)?;
    let (status, usage) = wait(&child)?;
    ensure!(status.success(), "{status}");
    let mut numbers = said.split_whitespace().map(str::parse::<u64>);
    let segments = numbers
        .next()
        .and_then(Result::ok)
        .with_context(|| format!("it should have told its segments, and said {said:?}"))?;
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(Outcome {
        segments,
        events: numbers.next().and_then(Result::ok),
        cpu_s: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        peak_bytes: usage.ru_maxrss as u64 * 1024,
    })
}

/// Waits for a child and learns what it took.
fn wait(child: &Child) -> Result<(ExitStatus, libc::rusage)> {
    let mut status = 0;
    // SAFETY: rusage is plain data, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both places live until the call returns, and nobody else waits for this child.
    let waited = unsafe { libc::wait4(child.id() as i32, &mut status, 0, &mut usage) };
    ensure!(
        waited == child.id() as i32,
        "waiting for process {}: {}",
        child.id(),
        std::io::Error::last_os_error()
    );
    Ok((ExitStatus::from_raw(status), usage))
}
