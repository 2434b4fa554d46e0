//! The two entries of a flow go one after the other: where another CPU meets one alone, it must serve no other flow.

use std::net::SocketAddr;

use super::*;

const OTHER: SocketAddr = SocketAddr::new(SECOND_CLIENT, 4000);

#[test]
fn a_mapping_without_its_link_entry_begins_anew_and_never_shares_the_port_that_was_its() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    let query = |local| udp(local, server(53), b"q").frame();
    let lost = rig.translates_out(&query(client(4000)));
    rig.evict(client(4000), Half::Link);
    let heir = rig.translates_out(&query(OTHER)).src();
    assert_eq!(heir, lost.src(), "the port is free");

    let anew = rig.translates_out(&query(client(4000)));
    assert_ne!(anew.src(), heir);
    for (external, local) in [(anew.src(), client(4000)), (heir, OTHER)] {
        let answer = udp(server(53), external, b"a");
        let got = rig.translates_in(0, &answer.frame());
        assert_eq!(got.dst(), local);
    }
    assert_eq!((rig.live(), rig.flows().len()), (2, 2));
}

#[test]
fn what_is_left_of_a_handshake_ends_without_taking_the_heir_of_its_port_along() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    let syn = tcp(client(4000), server(80), "S", LOCAL_ISN, 0);
    let lost = rig.translates_out(&syn.frame()).src();
    rig.evict(client(4000), Half::Link);
    let heir = rig.connect(OTHER, server(80));
    assert_eq!(heir.external, lost);
    rig.set(|s| s.unconfirmed_ns = 0);
    rig.sweep_until(|rig, _| rig.flows().len() == 1);
    let data = heir.answer("PA", REMOTE_ISN + 1, LOCAL_ISN + 1);
    let got = rig.translates_in(0, &data.payload(b"alive").frame());
    assert_eq!(got.dst(), OTHER);
    assert_eq!(rig.live(), 1);
}

#[test]
fn a_handshake_without_its_link_entry_begins_anew_with_the_next_syn() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    let syn = tcp(client(4000), server(80), "S", LOCAL_ISN, 0).frame();
    rig.translates_out(&syn);
    rig.evict(client(4000), Half::Link);
    let external = rig.translates_out(&syn).src();
    let answer = tcp(server(80), external, "SA", REMOTE_ISN, LOCAL_ISN + 1);
    rig.translates_in(0, &answer.frame());
    assert_eq!((rig.live(), rig.flows().len()), (1, 1));
}

#[test]
fn a_segment_of_a_handshake_without_its_link_entry_is_refused() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    let syn = tcp(client(4000), server(80), "S", LOCAL_ISN, 0);
    let external = rig.translates_out(&syn.frame()).src();
    let answer = tcp(server(80), external, "SA", REMOTE_ISN, LOCAL_ISN + 1);
    rig.translates_in(0, &answer.frame());
    rig.evict(client(4000), Half::Link);
    let ack = tcp(client(4000), server(80), "A", LOCAL_ISN + 1, REMOTE_ISN + 1);
    let reset = rig.lan_sends(&ack.frame()).answered("no-flow-out");
    assert!(reset.tcp().rst);
    assert_eq!(rig.live(), 0);
}
