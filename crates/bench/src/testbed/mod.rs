//! The network every contender is measured in: client, gateway, internet, joined by plain virtual Ethernet.
//!
//! ```text
//! client ──lan── gateway ──wan0── internet (203.0.113.0/24)
//!                       └─wan1──
//! ```
//!
//! Each contender has a network of its own, built alike, so that no state of one is met by another. What differs is
//! the gateway's work alone, and for plain forwarding the route back to the client.

mod address;
mod conntrack;
mod dataplane;
mod forwarding;
mod nftables;
mod polling;
mod product;
mod redirect;

use std::path::{Path, PathBuf};

use anabranch_lab::topology::Anabranch;
use anabranch_policy::{Family, abi};
use anabranch_testbed::netns::Namespace;
use anyhow::{Context, Result};
use serde::Serialize;

pub use address::{
    CLIENT, GATEWAY, SERVER, client, external, isp, lan, link, server, servers, unspecified,
};
pub use conntrack::Conntrack;
pub use dataplane::describe;
pub use redirect::{Redirect, start as start_redirect};

/// Uplinks of the gateway.
pub const LINKS: u8 = 2;
/// The client's and the gateway's devices on the LAN.
pub const CLIENT_DEVICE: &str = "lan";
pub const LAN_DEVICE: &str = "lan";

/// Test runs use the loopback device.
pub const LOOPBACK: u32 = 1;

/// Where frames of the packet generator are forwarded; they are made on processor 0.
const FORWARDING_CPU: usize = 1;

/// Of both ends, given by their routes: outside the machine's own namespace the sysctl takes only what
/// `tcp_allowed_congestion_control` allows.
pub const CONGESTION_CONTROL: &str = "cubic";

pub fn wan_device(i: u8) -> String {
    format!("wan{i}")
}

pub fn isp_device(i: u8) -> String {
    format!("isp{i}")
}

/// The index of a device of the thread's namespace.
fn ifindex(device: &str) -> Result<u32> {
    nix::net::if_::if_nametoindex(device).with_context(|| format!("no device {device}"))
}

pub struct Network {
    pub client: Namespace,
    pub gateway: Namespace,
    pub internet: Namespace,
}

impl Network {
    pub fn build() -> Result<Self> {
        let network = Network {
            client: Namespace::create("client")?,
            gateway: Namespace::create("gateway")?,
            internet: Namespace::create("internet")?,
        };
        network.tune()?;
        network.join()?;
        Ok(network)
    }

    /// The hosts must not be the limit: the client never runs out of ports, nor the server of closed connections.
    fn tune(&self) -> Result<()> {
        for namespace in [&self.client, &self.gateway, &self.internet] {
            for (key, value) in [
                ("net/ipv4/conf/all/rp_filter", "0"),
                ("net/ipv4/conf/default/rp_filter", "0"),
                ("net/ipv4/tcp_no_metrics_save", "1"),
                ("net/ipv4/tcp_max_tw_buckets", "2000000"),
            ] {
                namespace.set_sysctl(key, value)?;
            }
            namespace.set_ipv6(true)?;
        }
        self.client
            .set_sysctl("net/ipv4/ip_local_port_range", "1024 65535")?;
        self.client.set_sysctl("net/ipv4/tcp_tw_reuse", "1")?;
        self.internet.set_sysctl("net/core/somaxconn", "4096")?;
        self.gateway.set_sysctl("net/ipv4/ip_forward", "1")?;
        self.gateway
            .set_sysctl("net/ipv6/conf/all/forwarding", "1")?;
        Ok(())
    }

    fn join(&self) -> Result<()> {
        let Network {
            client,
            gateway,
            internet,
        } = self;
        client.veth(CLIENT_DEVICE, gateway, LAN_DEVICE)?;
        // As a network card's driver would: polled (NAPI), and received through GRO.
        gateway.exec("ethtool", &["-K", LAN_DEVICE, "gro", "on"])?;
        polling::in_thread_on(gateway, FORWARDING_CPU)?;
        for i in 0..LINKS {
            gateway.veth(&wan_device(i), internet, &isp_device(i))?;
        }
        Family::ALL
            .into_iter()
            .try_for_each(|family| self.address(family))
    }

    /// Gives everybody addresses of a family, and the client its route.
    fn address(&self, family: Family) -> Result<()> {
        let (client, gateway, internet) = (&self.client, &self.gateway, &self.internet);
        let (_, bits) = lan(family);
        client.add_address(CLIENT_DEVICE, address::client(family), bits)?;
        gateway.add_address(LAN_DEVICE, address::gateway(family), bits)?;
        client.ip(&format!(
            "route add default via {} congctl {CONGESTION_CONTROL}",
            address::gateway(family)
        ))?;
        for i in 0..LINKS {
            let (far, (network, bits)) = (isp_device(i), link(family, i));
            gateway.add_address(&wan_device(i), external(family, i), bits)?;
            internet.add_address(&far, isp(family, i), bits)?;
            internet.ip(&format!(
                "route replace {network}/{bits} dev {far} congctl {CONGESTION_CONTROL}"
            ))?;
        }
        let (network, bits) = servers(family);
        internet.ip(&format!("route add local {network}/{bits} dev lo"))?;
        Ok(())
    }

    /// Tells the internet the way to the client itself, which gateways that do not translate need.
    pub fn route_back(&self) -> Result<()> {
        for family in Family::ALL {
            let (network, bits) = lan(family);
            self.internet.ip(&format!(
                "route add {network}/{bits} via {} congctl {CONGESTION_CONTROL}",
                external(family, 0)
            ))?;
        }
        Ok(())
    }
}

/// Who forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Contender {
    Anabranch,
    Nftables,
    Forwarding,
    Redirect,
}

impl Contender {
    pub const ALL: [Contender; 4] = [
        Contender::Anabranch,
        Contender::Nftables,
        Contender::Forwarding,
        Contender::Redirect,
    ];

    /// For people.
    pub fn label(self) -> &'static str {
        match self {
            Contender::Anabranch => "anabranch",
            Contender::Nftables => "nftables",
            Contender::Forwarding => "forwarding",
            Contender::Redirect => "redirect alone",
        }
    }
}

/// What keeps a gateway forwarding; its work ends with the value.
enum Work {
    Program { running: dataplane::Running },
    Daemon { running: Anabranch },
    Redirect { _attached: [Redirect; 2] },
    Kernel,
}

/// How the Anabranch contender is run.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AnabranchBy {
    /// The programs alone, swept once a second, with a choice that never changes.
    DataPlane,
    /// The daemon: probes, weights, sweeps and all.
    Daemon(PathBuf),
}

/// As nftables' numgen.
pub const RANDOM: &str = "\"random\"";

/// A contender in its network.
pub struct Testbed {
    pub contender: Contender,
    // Declared before the network: the gateway's work ends while its devices still exist.
    work: Work,
    pub network: Network,
}

impl Testbed {
    pub fn build(contender: Contender, by: &AnabranchBy) -> Result<Self> {
        Testbed::with(contender, |network| {
            Ok(match (contender, by) {
                (Contender::Anabranch, AnabranchBy::DataPlane) => Work::Program {
                    running: dataplane::start(network)?,
                },
                (Contender::Anabranch, AnabranchBy::Daemon(path)) => Work::Daemon {
                    running: product::start(network, path, RANDOM)?,
                },
                (Contender::Nftables, _) => nftables::configure(network).map(|()| Work::Kernel)?,
                (Contender::Forwarding, _) => {
                    forwarding::configure(network).map(|()| Work::Kernel)?
                }
                (Contender::Redirect, _) => Work::Redirect {
                    _attached: redirect::start(network)?,
                },
            })
        })
    }

    /// The daemon with a policy, as it is written in a configuration.
    pub fn of_policy(daemon: &Path, policy: &str) -> Result<Self> {
        Testbed::with(Contender::Anabranch, |network| {
            Ok(Work::Daemon {
                running: product::start(network, daemon, policy)?,
            })
        })
    }

    fn with(contender: Contender, work: impl FnOnce(&Network) -> Result<Work>) -> Result<Self> {
        let network = Network::build()?;
        Ok(Testbed {
            contender,
            work: work(&network)?,
            network,
        })
    }

    /// A pinned map, if the contender is a gateway of ours.
    pub fn map(&self, name: &str) -> Option<PathBuf> {
        let pins = match &self.work {
            Work::Program { running } => running.pins().to_owned(),
            Work::Daemon { running } => running.paths().ok()?.pins().to_owned(),
            Work::Redirect { .. } | Work::Kernel => return None,
        };
        Some(pins.join(format!("v{}", abi::ABI_VERSION)).join(name))
    }
}
