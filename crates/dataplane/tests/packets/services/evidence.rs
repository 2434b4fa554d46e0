//! What the programs note of servers: answers that are missing, refusals, bytes, times.

use super::*;

/// How often a SYN of the first server was repeated and refused, and whether it keeps somebody waiting.
fn shown(rig: &mut Rig, family: Family) -> (u64, u64, bool) {
    let (_, seen) = rig.services().evidence(WEB).unwrap();
    let seen = seen[usize::from(place(family, 0))];
    (seen.repeated, seen.refused, seen.waits_since.is_some())
}

#[test]
fn what_a_server_leaves_without_an_answer_is_noted() {
    let mut rig = Rig::new();
    for family in Family::ALL {
        rig.choose_among(family, &[0]);
        let (from, to, at) = (client(family, 4000), web(family), server(family, 0));
        let syn = tcp(from, to, "S", 1, 0);
        assert_eq!(shown(&mut rig, family), (0, 0, false));
        rig.client_sends(&syn);
        assert_eq!(shown(&mut rig, family), (0, 0, true));
        rig.client_sends(&syn);
        assert_eq!(shown(&mut rig, family), (1, 0, true));
        rig.server_sends(&tcp(at, from, "SA", 100, 2));
        rig.client_sends(&syn);
        rig.server_sends(&tcp(at, from, "A", 101, 2));
        rig.client_sends(&tcp(from, to, "A", 2, 101));
        assert_eq!(
            shown(&mut rig, family),
            (1, 0, false),
            "neither a SYN that was answered nor what wants no answer"
        );
    }
}

#[test]
fn a_client_shows_whether_a_server_answered_its_syn_where_that_is_not_seen() {
    let mut rig = Rig::new();
    rig.listen(&[Protocol::Tcp, Protocol::Udp]);
    for family in Family::ALL {
        rig.choose_among(family, &[0]);
        rig.change_server(family, 0, |server| server.forwarding = Forwarding::Direct);
        let [from, other] = [4000, 4001].map(|port| client(family, port));
        let to = web(family);
        for (segment, expected) in [
            (tcp(from, to, "S", 1, 0), (0, 0, true)),
            (tcp(from, to, "S", 1, 0), (1, 0, true)),
            (tcp(other, to, "S", 1, 0), (1, 0, true)),
            (tcp(other, to, "R", 2, 0), (1, 0, true)),
            (tcp(from, to, "A", 1 << 30, 101), (1, 0, true)),
            (tcp(from, to, "A", 2, 101), (1, 0, false)),
            (tcp(from, to, "A", 2, 101).payload(b"?"), (1, 0, false)),
        ] {
            rig.send(&segment.frame());
            assert_eq!(shown(&mut rig, family), expected, "{segment:?}");
            rig.send(&udp(from, to, b"?").frame());
        }
    }
}

#[test]
fn only_a_reset_that_acknowledges_a_syn_refuses_it() {
    let mut rig = Rig::new();
    for family in Family::ALL {
        rig.choose_among(family, &[0]);
        let (to, at) = (web(family), server(family, 0));
        for (port, flags, refused) in [(4000, "R", 0), (4001, "RA", 1)] {
            let from = client(family, port);
            rig.client_sends(&tcp(from, to, "S", 1, 0));
            for _ in 0..2 {
                rig.server_sends(&tcp(at, from, flags, 0, 2));
                assert_eq!(shown(&mut rig, family).1, refused, "{flags}");
            }
        }
        let from = client(family, 4002);
        rig.client_sends(&tcp(from, to, "S", 1, 0));
        rig.server_sends(&tcp(at, from, "SA", 100, 2));
        rig.server_sends(&tcp(at, from, "RA", 101, 2));
        assert_eq!(shown(&mut rig, family).1, 1, "an answered one");
    }
}

#[test]
fn bytes_and_answers_of_a_server_are_counted_and_a_request_once() {
    let mut rig = Rig::new();
    let family = Family::V4;
    let from = client(family, 4000);
    let ask = |seq, ack, data: &[u8]| tcp(from, web(family), "A", seq, ack).payload(data);
    let at = rig.client_sends(&tcp(from, web(family), "S", 1, 0)).dst();
    let answer = |seq, ack, data: &[u8]| tcp(at, from, "A", seq, ack).payload(data);
    let meter = |rig: &mut Rig| {
        rig.services()
            .meter(WEB, ServerId(place(family, 0)))
            .unwrap()
    };

    rig.server_sends(&tcp(at, from, "SA", 100, 2));
    rig.client_sends(&ask(2, 101, b""));
    rig.client_sends(&ask(2, 101, b"GET /"));
    rig.client_sends(&ask(7, 101, b" HTTP/1.1"));
    rig.server_sends(&answer(101, 16, b""));
    assert_eq!(
        meter(&mut rig).answers,
        0,
        "neither a SYN/ACK nor an ACK is an answer"
    );
    rig.server_sends(&answer(101, 16, b"HTTP/1.1"));
    rig.server_sends(&answer(109, 16, b" 200"));
    let first = meter(&mut rig);
    assert_eq!(first.answers, 1);
    assert_eq!(first.sent_bytes, 40 + 40 + 48 + 44);
    assert!(
        first.answering_us > 0 && first.answering_us < 10_000_000,
        "{}",
        first.answering_us
    );

    rig.client_sends(&ask(2, 101, b"GET /"));
    rig.server_sends(&answer(113, 16, b" OK"));
    assert_eq!(
        meter(&mut rig).answers,
        1,
        "the request was sent again, before its answer was heard"
    );
    rig.client_sends(&ask(16, 116, b"GET /more"));
    rig.server_sends(&answer(116, 25, b"HTTP/1.1"));
    rig.client_sends(&tcp(from, web(family), "FA", 25, 124));
    rig.server_sends(&tcp(at, from, "FA", 124, 26));
    assert_eq!(
        meter(&mut rig).answers,
        2,
        "a FIN is no request and no answer"
    );
}

#[test]
fn the_first_datagram_of_a_flow_is_a_request() {
    let mut rig = Rig::new();
    rig.listen(&[Protocol::Udp]);
    let (family, from) = (Family::V6, client(Family::V6, 4000));
    let at = rig
        .client_sends_frame(udp(from, web(family), b"?").frame())
        .dst();
    for _ in 0..2 {
        rig.server_sends_frame(&udp(at, from, b"!").frame());
        rig.client_sends_frame(udp(from, web(family), b"?").frame());
    }
    let place =
        (0..2 * SERVERS).find(|one| rig.services().meter(WEB, ServerId(*one)).unwrap().answers > 0);
    let meter = rig.services().meter(WEB, ServerId(place.unwrap())).unwrap();
    assert_eq!((meter.answers, meter.sent_bytes), (1, 2 * 49));
}
