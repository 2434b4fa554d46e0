//! What keeps a server from being a member, as far as the server itself shows it. Works with and without a daemon.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anabranch_api::{Finding, MemberStatus, Paths, Severity};
use anabranch_core::Family;
use anabranch_dataplane::Pinned;
use anabranch_policy::abi::MEMBER_ABI_VERSION;
use anyhow::Context;

use super::config::Config;
use crate::config::{Configuration, MEMBER};
use crate::error::{BadInput, Error};
use crate::host;
use crate::neighbours::{Ruleset, finding, ruleset};
use crate::observe::{Netlink, Prefix, RouteKind, Snapshot};

/// Of IPv6, UDP and GUE.
const OUTER_BYTES_MAX: u32 = 52;
/// The least that IPv6 wants of a path (RFC 8200 section 5).
const MTU_MIN: u32 = 1280;
const LOOPBACK: &str = "lo";

/// What is known of the server.
#[derive(Default)]
struct Scene {
    host: Snapshot,
    /// By device and name of the setting: the value that the kernel goes by.
    settings: BTreeMap<(String, &'static str), String>,
    listening: Vec<SocketAddr>,
    ruleset: Ruleset,
    /// The programs of the instance are attached.
    has_programs: bool,
    /// None: no daemon runs, or it is no member.
    status: Option<MemberStatus>,
}

/// Looks at this server, as the file at `path` wants it to be a member. `status` is what its daemon says, if one runs.
///
/// # Errors
/// The file is refused, or the host cannot be read.
pub fn examine(
    path: &Path,
    paths: &Paths,
    status: Option<MemberStatus>,
) -> Result<Vec<Finding>, Error> {
    let Some(config) = Configuration::load(path)?.member else {
        let problem = format!("{}: has no [{MEMBER}]", path.display());
        return Err(BadInput::new(problem).into());
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    let scene = runtime.block_on(Scene::read(&config, paths, status))?;
    Ok(findings(&config, &scene))
}

impl Scene {
    async fn read(
        config: &Config,
        paths: &Paths,
        status: Option<MemberStatus>,
    ) -> anyhow::Result<Self> {
        let host = Netlink::connect()?.snapshot().await?;
        let mut settings = BTreeMap::new();
        let there = config.devices.iter();
        for device in there.filter(|name| host.devices.contains_key(*name)) {
            for name in ["arp_ignore", "arp_announce", "rp_filter"] {
                settings.insert((device.clone(), name), host::in_force(device, name)?);
            }
        }
        let pins = Pinned::Member.folder(paths.pins(), MEMBER_ABI_VERSION);
        Ok(Self {
            host,
            settings,
            listening: host::listening().context("list sockets")?,
            // Without nft, or without nftables in the kernel, there is nothing to read.
            ruleset: ruleset().await.unwrap_or_default(),
            has_programs: pins.exists(),
            status,
        })
    }

    fn setting(&self, device: &str, name: &'static str) -> &str {
        let value = self.settings.get(&(device.to_owned(), name));
        value.map_or("", String::as_str)
    }

    /// Names of the devices that have an address.
    fn devices_of(&self, address: IpAddr) -> impl Iterator<Item = &str> {
        let devices = self.host.devices.iter();
        let with = devices.filter(move |(_, device)| device.every_address.contains(&address));
        with.map(|(name, _)| name.as_str())
    }

    /// Names of the devices by which the default routes of a family lead.
    fn ways_out(&self, family: Family) -> Vec<&str> {
        let is_default = |prefix| prefix == Prefix::everything(family);
        let routes = self.host.routes.iter();
        let routes =
            routes.filter(|route| is_default(route.prefix) && route.kind == RouteKind::Unicast);
        let hops: Vec<u32> = routes
            .flat_map(|route| &route.hops)
            .map(|hop| hop.ifindex)
            .collect();
        let devices = self.host.devices.iter();
        let out = devices.filter(|(_, device)| hops.contains(&device.ifindex));
        out.map(|(name, _)| name.as_str()).collect()
    }
}

fn findings(config: &Config, scene: &Scene) -> Vec<Finding> {
    let mut found = daemon(config, scene);
    found.extend(config.addresses.iter().flat_map(|one| address(*one, scene)));
    found.extend(
        config
            .devices
            .iter()
            .flat_map(|name| device(config, name, scene)),
    );
    let families = Family::ALL.into_iter();
    let families = families.filter(|family| {
        config
            .addresses
            .iter()
            .any(|one| Family::from(*one) == *family)
    });
    found.extend(families.filter_map(|family| way_out(config, family, scene)));
    found.extend(config.from.iter().filter_map(|one| source(*one, scene)));
    found.extend(scene.ruleset.input_filters().map(|chain| firewall(&chain)));
    found.sort();
    found
}

fn trouble(
    name: &str,
    subject: impl Into<String>,
    meaning: impl Into<String>,
    cure: impl Into<String>,
) -> Finding {
    finding(
        Severity::Trouble,
        name,
        subject,
        meaning.into(),
        cure.into(),
    )
}

fn daemon(config: &Config, scene: &Scene) -> Vec<Finding> {
    let Some(status) = &scene.status else {
        let meaning = match scene.has_programs {
            true => "its programs go on, and nobody sees to addresses and settings",
            false => "packets in tunnels are not taken out of them",
        };
        let cure = format!(
            "start it: `anabranch run --config {}`",
            config.path.display()
        );
        return vec![trouble("not-running", "the daemon", meaning, cure)];
    };
    let troubles = status.troubles.iter();
    let troubles = troubles.map(|words| trouble("trouble", "the daemon", words, "see its log"));
    let known: Vec<IpAddr> = status.addresses.iter().map(|one| one.address).collect();
    let is_other = known != config.addresses || status.devices != config.devices;
    let other = is_other.then(|| {
        let meaning = "it runs with other addresses or devices than the file has";
        trouble("not-reloaded", "the daemon", meaning, "`anabranch reload`")
    });
    troubles.chain(other).collect()
}

fn address(address: IpAddr, scene: &Scene) -> Vec<Finding> {
    let mut found = Vec::new();
    let subject = address.to_string();
    let devices: Vec<&str> = scene.devices_of(address).collect();
    if devices.is_empty() {
        let meaning = "no device has it: packets for it are not this server's";
        let cure = format!(
            "start the daemon, or `ip address add {} dev lo`",
            Prefix::host(address)
        );
        found.push(trouble("address-missing", &subject, meaning, cure));
    }
    for device in devices.into_iter().filter(|device| *device != LOOPBACK) {
        let meaning = format!(
            "device {device} has it, and tells its neighbours so: clients reach this server past the balancer"
        );
        let cure = format!("`ip address del {address} dev {device}`, and have it on lo");
        found.push(trouble("address-announced", &subject, meaning, cure));
    }
    let serves = |at: &&SocketAddr| {
        let all = at.ip().is_unspecified() && (at.is_ipv6() || address.is_ipv4());
        at.ip() == address || all
    };
    if !scene.listening.iter().any(|at| serves(&at)) {
        let meaning = "no program listens at it: clients are refused";
        let cure = "have the service listen at it, or at all addresses";
        found.push(trouble("not-listening", subject, meaning, cure));
    }
    found
}

fn device(config: &Config, name: &str, scene: &Scene) -> Vec<Finding> {
    let Some(device) = scene.host.devices.get(name) else {
        let cure = "correct `devices`, or create it";
        return vec![trouble(
            "device-missing",
            name,
            "there is no such device",
            cure,
        )];
    };
    let set = |key: &str, value: u8| {
        format!("`sysctl net.ipv4.conf.{name}.{key}={value}`, as the daemon does")
    };
    let mut found = Vec::new();
    if config.addresses.iter().any(IpAddr::is_ipv4) {
        if scene.setting(name, "arp_ignore") < "1" {
            let meaning =
                "it answers ARP for virtual addresses: clients reach this server past the balancer";
            found.push(trouble("arp-answered", name, meaning, set("arp_ignore", 1)));
        }
        if scene.setting(name, "arp_announce") < "2" {
            let meaning = "its ARP requests may name a virtual address: neighbours take this server for the balancer";
            found.push(trouble(
                "arp-announced",
                name,
                meaning,
                set("arp_announce", 2),
            ));
        }
        let out = scene.ways_out(Family::V4);
        if scene.setting(name, "rp_filter") == "1" && !out.is_empty() && !out.contains(&name) {
            let meaning = format!(
                "reverse-path filtering drops what comes from clients, as answers leave by {}",
                out.join(", ")
            );
            found.push(trouble("strict-filter", name, meaning, set("rp_filter", 2)));
        }
    }
    if device.mtu < MTU_MIN + OUTER_BYTES_MAX {
        let meaning = format!(
            "its MTU {} leaves a tunnel less than {MTU_MIN} bytes",
            device.mtu
        );
        let cure = format!("`ip link set {name} mtu 1500`");
        found.push(trouble("short-mtu", name, meaning, cure));
    }
    found
}

/// Whether answers of a family find a way, and pass by a program.
fn way_out(config: &Config, family: Family, scene: &Scene) -> Option<Finding> {
    let out = scene.ways_out(family);
    if out.is_empty() {
        let meaning = "there is no default route: clients get no answers";
        return Some(trouble(
            "no-route",
            family.to_string(),
            meaning,
            "give the host one",
        ));
    }
    let other = out
        .iter()
        .find(|name| !config.devices.iter().any(|own| own == *name))?;
    let tunnels = scene.status.iter().flat_map(|status| &status.addresses);
    let mut tunnels = tunnels.filter(|one| Family::from(one.address) == family);
    let is_in_tunnel = tunnels.any(|one| one.outer_bytes > 0);
    is_in_tunnel.then(|| {
        let meaning = format!("answers of {family} leave by it, past the program that tells clients of segments that fit the tunnel");
        trouble("long-segments", *other, meaning, format!("add {other:?} to `devices`"))
    })
}

/// The kernel takes nothing that bears an address of its own as source.
fn source(source: IpAddr, scene: &Scene) -> Option<Finding> {
    let device = scene.devices_of(source).next()?;
    let meaning = format!(
        "this host has it itself, on {device}: what comes from there is dropped as a martian"
    );
    Some(trouble(
        "martian-source",
        source.to_string(),
        meaning,
        "write the balancer's own address in `from`",
    ))
}

fn firewall(chain: &str) -> Finding {
    finding(
        Severity::Note,
        "input-filter",
        chain,
        "it drops what no rule accepts, after packets were taken out of tunnels".to_owned(),
        "accept what clients send to the virtual addresses; rules for protocols 4 and 41 or the port of GUE are of no use".to_owned(),
    )
}
