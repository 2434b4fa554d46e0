//! Timers, and the books: what was opened and not closed is what is there, and nothing when all flows have ended.

use std::net::SocketAddr;
use std::time::Duration;

use anabranch_core::{ClassId, ClassSet, DataPlane, LinkId};
use anabranch_dataplane::Which;
use anabranch_policy::abi;
use proptest::prelude::*;

use super::*;

/// One flow of each kind the timers know, by its LAN port.
fn one_of_each(rig: &mut Rig) {
    let unconfirmed = tcp(client(1), server(80), "S", LOCAL_ISN, 0);
    rig.translates_out(&unconfirmed.frame());
    rig.connect(client(2), server(80));
    let closed = rig.connect(client(3), server(80));
    let reset = closed.say("R", LOCAL_ISN + 1, 0);
    rig.translates_out(&reset.frame());
    let suspect = rig.connect(client(4), server(80));
    let reset = suspect.answer("R", REMOTE_ISN + 500, 0);
    rig.translates_in(suspect.link, &reset.frame());
    rig.translates_out(&udp(client(5), server(53), b"x").frame());
    rig.translates_out(&echo(CLIENT, SERVER, 6, b"x").frame());
}

#[test]
fn every_state_has_its_own_timer() {
    type Timer = fn(&mut anabranch_dataplane::Settings);
    let timers: [(&str, Timer, &[u16]); 5] = [
        ("unconfirmed", |s| s.unconfirmed_ns = 0, &[1]),
        ("established", |s| s.tcp_established_ns = 0, &[2, 4]),
        ("transitory", |s| s.tcp_transitory_ns = 0, &[3]),
        ("udp", |s| s.udp_ns = 0, &[5]),
        ("icmp", |s| s.icmp_ns = 0, &[6]),
    ];
    for (name, timer, ended) in timers {
        let mut rig = Rig::new();
        one_of_each(&mut rig);
        assert_eq!(rig.sweep().expired, 0, "{name}");
        rig.set(timer);
        rig.sweep_until(|rig, _| rig.flows().len() == 6 - ended.len());
        let left: Vec<_> = rig.flows().iter().map(|flow| flow.local.port()).collect();
        assert!(
            ended.iter().all(|port| !left.contains(port)),
            "{name}: {left:?} are left"
        );
    }
}

#[test]
fn a_flow_lives_while_either_direction_speaks() {
    let mut rig = Rig::new();
    let connection = rig.connect(client(4000), server(80));
    let data = connection.answer("A", REMOTE_ISN + 1, LOCAL_ISN + 1);
    let patience_ns = 500_000_000;
    rig.set(|s| s.tcp_established_ns = patience_ns);
    let begin = std::time::Instant::now();
    while begin.elapsed().as_nanos() < 4 * u128::from(patience_ns) {
        rig.translates_in(connection.link, &data.clone().payload(b"x").frame());
        assert_eq!(rig.sweep().expired, 0);
    }
    rig.sweep_until(|_, swept| swept.expired == 1);
}

#[test]
fn a_mapping_takes_its_permissions_with_it() {
    let mut rig = Rig::new();
    let sent = rig.translates_out(&udp(client(4000), server(53), b"x").frame());
    rig.translates_out(&udp(client(4000), second_server(53), b"x").frame());
    rig.set(|s| s.udp_ns = 0);
    rig.sweep_until(|rig, _| rig.flows().is_empty());
    rig.sweep_until(|_, swept| swept.expired == 0);
    rig.set(|_| {});
    let again = rig.translates_out(&udp(client(4000), server(53), b"x").frame());
    assert_eq!(again.src().port(), sent.src().port());
    let stranger = udp(second_server(53), again.src(), b"x");
    rig.link_brings(link_of(again.src()), &stranger.frame())
        .dropped("filtered-in");
}

#[test]
fn ending_a_link_ends_its_flows_and_no_others() {
    let mut rig = Rig::new();
    let held: Vec<_> = (0..20)
        .map(|i| rig.connect(client(4000 + i), server(80)))
        .collect();
    let asked: Vec<_> = (0..20)
        .map(|i| {
            rig.translates_out(&udp(client(5000 + i), server(53), b"x").frame())
                .src()
        })
        .collect();
    let of = |link: u16, all: &[SocketAddr]| {
        all.iter()
            .filter(|external| link_of(**external) == link)
            .count() as u64
    };
    let external: Vec<_> = held.iter().map(|connection| connection.external).collect();
    rig.install(&round_robin(0b10));
    let ended = rig
        .plane()
        .end_flows(ClassId::DEFAULT, FAMILY, LinkId(0))
        .unwrap();
    assert_eq!(ended.udp + ended.tcp, of(0, &external) + of(0, &asked));
    assert!(rig.flows().iter().all(|flow| flow.link == 1));
    assert_eq!(rig.live(), rig.flows().len() as i64);
    for connection in held.iter().filter(|connection| connection.link == 1) {
        let data = connection.say("PA", LOCAL_ISN + 1, REMOTE_ISN + 1);
        rig.translates_out(&data.payload(b"alive").frame());
    }
    for i in 0..20 {
        let sent = rig.translates_out(&udp(client(5000 + i), server(53), b"x").frame());
        assert_eq!(link_of(sent.src()), 1, "UDP moves to the other link");
    }
}

#[test]
fn datagrams_move_in_a_pause_of_both_directions_and_connections_stay() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    rig.connect(client(4000), server(80));
    for port in 5000..5003 {
        let external = rig
            .translates_out(&udp(client(port), server(53), b"x").frame())
            .src();
        rig.translates_in(0, &udp(server(53), external, b"y").frame());
        rig.translates_out(&udp(client(port), server(53), b"x").frame());
    }
    let two_seconds_ns = 2_000_000_000;
    let quiet = [
        (5000, Half::Lan),
        (5000, Half::Link),
        (5001, Half::Lan),
        (4000, Half::Lan),
        (4000, Half::Link),
    ];
    for (port, half) in quiet {
        rig.alter(client(port), half, |flow| flow.seen_ns -= two_seconds_ns);
    }
    let idle = Duration::from_secs(1);
    let walker = rig.plane().walker();
    let left = |rig: &mut Rig| {
        let mut ports: Vec<u16> = rig.flows().iter().map(|flow| flow.local.port()).collect();
        ports.sort();
        ports
    };
    walker
        .end_flows(
            LinkId(0),
            FAMILY,
            ClassSet::ALL,
            Which::Udp { idle },
            walker.now(),
        )
        .unwrap();
    assert_eq!(left(&mut rig), [4000, 5001, 5002], "5001 is sent to");
    let idle = Duration::ZERO;
    let ended = walker
        .end_flows(
            LinkId(0),
            FAMILY,
            ClassSet::ALL,
            Which::Udp { idle },
            walker.now(),
        )
        .unwrap();
    assert_eq!((ended.udp, left(&mut rig)), (2, vec![4000]));
    assert_eq!(rig.live(), 1);
}

#[test]
fn what_is_opened_after_the_end_of_a_link_was_ordered_stays() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    rig.connect(client(4000), server(80));
    rig.connect(client(4001), server(80));
    let an_hour_ns = 3_600_000_000_000;
    rig.alter(client(4001), Half::Lan, |flow| flow.opened_ns += an_hour_ns);
    let ended = rig
        .plane()
        .end_flows(ClassId::DEFAULT, FAMILY, LinkId(0))
        .unwrap();
    assert_eq!(ended.udp + ended.tcp, 1);
    let left: Vec<_> = rig.flows().iter().map(|flow| flow.local).collect();
    assert_eq!(left, [client(4001)]);
}

/// Something that may happen to flow `port` of a host.
#[derive(Clone, Copy, Debug)]
enum Event {
    Syn,
    SynAck,
    Ack,
    FinLocal,
    FinRemote,
    ResetLocal,
    ResetRemote { off: u32 },
    Udp,
    UdpAnswer,
    Sweep,
    EndLink(u16),
    Usable(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Syn),
        4 => Just(Event::SynAck),
        4 => Just(Event::Ack),
        2 => Just(Event::FinLocal),
        2 => Just(Event::FinRemote),
        1 => Just(Event::ResetLocal),
        2 => prop_oneof![Just(0), 1..1000u32, any::<u32>()].prop_map(|off| Event::ResetRemote { off }),
        3 => Just(Event::Udp),
        3 => Just(Event::UdpAnswer),
        1 => Just(Event::Sweep),
        1 => (0..2u16).prop_map(Event::EndLink),
        1 => (0..4u64).prop_map(Event::Usable),
    ]
}

/// The external endpoint of a LAN endpoint's flow, if it has one.
fn external_of(rig: &mut Rig, proto: &str, local: SocketAddr) -> Option<SocketAddr> {
    let flows = rig.flows();
    let flow = flows
        .iter()
        .find(|flow| flow.proto == proto && flow.local == local)?;
    Some(flow.external)
}

fn happen(rig: &mut Rig, local: SocketAddr, event: Event) {
    let say = |flags, seq, ack| tcp(local, server(80), flags, seq, ack).frame();
    let answer = |rig: &mut Rig, flags: &str, seq| {
        if let Some(external) = external_of(rig, "tcp", local) {
            let segment = tcp(server(80), external, flags, seq, LOCAL_ISN + 1);
            rig.link_brings(link_of(external), &segment.frame());
        }
    };
    match event {
        Event::Syn => drop(rig.lan_sends(&say("S", LOCAL_ISN, 0))),
        Event::SynAck => answer(rig, "SA", REMOTE_ISN),
        Event::Ack => drop(rig.lan_sends(&say("A", LOCAL_ISN + 1, REMOTE_ISN + 1))),
        Event::FinLocal => drop(rig.lan_sends(&say("FA", LOCAL_ISN + 1, REMOTE_ISN + 1))),
        Event::FinRemote => answer(rig, "FA", REMOTE_ISN + 1),
        Event::ResetLocal => drop(rig.lan_sends(&say("R", LOCAL_ISN + 1, 0))),
        Event::ResetRemote { off } => answer(rig, "R", (REMOTE_ISN + 1).wrapping_add(off)),
        Event::Udp => drop(rig.lan_sends(&udp(local, server(53), b"q").frame())),
        Event::UdpAnswer => {
            if let Some(external) = external_of(rig, "udp", local) {
                let answer = udp(server(53), external, b"a");
                rig.link_brings(link_of(external), &answer.frame());
            }
        }
        Event::Sweep => drop(rig.sweep()),
        Event::EndLink(link) => drop(
            rig.plane()
                .end_flows(ClassId::DEFAULT, FAMILY, LinkId(link))
                .unwrap(),
        ),
        Event::Usable(links) => rig.install(&round_robin(links)),
    }
}

#[test]
fn whatever_happens_the_books_balance_and_are_empty_in_the_end() {
    let mut rig = Rig::new();
    let step = (0..3u8, 0..2u16, event());
    let strategy = proptest::collection::vec(step, 1..60);
    rig.for_all(150, strategy, |rig, steps| {
        // Of three unconfirmed flows of a host one has a place in the order.
        rig.set(|s| (s.quota_per_host, s.unconfirmed_per_host) = (3, 2 * abi::UNORDERED_HOSTS));
        rig.install(&round_robin(0b11));
        for (host, port, event) in steps {
            let host = lan_host(10 + host);
            happen(rig, SocketAddr::new(host, 4000 + port), event);
            let open = rig
                .flows()
                .iter()
                .filter(|flow| flow.state != anabranch_dataplane::FlowState::Closed)
                .count();
            // A closed unconfirmed flow shows as an unconfirmed flow.
            prop_assert!(rig.live() <= open as i64, "{} of {open}", rig.live());
            prop_assert!(rig.live() >= 0);
            let held = rig.held();
            prop_assert!(held.iter().all(|live| (0..=3).contains(live)), "{held:?}");
            prop_assert_eq!(held.iter().sum::<i64>(), rig.live());
        }
        rig.set(|s| {
            (s.tcp_established_ns, s.tcp_transitory_ns, s.unconfirmed_ns) = (0, 0, 0);
            s.udp_ns = 0;
        });
        rig.sweep_until(|rig, _| rig.flows().is_empty());
        prop_assert_eq!(rig.live(), 0);
        prop_assert_eq!(rig.plane().confirmed().unwrap(), 0);
        prop_assert_eq!(rig.ordered(), (0, 0));
        // No host is left with a debt: each may have its whole quota again.
        rig.set(|s| s.quota_per_host = 1);
        rig.install(&round_robin(0b11));
        for host in 0..3u32 {
            let local = SocketAddr::new(lan_host(10 + host), 7000);
            let connection = rig.connect(local, server(80));
            let reset = connection.say("R", LOCAL_ISN + 1, 0);
            rig.translates_out(&reset.frame());
        }
        rig.set(|s| s.tcp_transitory_ns = 0);
        rig.sweep_until(|rig, _| rig.flows().is_empty());
        Ok(())
    });
}
