//! SYNs that wait while their destination is probed over all links (`bpf/policy/race.h`).

use anabranch_core::Choice;
use anabranch_dataplane::FlowState;

use super::*;

/// Both links are usable, and so many SYNs a second may wait.
fn probing(rate: u32) -> Rig {
    let mut rig = Rig::new();
    install(&mut rig, rate, |_| {});
    rig
}

fn install(rig: &mut Rig, rate: u32, change: impl FnOnce(&mut Choice)) {
    let mut choice = round_robin(0b11);
    (choice.races, choice.holds) = (rate, 1);
    change(&mut choice);
    rig.race(&choice);
}

fn syn(port: u16) -> Segment {
    tcp(client(port), server(80), "S", LOCAL_ISN, 0).options(&mss_option(1460))
}

/// What a server answers a probe with.
fn answer(external: SocketAddr) -> Vec<u8> {
    tcp(server(80), external, "R", LOCAL_ISN, 0).frame()
}

fn other_end(external: SocketAddr) -> SocketAddr {
    let link = 1 - link_of(external);
    SocketAddr::new(EXTERNAL[usize::from(link)], external.port())
}

/// A SYN that waits: the endpoints of its probes, that of the first link first.
fn begin(rig: &mut Rig, port: u16) -> [SocketAddr; 2] {
    let first = rig.lan_sends(&syn(port).frame()).sent("probe-out").src();
    [first, other_end(first)]
}

/// The answer to the probe from `external`, which is the first: the SYN that has waited, as it leaves.
fn release(rig: &mut Rig, external: SocketAddr) -> Seen {
    let link = link_of(external);
    let released = rig.link_brings(link, &answer(external));
    released.sent("probe-answered");
    rig.lan_copies(link, &released.frame).sent("translated-out")
}

#[test]
fn a_syn_waits_and_a_probe_that_a_host_answers_and_forgets_takes_every_link() {
    let mut rig = probing(1000);
    let mut firsts = Vec::new();
    for port in 4000..4004 {
        let sent = rig.lan_sends(&syn(port).frame()).sent("probe-out");
        let copy = rig.lan_copies(1 - link_of(sent.src()), &syn(port).frame());
        let copy = copy.sent("probe-out");
        for (from, seen) in [(sent.src(), &sent), (other_end(sent.src()), &copy)] {
            assert_eq!((seen.src(), seen.dst()), (from, server(80)));
            let tcp = seen.tcp();
            assert!(tcp.syn && tcp.ack && !tcp.rst);
            assert_eq!(tcp.acknowledgment_number, LOCAL_ISN);
        }
        firsts.push(link_of(sent.src()));
    }
    assert_eq!((firsts[0], firsts[1]), (firsts[2], firsts[3]));
    assert_ne!(firsts[0], firsts[1]);
    let why = rig.flow(client(4000)).why;
    assert_eq!(why, "the first whose probe is answered");
    // For each the LAN entry and a link entry per link.
    assert_eq!((rig.live(), rig.unconfirmed()), (4, 12));
}

#[test]
fn the_first_answer_sends_the_syn_over_its_link_and_all_later_ones_go_to_nobody() {
    for of_second in [false, true] {
        let mut rig = probing(1000);
        rig.tell_links(EXTERNAL, [1492, 1400]);
        let mut ends = begin(&mut rig, 4000);
        if of_second {
            ends.reverse();
        }
        let [winner, losing_copy] = ends;
        let link = link_of(winner);
        let sent = release(&mut rig, winner);
        assert_eq!((sent.src(), sent.dst()), (winner, server(80)));
        assert!(sent.tcp().syn && !sent.tcp().ack);
        assert_eq!(sent.tcp().sequence_number, LOCAL_ISN);
        let mtu = [1492, 1400][usize::from(link)];
        assert_eq!(sent.mss(), Some(mtu - (IP_HEADER + 20) as u16));

        rig.link_brings(link_of(losing_copy), &answer(losing_copy))
            .dropped("probe-late");
        rig.link_brings(link, &answer(winner)).dropped("bad-rst");
        assert_eq!(rig.unconfirmed(), 2);

        rig.translates_in(link, &syn_ack(winner));
        let ack = tcp(client(4000), server(80), "A", LOCAL_ISN + 1, REMOTE_ISN + 1);
        rig.translates_out(&ack.frame());
        let flow = rig.flow(client(4000));
        assert_eq!(
            (flow.state, flow.link, flow.external),
            (FlowState::Established, link, winner)
        );
        assert_eq!(
            (rig.live(), rig.flows().len(), rig.unconfirmed()),
            (1, 1, 0)
        );
    }
}

#[test]
fn what_knows_no_number_of_a_syn_that_waits_sends_or_ends_nothing() {
    let mut rig = probing(1000);
    let ends = begin(&mut rig, 4000);
    for external in ends {
        let link = link_of(external);
        let says = |flags, seq, ack| tcp(server(80), external, flags, seq, ack).frame();
        for lie in [
            says("R", LOCAL_ISN + 1, 0),
            says("R", LOCAL_ISN - 1, 0),
            says("RA", LOCAL_ISN, LOCAL_ISN + 1),
            says("SA", REMOTE_ISN, LOCAL_ISN + 1),
            says("A", REMOTE_ISN, LOCAL_ISN - 1000),
            says("FA", LOCAL_ISN, LOCAL_ISN + 1),
        ] {
            rig.link_brings(link, &lie).dropped("bad-handshake");
        }
        let syn = tcp(external, server(80), "S", LOCAL_ISN, 0).frame();
        let isp = ISP[usize::from(link)];
        let unreachable = icmp(
            isp,
            external.ip(),
            SITE.port_unreachable,
            [0; 4],
            &syn[ETHERNET..],
        );
        rig.link_brings(link, &unreachable.frame())
            .dropped("bad-quote");
    }
    assert_eq!((rig.live(), rig.unconfirmed()), (1, 3));
    release(&mut rig, ends[1]);
}

#[test]
fn a_syn_that_is_repeated_before_any_answer_waits_no_more() {
    let mut rig = probing(1000);
    let ends = begin(&mut rig, 4000);
    let sent = rig.translates_out(&syn(4000).frame());
    assert!(sent.tcp().syn && !sent.tcp().ack);
    assert_eq!((rig.live(), rig.unconfirmed()), (1, 2));
    for external in ends {
        let late = rig.link_brings(link_of(external), &answer(external));
        let own = if external == sent.src() {
            "bad-rst"
        } else {
            "probe-late"
        };
        late.dropped(own);
    }
    let again = rig.translates_out(&syn(4000).frame());
    assert_eq!(again.src(), sent.src());
    rig.translates_in(link_of(sent.src()), &syn_ack(sent.src()));
}

#[test]
fn data_what_is_beyond_the_rate_and_what_cannot_be_kept_take_one_link_at_once() {
    let mut rig = probing(1000);
    let data = syn(4000).payload(b"early").frame();
    rig.translates_out(&data);
    let mut broken = syn(4001).frame();
    broken[L4 + 16] ^= 1;
    assert_eq!(rig.lan_sends(&broken).reason, "translated-out");
    assert_eq!((rig.live(), rig.unconfirmed()), (2, 4));

    install(&mut rig, 1, |_| {});
    let waits = (4100..4104).filter(|&port| {
        let sent = rig.lan_sends(&syn(port).frame());
        sent.reason == "probe-out"
    });
    assert!(waits.count() < 4, "of a second's one");
}

#[test]
fn a_sum_that_the_host_left_to_its_device_is_complete_when_the_syn_leaves() {
    let mut rig = probing(1000);
    let (ip, mut left) = (syn(4000).ip(), syn(4000).frame());
    let pseudo = transport_sum(&ip.header, &vec![0; ip.body.len()]);
    left[L4 + 16..L4 + 18].copy_from_slice(&pseudo.to_be_bytes());
    let first = rig.lan_sends(&left);
    assert_eq!(first.reason, "probe-out");
    let external = rig.flow(client(4000)).external;
    let sent = release(&mut rig, external);
    assert_eq!(sent.src(), external);
}

#[test]
fn a_syn_that_has_made_room_for_others_is_sent_when_it_is_repeated() {
    let mut rig = probing(1000);
    let ends = begin(&mut rig, 4000);
    rig.forget_held();
    rig.link_brings(link_of(ends[0]), &answer(ends[0]))
        .dropped("probe-vain");
    rig.translates_out(&syn(4000).frame());
    assert_eq!((rig.live(), rig.unconfirmed()), (1, 2));
}

#[test]
fn a_host_that_gives_up_sends_no_syn_any_more() {
    let mut rig = probing(1000);
    let ends = begin(&mut rig, 4000);
    let reset = tcp(client(4000), server(80), "R", LOCAL_ISN + 1, 0);
    rig.translates_out(&reset.frame());
    assert_eq!(rig.live(), 0);
    rig.link_brings(link_of(ends[0]), &answer(ends[0]))
        .dropped("bad-handshake");
    rig.link_brings(link_of(ends[1]), &answer(ends[1]))
        .dropped("probe-late");
}

#[test]
fn a_session_stays_with_the_link_whose_probe_was_answered_first() {
    let mut rig = Rig::new();
    install(&mut rig, 1000, |choice| choice.stick = 1);
    let [_, winner] = begin(&mut rig, 4000);
    release(&mut rig, winner);
    rig.translates_in(link_of(winner), &syn_ack(winner));
    let ack = tcp(client(4000), server(80), "A", LOCAL_ISN + 1, REMOTE_ISN + 1);
    rig.translates_out(&ack.frame());
    for port in 4001..4005 {
        assert_eq!(rig.connect(client(port), server(80)).link, link_of(winner));
    }
}

#[test]
fn one_usable_link_is_not_probed() {
    let mut rig = probing(1000);
    install(&mut rig, 1000, |choice| {
        *choice = Choice {
            races: 1000,
            holds: 1,
            ..round_robin(0b01)
        };
    });
    rig.translates_out(&syn(4000).frame());
    assert_eq!(rig.unconfirmed(), 2);
}
