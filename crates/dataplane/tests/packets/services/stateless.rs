//! Packets that go by a keyed hash, without an entry.

use anabranch_policy::abi::{ServiceSettings, Unknown};
use aya::maps::Array;

use super::*;

const SECRET: Secret = Secret { word: [7, 11] };
const MINUTE: Duration = Duration::from_secs(60);

/// What a hash leads to.
pub(super) struct Rows {
    choice: Choice,
    table: Box<Consistent>,
}

impl Rows {
    /// Of these servers, of which all are usable.
    fn of(family: Family, servers: &[u16]) -> Self {
        let row = catalogue::find(TargetKind::Server, "Maglev").expect("a row of the catalogue");
        let Policy::Service(policy) = row.policy else {
            panic!("of servers");
        };
        let members: Vec<_> = members(family, servers)
            .into_iter()
            .map(|member| member.filter(|one| one.is_usable))
            .collect();
        Self {
            choice: policy.choice(&members),
            table: policy.rows(&members).expect("a table"),
        }
    }

    /// The server of a client that calls the service.
    fn server(&self, from: SocketAddr, to: SocketAddr) -> SocketAddr {
        let request = Request {
            hash: client_hash(&self.choice, &SECRET, from, to),
            ..Request::default()
        };
        let chosen = choose(&self.choice, &Gauges::default(), &self.table, &request).target;
        let family = Family::from(to.ip());
        server(family, chosen.expect("one is usable") - place(family, 0))
    }
}

impl Rig {
    /// Connections above one a second get no entry, and what is unknown is treated so. Clients are beyond the device that servers
    /// are beyond, too.
    pub(super) fn without_entries(unknown: Unknown) -> Self {
        let mut rig = Self::new();
        for command in [
            "link set lo up",
            "route add 198.51.100.0/24 dev lo",
            "-6 route add 2001:db8:7::/64 dev lo",
        ] {
            rig._namespace.ip(command).unwrap();
        }
        for family in ["ipv4", "ipv6"] {
            for device in ["all", "lo"] {
                let path = format!("/proc/sys/net/{family}/conf/{device}/forwarding");
                std::fs::write(path, "1").unwrap();
            }
        }
        rig.services().set_secret(WEB, &SECRET).unwrap();
        let settings = ServiceSettings {
            unknown: unknown as u16,
            ..ServiceSettings::default()
        };
        rig.services().set_settings(WEB, settings).unwrap();
        rig.limit_entries(1);
        for family in Family::ALL {
            rig.change_rows(family, &[0, 1, 2]);
        }
        rig
    }

    /// How many connections a second get entries; 0: all.
    pub(super) fn limit_entries(&mut self, insert_limit: u32) {
        let settings = ServiceSettings {
            insert_limit,
            ..self.services().settings(WEB).unwrap()
        };
        self.services().set_settings(WEB, settings).unwrap();
    }

    /// The rows lead to these servers from now on.
    pub(super) fn change_rows(&mut self, family: Family, servers: &[u16]) -> Rows {
        let rows = Rows::of(family, servers);
        let set = self
            .services()
            .set_rows(WEB, family, Some(&rows.table), MINUTE);
        set.unwrap();
        rows
    }

    /// Whether new connections are above the limit.
    fn set_above_limit(&self, is_above: bool) {
        let folder = self.pins.join(format!("services-v{SERVICE_ABI_VERSION}"));
        let map = MapData::from_pin(folder.join("service_inserts")).unwrap();
        let mut inserts: Array<MapData, u64> = Map::Array(map).try_into().unwrap();
        let full = if is_above {
            monotonic_now() + MINUTE
        } else {
            Duration::ZERO
        };
        inserts
            .set(WEB.0.into(), full.as_nanos() as u64, 0)
            .unwrap();
    }

    /// No connection has room from here on.
    fn fill_table(&self) {
        let mut connections = self.connections();
        let of_nobody = (0..).map(|number: u32| FlowKey {
            local: IpAddr::from(number.to_be_bytes()).into(),
            ..FlowKey::default()
        });
        let mut inserted = of_nobody.map(|key| connections.insert(key, Connection::default(), 0));
        assert!(inserted.any(|one| one.is_err()));
    }

    /// Sends a client's packet, which has no entry.
    #[track_caller]
    pub(super) fn sends_without_entry(&mut self, frame: Vec<u8>, because: &str) -> Seen {
        let (ran, reason) = self.send(&sent_by(CLIENT_MAC, frame));
        assert_eq!((ran.action, reason.as_str()), (TC_ACT_REDIRECT, because));
        read(&ran.packet)
    }
}

#[test]
fn above_the_limit_nothing_is_inserted_and_each_packet_goes_by_the_hash() {
    for family in Family::ALL {
        let mut rig = Rig::without_entries(Unknown::Hash);
        let rows = Rows::of(family, &[0, 1, 2]);
        let first = tcp(client(family, 3999), web(family), "S", 1, 0);
        assert_eq!(rig.client_sends(&first).dst(), server(family, 0));
        let entries = rig.entries();
        let second = tcp(client(family, 4000), web(family), "S", 1, 0);
        rig.sends_without_entry(second.frame(), "hashed");
        rig.set_above_limit(true);
        let mut met = BTreeSet::new();
        for port in 4000..4020 {
            let (from, to) = (client(family, port), web(family));
            let expected = rows.server(from, to);
            for (flags, number) in [("S", 1), ("A", 2), ("PA", 2), ("FA", 7), ("R", 8)] {
                let seen =
                    rig.sends_without_entry(tcp(from, to, flags, number, 101).frame(), "hashed");
                assert_eq!((seen.src(), seen.dst()), (from, expected), "{port} {flags}");
            }
            let (ran, reason) = rig.send(&tcp(expected, from, "SA", 100, 2).frame());
            assert_eq!((ran.action, reason.as_str()), (TC_ACT_REDIRECT, "aliased"));
            let seen = read(&ran.packet);
            assert_eq!((seen.src(), seen.dst()), (to, from));
            met.insert(expected);
        }
        assert_eq!(met.len(), usize::from(SERVERS), "{met:?}");
        assert_eq!(rig.entries(), entries);
        assert_eq!(rig.live(family, 0), 1);
        rig.set_above_limit(false);
        let next = tcp(client(family, 4020), web(family), "S", 1, 0);
        assert_eq!(rig.client_sends(&next).dst(), server(family, 1));
        assert_eq!(rig.entries(), entries + 1);
    }
}

#[test]
fn without_entry_and_server_a_client_is_told_as_the_service_says() {
    let mut rig = Rig::without_entries(Unknown::Hash);
    rig.without = Without::Refuse;
    rig.set_above_limit(true);
    for family in Family::ALL {
        rig.choose_among(family, &[]);
        let syn = tcp(client(family, 4000), web(family), "S", 1, 0);
        rig.sends_without_entry(syn.frame(), "no-server-refused");
    }
}

#[test]
fn datagrams_without_an_entry_go_by_the_hash_with_their_fragments() {
    let mut rig = Rig::without_entries(Unknown::Hash);
    rig.listen(&[Protocol::Udp]);
    rig.set_above_limit(true);
    let payload = [7; 2000];
    for family in Family::ALL {
        let (from, to) = (client(family, 4000), web(family));
        let expected = Rows::of(family, &[0, 1, 2]).server(from, to);
        let question = udp(from, to, &payload).id(7);
        let pieces = [(0, 1440), (1440, 2008)]
            .map(|(at, end)| rig.sends_without_entry(question.fragment(at, end).frame(), "hashed"));
        let whole = reassemble(&pieces);
        assert_eq!((whole.dst(), whole.payload()), (expected, &payload[..]));
        let answer = udp(expected, from, &payload).id(8);
        let pieces = [(0, 1440), (1440, 2008)].map(|(at, end)| {
            let (ran, reason) = rig.send(&answer.fragment(at, end).frame());
            assert_eq!(reason, "aliased");
            read(&ran.packet)
        });
        let whole = reassemble(&pieces);
        assert_eq!((whole.src(), whole.payload()), (to, &payload[..]));
    }
}

#[test]
fn packets_of_no_connection_go_where_the_service_says() {
    for family in Family::ALL {
        let unknown = tcp(client(family, 4000), web(family), "A", 2, 101).frame();
        let syn = tcp(client(family, 4000), web(family), "S", 1, 0).frame();
        for (says, of_unknown, above) in [
            (
                Unknown::Host,
                (TC_ACT_UNSPEC, "no-connection"),
                (TC_ACT_SHOT, "too-many"),
            ),
            (
                Unknown::Drop,
                (TC_ACT_SHOT, "unknown"),
                (TC_ACT_SHOT, "too-many"),
            ),
            (
                Unknown::Hash,
                (TC_ACT_REDIRECT, "hashed"),
                (TC_ACT_REDIRECT, "hashed"),
            ),
            (
                Unknown::Peer,
                (TC_ACT_REDIRECT, "hashed"),
                (TC_ACT_REDIRECT, "hashed"),
            ),
        ] {
            let mut rig = Rig::without_entries(says);
            rig.set_above_limit(true);
            for (frame, expected) in [(&unknown, of_unknown), (&syn, above)] {
                let (ran, reason) = rig.send(frame);
                assert_eq!((ran.action, reason.as_str()), expected, "{says:?}");
            }
        }
    }
}

#[test]
fn what_finds_no_room_goes_by_the_hash_if_others_do() {
    for (says, expected) in [
        (Unknown::Host, (TC_ACT_SHOT, "table-full")),
        (Unknown::Drop, (TC_ACT_SHOT, "table-full")),
        (Unknown::Hash, (TC_ACT_REDIRECT, "hashed")),
        (Unknown::Peer, (TC_ACT_REDIRECT, "hashed")),
    ] {
        let mut rig = Rig::without_entries(says);
        rig.limit_entries(0);
        rig.fill_table();
        let entries = rig.entries();
        for family in Family::ALL {
            let (from, to) = (client(family, 4000), web(family));
            for flags in ["S", "S", "A"] {
                let (ran, reason) = rig.send(&tcp(from, to, flags, 1, 0).frame());
                if says == Unknown::Hash || says == Unknown::Peer {
                    let led = Rows::of(family, &[0, 1, 2]).server(from, to);
                    assert_eq!(read(&ran.packet).dst(), led);
                }
                if flags == "S" {
                    assert_eq!((ran.action, reason.as_str()), expected, "{says:?}");
                }
            }
            assert_eq!(rig.live(family, 0), 0);
        }
        assert_eq!(rig.entries(), entries);
    }
}

#[test]
fn packets_of_no_connection_go_to_the_former_owner_of_a_row_and_new_ones_get_an_entry() {
    for family in Family::ALL {
        let mut rig = Rig::without_entries(Unknown::Peer);
        let before = Rows::of(family, &[0, 1, 2]);
        rig.choose_among(family, &[0, 1]);
        let now = rig.change_rows(family, &[0, 1]);
        rig.set_above_limit(true);
        let mut changed = 0;
        for port in 4000..4040 {
            let (from, to) = (client(family, port), web(family));
            let [former, owner] = [&before, &now].map(|rows| rows.server(from, to));
            let because = if former == owner { "hashed" } else { "former" };
            let unknown = tcp(from, to, "A", 2, 101).frame();
            let seen = rig.sends_without_entry(unknown.clone(), because);
            assert_eq!(seen.dst(), former, "{port}");
            let because = if former == owner {
                "hashed"
            } else {
                "to-server"
            };
            let syn = tcp(from, to, "S", 1, 0).frame();
            let chosen = rig.sends_without_entry(syn, because).dst();
            let seen = rig.sends_without_entry(unknown, because);
            assert_eq!(seen.dst(), chosen, "{port}: as the first");
            changed += u32::from(former != owner);
        }
        assert!((5..25).contains(&changed), "{changed} of 40");
        // Who is dead has lost its connections.
        rig.change_server(family, 2, |server| server.is_dead = true);
        let from = (5000..5100).map(|port| client(family, port));
        let moved = |from: &SocketAddr| before.server(*from, web(family)) == server(family, 2);
        let from = from.into_iter().find(moved).expect("a third of them");
        let unknown = tcp(from, web(family), "A", 2, 101).frame();
        let seen = rig.sends_without_entry(unknown, "hashed");
        assert_eq!(seen.dst(), now.server(from, web(family)));
    }
}

#[test]
fn a_server_that_answers_itself_gets_packets_without_an_entry_as_they_are() {
    let mut rig = Rig::without_entries(Unknown::Hash);
    for family in Family::ALL {
        for number in 0..SERVERS {
            rig.change_server(family, number, |server| {
                server.forwarding = Forwarding::Direct;
            });
        }
        rig.set_above_limit(true);
        for flags in ["S", "A", "FA"] {
            let frame = tcp(client(family, 4000), web(family), flags, 1, 0).frame();
            let (ran, reason) = rig.send(&frame);
            assert_eq!((ran.action, reason.as_str()), (TC_ACT_REDIRECT, "hashed"));
            assert_eq!(ran.packet[14..], frame[14..]);
        }
    }
}

/// About a packet that the client was sent, and about one that the server was.
fn errors(family: Family, server: SocketAddr, port: u16, proto: Protocol) -> [Ip; 2] {
    let (from, to) = (client(family, port), web(family));
    let segment = |from, to| match proto {
        Protocol::Tcp => tcp(from, to, "A", 7, 9).payload(&[7; 40]).ip(),
        Protocol::Udp => udp(from, to, &[7; 40]),
    };
    let [told, asked] = [segment(to, from), segment(from, server)].map(|ip| ip.packet());
    let word = [0, 0, 5, 20];
    [
        icmp(router(family), to.ip(), too_big(family), word, &told),
        icmp(server.ip(), from.ip(), unreachable(family), [0; 4], &asked),
    ]
}

#[test]
fn errors_about_packets_without_an_entry_reach_the_ends_that_sent_them() {
    for (family, proto) in Family::ALL
        .into_iter()
        .flat_map(|family| [Protocol::Tcp, Protocol::Udp].map(|proto| (family, proto)))
    {
        let mut rig = Rig::without_entries(Unknown::Hash);
        rig.listen(&[proto]);
        let mut met = BTreeSet::new();
        for port in 4000..4020 {
            let (from, to) = (client(family, port), web(family));
            let server = Rows::of(family, &[0, 1, 2]).server(from, to);
            let [of_server, of_client] = errors(family, server, port, proto);
            let seen = rig.sends_without_entry(of_server.frame(), "error-to-server");
            let ends = (seen.src().ip(), seen.dst().ip());
            assert_eq!(ends, (router(family), server.ip()), "{port}");
            assert_eq!(seen.icmp(), (too_big(family), [0, 0, 5, 20]));
            assert_eq!((quote(&seen).src(), quote(&seen).dst()), (server, from));
            let seen = rig.sends_without_entry(of_client.frame(), "error-to-client");
            assert_eq!((seen.src().ip(), seen.dst().ip()), (to.ip(), from.ip()));
            assert_eq!(seen.icmp(), (unreachable(family), [0; 4]));
            assert_eq!((quote(&seen).src(), quote(&seen).dst()), (from, to));
            met.insert(server);
        }
        assert_eq!(met.len(), usize::from(SERVERS), "{met:?}");
        assert_eq!(rig.entries(), 0);
    }
}

#[test]
fn errors_without_an_entry_follow_the_former_owner_of_a_row_and_to_direct_servers_go_as_they_are() {
    for family in Family::ALL {
        let mut rig = Rig::without_entries(Unknown::Peer);
        let before = Rows::of(family, &[0, 1, 2]);
        rig.choose_among(family, &[0, 1]);
        rig.change_rows(family, &[0, 1]);
        let moved =
            |port: &u16| before.server(client(family, *port), web(family)) == server(family, 2);
        let port = (4000..4100).find(moved).expect("a third of them");
        let [of_server, _] = errors(family, server(family, 2), port, Protocol::Tcp);
        let seen = rig.sends_without_entry(of_server.frame(), "error-to-server");
        assert_eq!(seen.dst().ip(), server(family, 2).ip());
        rig.change_server(family, 2, |server| server.forwarding = Forwarding::Direct);
        let (ran, reason) = rig.send(&of_server.frame());
        assert_eq!(reason, "error-to-server");
        assert_eq!(ran.packet[14..], of_server.packet());
    }
}

#[test]
fn errors_without_an_entry_that_are_wrong_or_of_others_go_nowhere() {
    for family in Family::ALL {
        let mut rig = Rig::without_entries(Unknown::Hash);
        let from = client(family, 4000);
        let server = Rows::of(family, &[0, 1, 2]).server(from, web(family));
        for mut broken in errors(family, server, 4000, Protocol::Tcp) {
            broken.body[2] ^= 1;
            let (ran, reason) = rig.send(&broken.frame());
            assert_eq!((ran.action, reason.as_str()), (TC_ACT_SHOT, "bad-error"));
        }
        // The client's connection has an entry, to a server of its own.
        let own = rig.establish(from, web(family));
        let other = (0..SERVERS).map(|number| self::server(family, number));
        let other = other.into_iter().find(|one| *one != own).expect("three");
        let [_, of_client] = errors(family, other, 4000, Protocol::Tcp);
        rig.passes(&of_client.frame(), "not-ours");
        for says in [Unknown::Host, Unknown::Drop] {
            let mut rig = Rig::without_entries(says);
            for error in errors(family, server, 4000, Protocol::Tcp) {
                rig.passes(&error.frame(), "not-ours");
            }
        }
    }
}

#[test]
fn answers_that_are_not_for_clients_without_an_entry_are_left_alone() {
    let mut rig = Rig::without_entries(Unknown::Hash);
    for family in Family::ALL {
        let of_host = SocketAddr::new(endpoint(family, "127.0.0.1:0", "[::1]:0").ip(), 4000);
        let to_check = tcp(server(family, 0), of_host, "SA", 100, 2).frame();
        rig.passes(&to_check, "not-ours");
        let other_port = SocketAddr::new(server(family, 0).ip(), 22);
        let of_other_program = tcp(other_port, client(family, 4000), "SA", 100, 2).frame();
        rig.passes(&of_other_program, "not-ours");
        let from = client(family, 3999);
        let own = rig.client_sends(&tcp(from, web(family), "S", 1, 0)).dst();
        let other = (0..SERVERS).map(|number| server(family, number));
        let other = other.into_iter().find(|one| *one != own).expect("three");
        rig.passes(&tcp(other, from, "SA", 100, 2).frame(), "not-ours");
        rig.set_above_limit(false);
    }
}
