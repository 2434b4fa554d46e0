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
    self, Choice, Connection, Direct, FlowKey, SERVICE_ABI_VERSION, Secret, ServiceGauges,
    ServiceSettings, Without,
};
use anabranch_policy::{Candidate, Dispatch, Reason};
use anabranch_testbed::netns::{Entered, Namespace};
use anabranch_testbed::pins::PinFolder;
use anyhow::{Context, Result};
use aya::include_bytes_aligned;
use aya::maps::{Array, HashMap as BpfHashMap, Map, MapData};

use super::shot::Shot;
use super::world::{MTU, SERVERS, WAYS, Way};
use crate::loaded::{Ambient, Counters};
use crate::read::pod;
use crate::script::to_hex;
use crate::site::FAMILIES;

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/service.bpf.o"));

/// Fewer than clients may have.
const CONNECTIONS: u32 = 64;
const LOOPBACK: u32 = 1;
const BEGIN_NS: u64 = 1_000_000_000_000;
const STATE: [&str; 7] = [
    "connections",
    "direct_connections",
    "service_passing",
    "service_turn",
    "service_turns",
    "service_inserts",
    "service_gauges",
];

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
    counters: Counters,
    tables: [RawMap; 2],
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
            counters: Counters::open(
                &maps.join("service_reasons"),
                anabranch_policy::service_reasons().len(),
            )?,
            tables: [raw("connections")?, raw("direct_connections")?],
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
        let rose = self.counters.rose()?;
        Ok(match rose[..] {
            [(reason, 1)] => Some(reason),
            _ => None,
        })
    }

    /// At the tables: what of them may not be.
    pub fn look(&mut self) -> Result<Result<(), String>> {
        let mut all = HashMap::new();
        let [translated, direct] = &mut self.tables;
        translated.for_each(|key, value| {
            let one: Connection = pod(value);
            all.insert(pod(key), Entry::new(one.service, one.server, one.state));
        })?;
        direct.for_each(|key, value| {
            let one: Direct = pod(value);
            let place = (one.state >> abi::DIRECT_SERVER_SHIFT) as usize;
            let of = |number: usize| number as u16;
            let [service, server] = [place / abi::MAX_TARGETS, place % abi::MAX_TARGETS].map(of);
            all.insert(pod(key), Entry::new(service, server, one.state));
        })?;
        let mut gauges = Vec::new();
        for way in WAYS {
            let id = way.service();
            let gauge = self.gauges.get(&id.0.into(), 0).context("gauges")?;
            gauges.push((id, gauge));
        }
        Ok(entries_hold(&all).and_then(|()| gauges_hold(&all, &gauges)))
    }
}

/// Of an entry what both kinds have.
struct Entry {
    service: u16,
    server: u16,
    is_open: bool,
}

impl Entry {
    fn new(service: u16, server: u16, state: u32) -> Self {
        let is_open = state & abi::CONNECTION_CLOSED == 0;
        Entry {
            service,
            server,
            is_open,
        }
    }
}

/// Each is in its table, and neither has more than it may.
fn entries_hold(all: &HashMap<FlowKey, Entry>) -> Result<(), String> {
    for side in [abi::SIDE_NAT, abi::SIDE_DIRECT] {
        let here = all.keys().filter(|key| key.side == side).count();
        if here > CONNECTIONS as usize {
            return Err(format!("{here} entries of side {side}"));
        }
    }
    let way = |service: u16| WAYS.into_iter().find(|way| way.service().0 == service);
    for (key, entry) in all {
        let is_tunnel = way(entry.service) == Some(Way::Tunnel);
        if is_tunnel != (key.side == abi::SIDE_DIRECT) {
            return Err(format!(
                "of service {} in the other table: {key:?}",
                entry.service
            ));
        }
    }
    Ok(())
}

/// What is counted as open are the entries of what is not over.
fn gauges_hold(
    all: &HashMap<FlowKey, Entry>,
    gauges: &[(ServiceId, ServiceGauges)],
) -> Result<(), String> {
    let open: Vec<_> = all.iter().filter(|(_, entry)| entry.is_open).collect();
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
            let of_family = |(key, _): &&(&FlowKey, &Entry)| key.remote.family() as usize;
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
    let mut virtuals = BTreeMap::new();
    for way in WAYS {
        for protocol in Protocol::ALL {
            for family in Family::ALL {
                let listen = |at| Listen {
                    protocol,
                    ..Listen::tcp(at)
                };
                virtuals.insert(listen(way.endpoint(family)), way.service());
            }
        }
        tell_servers(services, way)?;
        tell_choices(services, way, maps)?;
    }
    Ok(services.set_virtuals(&virtuals)?)
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
        unknown: way.unknown() as u16,
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
