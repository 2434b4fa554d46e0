//! From the version before to this one, under load.

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
use anabranch_dataplane::{Gateway, Settings, Sizes, programs_at};
use anabranch_policy::abi::{self, ABI_VERSION, FlowKey, FormerFlow, Host, HostKey};
use anabranch_policy::splitmix::SplitMix64;
use aya::{
    maps::{HashMap, Map, MapData},
    programs::TcAttachType,
};
use nix::{net::if_::if_nametoindex, sys::signal::Signal};

use super::{connections::pair, flood::allow_descriptors, *};
use crate::{common::settings, former};

const SIZES: Sizes = Sizes {
    flows_max: 32_768,
    unconfirmed_max: 65_536,
    hosts_max: 64,
    prefixes_max: 64,
};
/// Connections and mappings: 5000 flows of either family.
const CONNECTIONS: usize = 3000;
const MAPPINGS: usize = 1800;
/// Mappings that were not answered yet.
const UNANSWERED: usize = 100;
/// Mappings that have spoken to a second remote address.
const PERMITTED: usize = 100;

fn generous() -> Settings {
    Settings {
        quota_per_host: 30_000,
        unconfirmed_per_host: 32_768,
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
    let pin = former::folder(&site.pins).join("flows");
    let flows = Map::HashMap(MapData::from_pin(pin).unwrap());
    let flows: HashMap<_, FlowKey, FormerFlow> = flows.try_into().unwrap();
    let flows = flows.iter().map(Result::unwrap);
    let flows = flows.filter(|(key, _)| key.side == abi::SIDE_LAN);
    let binding = |(key, flow): (FlowKey, FormerFlow)| {
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
    let mut site = Site::bare(&SITE);
    site.start_former(SIZES, &generous());
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
    assert!(!former::folder(&site.pins).exists());
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
fn an_upgrade_goes_on_counting() {
    const BEFORE: u64 = 3;
    let mut site = Site::bare(&SITE);
    site.start_former(SIZES, &generous());
    let server = udp_socket(&site.internet, (SERVER, 53));
    let mapping = map(&site, &server);
    (1..BEFORE).for_each(|number| echo_datagram(&mapping, &server, number));
    let opened = site.open(SIZES, &generous());
    site.adopt(opened);
    echo_datagram(&mapping, &server, BEFORE);
    let flows = site.plane().flows().unwrap();
    let [flow] = &*flows else { panic!("{flows:?}") };
    assert_eq!((flow.packets_out, flow.packets_in), (BEFORE + 1, BEFORE));
    // Formerly none were counted.
    assert_eq!(flow.bytes_out, flow.bytes_in);
    assert_eq!(flow.bytes_out, (SITE.ip_header + 8 + 8) as u64);
    assert_eq!(site.reason("translated-out"), BEFORE + 1);
    assert_eq!(site.reason("translated-in"), BEFORE);
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

/// The name of a test of this file.
fn this(test: &str) -> String {
    let (_, module) = module_path!().split_once("::").unwrap();
    format!("{module}::{test}")
}

/// Has another process upgrade, which is killed if it takes longer than `life`. How long it lived.
fn upgrade_within(site: &Site, life: Duration) -> Duration {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", &this("opens_the_gateway_it_is_told_of")])
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
    let mut site = Site::bare(&SITE);
    site.start_former(SIZES, &generous());
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
    const SEED: u64 = 7 + FAMILY as u64;
    let mut lives = SplitMix64(SEED);
    let whole = upgrade_in_two(PATIENCE);
    println!("seed {SEED}; a whole one takes {whole:?}");
    for _ in 0..4 {
        upgrade_in_two(whole.mul_f64(f64::from(lives.bits(16)) / 65536.));
    }
}

/// A table of flows, one that is used on, one that flows are counted in; and an attachment.
#[test]
fn an_upgrade_from_pins_that_cannot_be_used_begins_afresh() {
    for (name, is_missing) in [
        ("flows", false),
        ("permissions", true),
        ("settings", false),
        ("hosts", true),
    ] {
        let mut site = Site::bare(&SITE);
        site.start_former(Sizes::default(), &settings());
        let theirs = former::folder(&site.pins);
        let former_lan = site
            .gateway
            .run(|| if_nametoindex("lan0").unwrap())
            .unwrap();
        fs::remove_file(theirs.join(name)).unwrap();
        if !is_missing {
            fs::create_dir_all(theirs.join(name).join("full")).unwrap();
        }
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
