//! The gateway's programs without the daemon: what the daemon would tell them is told once, and they are swept once a
//! second as it would.

use std::net::IpAddr;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anabranch_core::{ClassId, DataPlane, Family, LinkId};
use anabranch_dataplane::{
    Gateway, LinkPath, Role, Route, Settings, Sizes, UNCONFIRMED_PER_HOST, Verdict,
};
use anabranch_policy::{Dispatch, Granularity, Load, abi};
use anabranch_testbed::netns::Namespace;
use anabranch_testbed::pins::PinFolder;
use anyhow::{Result, anyhow};

use super::{LAN_DEVICE, LINKS, Network, address, external, ifindex, isp, wan_device};

const MTU: u32 = 1500;
/// As much room as connection tracking gets.
const FLOWS_MAX: u32 = 1_048_576;
/// As the daemon does: what a sweep took, so many times, is until the next.
const SWEEP_REST: u32 = 200;

/// The gateway; its programs go with the value.
pub struct Running {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    pins: PinFolder,
}

impl Running {
    pub fn pins(&self) -> &Path {
        &self.pins
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub fn start(network: &Network) -> Result<Running> {
    let (stop, stopped) = channel::<()>();
    // Devices are found by name in the namespace of the thread; the thread that sweeps does not care.
    let pins = PinFolder::name("bench");
    let mut gateway = network.gateway.run(|| open(&network.gateway, &pins))??;
    let thread = std::thread::spawn(move || {
        let mut took = Duration::ZERO;
        while stopped.recv_timeout(took * SWEEP_REST) == Err(RecvTimeoutError::Timeout) {
            let begun = Instant::now();
            if let Err(error) = gateway.sweep() {
                eprintln!("sweeping: {error}");
            }
            took = begun.elapsed();
        }
        if let Err(error) = gateway.close() {
            eprintln!("closing the gateway: {error}");
        }
    });
    Ok(Running {
        stop: Some(stop),
        thread: Some(thread),
        pins,
    })
}

fn open(namespace: &Namespace, pins: &Path) -> Result<Gateway> {
    let sizes = Sizes {
        flows_max: FLOWS_MAX,
        ..Sizes::default()
    };
    let (mut gateway, _) = Gateway::open(pins, sizes)?;
    let lan = ifindex(LAN_DEVICE)?;
    let mut wan = [0; LINKS as usize];
    for (i, wan) in (0..).zip(&mut wan) {
        *wan = ifindex(&wan_device(i))?;
    }
    describe(&mut gateway, namespace, lan, wan)?;
    for (i, wan) in (0..).zip(wan) {
        gateway.attach(wan, Role::Link(LinkId(i)), false, MTU)?;
    }
    let role = Role::lan(Family::ALL.map(address::gateway));
    gateway.attach(lan, role, false, MTU)?;
    Ok(gateway)
}

/// Tells the programs what the daemon would, of these devices.
pub fn describe(
    gateway: &mut Gateway,
    namespace: &Namespace,
    lan: u32,
    wan: [u32; LINKS as usize],
) -> Result<()> {
    gateway.set_settings(&settings(namespace)?)?;
    let routes: Vec<_> = Family::ALL
        .into_iter()
        .flat_map(|family| routes(family, lan))
        .collect();
    gateway.set_routes(&routes)?;
    for family in Family::ALL {
        gateway.install(ClassId::DEFAULT, family, &choice())?;
        for (i, ifindex) in (0..).zip(wan) {
            let path = LinkPath {
                external: external(family, i),
                gateway: Some(isp(family, i)),
                prefix: None,
                inbound: false,
                ifindex,
                mtu: MTU,
                point_to_point: false,
                shares_segment: false,
            };
            gateway.set_link(LinkId(i.into()), family, Some(&path))?;
        }
    }
    Ok(())
}

fn routes(family: Family, lan: u32) -> Vec<Route> {
    let of_one = |address: IpAddr| (address, if address.is_ipv4() { 32 } else { 128 });
    let mut routes: Vec<_> = (0..LINKS)
        .map(|i| external(family, i))
        .chain([address::gateway(family)])
        .map(|address| Route {
            prefix: of_one(address),
            verdict: Verdict::Local,
        })
        .collect();
    routes.push(Route {
        prefix: address::lan(family),
        verdict: Verdict::Lan {
            ifindex: lan,
            via: None,
        },
    });
    routes
}

/// As random as nftables' numgen.
fn choice() -> abi::Choice {
    let mut choice = abi::Choice {
        dispatch: Dispatch::Random.into(),
        load: Load::Dispatched.into(),
        count: LINKS.into(),
        usable: abi::Set::of_word((1 << LINKS) - 1),
        working: abi::Set::of_word((1 << LINKS) - 1),
        syn_retry: 1,
        granularity: Granularity::Connection.into(),
        ..Default::default()
    };
    for target in choice.target.iter_mut().take(LINKS.into()) {
        *target = abi::Target::new(abi::WEIGHT_MIN, 0);
    }
    choice
}

/// The timers of RFC 5382 and RFC 4787; quotas out of the way.
fn settings(namespace: &Namespace) -> Result<Settings> {
    const SECOND: u64 = 1_000_000_000;
    let range = namespace.sysctl("net/ipv4/ip_local_port_range")?;
    let ends: Vec<u16> = range
        .split_whitespace()
        .filter_map(|port| port.parse().ok())
        .collect();
    let [ephemeral_min, ephemeral_max] = ends[..] else {
        return Err(anyhow!("ip_local_port_range is `{range}`"));
    };
    Ok(Settings {
        tcp_established_ns: 7440 * SECOND,
        tcp_transitory_ns: 240 * SECOND,
        udp_ns: 300 * SECOND,
        icmp_ns: 60 * SECOND,
        unconfirmed_ns: 30 * SECOND,
        forwards_kernel: 0,
        routed: 0,
        quota_per_host: FLOWS_MAX,
        flows_max: FLOWS_MAX,
        port_min: 1024,
        port_max: u16::MAX,
        ephemeral_min,
        ephemeral_max,
        udp_filter_open: 0,
        fallback_mark: 0,
        unconfirmed_per_host: UNCONFIRMED_PER_HOST,
        flows_per_device: 0,
        unconfirmed_per_device: 0,
        lan_sources_loose: 0,
        reserved: [0; abi::RESERVED_MAX],
        routes_kernel: 0,
        zero: 0,
    })
}
