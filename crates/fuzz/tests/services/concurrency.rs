//! Two CPUs at the same connections and at the same places of the ring at once.

use std::net::SocketAddr;

use anabranch_core::Family;
use anabranch_dataplane::services::Services;
use anabranch_policy::abi::{CONNECTION_CLOSED, FlowKey, TCP_ACK, TCP_FIN, TCP_RST, TCP_SYN};
use anabranch_policy::splitmix::SplitMix64;
use anabranch_policy::{Candidate, Choice, Dispatch, NO_TABLE};
use anabranch_testbed::cpus;

use crate::loaded::{Loaded, frame, server, servers, slot, web};
use crate::model::{Chosen, Entry, Model, Packet};
use crate::transcript::{SERVERS, place};

const ROUNDS: u32 = 100_000;
/// Of each family: two more than have a place in the ring.
const CLIENTS: u16 = 10;
const ROOM: u32 = 1000;
/// After every timer.
const END_NS: u64 = 1 << 60;

/// What a client and its only server send, in the order of a connection.
fn connection(family: Family, port: u16) -> Vec<Vec<u8>> {
    let (to, at) = (web(family, 0), server(family, 0));
    let from = SocketAddr::new(slot(family.index()).client.ip(), port);
    let segment = |from, to, flags: u8, seq, ack| {
        let end = seq + (flags & (TCP_SYN | TCP_FIN)).count_ones();
        frame(&Packet {
            is_tcp: true,
            from,
            to,
            flags,
            seq,
            end,
            ack,
        })
    };
    vec![
        segment(from, to, TCP_SYN, 1, 0),
        segment(at, from, TCP_SYN | TCP_ACK, 100, 2),
        segment(from, to, TCP_ACK, 2, 101),
        segment(from, to, TCP_FIN | TCP_ACK, 2, 101),
        segment(at, from, TCP_FIN | TCP_ACK, 101, 3),
        segment(from, to, TCP_RST, 2, 0),
    ]
}

/// Sends what any of these connections may, in any order.
fn drive(mut services: Services, connections: &[Vec<Vec<u8>>], seed: u64) {
    let mut random = SplitMix64(seed);
    let mut below = |bound: usize| (random.draw() % bound as u64) as usize;
    for _ in 0..ROUNDS {
        let packets = &connections[below(connections.len())];
        // Most connections begin. All that follows is of one that may have made room meanwhile.
        let until = 1 + below(packets.len());
        for packet in &packets[..until] {
            services.run(packet, 1).unwrap();
        }
    }
}

/// Every server's connections are counted as open as long as they are, and none is after all have ended.
#[test]
fn two_cpus_that_open_evict_and_close_connections_at_once_leave_balanced_books() {
    let allowed = cpus::allowed().unwrap();
    let Some(two) = allowed.first_chunk::<2>() else {
        return;
    };
    let mut loaded = Loaded::new(ROOM).expect("this needs root");
    let mut all = servers();
    for one in all.iter_mut().filter(|one| one.at.is_ipv6()) {
        one.site.is_direct = true;
    }
    let chosen = Family::ALL.map(|family| {
        let usable = |number| number == place(family, 0);
        let candidates: Vec<_> = (0..2 * SERVERS)
            .map(|number| Candidate {
                weight: 1,
                load: 0,
                usable: usable(number),
            })
            .collect();
        let (choice, _) = Choice::among(Dispatch::Turns, &candidates);
        Chosen::new(choice, Box::new(NO_TABLE))
    });
    loaded.reset(&Model::new(0, chosen, all)).unwrap();
    let connections: Vec<_> = Family::ALL
        .into_iter()
        .flat_map(|family| (4000..4000 + CLIENTS).map(move |port| connection(family, port)))
        .collect();
    std::thread::scope(|scope| {
        for &cpu in two {
            let services = loaded.another(ROOM).unwrap();
            let connections = &connections;
            scope.spawn(move || {
                cpus::pin(cpus::THIS_THREAD, cpu).unwrap();
                drive(services, connections, cpu as u64);
            });
        }
    });
    assert_balanced(&mut loaded, "after both");
    loaded.sweep(END_NS).unwrap();
    assert!(loaded.entries().unwrap().is_empty());
    assert_balanced(&mut loaded, "after a sweep");
}

fn assert_balanced(loaded: &mut Loaded, when: &str) {
    let entries = loaded.entries().unwrap();
    let gauges = loaded.gauges().unwrap();
    for family in Family::ALL {
        let is_open = |(key, entry): (&FlowKey, &Entry)| {
            key.remote.family() == family && entry.0 & CONNECTION_CLOSED == 0
        };
        let open = entries.iter().filter(|one| is_open(*one)).count() as u64;
        let counted = &gauges.all[family.index()];
        let of_server = &gauges.of.target[usize::from(place(family, 0))];
        println!(
            "{when}: {open} of {family:?} are open, {} were opened",
            counted.opened
        );
        assert_eq!(counted.opened - counted.closed, open, "{when}: {family:?}");
        assert_eq!(
            of_server.opened - of_server.closed,
            open,
            "{when}: {family:?}"
        );
        assert!(counted.opened > u64::from(ROUNDS) / 10);
    }
}
