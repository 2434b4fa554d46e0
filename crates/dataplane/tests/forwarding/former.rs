//! The version before this one, as it left a site: its programs loaded, pinned, attached, and told what its user space told
//! them. `fixtures/gateway-v5.bpf.o` is its object as clang made it of the last commit with that contract (81a06d5), less
//! debugging information.

use std::{
    fs::DirBuilder,
    net::Ipv4Addr,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use anabranch_dataplane::{Settings, Sizes, attach};
use anabranch_policy::abi::{
    self, Addr, FORMER_VERSION, FlowKey, FormerChoice, FormerDevice, FormerFlow, FormerLink,
    FormerRoute, FormerSettings,
};
use anyhow::Context;
use aya::{
    Ebpf, EbpfLoader,
    maps::{Array, HashMap, LpmTrie, Map, MapData, PerCpuArray, PerCpuValues, lpm_trie::Key},
    programs::{SchedClassifier, TcAttachType},
    util::nr_cpus,
};
use nix::net::if_::if_nametoindex;

use crate::{common::*, site::Site};

pub static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/fixtures/gateway-v5.bpf.o"
));

/// Where its pins are.
pub fn folder(site: &Site) -> PathBuf {
    site.pins.join(format!("v{FORMER_VERSION}"))
}

/// Starts it on a bare site, and leaves it there without a process.
pub fn start(site: &Site, settings: Settings, sizes: Sizes) {
    let folder = folder(site);
    let mut builder = DirBuilder::new();
    builder.mode(0o700).recursive(true).create(&folder).unwrap();
    let started = site.gateway.run(|| load(&folder, settings, sizes));
    started.unwrap().unwrap();
}

fn load(folder: &Path, settings: Settings, sizes: Sizes) -> anyhow::Result<()> {
    let mut bpf = EbpfLoader::new()
        .default_map_pin_directory(folder)
        .map_max_entries("flows", sizes.flows_max * 4)
        .map_max_entries("embryos", sizes.embryos_max * 5)
        .map_max_entries("embryo_order", sizes.embryos_max)
        .map_max_entries("permissions", sizes.flows_max)
        .map_max_entries("hosts", sizes.hosts_max)
        .load(OBJECT)?;
    for name in ["lan", "wan"] {
        classifier(&mut bpf, name)?.load()?;
    }
    array(&mut bpf, "settings")?.set(0, settings_formerly(&settings), 0)?;
    array(&mut bpf, "choice")?.set(0, round_robin_formerly(), 0)?;
    tell_routes(&mut bpf)?;
    tell_devices(&mut bpf)?;
    for (name, device) in [("lan", "lan0"), ("wan", "wan0"), ("wan", "wan1")] {
        let (program, ifindex) = (classifier(&mut bpf, name)?, if_nametoindex(device)?);
        attach(program, folder, ifindex, TcAttachType::Ingress)?;
    }
    Ok(())
}

fn classifier<'a>(
    bpf: &'a mut Ebpf,
    name: &'static str,
) -> anyhow::Result<&'a mut SchedClassifier> {
    Ok(bpf.program_mut(name).context(name)?.try_into()?)
}

fn array<V: aya::Pod>(bpf: &mut Ebpf, name: &'static str) -> anyhow::Result<Array<MapData, V>> {
    Ok(bpf.take_map(name).context(name)?.try_into()?)
}

fn settings_formerly(now: &Settings) -> FormerSettings {
    FormerSettings {
        tcp_established_ns: now.tcp_established_ns,
        tcp_transitory_ns: now.tcp_transitory_ns,
        udp_ns: now.udp_ns,
        icmp_ns: now.icmp_ns,
        embryo_ns: now.embryo_ns,
        forwards_kernel: now.forwards_kernel,
        quota_per_host: now.quota_per_host,
        flows_max: now.flows_max,
        port_min: now.port_min,
        port_max: now.port_max,
        ephemeral_min: now.ephemeral_min,
        ephemeral_max: now.ephemeral_max,
        udp_filter_open: now.udp_filter_open,
        fallback_mark: now.fallback_mark,
        embryos_per_host: now.embryos_per_host,
        flows_per_device: now.flows_per_device,
        embryos_per_device: now.embryos_per_device,
        lan_sources_loose: now.lan_sources_loose,
        routed: now.routed,
        reserved: now.reserved,
    }
}

fn round_robin_formerly() -> FormerChoice {
    let now = round_robin(0b11);
    let mut choice = FormerChoice {
        dispatch: now.dispatch,
        load: now.load,
        count: now.count,
        usable: now.usable.word[0] as u32,
        syn_retry: 1,
        ..FormerChoice::default()
    };
    choice.target.copy_from_slice(&now.target[..abi::MAX_LINKS]);
    choice
}

fn tell_routes(bpf: &mut Ebpf) -> anyhow::Result<()> {
    let routes = bpf.take_map("routes").context("routes")?;
    let mut routes: LpmTrie<MapData, Addr, FormerRoute> = routes.try_into()?;
    let route = |verdict: abi::Verdict| FormerRoute {
        verdict: verdict.into(),
        ..FormerRoute::default()
    };
    let lan = FormerRoute {
        ifindex: if_nametoindex("lan0")?,
        ..route(abi::Verdict::Lan)
    };
    let net = Ipv4Addr::new(10, 0, 0, 0);
    routes.insert(&Key::new(96 + 24, net.into()), lan, 0)?;
    for local in [GATEWAY_LAN, EXTERNAL[0], EXTERNAL[1]] {
        routes.insert(&Key::new(128, local.into()), route(abi::Verdict::Local), 0)?;
    }
    Ok(())
}

fn tell_devices(bpf: &mut Ebpf) -> anyhow::Result<()> {
    let mut links: Array<_, FormerLink> = array(bpf, "links")?;
    let mut devices: Array<_, FormerDevice> = array(bpf, "devices")?;
    let lan = FormerDevice {
        ifindex: if_nametoindex("lan0")?,
        role: abi::Role::Lan.into(),
        mtu: 1500,
        address: GATEWAY_LAN.into(),
        ..FormerDevice::default()
    };
    let mut all = vec![lan];
    for (link, (external, isp)) in EXTERNAL.into_iter().zip(ISP).enumerate() {
        let ifindex = if_nametoindex(format!("wan{link}").as_str())?;
        let path = FormerLink {
            external: external.into(),
            gateway: isp.into(),
            ifindex,
            mtu: 1500,
            flags: abi::LINK_PRESENT,
            zero: 0,
        };
        links.set(link as u32, path, 0)?;
        all.push(FormerDevice {
            ifindex,
            role: abi::Role::Link.into(),
            link: link as u8,
            mtu: 1500,
            ..FormerDevice::default()
        });
    }
    for device in all {
        devices.set(device.ifindex % abi::DEVICE_PLACES, device, 0)?;
    }
    Ok(())
}

/// The LAN entries of its flows.
pub fn flows(site: &Site) -> Vec<(FlowKey, FormerFlow)> {
    let mut flows = Vec::new();
    for table in ["embryos", "flows"] {
        let data = MapData::from_pin(folder(site).join(table)).unwrap();
        let table: HashMap<_, FlowKey, FormerFlow> = Map::HashMap(data).try_into().unwrap();
        flows.extend(table.iter().map(Result::unwrap));
    }
    flows.retain(|(key, _)| key.side == abi::SIDE_LAN);
    flows
}

/// As many packets have left for a reason, by its number, as `packets` says.
pub fn count_reasons(site: &Site, packets: impl Fn(u32) -> u64) {
    let data = MapData::from_pin(folder(site).join("reasons")).unwrap();
    let count = data.info().unwrap().max_entries();
    let mut reasons: PerCpuArray<_, u64> = Map::PerCpuArray(data).try_into().unwrap();
    for number in 0..count {
        let mut per_cpu = vec![0; nr_cpus().unwrap()];
        per_cpu[0] = packets(number);
        let counted = PerCpuValues::try_from(per_cpu).unwrap();
        reasons.set(number, counted, 0).unwrap();
    }
}
