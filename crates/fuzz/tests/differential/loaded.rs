//! The loaded programs, told the time and every random number, in a namespace of their own. All packets arrive on its
//! loopback device, which is a LAN device to `lan` and the link that the packet comes from to `wan`.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use anabranch_core::{LinkCounters, LinkId, Time};
use anabranch_fuzz::build::{self, Says};
use anabranch_fuzz::kernel::RawMap;
use anabranch_fuzz::read::Ip;
use anabranch_fuzz::site::Port;
use anabranch_policy::abi::{self, Flow, FlowKey};
use anabranch_policy::{Choice, NO_TABLE};
use anabranch_testbed::netns::{Entered, Namespace};
use anyhow::{Context, Result};
use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, RingBuf};
use aya::programs::{
    ProgramError, RawTracePoint, RawTracePointRunOptions, SchedClassifier, TestRunOptions,
};
use aya::{Ebpf, EbpfLoader, Pod, TestRun, include_bytes_aligned};

use crate::transcript::LINKS;

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/gateway.bpf.o"));

const LOOPBACK: u32 = 1;
const MTU: u32 = 1500;
const TC_ACT_REDIRECT: u32 = 7;
const ROOM_TO_GROW: usize = 64;
/// More than any transcript opens: what the tables do when they are full has no counterpart in the simulator.
const ENTRIES: u32 = 4096;
/// What the programs learn.
const STATE: [&str; 12] = [
    "flows",
    "embryos",
    "embryo_order",
    "hosts",
    "sessions",
    "losers",
    "gauges",
    "traffic",
    "table",
    "turn",
    "visits",
    "doomed",
];

const SECOND_NS: u64 = 1_000_000_000;
/// Of a handshake, and of a connection that has ended.
pub const UNANSWERED_NS: u64 = 240 * SECOND_NS;
/// Of a connection.
pub const ESTABLISHED_NS: u64 = 7440 * SECOND_NS;

/// As in `bpf/lib/ambient.h`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Ambient {
    now_ns: u64,
    random: u64,
}

// SAFETY: two numbers of 64 bits, without padding.
unsafe impl Pod for Ambient {}

/// The address that flows have on a link.
pub fn external(link: u16) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, 2 + link as u8)
}

/// What became of a packet.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Why it left, in words.
    pub reason: &'static str,
    /// Where from and to, if it was sent on.
    pub sent: Option<(SocketAddrV4, SocketAddrV4)>,
}

/// The programs and their maps.
pub struct Loaded {
    bpf: Ebpf,
    pins: PathBuf,
    state: Vec<RawMap>,
    counters: RawMap,
    counted: Vec<u64>,
    /// How often each reason was counted, by its name.
    pub reached: BTreeMap<&'static str, u32>,
    choice: Array<MapData, Choice>,
    devices: Array<MapData, abi::Device>,
    gauges: Array<MapData, abi::Gauges>,
    traffic: PerCpuArray<MapData, abi::Traffic>,
    flows: [HashMap<MapData, FlowKey, Flow>; 2],
    sweeping: Array<MapData, abi::Sweep>,
    ending: Array<MapData, abi::Ending>,
    visits: Array<MapData, [FlowKey; abi::VISIT_MAX]>,
    doomed: Array<MapData, [FlowKey; abi::VISIT_MAX]>,
    ended: RingBuf<MapData>,
    ambient: Array<MapData, Ambient>,
    told: Ambient,
    _inside: Entered,
    _namespace: Namespace,
}

fn take<M: TryFrom<Map, Error = MapError>>(bpf: &mut Ebpf, name: &str) -> Result<M> {
    let map = bpf.take_map(name).with_context(|| name.to_owned())?;
    Ok(M::try_from(map)?)
}

impl Loaded {
    /// In a namespace that the calling thread stays in while this lives.
    pub fn new() -> Result<Self> {
        let namespace = Namespace::create("differential")?;
        let inside = namespace.enter()?;
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("anabranch-differential-{}-{number}", std::process::id());
        let pins = PathBuf::from("/sys/fs/bpf").join(folder);
        fs::create_dir_all(&pins)?;
        let mut loader = EbpfLoader::new();
        loader.default_map_pin_directory(&pins);
        for table in ["flows", "embryos", "embryo_order", "hosts"] {
            loader.map_max_entries(table, ENTRIES);
        }
        let mut bpf = loader.load(OBJECT)?;
        for name in ["lan", "wan"] {
            classifier(&mut bpf, name)?.load()?;
        }
        for name in ["sweep_flows", "end_link"] {
            sweeper(&mut bpf, name)?.load()?;
        }
        tell(&mut bpf)?;
        let state = STATE.iter().map(|name| RawMap::open(&pins.join(name)));
        Ok(Loaded {
            state: state.collect::<Result<_>>()?,
            counters: RawMap::open(&pins.join("reasons"))?,
            counted: vec![0; anabranch_policy::reasons().len()],
            reached: BTreeMap::new(),
            choice: take(&mut bpf, "choice")?,
            devices: take(&mut bpf, "devices")?,
            gauges: take(&mut bpf, "gauges")?,
            traffic: take(&mut bpf, "traffic")?,
            flows: [take(&mut bpf, "embryos")?, take(&mut bpf, "flows")?],
            sweeping: take(&mut bpf, "sweeping")?,
            ending: take(&mut bpf, "ending")?,
            visits: take(&mut bpf, "visits")?,
            doomed: take(&mut bpf, "doomed")?,
            ended: take(&mut bpf, "ended")?,
            ambient: take(&mut bpf, ".bss")?,
            told: Ambient {
                now_ns: 0,
                random: 0,
            },
            bpf,
            pins,
            _inside: inside,
            _namespace: namespace,
        })
    }

    /// Forgets all flows and counts.
    pub fn reset(&mut self) -> Result<()> {
        self.state.iter_mut().try_for_each(RawMap::clear)
    }

    // ---- what the programs know

    /// What the links have carried.
    pub fn counters(&self) -> Result<Vec<LinkCounters>> {
        let gauges = self.gauges.get(&0, 0)?;
        let links = (0..u32::from(LINKS)).zip(gauges.target);
        links
            .map(|(link, flows)| {
                let mut traffic = abi::Traffic::default();
                let per_cpu = self.traffic.get(&link, 0)?;
                per_cpu.iter().for_each(|cpu| traffic += *cpu);
                Ok(LinkCounters { traffic, flows })
            })
            .collect()
    }

    /// One entry of a flow, in whichever table it is.
    pub fn entry(&self, key: &FlowKey) -> Option<Flow> {
        self.flows.iter().find_map(|table| table.get(key, 0).ok())
    }

    fn entries(&self) -> impl Iterator<Item = (FlowKey, Flow)> {
        self.flows.iter().flat_map(HashMap::iter).flatten()
    }

    // ---- what they are told

    /// Of the next packet, or of the next walk.
    pub fn set_time(&mut self, now: Time) -> Result<()> {
        self.told.now_ns = now.as_nanos();
        Ok(self.ambient.set(0, self.told, 0)?)
    }

    /// Every random number until the next is told.
    pub fn set_random(&mut self, random: u32) -> Result<()> {
        self.told.random = random.into();
        Ok(self.ambient.set(0, self.told, 0)?)
    }

    pub fn install(&mut self, choice: &Choice) -> Result<()> {
        Ok(self.choice.set(0, *choice, 0)?)
    }

    // ---- walks over the tables, as those of `anabranch_dataplane::Walker` but by the clock that was told

    /// Forgets flows whose timers have run out.
    pub fn sweep(&mut self) -> Result<()> {
        let keys: Vec<FlowKey> = self.entries().map(|(key, _)| key).collect();
        self.visits.set(0, visit(&keys), 0)?;
        let sweep = abi::Sweep {
            count: keys.len() as u32,
            is_last: 1,
            ..Default::default()
        };
        self.sweeping.set(0, sweep, 0)?;
        run_sweeper(&mut self.bpf, "sweep_flows")
    }

    /// Ends the flows of a link: how many connections.
    pub fn end_flows(&mut self, link: LinkId) -> Result<u64> {
        let entries = self.entries();
        let of_link =
            entries.filter(|(key, flow)| key.side == abi::SIDE_LAN && flow.link == link.0);
        let keys: Vec<FlowKey> = of_link.map(|(key, _)| key).collect();
        self.doomed.set(0, visit(&keys), 0)?;
        let ending = abi::Ending {
            opened_before_ns: self.told.now_ns + 1,
            seen_before_ns: u64::MAX,
            link: link.0.into(),
            count: keys.len() as u32,
            ..Default::default()
        };
        self.ending.set(0, ending, 0)?;
        run_sweeper(&mut self.bpf, "end_link")?;
        while self.ended.next().is_some() {}
        Ok(self.ending.get(&0, 0)?.ended)
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

    fn arrive(&mut self, program: &str, port: Port, packet: Vec<u8>) -> Result<Outcome> {
        let frame = build::arriving(port, packet).frame;
        let mut output = vec![0; frame.len() + ROOM_TO_GROW];
        let options = TestRunOptions {
            data_in: Some(&frame),
            data_out: Some(&mut output),
            ..TestRunOptions::new()
        };
        let ran = classifier(&mut self.bpf, program)?.test_run(options)?;
        output.truncate(ran.data_size_out as usize);
        let ip = Ip::of_frame(&output).filter(|_| ran.return_value == TC_ACT_REDIRECT);
        let ends = |ip: Ip| {
            let (from, to) = ip.ports()?;
            Some((
                SocketAddrV4::new(ip.src(), from),
                SocketAddrV4::new(ip.dst(), to),
            ))
        };
        Ok(Outcome {
            reason: self.reason()?,
            sent: ip.and_then(ends),
        })
    }

    /// The one reason that was counted since this was last asked.
    fn reason(&mut self) -> Result<&'static str> {
        let (counted, mut rose) = (&mut self.counted, None);
        self.counters.for_each(|key, value| {
            let number = u32::from_ne_bytes(key.try_into().expect("a number")) as usize;
            let cpus = value.chunks_exact(8);
            let cpus = cpus.map(|cpu| u64::from_ne_bytes(cpu.try_into().expect("8 bytes")));
            let now = cpus.sum();
            if std::mem::replace(&mut counted[number], now) != now {
                rose = Some(&anabranch_policy::reasons()[number]);
            }
        })?;
        let reason = rose.context("a packet left for no reason")?;
        *self.reached.entry(reason.name).or_default() += 1;
        Ok(reason.words)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // A few names: what holds them is gone with this.
        let _ = fs::remove_dir_all(&self.pins);
    }
}

fn classifier<'a>(bpf: &'a mut Ebpf, name: &str) -> Result<&'a mut SchedClassifier> {
    let program = bpf.program_mut(name).with_context(|| name.to_owned())?;
    let program: Result<_, ProgramError> = program.try_into();
    Ok(program?)
}

fn sweeper<'a>(bpf: &'a mut Ebpf, name: &str) -> Result<&'a mut RawTracePoint> {
    let program = bpf.program_mut(name).with_context(|| name.to_owned())?;
    let program: Result<_, ProgramError> = program.try_into();
    Ok(program?)
}

fn run_sweeper(bpf: &mut Ebpf, name: &str) -> Result<()> {
    sweeper(bpf, name)?.test_run(RawTracePointRunOptions::new())?;
    Ok(())
}

fn visit(keys: &[FlowKey]) -> [FlowKey; abi::VISIT_MAX] {
    let mut all = [FlowKey::default(); abi::VISIT_MAX];
    all[..keys.len()].copy_from_slice(keys);
    all
}

/// What does not change: settings, links, routes, and a table of which nobody has shares.
fn tell(bpf: &mut Ebpf) -> Result<()> {
    let settings = abi::Settings {
        tcp_established_ns: ESTABLISHED_NS,
        tcp_transitory_ns: UNANSWERED_NS,
        embryo_ns: UNANSWERED_NS,
        quota_per_host: ENTRIES,
        flows_max: ENTRIES,
        embryos_per_host: ENTRIES,
        port_min: 1024,
        port_max: 65535,
        ephemeral_min: 32768,
        ephemeral_max: 60999,
        ..Default::default()
    };
    take::<Array<_, _>>(bpf, "settings")?.set(0, settings, 0)?;
    take::<Array<_, _>>(bpf, "consistent")?.set(0, NO_TABLE, 0)?;
    let mut links: Array<_, _> = take(bpf, "links")?;
    let mut routes: LpmTrie<_, abi::Addr, abi::Route> = take(bpf, "routes")?;
    for link in 0..LINKS {
        let path = abi::Link {
            external: external(link).into(),
            gateway: Ipv4Addr::new(192, 0, 2, 1).into(),
            ifindex: LOOPBACK,
            mtu: MTU,
            flags: abi::LINK_PRESENT,
            zero: 0,
        };
        links.set(link.into(), path, 0)?;
        let local = abi::Route {
            verdict: abi::Verdict::Local.into(),
            ..Default::default()
        };
        routes.insert(&Key::new(128, external(link).into()), local, 0)?;
    }
    let lan = abi::Route {
        verdict: abi::Verdict::Lan.into(),
        ifindex: LOOPBACK,
        ..Default::default()
    };
    let prefix = Ipv4Addr::new(10, 0, 0, 0).into();
    Ok(routes.insert(&Key::new(96 + 24, prefix), lan, 0)?)
}

/// A TCP segment with right checksums.
pub fn segment(from: SocketAddrV4, to: SocketAddrV4, says: &Says) -> Vec<u8> {
    let end = |socket: SocketAddrV4| (*socket.ip(), socket.port());
    build::tcp(end(from), end(to), 1, says)
}
