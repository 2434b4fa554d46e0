//! Whatever happens to the lines, every packet is accounted for, Little's law holds, and the run repeats itself.

mod common;

use anabranch_scenario::{
    Beyond, Change, Codel, Direction, Fault, FqCodel, Load, Loss, Outcome, Place, Queue, Red,
    Scenario,
};
use anabranch_workload::{Size, Workload};
use common::*;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const POLICIES: [&str; 6] = ["WSDM", "RR", "random", "hash", "LCF", "LTF"];

fn change(random: &mut impl Rng) -> Change {
    match random.random_range(0..6) {
        0 | 1 => Change::Cut,
        2 => Change::Restore,
        3 => Change::Rate(random.random_range(100_000..50_000_000)),
        4 => Change::Delay(ms(random.random_range(0..200))),
        _ => Change::Loss(Loss::Independent {
            probability: random.random_range(0.0..0.3),
        }),
    }
}

fn queue(random: &mut impl Rng) -> Queue {
    let codel = Codel {
        target: ms(random.random_range(1..20)),
        interval: ms(100),
        mtu_bytes: 1500,
        ecn: false,
    };
    match random.random_range(0..6) {
        0 | 1 => Queue::Red(Red {
            min_bytes: 10_000,
            max_bytes: 40_000,
            max_probability: 0.1,
            gentle: random.random_bool(0.5),
            weight: 0.002,
            ecn: false,
        }),
        2 => Queue::Codel(codel),
        3 => Queue::FqCodel(FqCodel {
            codel,
            quantum_bytes: 1500,
            flows: 8,
        }),
        _ => Queue::DropTail,
    }
}

fn anything(random: &mut impl Rng) -> Scenario {
    let mut links = Vec::new();
    for name in NAMES {
        let mut link = link(name, random.random_range(500_000..20_000_000));
        link.beyond = Some(Beyond {
            shared: None,
            down: line(10 * MBIT, ms(5)),
            up: line(5 * MBIT, ms(random.random_range(0..50))),
        });
        link.down.queue = queue(random);
        link.nat = random.random_bool(0.5);
        links.push(link);
    }
    let mut workload = Workload::page_rounds(4, 3, 8);
    workload.size = Size::BoundedPareto {
        alpha: 1.1,
        min_bytes: 1_000,
        max_bytes: 1_000_000,
    };
    let mut faults: Vec<Fault> = (0..12)
        .map(|_| Fault {
            at: ms(random.random_range(0..20_000)),
            link: NAMES[random.random_range(0..3)].into(),
            place: [Place::LastMile, Place::Beyond][random.random_range(0..2)],
            direction: [None, Some(Direction::Up), Some(Direction::Down)]
                [random.random_range(0..3)],
            change: change(random),
        })
        .collect();
    faults.sort_by_key(|fault| fault.at);
    Scenario {
        faults,
        ..scenario(links, Load::Pages(workload), ms(30_000))
    }
}

#[test]
fn any_faults_leave_every_packet_accounted_for_and_every_transfer_with_an_outcome() {
    let mut random = ChaCha8Rng::seed_from_u64(2005);
    let (mut ok, mut failed) = (0, 0);
    for seed in 0..40 {
        let scenario = anything(&mut random);
        let policy = gateway(POLICIES[seed as usize % POLICIES.len()]);
        let record = play(&scenario, policy, seed);
        for t in &record.transfers {
            let unfinished = t.outcome == Outcome::Unfinished;
            assert!(!unfinished || t.start_s + t.duration_s > 29.9, "{t:?}");
            assert!(
                t.bytes <= t.bytes_asked && (t.outcome != Outcome::Ok || t.bytes == t.bytes_asked)
            );
        }
        let counts = record.counts;
        let gone = counts.overflowed.packets
            + counts.early.packets
            + counts.lost.packets
            + counts.cut.packets;
        assert!(counts.delivered.packets + gone <= counts.offered.packets);
        ok += record
            .transfers
            .iter()
            .filter(|t| t.outcome.is_ok())
            .count();
        failed += record
            .transfers
            .iter()
            .filter(|t| t.outcome.is_failure())
            .count();
        assert_eq!(
            format!("{record:?}"),
            format!("{:?}", play(&scenario, policy, seed))
        );
    }
    println!("{ok} transfers came through, {failed} did not");
    assert!(ok > 1000 && failed > 20);
}

#[test]
fn packets_in_turn_survive_anything_too() {
    let mut random = ChaCha8Rng::seed_from_u64(1996);
    let mut reordered = Vec::new();
    for seed in 0..10 {
        let mut scenario = anything(&mut random);
        route(&mut scenario);
        let record = play(&scenario, anabranch_scenario::Policy::PACKET, seed);
        reordered.push(record.counts.reordered);
    }
    println!("reordered {reordered:?}");
    assert!(reordered.iter().filter(|count| **count > 0).count() > 7);
}
