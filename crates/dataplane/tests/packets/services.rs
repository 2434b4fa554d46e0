//! The service programs: what a client's packets become, which way answers go, and what is left alone.

mod choices;
mod direct;
mod errors;
mod evidence;
mod explain;
mod forged;
mod limits;
mod stateless;
mod two_balancers;

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    thread,
    time::Duration,
};

use anabranch_core::catalogue::{self, TargetKind};
use anabranch_core::{Family, Member, Policy, served::Served};
use anabranch_dataplane::{
    Ran,
    services::{
        Forwarding, Listen, Protocol, Server, ServerId, ServerPath, ServiceId, Services, Swept,
    },
};
use anabranch_policy::{
    Candidate, Choice, Dispatch, NO_TABLE, Request,
    abi::{
        Connection, Consistent, Direct, FlowKey, Gauges, PASSING_MAX, SERVICE_ABI_VERSION, Secret,
        Target, Without,
    },
    choose,
    keyed::client_hash,
};
use anabranch_testbed::{
    netns::{Entered, Namespace},
    pins::PinFolder,
};
use aya::{
    Pod,
    maps::{Array, HashMap, Map, MapData},
};
use nix::time::{ClockId, clock_gettime};

use crate::{
    frame::{
        Header, Ip, IpNumber, Seen, Segment, icmp, mss_option, quote, read, reassemble, sent_by,
        tcp, udp, udp_without_checksum,
    },
    trunk::{TC_ACT_REDIRECT, TC_ACT_SHOT, TC_ACT_UNSPEC},
};

const WEB: ServiceId = ServiceId(3);
const SERVERS: u16 = 3;
const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

const CONNECTIONS_MAX: u32 = 1 << 14;

fn endpoint(family: Family, v4: &str, v6: &str) -> SocketAddr {
    match family {
        Family::V4 => v4.parse().unwrap(),
        Family::V6 => v6.parse().unwrap(),
    }
}

fn web(family: Family) -> SocketAddr {
    endpoint(family, "203.0.113.10:80", "[2001:db8::10]:80")
}

fn client(family: Family, port: u16) -> SocketAddr {
    let address = endpoint(family, "198.51.100.7:0", "[2001:db8:7::7]:0").ip();
    SocketAddr::new(address, port)
}

/// Beyond which a client is.
fn router(family: Family) -> IpAddr {
    endpoint(family, "192.0.2.254:0", "[2001:db8:fe::1]:0").ip()
}

const fn too_big(family: Family) -> (u8, u8) {
    match family {
        Family::V4 => (3, 4),
        Family::V6 => (2, 0),
    }
}

/// No program has the port.
const fn unreachable(family: Family) -> (u8, u8) {
    match family {
        Family::V4 => (3, 3),
        Family::V6 => (1, 4),
    }
}

/// Of both families, those of one after those of the other.
fn server(family: Family, place: u16) -> SocketAddr {
    let address = match family {
        Family::V4 => IpAddr::from([10, 0, 0, 11 + place as u8]),
        Family::V6 => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 0x11 + place]),
    };
    SocketAddr::new(address, 8080)
}

fn place(family: Family, number: u16) -> u16 {
    family.index() as u16 * SERVERS + number
}

/// By place; those that are not usable are out of use.
fn members(family: Family, usable: &[u16]) -> Vec<Option<Member>> {
    let mut members = vec![None; usize::from(2 * SERVERS)];
    for number in 0..SERVERS {
        members[usize::from(place(family, number))] = Some(Member {
            weight: 1,
            is_usable: usable.contains(&number),
            is_backup: false,
            base: 0,
            endpoint: server(family, number),
            served: Served::default(),
        });
    }
    members
}

/// On the loopback device.
fn usable(endpoint: SocketAddr) -> Server {
    Server {
        endpoint,
        path: Some(ServerPath {
            ifindex: 1,
            next_hop: Some(endpoint.ip()),
            source: router(endpoint.ip().into()),
        }),
        opened_before: 0,
        is_drained: false,
        has_failed: false,
        is_dead: false,
        forwarding: Forwarding::Nat,
        limit: None,
    }
}

struct Rig {
    services: Option<Services>,
    /// What becomes of a connection that no server takes.
    without: Without,
    pins: PinFolder,
    _inside: Entered,
    _namespace: Namespace,
}

impl Rig {
    fn new() -> Self {
        let namespace =
            Namespace::create("services").expect("these tests need root and network namespaces");
        let inside = namespace.enter().unwrap();
        let pins = PinFolder::name("services");
        let (services, adopted) = Services::open(&pins, CONNECTIONS_MAX).unwrap();
        assert!(!adopted);
        let mut rig = Rig {
            services: Some(services),
            without: Without::Kernel,
            pins,
            _inside: inside,
            _namespace: namespace,
        };
        let endpoints = Family::ALL
            .map(|family| (Listen::tcp(web(family)), WEB))
            .into();
        rig.services().set_virtuals(&endpoints).unwrap();
        for family in Family::ALL {
            for number in 0..SERVERS {
                let place = ServerId(place(family, number));
                let server = usable(server(family, number));
                rig.services().set_server(WEB, place, Some(server)).unwrap();
            }
            rig.choose_among(family, &[0, 1, 2]);
        }
        rig
    }

    fn services(&mut self) -> &mut Services {
        self.services.as_mut().unwrap()
    }

    /// By which protocols clients call the service.
    fn listen(&mut self, protocols: &[Protocol]) {
        let at = |protocol: &Protocol| {
            Family::ALL.map(|family| Listen {
                protocol: *protocol,
                ..Listen::tcp(web(family))
            })
        };
        let all = protocols.iter().flat_map(at);
        let all = all.map(|listen| (listen, WEB)).collect();
        self.services().set_virtuals(&all).unwrap();
    }

    /// Which servers take new connections.
    fn choose_among(&mut self, family: Family, usable: &[u16]) {
        let usable: Vec<_> = usable.iter().map(|number| place(family, *number)).collect();
        let candidates: Vec<_> = (0..2 * SERVERS)
            .map(|place| Candidate {
                weight: 1,
                load: 0,
                usable: usable.contains(&place),
            })
            .collect();
        let (mut choice, _) = Choice::among(Dispatch::Turns, &candidates);
        choice.without = self.without.into();
        self.services().set_choice(WEB, family, &choice).unwrap();
    }

    fn change_server(&mut self, family: Family, number: u16, change: impl Fn(&mut Server)) {
        let place = ServerId(place(family, number));
        let mut one = self.services().servers(WEB).unwrap()[place.index()].unwrap();
        change(&mut one);
        self.services().set_server(WEB, place, Some(one)).unwrap();
    }

    /// By a policy of the catalogue, and its table; the others are out of use.
    fn choose_by(
        &mut self,
        policy: &str,
        family: Family,
        usable: &[u16],
    ) -> (Choice, Box<Consistent>) {
        let row = catalogue::find(TargetKind::Server, policy).expect("a row of the catalogue");
        let Policy::Service(policy) = row.policy else {
            panic!("of servers");
        };
        let members = members(family, usable);
        let (mut choice, table) = (policy.choice(&members), policy.table(&members));
        choice.without = self.without.into();
        let services = self.services();
        services.set_table(WEB, family, table.as_deref()).unwrap();
        services.set_choice(WEB, family, &choice).unwrap();
        (choice, table.unwrap_or_else(|| Box::new(NO_TABLE)))
    }

    /// How the packet left, and why.
    fn send(&mut self, frame: &[u8]) -> (Ran, String) {
        let before = self.services().reasons().unwrap();
        let ran = self.services().run(frame, 1).unwrap();
        let after = self.services().reasons().unwrap();
        let counted: Vec<_> = before
            .iter()
            .zip(&after)
            .filter(|(before, after)| before.packets != after.packets)
            .map(|(_, after)| after.name.clone())
            .collect();
        assert_eq!(counted.len(), 1, "one reason: {counted:?}");
        (ran, counted[0].clone())
    }

    #[track_caller]
    fn client_sends(&mut self, segment: &Segment) -> Seen {
        self.client_sends_frame(segment.frame())
    }

    #[track_caller]
    fn client_sends_frame(&mut self, frame: Vec<u8>) -> Seen {
        let (ran, reason) = self.send(&sent_by(CLIENT_MAC, frame));
        assert_eq!(
            (ran.action, reason.as_str()),
            (TC_ACT_REDIRECT, "to-server")
        );
        read(&ran.packet)
    }

    #[track_caller]
    fn server_sends(&mut self, segment: &Segment) -> (Seen, Vec<u8>) {
        self.server_sends_frame(&segment.frame())
    }

    #[track_caller]
    fn server_sends_frame(&mut self, frame: &[u8]) -> (Seen, Vec<u8>) {
        let (ran, reason) = self.send(frame);
        assert_eq!(
            (ran.action, reason.as_str()),
            (TC_ACT_REDIRECT, "to-client")
        );
        (read(&ran.packet), ran.packet)
    }

    #[track_caller]
    fn passes(&mut self, frame: &[u8], reason: &str) {
        let (ran, counted) = self.send(frame);
        assert_eq!((ran.action, counted.as_str()), (TC_ACT_UNSPEC, reason));
        assert_eq!(ran.packet, frame, "what is left alone is as it was");
    }

    /// Opens a connection, and tells its server: the client's next number is 2, the server's 101.
    #[track_caller]
    fn establish(&mut self, from: SocketAddr, to: SocketAddr) -> SocketAddr {
        let server = self.client_sends(&tcp(from, to, "S", 1, 0)).dst();
        self.server_sends(&tcp(server, from, "SA", 100, 2));
        self.client_sends(&tcp(from, to, "A", 2, 101));
        server
    }

    fn map(&self, name: &str) -> Map {
        let folder = self.pins.join(format!("services-v{SERVICE_ABI_VERSION}"));
        Map::HashMap(MapData::from_pin(folder.join(name)).unwrap())
    }

    fn connections(&self) -> HashMap<MapData, FlowKey, Connection> {
        self.map("connections").try_into().unwrap()
    }

    fn direct(&self) -> HashMap<MapData, FlowKey, Direct> {
        self.map("direct_connections").try_into().unwrap()
    }

    fn entries(&self) -> usize {
        self.connections().keys().count() + self.direct().keys().count()
    }

    /// Makes the last packets of all connections this old.
    fn has_been_idle(&self, time: Duration) {
        // On a machine that has just started nothing was so long ago.
        while monotonic_now() < time {
            thread::sleep(time - monotonic_now());
        }
        let seen_ns = (monotonic_now() - time).as_nanos() as u64;
        change_all(self.connections(), |entry: &mut Connection| {
            entry.client_seen_ns = seen_ns;
            entry.server_seen_ns = seen_ns;
        });
        change_all(self.direct(), |entry: &mut Direct| entry.seen_ns = seen_ns);
    }

    fn live(&mut self, family: Family, number: u16) -> u64 {
        let gauges = self.services().gauges(WEB).unwrap();
        let gauge = gauges.target[usize::from(place(family, number))];
        gauge.opened - gauge.closed
    }
}

fn change_all<E: Pod>(mut table: HashMap<MapData, FlowKey, E>, change: impl Fn(&mut E)) {
    let entries: Vec<_> = table.iter().map(Result::unwrap).collect();
    for (key, mut entry) in entries {
        change(&mut entry);
        table.insert(key, entry, 0).unwrap();
    }
}

/// Lets the next connection that may have to make room take this turn.
fn let_next_take(rig: &Rig, turn: u32) {
    let folder = rig.pins.join(format!("services-v{SERVICE_ABI_VERSION}"));
    let map = MapData::from_pin(folder.join("service_turn")).unwrap();
    let mut turns: Array<_, u32> = Map::Array(map).try_into().unwrap();
    turns.set(0, turn, 0).unwrap();
}

const ROUND: u32 = PASSING_MAX as u32;

/// Live connections, and entries beyond those of `before`.
fn known(rig: &mut Rig, family: Family, before: usize) -> (u64, usize) {
    let live = (0..SERVERS).map(|number| rig.live(family, number));
    (live.sum::<u64>(), rig.entries() - before)
}

#[test]
fn the_oldest_that_is_not_established_or_is_over_makes_room() {
    let mut rig = Rig::new();
    for (family, forwarding) in Family::ALL.into_iter().flat_map(|family| {
        [Forwarding::Nat, Forwarding::Direct].map(|forwarding| (family, forwarding))
    }) {
        for number in 0..SERVERS {
            rig.change_server(family, number, |server| server.forwarding = forwarding);
        }
        let is_direct = forwarding == Forwarding::Direct;
        let first = 4000 + 1000 * u16::from(is_direct);
        let [kept, lost, over] = [0, 1, 2].map(|port| client(family, first + port));
        let (to, before) = (web(family), rig.entries());
        let opens = |rig: &mut Rig, from| match is_direct {
            true => {
                rig.client_sends(&tcp(from, to, "S", 1, 0));
                rig.client_sends(&tcp(from, to, "A", 2, 101));
            }
            false => drop(rig.establish(from, to)),
        };
        let closes = |rig: &mut Rig, from: SocketAddr| {
            let server = rig.client_sends(&tcp(from, to, "FA", 2, 101)).dst();
            if !is_direct {
                rig.server_sends(&tcp(server, from, "FA", 101, 3));
            }
        };
        let live_before: u64 = (0..SERVERS).map(|number| rig.live(family, number)).sum();
        let turn = 100 * (family.index() as u32 + 2 * u32::from(is_direct));
        let_next_take(&rig, turn);
        opens(&mut rig, kept);
        rig.client_sends(&tcp(lost, to, "S", 1, 0));
        opens(&mut rig, over);
        closes(&mut rig, over);
        let floods = |rig: &mut Rig, turn, port| {
            let_next_take(rig, turn);
            rig.client_sends(&tcp(client(family, first + port), to, "S", 1, 0));
            let (live, entries) = known(rig, family, before);
            (live - live_before, entries)
        };
        // What was over soon keeps the place at which it was opened.
        for (place, live_and_entries) in [(0, (3, 4)), (1, (3, 4)), (2, (4, 4)), (3, (5, 5))] {
            let found = floods(&mut rig, turn + ROUND + place, 500 + place as u16);
            assert_eq!(found, live_and_entries, "{place}");
        }
        rig.client_sends(&tcp(kept, to, "A", 2, 101));
        for gone in [lost, over] {
            rig.passes(&tcp(gone, to, "A", 2, 101).frame(), "no-connection");
        }
        // What is over late gets another.
        let_next_take(&rig, turn + ROUND + 7);
        closes(&mut rig, kept);
        assert_eq!(floods(&mut rig, turn + 2 * ROUND + 8, 600), (5, 6));
        assert_eq!(floods(&mut rig, turn + 2 * ROUND + 7, 601), (6, 6));
        rig.passes(&tcp(kept, to, "A", 3, 102).frame(), "no-connection");
    }
}

fn monotonic_now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap().into()
}

#[test]
fn connections_go_to_the_servers_in_turn_and_answers_come_back_by_the_clients_way() {
    let mut rig = Rig::new();
    for family in Family::ALL {
        let to_web =
            |port, flags, seq, ack| tcp(client(family, port), web(family), flags, seq, ack);
        let mut met = Vec::new();
        for port in 4000..4006 {
            let seen = rig.client_sends(&to_web(port, "S", 1, 0));
            assert_eq!(seen.src(), client(family, port));
            met.push(seen.dst());
            let again = rig.client_sends(&to_web(port, "S", 1, 0));
            assert_eq!(again.dst(), seen.dst(), "a SYN that is sent again");
            let answer = tcp(seen.dst(), client(family, port), "SA", 100, 2);
            let (seen, frame) = rig.server_sends(&answer);
            assert_eq!(
                (seen.src(), seen.dst()),
                (web(family), client(family, port))
            );
            assert_eq!(
                frame[..6],
                CLIENT_MAC,
                "to where the client's packets came from"
            );
            let seen = rig.client_sends(&to_web(port, "A", 2, 101).payload(b"GET /"));
            assert_eq!(Some(&seen.dst()), met.last());
            assert_eq!(seen.payload(), b"GET /");
        }
        let servers: Vec<_> = (0..6).map(|i| server(family, i % SERVERS)).collect();
        assert_eq!(met, servers);
        assert_eq!(rig.live(family, 0), 2);
    }
}

#[test]
fn a_connection_keeps_its_server_when_that_takes_no_more() {
    let mut rig = Rig::new();
    let family = Family::V4;
    let kept = rig
        .client_sends(&tcp(client(family, 4000), web(family), "S", 1, 0))
        .dst();
    assert_eq!(kept, server(family, 0));
    rig.choose_among(family, &[1]);
    for port in 4001..4004 {
        let seen = rig.client_sends(&tcp(client(family, port), web(family), "S", 1, 0));
        assert_eq!(seen.dst(), server(family, 1));
    }
    let seen = rig.client_sends(&tcp(client(family, 4000), web(family), "A", 2, 1));
    assert_eq!(seen.dst(), kept);
    rig.choose_among(family, &[]);
    rig.passes(
        &tcp(client(family, 4009), web(family), "S", 1, 0).frame(),
        "no-server",
    );
}

#[test]
fn a_syn_that_was_not_answered_leaves_a_server_that_takes_no_more() {
    let mut rig = Rig::new();
    for family in Family::ALL {
        let live = |rig: &mut Rig| [0, 1].map(|number| rig.live(family, number));
        let syn = |port| tcp(client(family, port), web(family), "S", 1, 0);
        let answered = rig.client_sends(&syn(4000)).dst();
        rig.server_sends(&tcp(answered, client(family, 4000), "SA", 100, 2));
        rig.choose_among(family, &[0]);
        assert_eq!(rig.client_sends(&syn(4001)).dst(), server(family, 0));
        assert_eq!(rig.client_sends(&syn(4001)).dst(), server(family, 0));
        assert_eq!(live(&mut rig), [2, 0]);
        rig.choose_among(family, &[1]);
        assert_eq!(rig.client_sends(&syn(4001)).dst(), server(family, 1));
        assert_eq!(rig.client_sends(&syn(4000)).dst(), answered);
        assert_eq!(live(&mut rig), [1, 1]);
        let late = tcp(server(family, 0), client(family, 4001), "SA", 7, 2);
        rig.passes(&late.frame(), "not-ours");
        rig.choose_among(family, &[]);
        rig.passes(&syn(4001).frame(), "no-server");
        assert_eq!(live(&mut rig), [1, 0]);
    }
}

#[test]
fn a_syn_stays_with_a_backup_while_no_other_server_takes_it() {
    let mut rig = Rig::new();
    let family = Family::V4;
    rig.choose_among(family, &[]);
    let mut choice = Choice::among(Dispatch::Turns, &[]).0;
    (choice.count, choice.spares) = (SERVERS.into(), 1);
    choice.spare[0] = [1, 2].into_iter().collect();
    rig.services().set_choice(WEB, family, &choice).unwrap();
    let syn = tcp(client(family, 4000), web(family), "S", 1, 0);
    let first = rig.client_sends(&syn).dst();
    assert_ne!(first, server(family, 0));
    assert_eq!(rig.client_sends(&syn).dst(), first);
}

#[test]
fn what_is_closed_is_counted_once_and_gives_way_to_the_next_of_its_port() {
    for ends in [&["FA", "FA"][..], &["R"], &["FA", "RA"]] {
        let mut rig = Rig::new();
        let family = Family::V6;
        let (from, to) = (client(family, 4000), web(family));
        let first = rig.client_sends(&tcp(from, to, "S", 1, 0)).dst();
        rig.server_sends(&tcp(first, from, "SA", 100, 2));
        rig.client_sends(&tcp(from, to, "A", 2, 101));
        assert_eq!(rig.live(family, 0), 1);
        for (turn, flags) in ends.iter().enumerate() {
            match turn {
                0 => drop(rig.client_sends(&tcp(from, to, *flags, 2, 101))),
                _ => drop(rig.server_sends(&tcp(first, from, *flags, 101, 3))),
            }
        }
        assert_eq!(rig.live(family, 0), 0, "{ends:?}");
        let next = rig.client_sends(&tcp(from, to, "S", 9000, 0)).dst();
        assert_eq!(next, server(family, 1), "{ends:?}");
        assert_eq!((rig.live(family, 0), rig.live(family, 1)), (0, 1));
    }
}

#[test]
fn what_is_of_no_service_is_left_alone() {
    let mut rig = Rig::new();
    for family in Family::ALL {
        let (from, to) = (client(family, 4000), web(family));
        let other_port = SocketAddr::new(to.ip(), 81);
        rig.passes(&tcp(from, other_port, "S", 1, 0).frame(), "not-ours");
        rig.passes(&udp(from, to, b"query").frame(), "not-ours");
        rig.passes(
            &tcp(server(family, 0), from, "SA", 1, 2).frame(),
            "not-ours",
        );
        rig.passes(&tcp(from, to, "A", 1, 2).frame(), "no-connection");
    }
}

#[test]
fn datagrams_of_a_clients_port_go_to_one_server_and_its_answers_come_back() {
    let mut rig = Rig::new();
    rig.listen(&[Protocol::Tcp, Protocol::Udp]);
    for family in Family::ALL {
        let to = web(family);
        for (port, number) in [(4000, 0), (4001, 1), (4000, 0), (4002, 2), (4001, 1)] {
            let from = client(family, port);
            let seen = rig.client_sends_frame(udp(from, to, b"query").frame());
            assert_eq!((seen.src(), seen.dst()), (from, server(family, number)));
            assert_eq!(seen.payload(), b"query");
            let answer = udp(server(family, number), from, b"answer").frame();
            let (seen, frame) = rig.server_sends_frame(&answer);
            assert_eq!((seen.src(), seen.dst()), (to, from));
            assert_eq!(frame[..6], CLIENT_MAC);
        }
        assert_eq!(rig.live(family, 0), 1);
        let of_tcp = rig.client_sends(&tcp(client(family, 4000), to, "S", 1, 0));
        assert_eq!(of_tcp.dst(), server(family, 0), "the next in turn");
        assert_eq!(rig.live(family, 0), 2, "another connection");
    }
}

#[test]
fn a_question_that_is_not_answered_goes_to_another_server_when_its_own_takes_no_more() {
    let mut rig = Rig::new();
    rig.listen(&[Protocol::Udp]);
    let family = Family::V4;
    let (from, to) = (client(family, 4000), web(family));
    let query = udp(from, to, b"query").frame();
    assert_eq!(
        rig.client_sends_frame(query.clone()).dst(),
        server(family, 0)
    );
    rig.choose_among(family, &[1]);
    assert_eq!(
        rig.client_sends_frame(query.clone()).dst(),
        server(family, 1)
    );
    assert_eq!((rig.live(family, 0), rig.live(family, 1)), (0, 1));
    rig.server_sends_frame(&udp(server(family, 1), from, b"answer").frame());
    rig.choose_among(family, &[2]);
    assert_eq!(rig.client_sends_frame(query).dst(), server(family, 1));
}

#[test]
fn a_datagram_without_checksum_stays_so() {
    let mut rig = Rig::new();
    rig.listen(&[Protocol::Udp]);
    let family = Family::V4;
    let query = udp_without_checksum(client(family, 4000), web(family), b"query");
    let (ran, _) = rig.send(&query.frame());
    assert_eq!(ran.packet[14 + 20 + 6..14 + 20 + 8], [0, 0]);
}

#[test]
fn datagrams_by_another_way_take_no_answers_of_a_client_that_is_answered() {
    let mut rig = Rig::new();
    rig.listen(&[Protocol::Udp]);
    let family = Family::V6;
    let (from, to) = (client(family, 4000), web(family));
    let stranger = [2, 0, 0, 0, 0, 66];
    let query = udp(from, to, b"query").frame();
    rig.send(&sent_by(stranger, query.clone()));
    let server = rig.client_sends_frame(query.clone()).dst();
    let answer = udp(server, from, b"answer").frame();
    assert_eq!(rig.server_sends_frame(&answer).1[..6], CLIENT_MAC);
    rig.send(&sent_by(stranger, query));
    assert_eq!(rig.server_sends_frame(&answer).1[..6], CLIENT_MAC);
}

#[test]
fn idle_connections_are_forgotten_each_at_its_own_time() {
    let mut rig = Rig::new();
    rig.listen(&[Protocol::Tcp, Protocol::Udp]);
    let family = Family::V6;
    let to = web(family);
    let [asked, talked] = [4000, 4001].map(|port| client(family, port));
    let query = |from| udp(from, to, b"query").frame();
    let answer = |server, from| udp(server, from, b"answer").frame();
    let server_of_one = rig.client_sends_frame(query(asked)).dst();
    rig.server_sends_frame(&answer(server_of_one, asked));
    let server_of_other = rig.client_sends_frame(query(talked)).dst();
    rig.server_sends_frame(&answer(server_of_other, talked));
    rig.client_sends_frame(query(talked));
    rig.client_sends(&tcp(asked, to, "S", 1, 0));
    for (idle_s, left) in [(25, 3), (31, 2), (61, 1), (175, 1), (181, 0)] {
        rig.has_been_idle(Duration::from_secs(idle_s));
        rig.services()
            .sweeper()
            .unwrap()
            .sweep(&BTreeSet::new())
            .unwrap();
        let live: u64 = (0..SERVERS).map(|number| rig.live(family, number)).sum();
        assert_eq!(live, left, "after {idle_s} s");
        assert_eq!(rig.entries(), left as usize, "after {idle_s} s");
    }
}

#[test]
fn servers_without_a_port_are_called_at_the_port_of_a_range_that_the_client_called() {
    let mut rig = Rig::new();
    let ranges = Family::ALL.map(|family| Listen {
        ports: [8001, 8006],
        ..Listen::tcp(web(family))
    });
    let ranges = ranges.map(|listen| (listen, WEB)).into();
    rig.services().set_virtuals(&ranges).unwrap();
    for family in Family::ALL {
        for number in 0..SERVERS {
            rig.change_server(family, number, |server| server.endpoint.set_port(0));
        }
        for port in [8001, 8004, 8006] {
            let called = SocketAddr::new(web(family).ip(), port);
            let from = client(family, 4000);
            let seen = rig.client_sends(&tcp(from, called, "S", 1, 0));
            assert_eq!(seen.dst().port(), port);
            let (seen, _) = rig.server_sends(&tcp(seen.dst(), from, "SA", 100, 2));
            assert_eq!(seen.src(), called);
        }
        for port in [8000, 8007, 80] {
            let other = SocketAddr::new(web(family).ip(), port);
            let syn = tcp(client(family, 4000), other, "S", 1, 0);
            rig.passes(&syn.frame(), "not-ours");
        }
    }
}

#[test]
fn connections_of_a_dead_server_end_and_no_others() {
    let mut rig = Rig::new();
    rig._namespace.ip("link set lo up").unwrap();
    let mut sweeper = rig.services().sweeper().unwrap();
    for family in Family::ALL {
        let to = web(family);
        let opens = |rig: &mut Rig, port, number| {
            rig.choose_among(family, &[number]);
            rig.client_sends(&tcp(client(family, port), to, "S", 1, 0));
            let answer = tcp(server(family, number), client(family, port), "SA", 100, 2);
            rig.server_sends(&answer);
            rig.client_sends(&tcp(client(family, port), to, "A", 2, 101));
        };
        opens(&mut rig, 4000, 0);
        rig.client_sends(&tcp(client(family, 4001), to, "S", 1, 0));
        opens(&mut rig, 4002, 1);
        let place = ServerId(place(family, 0));
        let dead = [(WEB, place)].into();
        assert_eq!(sweeper.sweep(&dead).unwrap(), Swept::default());
        rig.change_server(family, 0, |server| server.is_dead = true);
        // Whose SYN was not answered is given another server.
        let swept = Swept {
            forgotten: 2,
            reset: 1,
        };
        assert_eq!(sweeper.sweep(&dead).unwrap(), swept);
        assert_eq!([0, 1].map(|number| rig.live(family, number)), [0, 1]);
        let of = |port| tcp(client(family, port), to, "A", 2, 101);
        rig.passes(&of(4000).frame(), "no-connection");
        assert_eq!(rig.client_sends(&of(4002)).dst(), server(family, 1));
    }
}

#[test]
fn two_services_of_one_server_share_no_port_of_a_client() {
    let mut rig = Rig::new();
    let family = Family::V4;
    let other = SocketAddr::new(web(family).ip(), 81);
    let mail = ServiceId(4);
    let endpoints = [(web(family), WEB), (other, mail)]
        .map(|(at, id)| (Listen::tcp(at), id))
        .into();
    rig.services().set_virtuals(&endpoints).unwrap();
    let one = usable(server(family, 0));
    rig.services()
        .set_server(mail, ServerId(0), Some(one))
        .unwrap();
    let candidate = Candidate {
        weight: 1,
        load: 0,
        usable: true,
    };
    let (choice, _) = Choice::among(Dispatch::Turns, &[candidate]);
    rig.services().set_choice(mail, family, &choice).unwrap();
    let from = client(family, 4000);
    rig.client_sends(&tcp(from, web(family), "S", 1, 0));
    let (ran, reason) = rig.send(&tcp(from, other, "S", 1, 0).frame());
    assert_eq!((ran.action, reason.as_str()), (TC_ACT_SHOT, "port-taken"));
    rig.client_sends(&tcp(from, web(family), "R", 2, 0));
    rig.client_sends(&tcp(from, other, "S", 5, 0));
}

#[test]
fn connections_outlive_the_process() {
    let mut rig = Rig::new();
    let family = Family::V4;
    let (from, to) = (client(family, 4000), web(family));
    let server = rig.client_sends(&tcp(from, to, "S", 1, 0)).dst();
    rig.services().set_name(WEB, Some("web")).unwrap();
    drop(rig.services.take());
    let (services, adopted) = Services::open(&rig.pins, CONNECTIONS_MAX).unwrap();
    assert!(adopted);
    rig.services = Some(services);
    let names = rig.services().names().unwrap();
    assert_eq!(names[usize::from(WEB.0)].as_deref(), Some("web"));
    let known = rig.services().servers(WEB).unwrap();
    assert_eq!(known[0].map(|server| server.endpoint), Some(server));
    assert_eq!(rig.client_sends(&tcp(from, to, "A", 2, 1)).dst(), server);
    let folder = rig.pins.join(format!("services-v{SERVICE_ABI_VERSION}"));
    assert!(folder.join("connections").exists());
    rig.services.take().unwrap().close().unwrap();
    assert!(!rig.pins.exists());
}
