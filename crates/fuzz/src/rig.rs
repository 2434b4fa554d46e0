//! The loaded programs in a namespace of their own, whose devices lead nowhere. What a program does with a packet is
//! what `BPF_PROG_TEST_RUN` says; what it sends beside it (clones) is caught at the devices.

use std::fmt;
use std::fs;
use std::net::{IpAddr, SocketAddr};

use anabranch_core::{Choice, ClassId, DataPlane, Family, LinkId};
use anabranch_dataplane::{
    Forwards, Gateway, LinkPath, Marked, Role, Route, Settings, Sizes, UNCONFIRMED_PER_HOST,
    Verdict,
};
use anabranch_policy::abi::HostKey;
use anabranch_policy::{Fate, Reason, abi};
use anabranch_testbed::netns::{Entered, Namespace};
use anabranch_testbed::pins::PinFolder;
use anyhow::{Context, Result, ensure};
use aya::TestRun;
use aya::maps::{HashMap, Map, MapData, MapType};
use aya::programs::TestRunOptions;
use nix::net::if_::if_nametoindex;

use crate::build::{GATEWAY_MAC, words};
use crate::capture::{Capture, Seen};
use crate::read::Ip;
use crate::script::{Shot, to_hex};
use crate::shares::{self, Limit, Payments};
use crate::site::*;
use crate::tables::Tables;
use anabranch_dataplane::raw::RawMap;

const SECOND_NS: u64 = 1_000_000_000;
/// Of `struct __sk_buff`: where the mark and the device's index stand.
const CONTEXT_MARK: usize = 8;
const CONTEXT_IFINDEX: usize = 40;
/// More than the whole of it, which is handed back.
const CONTEXT_ROOM: usize = 512;
/// `BPF_PROG_TEST_RUN` wants an Ethernet and an IP header, and the packet and room around it in one page.
pub const FRAME_MIN: usize = 34;
/// The same for IPv6.
pub const IPV6_FRAME_MIN: usize = 54;
/// The longest frame that a test run takes.
pub const FRAME_MAX: usize = 3500;
const OUTPUT_MAX: usize = 4096 + 128;
const FALLBACK_MARK: u32 = 0x0ab0_0001;
/// Where the fallback's link stands in its mark.
const FALLBACK_LINK: u32 = 0xff << abi::FALLBACK_LINK_SHIFT;
/// What is told anew for every round, or lasts. Everything else in the pins is state.
const TOLD: [&str; 6] = [
    "settings",
    "choice",
    "links",
    "devices",
    "routes",
    "next_hops",
];

/// Of what a program sent back as one LAN host sent it to another.
const HAIRPINNED: Marked = Marked::ByPrograms(abi::HAIRPIN_MARK);

/// Whether a packet left with the mark that it came with. One of ours that others gave it is taken off.
fn is_kept(marked: Marked, left: u32) -> bool {
    match marked {
        Marked::ByOthers(mark) if mark & abi::OUR_MARKS_MASK == abi::OUR_MARKS => left == 0,
        Marked::ByOthers(mark) | Marked::ByPrograms(mark) => left == mark,
    }
}

/// Whether the host's rules are told something by a mark.
fn is_told(mark: u32) -> bool {
    mark == abi::STRAY_MARK || mark & !FALLBACK_LINK == FALLBACK_MARK
}

/// `TC_ACT_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It was sent on.
    Redirect,
    /// It was dropped.
    Drop,
    /// It was left to the kernel.
    Pass,
    /// Any other value.
    Other(u32),
}

impl Action {
    fn of(returned: u32) -> Self {
        match returned {
            7 => Action::Redirect,
            2 => Action::Drop,
            u32::MAX => Action::Pass,
            other => Action::Other(other),
        }
    }
}

/// Whether what left is for who sent the packet: his device, or on a layer-3 link an IP packet without the room for
/// Ethernet that others are given.
fn is_for_sender(port: Port, came: &[u8], left: &[u8]) -> bool {
    match port.header() {
        0 => left
            .first()
            .is_some_and(|byte| [4, 6].contains(&(byte >> 4))),
        _ => left.get(..6) == came.get(6..12),
    }
}

/// What became of a packet.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What the program answered.
    pub action: Action,
    /// Numbers of the reasons counted: one, unless clones of the packet went through the programs as well.
    pub reasons: Vec<usize>,
    /// As the program left it.
    pub frame: Vec<u8>,
    /// The frame is the gateway's answer, and goes back to where the packet came from.
    pub is_returned: bool,
    /// The packet's mark is the one it came with, or says something to the host's rules.
    pub is_well_marked: bool,
    /// The packet was one LAN host's to another, coming back.
    pub is_hairpinned: bool,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{:?}", self.action)?;
        for &number in &self.reasons {
            write!(f, " {}", anabranch_policy::reasons()[number].name)?;
        }
        write!(f, " {}", to_hex(&self.frame))
    }
}

/// Reasons to send a packet that no later fragment leaves for.
const WHOLE: [&str; 4] = ["CHALLENGE", "HAIRPIN_SYN", "PROBE_ANSWERED", "PROBE_OUT"];

impl Outcome {
    /// The reason that fits what became of the packet itself.
    pub fn reason(&self) -> Option<&'static Reason> {
        let returns = |reason: &&Reason| (reason.fate == Fate::Refused) == self.is_returned;
        // Fragments that waited for this packet leave before it, for reasons of their own: not for these, which need a TCP header.
        let is_whole = |reason: &&Reason| WHOLE.contains(&reason.name) && !self.is_returned;
        let mut fitting = self.fitting();
        fitting
            .find(is_whole)
            .or_else(|| self.fitting().find(returns))
            .or_else(|| self.fitting().next())
    }

    fn fitting(&self) -> impl Iterator<Item = &'static Reason> {
        let fits = |reason: &&'static Reason| match self.action {
            Action::Redirect => matches!(reason.fate, Fate::Sent | Fate::Refused),
            Action::Drop => matches!(reason.fate, Fate::Dropped | Fate::Refused),
            Action::Pass => reason.fate == Fate::Passed,
            Action::Other(_) => false,
        };
        let all = anabranch_policy::reasons();
        self.reasons.iter().map(|&number| &all[number]).filter(fits)
    }
}

type FlowMap = HashMap<MapData, abi::FlowKey, abi::Flow>;
/// The loaded programs, without devices, in a namespace of their own.
pub struct Rig {
    plane: Option<Gateway>,
    _pins: PinFolder,
    /// Of the devices, in the order of [`Port::all`].
    indexes: Vec<u32>,
    state: Vec<RawMap>,
    counters: RawMap,
    counted: Vec<u64>,
    flows: FlowMap,
    forwards: Forwards,
    /// All flows, as they were at the last look.
    pub tables: Tables,
    payments: Payments,
    /// Frames that the programs sent beside the packet.
    pub capture: Capture,
    output: Vec<u8>,
    /// What this round has told the gateway.
    pub told: Told,
    _inside: Entered,
    _namespace: Namespace,
}

impl Rig {
    /// In a namespace that the calling thread stays in while the rig lives.
    pub fn new() -> Result<Self> {
        let namespace = Namespace::create("fuzz")?;
        for key in ["all", "default"] {
            namespace.set_sysctl(&format!("net/ipv6/conf/{key}/disable_ipv6"), "1")?;
        }
        for port in Port::all() {
            namespace.veth(&port.to_string(), &namespace, &format!("{port}-far"))?;
            let mac = words(GATEWAY_MAC);
            namespace.ip(&format!("link set {port} address {mac} mtu 9000 arp off"))?;
        }
        let inside = namespace.enter()?;
        let names = Port::all().into_iter().map(|port| port.to_string());
        let indexes: Vec<u32> = names
            .map(|name| if_nametoindex(name.as_str()))
            .collect::<Result<_, _>>()?;
        let pins = PinFolder::name("fuzz");
        let sizes = Sizes {
            flows_max: FLOWS_MAX,
            unconfirmed_max: FLOWS_MAX,
            hosts_max: HOSTS_MAX,
            prefixes_max: HOSTS_MAX,
        };
        let (mut plane, _) = Gateway::open(&pins, sizes)?;
        attach(&mut plane, &indexes)?;
        plane.set_routes(&routes(&indexes))?;
        let maps = pins.join(format!("v{}", abi::ABI_VERSION));
        Ok(Rig {
            state: state_maps(&maps)?,
            counters: RawMap::open(&maps.join("reasons"))?,
            counted: vec![0; anabranch_policy::reasons().len()],
            flows: hash_map(&maps, "flows")?,
            forwards: Forwards::open(&maps)?,
            tables: Tables::open(&maps)?,
            payments: Payments::default(),
            capture: Capture::new(Seen::Leaving)?,
            output: vec![0; OUTPUT_MAX],
            told: Told::default(),
            plane: Some(plane),
            _pins: pins,
            indexes,
            _inside: inside,
            _namespace: namespace,
        })
    }

    /// Forgets all state, and tells the gateway anew.
    pub fn reset(&mut self, told: &Told) -> Result<()> {
        for map in &mut self.state {
            map.clear()?;
        }
        self.counted.fill(0);
        self.capture.drain(|_, _| {})?;
        self.tables.forget();
        self.payments = Payments::default();
        let indexes = self.indexes.clone();
        let plane = self.plane()?;
        plane.set_settings(&settings(told))?;
        for link in 0..LINKS {
            let ifindex = indexes[usize::from(LANS) + usize::from(link)];
            for (family, site) in Family::ALL.into_iter().zip(FAMILIES) {
                let path = path(link, told, site, ifindex);
                plane.set_link(LinkId(link), family, Some(&path))?;
            }
        }
        for family in Family::ALL {
            plane.install(ClassId::DEFAULT, family, &choice(told))?;
        }
        self.told = told.clone();
        Ok(())
    }

    fn plane(&mut self) -> Result<&mut Gateway> {
        self.plane.as_mut().context("closed")
    }

    /// Of the device that stands for a port.
    pub fn index_of(&self, port: Port) -> u32 {
        let place = match port {
            Port::Lan(lan) => usize::from(lan),
            Port::Link(link) => usize::from(LANS) + usize::from(link),
        };
        self.indexes[place]
    }

    /// The port whose device this is.
    pub fn port_of(&self, index: u32) -> Option<Port> {
        let place = self.indexes.iter().position(|&known| known == index)?;
        Port::all().get(place).copied()
    }

    /// A frame arrives.
    pub fn arrive(&mut self, shot: &Shot) -> Result<Outcome> {
        self.arrive_marked(shot.port, &shot.frame, Marked::ByOthers(shot.mark))
    }

    /// What one LAN host sent to another's external address comes back.
    pub fn come_back(&mut self, port: Port, frame: &[u8]) -> Result<Outcome> {
        self.arrive_marked(port, frame, HAIRPINNED)
    }

    /// A SYN that has waited comes from the LAN once more, for a link.
    pub fn release(&mut self, port: Port, frame: &[u8], link: u16) -> Result<Outcome> {
        let mark = abi::RACE_COPY_MARK | u32::from(link);
        self.arrive_marked(port, frame, Marked::ByPrograms(mark))
    }

    /// The kernel forwards what a link brought to every LAN host, its ports as they are.
    pub fn forward(&mut self, ip: &Ip) -> Result<()> {
        let (remote_port, local_port) = ip.ports().unwrap_or_default();
        let remote = SocketAddr::new(ip.src(), remote_port);
        for (host, _) in family_of(ip.dst()).hosts {
            let local = SocketAddr::new(host, local_port);
            self.forwards.enter(ip.proto(), local, remote)?;
        }
        Ok(())
    }

    fn arrive_marked(&mut self, port: Port, frame: &[u8], marked: Marked) -> Result<Outcome> {
        let index = self.index_of(port);
        if let Some(ip) = Ip::of(&frame[port.header().min(frame.len())..]) {
            self.tables.touched.by(port, &ip);
            if let Some(host) = self.sender(port, frame) {
                self.tables.touched.by_host(host, ip.src());
            }
        }
        let program = match port {
            Port::Lan(_) => "lan",
            Port::Link(_) => "wan",
        };
        let mut context = marked.context();
        context[CONTEXT_IFINDEX..][..4].copy_from_slice(&index.to_ne_bytes());
        let mut output = std::mem::take(&mut self.output);
        let mut left = [0; CONTEXT_ROOM];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut output),
            ctx_in: Some(&context),
            ctx_out: Some(&mut left),
            ..TestRunOptions::new()
        };
        let ran = self.plane()?.program(program)?.test_run(options);
        self.output = output;
        let ran = ran.with_context(|| format!("{port} {}", to_hex(frame)))?;
        let reasons = self.count()?;
        if let Some(host) = self.sender(port, frame) {
            for &number in &reasons {
                let name = anabranch_policy::reasons()[number].name;
                self.payments.add(host, name);
            }
        }
        let frame_left = self.output[..ran.data_size_out as usize].to_vec();
        let action = Action::of(ran.return_value);
        let bytes = left[CONTEXT_MARK..][..4].try_into().expect("4 bytes");
        let mark_left = u32::from_ne_bytes(bytes);
        Ok(Outcome {
            is_well_marked: is_kept(marked, mark_left) || is_told(mark_left),
            is_hairpinned: marked == HAIRPINNED,
            is_returned: action == Action::Redirect && is_for_sender(port, frame, &frame_left),
            action,
            reasons,
            frame: frame_left,
        })
    }

    /// Who a frame counts against: the LAN host that sent it.
    pub fn sender(&self, port: Port, frame: &[u8]) -> Option<HostKey> {
        let Port::Lan(_) = port else { return None };
        let address = Ip::of_frame(frame)?.src();
        let ifindex = self.index_of(Port::Lan(lan_of(address)?));
        let mac = frame[6..12].try_into().ok()?;
        Some(shares::sender(ifindex, mac, address))
    }

    /// Whether a LAN host has reached a limit.
    pub fn is_at(&self, host: &HostKey, limit: Limit) -> bool {
        match limit {
            Limit::Fallbacks | Limit::AllFallbacks | Limit::Unknown => {
                self.payments.are_at(host, limit)
            }
            Limit::Unconfirmed if self.has_unconfirmed(host) => false,
            _ => self.tables.shares.are_at(&self.told, host, limit),
        }
    }

    fn has_unconfirmed(&self, host: &HostKey) -> bool {
        let mut entries = self.flows.iter().flatten();
        entries.any(|(key, flow)| {
            key.side == abi::SIDE_LAN
                && flow.state & abi::STATE_CONFIRMED == 0
                && shares::holder(&flow, key.local) == *host
        })
    }

    /// At the flow tables.
    pub fn look(&mut self) -> Result<Result<(), String>> {
        self.tables.look(&self.told)
    }

    /// The reasons that were counted since the last call.
    fn count(&mut self) -> Result<Vec<usize>> {
        let (counted, mut rose) = (&mut self.counted, Vec::with_capacity(1));
        self.counters.for_each(|key, value| {
            let number = u32::from_ne_bytes(key.try_into().expect("a number")) as usize;
            let cpus = value.chunks_exact(8);
            let now = cpus
                .map(|cpu| u64::from_ne_bytes(cpu.try_into().expect("8 bytes")))
                .sum();
            for _ in counted[number]..now {
                rose.push(number);
            }
            counted[number] = now;
        })?;
        Ok(rose)
    }

    /// One entry of a flow.
    pub fn find(&self, key: &abi::FlowKey) -> Option<abi::Flow> {
        self.flows.get(key, 0).ok()
    }

    /// Whether a confirmed flow of LAN endpoint `inner` has the external endpoint `outer`, towards whomever.
    pub fn stands_for(&self, outer: (IpAddr, u16), inner: (IpAddr, u16)) -> bool {
        let entries = self.flows.iter().flatten();
        let named = |address: abi::Addr, port: abi::BePort| (address.ip(), port.get());
        let wanted = [outer, inner];
        entries
            .filter(|(key, flow)| {
                key.side != abi::SIDE_LAN && flow.state & abi::STATE_CONFIRMED != 0
            })
            .any(|(key, flow)| {
                let local = named(key.local, key.local_port);
                [local, named(flow.other_local, flow.other_port)] == wanted
            })
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(plane) = self.plane.take() {
            // What is not removed here goes with the namespace's devices; the pins are a few names.
            let _ = plane.close();
        }
    }
}

fn attach(plane: &mut Gateway, indexes: &[u32]) -> Result<()> {
    for (port, &index) in Port::all().into_iter().zip(indexes) {
        let role = match port {
            Port::Lan(lan) => Role::lan(FAMILIES.map(|site| site.gateway[usize::from(lan)])),
            Port::Link(link) => Role::Link(LinkId(link)),
        };
        plane.attach(index, role, port.header() == 0, 1500)?;
    }
    Ok(())
}

fn routes(indexes: &[u32]) -> Vec<Route> {
    let lan = |&(network, length, lan): &(IpAddr, u8, u8)| Route {
        prefix: (network, length),
        verdict: Verdict::Lan {
            ifindex: indexes[usize::from(lan)],
            via: (network == family_of(network).behind_router.0)
                .then_some(family_of(network).router),
        },
    };
    let own = |&address: &IpAddr| Route {
        prefix: (address, if address.is_ipv6() { 128 } else { 32 }),
        verdict: match lan_of(address) {
            Some(lan) => Verdict::LocalInLan {
                ifindex: indexes[usize::from(lan)],
            },
            None => Verdict::Local,
        },
    };
    let lans = |site: &'static Addresses| site.lan_prefixes.iter();
    let owned = |site: &'static Addresses| site.gateway.iter().chain(&site.external);
    let lans = FAMILIES.into_iter().flat_map(lans).map(lan);
    // As the daemon tells.
    let of_links = [("fe80::", 10), ("ff00::", 8)].map(|(network, length): (&str, u8)| Route {
        prefix: (network.parse().expect("an address"), length),
        verdict: Verdict::Kernel,
    });
    lans.chain(of_links)
        .chain(FAMILIES.into_iter().flat_map(owned).map(own))
        .collect()
}

fn path(link: u16, told: &Told, site: &Addresses, ifindex: u32) -> LinkPath {
    let bare = link == BARE_LINK;
    let external = site.external[usize::from(link)];
    LinkPath {
        external,
        gateway: (!bare).then_some(site.isp[usize::from(link)]),
        prefix: told.prefix_of(link).filter(|_| external.is_ipv6()),
        inbound: false,
        ifindex,
        mtu: told.mtu[usize::from(link)],
        point_to_point: bare,
        shares_segment: false,
    }
}

fn settings(told: &Told) -> Settings {
    let (port_min, port_max) = told.port_range();
    let mut settings = Settings {
        tcp_established_ns: 7440 * SECOND_NS,
        tcp_transitory_ns: 240 * SECOND_NS,
        udp_ns: 300 * SECOND_NS,
        icmp_ns: 60 * SECOND_NS,
        unconfirmed_ns: 240 * SECOND_NS,
        quota_per_host: told.quota,
        unconfirmed_per_host: UNCONFIRMED_PER_HOST,
        flows_max: told.full,
        port_min,
        port_max,
        ephemeral_min: EPHEMERAL.0,
        ephemeral_max: EPHEMERAL.1,
        udp_filter_open: told.udp_open.into(),
        forwards_kernel: told.forwards.into(),
        lan_sources_loose: told.loose.into(),
        reserved: told.reserved(),
        flows_per_device: told.device,
        unconfirmed_per_device: told.device / 2,
        ..Settings::default()
    };
    if told.fallback {
        settings.fallback_mark = FALLBACK_MARK;
    }
    settings
}

fn choice(told: &Told) -> Choice {
    Choice {
        syn_retry: told.syn_retry.into(),
        races: told.races,
        holds: told.holds.into(),
        granularity: told.sessions.into(),
        ..Choice::round_robin(LINKS.into(), told.usable)
    }
}

/// Every map that holds what the programs learned.
fn state_maps(pins: &std::path::Path) -> Result<Vec<RawMap>> {
    let mut maps = Vec::new();
    for entry in fs::read_dir(pins).with_context(|| pins.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !TOLD.contains(&name.as_ref()) && !name.starts_with("attach-") {
            maps.push(RawMap::open(&path)?);
        }
    }
    ensure!(!maps.is_empty(), "no maps in {}", pins.display());
    Ok(maps)
}

fn hash_map<K: aya::Pod, V: aya::Pod>(
    pins: &std::path::Path,
    name: &str,
) -> Result<HashMap<MapData, K, V>> {
    let data = MapData::from_pin(pins.join(name))?;
    let map = match data.info()?.map_type()? {
        MapType::LruHash => Map::LruHashMap(data),
        _ => Map::HashMap(data),
    };
    Ok(map.try_into()?)
}
