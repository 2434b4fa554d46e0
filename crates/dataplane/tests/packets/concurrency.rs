//! Several CPUs at the same flows at once.

use std::sync::{
    Barrier,
    atomic::{AtomicBool, Ordering},
};

use anabranch_core::{DataPlane, LinkId};
use anabranch_dataplane::{Gateway, Settings};

use crate::{common::*, frame::*, rig::*};

const ROUNDS: u32 = 3000;
const FLOWS: u16 = 4;

/// The packets of connection `port`, whose external port is its own, on link 0.
fn connection(port: u16, round: u32) -> Vec<(&'static str, Vec<u8>)> {
    let (local, remote) = (client(port), server(80));
    let external = std::net::SocketAddrV4::new(EXTERNAL[0], port);
    let isn = LOCAL_ISN + (round << 8);
    let out = |flags, seq, ack| ("lan", tcp(local, remote, flags, seq, ack).frame());
    let inward = |flags, seq, ack| ("wan", tcp(remote, external, flags, seq, ack).frame());
    let end = match round % 4 {
        0 => vec![out("R", isn + 1, 0)],
        1 => vec![inward("R", REMOTE_ISN + 1, 0)],
        2 => vec![
            out("FA", isn + 1, REMOTE_ISN + 1),
            inward("FA", REMOTE_ISN + 1, isn + 2),
        ],
        _ => vec![inward("RA", REMOTE_ISN + 1, isn + 1)],
    };
    let mut packets = vec![
        out("S", isn, 0),
        inward("SA", REMOTE_ISN, isn + 1),
        out("A", isn + 1, REMOTE_ISN + 1),
        out("PA", isn + 1, REMOTE_ISN + 1),
    ];
    packets.extend(end);
    let mapping = std::net::SocketAddrV4::new(EXTERNAL[0], port);
    packets.push(("lan", udp(local, server(53), b"q").frame()));
    packets.push(("wan", udp(server(53), mapping, b"a").frame()));
    packets
}

fn drive(mut plane: Gateway, offset: u16) {
    for round in 0..ROUNDS {
        let port = 4000 + (round as u16 + offset) % FLOWS;
        for (program, frame) in connection(port, round) {
            plane.run(program, &frame, 1).unwrap();
        }
    }
}

#[test]
fn packets_of_the_same_flows_on_two_cpus_beside_sweeps_leave_balanced_books() {
    let mut rig = Rig::new();
    rig.install(&round_robin(0b01));
    rig.role_of_link(0);
    let planes = [rig.another_plane(), rig.another_plane()];
    let mut sweeper = rig.another_plane();
    let ended = AtomicBool::new(false);
    let namespace = rig.namespace();
    std::thread::scope(|scope| {
        let drivers: Vec<_> = planes
            .into_iter()
            .enumerate()
            .map(|(offset, plane)| {
                scope.spawn(move || namespace.run(|| drive(plane, offset as u16)).unwrap())
            })
            .collect();
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                sweeper.sweep().unwrap();
            }
        });
        let drove: Result<Vec<()>, _> = drivers.into_iter().map(|driver| driver.join()).collect();
        ended.store(true, Ordering::Relaxed);
        drove.unwrap();
    });
    assert_balanced(&mut rig);
}

/// Everything runs out, and then nothing is left of any flow.
fn assert_balanced(rig: &mut Rig) {
    rig.set(|s| set_timers(s, 0));
    rig.sweep_until(|rig, _| rig.flows().is_empty());
    rig.sweep();
    assert_eq!(rig.plane().confirmed().unwrap(), 0);
    assert_eq!(rig.live(), 0);
}

fn set_timers(settings: &mut Settings, ns: u64) {
    settings.tcp_established_ns = ns;
    settings.tcp_transitory_ns = ns;
    settings.embryo_ns = ns;
    settings.udp_ns = ns;
}

#[test]
fn a_sweep_and_the_end_of_a_link_at_once_count_every_flow_once() {
    const PORTS: std::ops::Range<u16> = 4000..4500;
    let mut rig = Rig::new();
    rig.install(&round_robin(0b01));
    rig.role_of_link(0);
    rig.set(|s| set_timers(s, 0));
    let walker = rig.plane().walker();
    for round in 0..20 {
        for port in PORTS {
            for (program, frame) in connection(port, round).drain(..3) {
                rig.plane().run(program, &frame, 1).unwrap();
            }
        }
        assert_eq!(rig.plane().confirmed().unwrap(), PORTS.len() as u64);
        let together = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                together.wait();
                walker.sweep().unwrap();
            });
            together.wait();
            rig.plane().end_flows(LinkId(0)).unwrap();
        });
        assert_eq!(rig.plane().confirmed().unwrap(), 0);
        assert_eq!(rig.live(), 0);
    }
}
