//! From the version before, which had IPv4 alone, to this one, under load.

use std::{
    collections::BTreeSet,
    fs,
    io::Read,
    net::Shutdown,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread::{Scope, ScopedJoinHandle},
};

use anabranch_core::{ClassId, DataPlane, LinkId};
use anabranch_dataplane::{Gateway, Settings, Sizes, gateway_object, programs_at};
use anabranch_policy::abi::{self, ABI_VERSION, FORMER_VERSION, Host, HostKey};
use anabranch_policy::splitmix::SplitMix64;
use aya::{
    maps::{HashMap, Map, MapData},
    programs::TcAttachType,
};
use nix::{net::if_::if_nametoindex, sys::signal::Signal};

use super::both::{
    CLIENT, FAMILY, SECOND_SERVER, SERVER, connections::pair, flood::allow_descriptors,
};
use crate::{addresses::IPV4, common::settings, former, site::Site, *};

const SIZES: Sizes = Sizes {
    flows_max: 32_768,
    embryos_max: 65_536,
    hosts_max: 64,
    prefixes_max: 64,
};
/// Connections and mappings: 10 000 flows.
const CONNECTIONS: usize = 6000;
const MAPPINGS: usize = 3800;
/// Mappings that were not answered yet.
const UNANSWERED: usize = 100;
/// Mappings that have spoken to a second remote address.
const PERMITTED: usize = 100;

fn generous() -> Settings {
    Settings {
        quota_per_host: 30_000,
        embryos_per_host: 32_768,
        flows_max: SIZES.flows_max,
        ..settings()
    }
}

/// A mapping, and the external endpoint that its server has seen.
struct Mapping {
    client: UdpSocket,
    external: SocketAddr,
}

/// Flows of a former gateway, and who holds their other ends.
struct Held {
    connections: Vec<(TcpStream, TcpStream)>,
    mappings: Vec<Mapping>,
    unanswered: Vec<Mapping>,
    permitted: Vec<Mapping>,
    server: UdpSocket,
    second_server: UdpSocket,
}

impl Held {
    fn open(site: &Site) -> Self {
        let listener = listen(&site.internet, (SERVER, 8080));
        let server = udp_socket(&site.internet, (SERVER, 53));
        let second_server = udp_socket(&site.internet, (SECOND_SERVER, 53));
        let connections = (0..CONNECTIONS).map(|_| pair(site, &listener)).collect();
        let answered = |_| {
            let mapping = map(site, &server);
            // The second answer confirms.
            echo_datagram(&mapping, &server, 1);
            echo_datagram(&mapping, &server, 2);
            mapping
        };
        let permitted = |_| {
            let mapping = answered(0);
            let also = (SECOND_SERVER, 53);
            mapping.client.send_to(b"you, too", also).unwrap();
            receive(&second_server);
            mapping
        };
        Held {
            connections,
            mappings: (0..MAPPINGS).map(answered).collect(),
            unanswered: (0..UNANSWERED).map(|_| map(site, &server)).collect(),
            permitted: (0..PERMITTED).map(permitted).collect(),
            server,
            second_server,
        }
    }

    fn answer(&self) {
        for mapping in &self.unanswered {
            self.server.send_to(b"late", mapping.external).unwrap();
            assert_eq!(receive(&mapping.client).0, b"late");
        }
    }
}

fn map(site: &Site, server: &UdpSocket) -> Mapping {
    let client = udp_socket(&site.client, (CLIENT, 0));
    client
        .send_to(b"first", server.local_addr().unwrap())
        .unwrap();
    let (_, external) = receive(server);
    Mapping { client, external }
}

/// There and back, from the same external endpoint.
#[track_caller]
fn echo_datagram(mapping: &Mapping, server: &UdpSocket, number: u64) {
    let word = number.to_be_bytes();
    mapping
        .client
        .send_to(&word, server.local_addr().unwrap())
        .unwrap();
    assert_eq!(receive(server), (word.to_vec(), mapping.external));
    server.send_to(&word, mapping.external).unwrap();
    assert_eq!(receive(&mapping.client).0, word);
}

/// Everything that was open is, as it was.
fn speak(connections: &mut [(TcpStream, TcpStream)], number: u64) {
    for (client, server) in connections {
        echo_once(client, server, &number.to_be_bytes());
    }
}

/// What goes on while `upgrade` does its work, and for a while before and after.
fn under_load<T>(site: &Site, held: &mut Held, upgrade: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = &over;
        let Held {
            connections,
            mappings,
            permitted,
            server,
            second_server,
            ..
        } = held;
        let ask = |round| {
            for mapping in &*mappings {
                echo_datagram(mapping, server, round);
            }
        };
        let say_unasked = |_| {
            for mapping in &*permitted {
                second_server.send_to(b"unasked", mapping.external).unwrap();
                assert_eq!(receive(&mapping.client).0, b"unasked");
            }
        };
        let loads = [
            until(scope, over, |round| speak(connections, round)),
            until(scope, over, ask),
            until(scope, over, say_unasked),
            until(scope, over, opens_datagrams(site)),
            until(scope, over, opens_connections(site)),
        ];
        let upgraded = upgrade();
        over.store(true, Ordering::Relaxed);
        for load in loads {
            assert!(load.join().unwrap() > 0, "no round of load");
        }
        upgraded
    })
}

/// Does `work` again and again, at least once after it is `over`. How often.
fn until<'scope>(
    scope: &'scope Scope<'scope, '_>,
    over: &'scope AtomicBool,
    mut work: impl FnMut(u64) + Send + 'scope,
) -> ScopedJoinHandle<'scope, u64> {
    scope.spawn(move || {
        let mut round = 0;
        loop {
            let is_last = over.load(Ordering::Relaxed);
            round += 1;
            work(round);
            if is_last {
                return round;
            }
        }
    })
}

fn opens_datagrams(site: &Site) -> impl FnMut(u64) + Send + '_ {
    let server = udp_socket(&site.internet, (SERVER, 54));
    move |round| {
        let mapping = map(site, &server);
        // Or its host would soon have all the mappings it may.
        (0..50).for_each(|number| echo_datagram(&mapping, &server, round + number));
    }
}

fn opens_connections(site: &Site) -> impl FnMut(u64) + Send + '_ {
    let listener = listen(&site.internet, (SERVER, 8081));
    move |round| {
        let (mut client, mut server) = pair(site, &listener);
        echo_once(&mut client, &mut server, &round.to_be_bytes());
        // The client closes first: its port is not used again while this test lasts.
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(server.read(&mut [0]).unwrap(), 0);
    }
}

/// Whether it is TCP, LAN endpoint, external endpoint and link of a flow. TCP and UDP may have all others in common.
type Binding = (bool, SocketAddr, SocketAddr, u16);

fn bindings_formerly(site: &Site) -> BTreeSet<Binding> {
    let at = |address: abi::Addr, port: abi::BePort| SocketAddr::new(address.ip(), port.get());
    let flows = former::flows(site).into_iter();
    let binding = |(key, flow): (abi::FlowKey, abi::FormerFlow)| {
        let local = at(key.local, key.local_port);
        let external = at(flow.other_local, flow.other_port);
        (
            key.proto == libc::IPPROTO_TCP as u8,
            local,
            external,
            flow.link.into(),
        )
    };
    flows.map(binding).collect()
}

fn bindings(site: &mut Site) -> BTreeSet<Binding> {
    let flows = site.plane().flows().unwrap().into_iter();
    flows
        .map(|row| (row.proto == "tcp", row.local, row.external, row.link))
        .collect()
}

fn held_by_hosts(site: &Site) -> i64 {
    let pin = site.pins.join(format!("v{}", ABI_VERSION)).join("hosts");
    let hosts = Map::HashMap(MapData::from_pin(pin).unwrap());
    let hosts: HashMap<_, HostKey, Host> = hosts.try_into().unwrap();
    let hosts = hosts.iter().map(|host| host.unwrap().1);
    hosts.map(|host| (host.opened - host.closed) as i64).sum()
}

fn one_program_each(site: &Site) {
    for device in ["lan0", "wan0", "wan1"] {
        let programs = || programs_at(if_nametoindex(device).unwrap(), TcAttachType::Ingress);
        assert_eq!(
            site.gateway.run(programs).unwrap().unwrap().len(),
            1,
            "{device}"
        );
    }
}

#[test]
fn an_upgrade_under_load_loses_neither_flow_nor_packet() {
    allow_descriptors(4 * (CONNECTIONS + MAPPINGS) as u64);
    let mut site = Site::bare(&IPV4);
    former::start(&site, generous(), SIZES);
    let mut held = Held::open(&site);
    let before = bindings_formerly(&site);
    assert_eq!(
        before.len(),
        CONNECTIONS + MAPPINGS + UNANSWERED + PERMITTED
    );

    let opened = under_load(&site, &mut held, || site.open(SIZES, &generous()));
    site.adopt(opened);
    held.answer();

    let after = bindings(&mut site);
    let lost: Vec<_> = before.difference(&after).collect();
    assert!(lost.is_empty(), "{} lost, as {:?}", lost.len(), lost[0]);
    for node in [&site.client, &site.internet] {
        assert_eq!(
            node.protocol_counter("RetransSegs").unwrap(),
            0,
            "{}",
            node.name()
        );
    }
    for refusal in ["no-flow-out", "no-link", "filtered-in"] {
        assert_eq!(site.reason(refusal), 0, "{refusal}");
    }
    assert!(!former::folder(&site).exists());
    one_program_each(&site);
    balance(&mut site, held);
}

/// Once every flow has ended, none is counted by anybody.
fn balance(site: &mut Site, held: Held) {
    drop(held);
    eventually("every flow has ended", || {
        site.in_gateway(|plane| {
            plane.sweep().unwrap();
            for link in [LinkId(0), LinkId(1)] {
                plane.end_flows(ClassId::DEFAULT, FAMILY, link).unwrap();
            }
        });
        site.live() == 0 && held_by_hosts(site) == 0
    });
}

#[test]
fn an_upgrade_goes_on_counting_why_packets_leave() {
    const MANY: u64 = 1_000_000;
    let mut site = Site::bare(&IPV4);
    former::start(&site, generous(), SIZES);
    former::count_reasons(&site, |number| MANY * u64::from(number));
    let opened = site.open(SIZES, &generous());
    site.adopt(opened);
    let counted = site.plane().reasons().unwrap();
    let new = [
        "routing-rules",
        "prefix-out",
        "prefix-in",
        "bad-source",
        "routed-out",
        "routed-in",
        "challenge",
        "fallback-class",
        "class-dropped",
        "no-class-link",
        "refused-class",
        "race-over",
        "race-lost",
        "probe-out",
        "surveyed",
        "probe-late",
        "probe-vain",
        "probe-answered",
        "other-host",
        "looped-back",
        "transit-in",
        "dhcp",
        "no-lan-address",
        "fallback-helper",
        "fallback-routes",
    ];
    let kept = counted
        .iter()
        .filter(|reason| !new.contains(&&*reason.name));
    let mut number = 0;
    for reason in kept {
        assert_eq!(reason.packets / MANY, number, "{reason:?}");
        // Behind it stood one that is no more.
        number += 1 + u64::from(reason.name == "stray-syn");
    }
}

// ---- a process that is killed on the way

const PINS: &str = "ANABRANCH_TEST_PINS";

/// What the process that is killed runs: this test, alone, in the gateway's namespace.
#[test]
fn opens_the_gateway_it_is_told_of() {
    let Some(pins) = std::env::var_os(PINS) else {
        return;
    };
    Gateway::open(pins.as_ref(), SIZES).unwrap();
}

/// Has another process upgrade, which is killed if it takes longer than `life`. How long it lived.
fn upgrade_within(site: &Site, life: Duration) -> Duration {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "ipv4::upgrade::opens_the_gateway_it_is_told_of"])
        .env(PINS, &*site.pins)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let began = Instant::now();
    let mut child = site.gateway.spawn(command).unwrap();
    if child.wait(life).unwrap().is_none() {
        child.signal(Signal::SIGKILL);
        child.wait(PATIENCE).unwrap().expect("it was killed");
    }
    began.elapsed()
}

/// What is killed within `life` is followed by one that ends what it began.
fn upgrade_in_two(life: Duration) -> Duration {
    const FLOWS: usize = 100;
    let mut site = Site::bare(&IPV4);
    former::start(&site, generous(), SIZES);
    let listener = listen(&site.internet, (SERVER, 8080));
    let mut connections: Vec<_> = (0..FLOWS).map(|_| pair(&site, &listener)).collect();
    let before = bindings_formerly(&site);
    let lived = upgrade_within(&site, life);
    speak(&mut connections, 1);
    let opened = site.open(SIZES, &generous());
    site.adopt(opened);
    speak(&mut connections, 2);
    assert!(before.is_subset(&bindings(&mut site)), "{life:?}");
    assert_eq!(site.live(), FLOWS as u64, "{life:?}");
    one_program_each(&site);
    lived
}

#[test]
fn an_upgrade_goes_on_where_one_was_killed() {
    const SEED: u64 = 7;
    let mut lives = SplitMix64(SEED);
    let whole = upgrade_in_two(PATIENCE);
    println!("seed {SEED}; a whole one takes {whole:?}");
    for _ in 0..8 {
        upgrade_in_two(whole.mul_f64(f64::from(lives.bits(16)) / 65536.));
    }
}

// ---- the numbers of versions.h

/// Type, key and value of a map, as clang has them.
fn shape(object: &aya_obj::Object, map: &str) -> Option<(u32, u32, u32)> {
    let map = object.maps.get(map)?;
    Some((map.map_type(), map.key_size(), map.value_size()))
}

#[test]
fn what_is_used_on_has_the_shape_it_had() {
    let parse = |object| aya_obj::Object::parse(object).unwrap();
    let (former, ours) = (parse(former::OBJECT), parse(&gateway_object()));
    let maps = anabranch_policy::maps();
    for map in maps.iter().filter(|map| map.since <= FORMER_VERSION) {
        let shapes = [&former, &ours].map(|object| shape(object, map.name));
        assert!(shapes[0].is_some(), "{}: not of that version", map.name);
        assert_eq!(shapes[0], shapes[1], "{}", map.name);
    }
    let newest = maps.iter().map(|map| map.since).max();
    assert_eq!(newest, Some(ABI_VERSION), "nothing has changed since");
}

/// A table that its flows are in, one that is converted, one that is used on, and an attachment.
#[test]
fn an_upgrade_from_pins_that_cannot_be_used_begins_afresh() {
    for name in ["embryos", "links", "endpoints", "settings"] {
        let mut site = Site::bare(&IPV4);
        former::start(&site, settings(), Sizes::default());
        let theirs = former::folder(&site);
        let former_lan = site
            .gateway
            .run(|| if_nametoindex("lan0").unwrap())
            .unwrap();
        fs::remove_file(theirs.join(name)).unwrap();
        fs::create_dir_all(theirs.join(name).join("full")).unwrap();
        fs::create_dir_all(theirs.join(format!("beside-{former_lan}/full"))).unwrap();

        assert!(!site.start(Sizes::default()), "{name}");

        assert!(!theirs.exists(), "{name}");
        let (mut client, mut server) = pair(&site, &listen(&site.internet, (SERVER, 8080)));
        echo_once(&mut client, &mut server, b"anew");
        let count = || {
            programs_at(former_lan, TcAttachType::Ingress)
                .unwrap()
                .len()
        };
        assert_eq!(site.gateway.run(count).unwrap(), 1, "{name}");
    }
}
