//! The gateway as users run it: the daemon and all it does beside forwarding.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anabranch_lab::topology::Anabranch;
use anabranch_policy::Family;
use anabranch_testbed::netns::Child;
use anyhow::{Context, Result, bail};

use super::{LAN_DEVICE, LINKS, Network, external, isp, server, unspecified, wan_device};

const READY_WITHIN: Duration = Duration::from_secs(20);

pub fn start(network: &Network, binary: &Path, policy: &str) -> Result<Anabranch> {
    for i in 0..LINKS {
        let (device, metric) = (wan_device(i), 100 + u32::from(i));
        for next_hop in Family::ALL.map(|family| isp(family, i)) {
            network.gateway.ip(&format!(
                "route add default via {next_hop} dev {device} metric {metric}"
            ))?;
        }
    }
    let mut daemon = Anabranch::start(&network.gateway, binary, &configuration(policy))?;
    wait_until_ready(network, daemon.process()).with_context(|| {
        let said = fs::read_to_string(daemon.log()).unwrap_or_default();
        format!("{} does not forward; it said: {said}", binary.display())
    })?;
    Ok(daemon)
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
    let listener = network.internet.listen((unspecified(family), 0))?;
    let server = SocketAddr::from((server(family, 1), listener.local_addr()?.port()));
    let deadline = Instant::now() + READY_WITHIN;
    while Instant::now() < deadline {
        if let Some(exit) = daemon.wait(Duration::ZERO)? {
            bail!("it ended: {exit:?}");
        }
        let attempt = network.client.connect(server, Duration::from_millis(250));
        if attempt.is_ok() {
            let (_, peer) = listener.accept()?;
            if (0..LINKS).any(|i| peer.ip() == external(family, i)) {
                return Ok(());
            }
        }
    }
    bail!("no connection over {family} got through within {READY_WITHIN:?}")
}
