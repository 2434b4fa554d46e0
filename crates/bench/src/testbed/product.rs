//! The gateway as users run it: the daemon and all it does beside forwarding.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anabranch_policy::Family;
use anabranch_testbed::netns::Child;
use anyhow::{Context, Result, bail};
use nix::sys::signal::SigSet;
use tempfile::TempDir;

use crate::pins::{DAEMON_PINS, INSTANCE_PREFIX};

use super::{LAN_DEVICE, LINKS, Network, external, isp, server, unspecified, wan_device};

const READY_WITHIN: Duration = Duration::from_secs(20);
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// The daemon; stopped cleanly when the value goes.
pub struct Running {
    daemon: Child,
    instance: String,
    _folder: TempDir,
}

impl Running {
    /// Where the daemon keeps this instance's pins.
    pub fn pins(&self) -> PathBuf {
        Path::new(DAEMON_PINS).join(&self.instance)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.daemon.terminate(STOP_WITHIN) {
            eprintln!("stopping the daemon: {error}");
        }
    }
}

pub fn start(network: &Network, binary: &Path, policy: &str) -> Result<Running> {
    for i in 0..LINKS {
        let (device, metric) = (wan_device(i), 100 + u32::from(i));
        for next_hop in Family::ALL.map(|family| isp(family, i)) {
            network.gateway.ip(&format!(
                "route add default via {next_hop} dev {device} metric {metric}"
            ))?;
        }
    }
    let folder = tempfile::tempdir().context("a folder for the daemon's configuration")?;
    let (config, log) = (folder.path().join("bench.toml"), folder.path().join("log"));
    fs::write(&config, configuration(policy))?;
    let instance = fresh_instance();
    let mut command = Command::new(binary);
    command
        .args(["run", "--instance", &instance, "--config"])
        .arg(&config)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log)?);
    // SAFETY: sigprocmask is a plain system call; nothing is allocated or locked between fork and exec.
    unsafe {
        command.pre_exec(|| Ok(SigSet::all().thread_unblock()?));
    }
    let mut running = Running {
        daemon: network.gateway.spawn(command)?,
        instance,
        _folder: folder,
    };
    wait_until_ready(network, &mut running.daemon).with_context(|| {
        let said = fs::read_to_string(&log).unwrap_or_default();
        format!("{} does not forward; it said: {said}", binary.display())
    })?;
    Ok(running)
}

/// A daemon that ended may still hold its name when the next one starts.
fn fresh_instance() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{INSTANCE_PREFIX}{}-{number}", std::process::id())
}

/// Each connection is chosen for by itself, as nftables' mark is; quotas are out of the way.
fn configuration(policy: &str) -> String {
    let links: String = (0..LINKS)
        .map(|i| {
            format!(
                "[link.isp{i}]\ndevice = \"{}\"\nprobe = [\"icmp:{}\", \"icmp:{}\"]\n",
                wan_device(i),
                isp(Family::V4, i),
                isp(Family::V6, i)
            )
        })
        .collect();
    format!(
        "lan = [\"{LAN_DEVICE}\"]\npolicy = {policy}\n\
         [default]\nstick = false\n[limits]\nflows = 1048576\nflows_per_host = 1048576\n{links}"
    )
}

/// Until a connection from the client arrives from one of the gateway's external addresses, in either family.
fn wait_until_ready(network: &Network, daemon: &mut Child) -> Result<()> {
    Family::ALL
        .into_iter()
        .try_for_each(|family| wait_until_forwards(network, daemon, family))
}

fn wait_until_forwards(network: &Network, daemon: &mut Child, family: Family) -> Result<()> {
    let listener = network
        .internet
        .run(|| TcpListener::bind((unspecified(family), 0)))??;
    let server = SocketAddr::from((server(family, 1), listener.local_addr()?.port()));
    let deadline = Instant::now() + READY_WITHIN;
    while Instant::now() < deadline {
        if let Some(exit) = daemon.wait(Duration::ZERO)? {
            bail!("it ended: {exit:?}");
        }
        let attempt = network
            .client
            .run(|| std::net::TcpStream::connect_timeout(&server, Duration::from_millis(250)))?;
        if attempt.is_ok() {
            let (_, peer) = listener.accept()?;
            if (0..LINKS).any(|i| peer.ip() == external(family, i)) {
                return Ok(());
            }
        }
    }
    bail!("no connection over {family} got through within {READY_WITHIN:?}")
}
