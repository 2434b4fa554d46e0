//! The loaded programs, told the time and every random number, in a namespace of their own. All packets arrive on its
//! loopback device, which is a LAN device to `lan` and the link that the packet comes from to `wan`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anabranch_core::{Family, LinkId, Time};
use anabranch_dataplane::raw::RawMap;
use anabranch_dataplane::{
    Build, Gateway, LinkPath, Marked, Role, Route, Settings, Sizes, Verdict,
};
use anabranch_fuzz::build::{self, GATEWAY_MAC, Says};
use anabranch_fuzz::loaded::{Ambient, Counters};
use anabranch_fuzz::read::Ip;
use anabranch_fuzz::site::Port;
use anabranch_policy::Reason;
use anabranch_policy::abi::{self, Flow, FlowKey, link_place};
use anabranch_policy::paths::{Paths, Prefix};
use anabranch_testbed::netns::{Entered, Namespace};
use anabranch_testbed::pins::PinFolder;
use anyhow::{Context, Result};
use aya::include_bytes_aligned;
use aya::maps::{Array, HashMap, Map, MapData};

use crate::transcript::LINKS;

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/gateway.bpf.o"));

const LOOPBACK: u32 = 1;
const MTU: u32 = 1500;
const TC_ACT_REDIRECT: u32 = 7;
/// More than any transcript opens: what the tables do when they are full has no counterpart in the simulator.
const ENTRIES: u32 = 4096;
/// What the programs learn.
const STATE: [&str; 17] = [
    "flows",
    "unconfirmed_order",
    "unordered",
    "hosts",
    "sessions",
    "losing_copies",
    "gauges",
    "traffic",
    "table",
    "turn",
    "races",
    "held",
    "prefixes",
    "silences",
    "last_silence",
    "teachers",
    "witnesses",
];

const SECOND_NS: u64 = 1_000_000_000;
/// Of a handshake, and of a connection that has ended.
pub const UNANSWERED_NS: u64 = 240 * SECOND_NS;
/// Of a connection.
pub const ESTABLISHED_NS: u64 = 7440 * SECOND_NS;

/// What other programs may have marked packets with, none of which says anything here; the last is like one of ours.
const OTHERS_MARKS: [u32; 3] = [0, 0x00c0_ffee, abi::RACE_COPY_MARK | 1];

/// The address that flows have on a link.
pub fn external(family: Family, link: u16) -> IpAddr {
    on_line(family, 2 + link)
}

fn on_line(family: Family, host: u16) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(192, 0, 2, host as u8).into(),
        Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, host).into(),
    }
}

/// What became of a packet.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Why it left.
    pub reason: &'static Reason,
    /// Where from and to, if it was sent on.
    pub sent: Option<(SocketAddr, SocketAddr)>,
    /// As the program left it.
    frame: Vec<u8>,
}

/// The programs, and the gateway that holds them.
pub struct Loaded {
    pub plane: Gateway,
    _pins: PinFolder,
    state: Vec<RawMap>,
    counters: Counters,
    /// How often each reason was counted, by its name.
    pub reached: BTreeMap<&'static str, u32>,
    devices: Array<MapData, abi::Device>,
    flows: HashMap<MapData, FlowKey, Flow>,
    prefixes: HashMap<MapData, Prefix, Paths>,
    ambient: Array<MapData, Ambient>,
    told: Ambient,
    /// Packets.
    arrived: usize,
    now_ns: Arc<AtomicU64>,
    _inside: Entered,
    _namespace: Namespace,
}

impl Loaded {
    /// In a namespace that the calling thread stays in while this lives.
    pub fn new() -> Result<Self> {
        let namespace = Namespace::create("differential")?;
        let inside = namespace.enter()?;
        let pins = PinFolder::name("differential");
        let now_ns = Arc::new(AtomicU64::new(0));
        let mut plane = open(&pins, Arc::clone(&now_ns))?;
        let maps = pins.join(format!("v{}", abi::ABI_VERSION));
        let state = STATE.iter().map(|name| RawMap::open(&maps.join(name)));
        Ok(Loaded {
            state: state.collect::<std::io::Result<_>>()?,
            counters: Counters::open(&maps.join("reasons"), anabranch_policy::reasons().len())?,
            reached: BTreeMap::new(),
            devices: Map::Array(MapData::from_pin(maps.join("devices"))?).try_into()?,
            flows: plane.take_map("flows")?,
            prefixes: Map::LruHashMap(MapData::from_pin(maps.join("prefixes"))?).try_into()?,
            ambient: plane.take_map(".bss")?,
            told: Ambient {
                now_ns: 0,
                random: 0,
            },
            arrived: 0,
            now_ns,
            plane,
            _pins: pins,
            _inside: inside,
            _namespace: namespace,
        })
    }

    /// Forgets all flows and counts. From here on the links of `routed`, as bits, have no NAT.
    pub fn reset(&mut self, routed: u64) -> Result<()> {
        self.state.iter_mut().try_for_each(RawMap::clear)?;
        Ok(self.plane.set_settings(&settings(routed))?)
    }

    // ---- what the programs know

    /// One entry of a flow.
    pub fn entry(&self, key: &FlowKey) -> Option<Flow> {
        self.flows.get(key, 0).ok()
    }

    /// What flows have told of the prefix of a server.
    pub fn paths(&self, server: IpAddr) -> Option<Paths> {
        self.prefixes.get(&Prefix::of(server), 0).ok()
    }

    // ---- what they are told

    /// Of the next packet, or of the next walk.
    pub fn set_time(&mut self, now: Time) -> Result<()> {
        self.told.now_ns = now.as_nanos();
        self.now_ns.store(self.told.now_ns, Ordering::Relaxed);
        Ok(self.ambient.set(0, self.told, 0)?)
    }

    /// Every random number until the next is told.
    pub fn set_random(&mut self, random: u32) -> Result<()> {
        self.told.random = random.into();
        Ok(self.ambient.set(0, self.told, 0)?)
    }

    // ---- packets

    /// A LAN host sends a TCP segment.
    pub fn lan_sends(&mut self, packet: Vec<u8>) -> Result<Outcome> {
        self.arrive("lan", Port::Lan(0), packet)
    }

    /// A link brings one.
    pub fn link_brings(&mut self, link: LinkId, packet: Vec<u8>) -> Result<Outcome> {
        let device = abi::Device {
            ifindex: LOOPBACK,
            link: link.0,
            role: abi::Role::Link.into(),
            mtu: MTU,
            ..Default::default()
        };
        self.devices.set(LOOPBACK, device, 0)?;
        self.arrive("wan", Port::Link(0), packet)
    }

    fn arrive(&mut self, program: &'static str, port: Port, packet: Vec<u8>) -> Result<Outcome> {
        self.arrived += 1;
        let mark = OTHERS_MARKS[self.arrived % OTHERS_MARKS.len()];
        let frame = build::arriving(port, packet).frame;
        self.run(program, &frame, Marked::ByOthers(mark))
    }

    /// What a program has made of a packet arrives from the LAN, for a link.
    pub fn lan_takes_up(&mut self, link: LinkId, made: &Outcome) -> Result<Outcome> {
        let mark = abi::RACE_COPY_MARK | u32::from(link.0);
        self.run("lan", &made.frame, Marked::ByPrograms(mark))
    }

    fn run(&mut self, program: &'static str, frame: &[u8], marked: Marked) -> Result<Outcome> {
        let ran = self.plane.run_marked(program, frame, marked)?;
        let ip = Ip::of_frame(&ran.packet).filter(|_| ran.action == TC_ACT_REDIRECT);
        let ends = |ip: Ip| {
            let (from, to) = ip.ports()?;
            Some((
                SocketAddr::new(ip.src(), from),
                SocketAddr::new(ip.dst(), to),
            ))
        };
        Ok(Outcome {
            reason: self.reason()?,
            sent: ip.and_then(ends),
            frame: ran.packet,
        })
    }

    /// The first reason that was counted since this was last asked: the packet's own. What a race copies is sent over other
    /// links, and dropped when the loopback device brings it back, for reasons behind that.
    fn reason(&mut self) -> Result<&'static Reason> {
        let rose = self.counters.rose()?;
        let first = rose.iter().map(|(number, _)| *number).min();
        let first = first.context("a packet left for no reason")?;
        let reason = &anabranch_policy::reasons()[first];
        *self.reached.entry(reason.name).or_default() += 1;
        Ok(reason)
    }
}

/// With everything told that does not change: settings, links, routes.
fn open(pins: &Path, now_ns: Arc<AtomicU64>) -> Result<Gateway> {
    let build = Build {
        object: OBJECT.to_vec(),
        clock: Box::new(move || Duration::from_nanos(now_ns.load(Ordering::Relaxed))),
        piecewise: true,
    };
    let sizes = Sizes {
        flows_max: ENTRIES,
        unconfirmed_max: ENTRIES,
        hosts_max: ENTRIES,
        prefixes_max: ENTRIES,
    };
    let (mut plane, _) = Gateway::open_build(pins, sizes, build)?;
    plane.set_settings(&settings(0))?;
    for (family, link) in links() {
        let path = LinkPath {
            external: external(family, link),
            gateway: Some(on_line(family, 1)),
            prefix: None,
            inbound: false,
            ifindex: LOOPBACK,
            mtu: MTU,
            point_to_point: false,
            shares_segment: false,
        };
        plane.set_link(LinkId(link), family, Some(&path))?;
    }
    plane.set_routes(&routes())?;
    // The loopback device has none of its own that frames could be for.
    plane.set_own_macs(&BTreeSet::from([(LOOPBACK, GATEWAY_MAC)]))?;
    // What a race copies comes by itself.
    plane.attach(LOOPBACK, Role::lan([]), false, MTU)?;
    Ok(plane)
}

fn links() -> impl Iterator<Item = (Family, u16)> {
    let links = |family| (0..LINKS).map(move |link| (family, link));
    Family::ALL.into_iter().flat_map(links)
}

fn settings(routed: u64) -> Settings {
    let places = Family::ALL.map(|family| (routed as u32) << link_place(0, family));
    Settings {
        routed: places[0] | places[1],
        tcp_established_ns: ESTABLISHED_NS,
        tcp_transitory_ns: UNANSWERED_NS,
        unconfirmed_ns: UNANSWERED_NS,
        quota_per_host: ENTRIES,
        flows_max: ENTRIES,
        unconfirmed_per_host: ENTRIES,
        port_min: 1024,
        port_max: 65535,
        ephemeral_min: 32768,
        ephemeral_max: 60999,
        ..Default::default()
    }
}

fn routes() -> Vec<Route> {
    let whole = |family| if family == Family::V4 { 32 } else { 128 };
    let own = links().map(|(family, link)| Route {
        prefix: (external(family, link), whole(family)),
        verdict: Verdict::Local,
    });
    let lan = |(network, length): (IpAddr, u8)| Route {
        prefix: (network, length),
        verdict: Verdict::Lan {
            ifindex: LOOPBACK,
            via: None,
        },
    };
    let lans: [(IpAddr, u8); 2] = [
        (Ipv4Addr::new(10, 0, 0, 0).into(), 24),
        (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0).into(), 32),
    ];
    own.chain(lans.map(lan)).collect()
}

/// A TCP segment with right checksums.
pub fn segment(from: SocketAddr, to: SocketAddr, says: &Says) -> Vec<u8> {
    let end = |socket: SocketAddr| (socket.ip(), socket.port());
    build::tcp(end(from), end(to), 1, says)
}
