//! The gateway as users run it: the daemon and all it does beside forwarding.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anabranch_lab::netns::Child;
use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::{LAN_DEVICE, LINKS, Network, SERVER, external, isp, wan_device};

const READY_WITHIN: Duration = Duration::from_secs(20);
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// The daemon; stopped cleanly when the value goes.
pub struct Running {
    daemon: Child,
    _folder: TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.daemon.terminate(STOP_WITHIN) {
            eprintln!("stopping the daemon: {error}");
        }
    }
}

pub fn start(network: &Network, binary: &Path) -> Result<Running> {
    for i in 0..LINKS {
        let (isp, device, metric) = (isp(i), wan_device(i), 100 + u32::from(i));
        network.gateway.ip(&format!(
            "route add default via {isp} dev {device} metric {metric}"
        ))?;
    }
    let folder = tempfile::tempdir().context("a folder for the daemon's configuration")?;
    let (config, log) = (folder.path().join("bench.toml"), folder.path().join("log"));
    fs::write(&config, configuration())?;
    let mut command = Command::new(binary);
    command
        .args(["run", "--instance", &instance(), "--config"])
        .arg(&config)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log)?);
    let mut running = Running {
        daemon: network.gateway.spawn(command)?,
        _folder: folder,
    };
    wait_until_ready(network, &mut running.daemon).with_context(|| {
        let said = fs::read_to_string(&log).unwrap_or_default();
        format!("{} does not forward; it said: {said}", binary.display())
    })?;
    Ok(running)
}

fn instance() -> String {
    format!("bench-{}", std::process::id())
}

/// Random, as nftables' numgen; quotas out of the way.
fn configuration() -> String {
    let links: String = (0..LINKS)
        .map(|i| {
            format!(
                "[link.isp{i}]\ndevice = \"{}\"\nprobe = [\"{}\"]\n",
                wan_device(i),
                isp(i)
            )
        })
        .collect();
    format!(
        "lan = [\"{LAN_DEVICE}\"]\npolicy = \"random\"\n\
         [limits]\nflows = 1048576\nflows_per_host = 1048576\n{links}"
    )
}

/// Until a connection from the client arrives from one of the gateway's external addresses.
fn wait_until_ready(network: &Network, daemon: &mut Child) -> Result<()> {
    let listener = network
        .internet
        .run(|| TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], 0))))??;
    let server = SocketAddr::from((SERVER, listener.local_addr()?.port()));
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
            if (0..LINKS).any(|i| peer.ip() == external(i)) {
                return Ok(());
            }
        }
    }
    bail!("no connection got through within {READY_WITHIN:?}")
}
