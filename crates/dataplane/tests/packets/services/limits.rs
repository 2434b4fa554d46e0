//! Limits of servers, and what becomes of connections that no server takes.

use std::{collections::BTreeMap, num::NonZeroU32};

use anabranch_policy::abi::ServiceSettings;

use super::*;

impl Rig {
    /// Gives the first servers of a family limits, and the others none.
    fn limit(&mut self, family: Family, limits: &[u32]) {
        let mut all = BTreeMap::new();
        for (number, limit) in (0..SERVERS).zip(limits.iter().copied().chain([0; 3])) {
            let id = ServerId(place(family, number));
            let known = self.services().servers(WEB).unwrap()[id.index()].unwrap();
            let limit = NonZeroU32::new(limit);
            all.extend(limit.map(|limit| (id, limit.get())));
            let server = Server { limit, ..known };
            self.services().set_server(WEB, id, Some(server)).unwrap();
        }
        self.services().note_full(WEB, &all).unwrap();
    }

    /// So many connections are opened from the port on; which server each gets.
    fn open(&mut self, family: Family, ports: std::ops::Range<u16>) -> Vec<SocketAddr> {
        let ends = ports.map(|port| (client(family, port), web(family)));
        ends.map(|(from, to)| self.establish(from, to)).collect()
    }

    fn is_refused(&mut self, family: Family, port: u16) {
        let syn = tcp(client(family, port), web(family), "S", 1, 0).frame();
        self.passes(&syn, "full");
    }
}

#[test]
fn a_full_server_gets_no_connection_until_one_of_its_own_is_over_under_any_policy() {
    for policy in ["RR", "WLC", "random", "P2C", "Maglev", "source"] {
        let mut rig = Rig::new();
        for family in Family::ALL {
            rig.choose_by(policy, family, &[0, 1, 2]);
            rig.limit(family, &[2, 3, 1]);
            let met = rig.open(family, 4000..4006);
            let shares = [0, 1, 2].map(|number| {
                let of = server(family, number);
                met.iter().filter(|server| **server == of).count()
            });
            assert_eq!(shares, [2, 3, 1], "{policy}");
            rig.is_refused(family, 4006);
            for (port, freed) in (4000..).zip(met) {
                let end = tcp(client(family, port), web(family), "R", 2, 0);
                assert_eq!(rig.client_sends(&end).dst(), freed);
                assert_eq!(
                    rig.open(family, port + 100..port + 101),
                    [freed],
                    "{policy}"
                );
                rig.is_refused(family, 4006);
            }
        }
    }
}

#[test]
fn a_backup_takes_what_full_servers_do_not_up_to_its_own_limit() {
    let mut rig = Rig::new();
    let family = Family::V4;
    rig.limit(family, &[1, 1, 1]);
    let mut choice = Choice::among(Dispatch::Turns, &[]).0;
    (choice.count, choice.spares) = (SERVERS.into(), 1);
    choice.without = Without::Kernel.into();
    choice.usable = [0].into_iter().collect();
    choice.spare[0] = [1, 2].into_iter().collect();
    rig.services().set_choice(WEB, family, &choice).unwrap();
    let met = rig.open(family, 4000..4003);
    assert_eq!(met[0], server(family, 0));
    assert_eq!(met.into_iter().collect::<BTreeSet<_>>().len(), 3);
    rig.is_refused(family, 4003);
    // The first is out of use, and the others are full.
    choice.usable = [].into_iter().collect();
    rig.services().set_choice(WEB, family, &choice).unwrap();
    rig.is_refused(family, 4003);
}

#[test]
fn a_limit_that_changes_counts_connections_that_are_open() {
    let mut rig = Rig::new();
    let family = Family::V6;
    rig.choose_among(family, &[0]);
    rig.open(family, 4000..4004);
    for (limit, more) in [(4, 0), (3, 0), (5, 1), (5, 0), (0, 1)] {
        rig.limit(family, &[limit]);
        let ports = 5000 + 10 * limit as u16..;
        let met = rig.open(family, ports.start..ports.start + more);
        assert_eq!(met.len(), usize::from(more));
        if limit > 0 {
            rig.is_refused(family, 6000);
        }
    }
}

#[test]
fn a_syn_that_is_sent_again_stays_with_the_server_that_it_has_filled() {
    let mut rig = Rig::new();
    for family in Family::ALL {
        rig.limit(family, &[1, 1, 1]);
        let syn = tcp(client(family, 4000), web(family), "S", 1, 0);
        let first = rig.client_sends(&syn).dst();
        assert_eq!(rig.client_sends(&syn).dst(), first);
        assert_eq!(rig.live(family, 0), 1);
    }
}

#[test]
fn a_connection_that_no_server_takes_is_refused_or_dropped_as_the_service_says() {
    let mut rig = Rig::new();
    rig.listen(&[Protocol::Tcp, Protocol::Udp]);
    for family in Family::ALL {
        let (from, to) = (client(family, 4000), web(family));
        let frames = [
            tcp(from, to, "S", 7, 0).frame(),
            udp(from, to, b"?").frame(),
        ];
        let [syn, datagram] = frames.map(|frame| sent_by(CLIENT_MAC, frame));
        for (limit, usable, name) in [(0, &[][..], "no-server"), (1, &[0], "full")] {
            rig.without = Without::Kernel;
            rig.limit(family, &[limit]);
            rig.choose_among(family, usable);
            rig.open(family, 5000..5000 + limit as u16);
            let live = rig.live(family, 0);
            rig.passes(&syn, name);
            rig.without = Without::Drop;
            rig.choose_among(family, usable);
            for frame in [&syn, &datagram] {
                let (ran, reason) = rig.send(frame);
                assert_eq!(
                    (ran.action, reason),
                    (TC_ACT_SHOT, format!("{name}-dropped"))
                );
            }
            rig.without = Without::Refuse;
            rig.choose_among(family, usable);
            let (ran, reason) = rig.send(&syn);
            assert_eq!(
                (ran.action, reason),
                (TC_ACT_REDIRECT, format!("{name}-refused"))
            );
            assert_eq!(ran.packet[..6], CLIENT_MAC);
            let reset = read(&ran.packet);
            assert_eq!((reset.src(), reset.dst()), (to, from));
            let header = reset.tcp();
            assert!(header.rst && header.ack && !header.syn);
            let numbers = (header.sequence_number, header.acknowledgment_number);
            assert_eq!(numbers, (0, 8));
            let (ran, reason) = rig.send(&datagram);
            assert_eq!(
                (ran.action, reason),
                (TC_ACT_REDIRECT, format!("{name}-refused"))
            );
            let error = read(&ran.packet);
            assert_eq!((error.src().ip(), error.dst().ip()), (to.ip(), from.ip()));
            assert_eq!(error.icmp(), (unreachable(family), [0; 4]));
            assert_eq!((quote(&error).src(), quote(&error).dst()), (from, to));
            assert_eq!(rig.live(family, 0), live, "nothing is opened");
        }
    }
}

impl Rig {
    fn limit_clients(&mut self, client_limit: u32) {
        let known = self.services().settings(WEB).unwrap();
        let settings = ServiceSettings {
            client_limit,
            ..known
        };
        self.services().set_settings(WEB, settings).unwrap();
    }

    #[track_caller]
    fn is_turned_away(&mut self, from: SocketAddr, to: SocketAddr) {
        let (ran, reason) = self.send(&tcp(from, to, "S", 1, 0).frame());
        assert_eq!((ran.action, reason.as_str()), (TC_ACT_SHOT, "client-full"));
    }
}

/// Of IPv4 another client, of IPv6 the same at another address.
fn neighbour(family: Family) -> IpAddr {
    endpoint(family, "198.51.100.8:0", "[2001:db8:7::8]:0").ip()
}

#[test]
fn a_client_has_no_more_established_connections_than_its_limit() {
    let mut rig = Rig::new();
    rig.listen(&[Protocol::Tcp, Protocol::Udp]);
    rig.limit_clients(2);
    for family in Family::ALL {
        let to = web(family);
        // Anybody can begin connections in its name.
        for port in 3000..3010 {
            rig.client_sends(&tcp(client(family, port), to, "S", 1, 0));
        }
        let [first, second, third] = [4000, 4001, 4002].map(|port| client(family, port));
        rig.establish(first, to);
        let server = rig.establish(second, to);
        rig.is_turned_away(third, to);
        rig.client_sends(&tcp(first, to, "A", 2, 101));
        rig.client_sends_frame(udp(third, to, b"query").frame());
        let beside = SocketAddr::new(neighbour(family), 4000);
        match family {
            Family::V4 => drop(rig.establish(beside, to)),
            Family::V6 => rig.is_turned_away(beside, to),
        }
        rig.client_sends(&tcp(second, to, "FA", 2, 101));
        rig.is_turned_away(third, to);
        rig.server_sends(&tcp(server, second, "FA", 101, 3));
        rig.establish(third, to);
        rig.is_turned_away(client(family, 4003), to);
        rig.client_sends(&tcp(first, to, "R", 2, 101));
        rig.establish(client(family, 4003), to);
        rig.is_turned_away(client(family, 4004), to);
    }
    // What is idle for long no longer counts, nor does what was counted under a former limit.
    rig.has_been_idle(Duration::from_secs(7441));
    rig.services()
        .sweeper()
        .unwrap()
        .sweep(&BTreeSet::new())
        .unwrap();
    for family in Family::ALL {
        rig.establish(client(family, 5000), web(family));
        rig.establish(client(family, 5001), web(family));
        rig.is_turned_away(client(family, 5002), web(family));
    }
    rig.limit_clients(0);
    rig.limit_clients(1);
    for family in Family::ALL {
        rig.establish(client(family, 5002), web(family));
        rig.is_turned_away(client(family, 5003), web(family));
    }
}
