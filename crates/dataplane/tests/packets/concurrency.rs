//! Several CPUs at the same flows at once.

use std::{
    net::SocketAddrV4,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
};

use anabranch_core::{DataPlane, LinkId};
use anabranch_dataplane::{Gateway, Ran, Settings};
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

use crate::{common::*, frame::*, rig::*};

const ROUNDS: u32 = 3000;
const FLOWS: u16 = 4;

/// The packets of connection `port`, whose external port is its own, on link 0.
fn connection(port: u16, round: u32) -> Vec<(&'static str, Vec<u8>)> {
    let (local, remote) = (client(port), server(80));
    let external = SocketAddrV4::new(EXTERNAL[0], port);
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
    let mapping = SocketAddrV4::new(EXTERNAL[0], port);
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
    // Whoever closes a flow holds memory that may have become another's since it was found: of a million ends of flows
    // that two CPUs fight over, one or two are counted twice.
    assert!(rig.live().abs() <= 1, "live: {}", rig.live());
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

/// A datagram of the host's `port`, in pieces of which the first comes last.
fn out_of_order(port: u16, id: u16) -> Vec<Vec<u8>> {
    const PIECE: usize = 1400;
    let datagram = udp(client(port), server(53), &[7; 15 * PIECE]).id(id);
    let piece = |i: usize| datagram.fragment(i * PIECE, (i + 1) * PIECE).frame();
    (0..16).rev().map(piece).collect()
}

/// The source that a first fragment left with, if it did.
fn source_of(ran: &Ran) -> Option<SocketAddrV4> {
    if ran.action != TC_ACT_REDIRECT {
        return None;
    }
    let seen = read(&ran.packet);
    match &seen.inside {
        Inside::Piece(body) => {
            let port = u16::from_be_bytes([body[0], body[1]]);
            Some(SocketAddrV4::new(seen.ip.source.into(), port))
        }
        // A host whose flow is gone is told.
        _ => None,
    }
}

/// Two processors to run on, if there are two.
fn two_cpus() -> Option<[usize; 2]> {
    let allowed = sched_getaffinity(Pid::this()).unwrap();
    let is_allowed = |cpu: &usize| allowed.is_set(*cpu).unwrap();
    let mut cpus = (0..CpuSet::count()).filter(is_allowed);
    Some([cpus.next()?, cpus.next()?])
}

/// Keeps the calling thread on a processor.
fn pin_to(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu).unwrap();
    sched_setaffinity(Pid::from_raw(0), &set).unwrap();
}

/// Releasing the others takes the first of a datagram long enough for another CPU's SYNs to evict its embryo, and to give
/// the memory of that to another flow.
#[test]
fn a_first_fragment_leaves_from_its_own_endpoint_or_not_at_all_though_its_embryo_is_evicted() {
    const DATAGRAMS: u16 = 300;
    /// A flow's memory is read for a moment after it was looked up. Without the look-up 85 of 300 went astray.
    const ASTRAY_MAX: usize = 3;
    let Some(cpus) = two_cpus() else { return };
    let mut rig = Rig::new();
    rig.install(&round_robin(0b01));
    rig.set(|s| s.embryos_per_host = 1);
    rig.connect(client(3000), server(80));
    let [mut plane, mut flooder] = [rig.another_plane(), rig.another_plane()];
    let ended = AtomicBool::new(false);
    let flood = || {
        pin_to(cpus[1]);
        for i in (0..u32::MAX).take_while(|_| !ended.load(Ordering::Relaxed)) {
            let remote = SocketAddrV4::new((0x1400_0000 + i % 0x10000).into(), 80);
            let syn = tcp(client(1024), remote, "S", i, 0).frame();
            flooder.run("lan", &syn, 1).unwrap();
        }
    };
    let left: Vec<_> = std::thread::scope(|scope| {
        scope.spawn(flood);
        pin_to(cpus[0]);
        let left = (4000..4000 + DATAGRAMS).filter_map(|port| {
            let pieces = out_of_order(port, port).into_iter();
            let ran = pieces.map(|piece| plane.run("lan", &piece, 1).unwrap());
            Some((port, source_of(&ran.last()?)?))
        });
        let left = left.collect();
        ended.store(true, Ordering::Relaxed);
        left
    });
    let own = |port| SocketAddrV4::new(EXTERNAL[0], port);
    let astray: Vec<_> = left
        .iter()
        .filter(|(port, from)| *from != own(*port))
        .collect();
    println!(
        "{} of {DATAGRAMS} left, {} astray",
        left.len(),
        astray.len()
    );
    assert!(astray.len() <= ASTRAY_MAX, "{astray:?}");
    assert!(!left.is_empty());
}
