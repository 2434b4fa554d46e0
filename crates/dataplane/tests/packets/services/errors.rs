//! ICMP errors, packets that are too long, and fragments.

use super::*;

#[test]
fn errors_about_what_one_end_has_sent_reach_it() {
    let mut rig = Rig::new();
    for family in Family::ALL {
        let (from, to) = (client(family, 4000), web(family));
        let server = rig.establish(from, to);
        let data = tcp(server, from, "A", 101, 2).payload(&[7; 1000]);
        let (_, frame) = rig.server_sends(&data);
        let word = [0, 0, 5, 20];
        let error = icmp(router(family), to.ip(), too_big(family), word, &frame[14..]);
        let (ran, reason) = rig.send(&error.frame());
        assert_eq!(
            (ran.action, reason.as_str()),
            (TC_ACT_REDIRECT, "error-to-server")
        );
        let seen = read(&ran.packet);
        let ends = (seen.src().ip(), seen.dst().ip());
        assert_eq!(ends, (router(family), server.ip()));
        assert_eq!(seen.icmp(), (too_big(family), word));
        assert_eq!((quote(&seen).src(), quote(&seen).dst()), (server, from));

        let (ran, _) = rig.send(&tcp(from, to, "A", 2, 1101).payload(b"GET /").frame());
        let kind = unreachable(family);
        let error = icmp(server.ip(), from.ip(), kind, [0; 4], &ran.packet[14..]);
        let (ran, reason) = rig.send(&error.frame());
        assert_eq!(
            (ran.action, reason.as_str()),
            (TC_ACT_REDIRECT, "error-to-client")
        );
        let seen = read(&ran.packet);
        let ends = (seen.src().ip(), seen.dst().ip());
        assert_eq!(
            ends,
            (to.ip(), from.ip()),
            "no server is known to the client"
        );
        assert_eq!(seen.icmp(), (kind, [0; 4]));
        assert_eq!((quote(&seen).src(), quote(&seen).dst()), (from, to));
    }
}

#[test]
fn errors_about_nothing_under_way_change_nothing() {
    let mut rig = Rig::new();
    for family in Family::ALL {
        let (from, to) = (client(family, 4000), web(family));
        let server = rig.establish(from, to);
        let error = |about: Segment| {
            let (src, dst) = (router(family), to.ip());
            icmp(
                src,
                dst,
                too_big(family),
                [0, 0, 5, 20],
                &about.ip().packet(),
            )
        };
        for number in [0x0020_0000, 0x4000_0000, 0xff00_0000] {
            let (ran, reason) = rig.send(&error(tcp(to, from, "A", number, 2)).frame());
            assert_eq!((ran.action, reason.as_str()), (TC_ACT_SHOT, "bad-error"));
            let of_client = tcp(from, server, "A", number, 2).ip().packet();
            let kind = unreachable(family);
            let error = icmp(server.ip(), from.ip(), kind, [0; 4], &of_client);
            let (ran, reason) = rig.send(&error.frame());
            assert_eq!((ran.action, reason.as_str()), (TC_ACT_SHOT, "bad-error"));
        }
        let mut broken = error(tcp(to, from, "A", 101, 2));
        broken.body[2] ^= 1;
        assert_eq!(rig.send(&broken.frame()).1, "bad-error");
        let unknown = error(tcp(to, client(family, 4001), "A", 101, 2));
        rig.passes(&unknown.frame(), "not-ours");
    }
}

#[test]
fn what_is_too_long_for_the_next_device_is_answered_and_segments_are_kept_short() {
    let mut rig = Rig::new();
    rig._namespace.ip("link set lo mtu 1400").unwrap();
    for (family, mss) in [(Family::V4, 1360), (Family::V6, 1340)] {
        let (from, to) = (client(family, 4000), web(family));
        let syn = tcp(from, to, "S", 1, 0).options(&mss_option(1460));
        let seen = rig.client_sends(&syn);
        assert_eq!(seen.mss(), Some(mss));
        let server = seen.dst();
        let answer = tcp(server, from, "SA", 100, 2).options(&mss_option(8960));
        assert_eq!(rig.server_sends(&answer).0.mss(), Some(mss));
        for (from, to, number) in [(server, from, 101), (from, to, 2)] {
            let long = tcp(from, to, "A", number, 2).payload(&[7; 1400]);
            let (ran, reason) = rig.send(&long.frame());
            assert_eq!((ran.action, reason.as_str()), (TC_ACT_REDIRECT, "too-big"));
            let seen = read(&ran.packet);
            let ends = (seen.src().ip(), seen.dst().ip());
            assert_eq!(ends, (to.ip(), from.ip()));
            assert_eq!(seen.icmp(), (too_big(family), [0, 0, 5, 120]));
            assert_eq!((quote(&seen).src(), quote(&seen).dst()), (from, to));
        }
    }
}

#[test]
fn fragments_follow_the_first_of_their_datagram() {
    let mut rig = Rig::new();
    rig.listen(&[Protocol::Udp]);
    let payload: Vec<u8> = (0..4000).map(|i| i as u8).collect();
    let parts = [(0, 1440), (2880, 4008), (1440, 2880)];
    for family in Family::ALL {
        let (from, to) = (client(family, 4000), web(family));
        let question = udp(from, to, &payload).id(7);
        let later = question.fragment(1440, 2880).frame();
        rig.passes(&sent_by(CLIENT_MAC, later), "not-ours");
        let pieces =
            parts.map(|(at, end)| rig.client_sends_frame(question.fragment(at, end).frame()));
        let whole = reassemble(&pieces);
        assert_eq!((whole.src(), whole.payload()), (from, &payload[..]));
        let answer = udp(whole.dst(), from, &payload).id(7);
        let pieces =
            parts.map(|(at, end)| rig.server_sends_frame(&answer.fragment(at, end).frame()).0);
        let whole = reassemble(&pieces);
        assert_eq!((whole.src(), whole.dst()), (to, from));
        assert_eq!(whole.payload(), payload);
        assert_eq!(rig.live(family, 0), 1);
    }
}

/// With destination options between its fragment header and the segment, so that fragments name these in place of the protocol.
fn optional(mut ip: Ip) -> Ip {
    let options = [ip.header.protocol.0, 0, 1, 4, 0, 0, 0, 0];
    ip.body = [&options[..], &ip.body].concat();
    ip.header.protocol = IpNumber::IPV6_DESTINATION_OPTIONS;
    ip.id(7)
}

#[test]
fn datagrams_of_two_protocols_with_one_id_behind_the_same_options_are_each_their_own() {
    let mut rig = Rig::new();
    rig.listen(&[Protocol::Tcp, Protocol::Udp]);
    let (from, to) = (client(Family::V6, 4000), web(Family::V6));
    rig.establish(from, to);
    let of_tcp = optional(tcp(from, to, "A", 2, 101).payload(&[7; 1988]).ip());
    let of_udp = optional(udp(from, to, &[9; 2000]));
    for (unfinished, whole) in [(&of_udp, &of_tcp), (&of_tcp, &of_udp)] {
        rig.client_sends_frame(unfinished.fragment(0, 1440).frame());
        let pieces = [(0, 1440), (1440, 2016)]
            .map(|(at, end)| rig.client_sends_frame(whole.fragment(at, end).frame()));
        assert_eq!(
            reassemble(&pieces).payload(),
            read(&whole.frame()).payload()
        );
    }
}

#[test]
fn fragments_that_overlap_end_their_datagram() {
    let mut rig = Rig::new();
    rig.listen(&[Protocol::Udp]);
    for family in Family::ALL {
        let question = udp(client(family, 4000), web(family), &[7; 4000]).id(7);
        rig.client_sends_frame(question.fragment(0, 1440).frame());
        for (at, end) in [(1432, 2880), (1440, 2880)] {
            let (ran, reason) = rig.send(&question.fragment(at, end).frame());
            assert_eq!((ran.action, reason.as_str()), (TC_ACT_SHOT, "bad-fragment"));
        }
    }
}

#[test]
fn fragments_that_are_too_long_for_the_next_device_are_split_or_answered() {
    let mut rig = Rig::new();
    rig.listen(&[Protocol::Udp]);
    rig._namespace.ip("link set lo mtu 1400").unwrap();
    for family in Family::ALL {
        let (from, to) = (client(family, 4000), web(family));
        let server = rig
            .client_sends_frame(udp(from, to, b"query").frame())
            .dst();
        let answer = udp(server, from, &[7; 2000]).id(7);
        let long = answer.fragment(0, 1440).frame();
        match family {
            Family::V4 => {
                let (head, frame) = rig.server_sends_frame(&long);
                // Of 8 bytes each.
                assert_eq!(head.payload().len(), 1376);
                assert_eq!(head.ip.fragment.map(|piece| piece.more), Some(true));
                assert_eq!(frame.len(), 14 + 20 + 1376);
            }
            Family::V6 => assert_eq!(rig.send(&long).1, "too-big"),
        }
    }
}
