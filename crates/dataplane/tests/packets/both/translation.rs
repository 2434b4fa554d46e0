//! Every translated packet carries the checksums that a fresh computation gives.

use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;

use super::*;

fn lan_hosts() -> impl Strategy<Value = IpAddr> {
    (2..=254u32).prop_map(lan_host)
}

/// Addresses of the internet that no route names.
fn internet_hosts() -> impl Strategy<Value = IpAddr> {
    (0..0x5000_0000u32).prop_map(internet_host)
}

fn endpoints() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
    (lan_hosts(), 1..=65535u16, internet_hosts(), 1..=65535u16).prop_map(
        |(host, port, far, service)| (SocketAddr::new(host, port), SocketAddr::new(far, service)),
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
            let sent = rig.translates_out(&ip.frame());
            prop_assert_eq!(sent.dst(), remote);
            prop_assert_eq!(sent.payload(), &payload[..]);
            prop_assert_eq!(sent.ip.hop_limit, ttl - 1);
            prop_assert_eq!(sent.ip.identification, read(&ip.frame()).ip.identification);
            let answer = udp(remote, sent.src(), &payload).ttl(ttl);
            let got = rig.translates_in(link_of(sent.src()), &answer.frame());
            prop_assert_eq!((got.src(), got.dst()), (remote, local));
            prop_assert_eq!(got.payload(), &payload[..]);
            Ok(())
        },
    );
}

#[test]
fn udp_without_a_checksum_stays_without_one() {
    let mut rig = Rig::new();
    let sent =
        rig.translates_out(&udp_without_checksum(client(4000), server(53), b"query").frame());
    let Inside::Udp(header, _) = &sent.inside else {
        panic!("{sent:?}")
    };
    assert_eq!(header.checksum, 0);
    let answer = udp_without_checksum(server(53), sent.src(), b"answer");
    let got = rig.translates_in(link_of(sent.src()), &answer.frame());
    let Inside::Udp(header, _) = &got.inside else {
        panic!("{got:?}")
    };
    assert_eq!(header.checksum, 0);
}

#[test]
fn a_udp_checksum_that_is_there_never_becomes_none() {
    let mut rig = Rig::new();
    let query = udp(client(2000), server(53), b"??");
    let external = rig.translates_out(&query.frame()).src();
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
            let sent = rig.translates_out(&syn.frame());
            let link = link_of(sent.src());
            let answer = tcp(remote, sent.src(), "SA", REMOTE_ISN, LOCAL_ISN + 1);
            let got = rig.translates_in(link, &answer.options(&options).frame());
            prop_assert_eq!(got.dst(), local);
            let data = tcp(local, remote, "PA", LOCAL_ISN + 1, REMOTE_ISN + 1).payload(&payload);
            let sent = rig.translates_out(&data.frame());
            prop_assert_eq!(sent.payload(), &payload[..]);
            let end = tcp(local, remote, "R", LOCAL_ISN + 1, 0);
            rig.translates_out(&end.frame());
            Ok(())
        },
    );
}

#[test]
fn echo_carries_right_checksums_whatever_id_and_payload() {
    let mut rig = Rig::new();
    let strategy = (lan_hosts(), internet_hosts(), any::<u16>(), payload());
    rig.for_all(500, strategy, |rig, (host, far, id, payload)| {
        let sent = rig.translates_out(&echo(host, far, id, &payload).frame());
        prop_assert_eq!(sent.payload(), &payload[..]);
        let reply = echo_reply(far, sent.src().ip(), sent.src().port(), &payload);
        let got = rig.translates_in(link_of(sent.src()), &reply.frame());
        prop_assert_eq!(got.dst(), SocketAddr::new(host, id));
        Ok(())
    });
}
