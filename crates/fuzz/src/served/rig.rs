//! The programs of services in a namespace, beyond whose loopback device clients and servers are.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs;

use anabranch_core::Family;
use anabranch_dataplane::raw::RawMap;
use anabranch_dataplane::services::{
    Listen, Protocol, Server, ServerId, ServerPath, ServiceId, Services,
};
use anabranch_policy::abi::{
    CONNECTION_CLOSED, CONNECTION_DIRECT, Choice, Connection, FlowKey, SERVICE_ABI_VERSION,
    SIDE_CLIENT, SIDE_SERVER, Secret, ServiceGauges, ServiceSettings, Without,
};
use anabranch_policy::{Candidate, Dispatch, Reason};
use anabranch_testbed::netns::{Entered, Namespace};
use anabranch_testbed::pins::PinFolder;
use anyhow::{Context, Result};
use aya::maps::{Array, HashMap as BpfHashMap, Map, MapData};
use aya::{Pod, include_bytes_aligned};

use super::generate::Shot;
use super::world::{MTU, SERVERS, WAYS, Way};
use crate::read::pod;
use crate::script::to_hex;
use crate::site::FAMILIES;

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/service.bpf.o"));

/// Fewer than clients may have.
const CONNECTIONS: u32 = 64;
const LOOPBACK: u32 = 1;
const BEGIN_NS: u64 = 1_000_000_000_000;
const STATE: [&str; 6] = [
    "connections",
    "service_passing",
    "service_places",
    "service_turns",
    "service_inserts",
    "service_gauges",
];

/// As in `bpf/lib/packet/ambient.h`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Ambient {
    now_ns: u64,
    random: u64,
}

// SAFETY: two numbers of 64 bits, without padding.
unsafe impl Pod for Ambient {}

/// What a program made of a packet.
pub struct Left {
    /// A `TC_ACT_*` value.
    pub action: u32,
    /// As it left.
    pub frame: Vec<u8>,
    /// Why, by its number; none: not for one reason.
    pub reason: Option<usize>,
}

impl Left {
    pub fn why(&self) -> Option<&'static Reason> {
        Some(&anabranch_policy::service_reasons()[self.reason?])
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.why().map_or("no one reason", |reason| reason.name);
        write!(f, "{name} {:#x} {}", self.action, to_hex(&self.frame))
    }
}

pub struct Rig {
    services: Services,
    state: Vec<RawMap>,
    counters: RawMap,
    counted: Vec<u64>,
    connections: RawMap,
    gauges: Array<MapData, ServiceGauges>,
    ambient: Array<MapData, Ambient>,
    now_ns: u64,
    _pins: PinFolder,
    _inside: Entered,
    _namespace: Namespace,
}

impl Rig {
    pub fn new() -> Result<Self> {
        let namespace = Namespace::create("served")?;
        namespace.set_mtu("lo", MTU as u32)?;
        let inside = namespace.enter()?;
        let_forward(&namespace)?;
        let pins = PinFolder::name("served");
        let (mut services, _) = Services::open_object(&pins, CONNECTIONS, OBJECT)?;
        let maps = pins.join(format!("services-v{SERVICE_ABI_VERSION}"));
        tell(&mut services, &maps)?;
        let raw = |name: &str| RawMap::open(&maps.join(name));
        let gauges = MapData::from_pin(maps.join("service_gauges"))?;
        Ok(Rig {
            state: STATE
                .iter()
                .map(|name| raw(name))
                .collect::<Result<_, _>>()?,
            counters: raw("service_reasons")?,
            counted: vec![0; anabranch_policy::service_reasons().len()],
            connections: raw("connections")?,
            gauges: Map::Array(gauges).try_into()?,
            ambient: services.take_map(".bss")?,
            services,
            now_ns: BEGIN_NS,
            _pins: pins,
            _inside: inside,
            _namespace: namespace,
        })
    }

    pub fn reset(&mut self) -> Result<()> {
        self.now_ns = BEGIN_NS;
        Ok(self.state.iter_mut().try_for_each(RawMap::clear)?)
    }

    pub fn arrive(&mut self, shot: &Shot) -> Result<Left> {
        self.now_ns += shot.after_ns;
        let told = Ambient {
            now_ns: self.now_ns,
            random: shot.random.into(),
        };
        self.ambient.set(0, told, 0)?;
        let ran = match shot.is_layer3 {
            true => self.services.run_layer3(&shot.frame, 1)?,
            false => self.services.run(&shot.frame, 1)?,
        };
        Ok(Left {
            action: ran.action,
            frame: ran.packet,
            reason: self.reason()?,
        })
    }

    fn reason(&mut self) -> Result<Option<usize>> {
        let (counted, mut rose) = (&mut self.counted, Vec::new());
        self.counters.for_each(|key, value| {
            let number = u32::from_ne_bytes(key.try_into().expect("a number")) as usize;
            let cpus = value.chunks_exact(8);
            let cpus = cpus.map(|cpu| u64::from_ne_bytes(cpu.try_into().expect("8 bytes")));
            let now = cpus.sum();
            let before = std::mem::replace(&mut counted[number], now);
            rose.extend((before..now).map(|_| number));
        })?;
        Ok(rose.first().copied().filter(|_| rose.len() == 1))
    }

    /// At the tables: what of them may not be.
    pub fn look(&mut self) -> Result<Result<(), String>> {
        let mut all: HashMap<FlowKey, Connection> = HashMap::new();
        self.connections
            .for_each(|key, value| all.extend([(pod::<FlowKey>(key), pod(value))]))?;
        let mut gauges = Vec::new();
        for way in WAYS {
            let id = way.service();
            let gauge = self.gauges.get(&id.0.into(), 0).context("gauges")?;
            gauges.push((id, gauge));
        }
        Ok(entries_hold(&all).and_then(|()| gauges_hold(&all, &gauges)))
    }
}

/// Each connection has both its entries, or the client's alone.
fn entries_hold(all: &HashMap<FlowKey, Connection>) -> Result<(), String> {
    if all.len() > 2 * CONNECTIONS as usize {
        return Err(format!("{} entries", all.len()));
    }
    for (key, entry) in all {
        let other = FlowKey {
            local: entry.other_local,
            local_port: entry.other_port,
            side: if key.side == SIDE_CLIENT {
                SIDE_SERVER
            } else {
                SIDE_CLIENT
            },
            ..*key
        };
        let is_direct = key.side == SIDE_CLIENT && entry.state & CONNECTION_DIRECT != 0;
        let is_of_it = |other: &&Connection| {
            (other.other_local, other.other_port) == (key.local, key.local_port)
                && (other.service, other.server) == (entry.service, entry.server)
        };
        if all.get(&other).filter(is_of_it).is_some() == is_direct {
            return Err(format!("an entry and its other: {key:?} {entry:?}"));
        }
    }
    Ok(())
}

/// What is counted as open are the client's entries that are not over.
fn gauges_hold(
    all: &HashMap<FlowKey, Connection>,
    gauges: &[(ServiceId, ServiceGauges)],
) -> Result<(), String> {
    let is_open = |(key, entry): &(&FlowKey, &Connection)| {
        key.side == SIDE_CLIENT && entry.state & CONNECTION_CLOSED == 0
    };
    let open: Vec<_> = all.iter().filter(is_open).collect();
    for (id, gauge) in gauges {
        let of_service = open.iter().filter(|(_, entry)| entry.service == id.0);
        for (place, target) in (0..).zip(&gauge.of.target) {
            let there = of_service
                .clone()
                .filter(|(_, entry)| entry.server == place);
            if target.opened - target.closed != there.count() as u64 {
                return Err(format!("{id:?}, server {place}: {target:?}"));
            }
        }
        for (family, all) in Family::ALL.into_iter().zip(&gauge.all) {
            let of_family = |(key, _): &&(&FlowKey, &Connection)| key.remote.family() as usize;
            let there = of_service
                .clone()
                .filter(|one| of_family(one) == family.index());
            if all.opened - all.closed != there.count() as u64 {
                return Err(format!("{id:?}, {family:?}: {all:?}"));
            }
        }
    }
    Ok(())
}

/// Answers without an entry leave by the routes of the host.
fn let_forward(namespace: &Namespace) -> Result<()> {
    for command in [
        "link set lo up",
        "route add 198.51.100.0/24 dev lo",
        "route add 8.0.0.0/16 dev lo",
        "-6 route add 2001:db8::/32 dev lo",
    ] {
        namespace.ip(command)?;
    }
    for family in ["ipv4", "ipv6"] {
        for device in ["all", "lo"] {
            fs::write(
                format!("/proc/sys/net/{family}/conf/{device}/forwarding"),
                "1",
            )?;
        }
    }
    Ok(())
}

fn tell(services: &mut Services, maps: &std::path::Path) -> Result<()> {
    let (mut virtuals, mut aliases) = (BTreeMap::new(), BTreeMap::new());
    for way in WAYS {
        for protocol in Protocol::ALL {
            for family in Family::ALL {
                let listen = |at| Listen {
                    protocol,
                    ..Listen::tcp(at)
                };
                virtuals.insert(listen(way.endpoint(family)), way.service());
                if way == Way::Hash {
                    let answers = way.servers(family);
                    aliases.extend(answers.map(|at| (listen(at), way.endpoint(family))));
                }
            }
        }
        tell_servers(services, way)?;
        tell_choices(services, way, maps)?;
    }
    services.set_virtuals(&virtuals)?;
    Ok(services.set_aliases(&aliases)?)
}

fn tell_servers(services: &mut Services, way: Way) -> Result<()> {
    for family in Family::ALL {
        for number in 0..SERVERS {
            let endpoint = way.server(family, number);
            let server = Server {
                endpoint,
                path: Some(ServerPath {
                    ifindex: LOOPBACK,
                    next_hop: Some(endpoint.ip()),
                    source: FAMILIES[family.index()].gateway[0],
                }),
                opened_before: 0,
                is_drained: false,
                has_failed: false,
                is_dead: false,
                forwarding: way.forwarding(number),
                limit: None,
            };
            let place = family.index() * SERVERS + number;
            services.set_server(way.service(), ServerId(place as u16), Some(server))?;
        }
    }
    let settings = ServiceSettings {
        unknown: way.unknown().into(),
        insert_limit: way.insert_limit(),
        ..ServiceSettings::default()
    };
    services.set_settings(way.service(), settings)?;
    Ok(services.set_secret(way.service(), &Secret { word: [7, 11] })?)
}

/// Servers take turns; rows lead to each in turn.
fn tell_choices(services: &mut Services, way: Way, maps: &std::path::Path) -> Result<()> {
    let data = MapData::from_pin(maps.join("service_rows"))?;
    let mut all: BpfHashMap<MapData, u32, anabranch_policy::abi::Consistent> =
        Map::HashMap(data).try_into()?;
    for family in Family::ALL {
        let first = family.index() * SERVERS;
        let candidates: Vec<_> = (0..2 * SERVERS)
            .map(|place| Candidate {
                weight: 1,
                load: 0,
                usable: (first..first + SERVERS).contains(&place),
            })
            .collect();
        let (mut choice, _) = Choice::among(Dispatch::Turns, &candidates);
        choice.without = Without::Refuse.into();
        services.set_choice(way.service(), family, &choice)?;
        let mut rows = Box::<anabranch_policy::abi::Consistent>::default();
        for (row, target) in rows.target.iter_mut().enumerate() {
            *target = (first + row % SERVERS) as u16;
        }
        let place = anabranch_policy::abi::service_rows_place(way.service().0, family, false);
        all.insert(place, rows.as_ref(), 0)?;
    }
    Ok(())
}
