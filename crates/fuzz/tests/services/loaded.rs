//! The loaded programs of services, told the time and every random number, in a namespace of their own. All packets arrive on its
//! loopback device, beyond which clients and servers are.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;

use anabranch_core::Family;
use anabranch_dataplane::raw::RawMap;
use anabranch_dataplane::services::{
    Forwarding, Listen, Protocol, Server, ServerId, ServerPath, ServiceId, Services, Sweeper,
};
use anabranch_fuzz::loaded::{Ambient, Counters};
use anabranch_fuzz::read::{Ip, pod};
use anabranch_policy::abi::{
    self, BePort, CONNECTION_BITS, Connection, Consistent, DIRECT_SERVER_SHIFT, Direct, FlowKey,
    MAX_TARGETS, SERVICE_ABI_VERSION, Secret, ServiceGauges, ServiceSettings, Set,
    service_rows_place,
};
use anabranch_testbed::netns::{Entered, Namespace};
use anabranch_testbed::pins::PinFolder;
use anyhow::{Result, bail};
use aya::include_bytes_aligned;
use aya::maps::{Array, HashMap as BpfHashMap, Map, MapData};

use crate::model::{self, Chosen, Entry, Key, Model, Outcome, Packet};
use crate::transcript::{SERVERS, SLOTS, place};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/service.bpf.o"));

/// Of `AB_PASSING_MAX`, as the build script defines it.
pub const RING: usize = 8;
/// Of each of the two tables: fewer than all clients of a transcript may have.
pub const ENTRIES: usize = 6;
pub const SECRET: Secret = Secret { word: [7, 11] };
const SERVICE: ServiceId = ServiceId(3);
/// Of the virtual endpoints of a family: the first is that as which servers answer without entries.
const PORTS: [u16; 2] = [80, 81];
const LOOPBACK: u32 = 1;
const TC_ACT_REDIRECT: u32 = 7;
/// What the programs learn, or are told anew for every transcript.
const STATE: [&str; 11] = [
    "connections",
    "direct_connections",
    "service_passing",
    "service_turn",
    "service_turns",
    "service_tables",
    "service_rows",
    "service_settings",
    "service_inserts",
    "service_gauges",
    "service_full",
];

fn endpoint(family: Family, v4: [u8; 4], v6: [u16; 8], port: u16) -> SocketAddr {
    let address = match family {
        Family::V4 => IpAddr::from(v4),
        Family::V6 => IpAddr::from(v6),
    };
    SocketAddr::new(address, port)
}

/// A virtual endpoint.
pub fn web(family: Family, number: usize) -> SocketAddr {
    let v6 = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x10];
    endpoint(family, [203, 0, 113, 10], v6, PORTS[number])
}

/// The last has no port of its own.
pub fn server(family: Family, number: u16) -> SocketAddr {
    let port = if number + 1 == SERVERS { 0 } else { 8080 };
    let v6 = [0xfd00, 0, 0, 0, 0, 0, 0, 0x11 + number];
    endpoint(family, [10, 0, 0, 11 + number as u8], v6, port)
}

/// Who calls which endpoint: one port calls both of TCP.
pub fn slot(slot: usize) -> Key {
    let family = Family::ALL[slot % 2];
    let (is_tcp, number, port) = match slot {
        0..8 => (true, slot / 2 % 2, 4000 + slot / 4),
        8..SLOTS => (false, 0, 5000 + slot / 2),
        _ => unreachable!("slots are below their number"),
    };
    let v6 = [0x2001, 0xdb8, 7, 0, 0, 0, 0, 7];
    Key {
        is_tcp,
        client: endpoint(family, [198, 51, 100, 7], v6, port as u16),
        service: web(family, number),
    }
}

/// As which endpoint a server answers for which there is no entry.
pub fn alias(from: SocketAddr) -> SocketAddr {
    let family = from.ip().into();
    let first = web(family, 0);
    match from.ip() == server(family, SERVERS - 1).ip() {
        true => SocketAddr::new(first.ip(), from.port()),
        false => first,
    }
}

pub fn flow_key(key: &Key, side: u8) -> FlowKey {
    FlowKey {
        local: key.service.ip().into(),
        remote: key.client.ip().into(),
        local_port: BePort::new(key.service.port()),
        remote_port: BePort::new(key.client.port()),
        proto: if key.is_tcp { 6 } else { 17 },
        side,
        ..FlowKey::default()
    }
}

pub fn frame(packet: &Packet) -> Vec<u8> {
    let &Packet { from, to, .. } = packet;
    if !packet.is_tcp {
        return anabranch_frames::udp(from, to, b"data").frame();
    }
    let segment = anabranch_frames::tcp(from, to, packet.flags, packet.seq, packet.ack);
    let of_flags = packet.flags & (abi::TCP_SYN | abi::TCP_FIN);
    let length = packet.end.wrapping_sub(packet.seq) - of_flags.count_ones();
    segment.payload(&b"data"[..length as usize]).frame()
}

pub struct Loaded {
    services: Services,
    sweeper: Sweeper,
    state: Vec<RawMap>,
    connections: [RawMap; 2],
    counters: Counters,
    /// How often each reason was counted, by its name.
    pub reached: BTreeMap<&'static str, u32>,
    gauges: Array<MapData, ServiceGauges>,
    full: Array<MapData, Set>,
    rows: BpfHashMap<MapData, u32, Consistent>,
    ambient: Array<MapData, Ambient>,
    pins: PinFolder,
    _inside: Entered,
    _namespace: Namespace,
}

impl Loaded {
    /// With room for so many connections, in a namespace that the calling thread stays in while this lives.
    pub fn new(connections: u32) -> Result<Self> {
        let namespace = Namespace::create("services")?;
        let inside = namespace.enter()?;
        let_forward(&namespace)?;
        let pins = PinFolder::name("services");
        let (mut services, _) = Services::open_object(&pins, connections, OBJECT)?;
        let maps = pins.join(format!("services-v{SERVICE_ABI_VERSION}"));
        let raw = |name: &str| RawMap::open(&maps.join(name));
        let array = |name: &str| Ok::<_, anyhow::Error>(MapData::from_pin(maps.join(name))?);
        tell(&mut services)?;
        Ok(Loaded {
            sweeper: services.sweeper()?,
            state: STATE
                .iter()
                .map(|name| raw(name))
                .collect::<Result<_, _>>()?,
            connections: [raw("connections")?, raw("direct_connections")?],
            counters: Counters::open(
                &maps.join("service_reasons"),
                anabranch_policy::service_reasons().len(),
            )?,
            reached: BTreeMap::new(),
            gauges: Map::Array(array("service_gauges")?).try_into()?,
            full: Map::Array(array("service_full")?).try_into()?,
            rows: Map::HashMap(array("service_rows")?).try_into()?,
            ambient: services.take_map(".bss")?,
            services,
            pins,
            _inside: inside,
            _namespace: namespace,
        })
    }

    /// The same programs and tables for another thread: it knows of no changes that come later.
    pub fn another(&self, connections: u32) -> Result<Services> {
        Ok(Services::open_object(&self.pins, connections, OBJECT)?.0)
    }

    /// Forgets all connections and counts, and is told what a model knows.
    pub fn reset(&mut self, model: &Model) -> Result<()> {
        self.state.iter_mut().try_for_each(RawMap::clear)?;
        for family in Family::ALL {
            self.install(family, &model.by_family[family.index()])?;
        }
        for (place, server) in (0..).zip(&model.servers) {
            self.place(place, server)?;
        }
        Ok(())
    }

    // ---- what they are told

    pub fn install(&mut self, family: Family, chosen: &Chosen) -> Result<()> {
        let table = Some(&*chosen.table);
        self.services.set_table(SERVICE, family, table)?;
        Ok(self.services.set_choice(SERVICE, family, &chosen.choice)?)
    }

    pub fn hash(&mut self, family: Family, rows: Option<&[Box<Consistent>; 2]>) -> Result<()> {
        for (number, is_former) in [false, true].into_iter().enumerate() {
            let place = service_rows_place(SERVICE.0, family, is_former);
            match rows {
                Some(rows) => self.rows.insert(place, rows[number].as_ref(), 0)?,
                // It may have had none.
                None => drop(self.rows.remove(&place)),
            }
        }
        Ok(())
    }

    pub fn treat(&mut self, model: &Model) -> Result<()> {
        let settings = ServiceSettings {
            former_until_ns: model.former_until_ns,
            insert_limit: model.insert_limit,
            unknown: model.unknown as u16,
            ..ServiceSettings::default()
        };
        Ok(self.services.set_settings(SERVICE, settings)?)
    }

    pub fn place(&mut self, place: u16, server: &model::Server) -> Result<()> {
        let path = ServerPath {
            ifindex: LOOPBACK,
            next_hop: Some(server.at.ip()),
            source: server.at.ip(),
        };
        let site = server.site;
        let told = Server {
            endpoint: server.at,
            path: (!site.is_lost).then_some(path),
            opened_before: 0,
            is_drained: false,
            has_failed: false,
            is_dead: site.is_dead,
            forwarding: match site.is_direct {
                true => Forwarding::Direct,
                false => Forwarding::Nat,
            },
            limit: NonZeroU32::new(site.limit),
        };
        Ok(self
            .services
            .set_server(SERVICE, ServerId(place), Some(told))?)
    }

    /// After limits have changed.
    pub fn note_full(&mut self, servers: &[model::Server]) -> Result<()> {
        let limits = (0..).map(ServerId).zip(servers);
        let limits = limits.map(|(id, server)| (id, server.site.limit));
        let limits = limits.filter(|(_, limit)| *limit != 0).collect();
        Ok(self.services.note_full(SERVICE, &limits)?)
    }

    // ---- what they know

    pub fn gauges(&self) -> Result<ServiceGauges> {
        Ok(self.gauges.get(&SERVICE.0.into(), 0)?)
    }

    pub fn full(&self) -> Result<u64> {
        Ok(self.full.get(&SERVICE.0.into(), 0)?.word[0])
    }

    pub fn entries(&mut self) -> Result<HashMap<FlowKey, Entry>> {
        let mut entries = HashMap::new();
        let [translated, direct] = &mut self.connections;
        translated.for_each(|key, value| {
            let entry: Connection = pod(value);
            let seen_ns = entry.client_seen_ns.max(entry.server_seen_ns);
            entries.insert(pod(key), (entry.state, entry.server, seen_ns));
        })?;
        direct.for_each(|key, value| {
            let entry: Direct = pod(value);
            let place = entry.state >> DIRECT_SERVER_SHIFT;
            let server = (place % MAX_TARGETS as u32) as u16;
            let state = entry.state & CONNECTION_BITS;
            entries.insert(pod(key), (state, server, entry.seen_ns));
        })?;
        Ok(entries)
    }

    // ---- what they do

    /// Asks about every connection: what the daemon spares is the same time on another clock.
    pub fn sweep(&mut self, now_ns: u64) -> Result<()> {
        self.set_ambient(now_ns, 0)?;
        let all = (0..2 * SERVERS).map(|place| (SERVICE, ServerId(place)));
        self.sweeper.sweep(&all.collect::<BTreeSet<_>>())?;
        Ok(())
    }

    fn set_ambient(&mut self, now_ns: u64, random: u32) -> Result<()> {
        let random = random.into();
        Ok(self.ambient.set(0, Ambient { now_ns, random }, 0)?)
    }

    pub fn arrive(&mut self, packet: &Packet, now_ns: u64, random: u32) -> Result<Outcome> {
        self.set_ambient(now_ns, random)?;
        let ran = self.services.run(&frame(packet), 1)?;
        let sent = Ip::of_frame(&ran.packet).filter(|_| ran.action == TC_ACT_REDIRECT);
        let ends = |ip: Ip| {
            let (from, to) = ip.ports()?;
            Some((
                SocketAddr::new(ip.src(), from),
                SocketAddr::new(ip.dst(), to),
            ))
        };
        Ok((self.reason()?, sent.and_then(ends)))
    }

    /// The one that was counted since this was last asked.
    fn reason(&mut self) -> Result<&'static str> {
        let [(one, 1)] = self.counters.rose()?[..] else {
            bail!("a packet has one reason");
        };
        let name = anabranch_policy::service_reasons()[one].name;
        *self.reached.entry(name).or_default() += 1;
        Ok(name)
    }
}

/// Answers without an entry leave by the routes of the host.
fn let_forward(namespace: &Namespace) -> Result<()> {
    for command in [
        "link set lo up",
        "route add 198.51.100.0/24 dev lo",
        "-6 route add 2001:db8:7::/64 dev lo",
    ] {
        namespace.ip(command)?;
    }
    for family in ["ipv4", "ipv6"] {
        for device in ["all", "lo"] {
            let path = format!("/proc/sys/net/{family}/conf/{device}/forwarding");
            std::fs::write(path, "1")?;
        }
    }
    Ok(())
}

/// What no transcript changes.
fn tell(services: &mut Services) -> Result<()> {
    let listen = |at: SocketAddr, protocol| Listen {
        protocol,
        ..Listen::tcp(at)
    };
    let mut virtuals = BTreeMap::new();
    for (family, protocol) in Family::ALL
        .into_iter()
        .flat_map(|family| Protocol::ALL.map(|protocol| (family, protocol)))
    {
        for number in 0..PORTS.len() {
            virtuals.insert(listen(web(family, number), protocol), SERVICE);
        }
    }
    services.set_virtuals(&virtuals)?;
    Ok(services.set_secret(SERVICE, &SECRET)?)
}

/// The servers of both families, by place.
pub fn servers() -> Vec<model::Server> {
    let of = |family| (0..SERVERS).map(move |number| (family, number));
    let all = Family::ALL.into_iter().flat_map(of);
    let all = all.map(|(family, number)| {
        let at = server(family, number);
        let site = crate::transcript::Site::default();
        (place(family, number), model::Server { at, site })
    });
    let all: BTreeMap<_, _> = all.collect();
    all.into_values().collect()
}
