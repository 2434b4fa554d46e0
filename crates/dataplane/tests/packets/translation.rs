//! Every translated packet carries the checksums that a fresh computation gives.

use std::net::{Ipv4Addr, SocketAddrV4};

use proptest::prelude::*;

use crate::{common::*, frame, frame::*, rig::*};

fn lan_host() -> impl Strategy<Value = Ipv4Addr> {
    (2..=254u8).prop_map(|last| Ipv4Addr::new(10, 0, 0, last))
}

/// Addresses of the internet that no route names.
fn internet_host() -> impl Strategy<Value = Ipv4Addr> {
    (20..=99u8, any::<[u8; 3]>()).prop_map(|(a, [b, c, d])| Ipv4Addr::new(a, b, c, d))
}

fn endpoints() -> impl Strategy<Value = (SocketAddrV4, SocketAddrV4)> {
    (lan_host(), 1..=65535u16, internet_host(), 1..=65535u16).prop_map(
        |(host, port, far, service)| {
            (
                SocketAddrV4::new(host, port),
                SocketAddrV4::new(far, service),
            )
        },
    )
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200),
        // All ones are a zero of one's complement arithmetic.
        proptest::collection::vec(Just(0xff), 0..64),
        proptest::collection::vec(Just(0), 0..64),
    ]
}

#[test]
fn udp_and_its_answers_carry_right_checksums_whatever_addresses_ports_and_payload() {
    let mut rig = Rig::new();
    let strategy = (endpoints(), payload(), 2..=255u8, any::<u16>());
    rig.for_all(
        1500,
        strategy,
        |rig, ((local, remote), payload, ttl, id)| {
            let ip = udp(local, remote, &payload).ttl(ttl).id(id);
            let sent = rig.lan_sends(&ip.frame()).sent("translated-out");
            prop_assert_eq!(sent.dst(), remote);
            prop_assert_eq!(sent.payload(), &payload[..]);
            prop_assert_eq!(sent.ip.time_to_live, ttl - 1);
            prop_assert_eq!(sent.ip.identification, id);
            let answer = udp(remote, sent.src(), &payload).ttl(ttl);
            let got = rig
                .link_brings(link_of(sent.src()), &answer.frame())
                .sent("translated-in");
            prop_assert_eq!((got.src(), got.dst()), (remote, local));
            prop_assert_eq!(got.payload(), &payload[..]);
            Ok(())
        },
    );
}

#[test]
fn udp_without_a_checksum_stays_without_one() {
    let mut rig = Rig::new();
    let sent = rig
        .lan_sends(&udp_without_checksum(client(4000), server(53), b"query").frame())
        .sent("translated-out");
    let Inside::Udp(header, _) = &sent.inside else {
        panic!("{sent:?}")
    };
    assert_eq!(header.checksum, 0);
    let answer = udp_without_checksum(server(53), sent.src(), b"answer");
    let got = rig
        .link_brings(link_of(sent.src()), &answer.frame())
        .sent("translated-in");
    let Inside::Udp(header, _) = &got.inside else {
        panic!("{got:?}")
    };
    assert_eq!(header.checksum, 0);
}

#[test]
fn a_udp_checksum_that_is_there_never_becomes_none() {
    let mut rig = Rig::new();
    let query = udp(client(2000), server(53), b"??");
    let external = rig.lan_sends(&query.frame()).sent("translated-out").src();
    // Every checksum occurs once as the payload counts up, so one of them would translate to zero.
    for word in 0..=u16::MAX {
        let answer = udp(server(53), external, &word.to_be_bytes());
        let ran = rig.plane().run("wan", &answer.frame(), 1);
        let frame = ran.unwrap().packet;
        if word == 0 {
            continue;
        }
        let seen = frame::read(&frame);
        let Inside::Udp(header, _) = &seen.inside else {
            panic!("{seen:?}")
        };
        assert_ne!(header.checksum, 0, "payload {word:#06x}");
    }
}

#[test]
fn tcp_carries_right_checksums_whatever_addresses_ports_options_and_payload() {
    let mut rig = Rig::new();
    rig.tell_links(EXTERNAL, [1400, 1300]);
    let strategy = (endpoints(), payload(), 0..4usize, 500..9000u16);
    rig.for_all(
        1500,
        strategy,
        |rig, ((local, remote), payload, padding, mss)| {
            let mut options = vec![1; padding];
            options.extend(mss_option(mss));
            options.resize(8, 0);
            let syn = tcp(local, remote, "S", LOCAL_ISN, 0).options(&options);
            let sent = rig.lan_sends(&syn.frame()).sent("translated-out");
            let link = link_of(sent.src());
            let answer = tcp(remote, sent.src(), "SA", REMOTE_ISN, LOCAL_ISN + 1);
            let got = rig
                .link_brings(link, &answer.options(&options).frame())
                .sent("translated-in");
            prop_assert_eq!(got.dst(), local);
            let data = tcp(local, remote, "PA", LOCAL_ISN + 1, REMOTE_ISN + 1).payload(&payload);
            let sent = rig.lan_sends(&data.frame()).sent("translated-out");
            prop_assert_eq!(sent.payload(), &payload[..]);
            let end = tcp(local, remote, "R", LOCAL_ISN + 1, 0);
            rig.lan_sends(&end.frame()).sent("translated-out");
            Ok(())
        },
    );
}

#[test]
fn echo_carries_right_checksums_whatever_id_and_payload() {
    let mut rig = Rig::new();
    let strategy = (lan_host(), internet_host(), any::<u16>(), payload());
    rig.for_all(500, strategy, |rig, (host, far, id, payload)| {
        let sent = rig
            .lan_sends(&echo(host, far, id, &payload).frame())
            .sent("translated-out");
        prop_assert_eq!(sent.payload(), &payload[..]);
        let reply = echo_reply(far, *sent.src().ip(), sent.src().port(), &payload);
        let got = rig
            .link_brings(link_of(sent.src()), &reply.frame())
            .sent("translated-in");
        prop_assert_eq!(got.dst(), SocketAddrV4::new(host, id));
        Ok(())
    });
}

#[test]
fn headers_with_options_are_translated_with_them() {
    let mut rig = Rig::new();
    // Router alert, and no-operations up to the longest header.
    for length in (4..=40).step_by(4) {
        let mut options = vec![1u8; length];
        options[..4].copy_from_slice(&[148, 4, 0, 0]);
        let ip = udp(client(4000), server(53), b"query").ip_options(&options);
        let sent = rig.lan_sends(&ip.frame()).sent("translated-out");
        assert_eq!(sent.ip.options.as_slice(), options);
        let answer = udp(server(53), sent.src(), b"answer").ip_options(&options);
        let got = rig
            .link_brings(link_of(sent.src()), &answer.frame())
            .sent("translated-in");
        assert_eq!(got.dst(), client(4000));
    }
}

#[test]
fn datagrams_that_may_be_fragmented_later_get_an_id_that_is_not_their_hosts() {
    let mut rig = Rig::new();
    rig.install(&round_robin(0b01));
    let mut seen = std::collections::BTreeSet::new();
    for host in [client(4000), SocketAddrV4::new(SECOND_CLIENT, 4000)] {
        for _ in 0..8 {
            let ip = udp(host, server(53), b"query").id(7).may_fragment();
            let sent = rig.lan_sends(&ip.frame()).sent("translated-out");
            seen.insert(sent.ip.identification);
        }
    }
    assert!(
        seen.len() > 12,
        "RFC 6864 section 5.3: ids of hosts that share an address must not meet: {seen:?}"
    );
}
