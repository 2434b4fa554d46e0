//! Marks like ours that others give: rules of nftables, sockets, and tunnels whose packets keep the mark of what carried them.

use anabranch_dataplane::Marked;
use anabranch_policy::abi::{
    CONNECTION_MARK, FALLBACK_MARK, HAIRPIN_MARK, INBOUND_MARK, LOSING_COPY_MARK, OUR_MARKS,
    OUR_MARKS_MASK, RACE_COPY_MARK, STRAY_MARK, TAIL_MARK, UNTRACKED_MARK,
};

use super::*;

const OURS: [u32; 9] = [
    CONNECTION_MARK,
    TAIL_MARK,
    UNTRACKED_MARK,
    FALLBACK_MARK,
    HAIRPIN_MARK,
    STRAY_MARK,
    RACE_COPY_MARK,
    LOSING_COPY_MARK,
    INBOUND_MARK,
];
const FOREIGN: u32 = 0x00c0_ffee;

/// Each with bits of its own, too.
fn like_ours() -> impl Iterator<Item = Marked> {
    let marks = OURS.into_iter().flat_map(|mark| [mark, mark | 1, mark | 8]);
    marks.map(Marked::ByOthers)
}

#[test]
fn every_mark_of_ours_is_another_and_told_by_the_first_bits() {
    let distinct = std::collections::BTreeSet::from(OURS);
    assert_eq!(distinct.len(), OURS.len());
    for mark in OURS {
        assert_eq!(mark & OUR_MARKS_MASK, OUR_MARKS, "{mark:#x}");
    }
    assert_ne!(FOREIGN & OUR_MARKS_MASK, OUR_MARKS);
}

#[test]
fn a_packet_with_a_mark_like_ours_goes_the_way_of_one_without() {
    let mut rig = Rig::new();
    for (i, marked) in (0..).zip(like_ours()) {
        let syn = tcp(client(2000 + i), server(80), "S", 1, 0).frame();
        let sent = rig.lan_sends_marked(&syn, marked).sent("translated-out");
        let answer = tcp(server(80), sent.src(), "SA", 7, 2).frame();
        let link = link_of(sent.src());
        let got = rig.link_brings_marked(link, &answer, marked);
        got.sent("translated-in");
        let ask = udp(client(2000 + i), server(53), b"x").frame();
        rig.lan_sends_marked(&ask, marked).sent("translated-out");
    }
}

#[test]
fn what_the_kernel_gets_has_no_mark_of_ours_by_others_and_keeps_those_of_others() {
    let mut rig = Rig::new();
    let cases = like_ours().map(|marked| (marked, 0));
    let foreign = (Marked::ByOthers(FOREIGN), FOREIGN);
    let mut arp = echo(CLIENT, SERVER, 1, b"").frame();
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    for (marked, left) in cases.chain([foreign]) {
        for outcome in [
            rig.lan_sends_marked(&arp, marked),
            rig.link_brings_marked(0, &arp, marked),
        ] {
            assert_eq!(outcome.marked("not-ip"), left, "{marked:?}");
        }
    }
}
