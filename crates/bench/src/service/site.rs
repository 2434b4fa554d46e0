//! The network of `testbed`, where the client calls one virtual address, and the servers have addresses of their own on the first
//! link. The virtual address is local to the servers, too, so that plain forwarding, redirect alone and `direct` lead to it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anabranch_dataplane::Pinned;
use anabranch_lab::topology::Anabranch;
use anabranch_policy::Family;
use anabranch_policy::abi::{self, Direct, FlowKey};
use anabranch_testbed::netns::Child;
use anyhow::{Context, Result, bail, ensure};
use aya::maps::{HashMap, Map, MapData};
use serde::Serialize;
use tempfile::TempDir;

use crate::cpu;
use crate::testbed::{
    CLIENT, CONGESTION_CONTROL, LAN_DEVICE, Network, Redirect, SERVER, external, isp, isp_device,
    start_redirect, wan_device,
};

/// At which the service listens by TCP for the first processor's connections; the others' are at the next ports.
pub const PORT: u16 = 8000;
/// Addresses of the client, beside that on its network.
const CLIENTS: &str = "10.1.0.0/16";
pub const SERVERS: u8 = 4;
/// At which it listens by UDP: that of the frames that `measure::packets` makes.
const DISCARD: u16 = 9;
const FIRST_SERVER: u8 = 11;
/// As much room as connection tracking gets.
pub const CONNECTIONS_MAX: u32 = 1 << 20;
const READY_WITHIN: Duration = Duration::from_secs(20);
const GRACE: Duration = Duration::from_secs(2);

/// Of the client's addresses that of the n-th call.
pub fn caller(call: u32) -> IpAddr {
    let [.., high, low] = call.to_be_bytes();
    [10, 1, high, low].into()
}

/// What stands between the client and the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Contender {
    Nat,
    Direct,
    Tunnel,
    Nftables,
    Haproxy,
    Nginx,
    Forwarding,
    Redirect,
}

impl Contender {
    pub const ALL: [Contender; 8] = [
        Contender::Nat,
        Contender::Direct,
        Contender::Tunnel,
        Contender::Nftables,
        Contender::Haproxy,
        Contender::Nginx,
        Contender::Forwarding,
        Contender::Redirect,
    ];

    /// Its servers answer the client themselves.
    pub fn is_direct(self) -> bool {
        matches!(self, Contender::Direct | Contender::Tunnel)
    }

    pub fn is_proxy(self) -> bool {
        matches!(self, Contender::Haproxy | Contender::Nginx)
    }

    /// For people.
    pub fn label(self) -> &'static str {
        match self {
            Contender::Nat => "anabranch",
            Contender::Direct => "anabranch direct",
            Contender::Tunnel => "anabranch tunnel",
            Contender::Nftables => "nftables",
            Contender::Haproxy => "haproxy",
            Contender::Nginx => "nginx",
            Contender::Forwarding => "forwarding",
            Contender::Redirect => "redirect alone",
        }
    }
}

/// What keeps a contender at work; that ends with the value.
enum Work {
    Daemon(Anabranch),
    Proxy(Proxy),
    Redirect { _attached: [Redirect; 2] },
    Kernel,
}

/// A contender in its network.
pub struct Site {
    pub contender: Contender,
    // Declared before the network: the work ends while its devices still exist.
    work: Work,
    pub network: Network,
}

impl Site {
    pub fn build(contender: Contender, daemon: &Path) -> Result<Self> {
        let network = lay()?;
        // Redirect alone knows the way back by itself.
        if contender != Contender::Redirect {
            network.route_back()?;
        }
        let work = match contender {
            Contender::Nat | Contender::Direct | Contender::Tunnel => {
                let running = Anabranch::start(&network.gateway, daemon, &service(contender))?;
                Work::Daemon(running)
            }
            Contender::Nftables => network.gateway.nft(&rules()).map(|()| Work::Kernel)?,
            Contender::Haproxy => Work::Proxy(Proxy::haproxy(&network)?),
            Contender::Nginx => Work::Proxy(Proxy::nginx(&network)?),
            Contender::Forwarding => lead(&network).map(|()| Work::Kernel)?,
            Contender::Redirect => Work::Redirect {
                _attached: start_redirect(&network)?,
            },
        };
        let mut site = Site {
            contender,
            work,
            network,
        };
        match contender {
            Contender::Tunnel => site.wait_until_entered()?,
            _ => site.wait_until_ready()?,
        }
        Ok(site)
    }

    /// Memory of the processes that carry the connections themselves, bytes.
    pub fn process_memory(&self) -> Result<u64> {
        match &self.work {
            Work::Proxy(proxy) => proxy.memory(),
            _ => Ok(0),
        }
    }

    /// Whether it has sockets for connections, or knows none.
    pub fn is_of_sockets(&self) -> bool {
        self.contender.is_proxy() || self.contender == Contender::Forwarding
    }

    /// The table of connections of a service of ours.
    pub fn table(&self) -> Result<MapData> {
        let Work::Daemon(daemon) = &self.work else {
            bail!("{:?} has no table of ours", self.contender);
        };
        let folder = Pinned::Services.folder(daemon.paths()?.pins(), abi::SERVICE_ABI_VERSION);
        let path = folder.join(match self.contender.is_direct() {
            true => "direct_connections",
            false => "connections",
        });
        MapData::from_pin(&path).with_context(|| format!("opening {}", path.display()))
    }

    /// Whether it is ours.
    pub fn is_ours(&self) -> bool {
        matches!(self.work, Work::Daemon(_))
    }

    /// Until a datagram of the client is known. No server takes it out of its tunnel.
    fn wait_until_entered(&self) -> Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        while Instant::now() < deadline {
            self.network.client.run(|| {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
                socket.send_to(&[], (SERVER, DISCARD))
            })??;
            std::thread::sleep(Duration::from_millis(50));
            // The daemon may not have made its tables yet.
            let table = self.table().ok().map(Map::HashMap);
            let table = table.map(HashMap::<_, FlowKey, Direct>::try_from);
            if table
                .transpose()?
                .is_some_and(|table| table.keys().next().is_some())
            {
                return Ok(());
            }
        }
        bail!(
            "{:?}: no datagram known within {READY_WITHIN:?}",
            self.contender
        )
    }

    /// Until a connection arrives at a server.
    fn wait_until_ready(&mut self) -> Result<()> {
        let listener = self.network.internet.listen((IpAddr::from([0; 4]), PORT))?;
        listener.set_nonblocking(true)?;
        let service = SocketAddr::from((SERVER, PORT));
        let deadline = Instant::now() + READY_WITHIN;
        while Instant::now() < deadline {
            if let Work::Proxy(proxy) = &mut self.work
                && let Some(exit) = proxy.process.wait(Duration::ZERO)?
            {
                bail!("{:?} ended: {exit:?}", self.contender);
            }
            let called = self
                .network
                .client
                .connect(service, Duration::from_millis(250));
            // What a proxy takes need not have reached a server.
            std::thread::sleep(Duration::from_millis(50));
            if called.is_ok() && listener.accept().is_ok() {
                return Ok(());
            }
        }
        bail!(
            "{:?}: no connection within {READY_WITHIN:?}",
            self.contender
        )
    }
}

fn ports() -> std::ops::Range<u16> {
    PORT..PORT + cpu::count() as u16
}

/// The address of the server at this place.
fn server(place: u8) -> Ipv4Addr {
    Ipv4Addr::new(100, 64, 0, FIRST_SERVER + place)
}

fn servers() -> impl Iterator<Item = IpAddr> + Clone {
    (0..SERVERS).map(|place| server(place).into())
}

fn lay() -> Result<Network> {
    let network = Network::build()?;
    for server in servers() {
        network.internet.add_address(&isp_device(0), server, 24)?;
    }
    network
        .client
        .ip(&format!("route add local {CLIENTS} dev lo"))?;
    network
        .gateway
        .ip(&format!("route add {CLIENTS} via {CLIENT}"))?;
    network.internet.ip(&format!(
        "route add {CLIENTS} via {} congctl {CONGESTION_CONTROL}",
        external(Family::V4, 0)
    ))?;
    // A proxy has connections of its own.
    let gateway = &network.gateway;
    gateway.set_sysctl("net/ipv4/ip_local_port_range", "1024 65535")?;
    gateway.set_sysctl("net/ipv4/tcp_tw_reuse", "1")?;
    gateway.set_sysctl("net/core/somaxconn", "4096")?;
    Ok(network)
}

fn lead(network: &Network) -> Result<()> {
    let next_hop = isp(Family::V4, 0);
    network
        .gateway
        .ip(&format!("route add default via {next_hop}"))?;
    Ok(())
}

/// The daemon with its checks, as users run it.
fn service(contender: Contender) -> String {
    let forwarding = match contender {
        Contender::Direct => "direct",
        Contender::Tunnel => "tunnel",
        _ => "nat",
    };
    let servers: Vec<_> = servers().map(|server| format!("\"{server}\"")).collect();
    let ports = ports();
    format!(
        "[services]\nconnections = {CONNECTIONS_MAX}\n\
         [service.bench]\nlisten = [\"{SERVER}:{}-{}\", \"udp:{SERVER}:{DISCARD}\"]\nservers = [{}]\n\
         policy = \"random\"\ncheck = \"icmp\"\nforwarding = \"{forwarding}\"\ndevices = [\"{LAN_DEVICE}\", \"{}\"]\n",
        ports.start,
        ports.end - 1,
        servers.join(", "),
        wan_device(0)
    )
}

fn rules() -> String {
    let servers: Vec<_> = servers()
        .enumerate()
        .map(|(number, server)| format!("{number} : {server}"))
        .collect();
    format!(
        "table ip service {{
            chain choose {{
                type nat hook prerouting priority dstnat
                ip daddr {SERVER} dnat to numgen random mod {SERVERS} map {{ {} }}
            }}
        }}
        ",
        servers.join(", ")
    )
}

/// A program that takes connections, and makes others to servers.
struct Proxy {
    process: Child,
    _directory: TempDir,
}

impl Proxy {
    fn haproxy(network: &Network) -> Result<Self> {
        let servers: String = servers()
            .map(|server| format!("    server s{server} {server}\n"))
            .collect();
        let ports = ports();
        let text = format!(
            "global\n    maxconn 5000\n    nbthread {}\n\
             defaults\n    mode tcp\n    timeout connect 5s\n    timeout client 300s\n    timeout server 300s\n\
             listen bench\n    bind {SERVER}:{}-{} backlog 4096\n    balance random\n{servers}",
            cpu::count(),
            ports.start,
            ports.end - 1
        );
        Proxy::start(network, "haproxy", &["-db", "-f"], &text)
    }

    fn nginx(network: &Network) -> Result<Self> {
        let of_port = |port: u16| {
            let servers: String = servers()
                .map(|at| format!("server {at}:{port}; "))
                .collect();
            format!(
                "upstream port{port} {{ random; {servers}}}\n\
                 server {{ listen {SERVER}:{port} backlog=4096; proxy_pass port{port}; }}\n"
            )
        };
        let text = format!(
            "load_module /usr/lib/nginx/modules/ngx_stream_module.so;\n\
             user root;\ndaemon off;\nerror_log stderr crit;\npid PIDFILE;\n\
             worker_processes {};\nworker_rlimit_nofile 15000;\nevents {{ worker_connections 10000; }}\n\
             stream {{\n{}}}\n",
            cpu::count(),
            ports().map(of_port).collect::<String>()
        );
        Proxy::start(network, "nginx", &["-c"], &text)
    }

    /// `PROGRAM WORDS FILE`, where the virtual address is the gateway's own.
    fn start(network: &Network, program: &str, words: &[&str], text: &str) -> Result<Self> {
        network.gateway.add_address("lo", SERVER.into(), 32)?;
        let directory = TempDir::with_prefix("anabranch-bench-")?;
        let pid_file = directory.path().join("pid");
        let file = directory.path().join("configuration");
        fs::write(&file, text.replace("PIDFILE", &pid_file.to_string_lossy()))?;
        let mut command = Command::new(program);
        command.args(words).arg(&file).stdout(Stdio::null());
        let process = network.gateway.spawn(command);
        Ok(Proxy {
            process: process.with_context(|| format!("starting {program}: `make setup-rivals`"))?,
            _directory: directory,
        })
    }

    /// What its processes have for themselves, bytes.
    fn memory(&self) -> Result<u64> {
        let mut pids = vec![self.process.id()];
        let children = format!("/proc/{0}/task/{0}/children", self.process.id());
        let children = fs::read_to_string(children).context("reading a proxy's processes")?;
        pids.extend(
            children
                .split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
        let mut bytes = 0;
        for pid in pids {
            let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
            let private = text
                .lines()
                .filter_map(|line| line.strip_prefix("Private_Dirty:"));
            let kib: Option<u64> = private
                .filter_map(|rest| rest.split_whitespace().next()?.parse().ok())
                .next();
            bytes += kib.context("no Private_Dirty in smaps_rollup")? * 1024;
        }
        ensure!(bytes > 0, "a proxy without memory");
        Ok(bytes)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Err(error) = self.process.terminate(GRACE) {
            eprintln!("ending a proxy: {error}");
        }
    }
}

/// The daemon to measure: that beside this program.
pub fn daemon() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("anabranch");
    ensure!(path.is_file(), "{}: no such file", path.display());
    Ok(path)
}
