//! Fragments: only the first names the ports, and all must leave as one datagram.

use std::net::SocketAddr;

use super::*;

#[test]
fn a_datagram_in_fragments_leaves_with_one_port_and_one_id_that_is_the_links() {
    let mut rig = Rig::new();
    let payload: Vec<u8> = (0..4000).map(|i| i as u8).collect();
    let datagram = udp(client(40000), server(53), &payload).id(7);
    let pieces: Vec<_> = [(0, 1440), (1440, 2880), (2880, 4008)]
        .map(|(from, to)| rig.translates_out(&datagram.fragment(from, to).frame()))
        .to_vec();
    let whole = reassemble(&pieces);
    assert_eq!((whole.dst(), whole.payload()), (server(53), &payload[..]));
    let back = udp(server(53), whole.src(), &payload).id(9);
    let pieces: Vec<_> = [(0, 1440), (2880, 4008), (1440, 2880)]
        .map(|(from, to)| rig.translates_in(link_of(whole.src()), &back.fragment(from, to).frame()))
        .to_vec();
    assert_eq!(pieces[0].ip.identification, 9);
    let whole = reassemble(&pieces);
    assert_eq!(
        (whole.dst(), whole.payload()),
        (client(40000), &payload[..])
    );
    assert_eq!(rig.flows().len(), 1);
}

#[test]
fn two_hosts_with_one_id_towards_one_server_are_not_mixed() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    let hosts = [client(4000), SocketAddr::new(SECOND_CLIENT, 4000)];
    let datagrams = [[1u8; 2000], [2; 2000]];
    let mut pieces = [Vec::new(), Vec::new()];
    for (from, to) in [(0, 1440), (1440, 2008)] {
        for (host, datagram) in datagrams.iter().enumerate() {
            let ip = udp(hosts[host], server(53), datagram).id(7);
            let sent = rig.lan_sends(&ip.fragment(from, to).frame());
            pieces[host].push(sent.sent("translated-out"));
        }
    }
    assert_ne!(
        pieces[0][0].ip.identification,
        pieces[1][0].ip.identification
    );
    for (host, pieces) in pieces.iter().enumerate() {
        assert_eq!(reassemble(pieces).payload(), datagrams[host]);
    }
}

#[test]
fn the_datagrams_of_one_host_make_no_other_hosts_forgotten() {
    let mut rig = Rig::new();
    let host = SocketAddr::new(SECOND_CLIENT, 4000);
    let datagram = udp(host, server(53), &[7; 2000]).id(7);
    rig.translates_out(&datagram.fragment(0, 1440).frame());
    // More than there is room for.
    for number in 0..8500 {
        let flood = udp(client(4000), server(53), &[1; 2000]).id(number);
        rig.translates_out(&flood.fragment(0, 1440).frame());
    }
    rig.translates_out(&datagram.fragment(1440, 2008).frame());
    let latest = udp(client(4000), server(53), &[1; 2000]).id(8499);
    rig.translates_out(&latest.fragment(1440, 2008).frame());
}

#[test]
fn overlapping_fragments_poison_their_datagram_and_no_other() {
    let mut rig = Rig::new();
    let datagram = udp(client(4000), server(53), &[7; 4000]).id(7);
    rig.translates_out(&datagram.fragment(0, 1440).frame());
    rig.lan_sends(&datagram.fragment(1432, 2880).frame())
        .dropped("fragment-overlap");
    rig.lan_sends(&datagram.fragment(2880, 4008).frame())
        .dropped("fragment-overlap");
    let other = udp(client(4000), server(53), &[7; 4000]).id(8);
    rig.translates_out(&other.fragment(0, 1440).frame());
}

#[test]
fn a_fragment_without_its_first_waits_and_from_a_link_the_stack_has_it_too() {
    let mut rig = Rig::new();
    let sent = rig.translates_out(&udp(client(4000), server(53), b"x").frame());
    let datagram = udp(client(4000), server(53), &[7; 4000]).id(7);
    rig.lan_sends(&datagram.fragment(1440, 2880).frame())
        .dropped("fragment-held");
    let datagram = udp(server(53), sent.src(), &[7; 4000]).id(7);
    rig.link_brings(link_of(sent.src()), &datagram.fragment(1440, 2880).frame())
        .passed("no-flow-in");
}

#[test]
fn a_fragment_that_comes_twice_harms_nothing() {
    let mut rig = Rig::new();
    let payload = [7; 4000];
    let datagram = udp(client(4000), server(53), &payload).id(7);
    let mut pieces = Vec::new();
    for (from, to) in [(0, 1440), (1440, 2880), (2880, 4008)] {
        for _ in 0..2 {
            let piece = rig.lan_sends(&datagram.fragment(from, to).frame());
            pieces.push(piece.sent("translated-out"));
        }
    }
    pieces.dedup();
    assert_eq!(reassemble(&pieces).payload(), payload);
}

#[test]
fn an_id_that_comes_round_again_is_a_datagram_of_its_own() {
    let mut rig = Rig::new();
    for _ in 0..3 {
        let datagram = udp(client(4000), server(53), &[7; 2000]).id(7);
        let pieces = [(0, 1440), (1440, 2008)]
            .map(|(from, to)| rig.translates_out(&datagram.fragment(from, to).frame()));
        reassemble(&pieces);
    }
}

#[test]
fn many_small_fragments_in_any_order_after_the_first_are_one_datagram() {
    use proptest::prelude::*;
    let mut rig = Rig::new();
    let mut id = 0;
    let order = Just((1..8usize).collect::<Vec<_>>()).prop_shuffle();
    rig.for_all(100, order, |rig, order| {
        id += 1;
        let datagram = udp(client(4000), server(53), &[7; 504]).id(id);
        let mut pieces = Vec::new();
        for piece in std::iter::once(0).chain(order) {
            let frame = datagram.fragment(piece * 64, piece * 64 + 64).frame();
            pieces.push(rig.translates_out(&frame));
        }
        reassemble(&pieces);
        Ok(())
    });
}
