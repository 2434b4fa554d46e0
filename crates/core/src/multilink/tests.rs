//! The rules of Jo 2002, worked by hand, and what they promise whatever the numbers.

use std::collections::BTreeSet;

use anabranch_policy::spread::Table;
use proptest::prelude::*;

use super::*;
use crate::time::Time;

/// 559 200 bits: 100 ms of a sublink of 5.592 Mbit/s.
const BUFFER_BYTES: u64 = 69_900;
const K: usize = 8;

fn queues(lengths_bytes: [u64; K]) -> [Queue; K] {
    lengths_bytes.map(|length_bytes| Queue {
        length_bytes,
        buffer_bytes: BUFFER_BYTES,
        usable: true,
    })
}

fn dh() -> Controller {
    Controller::dh(Bins::new(K).unwrap(), &Parameters::default(), Time::ZERO).unwrap()
}

fn dhfv() -> Controller {
    let bins = Bins::new(K).unwrap();
    Controller::dhfv(bins, &Parameters::default(), Time::ZERO, &[0; BINS]).unwrap()
}

/// A linear congruential generator: any fixed sequence will do.
pub(crate) fn random(seed: u32) -> impl FnMut() -> u32 {
    let mut state = u64::from(seed);
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 32) as u32
    }
}

fn no_random() -> u32 {
    panic!("DHFV draws nothing")
}

fn ms(ms: u64) -> Time {
    Time::from_millis(ms)
}

#[test]
fn the_default_parameters_are_those_of_the_paper() {
    let p = Parameters::default();
    assert_eq!(
        (p.check_period, p.slot),
        (Duration::from_millis(25), Duration::from_millis(10))
    );
    assert_eq!((p.overload_percent, p.moved_percent, p.slots), (50, 10, 10));
}

#[test]
fn dh_looks_at_the_queues_every_25_ms_and_at_nothing_else() {
    let mut dh = dh();
    for now in [25, 50, 75] {
        assert_eq!(dh.wakeup(), (ms(now), Wakeup::Queues));
        dh.check_queues(ms(now), &queues([0; K]), random(1));
    }
}

#[test]
fn dhfv_records_every_10_ms_and_looks_every_25_ms_with_the_volumes_first() {
    let mut dhfv = dhfv();
    let order: Vec<_> = (0..7)
        .map(|_| {
            let (due, wakeup) = dhfv.wakeup();
            match wakeup {
                Wakeup::Volumes => dhfv.record_volumes(due, &[0; BINS]),
                Wakeup::Queues => assert!(
                    dhfv.check_queues(due, &queues([0; K]), no_random)
                        .is_empty()
                ),
            }
            (due.as_nanos() / 1_000_000, wakeup)
        })
        .collect();
    use Wakeup::{Queues, Volumes};
    let expected = [
        (10, Volumes),
        (20, Volumes),
        (25, Queues),
        (30, Volumes),
        (40, Volumes),
        (50, Volumes),
        (50, Queues),
    ];
    assert_eq!(order, expected);
}

#[test]
fn a_check_before_its_time_changes_nothing_and_missed_ones_are_not_made_up_for() {
    let mut dh = dh();
    let full = queues([BUFFER_BYTES, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(dh.check_queues(ms(24), &full, random(1)), []);
    assert_eq!(dh.wakeup().0, ms(25));
    dh.check_queues(ms(30), &full, random(1));
    assert_eq!(dh.wakeup().0, ms(50), "a late check keeps the rhythm");
    dh.check_queues(ms(100), &full, random(1));
    assert_eq!(dh.wakeup().0, ms(125));
}

/// 128 bins: a tenth is 12.8, so 13 move; of the 115 that are left a tenth is 11.5, so 12.
#[test]
fn dh_moves_a_tenth_of_the_overloaded_sublink_s_bins_while_its_queue_does_not_shrink() {
    let mut dh = dh();
    let mut random = random(7);
    let mut moved = |now, length_bytes| {
        let queues = queues([length_bytes, 9, 9, 2, 9, 9, 9, 9]);
        let moves = dh.check_queues(ms(now), &queues, &mut random);
        assert!(
            moves
                .iter()
                .all(|m| (m.from, m.to) == (SublinkId(0), SublinkId(3)))
        );
        moves.len()
    };
    assert_eq!(moved(25, 34_950), 0, "exactly half the buffer");
    assert_eq!(moved(50, 34_951), 13, "more than half, and growing");
    assert_eq!(moved(75, 50_000), 12, "still growing");
    assert_eq!(moved(100, 49_999), 0, "shrinking: the last move works");
    assert_eq!(
        moved(125, 49_999),
        11,
        "no longer shrinking: a tenth of 103"
    );
    assert_eq!(dh.bins().of(SublinkId(0)).count(), 92);
    assert_eq!(dh.bins().of(SublinkId(3)).count(), 164);
}

#[test]
fn dh_draws_the_bins_and_the_sublink_among_equally_light_ones() {
    let full = queues([BUFFER_BYTES, 0, 0, 0, 0, 0, 0, 0]);
    let drawn = |seed| dh().check_queues(ms(25), &full, random(seed));
    assert_eq!(drawn(1), drawn(1), "the same draws, the same moves");
    let targets: BTreeSet<_> = (0..100).map(|seed| drawn(seed)[0].to).collect();
    assert_eq!(targets, (1..8).map(SublinkId).collect());
    let bins: BTreeSet<_> = (0..100).flat_map(drawn).map(|m| m.bin).collect();
    assert_eq!(
        bins.len(),
        128,
        "100 draws of 13 of 128 bins leave none out"
    );
}

/// Sublink 0 has bins 0, 8, 16, …; bin 16 carries most of them, bin 1 of sublink 1 more than all.
#[test]
fn dhfv_moves_only_the_largest_bin_of_the_overloaded_sublink() {
    let mut dhfv = dhfv();
    let mut counters = [0; BINS];
    (counters[0], counters[8], counters[16], counters[1]) = (500, 4000, 9000, 50_000);
    dhfv.record_volumes(ms(10), &counters);
    let moves = dhfv.check_queues(ms(25), &queues([40_000, 9, 9, 2, 9, 9, 9, 9]), no_random);
    let expected = Move {
        bin: BinId(16),
        from: SublinkId(0),
        to: SublinkId(3),
    };
    assert_eq!(moves, [expected]);
    assert_eq!(dhfv.bins().sublink(BinId(16)), SublinkId(3));
}

/// The same sublink: bins 16, 8 and 0 carried most, less and least, and 117 others nothing.
#[test]
fn dhfv_moves_the_bin_that_its_parameters_name() {
    let moved = |bin, seed| {
        let parameters = Parameters {
            bin,
            ..Parameters::default()
        };
        let bins = Bins::new(K).unwrap();
        let mut dhfv = Controller::dhfv(bins, &parameters, Time::ZERO, &[0; BINS]).unwrap();
        let mut counters = [0; BINS];
        (counters[0], counters[8], counters[16], counters[1]) = (500, 4000, 9000, 50_000);
        dhfv.record_volumes(ms(10), &counters);
        let full = queues([40_000, 9, 9, 2, 9, 9, 9, 9]);
        let moves = dhfv.check_queues(ms(25), &full, random(seed));
        assert_eq!(moves.len(), 1, "{bin}");
        moves[0].bin
    };
    assert_eq!(moved(BinChoice::Largest, 1), BinId(16));
    assert_eq!(moved(BinChoice::Second, 1), BinId(8));
    assert_eq!(moved(BinChoice::Smallest, 1), BinId(0));
    let drawn: BTreeSet<_> = (0..50).map(|seed| moved(BinChoice::Random, seed)).collect();
    assert_eq!(drawn, [0, 8, 16].map(BinId).into());
}

#[test]
fn dhfv_forgets_what_a_bin_carried_more_than_ten_slots_ago() {
    let mut dhfv = dhfv();
    let mut counters = [0; BINS];
    counters[0] = 90_000;
    dhfv.record_volumes(ms(10), &counters);
    counters[8] = 100;
    for slot in 2..=10 {
        dhfv.record_volumes(ms(slot * 10), &counters);
    }
    let largest = |mut dhfv: Controller| {
        let full = queues([BUFFER_BYTES, 0, 0, 0, 0, 0, 0, 0]);
        dhfv.check_queues(ms(110), &full, no_random)[0].bin
    };
    assert_eq!(
        largest(dhfv.clone()),
        BinId(0),
        "90 kB in the oldest of ten slots"
    );
    dhfv.record_volumes(ms(110), &counters);
    assert_eq!(
        largest(dhfv),
        BinId(8),
        "100 bytes, and the 90 kB are forgotten"
    );
}

/// Sublinks 1 to 7 have empty queues; bins 1 to 7 carry 700, 600, … 100 bytes.
#[test]
fn dhfv_chooses_among_equally_light_sublinks_by_what_they_carry_moves_included() {
    let mut dhfv = dhfv();
    let mut counters = [0; BINS];
    for (bin, bytes) in (1..8).zip((1..8).rev()) {
        counters[bin] = bytes * 100;
    }
    (counters[0], counters[8]) = (5000, 4000);
    dhfv.record_volumes(ms(10), &counters);
    let mut target = |now, length_bytes| {
        dhfv.check_queues(
            ms(now),
            &queues([length_bytes, 0, 0, 0, 0, 0, 0, 0]),
            no_random,
        )[0]
        .to
    };
    assert_eq!(target(25, 40_000), SublinkId(7), "100 bytes");
    assert_eq!(
        target(50, 50_000),
        SublinkId(6),
        "200 bytes, where 7 has 5100 with the moved bin"
    );
}

/// Sublink 3 is the lightest, 5 is as heavy as 0, and 6 is heavier.
#[test]
fn dh_may_take_any_lighter_sublink_and_dhfv_takes_the_lightest() {
    let [dh, mut dhfv] = both(K, Recipient::Lighter);
    let queues = queues([40_000, 9, 30_000, 2, 39_999, 40_000, 50_000, 9]);
    let targets = (0..100).flat_map(|seed| dh.clone().check_queues(ms(25), &queues, random(seed)));
    let targets: BTreeSet<_> = targets
        .filter(|m| m.from == SublinkId(0))
        .map(|m| m.to)
        .collect();
    assert_eq!(targets, [1, 2, 3, 4, 7].map(SublinkId).into());
    dhfv.record_volumes(ms(10), &[1; BINS]);
    let moves = dhfv.check_queues(ms(25), &queues, no_random);
    assert_eq!(moves[0].to, SublinkId(3));
}

#[test]
fn dhfv_moves_nothing_from_a_sublink_whose_bins_carried_nothing() {
    let full = queues([BUFFER_BYTES, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(dhfv().check_queues(ms(25), &full, no_random), []);
}

#[test]
fn nothing_moves_while_every_sublink_is_equally_full() {
    assert_eq!(
        dh().check_queues(ms(25), &queues([BUFFER_BYTES; K]), random(1)),
        []
    );
}

#[test]
fn quanta_and_weights_are_in_the_ratio_of_the_rates() {
    let rates_bps = [10_000_000, 5_000_000, 20_000_000];
    assert_eq!(quanta(&rates_bps), [3028, 1514, 6056]);
    assert_eq!(weights(&rates_bps), [500_000, 250_000, 1_000_000]);
    assert_eq!(quanta(&[0, u64::MAX]), [0, u32::MAX]);
}

#[test]
fn a_parameter_out_of_range_is_refused_by_name() {
    let refused = |p: Parameters| {
        let error = Controller::dh(Bins::new(K).unwrap(), &p, Time::ZERO).unwrap_err();
        error.to_string()
    };
    let sound = Parameters::default();
    let error = refused(Parameters {
        moved_percent: 0,
        ..sound
    });
    assert_eq!(
        error,
        "parameter `moved_percent` of the trunk is out of range, allowed: 1 to 100"
    );
    assert!(
        refused(Parameters {
            overload_percent: 101,
            ..sound
        })
        .contains("`overload_percent`")
    );
    assert!(
        refused(Parameters {
            check_period: Duration::ZERO,
            ..sound
        })
        .contains("`check_period`")
    );
    assert!(
        refused(Parameters {
            slot: Duration::ZERO,
            ..sound
        })
        .contains("`slot`")
    );
    assert!(refused(Parameters { slots: 0, ..sound }).contains("`slots`"));
}

/// One step of a trunk's life: the queues of a check, and what the bins carried before it.
#[derive(Clone, Debug)]
struct Step {
    queues: Vec<Queue>,
    carried: Vec<(u16, u32)>,
}

fn steps() -> impl Strategy<Value = (usize, Vec<Step>)> {
    (1..=MAX_LINKS).prop_flat_map(|sublinks| {
        let length = prop_oneof![Just(0), Just(100_000), 0..100_000u64];
        let queue = (length, 1..100_000u64, prop::bool::weighted(0.9)).prop_map(
            |(length_bytes, buffer_bytes, usable)| Queue {
                length_bytes,
                buffer_bytes,
                usable,
            },
        );
        let step = (
            prop::collection::vec(queue, sublinks),
            prop::collection::vec((0..BINS as u16, 1..100_000u32), 0..50),
        )
            .prop_map(|(queues, carried)| Step { queues, carried });
        (Just(sublinks), prop::collection::vec(step, 1..30))
    })
}

/// Drives the controller as a driver would and hands over every check: queues before, queues, the packet path's table
/// before the moves, the moves.
fn drive(
    mut controller: Controller,
    steps: &[Step],
    mut seen: impl FnMut(&[Queue], &[Queue], &Table, &[Move]),
) -> (Controller, Table) {
    let mut table = *controller.bins().table();
    let mut counters = [0u64; BINS];
    let mut random = random(3);
    let mut before: Vec<_> = steps[0]
        .queues
        .iter()
        .map(|q| Queue {
            length_bytes: 0,
            ..*q
        })
        .collect();
    for Step { queues, carried } in steps {
        for &(bin, bytes) in carried {
            counters[usize::from(bin)] += u64::from(bytes);
        }
        while controller.wakeup().1 == Wakeup::Volumes {
            controller.record_volumes(controller.wakeup().0, &counters);
        }
        let moves = controller.check_queues(controller.wakeup().0, queues, &mut random);
        seen(&before, queues, &table, &moves);
        for found in &moves {
            table[found.bin.index()] = found.to.0;
        }
        before = queues.clone();
    }
    (controller, table)
}

/// DH and DHFV.
fn both(sublinks: usize, target: Recipient) -> [Controller; 2] {
    let bins = || Bins::new(sublinks).unwrap();
    let parameters = Parameters {
        target,
        ..Parameters::default()
    };
    [
        Controller::dh(bins(), &parameters, Time::ZERO).unwrap(),
        Controller::dhfv(bins(), &parameters, Time::ZERO, &[0; BINS]).unwrap(),
    ]
}

fn all(sublinks: usize) -> impl Iterator<Item = Controller> {
    let targets = [Recipient::Lightest, Recipient::Lighter].into_iter();
    targets.flat_map(move |target| both(sublinks, target))
}

/// The part of its buffer that a queue fills.
fn fill(queue: &Queue) -> f64 {
    queue.length_bytes as f64 / queue.buffer_bytes as f64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_moves_keep_the_packet_path_s_table_equal_to_the_controller_s_and_in_range((sublinks, steps) in steps()) {
        for controller in all(sublinks) {
            let (controller, table) = drive(controller, &steps, |_, _, table, moves| {
                let mut table = *table;
                for m in moves {
                    assert_eq!(table[m.bin.index()], m.from.0, "{m:?}");
                    table[m.bin.index()] = m.to.0;
                }
            });
            prop_assert_eq!(&table, controller.bins().table());
            prop_assert!(table.iter().all(|&sublink| usize::from(sublink) < sublinks));
            let total: usize = (0..sublinks).map(|s| controller.bins().of(SublinkId(s as u16)).count()).sum();
            prop_assert_eq!(total, BINS);
        }
    }

    #[test]
    fn bins_leave_only_queues_above_half_that_do_not_shrink_for_usable_ones((sublinks, steps) in steps()) {
        for controller in all(sublinks) {
            drive(controller, &steps, |before, queues, _, moves| {
                for m in moves {
                    let (from, to) = (&queues[m.from.index()], &queues[m.to.index()]);
                    assert!(from.length_bytes * 2 > from.buffer_bytes, "{m:?} from {from:?}");
                    assert!(from.length_bytes >= before[m.from.index()].length_bytes, "{m:?}: shrinking");
                    assert!(to.usable && fill(to) < fill(from), "{m:?} from {from:?} to {to:?}");
                }
            });
        }
    }

    #[test]
    fn bins_move_once_a_check_to_the_one_that_fills_least((sublinks, steps) in steps()) {
        for controller in both(sublinks, Recipient::Lightest) {
            drive(controller, &steps, |_, queues, _, moves| {
                let bins: BTreeSet<_> = moves.iter().map(|m| m.bin).collect();
                assert_eq!(bins.len(), moves.len());
                for m in moves {
                    let (from, to) = (&queues[m.from.index()], &queues[m.to.index()]);
                    assert!(fill(to) < fill(from), "{m:?} from {from:?} to {to:?}");
                    let lightest = queues.iter().filter(|q| q.usable).map(fill).fold(f64::MAX, f64::min);
                    assert_eq!(fill(to), lightest);
                }
            });
        }
    }

    #[test]
    fn a_period_moves_a_tenth_of_a_sublink_s_bins_in_dh_and_one_in_dhfv_to_a_single_place((sublinks, steps) in steps()) {
        for controller in all(sublinks) {
            let is_dh = controller.wakeup().1 == Wakeup::Queues;
            drive(controller, &steps, |_, _, table, moves| {
                let mut table = *table;
                for given in moves.chunk_by(|a, b| a.from == b.from) {
                    let from = given[0].from;
                    let had = table.iter().filter(|&&sublink| sublink == from.0).count();
                    let wanted = if is_dh { had.div_ceil(10) } else { 1 };
                    assert_eq!(given.len(), wanted, "of {had} bins of {from}");
                    assert!(given.iter().all(|m| m.to == given[0].to), "{given:?}");
                    for m in given {
                        table[m.bin.index()] = m.to.0;
                    }
                }
                let sources: BTreeSet<_> = moves.iter().map(|m| m.from).collect();
                assert_eq!(moves.chunk_by(|a, b| a.from == b.from).count(), sources.len());
            });
        }
    }
}
