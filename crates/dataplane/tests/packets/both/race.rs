//! Connections that race over all links (`bpf/policy/race.h`).

use anabranch_dataplane::FlowState;

use super::*;

/// Both links are usable, and so many connections a second race over them.
fn racing(races: u32) -> Rig {
    let mut rig = Rig::new();
    let mut choice = round_robin(0b11);
    choice.races = races;
    rig.race(&choice);
    rig
}

fn syn(port: u16) -> Segment {
    tcp(client(port), server(80), "S", LOCAL_ISN, 0)
}

fn other(link: u16) -> u16 {
    1 - link
}

/// The endpoint that a race has on its other link.
fn race_copy_of(external: SocketAddr) -> SocketAddr {
    let link = other(link_of(external));
    SocketAddr::new(EXTERNAL[usize::from(link)], external.port())
}

/// A connection attempt whose SYN took both links: its endpoints there, that of the SYN itself first.
fn begin(rig: &mut Rig, port: u16) -> [SocketAddr; 2] {
    let first = rig.translates_out(&syn(port).frame());
    let first = first.src();
    [first, race_copy_of(first)]
}

fn confirm(rig: &mut Rig, port: u16) -> SocketAddr {
    let ack = tcp(client(port), server(80), "A", LOCAL_ISN + 1, REMOTE_ISN + 1);
    rig.translates_out(&ack.frame()).src()
}

#[test]
fn a_race_past_guards_resets_each_by_its_link_and_runs_again() {
    let mut rig = racing(1000);
    let ends = begin(&mut rig, 4000);
    rig.lan_copies(link_of(ends[1]), &syn(4000).frame())
        .sent("translated-out");
    for (external, number) in ends.into_iter().zip([0xbad_cafe, 0xbad_beef]) {
        let guard = tcp(server(80), external, "SA", 4096, number);
        rig.link_brings(link_of(external), &guard.frame())
            .sent("challenge");
        let reset = tcp(client(4000), server(80), "R", number, 0);
        let sent = rig.translates_out(&reset.frame());
        assert_eq!(sent.src(), external);
    }
    assert_eq!((rig.live(), rig.closed()), (1, 0));
    begin(&mut rig, 4000);
    rig.translates_in(link_of(ends[1]), &syn_ack(ends[1]));
    assert_eq!(confirm(&mut rig, 4000), ends[1]);
}

#[test]
fn a_syn_takes_every_link_under_one_port_and_links_take_turns_in_being_first() {
    let mut rig = racing(1000);
    rig.tell_links(EXTERNAL, [1492, 1400]);
    let mut firsts = Vec::new();
    for port in 4000..4004 {
        let syn = syn(port).options(&mss_option(1460));
        let sent = rig.translates_out(&syn.frame());
        let copy = rig.lan_copies(other(link_of(sent.src())), &syn.frame());
        let copy = copy.sent("translated-out");
        for (taken, seen) in [(sent.src(), &sent), (race_copy_of(sent.src()), &copy)] {
            assert_eq!((seen.src(), seen.dst()), (taken, server(80)));
            assert_eq!(seen.tcp().sequence_number, LOCAL_ISN);
            assert!(seen.tcp().syn && !seen.tcp().ack);
            let mtu = [1492, 1400][usize::from(link_of(taken))];
            assert_eq!(seen.mss(), Some(mtu - (IP_HEADER + 20) as u16));
        }
        firsts.push(link_of(sent.src()));
    }
    assert_eq!((firsts[0], firsts[1]), (firsts[2], firsts[3]));
    assert_ne!(firsts[0], firsts[1]);
    assert_eq!(rig.flow(client(4000)).why, "the first to answer");
    // For each the LAN entry and a link entry per link.
    assert_eq!((rig.live(), rig.unconfirmed()), (4, 12));
}

#[test]
fn the_first_answer_wins_and_the_losing_copy_is_reset_at_once_and_whenever_it_answers() {
    for of_race_copy in [false, true] {
        let mut rig = racing(1000);
        let mut ends = begin(&mut rig, 4000);
        if of_race_copy {
            ends.reverse();
        }
        let [winner, losing_copy] = ends;
        let got = rig.link_brings(link_of(winner), &syn_ack(winner));
        let got = got.sent("translated-in");
        assert_eq!((got.src(), got.dst()), (server(80), client(4000)));

        let at_once = rig.link_loses(link_of(losing_copy), &syn_ack(winner));
        let at_once = at_once.answered("race-lost");
        let late = rig.link_brings(link_of(losing_copy), &syn_ack(losing_copy));
        for reset in [at_once, late.answered("late-answer")] {
            assert_eq!((reset.src(), reset.dst()), (losing_copy, server(80)));
            assert!(reset.tcp().rst && !reset.tcp().ack);
            assert_eq!(reset.tcp().sequence_number, LOCAL_ISN + 1);
        }

        assert_eq!(confirm(&mut rig, 4000), winner, "the flow is the winner's");
        let flow = rig.flow(client(4000));
        assert_eq!(
            (flow.state, flow.link, flow.external),
            (FlowState::Established, link_of(winner), winner)
        );
        assert_eq!(
            (rig.live(), rig.flows().len(), rig.unconfirmed()),
            (1, 1, 0)
        );
        rig.link_brings(link_of(losing_copy), &syn_ack(losing_copy))
            .answered("late-answer");
    }
}

#[test]
fn an_answer_that_does_not_fit_the_syn_wins_no_race_and_resets_nobody() {
    let mut rig = racing(1000);
    let ends = begin(&mut rig, 4000);
    for external in ends {
        for acknowledged in [LOCAL_ISN, LOCAL_ISN + 2, 0] {
            let lie = tcp(server(80), external, "SA", REMOTE_ISN, acknowledged);
            rig.link_brings(link_of(external), &lie.frame())
                .sent("challenge");
        }
    }
    assert_eq!(rig.unconfirmed(), 3);
    rig.translates_in(link_of(ends[1]), &syn_ack(ends[1]));
}

#[test]
fn a_syn_without_an_acknowledgement_wins_no_race_and_resets_nobody() {
    let mut rig = racing(1000);
    let ends = begin(&mut rig, 4000);
    for external in ends {
        let forged = tcp(server(80), external, "S", REMOTE_ISN, 0).frame();
        rig.link_brings(link_of(external), &forged)
            .dropped("bad-handshake");
    }
    rig.lan_copies(link_of(ends[1]), &syn(4000).frame())
        .sent("translated-out");
    let flow = rig.flow(client(4000));
    assert_eq!(
        (flow.state, flow.external),
        (FlowState::Unconfirmed, ends[0])
    );
    rig.translates_in(link_of(ends[1]), &syn_ack(ends[1]));
    assert_eq!(confirm(&mut rig, 4000), ends[1]);
}

#[test]
fn a_copy_of_a_syn_leaves_no_link_that_its_race_is_not_over() {
    let mut rig = racing(1000);
    let [first, second] = begin(&mut rig, 4000);
    let frame = syn(4000).frame();
    rig.lan_copies(link_of(first), &frame).dropped("race-over");
    rig.lan_copies(2, &frame).dropped("race-over");
    rig.lan_copies(link_of(second), &syn(4001).frame())
        .dropped("race-over");
    rig.translates_in(link_of(first), &syn_ack(first));
    rig.lan_copies(link_of(second), &frame).dropped("race-over");
}

#[test]
fn a_repeated_syn_takes_the_same_links_and_ports() {
    let mut rig = racing(1000);
    let ends = begin(&mut rig, 4000);
    assert_eq!(begin(&mut rig, 4000), ends);
    let copy = rig.lan_copies(link_of(ends[1]), &syn(4000).frame());
    assert_eq!(copy.sent("translated-out").src(), ends[1]);
    assert_eq!((rig.live(), rig.unconfirmed()), (1, 3));
}

#[test]
fn data_in_a_syn_and_what_is_beyond_the_rate_take_one_link() {
    let mut rig = racing(1);
    let data = syn(4000).payload(b"early").frame();
    rig.translates_out(&data);
    assert_eq!(rig.unconfirmed(), 2, "a server might act upon data twice");

    begin(&mut rig, 4001);
    assert_eq!(rig.unconfirmed(), 5, "the race of this second");
    begin(&mut rig, 4002);
    assert_eq!(rig.unconfirmed(), 7);
    let copy = rig.lan_copies(0, &syn(4002).frame());
    copy.dropped("race-over");
}

#[test]
fn a_link_whose_port_is_taken_is_left_out() {
    let mut rig = racing(1000);
    rig.install(&round_robin(0b10));
    let elsewhere = SocketAddr::new(SECOND_CLIENT, 4000);
    assert_eq!(rig.connect(elsewhere, server(80)).external.port(), 4000);
    let mut choice = round_robin(0b11);
    choice.races = 1000;
    rig.race(&choice);
    let [first, _] = begin(&mut rig, 4000);
    // Whichever was the first: the other link has the port only where that is free.
    let entries = if first.port() == 4000 { 2 } else { 3 };
    assert_eq!(rig.unconfirmed(), entries, "{first}");
    rig.translates_in(link_of(first), &syn_ack(first));
}

#[test]
fn the_entries_of_all_links_go_with_the_attempt() {
    let mut rig = racing(1000);
    begin(&mut rig, 4000);
    rig.set(|s| s.unconfirmed_ns = 0);
    rig.sweep_until(|rig, _| rig.flows().is_empty());
    assert_eq!((rig.live(), rig.unconfirmed()), (0, 0));
}

#[test]
fn a_refusal_over_any_link_ends_the_race() {
    let mut rig = racing(1000);
    let [_, second] = begin(&mut rig, 4000);
    let refusal = tcp(server(80), second, "RA", 0, LOCAL_ISN + 1);
    rig.translates_in(link_of(second), &refusal.frame());
    assert_eq!(rig.live(), 0);
}

#[test]
fn a_session_stays_with_the_link_that_won() {
    let mut rig = Rig::new();
    let mut choice = round_robin(0b11);
    (choice.stick, choice.races) = (1, 1000);
    rig.race(&choice);
    let [_, winner] = begin(&mut rig, 4000);
    rig.translates_in(link_of(winner), &syn_ack(winner));
    confirm(&mut rig, 4000);
    for port in 4001..4005 {
        assert_eq!(rig.connect(client(port), server(80)).link, link_of(winner));
    }
}
