//! Who may open a flow: shares of hosts, of the kernel's NAT, ports of the gateway itself, sources of other devices.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use anabranch_core::DataPlane;
use anabranch_dataplane::{Route, Sizes, Verdict};
use anabranch_policy::abi;

use super::*;

fn host(number: u8, port: u16) -> SocketAddr {
    SocketAddr::new(lan_host(number), port)
}

/// SYNs of one network card from many addresses to many servers.
fn flood(rig: &mut Rig, syns: u32) {
    rig.lan_floods((0..syns).map(|i| {
        let local = host(10 + (i % 200) as u8, 1024 + (i % 60_000) as u16);
        let remote = SocketAddr::new(internet_host(i), 80);
        sent_by(FLOODER, tcp(local, remote, "S", i, 0).frame())
    }));
}

/// 200 k SYN/s for a round trip of 800 ms are 160 000; the order of evictions is the same after ten shares.
#[test]
fn a_flood_of_syns_evicts_no_handshake_of_another_host() {
    let mut rig = Rig::new();
    let mut waiting = Vec::new();
    for port in 0..80 {
        let syn = tcp(client(4000 + port), server(80), "S", LOCAL_ISN, 0);
        let sent = rig.translates_out(&syn.frame());
        waiting.push((client(4000 + port), sent.src()));
    }
    flood(&mut rig, 10 * settings().unconfirmed_per_host);
    for (local, external) in waiting {
        rig.translates_in(link_of(external), &syn_ack(external));
        let ack = tcp(local, server(80), "A", LOCAL_ISN + 1, REMOTE_ISN + 1);
        rig.translates_out(&ack.frame());
    }
    assert_eq!(rig.plane().confirmed().unwrap(), 80);
}

#[test]
fn invented_network_cards_cost_newcomers_their_place_and_nobody_else() {
    let mut rig = Rig::sized(Sizes {
        hosts_max: 64,
        ..small()
    });
    rig.connect(client(4000), server(80));
    let mut refused = 0;
    for i in 0..1000u16 {
        let [high, low] = i.to_be_bytes();
        let syn = tcp(host(9, i + 1024), server(80), "S", LOCAL_ISN, 0).frame();
        let outcome = rig.lan_sends(&sent_by([2, 0, 0, 1, high, low], syn));
        refused += u32::from(outcome.reason == "refused-hosts");
    }
    assert_eq!(refused, 1000 - 63);
    rig.connect(client(4001), server(80));
    let newcomer = tcp(host(3, 4000), server(80), "S", LOCAL_ISN, 0);
    assert_eq!(rig.lan_sends(&newcomer.frame()).reason, "refused-hosts");
}

#[test]
fn where_all_hosts_have_too_many_unconfirmed_flows_who_opens_one_gives_one_of_its_own() {
    const UNCONFIRMED: u32 = 64;
    let mut rig = Rig::sized(Sizes {
        unconfirmed_max: UNCONFIRMED,
        hosts_max: 16,
        ..small()
    });
    let open = |rig: &mut Rig, card: u8, port| {
        let syn = tcp(host(card, port), server(80), "S", LOCAL_ISN, 0).frame();
        rig.lan_sends(&sent_by([2, 0, 0, 1, 0, card], syn)).reason
    };
    for i in 0..UNCONFIRMED as u16 {
        assert_eq!(
            open(&mut rig, 10 + (i % 4) as u8, 4000 + i),
            "translated-out"
        );
    }
    assert_eq!(open(&mut rig, 20, 4000), "refused-unconfirmed");
    assert_eq!(open(&mut rig, 10, 5000), "translated-out");
    let there: Vec<_> = rig.flows().iter().map(|flow| flow.local.port()).collect();
    let kept = (4001..4000 + UNCONFIRMED as u16).chain([5000]);
    assert_eq!(there.len(), UNCONFIRMED as usize);
    assert!(
        kept.into_iter().all(|port| there.contains(&port)),
        "{there:?}"
    );
}

/// Those that no order holds count in it.
#[test]
fn a_hosts_share_of_unconfirmed_flows_is_the_same_with_those_that_no_order_holds() {
    let mut rig = Rig::new();
    let share = settings().unconfirmed_per_host;
    let unordered = share / abi::UNORDERED_HOSTS;
    flood(&mut rig, unordered);
    assert_eq!(rig.ordered(), (0, unordered));
    flood(&mut rig, 3 * share);
    assert_eq!(rig.ordered(), ((share - unordered) as usize, unordered));
    assert_eq!(rig.unconfirmed(), 2 * share as usize);
    rig.set(|s| s.unconfirmed_ns = 0);
    rig.sweep_until(|rig, _| rig.flows().is_empty());
    assert_eq!(rig.ordered(), (0, 0));
}

#[test]
fn a_link_without_a_port_is_passed_over_in_the_same_packet() {
    let mut rig = Rig::new();
    rig.set(|s| (s.port_min, s.port_max) = (2000, 2063));
    rig.install(&round_robin(0b01));
    let ask = |rig: &mut Rig, number, port| {
        let query = udp(host(number, port), server(53), b"q").frame();
        rig.translates_out(&query).src()
    };
    for i in 0..64u16 {
        ask(&mut rig, 10 + (i / 16) as u8, 5000 + i);
    }
    rig.install(&round_robin(0b11));
    for i in 0..64u16 {
        let external = ask(&mut rig, 20 + (i / 16) as u8, 5000 + i);
        assert_eq!(link_of(external), 1);
    }
}

/// Fills every external port of one link, by hosts that are not asked about again.
fn fill_ports(rig: &mut Rig, ports: std::ops::Range<u16>) {
    rig.set(|s| (s.port_min, s.port_max) = (ports.start, ports.end - 1));
    // The most that one host may have.
    let share = ports.len() / 4;
    for (i, port) in ports.enumerate() {
        let local = host(10 + (i / share) as u8, port);
        let sent = rig.lan_sends(&udp(local, server(53), b"q").frame());
        assert_eq!(sent.sent("translated-out").src().port(), port);
    }
}

#[test]
fn in_turns_every_query_is_answered_beside_a_full_link_which_is_left_alone_for_a_second() {
    const QUERIES: u16 = 100;
    let second = Duration::from_millis(1010);
    let mut rig = Rig::choosing(&round_robin(0b01));
    fill_ports(&mut rig, 2000..2256);
    let mut choice = round_robin(0b11);
    choice.target[0].dispatched_base = 256;
    rig.install(&choice);
    // A try in vain counts as dispatched, not as opened.
    let tries = |rig: &mut Rig| {
        let full = rig.plane().counters().unwrap()[0].flows;
        full.dispatched - full.opened
    };
    let ask = |rig: &mut Rig, number, port| {
        let local = host(number, port);
        let query = udp(local, server(53), b"query").frame();
        let external = rig.translates_out(&query).src();
        assert_eq!(link_of(external), 1);
        let answer = udp(server(53), external, b"answer").frame();
        let seen = rig.translates_in(1, &answer);
        assert_eq!(seen.dst(), local);
    };
    let begun = Instant::now();
    for i in 0..QUERIES {
        ask(&mut rig, 20 + (i / 25) as u8, 2000 + i);
    }
    let (tried, most) = (tries(&mut rig), 1 + begun.elapsed().as_secs());
    assert!((1..=most).contains(&tried), "{tried} of {most}");
    let asked = Instant::now();
    while asked.elapsed() < second {
        ask(&mut rig, 20, 2000);
    }
    assert_eq!(tries(&mut rig), tried, "nobody new has asked");
    ask(&mut rig, 30, 2000 + QUERIES);
    ask(&mut rig, 30, 2001 + QUERIES);
    assert_eq!(tries(&mut rig), tried + 1);
}

#[test]
fn ended_flows_give_their_ports_to_whom_finds_no_other() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    rig.set(|s| (s.port_min, s.port_max) = (2000, 2015));
    for port in 5000..5016 {
        if port % 2 == 0 {
            rig.connect(client(port), server(443));
        } else {
            rig.open(client(port), server(443));
        }
        let end = tcp(client(port), server(443), "R", LOCAL_ISN + 1, 0);
        rig.translates_out(&end.frame());
    }
    for port in 6000..6016 {
        rig.connect(host(3, port), server(443));
    }
    assert_eq!(rig.live(), 16);
    let syn = tcp(host(4, 6000), server(443), "S", LOCAL_ISN, 0);
    assert_eq!(rig.lan_sends(&syn.frame()).reason, "refused-ports");
    assert_eq!(rig.live(), 16);
}

/// What ended counts against its device for as long as it is in the table, whichever cards it came from.
#[test]
fn a_device_is_charged_for_ended_unconfirmed_flows_until_they_are_gone() {
    let mut rig = Rig::new();
    rig.set(|s| (s.flows_per_device, s.unconfirmed_per_device) = (1000, 4));
    for port in 4000..4004 {
        for (flags, seq) in [("S", LOCAL_ISN), ("R", LOCAL_ISN + 1)] {
            let segment = tcp(host(9, port), server(80), flags, seq, 0).frame();
            rig.translates_out(&sent_by(FLOODER, segment));
        }
    }
    assert_eq!((rig.live(), rig.unconfirmed()), (0, 8));
    rig.sweep();
    let syn = tcp(client(4000), server(80), "S", LOCAL_ISN, 0);
    assert_eq!(rig.lan_sends(&syn.frame()).reason, "refused-unconfirmed");
}

#[test]
fn ports_of_the_gateways_sockets_and_reserved_ones_are_never_given_away() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    rig.set(|s| s.reserved[3] = 1195);
    let _vpn = UdpSocket::bind((SITE.unspecified, 1194)).unwrap();
    let _web = TcpListener::bind((SITE.unspecified, 8080)).unwrap();
    for port in [1194, 1195] {
        let query = udp(client(port), server(53), b"q").frame();
        let sent = rig.translates_out(&query);
        assert_ne!(sent.src().port(), port);
    }
    let syn = tcp(client(8080), server(80), "S", LOCAL_ISN, 0).frame();
    assert_ne!(rig.translates_out(&syn).src().port(), 8080);
    let syn = tcp(client(8081), server(80), "S", LOCAL_ISN, 0).frame();
    assert_eq!(rig.translates_out(&syn).src().port(), 8081);
}

#[test]
fn a_source_of_another_lan_device_is_dropped_unless_lans_may_be_asymmetric() {
    let mut rig = Rig::new();
    let lan = |prefix, ifindex| Route {
        prefix,
        verdict: Verdict::Lan { ifindex, via: None },
    };
    rig.plane()
        .set_routes(&[lan(SITE.lan, 1), lan(SITE.further_lan, 7)])
        .unwrap();
    let local = SocketAddr::new(SITE.further_host(2), 4000);
    let syn = tcp(local, server(80), "S", LOCAL_ISN, 0).frame();
    rig.lan_sends(&syn).dropped("spoofed-device");
    rig.set(|s| s.lan_sources_loose = 1);
    rig.connect(local, server(80));
    let data = tcp(local, server(80), "A", LOCAL_ISN + 1, REMOTE_ISN + 1).frame();
    rig.translates_out(&data);
    rig.set(|_| {});
    rig.lan_sends(&data).dropped("spoofed-device");
}

#[test]
fn what_a_host_gives_to_the_kernels_nat_is_bounded_and_paid_for_once() {
    let mut rig = Rig::new();
    rig.set(|s| (s.quota_per_host, s.fallback_mark) = (0, 7));
    let syn = |port| tcp(client(port), server(80), "S", LOCAL_ISN, 0).frame();
    let begun = Instant::now();
    let left = rig.lan_pours((2000..4000).map(syn));
    let passed = left["fallback-quota"];
    // 512 at once, and 64 a second for as long as this took.
    let refilled = 64 * (begun.elapsed().as_secs() + 1);
    assert!((512..=512 + refilled).contains(&passed), "{left:?}");
    assert_eq!(passed + left["refused-rate-host"], 2000, "{left:?}");
    rig.lan_sends(&syn(2000)).passed("fallback-quota");
}

/// The kernel's table keeps what it is given for minutes, whoever answers: a server that helps the host changes nothing.
#[test]
fn what_all_hosts_give_to_the_kernels_nat_is_bounded_in_sum() {
    const HOSTS: u8 = 20;
    let mut rig = Rig::new();
    rig.set(|s| (s.quota_per_host, s.fallback_mark) = (0, 7));
    let begun = Instant::now();
    let syns = (0..8000u16).map(|i| {
        let local = host(
            10 + (i % u16::from(HOSTS)) as u8,
            2000 + i / u16::from(HOSTS),
        );
        tcp(local, server(80), "S", LOCAL_ISN, 0).frame()
    });
    let left = rig.lan_pours(syns);
    let passed = left["fallback-quota"];
    // 4096 at once, and 1024 a second for as long as this took.
    let refilled = 1024 * (begun.elapsed().as_secs() + 1);
    assert!((4096..=4096 + refilled).contains(&passed), "{left:?}");
    assert_eq!(passed + left["refused-rate-all"], 8000, "{left:?}");
}

#[test]
fn segments_of_no_flow_that_one_host_gives_to_the_kernel_are_bounded_and_cost_no_other() {
    const SEGMENTS: u16 = 3000;
    let mut rig = Rig::new();
    rig.set(|s| s.fallback_mark = 7);
    let begun = Instant::now();
    let segments = (0..SEGMENTS).map(|i| tcp(client(2000 + i), server(80), "A", 1, 1).frame());
    let left = rig.lan_pours(segments);
    let passed = left["fallback-unknown"];
    // 1024 at once, and 256 a second.
    let refilled = 256 * (begun.elapsed().as_secs() + 1);
    assert!((1024..=1024 + refilled).contains(&passed), "{left:?}");
    assert_eq!(passed + left["unknown-rate"], u64::from(SEGMENTS));
    let other = tcp(host(3, 4000), server(80), "A", 1, 1).frame();
    rig.lan_sends(&other).passed("fallback-unknown");
    // What the server answers is the kernel's only if that knows it.
    for flags in ["A", "SA", "R"] {
        let answer = tcp(server(80), SocketAddr::new(EXTERNAL[0], 2000), flags, 1, 1);
        rig.link_brings(0, &answer.frame()).passed("stray");
    }
    rig.connect(client(4000), server(443));
}

const ROUTER: u8 = 254;

/// A host behind the LAN's router, whose card is all that is seen of it.
fn behind_router(number: u8, port: u16) -> SocketAddr {
    SocketAddr::new(SITE.further_host(number), port)
}

fn rig_with_router() -> Rig {
    let mut rig = Rig::new();
    let router = host(ROUTER, 0).ip();
    rig.add_router(SITE.further_lan, router);
    rig
}

/// A SYN by the router's card, in the name of whoever it says.
fn by_router(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let mac = [2, 0, 10, 0, 0, ROUTER];
    sent_by(mac, tcp(local, remote, "S", LOCAL_ISN, 0).frame())
}

#[test]
fn each_address_behind_a_lan_router_has_a_quota_of_its_own_and_a_card_has_one_for_all_of_its() {
    let mut rig = rig_with_router();
    rig.set(|s| s.quota_per_host = 3);
    let mut syn = |local| rig.lan_sends(&by_router(local, server(80))).reason;
    for (number, port) in [(2, 4000), (2, 4001), (2, 4002), (3, 4000)] {
        assert_eq!(syn(behind_router(number, port)), "translated-out");
    }
    assert_eq!(syn(behind_router(2, 4003)), "refused-quota");
    assert_eq!(syn(behind_router(3, 4001)), "translated-out");
    // The router's own, on the device's prefix, are one host's.
    for last in 100..103 {
        assert_eq!(syn(host(last, 4000)), "translated-out");
    }
    assert_eq!(syn(host(103, 4000)), "refused-quota");
    assert_eq!(syn(behind_router(4, 4000)), "translated-out");
}

#[test]
fn a_flood_of_one_address_behind_a_lan_router_evicts_no_handshake_of_another() {
    let mut rig = rig_with_router();
    let waiting = by_router(behind_router(2, 4000), server(80));
    let external = rig.translates_out(&waiting).src();
    let syns = 10 * settings().unconfirmed_per_host;
    rig.lan_floods((0..syns).map(|i| {
        let remote = SocketAddr::new(internet_host(i), 80);
        by_router(behind_router(3, 4000), remote)
    }));
    rig.translates_in(link_of(external), &syn_ack(external));
}

#[test]
fn the_cards_of_one_device_share_what_it_may_have_and_leave_another_device_its_own() {
    let mut rig = Rig::new();
    rig.add_lan(SITE.further_lan, 300, MTU);
    rig.set(|s| {
        (s.flows_per_device, s.unconfirmed_per_device) = (8, 1000);
        s.lan_sources_loose = 1;
    });
    let syn = |rig: &mut Rig, local| {
        let syn = tcp(local, server(80), "S", LOCAL_ISN, 0);
        rig.lan_sends(&syn.frame()).reason
    };
    let held = rig.connect(client(4000), server(80));
    for number in 10..17 {
        assert_eq!(syn(&mut rig, host(number, 4000)), "translated-out");
    }
    assert_eq!(syn(&mut rig, host(17, 4000)), "refused-device");
    assert_eq!(syn(&mut rig, client(4001)), "refused-device");
    let elsewhere = |port| SocketAddr::new(SITE.further_host(2), port);
    for port in 4000..4008 {
        assert_eq!(syn(&mut rig, elsewhere(port)), "translated-out");
    }
    assert_eq!(syn(&mut rig, elsewhere(4008)), "refused-device");
    let end = held.say("R", LOCAL_ISN + 1, 0);
    rig.translates_out(&end.frame());
    assert_eq!(syn(&mut rig, host(17, 4000)), "translated-out");
    assert_eq!(syn(&mut rig, host(18, 4000)), "refused-device");
}

#[test]
fn the_unconfirmed_flows_of_one_device_make_room_among_themselves() {
    const SHARE: u32 = 8;
    let mut rig = Rig::new();
    rig.add_lan(SITE.further_lan, 300, MTU);
    rig.set(|s| {
        (s.flows_per_device, s.unconfirmed_per_device) = (1000, SHARE);
        s.lan_sources_loose = 1;
    });
    let elsewhere = SocketAddr::new(SITE.further_host(2), 4000);
    let waiting = rig.open(elsewhere, server(80));
    rig.open(client(4000), server(80));
    flood(&mut rig, 10 * SHARE);
    // Who has one of the device's gives it for the next, however few it has.
    rig.open(client(4001), server(80));
    assert_eq!(rig.unconfirmed(), 2 * (SHARE as usize + 1));
    rig.confirm(&waiting);
}

/// One port of a host that speaks to everybody fills neither the table of unconfirmed flows nor that of permissions for others.
#[test]
fn the_remote_addresses_of_one_mapping_cost_no_other_host_anything() {
    let mut rig = Rig::new();
    let speak = |rig: &mut Rig, remote: u32| {
        let remote = SocketAddr::new(internet_host(remote), 6881);
        let packet = udp(host(66, 6881), remote, b"x").frame();
        rig.translates_out(&sent_by(FLOODER, packet)).src()
    };
    let quota = settings().quota_per_host;
    let external = (0..=2 * quota).map(|i| speak(&mut rig, i)).last().unwrap();
    assert!(rig.unconfirmed() <= 2, "{} entries", rig.unconfirmed());
    let answer =
        |remote: u32| udp(SocketAddr::new(internet_host(remote), 6881), external, b"y").frame();
    rig.translates_in(link_of(external), &answer(quota));
    rig.link_brings(link_of(external), &answer(2 * quota))
        .dropped("filtered-in");

    let other = rig.translates_out(&udp(client(4000), server(53), b"x").frame());
    rig.translates_out(&udp(client(4000), second_server(53), b"x").frame());
    rig.translates_in(
        link_of(other.src()),
        &udp(second_server(53), other.src(), b"y").frame(),
    );
}

#[test]
fn a_flood_of_syns_takes_no_permission_away() {
    let mut rig = Rig::new();
    for remote in [server(53), second_server(53)] {
        rig.translates_out(&udp(client(4000), remote, b"x").frame());
    }
    let external = rig
        .translates_out(&udp(client(4000), server(53), b"x").frame())
        .src();
    flood(&mut rig, 10 * settings().unconfirmed_per_host);
    rig.translates_in(
        link_of(external),
        &udp(second_server(53), external, b"y").frame(),
    );
}
