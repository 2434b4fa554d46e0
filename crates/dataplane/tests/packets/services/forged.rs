//! What somebody else sends in a client's name.

use super::*;

#[test]
fn a_stranger_takes_nobodys_answers() {
    let mut rig = Rig::new();
    let family = Family::V4;
    let (from, to) = (client(family, 4000), web(family));
    let server = rig.client_sends(&tcp(from, to, "S", 1, 0)).dst();
    rig.server_sends(&tcp(server, from, "SA", 100, 2));
    let by = |mac, segment: Segment| sent_by(mac, segment.frame());
    let stranger = [2, 0, 0, 0, 0, 66];
    rig.send(&by(stranger, tcp(from, to, "A", 2, 0x7000_0000)));
    let (_, frame) = rig.server_sends(&tcp(server, from, "A", 101, 2).payload(b"secret"));
    assert_eq!(frame[..6], CLIENT_MAC);
    rig.send(&by(stranger, tcp(from, to, "A", 2, 107)));
    let (_, frame) = rig.server_sends(&tcp(server, from, "A", 107, 2));
    assert_eq!(
        frame[..6],
        stranger,
        "who knows what the server has sent is the client"
    );
}

#[test]
fn a_forged_reset_ends_nothing() {
    let mut rig = Rig::new();
    for family in Family::ALL {
        let (from, to) = (client(family, 4000), web(family));
        let first = rig.client_sends(&tcp(from, to, "S", 1, 0)).dst();
        rig.server_sends(&tcp(first, from, "SA", 100, 2));
        rig.client_sends(&tcp(from, to, "A", 2, 101));
        for number in [0, 1, 0x1_0002, 1 << 31, u32::MAX] {
            rig.client_sends(&tcp(from, to, "R", number, 0));
            let forged = rig.client_sends(&tcp(from, to, "S", 9000, 0));
            assert_eq!(forged.dst(), first, "{number}");
            assert_eq!(rig.live(family, 0), 1, "{number}");
        }
        // The server has acknowledged none of these bytes yet.
        rig.client_sends(&tcp(from, to, "R", 2 + 1000, 0));
        assert_eq!(rig.live(family, 0), 0);
    }
}

#[test]
fn a_forged_first_syn_keeps_no_client_from_its_answer() {
    let mut rig = Rig::new();
    let family = Family::V6;
    let (from, to) = (client(family, 4000), web(family));
    let stranger = [2, 0, 0, 0, 0, 66];
    let syn = tcp(from, to, "S", 1, 0);
    rig.send(&sent_by(stranger, syn.frame()));
    let server = rig.client_sends(&syn).dst();
    let (_, frame) = rig.server_sends(&tcp(server, from, "SA", 100, 2));
    assert_eq!(frame[..6], CLIENT_MAC);
    rig.client_sends(&tcp(from, to, "A", 2, 101));
    rig.send(&sent_by(stranger, syn.frame()));
    let (_, frame) = rig.server_sends(&tcp(server, from, "A", 101, 2));
    assert_eq!(frame[..6], CLIENT_MAC, "it is established");
}

#[test]
fn who_has_not_heard_the_server_establishes_nothing() {
    let mut rig = Rig::new();
    for family in Family::ALL {
        let to = web(family);
        let (forged, flood) = (client(family, 4000), client(family, 4001));
        let place = 7 + family.index() as u32;
        let_next_take(&rig, place);
        let server = rig.client_sends(&tcp(forged, to, "S", 1, 0)).dst();
        rig.server_sends(&tcp(server, forged, "SA", 100, 2));
        for number in [102, 100_000, 1 << 31, u32::MAX - (1 << 17)] {
            rig.client_sends(&tcp(forged, to, "A", 2, number));
        }
        let_next_take(&rig, place + PASSING_MAX as u32);
        rig.client_sends(&tcp(flood, to, "S", 1, 0));
        rig.passes(&tcp(forged, to, "A", 2, 101).frame(), "no-connection");
    }
}
