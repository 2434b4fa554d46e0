//! The programs themselves: what a packet costs, and that a gateway can be used again.

use anabranch_core::LinkId;
use anabranch_dataplane::{Role, Sizes};

use super::*;

/// The time of the established path. The flow is translated to itself, so that a packet can be run again and again.
#[test]
fn the_established_path_is_timed() {
    let mut rig = Rig::sized(Sizes {
        flows_max: 200_000,
        ..small()
    });
    rig.tell_links([CLIENT, CLIENT], [MTU; 2]);
    rig.install(&round_robin(0b01));
    for flows in [2, 1000] {
        let (out, inward) = (Role::lan([GATEWAY_LAN]), Role::Link(LinkId(0)));
        for port in 0..flows {
            open(&mut rig, 1024 + port);
        }
        let segment = tcp(client(1024), server(80), "A", LOCAL_ISN + 1, REMOTE_ISN + 1);
        let data = segment.payload(&[7; 1448]).ip().ttl(255).frame();
        let segment = tcp(server(80), client(1024), "A", REMOTE_ISN + 1, LOCAL_ISN + 1);
        let reply = segment.payload(&[7; 1448]).ip().ttl(255).frame();
        let query = udp(client(1024), server(53), &[7; 22]).ttl(255).frame();
        let answer = udp(server(53), client(1024), &[7; 22]).ttl(255).frame();
        for (what, program, role, frame) in [
            ("TCP 1448 B out", "lan", out, data),
            ("TCP 1448 B in", "wan", inward, reply),
            ("UDP 64 B out", "lan", out, query),
            ("UDP 64 B in", "wan", inward, answer),
        ] {
            let ns = rig.time(program, role, &frame);
            println!("{what}, {flows} flows: {ns:.0} ns per packet");
            assert!(ns > 0.0);
        }
    }
}

/// Tests use a gateway one after another.
#[test]
fn a_gateway_that_was_used_knows_nothing_when_it_is_used_again() {
    let mut rig = Rig::new();
    rig.set(|s| (s.routed, s.forwards_kernel) = (0b10, 1));
    rig.plane().set_class_name(3, Some("voice")).unwrap();
    rig.plane().set_own_macs(&[(1, [2; 6])].into()).unwrap();
    rig.install(&round_robin(0b01));
    rig.connect(client(4000), server(80));
    rig.open(client(4001), server(443));
    let datagram = udp(client(4002), server(53), &[1; 2000]);
    rig.lan_sends(&datagram.fragment(1440, 2008).frame());
    rig.lan_sends(&datagram.fragment(0, 1440).frame());
    rig.lan_sends(&tcp(client(4003), server(80), "A", 1, 1).frame());
    rig.link_brings(0, &udp(server(53), client(4004), b"x").frame());
    rig.sweep();
    assert_eq!(rig.forgotten(), []);
}

/// A connection and a confirmed mapping, whose external end is their own.
fn open(rig: &mut Rig, port: u16) {
    let (local, remote) = (client(port), server(80));
    let syn = tcp(local, remote, "S", LOCAL_ISN, 0);
    rig.translates_out(&syn.frame());
    let answer = tcp(remote, local, "SA", REMOTE_ISN, LOCAL_ISN + 1);
    rig.translates_in(0, &answer.frame());
    let ack = tcp(local, remote, "A", LOCAL_ISN + 1, REMOTE_ISN + 1);
    rig.translates_out(&ack.frame());
    let query = udp(local, server(53), b"q").frame();
    rig.translates_out(&query);
    let answer = udp(server(53), local, b"a").frame();
    for _ in 0..2 {
        rig.translates_in(0, &answer);
    }
}
