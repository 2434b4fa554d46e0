//! A service of four servers beyond the first link, and what balances it: ours, nftables or HAProxy.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

use anabranch_scenario::Family;
use anabranch_testbed::netns::{Child, Namespace};
use tempfile::TempDir;

use super::innocent::{TCP_PORT, UDP_PORT};
use crate::topology::{LAN_DEVICE, Result, SERVERS, io_error};

const SERVERS_OF_SERVICE: u32 = 4;
/// A connection takes two descriptors, of 20 000 that a program may have where nobody has raised that.
const HAPROXY_CONNECTIONS: usize = 9000;
const GRACE: Duration = Duration::from_secs(2);

/// Where clients find the service.
pub(super) fn virtual_address(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(203, 0, 113, 10).into(),
        Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0x113, 0, 0, 0, 0, 10).into(),
    }
}

fn endpoint(family: Family, port: u16) -> SocketAddr {
    (virtual_address(family), port).into()
}

fn servers(family: Family) -> impl Iterator<Item = IpAddr> {
    (0..SERVERS_OF_SERVICE).map(move |number| SERVERS.address(family, number))
}

/// As a user would write it who leaves out what may be left out.
pub(super) fn configuration(family: Family) -> String {
    let servers: Vec<_> = servers(family).map(|at| format!("\"{at}\"")).collect();
    format!(
        "[service.web]\nlisten = [\"{}\", \"udp:{}\"]\nservers = [{}]\ndevices = [\"{LAN_DEVICE}\", \"wan0\"]\n",
        endpoint(family, TCP_PORT),
        endpoint(family, UDP_PORT),
        servers.join(", ")
    )
}

/// Each connection to a random server, by the kernel's connection tracking.
pub(super) fn load_nftables(balancer: &Namespace, family: Family) -> Result<()> {
    let (ip, address) = match family {
        Family::V4 => ("ip", virtual_address(family)),
        Family::V6 => ("ip6", virtual_address(family)),
    };
    let servers: Vec<_> = servers(family)
        .enumerate()
        .map(|(number, at)| format!("{number} : {at}"))
        .collect();
    let rules = format!(
        "table {ip} service {{
            chain choose {{
                type nat hook prerouting priority dstnat
                {ip} daddr {address} dnat to numgen random mod {SERVERS_OF_SERVICE} map {{ {} }}
            }}
        }}",
        servers.join(", ")
    );
    Ok(balancer.nft(&rules)?)
}

/// HAProxy, which takes connections of TCP and makes others to the servers.
pub(super) struct Proxy {
    process: Child,
    _directory: TempDir,
}

impl Proxy {
    pub fn start(balancer: &Namespace, family: Family) -> Result<Self> {
        let servers: String = servers(family)
            .enumerate()
            .map(|(number, at)| {
                let at = SocketAddr::from((at, TCP_PORT));
                format!("    server s{number} {at}\n")
            })
            .collect();
        let text = format!(
            "global\n    maxconn {HAPROXY_CONNECTIONS}\n\
             defaults\n    mode tcp\n    timeout connect 5s\n    timeout client 300s\n    timeout server 300s\n\
             listen web\n    bind {} backlog 4096\n    balance random\n{servers}",
            endpoint(family, TCP_PORT)
        );
        let directory = TempDir::with_prefix("anabranch-lab-");
        let directory = directory.map_err(io_error("making a directory"))?;
        let file = directory.path().join("haproxy.cfg");
        fs::write(&file, text).map_err(io_error("writing haproxy.cfg"))?;
        let mut command = Command::new("haproxy");
        command.args(["-db", "-f"]).arg(&file);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self {
            process: balancer.spawn(command)?,
            _directory: directory,
        })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // A program that does not end in time is killed with its value.
        let _ = self.process.terminate(GRACE);
    }
}
