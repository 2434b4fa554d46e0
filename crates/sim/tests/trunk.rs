//! A trunk in a network: whatever the spread, nothing is lost sight of, and each keeps what it promises.

use std::time::Duration;

use anabranch_core::Time;
use anabranch_core::multilink::{Parameters, QUANTUM_BYTES, SublinkId};
use anabranch_scenario::Spread;
use anabranch_sim::link::{Buffer, LinkSpec, Loss};
use anabranch_sim::tcp::TcpConfig;
use anabranch_sim::trunk::{Sublink, Trunk};
use anabranch_sim::world::{FlowSpec, Hop, Work, World};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const K: usize = 4;
const RATE_BPS: u64 = 5_592_000;
const BUFFER_BYTES: u64 = 69_900;

const SPREADS: [Spread; 8] = [
    Spread::Hash,
    Spread::Dh,
    Spread::Dhfv,
    Spread::Drr,
    Spread::Flowlet {
        gap: Duration::from_millis(20),
    },
    Spread::Rendezvous,
    Spread::Bonding,
    Spread::Mlppp,
];

fn line(rate_bps: u64, buffer: Buffer) -> LinkSpec {
    LinkSpec {
        rate_bps,
        delay_ns: MS,
        buffer,
        loss: Loss::None,
    }
}

/// A download: when it is asked for, the flow's hash, its bytes.
#[derive(Clone, Copy, Debug)]
struct Download {
    at_ms: u64,
    hash: u32,
    bytes: u64,
}

fn tcp() -> TcpConfig {
    TcpConfig {
        initial_window: 2,
        receive_window: 44,
        ..TcpConfig::default()
    }
}

/// Servers right at the trunk's node, clients behind 100 Mbit/s.
fn world(spread: Spread, downloads: &[Download], seed: u64) -> World<Trunk> {
    let mut world = World::new(seed);
    let spec = line(RATE_BPS, Buffer::Bytes(BUFFER_BYTES));
    let sublinks = (0..K).map(|_| Sublink {
        link: world.add_link(spec),
        rate_bps: spec.rate_bps,
        buffer: spec.buffer,
    });
    let sublinks: Vec<_> = sublinks.collect();
    let access = line(100_000_000, Buffer::Unlimited);
    let (down, up) = (world.add_link(access), world.add_link(access));
    let mut trunk = Trunk::new(sublinks, spread, &Parameters::default(), seed)
        .expect("four sublinks are a trunk");
    let to_client = trunk.client(down).expect("one client");
    let forward = world.add_path(&[up]);
    let back = world.add_path(&[Hop::from(Trunk::NODE), to_client]);
    for download in downloads {
        let spec = FlowSpec {
            start: Time::from_millis(download.at_ms),
            work: Work::Request {
                request_bytes: 200,
                response_bytes: download.bytes,
            },
            forward,
            back,
            tcp: tcp(),
        };
        world.open_labelled(spec, download.hash);
    }
    let mut world = world.become_site(trunk);
    let (trunk, net) = world.parts();
    trunk.begin(net);
    world
}

fn run(spread: Spread, downloads: &[Download], seed: u64) -> World<Trunk> {
    let mut world = world(spread, downloads, seed);
    world.run_until(Time::from_millis(5_000));
    world
}

/// Bytes offered to each sublink.
fn offered_bytes(world: &World<Trunk>) -> Vec<u64> {
    let sublinks = world.site.sublinks().iter();
    let offered = |sublink: &Sublink| world.counters(sublink.link).offered.bytes;
    sublinks.map(offered).collect()
}

/// Two files whose flows share a sublink, and small ones everywhere: more than that sublink can carry.
fn crowded() -> Vec<Download> {
    let large = [0, 4].map(|hash| Download {
        at_ms: 10,
        hash,
        bytes: 1_000_000,
    });
    let small = (0..60u32).map(|i| Download {
        at_ms: 15 * u64::from(i),
        hash: i.wrapping_mul(2_654_435_761),
        bytes: 5_000,
    });
    large.into_iter().chain(small).collect()
}

fn downloads() -> impl Strategy<Value = Vec<Download>> {
    let download = (0..1_000u64, any::<u32>(), 1..300_000u64)
        .prop_map(|(at_ms, hash, bytes)| Download { at_ms, hash, bytes });
    prop::collection::vec(download, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn every_packet_is_in_one_place_under_every_spread(downloads in downloads(), seed: u64) {
        for spread in SPREADS {
            let world = run(spread, &downloads, seed);
            prop_assert!(world.conserves(), "{spread}");
            prop_assert_eq!(world.site.unsent().packets, 0);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_trajectory(downloads in downloads(), seed: u64) {
        for spread in SPREADS {
            let [a, b] = [(); 2].map(|()| run(spread, &downloads, seed).trajectory());
            prop_assert_eq!(a, b, "{}", spread);
        }
    }

    #[test]
    fn hashing_never_reorders_nor_does_the_far_end_of_mlppp(downloads in downloads(), seed: u64) {
        for spread in [Spread::Hash, Spread::Rendezvous, Spread::Bonding, Spread::Mlppp] {
            prop_assert_eq!(run(spread, &downloads, seed).reordered(), 0);
        }
    }

    /// A sublink has at most a quantum and a packet more than another.
    #[test]
    fn round_robin_is_even_within_a_quantum(downloads in downloads()) {
        for spread in [Spread::Drr, Spread::Mlppp] {
            let bytes = offered_bytes(&run(spread, &downloads, 1));
            let apart = bytes.iter().max().unwrap() - bytes.iter().min().unwrap();
            prop_assert!(apart <= u64::from(QUANTUM_BYTES) + 1500, "{spread}: {bytes:?}");
        }
    }

    #[test]
    fn a_sublink_that_is_not_usable_gets_nothing(downloads in downloads(), gone in 0..K as u16) {
        for spread in SPREADS {
            let mut world = world(spread, &downloads, 1);
            world.site.set_usable(SublinkId(gone), false);
            world.run_until(Time::from_millis(5_000));
            let bytes = offered_bytes(&world);
            prop_assert_eq!(bytes[usize::from(gone)], 0, "{}", spread);
            prop_assert!(bytes.iter().sum::<u64>() > 0);
        }
    }
}

#[test]
fn moved_bins_relieve_an_overloaded_sublink_and_reorder_the_flows_they_take() {
    let sh = run(Spread::Hash, &crowded(), 1);
    assert_eq!((sh.site.reassignments(), sh.reordered()), (0, 0));
    for spread in [Spread::Dh, Spread::Dhfv] {
        let moved = run(spread, &crowded(), 1);
        assert!(moved.site.reassignments() > 0, "{spread}");
        assert!(moved.reordered() > 0, "{spread}");
        let most = |world| offered_bytes(world).into_iter().max().unwrap();
        assert!(most(&moved) < most(&sh), "{spread}");
    }
}

/// As the daemon, which reads carriers every 50 ms.
#[test]
fn a_sublink_without_carrier_takes_packets_until_the_next_look_at_carriers_and_after_its_return() {
    let mut world = world(Spread::Dhfv, &crowded(), 1);
    world.run_until(Time::from_millis(120));
    let (trunk, net) = world.parts();
    trunk.set_carrier(net, SublinkId(1), false);
    world.run_until(Time::from_millis(149));
    assert!(world.site.is_usable(SublinkId(1)));
    world.run_until(Time::from_millis(151));
    assert!(!world.site.is_usable(SublinkId(1)));
    let before = offered_bytes(&world);
    world.run_until(Time::from_millis(250));
    let after = offered_bytes(&world);
    assert!(after[1] == before[1] && after[0] > before[0], "{after:?}");
    let (trunk, net) = world.parts();
    trunk.set_carrier(net, SublinkId(1), true);
    world.run_until(Time::from_millis(2_000));
    assert!(offered_bytes(&world)[1] > after[1]);
}

#[test]
fn a_sublink_that_is_usable_again_takes_packets_again() {
    let mut world = world(Spread::Hash, &crowded(), 1);
    world.site.set_usable(SublinkId(0), false);
    world.run_until(Time::from_millis(300));
    assert_eq!(offered_bytes(&world)[0], 0);
    world.site.set_usable(SublinkId(0), true);
    world.run_until(Time::from_millis(2_000));
    assert!(offered_bytes(&world)[0] > 100_000);
}

/// Files that no queue overflows for: every connection sends one segment with SYN over the trunk.
fn sparse() -> Vec<Download> {
    let download = |i: u32| Download {
        at_ms: 40 * u64::from(i),
        hash: i.wrapping_mul(2_654_435_761),
        bytes: 3_000,
    };
    (0..50).map(download).collect()
}

#[test]
fn a_connection_is_counted_where_its_first_packet_goes() {
    let downloads = sparse();
    for spread in SPREADS {
        let world = run(spread, &downloads, 1);
        let opened: u64 = world.site.opened().iter().sum();
        assert_eq!(opened, 50, "{spread}");
    }
    let world = run(Spread::Hash, &downloads, 1);
    let on = |sublink| {
        let own = downloads.iter().filter(|d| d.hash % K as u32 == sublink);
        own.count() as u64
    };
    assert_eq!(world.site.opened(), [0, 1, 2, 3].map(on));
}

#[test]
fn a_connection_is_counted_again_whenever_its_first_packet_is_repeated() {
    let download = Download {
        at_ms: 0,
        hash: 2,
        bytes: 3_000,
    };
    let mut world = world(Spread::Hash, &[download], 1);
    let sublink = world.site.sublinks()[2].link;
    world.parts().1.cut(sublink);
    // Repeated after the timeout of RFC 6298, section 2.1, which is a second: by the server, and for the client's SYN.
    world.run_until(Time::from_millis(900));
    assert_eq!(world.site.opened(), [0, 0, 1, 0]);
    world.run_until(Time::from_millis(1_500));
    assert_eq!(world.site.opened(), [0, 0, 3, 0]);
    world.parts().1.restore(sublink);
    world.run_until(Time::from_millis(9_000));
    let received = offered_bytes(&world)[2];
    assert!(received > 3_000, "{received}");
    assert_eq!(world.site.unsent().packets, 0);
}

#[test]
fn a_packet_that_finds_no_usable_sublink_is_counted_and_gone() {
    let mut world = world(Spread::Dhfv, &crowded(), 1);
    for sublink in 0..K as u16 {
        world.site.set_usable(SublinkId(sublink), false);
    }
    world.run_until(Time::from_millis(500));
    assert!(world.site.unsent().packets > 0);
    assert_eq!(world.site.opened(), [0; K]);
    assert_eq!(offered_bytes(&world), [0; K]);
    assert!(world.conserves());
}

/// A gap above the difference of the queues lets no packet overtake; one below every pause is a spread by packet.
#[test]
fn flowlets_keep_order_if_the_gap_outlasts_the_queues_and_not_if_it_is_nothing() {
    let of_gap = |ms| {
        let gap = Duration::from_millis(ms);
        run(Spread::Flowlet { gap }, &crowded(), 1)
    };
    assert_eq!(of_gap(150).reordered(), 0);
    assert!(of_gap(0).reordered() > 0);
}

/// Sublinks lose a packet of fifty: what is missing is given up, and what comes after it is in order.
#[test]
fn mlppp_goes_on_without_what_is_lost() {
    let lossy = |spread| {
        let mut world = world(spread, &crowded(), 1);
        for sublink in world.site.sublinks().to_vec() {
            let loss = Loss::Independent { probability: 0.02 };
            world.parts().1.set_loss(sublink.link, loss);
        }
        world.run_until(Time::from_millis(5_000));
        assert!(world.conserves());
        let lost = |sublink: &Sublink| world.counters(sublink.link).lost.packets;
        assert!(world.site.sublinks().iter().map(lost).sum::<u64>() > 10);
        world
    };
    assert!(lossy(Spread::Drr).reordered() > 0);
    let mlppp = lossy(Spread::Mlppp);
    assert_eq!(mlppp.site.late().packets, 0);
    let received = |world: &World<Trunk>| offered_bytes(world).iter().sum::<u64>();
    assert!(received(&mlppp) > received(&lossy(Spread::Hash)) / 2);
}
