//! Links that translate the prefix and let the outside begin (RFC 6296).

use std::net::{IpAddr, SocketAddr};

use super::SITE;
use super::both::*;
use super::prefixes::{PREFIXES, is_in};
use crate::{common::round_robin, frame::*, rig::*};

/// Both links have a prefix; the outside may begin at those in `open`, and the choice is among those in `usable`.
fn site(open: u32, usable: u64) -> Rig {
    let mut rig = Rig::new();
    rig.let_in(open);
    for link in [0, 1] {
        let prefix = Some(PREFIXES[usize::from(link)]);
        rig.tell_link(link, EXTERNAL[usize::from(link)], MTU, prefix);
    }
    rig.install(&round_robin(usable));
    rig
}

/// What an address of the LAN is beyond a link.
fn beyond(link: usize, local: SocketAddr) -> SocketAddr {
    let (IpAddr::V6(address), (prefix, length)) = (local.ip(), PREFIXES[link]) else {
        panic!("{local}")
    };
    let seen = anabranch_policy::translate_prefix(address, prefix, length).unwrap();
    assert!(is_in(PREFIXES[link], seen.into()));
    SocketAddr::new(seen.into(), local.port())
}

/// What the kernel gets of a packet that a link brings.
#[track_caller]
fn comes(rig: &mut Rig, link: u16, packet: &Ip) -> Seen {
    let outcome = rig.link_brings(link, &packet.frame());
    outcome.passed("prefix-in");
    read(&outcome.frame)
}

#[test]
fn a_connection_from_outside_is_the_kernels_and_its_answers_stay_on_the_link() {
    for (link, other) in [(0usize, 1usize), (1, 0)] {
        let mut rig = site(0b11, 1 << other);
        let (local, remote) = (client(80), server(5000));
        let external = beyond(link, local);
        let from_outside = |flags, seq, ack| tcp(remote, external, flags, seq, ack);
        let call = comes(
            &mut rig,
            link as u16,
            &from_outside("S", REMOTE_ISN, 0).ip(),
        );
        assert_eq!((call.src(), call.dst()), (remote, local));
        assert!(
            rig.flows().is_empty(),
            "nobody holds what no host has answered"
        );
        let answer = tcp(local, remote, "SA", LOCAL_ISN, REMOTE_ISN + 1).frame();
        let answer = rig.translates_out(&answer);
        assert_eq!((answer.src(), answer.dst()), (external, remote));
        assert_eq!(usize::from(rig.flow(local).link), link);
        assert_eq!(rig.held(), [1]);

        // Neither the call again nor the answer proves that somebody is there.
        let again = from_outside("S", REMOTE_ISN, 0).frame();
        rig.translates_in(link as u16, &again);
        let answer = tcp(local, remote, "SA", LOCAL_ISN, REMOTE_ISN + 1).frame();
        rig.translates_out(&answer);
        assert_eq!(rig.unconfirmed(), 2);
        let ack = from_outside("A", REMOTE_ISN + 1, LOCAL_ISN + 1).frame();
        let got = rig.translates_in(link as u16, &ack);
        assert_eq!(got.dst(), local);
        let data = tcp(local, remote, "PA", LOCAL_ISN + 1, REMOTE_ISN + 1).payload(b"hello");
        let sent = rig.translates_out(&data.frame());
        assert_eq!((sent.src(), sent.payload()), (external, &b"hello"[..]));
        assert_eq!(rig.unconfirmed(), 0, "it is confirmed");

        // Off-path RSTs end nothing.
        let guess = from_outside("R", REMOTE_ISN ^ 1 << 31, 0).frame();
        rig.link_brings(link as u16, &guess).dropped("bad-rst");
        let fin = from_outside("FA", REMOTE_ISN + 1, LOCAL_ISN + 6).frame();
        rig.translates_in(link as u16, &fin);
        let fin = tcp(local, remote, "FA", LOCAL_ISN + 6, REMOTE_ISN + 2).frame();
        rig.translates_out(&fin);
        assert_eq!((rig.live(), rig.held()), (0, vec![0]));
    }
}

#[test]
fn a_host_that_refuses_a_connection_says_so_by_the_link_and_holds_nothing() {
    let mut rig = site(0b11, 0b10);
    let (local, remote) = (client(81), server(5000));
    let external = beyond(0, local);
    comes(&mut rig, 0, &tcp(remote, external, "S", REMOTE_ISN, 0).ip());
    let reset = tcp(local, remote, "RA", 0, REMOTE_ISN + 1).frame();
    let reset = rig.lan_sends(&reset).sent("prefix-out");
    assert_eq!((reset.src(), reset.dst()), (external, remote));
    assert!(rig.flows().is_empty());
    // Nobody asked from there.
    let unknown = tcp(local, server(5001), "A", 7, 7).frame();
    rig.lan_sends(&unknown).answered("no-flow-out");
}

#[test]
fn who_asks_by_two_links_is_answered_by_each() {
    let mut rig = site(0b11, 0b01);
    let local = client(53);
    let ask = |link: usize, from: SocketAddr| udp(from, beyond(link, local), b"?");
    let answer = |to: SocketAddr| udp(local, to, b"!").frame();
    let asked = comes(&mut rig, 0, &ask(0, server(1000)));
    assert_eq!((asked.src(), asked.dst()), (server(1000), local));
    let sent = rig.translates_out(&answer(server(1000)));
    assert_eq!(sent.src(), beyond(0, local));
    assert_eq!(rig.flow(local).link, 0);
    // Its endpoint is on that link; who asks by the other is answered there.
    comes(&mut rig, 1, &ask(1, server(1001)));
    comes(&mut rig, 1, &ask(1, second_server(1002)));
    for to in [second_server(1002), server(1001)] {
        let sent = rig.lan_sends(&answer(to)).sent("prefix-out");
        assert_eq!((sent.src(), sent.dst()), (beyond(1, local), to));
        assert_eq!(sent.payload(), b"!");
    }
    // And who asks by that one anew is one more that the endpoint hears.
    comes(&mut rig, 0, &ask(0, second_server(1003)));
    let sent = rig.lan_sends(&answer(second_server(1003)));
    assert_eq!(sent.sent("translated-out").src(), beyond(0, local));
    let more = ask(0, second_server(1003)).frame();
    rig.translates_in(0, &more);
    assert_eq!(rig.flows().len(), 1);
}

#[test]
fn echoes_and_other_protocols_are_answered_each_by_itself() {
    let mut rig = site(0b11, 0b01);
    for size in [1, 1400] {
        let call = echo(SERVER, beyond(1, client(0)).ip(), 7, &vec![1; size]);
        let got = comes(&mut rig, 1, &call);
        assert_eq!(got.dst().ip(), CLIENT);
        let reply = echo_reply(CLIENT, SERVER, 7, &vec![1; size]).frame();
        let sent = rig.lan_sends(&reply).sent("prefix-out");
        assert_eq!(
            (sent.src().ip(), sent.dst().ip()),
            (beyond(1, client(0)).ip(), SERVER)
        );
    }
    assert!(rig.flows().is_empty());
}

#[test]
fn fragments_from_outside_are_answered_by_the_link() {
    let mut rig = site(0b11, 0b10);
    let (local, remote) = (client(53), server(1000));
    let question = udp(remote, beyond(0, local), &[1; 2000]).id(7);
    for (from, to) in [(0, 1440), (1440, 2008)] {
        let got = comes(&mut rig, 0, &question.fragment(from, to));
        assert_eq!(got.ip.destination, CLIENT);
    }
    let answer = udp(local, remote, &[2; 2000]).id(8);
    for (from, to) in [(0, 1440), (1440, 2008)] {
        let sent = rig.lan_sends(&answer.fragment(from, to).frame());
        let sent = sent.sent("translated-out");
        assert_eq!(sent.ip.source, beyond(0, local).ip());
    }
}

#[test]
fn a_host_over_its_quota_answers_without_a_flow() {
    let mut rig = site(0b11, 0b10);
    rig.set(|s| s.quota_per_host = 1);
    rig.translates_out(&udp(client(4000), server(53), b"?").frame());
    let (local, remote) = (client(80), server(5000));
    comes(&mut rig, 0, &tcp(remote, beyond(0, local), "S", 9, 0).ip());
    let answer = tcp(local, remote, "SA", LOCAL_ISN, 10).frame();
    let sent = rig.lan_sends(&answer).sent("prefix-out");
    assert_eq!(sent.src(), beyond(0, local));
    assert_eq!(rig.held(), [1]);
}

#[test]
fn an_error_about_an_answer_reaches_the_host_with_its_own_address() {
    let mut rig = site(0b11, 0b01);
    let external = beyond(1, client(7)).ip();
    comes(&mut rig, 1, &echo(SERVER, external, 7, &[1; 1400]));
    let reply = rig.lan_sends(&echo_reply(CLIENT, SERVER, 7, &[1; 1400]).frame());
    reply.sent("prefix-out");
    let quoted = &reply.frame[ETHERNET..];
    let error = icmp(SITE.router, external, SITE.too_big, [0, 0, 5, 0], quoted);
    let told = comes(&mut rig, 1, &error);
    assert_eq!((told.dst().ip(), quote(&told).ip.source), (CLIENT, CLIENT));
}

#[test]
fn nothing_but_the_hosts_of_the_lan_is_reached_by_a_prefix() {
    let mut rig = site(0b01, 0b11);
    let ask = |to: SocketAddr| udp(server(1000), to, b"?").frame();
    let end = |address: IpAddr| SocketAddr::new(address, 53);
    // The gateway itself, as many ways as there are to name it.
    let gateway = beyond(0, end(GATEWAY_LAN));
    rig.link_brings(0, &ask(gateway)).dropped("not-forwarded");
    // A network of the prefix that is not of the LAN, and one of the LAN beyond the other link.
    let strange = beyond(0, end(SITE.stranger));
    rig.link_brings(0, &ask(strange)).passed("transit-in");
    let local = client(53);
    rig.link_brings(0, &ask(beyond(1, local)))
        .dropped("not-forwarded");
    rig.link_brings(1, &ask(beyond(0, local)))
        .dropped("not-forwarded");
    // A link that does not let the outside begin.
    rig.link_brings(1, &ask(beyond(1, local)))
        .dropped("not-forwarded");
    // By its own address nobody outside knows a host.
    rig.link_brings(0, &ask(local)).dropped("not-forwarded");
    // Nor does a hop that is the last.
    let last = udp(server(1000), beyond(0, local), b"?").ttl(1).frame();
    rig.link_brings(0, &last).dropped("ttl-in");
    assert!(rig.flows().is_empty());
    rig.link_brings(0, &ask(beyond(0, local)))
        .passed("prefix-in");
}

#[test]
fn nobody_outside_passes_for_the_site() {
    let mut rig = site(0b11, 0b01);
    let to = beyond(0, client(53));
    let end = |address: IpAddr| SocketAddr::new(address, 1000);
    for source in [
        SECOND_CLIENT,
        GATEWAY_LAN,
        EXTERNAL[1],
        beyond(0, end(SECOND_CLIENT)).ip(),
        beyond(1, end(SECOND_CLIENT)).ip(),
    ] {
        for ip in [
            udp(end(source), to, b"?"),
            tcp(end(source), to, "S", 1, 0).ip(),
            echo(source, to.ip(), 7, b"?"),
        ] {
            rig.link_brings(0, &ip.frame()).dropped("spoofed-wan");
        }
    }
    for source in ["fe80::1", "ff02::1", "::", "::1"] {
        let source = end(source.parse().unwrap());
        rig.link_brings(0, &udp(source, to, b"?").frame())
            .dropped("bad-source");
    }
}

#[test]
fn a_segment_size_from_outside_is_what_the_link_takes() {
    let mut rig = Rig::new();
    rig.let_in(0b01);
    rig.tell_link(0, EXTERNAL[0], 1280, Some(PREFIXES[0]));
    let call = tcp(server(5000), beyond(0, client(80)), "S", 9, 0).options(&mss_option(1440));
    let got = comes(&mut rig, 0, &call.ip());
    assert_eq!(got.mss(), Some(1220));
}

/// RFC 6296 section 4.3.
#[test]
fn lan_hosts_reach_each_other_beyond_a_link_where_the_outside_may_begin() {
    let mut rig = site(0b01, 0b11);
    let second = |port| SocketAddr::new(SECOND_CLIENT, port);
    let (caller, called) = (client(4000), second(80));
    for link in [0, 1] {
        let to = beyond(link, called);
        for ip in [
            tcp(caller, to, "S", LOCAL_ISN, 0).ip(),
            udp(caller, to, b"?"),
            echo(CLIENT, to.ip(), 7, b"?"),
        ] {
            let outcome = rig.lan_sends(&ip.frame());
            if link == 1 {
                outcome.dropped("filtered-in");
                continue;
            }
            let got = outcome.sent("hairpin");
            let from = beyond(0, caller).ip();
            assert_eq!((got.src().ip(), got.dst().ip()), (from, SECOND_CLIENT));
            assert_eq!(got.ip.hop_limit, read(&ip.frame()).ip.hop_limit - 1);
        }
    }
    // The answer takes the same way.
    let answer = tcp(called, beyond(0, caller), "SA", REMOTE_ISN, LOCAL_ISN + 1).frame();
    let got = rig.lan_sends(&answer).sent("hairpin");
    assert_eq!((got.src(), got.dst()), (beyond(0, called), caller));
    assert!(rig.flows().is_empty());
    // Only from the LAN, and to it.
    let liar = SocketAddr::new(SITE.stranger, 4000);
    rig.lan_sends(&udp(liar, beyond(0, called), b"?").frame())
        .dropped("spoofed-lan");
    let gateway = beyond(0, SocketAddr::new(GATEWAY_LAN, 22));
    rig.lan_sends(&tcp(caller, gateway, "S", 1, 0).frame())
        .dropped("filtered-in");
    let last = udp(caller, beyond(0, called), b"?").ttl(1).frame();
    rig.lan_sends(&last).answered("ttl-out");
}

#[test]
fn a_mapping_is_heard_by_lan_hosts_beyond_a_link_where_nobody_may_begin() {
    let mut rig = site(0, 0b01);
    let called = SocketAddr::new(SECOND_CLIENT, 5060);
    rig.translates_out(&udp(called, server(53), b"?").frame());
    let call = udp(client(4000), beyond(0, called), b"hello").frame();
    let turned = rig.lan_sends(&call);
    assert_eq!(turned.sent("hairpin").src(), beyond(0, client(4000)));
    let got = rig.comes_back_by(0, &turned.frame);
    assert_eq!(got.sent("translated-in").dst(), called);
    let nobody = SocketAddr::new(SECOND_CLIENT, 5061);
    rig.lan_sends(&udp(client(4000), beyond(0, nobody), b"hello").frame())
        .dropped("filtered-in");
}
