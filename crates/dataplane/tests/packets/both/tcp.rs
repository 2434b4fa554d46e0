//! Connections: handshakes, ends, and lies about ends.

use std::{net::SocketAddr, time::Duration};

use anabranch_dataplane::FlowState;
use anabranch_policy::Choice;

use super::*;

/// Of a segment without options.
const HEADERS: u64 = IP_HEADER as u64 + 20;

#[test]
fn a_handshake_confirms_the_flow_and_data_passes_both_ways() {
    let mut rig = Rig::new();
    let syn = tcp(client(4000), server(80), "S", LOCAL_ISN, 0);
    rig.translates_out(&syn.frame());
    assert_eq!(rig.flow(client(4000)).state, FlowState::Unconfirmed);
    assert_eq!(rig.plane().confirmed().unwrap(), 0);

    let connection = rig.connect(client(4000), server(80));
    assert_eq!(rig.flow(client(4000)).state, FlowState::Established);
    assert_eq!(rig.plane().confirmed().unwrap(), 1);
    let request = connection.say("PA", LOCAL_ISN + 1, REMOTE_ISN + 1);
    let sent = rig.translates_out(&request.payload(b"request").frame());
    assert_eq!((sent.src(), sent.dst()), (connection.external, server(80)));
    assert_eq!((sent.payload(), sent.ip.hop_limit), (&b"request"[..], 63));
    let reply = connection.answer("PA", REMOTE_ISN + 1, LOCAL_ISN + 8);
    let got = rig.translates_in(connection.link, &reply.payload(b"reply").frame());
    assert_eq!((got.src(), got.dst()), (server(80), client(4000)));
    assert_eq!((got.payload(), got.ip.hop_limit), (&b"reply"[..], 63));

    let flow = rig.flow(client(4000));
    assert_eq!((flow.packets_out, flow.packets_in), (4, 2));
    assert_eq!(
        (flow.bytes_out, flow.bytes_in),
        (4 * HEADERS + 7, 2 * HEADERS + 5)
    );
}

#[test]
fn two_fins_close_a_flow_and_it_is_counted_once_however_often_they_are_repeated() {
    let mut rig = Rig::new();
    let connection = rig.connect(client(4000), server(80));
    for _ in 0..2 {
        let fin = connection.say("FA", LOCAL_ISN + 1, REMOTE_ISN + 1);
        rig.translates_out(&fin.frame());
        let fin = connection.answer("FA", REMOTE_ISN + 1, LOCAL_ISN + 2);
        rig.translates_in(connection.link, &fin.frame());
        let ack = connection.say("A", LOCAL_ISN + 2, REMOTE_ISN + 2);
        rig.translates_out(&ack.frame());
        assert_eq!((rig.live(), rig.closed()), (0, 1));
    }
    assert_eq!(rig.flow(client(4000)).state, FlowState::Closed);
}

#[test]
fn one_fin_leaves_the_flow_open_for_the_other_direction() {
    let mut rig = Rig::new();
    let connection = rig.connect(client(4000), server(80));
    let fin = connection.say("FA", LOCAL_ISN + 1, REMOTE_ISN + 1);
    rig.translates_out(&fin.frame());
    assert_eq!(rig.flow(client(4000)).state, FlowState::Closing);
    assert_eq!(rig.live(), 1);
    let late = connection.answer("A", REMOTE_ISN + 1, LOCAL_ISN + 2);
    rig.translates_in(connection.link, &late.payload(b"late").frame());
}

/// As servers send it with TCP Fast Open (RFC 7413).
#[test]
fn a_fin_right_behind_the_answer_is_not_overheard() {
    let mut rig = Rig::new();
    let connection = rig.open(client(4000), server(80));
    for (flags, seq) in [("SA", REMOTE_ISN), ("FA", REMOTE_ISN + 1)] {
        let sent = connection.answer(flags, seq, LOCAL_ISN + 1);
        rig.translates_in(connection.link, &sent.frame());
    }
    let fin = connection.say("FA", LOCAL_ISN + 1, REMOTE_ISN + 2);
    rig.translates_out(&fin.frame());
    assert_eq!((rig.live(), rig.closed()), (0, 1));
}

#[test]
fn a_reset_of_the_lan_host_closes_its_flow() {
    let mut rig = Rig::new();
    let connection = rig.connect(client(4000), server(80));
    let reset = connection.say("R", LOCAL_ISN + 1, 0);
    rig.translates_out(&reset.frame());
    assert_eq!((rig.live(), rig.closed()), (0, 1));
}

#[test]
fn a_reset_with_exactly_the_expected_sequence_number_closes_the_flow() {
    let mut rig = Rig::new();
    let connection = rig.connect(client(4000), server(80));
    let reset = connection.answer("R", REMOTE_ISN + 1, 0);
    rig.translates_in(connection.link, &reset.frame());
    assert_eq!((rig.live(), rig.closed()), (0, 1));
}

#[test]
fn a_plausible_reset_reaches_the_host_and_changes_nothing() {
    let mut rig = Rig::new();
    let connection = rig.connect(client(4000), server(80));
    let reset = connection.answer("R", REMOTE_ISN + 1 + 1000, 0);
    rig.translates_in(connection.link, &reset.frame());
    assert_eq!(rig.live(), 1);

    rig.set(|s| s.tcp_transitory_ns = 0);
    assert_eq!(rig.sweep().expired, 0);
    assert_eq!(rig.live(), 1);
}

#[test]
fn an_off_path_sweep_of_resets_kills_nothing_and_is_counted() {
    let mut rig = Rig::new();
    let connection = rig.connect(client(4000), server(80));
    let (mut dropped, mut plausible) = (0, 0);
    for guess in 0..4096u32 {
        let reset = connection.answer("R", guess << 20 | 0x5a5a5, 0);
        match rig.link_brings(connection.link, &reset.frame()) {
            outcome if outcome.reason == "bad-rst" => dropped += 1,
            outcome => {
                outcome.sent("translated-in");
                plausible += 1;
            }
        }
    }
    assert_eq!(dropped + plausible, 4096);
    assert!(
        plausible <= 3,
        "the plausible window is 2 MiB: {plausible} of 4096 were in it"
    );
    assert_eq!(rig.live(), 1);
    let data = connection.say("PA", LOCAL_ISN + 1, REMOTE_ISN + 1);
    rig.translates_out(&data.payload(b"alive").frame());
    rig.set(|s| s.tcp_transitory_ns = 0);
    assert_eq!(rig.sweep().expired, 0);
}

#[test]
fn during_the_handshake_only_a_reset_that_acknowledges_the_syn_counts() {
    let mut rig = Rig::new();
    let (local, remote) = (client(4000), server(80));
    let syn = tcp(local, remote, "S", LOCAL_ISN, 0);
    let external = rig.translates_out(&syn.frame()).src();
    let link = link_of(external);
    for (flags, seq, ack) in [
        ("R", 0, 0),
        ("RA", 0, LOCAL_ISN),
        ("RA", 0, LOCAL_ISN + 2),
        ("R", LOCAL_ISN + 1, 0),
    ] {
        let lie = tcp(remote, external, flags, seq, ack);
        rig.link_brings(link, &lie.frame()).dropped("bad-rst");
    }
    assert_eq!(rig.live(), 1);
    let refusal = tcp(remote, external, "RA", 0, LOCAL_ISN + 1);
    rig.translates_in(link, &refusal.frame());
    assert_eq!((rig.live(), rig.closed()), (0, 1));
}

#[test]
fn a_reset_between_the_synack_and_the_ack_cannot_be_guessed_as_zero() {
    let mut rig = Rig::new();
    let (local, remote) = (client(4000), server(80));
    let syn = tcp(local, remote, "S", LOCAL_ISN, 0);
    let external = rig.translates_out(&syn.frame()).src();
    let link = link_of(external);
    let answer = tcp(remote, external, "SA", REMOTE_ISN, LOCAL_ISN + 1);
    rig.translates_in(link, &answer.frame());
    let lie = tcp(remote, external, "R", 0, 0);
    rig.link_brings(link, &lie.frame()).dropped("bad-rst");
    assert_eq!(rig.live(), 1);
}

#[test]
fn a_flow_that_was_reset_before_its_handshake_ended_is_never_counted_against_its_host() {
    let mut rig = Rig::new();
    rig.set(|s| s.quota_per_host = 1);
    let (local, remote) = (client(4000), server(80));
    let syn = tcp(local, remote, "S", LOCAL_ISN, 0);
    let external = rig.translates_out(&syn.frame()).src();
    let link = link_of(external);
    let answer = tcp(remote, external, "SA", REMOTE_ISN, LOCAL_ISN + 1);
    rig.translates_in(link, &answer.frame());
    let reset = tcp(remote, external, "RA", REMOTE_ISN + 1, LOCAL_ISN + 1);
    rig.translates_in(link, &reset.frame());
    let ack = tcp(local, remote, "A", LOCAL_ISN + 1, REMOTE_ISN + 1);
    rig.translates_out(&ack.frame());
    assert_eq!(rig.live(), 0);
    rig.connect(client(4001), server(80));
}

#[test]
fn what_does_not_answer_the_syn_changes_nothing_and_reaches_nobody() {
    let mut rig = Rig::new();
    let (local, remote) = (client(4000), server(80));
    let syn = tcp(local, remote, "S", LOCAL_ISN, 0);
    let external = rig.translates_out(&syn.frame()).src();
    let link = link_of(external);
    let misfits = |rig: &mut Rig| {
        for wrong in [0, LOCAL_ISN, LOCAL_ISN + 2, LOCAL_ISN ^ 0x8000_0000] {
            let lie = tcp(remote, external, "FA", REMOTE_ISN, wrong);
            rig.link_brings(link, &lie.frame()).dropped("bad-handshake");
            for flags in ["SA", "A"] {
                let lie = tcp(remote, external, flags, REMOTE_ISN, wrong).payload(b"lie");
                rig.link_brings(link, &lie.frame()).dropped("bad-handshake");
            }
            let lie = tcp(remote, external, "RA", REMOTE_ISN, wrong);
            rig.link_brings(link, &lie.frame()).dropped("bad-rst");
        }
    };
    misfits(&mut rig);
    let early = tcp(remote, external, "A", REMOTE_ISN + 1, LOCAL_ISN + 1);
    rig.link_brings(link, &early.frame())
        .dropped("bad-handshake");
    let flow = rig.flow(local);
    assert_eq!((flow.state, flow.packets_in), (FlowState::Unconfirmed, 0));
    let answer = tcp(remote, external, "SA", REMOTE_ISN, LOCAL_ISN + 1);
    rig.translates_in(link, &answer.frame());
    misfits(&mut rig);
    let ack = tcp(local, remote, "A", LOCAL_ISN + 1, REMOTE_ISN + 1);
    rig.translates_out(&ack.frame());
    let flow = rig.flow(local);
    assert_eq!((flow.state, flow.packets_in), (FlowState::Established, 1));
}

/// The external end of an attempt from `client(4000)`, and the outcome of a bare ACK with this number there.
fn challenged(rig: &mut Rig, ack: u32) -> (SocketAddr, Outcome) {
    let (local, remote) = (client(4000), server(80));
    let syn = tcp(local, remote, "S", LOCAL_ISN, 0);
    let external = rig.translates_out(&syn.frame()).src();
    let challenge = tcp(remote, external, "A", REMOTE_ISN, ack);
    let outcome = rig.link_brings(link_of(external), &challenge.frame());
    (external, outcome)
}

/// RFC 9293 section 3.5, figure 10: the recovery of a half-open connection, here of one in TIME-WAIT.
#[test]
fn a_host_resets_the_earlier_connection_that_its_syn_meets_and_connects() {
    for earlier in [
        LOCAL_ISN - 77,
        LOCAL_ISN,
        LOCAL_ISN + 2,
        LOCAL_ISN + (1 << 30),
    ] {
        let mut rig = Rig::new();
        let (local, remote) = (client(4000), server(80));
        let (external, outcome) = challenged(&mut rig, earlier);
        let got = outcome.sent("challenge");
        assert_eq!((got.src(), got.dst()), (remote, local));
        assert_eq!(got.tcp().acknowledgment_number, earlier);
        let counters = anabranch_core::DataPlane::counters(rig.plane()).unwrap();
        let traffic = counters[usize::from(link_of(external))].carried();
        assert_eq!((traffic.rx_packets, traffic.rx_progress), (0, 0));

        let reset = tcp(local, remote, "R", earlier, 0);
        let sent = rig.translates_out(&reset.frame());
        assert_eq!(
            (sent.src(), sent.tcp().sequence_number),
            (external, earlier)
        );
        assert_eq!((rig.live(), rig.closed()), (1, 0));
        for wrong in [LOCAL_ISN + 2, earlier] {
            let lie = tcp(remote, external, "SA", REMOTE_ISN, wrong);
            rig.link_brings(link_of(external), &lie.frame())
                .sent("challenge");
        }
        let connection = rig.connect(local, remote);
        assert_eq!(connection.external, external);
        assert_eq!(
            (rig.flow(local).state, rig.live()),
            (FlowState::Established, 1)
        );
    }
}

#[test]
fn a_bare_acknowledgement_challenges_nothing_but_an_unanswered_syn_over_its_own_link() {
    let stale = |external| tcp(server(80), external, "A", REMOTE_ISN, LOCAL_ISN - 77).frame();
    let (mut rig, [first, second]) = two_tries();
    rig.link_brings(link_of(first), &stale(first))
        .dropped("bad-handshake");
    rig.link_brings(link_of(second), &stale(second))
        .sent("challenge");
    rig.translates_in(link_of(second), &syn_ack(second));
    rig.link_brings(link_of(second), &stale(second))
        .dropped("bad-handshake");

    let mut rig = Rig::new();
    let (external, outcome) = challenged(&mut rig, LOCAL_ISN - 77);
    outcome.sent("challenge");
    let given_up = tcp(client(4000), server(80), "R", LOCAL_ISN + 1, 0);
    rig.translates_out(&given_up.frame());
    assert_eq!((rig.live(), rig.closed()), (0, 1));
    rig.link_brings(link_of(external), &stale(external))
        .dropped("bad-handshake");
}

/// How a guard before a server answers the SYN of a stranger, and the host's RST to that.
fn guarded(rig: &mut Rig, external: SocketAddr, number: u32) -> Seen {
    let (local, remote) = (client(4000), server(80));
    let answer = tcp(remote, external, "SA", 4096, number).options(&mss_option(1460));
    let got = rig.link_brings(link_of(external), &answer.frame());
    let got = got.sent("challenge");
    assert_eq!((got.src(), got.dst()), (remote, local));
    assert_eq!(got.tcp().acknowledgment_number, number);
    let counted = (rig.live(), rig.closed());
    let reset = tcp(local, remote, "R", number, 0);
    let sent = rig.translates_out(&reset.frame());
    assert_eq!(sent.tcp().sequence_number, number);
    assert_eq!((rig.live(), rig.closed()), counted);
    assert_eq!(rig.flow(local).state, FlowState::Unconfirmed);
    sent
}

fn under_wsdm() -> Rig {
    Rig::choosing(&Choice {
        syn_retry: 1,
        ..round_robin(0b11)
    })
}

#[test]
fn a_syn_that_a_guard_has_answered_is_let_through_on_its_link() {
    for number in [0xbad_cafe, LOCAL_ISN, LOCAL_ISN + 2] {
        let mut rig = under_wsdm();
        let syn = tcp(client(4000), server(80), "S", LOCAL_ISN, 0).frame();
        let external = rig.translates_out(&syn).src();
        assert_eq!(guarded(&mut rig, external, number).src(), external);
        let again = rig.translates_out(&syn).src();
        assert_eq!(
            again, external,
            "the attempt stays where the guard knows it"
        );
        rig.translates_in(link_of(external), &syn_ack(external));
        let ack = tcp(client(4000), server(80), "A", LOCAL_ISN + 1, REMOTE_ISN + 1);
        rig.translates_out(&ack.frame());
        assert_eq!(rig.flow(client(4000)).state, FlowState::Established);
    }
}

/// Each try has a guard of its own.
#[test]
fn each_guard_hears_the_rst_to_its_own_answer() {
    let (mut rig, tries) = two_tries();
    for (external, number) in tries.into_iter().zip([0xbad_cafe, 0xbad_beef]) {
        assert_eq!(guarded(&mut rig, external, number).src(), external);
    }
    rig.translates_in(link_of(tries[0]), &syn_ack(tries[0]));
}

/// He who forges such answers moves an attempt no more than a link without a second would, and ends it never.
#[test]
fn forged_answers_of_a_guard_end_confirm_and_hold_nothing() {
    let mut rig = under_wsdm();
    let syn = tcp(client(4000), server(80), "S", LOCAL_ISN, 0).frame();
    let external = rig.translates_out(&syn).src();
    for number in 1..200u32 {
        let lie = tcp(server(80), external, "SA", number, number * 7919);
        rig.link_brings(link_of(external), &lie.frame())
            .sent("challenge");
    }
    // The host has reset none of them.
    let next = rig.translates_out(&syn).src();
    assert_ne!(link_of(next), link_of(external), "the attempt goes on");
    let with_data = tcp(server(80), next, "SA", 7, 7).payload(b"data");
    rig.link_brings(link_of(next), &with_data.frame())
        .dropped("bad-handshake");
    rig.translates_in(link_of(next), &syn_ack(next));
    let late = tcp(server(80), next, "SA", 7, 7);
    rig.link_brings(link_of(next), &late.frame())
        .dropped("bad-handshake");
    assert_eq!(rig.live(), 1);
}

#[test]
fn nothing_answers_a_syn_that_did_not_leave_but_what_would_have() {
    const ISN: u32 = 1 << 31;
    let mut rig = Rig::new();
    let (local, remote) = (client(4000), server(80));
    let syn = tcp(local, remote, "S", ISN, 0).ip().ttl(1);
    rig.lan_sends(&syn.frame()).answered("ttl-out");
    let external = rig.flow(local).external;
    for ahead in [2, 1 << 20, 1 << 30] {
        let lie = tcp(remote, external, "SA", REMOTE_ISN, ISN + ahead);
        rig.link_brings(link_of(external), &lie.frame())
            .sent("challenge");
        let flow = rig.flow(local);
        assert_eq!((flow.state, flow.packets_in), (FlowState::Unconfirmed, 0));
    }
}

#[test]
fn a_syn_without_an_acknowledgement_for_an_attempt_that_is_over_is_not_answered() {
    let mut rig = Rig::new();
    let (local, remote) = (client(4000), server(4000));
    let syn = tcp(local, remote, "S", LOCAL_ISN, 0);
    let external = rig.translates_out(&syn.frame()).src();
    let reset = tcp(local, remote, "R", LOCAL_ISN + 1, 0);
    rig.translates_out(&reset.frame());
    let theirs = tcp(remote, external, "S", REMOTE_ISN, 0);
    rig.link_brings(link_of(external), &theirs.frame())
        .dropped("bad-handshake");
}

/// As long as TCP waits before it repeats a SYN.
const SYN_TIMER: Duration = Duration::from_secs(1);

/// The remote end's own SYN, and once more after a second.
#[track_caller]
fn opens_too(rig: &mut Rig, local: SocketAddr, external: SocketAddr) {
    let theirs = tcp(server(4000), external, "S", REMOTE_ISN, 0).frame();
    let link = link_of(external);
    rig.link_brings(link, &theirs).dropped("bad-handshake");
    rig.link_brings(link, &theirs).dropped("bad-handshake");
    rig.heard_earlier(local, link, SYN_TIMER);
    rig.translates_in(link, &theirs);
}

#[test]
fn a_simultaneous_open_becomes_a_connection() {
    // The remote end answers the SYN it hears, or, where that was lost, what the host has answered.
    for flags in ["SA", "A"] {
        let mut rig = Rig::new();
        let (local, remote) = (client(4000), server(4000));
        let syn = tcp(local, remote, "S", LOCAL_ISN, 0);
        let external = rig.translates_out(&syn.frame()).src();
        opens_too(&mut rig, local, external);
        let answer = tcp(local, remote, "SA", LOCAL_ISN, REMOTE_ISN + 1);
        let sent = rig.translates_out(&answer.frame());
        assert_eq!(sent.src(), external);
        assert_eq!(rig.flow(local).state, FlowState::Unconfirmed);
        let number = REMOTE_ISN + u32::from(flags == "A");
        let theirs = tcp(remote, external, flags, number, LOCAL_ISN + 1);
        rig.translates_in(link_of(external), &theirs.frame());
        let ack = tcp(local, remote, "A", LOCAL_ISN + 1, REMOTE_ISN + 1);
        rig.translates_out(&ack.frame());
        assert_eq!(rig.flow(local).state, FlowState::Established);
    }
}

#[test]
fn a_simultaneous_open_over_an_earlier_link_is_answered_there() {
    let mut rig = under_wsdm();
    let (local, remote) = (client(4000), server(4000));
    let syn = tcp(local, remote, "S", LOCAL_ISN, 0).frame();
    let [first, second] = [(); 2].map(|()| rig.translates_out(&syn).src());
    assert_ne!(first, second);
    opens_too(&mut rig, local, first);
    let answer = tcp(local, remote, "SA", LOCAL_ISN, REMOTE_ISN + 1);
    let sent = rig.translates_out(&answer.frame());
    assert_eq!(sent.src(), first);
    assert_eq!(rig.flow(local).external, second, "nothing is bound by it");
    let theirs = tcp(remote, first, "A", REMOTE_ISN + 1, LOCAL_ISN + 1);
    rig.translates_in(link_of(first), &theirs.frame());
    let ack = tcp(local, remote, "A", LOCAL_ISN + 1, REMOTE_ISN + 1);
    assert_eq!(rig.translates_out(&ack.frame()).src(), first);
}

/// What proves nothing, in the name of the remote end: none of it acknowledges the host's SYN.
fn unproven(from: SocketAddr, external: SocketAddr) -> Vec<Vec<u8>> {
    let segment = |flags, ack| tcp(from, external, flags, 77, ack).frame();
    let quoted = tcp(external, from, "S", LOCAL_ISN.wrapping_sub(1000), 0).frame();
    let error = icmp(
        from.ip(),
        external.ip(),
        SITE.port_unreachable,
        [0; 4],
        &quoted[ETHERNET..],
    );
    vec![
        segment("S", 0),
        tcp(from, external, "S", 78, 0)
            .payload(b"early data")
            .frame(),
        segment("R", 0),
        segment("RA", LOCAL_ISN),
        segment("RA", LOCAL_ISN + 2),
        segment("A", LOCAL_ISN),
        segment("PA", 0),
        tcp(from, external, "PA", 78, LOCAL_ISN)
            .payload(b"data")
            .frame(),
        segment("FA", LOCAL_ISN + 2),
        segment("SA", LOCAL_ISN + 2),
        error.frame(),
    ]
}

#[test]
fn what_proves_nothing_binds_resets_confirms_and_counts_nothing() {
    let mut rig = under_wsdm();
    let (local, remote) = (client(4000), server(80));
    let syn = tcp(local, remote, "S", LOCAL_ISN, 0).frame();
    let tries = [(); 2].map(|()| rig.translates_out(&syn).src());
    let before = (rig.brought_by(), rig.flow(local));
    for external in tries {
        for frame in unproven(remote, external) {
            let outcome = rig.link_brings(link_of(external), &frame);
            let reason = outcome.reason.as_str();
            assert!(
                ["bad-handshake", "bad-rst", "bad-quote", "challenge"].contains(&reason),
                "{reason}"
            );
        }
    }
    let after = (rig.brought_by(), rig.flow(local));
    assert_eq!(
        (after.0, after.1.state, after.1.external, after.1.packets_in),
        (before.0, FlowState::Unconfirmed, tries[1], 0)
    );
    // The true answer, over either, opens the connection.
    let answer = tcp(remote, tries[0], "SA", REMOTE_ISN, LOCAL_ISN + 1);
    rig.translates_in(link_of(tries[0]), &answer.frame());
    let ack = tcp(local, remote, "A", LOCAL_ISN + 1, REMOTE_ISN + 1);
    rig.translates_out(&ack.frame());
    let flow = rig.flow(local);
    assert_eq!(
        (flow.state, flow.external),
        (FlowState::Established, tries[0])
    );
    assert_eq!(rig.live(), 1);
}

#[test]
fn a_syn_for_an_established_connection_is_the_hosts_to_judge_and_no_sign_of_life() {
    let mut rig = Rig::new();
    let connection = rig.connect(client(4000), server(80));
    let before = rig.brought_by();
    let syn = connection.answer("S", 77, 0);
    rig.translates_in(connection.link, &syn.frame());
    assert_eq!(rig.brought_by(), before);
    let guess = connection.answer("R", REMOTE_ISN + 1000, 0);
    rig.translates_in(connection.link, &guess.frame());
    assert_eq!(rig.brought_by(), before);
    assert_eq!(rig.flow(client(4000)).state, FlowState::Established);
}

#[test]
fn a_syn_on_a_closed_flow_begins_anew() {
    let mut rig = Rig::new();
    let connection = rig.connect(client(4000), server(80));
    let reset = connection.say("R", LOCAL_ISN + 1, 0);
    rig.translates_out(&reset.frame());
    rig.connect(client(4000), server(80));
    let flow = rig.flow(client(4000));
    assert_eq!((flow.state, flow.packets_in), (FlowState::Established, 1));
    assert_eq!((rig.live(), rig.closed(), rig.flows().len()), (1, 1, 1));
}

#[test]
fn a_syn_on_a_live_flow_is_left_to_the_remote_end() {
    let mut rig = Rig::new();
    let connection = rig.connect(client(4000), server(80));
    let syn = connection.say("S", LOCAL_ISN + 77, 0);
    let sent = rig.translates_out(&syn.frame());
    assert_eq!(sent.src(), connection.external);
    assert_eq!(rig.flow(client(4000)).state, FlowState::Established);
}

#[test]
fn a_retransmitted_syn_stays_on_its_link_unless_the_policy_says_that_it_failed_the_path() {
    let mut rig = Rig::new();
    let syn = tcp(client(4000), server(80), "S", LOCAL_ISN, 0).frame();
    let first = rig.translates_out(&syn).src();
    for _ in 0..3 {
        assert_eq!(rig.translates_out(&syn).src(), first);
    }
    let counters = anabranch_core::DataPlane::counters(rig.plane()).unwrap();
    assert_eq!(
        counters[usize::from(link_of(first))].carried().syn_retries,
        3,
        "a link is told of every SYN that had to be repeated on it"
    );
}

#[test]
fn a_host_that_repeats_syns_and_an_end_that_is_silent_are_one_witness_each() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    let repeat = |rig: &mut Rig, from, to| {
        let syn = tcp(from, to, "S", LOCAL_ISN, 0).frame();
        for _ in 0..4 {
            rig.translates_out(&syn);
        }
        let carried = anabranch_core::DataPlane::counters(rig.plane()).unwrap()[0].carried();
        [carried.retrying_hosts, carried.retried_ends]
    };
    assert_eq!(repeat(&mut rig, client(4000), server(80)), [1, 1]);
    assert_eq!(
        repeat(&mut rig, client(4001), server(443)),
        [1, 1],
        "other ports are nobody else"
    );
    assert_eq!(repeat(&mut rig, client(4002), second_server(80)), [1, 2]);
    let second = SocketAddr::new(SECOND_CLIENT, 4000);
    assert_eq!(repeat(&mut rig, second, server(80)), [2, 2]);
}

#[test]
fn what_belongs_to_no_flow_is_no_sign_that_a_link_works() {
    let mut rig = Rig::new();
    let connection = rig.connect(client(4000), server(80));
    let link = usize::from(connection.link);
    let received = |rig: &mut Rig| {
        let counters = anabranch_core::DataPlane::counters(rig.plane()).unwrap();
        let traffic = counters[link].carried();
        (traffic.rx_packets, traffic.rx_bytes)
    };
    let before = received(&mut rig);
    let stray = tcp(
        server(80),
        SocketAddr::new(connection.external.ip(), 5),
        "A",
        7,
        7,
    );
    rig.link_brings(connection.link, &stray.frame())
        .passed("stray");
    assert_eq!(received(&mut rig), before);
    let data = connection
        .answer("A", REMOTE_ISN + 1, LOCAL_ISN + 1)
        .payload(b"data");
    rig.translates_in(connection.link, &data.frame());
    assert_eq!(received(&mut rig), (before.0 + 1, before.1 + HEADERS + 4));
}

#[test]
fn a_retransmitted_syn_leaves_a_link_that_is_no_longer_usable() {
    let mut rig = Rig::new();
    let syn = tcp(client(4000), server(80), "S", LOCAL_ISN, 0).frame();
    let first = link_of(rig.translates_out(&syn).src());
    rig.install(&round_robin(0b11 & !(1 << first)));
    let second = link_of(rig.translates_out(&syn).src());
    assert_ne!(first, second);
    assert_eq!((rig.live(), rig.flows().len()), (1, 1));
}

#[test]
fn under_wsdm_a_retransmitted_syn_tries_every_link_and_then_all_of_them_again() {
    let mut rig = under_wsdm();
    let syn = tcp(client(4000), server(80), "S", LOCAL_ISN, 0).frame();
    let first = link_of(rig.translates_out(&syn).src());
    assert!(rig.flow(client(4000)).tried.is_empty());

    let second = link_of(rig.translates_out(&syn).src());
    assert_ne!(first, second);
    assert_eq!(rig.flow(client(4000)).tried, [first]);

    rig.translates_out(&syn);
    let flow = rig.flow(client(4000));
    assert_eq!(flow.tried, [0, 1]);
    assert_eq!(flow.why, "every link had failed this flow");
    assert_eq!((rig.live(), rig.flows().len()), (1, 1));
}

#[test]
fn under_wsdm_a_syn_that_was_answered_keeps_its_link() {
    let mut rig = under_wsdm();
    let syn = tcp(client(4000), server(80), "S", LOCAL_ISN, 0).frame();
    let external = rig.translates_out(&syn).src();
    rig.translates_in(link_of(external), &syn_ack(external));
    assert_eq!(rig.translates_out(&syn).src(), external);
}

/// A gateway under WSDM, and a connection attempt whose SYN was sent twice: over the first link, then over the second.
fn two_tries() -> (Rig, [SocketAddr; 2]) {
    let mut rig = under_wsdm();
    let syn = tcp(client(4000), server(80), "S", LOCAL_ISN, 0).frame();
    let tries = [(); 2].map(|()| rig.translates_out(&syn).src());
    assert_ne!(link_of(tries[0]), link_of(tries[1]));
    (rig, tries)
}

#[test]
fn a_late_answer_to_an_earlier_syn_wins_if_nothing_else_has_answered() {
    let (mut rig, [first, second]) = two_tries();
    let got = rig.translates_in(link_of(first), &syn_ack(first));
    assert_eq!((got.src(), got.dst()), (server(80), client(4000)));
    let ack = tcp(client(4000), server(80), "A", LOCAL_ISN + 1, REMOTE_ISN + 1);
    let sent = rig.translates_out(&ack.frame());
    assert_eq!(sent.src(), first, "the flow is the winner's");
    let flow = rig.flow(client(4000));
    assert_eq!(
        (flow.state, flow.link, flow.external),
        (FlowState::Established, link_of(first), first)
    );
    assert_eq!((rig.live(), rig.flows().len()), (1, 1));

    let lost = rig
        .link_brings(link_of(second), &syn_ack(second))
        .answered("late-answer");
    assert_eq!((lost.src(), lost.dst()), (second, server(80)));
    assert!(lost.tcp().rst && !lost.tcp().ack);
    assert_eq!(lost.tcp().sequence_number, LOCAL_ISN + 1);
}

#[test]
fn the_answer_to_the_last_syn_wins_if_it_comes_first_and_the_earlier_one_is_reset() {
    let (mut rig, [first, second]) = two_tries();
    rig.translates_in(link_of(second), &syn_ack(second));
    rig.link_brings(link_of(first), &syn_ack(first))
        .answered("late-answer");
    let again = rig.link_brings(link_of(second), &syn_ack(second));
    again.sent("translated-in");
    let ack = tcp(client(4000), server(80), "A", LOCAL_ISN + 1, REMOTE_ISN + 1);
    let sent = rig.translates_out(&ack.frame());
    assert_eq!(sent.src(), second);
    rig.link_brings(link_of(first), &syn_ack(first))
        .answered("late-answer");
    assert_eq!((rig.live(), rig.flows().len()), (1, 1));
}

#[test]
fn a_syn_repeated_over_an_earlier_link_is_the_same_connection_there() {
    let (mut rig, [first, _]) = two_tries();
    let syn = tcp(client(4000), server(80), "S", LOCAL_ISN, 0).frame();
    let third = rig.translates_out(&syn).src();
    assert_eq!(third, first);
    rig.translates_in(link_of(first), &syn_ack(first));
    assert_eq!((rig.live(), rig.flows().len()), (1, 1));
}

#[test]
fn an_answer_that_does_not_fit_the_syn_wins_nothing_on_any_link() {
    let (mut rig, tries) = two_tries();
    for external in tries {
        for acknowledged in [LOCAL_ISN, LOCAL_ISN + 2, 0] {
            let lie = tcp(server(80), external, "SA", REMOTE_ISN, acknowledged);
            rig.link_brings(link_of(external), &lie.frame())
                .sent("challenge");
        }
        let data = tcp(server(80), external, "PA", REMOTE_ISN + 1, LOCAL_ISN + 1);
        rig.link_brings(link_of(external), &data.payload(b"early").frame())
            .dropped("bad-handshake");
    }
    rig.translates_in(link_of(tries[0]), &syn_ack(tries[0]));
}

#[test]
fn a_refusal_of_any_try_ends_the_attempt_and_its_other_tries() {
    let (mut rig, [first, second]) = two_tries();
    let refusal = tcp(server(80), first, "RA", 0, LOCAL_ISN + 1);
    rig.translates_in(link_of(first), &refusal.frame());
    assert_eq!((rig.live(), rig.closed()), (0, 2));
    rig.link_brings(link_of(second), &syn_ack(second))
        .answered("late-answer");
}

#[test]
fn the_entries_of_all_tries_go_with_the_attempt() {
    let (mut rig, tries) = two_tries();
    rig.set(|s| s.unconfirmed_ns = 0);
    rig.sweep_until(|rig, _| rig.flows().is_empty());
    assert_eq!(rig.live(), 0);
    assert_eq!(
        rig.unconfirmed(),
        0,
        "both entries of the flow, and the earlier try's"
    );
    for external in tries {
        let late = rig.link_brings(link_of(external), &syn_ack(external));
        assert_ne!(late.reason, "translated-in", "{external}");
    }
}

#[test]
fn an_unknown_segment_is_answered_with_the_reset_of_rfc_9293() {
    let mut rig = Rig::new();
    let (local, remote) = (client(4000), server(80));
    let segment = tcp(local, remote, "PA", 500, 900).payload(b"who am I?");
    let reset = rig.lan_sends(&segment.frame()).answered("no-flow-out");
    assert_eq!((reset.src(), reset.dst()), (remote, local));
    let header = reset.tcp();
    assert!(header.rst && !header.ack);
    assert_eq!(header.sequence_number, 900);
}

#[test]
fn an_unknown_reset_is_answered_with_silence() {
    let mut rig = Rig::new();
    let reset = tcp(client(4000), server(80), "R", 500, 0);
    rig.lan_sends(&reset.frame()).dropped("no-flow-out");
}

#[test]
fn the_segment_size_of_a_syn_is_lowered_to_the_link_and_never_raised() {
    let mut rig = Rig::new();
    rig.tell_links(EXTERNAL, [1492, 1400]);
    for (port, asked) in [(4000, 8960), (4001, 1460), (4002, 1300), (4003, 536)] {
        let (local, remote) = (client(port), server(80));
        let syn = tcp(local, remote, "S", LOCAL_ISN, 0).options(&mss_option(asked));
        let sent = rig.translates_out(&syn.frame());
        let link = link_of(sent.src());
        let fits = [1492, 1400][usize::from(link)] - HEADERS as u16;
        assert_eq!(sent.mss(), Some(asked.min(fits)));

        let answer =
            tcp(remote, sent.src(), "SA", REMOTE_ISN, LOCAL_ISN + 1).options(&mss_option(asked));
        let got = rig.translates_in(link, &answer.frame());
        assert_eq!(got.mss(), Some(asked.min(fits)));
    }
}

#[test]
fn the_segment_size_is_found_behind_other_options_at_any_offset() {
    let mut rig = Rig::new();
    rig.tell_links(EXTERNAL, [1400; 2]);
    let timestamps = [8, 10, 1, 2, 3, 4, 0, 0, 0, 0];
    for padding in 0..4usize {
        let mut options = vec![1; padding];
        options.extend(timestamps);
        options.extend([3, 3, 7]);
        options.extend(mss_option(1460));
        options.resize(options.len().next_multiple_of(4), 0);
        let syn = tcp(client(4000 + padding as u16), server(80), "S", LOCAL_ISN, 0);
        let sent = rig.translates_out(&syn.options(&options).frame());
        assert_eq!(
            sent.mss(),
            Some(1400 - HEADERS as u16),
            "behind {padding} bytes of padding"
        );
    }
}

#[test]
fn options_that_lie_about_their_length_leave_the_syn_as_it_is() {
    let mut rig = Rig::new();
    rig.tell_links(EXTERNAL, [1400; 2]);
    for (port, options) in [
        (4000, [8, 0, 2, 4, 5, 0xb4, 0, 0]),
        (4001, [8, 255, 2, 4, 5, 0xb4, 0, 0]),
        (4002, [1, 1, 1, 1, 1, 1, 2, 4]),
        (4003, [0, 2, 4, 5, 0xb4, 0, 0, 0]),
    ] {
        let syn = tcp(client(port), server(80), "S", LOCAL_ISN, 0).options(&options);
        let sent = rig.translates_out(&syn.frame());
        let after = sent.tcp().options.as_slice();
        if port != 4000 {
            assert_eq!(after, options);
        }
    }
}
