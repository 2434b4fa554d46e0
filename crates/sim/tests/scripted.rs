//! TCP through a pipe that loses or delays exactly the transmissions a test names.

use std::collections::BTreeMap;

use anabranch_core::Time;
use anabranch_sim::queue::EventQueue;
use anabranch_sim::tcp::{
    Endpoint, Flags, Kind, Recovery, SackBlocks, Segment, SenderCounters, State, TcpConfig, Window,
};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const MS: u64 = 1_000_000;
const ONE_WAY_NS: u64 = 50 * MS;

/// What happens to one transmission.
#[derive(Clone, Copy)]
enum Fate {
    Lost,
    /// Arrives with a mark of congestion.
    Marked,
    /// Arrives so many ns late.
    Late(u64),
}

#[derive(Clone, Copy)]
enum Event {
    Arrival {
        at_opener: bool,
        segment: Segment,
        sack: SackBlocks,
    },
    Wake,
}

/// The outcome of a transfer.
#[derive(Debug)]
struct Outcome {
    counters: SenderCounters,
    window: Window,
    finished_ns: u64,
    /// Times of data transmissions: number of the segment, in ns.
    sent: Vec<(u32, u64)>,
    /// And with which bits.
    flags: Vec<Flags>,
}

/// Transfers 40 segments; `script` maps a segment (0 is the SYN) and which of its transmissions (from 0) to its fate.
fn transfer(config: &TcpConfig, script: &BTreeMap<(u32, u32), Fate>) -> Outcome {
    transfer_of(40, config, |number, which| {
        script.get(&(number, which)).copied()
    })
}

fn transfer_of(
    segments: u32,
    config: &TcpConfig,
    mut fate_of: impl FnMut(u32, u32) -> Option<Fate>,
) -> Outcome {
    let mut events = EventQueue::default();
    let (mut opener, mut peer) = (Endpoint::new(config, 1), Endpoint::new(config, 2));
    let (mut sent, mut flags, mut transmissions) = (Vec::new(), Vec::new(), BTreeMap::new());
    opener.connect(0);
    opener.write(u64::from(segments) * u64::from(config.mss_bytes), config);
    opener.close();
    let mut now_ns = 0;
    while opener.state() != State::Closed {
        while let Some(mut segment) = opener.poll_segment(now_ns, config) {
            let mut fate = None;
            if matches!(segment.kind, Kind::Syn | Kind::Data | Kind::Fin) {
                let which = transmissions.entry(segment.number).or_insert(0);
                fate = fate_of(segment.number, *which);
                *which += 1;
                if segment.kind != Kind::Syn {
                    sent.push((segment.number, now_ns));
                    flags.push(segment.flags);
                }
            }
            let late_ns = match fate {
                Some(Fate::Lost) => continue,
                Some(Fate::Marked) => {
                    segment.flags = segment.flags.with(Flags::CE, true);
                    0
                }
                Some(Fate::Late(late_ns)) => late_ns,
                None => 0,
            };
            let at = Time::from_nanos(now_ns + ONE_WAY_NS + late_ns);
            events.push(
                at,
                Event::Arrival {
                    at_opener: false,
                    segment,
                    sack: opener.take_sack(),
                },
            );
        }
        while let Some(segment) = peer.poll_segment(now_ns, config) {
            let at = Time::from_nanos(now_ns + ONE_WAY_NS);
            events.push(
                at,
                Event::Arrival {
                    at_opener: true,
                    segment,
                    sack: peer.take_sack(),
                },
            );
        }
        for deadline_ns in opener.poll_timeout().into_iter().chain(peer.poll_timeout()) {
            events.push(Time::from_nanos(deadline_ns), Event::Wake);
        }
        let (time, event) = events
            .pop()
            .expect("a connection that is not closed waits for something");
        now_ns = time.as_nanos();
        assert!(now_ns < 600_000 * MS, "the transfer does not end");
        match event {
            Event::Arrival {
                at_opener,
                segment,
                sack,
            } => {
                let side = if at_opener { &mut opener } else { &mut peer };
                side.handle_segment(
                    &segment,
                    segment.flags.has(Flags::SACK).then_some(&sack),
                    now_ns,
                    config,
                );
            }
            Event::Wake => {
                opener.handle_timeout(now_ns, config);
                peer.handle_timeout(now_ns, config);
            }
        }
        if peer.received_all() {
            peer.close();
        }
    }
    assert_eq!(peer.received_segments(), segments + 1, "and the FIN");
    Outcome {
        counters: opener.counters(),
        window: opener.window().clone(),
        finished_ns: now_ns,
        sent,
        flags,
    }
}

fn config(recovery: Recovery) -> TcpConfig {
    TcpConfig {
        recovery,
        dsack: recovery == Recovery::Rack,
        ..TcpConfig::default()
    }
}

/// Loses the first transmission of each of `numbers`.
fn losing(numbers: impl IntoIterator<Item = u32>) -> BTreeMap<(u32, u32), Fate> {
    numbers
        .into_iter()
        .map(|number| ((number, 0), Fate::Lost))
        .collect()
}

/// Fast retransmits, retransmissions, timeouts.
fn repairs(outcome: &Outcome) -> (u32, u32, u32) {
    let counters = outcome.counters;
    (
        counters.fast_retransmits,
        counters.retransmitted,
        counters.timeouts,
    )
}

const ALL: [Recovery; 5] = [
    Recovery::Reno,
    Recovery::NewReno,
    Recovery::NewRenoSlowButSteady,
    Recovery::Sack,
    Recovery::Rack,
];

#[test]
fn without_loss_nothing_is_resent() {
    for recovery in ALL {
        let outcome = transfer(&config(recovery), &BTreeMap::new());
        assert_eq!(repairs(&outcome), (0, 0, 0));
        assert_eq!(outcome.counters.sent, 41);
    }
}

#[test]
fn sack_and_rack_repair_one_to_four_losses_of_a_window_in_one_recovery_without_a_timeout() {
    for recovery in [Recovery::Sack, Recovery::Rack] {
        for losses in 1..=4u32 {
            let holes = (0..losses).map(|i| 12 + 2 * i);
            let outcome = transfer(&config(recovery), &losing(holes));
            assert_eq!(
                repairs(&outcome),
                (1, losses, 0),
                "{recovery:?}, {losses} losses"
            );
        }
    }
}

#[test]
fn newreno_resends_one_hole_per_round_trip() {
    for losses in 1..=4u32 {
        let outcome = transfer(
            &config(Recovery::NewReno),
            &losing((0..losses).map(|i| 12 + 2 * i)),
        );
        assert_eq!(repairs(&outcome), (1, losses, 0), "{losses} losses");
        let again: Vec<u64> = (0..losses)
            .map(|i| {
                let of_hole = |(number, _): &&(u32, u64)| *number == 12 + 2 * i;
                outcome
                    .sent
                    .iter()
                    .filter(of_hole)
                    .nth(1)
                    .expect("the hole is resent")
                    .1
            })
            .collect();
        for pair in again.windows(2) {
            assert_eq!(pair[1] - pair[0], 2 * ONE_WAY_NS);
        }
    }
}

/// All 41 segments in one burst, of which every other from 2 to 30 is lost.
fn fifteen_of_a_burst(recovery: Recovery) -> Outcome {
    let burst = TcpConfig {
        initial_window: 41,
        ..config(recovery)
    };
    transfer(&burst, &losing((1..=15).map(|i| 2 * i)))
}

#[test]
fn impatient_newreno_times_out_one_timeout_after_the_first_partial_acknowledgement() {
    let outcome = fifteen_of_a_burst(Recovery::NewReno);
    assert_eq!(outcome.counters.timeouts, 1);
    let sent_ms = |number, which| {
        let of = outcome.sent.iter().filter(|(other, _)| *other == number);
        of.map(|(_, ns)| ns / MS).nth(which)
    };
    // The burst leaves at 100 ms, holes are filled from 200 ms on, and 300 ms brings the first partial acknowledgement.
    let filled: Vec<_> = (1..=11).map(|i| sent_ms(2 * i, 1)).collect();
    let every_round_trip: Vec<_> = (2..=12).map(|i| Some(100 * i)).collect();
    assert_eq!(filled, every_round_trip);
    assert_eq!(sent_ms(22, 2), Some(1300), "1 s after the first");
}

#[test]
fn slow_but_steady_newreno_fills_one_hole_per_round_trip_to_the_end() {
    let outcome = fifteen_of_a_burst(Recovery::NewRenoSlowButSteady);
    assert_eq!(repairs(&outcome), (1, 15, 0));
    assert_eq!(outcome.finished_ns, 200 * MS + 15 * 2 * ONE_WAY_NS);
}

#[test]
fn reno_repairs_one_loss_fast_and_needs_a_timeout_for_more() {
    let one = transfer(&config(Recovery::Reno), &losing([12]));
    assert_eq!(repairs(&one), (1, 1, 0));
    let three = transfer(&config(Recovery::Reno), &losing([12, 14, 16]));
    assert!(three.counters.timeouts >= 1);
    assert!(three.finished_ns > one.finished_ns + 800 * MS);
}

#[test]
fn a_lost_retransmission_waits_for_the_timer() {
    for recovery in [Recovery::NewReno, Recovery::Sack] {
        let mut script = losing([12]);
        script.insert((12, 1), Fate::Lost);
        let outcome = transfer(&config(recovery), &script);
        let (fast, _, timeouts) = repairs(&outcome);
        assert_eq!((fast, timeouts), (1, 1), "{recovery:?}");
    }
}

#[test]
fn a_tail_that_no_acknowledgement_follows_is_resent_after_one_timeout() {
    let outcome = transfer(&config(Recovery::Sack), &losing([40, 41]));
    let (fast, resent, timeouts) = repairs(&outcome);
    assert_eq!((fast, resent, timeouts), (0, 2, 1));
}

#[test]
fn rack_finds_a_lost_retransmission_by_what_was_sent_after_it() {
    let mut script = losing([12]);
    script.insert((12, 1), Fate::Lost);
    let outcome = transfer(&config(Recovery::Rack), &script);
    assert_eq!(repairs(&outcome), (1, 2, 0));
    let sent: Vec<u64> = outcome
        .sent
        .iter()
        .filter(|(number, _)| *number == 12)
        .map(|(_, ns)| ns / MS)
        .collect();
    // Lost at 200 ms, missed at 300 ms when three segments above have come, and again one round trip later.
    assert_eq!(sent, [200, 300, 400]);
}

#[test]
fn rack_probes_a_lost_tail_after_two_round_trips() {
    let outcome = transfer(&config(Recovery::Rack), &losing([40, 41]));
    let counters = outcome.counters;
    assert_eq!((counters.probes, counters.timeouts), (1, 0));
    let tail = outcome.sent.iter().filter(|(number, _)| *number >= 40);
    let tail: Vec<(u32, u64)> = tail.map(|(number, ns)| (*number, ns / MS)).collect();
    // The receiver is last heard at 400 ms; the probe's answer comes at 700 ms.
    assert_eq!(tail, [(40, 300), (41, 300), (41, 600), (40, 700)]);
}

/// Segment 2 arrives behind `places` later ones of its burst.
fn reordered(places: u32) -> BTreeMap<(u32, u32), Fate> {
    let behind = (2 + places + 1..=10).map(|number| ((number, 0), Fate::Late(2 * MS)));
    behind.chain([((2, 0), Fate::Late(MS))]).collect()
}

#[test]
fn reordering_by_less_than_three_segments_resends_nothing() {
    for recovery in ALL {
        for places in 1..=2 {
            let outcome = transfer(&config(recovery), &reordered(places));
            assert_eq!(repairs(&outcome), (0, 0, 0), "{recovery:?} by {places}");
        }
    }
}

#[test]
fn reordering_by_three_or_more_is_taken_for_one_loss_by_sack() {
    for places in 3..=5 {
        let outcome = transfer(&config(Recovery::Sack), &reordered(places));
        assert_eq!(repairs(&outcome), (1, 1, 0), "by {places}");
    }
}

/// Segments that leave as soon as the connection stands, if so many SYNs are lost and the first window is 10.
fn first_window(lost: u32, lost_syns: u32) -> usize {
    let config = TcpConfig {
        lost_syns,
        ..config(Recovery::Sack)
    };
    let script = (0..lost).map(|which| ((0, which), Fate::Lost)).collect();
    let sent = transfer(&config, &script).sent;
    sent.iter().filter(|(_, ns)| *ns == sent[0].1).count()
}

#[test]
fn one_lost_syn_may_be_a_long_round_trip_and_two_are_congestion() {
    assert_eq!(
        [0, 1, 2, 3].map(|lost| first_window(lost, 2)),
        [10, 10, 1, 1]
    );
}

#[test]
fn the_first_lost_syn_counts_where_rfc_5681_is_wanted() {
    assert_eq!([0, 1, 2].map(|lost| first_window(lost, 1)), [10, 1, 1]);
}

#[test]
fn a_recovery_in_vain_gives_the_window_back() {
    for recovery in [Recovery::Sack, Recovery::Rack] {
        let told = TcpConfig {
            dsack: true,
            ..config(recovery)
        };
        let outcome = transfer(&told, &reordered(5));
        assert_eq!(repairs(&outcome), (1, 1, 0), "{recovery:?}");
        assert_eq!(outcome.counters.undone, 1);
        assert_eq!(outcome.window.ssthresh(), f64::MAX, "slow start goes on");
        let untold = TcpConfig {
            dsack: false,
            ..told
        };
        let reduced = transfer(&untold, &reordered(5));
        assert_eq!(reduced.counters.undone, 0);
        assert!(reduced.window.cwnd() < outcome.window.cwnd());
    }
}

#[test]
fn a_recovery_that_repaired_a_loss_keeps_the_window_reduced() {
    let mut script = losing([12]);
    script.extend(reordered(5));
    let told = TcpConfig {
        dsack: true,
        ..config(Recovery::Sack)
    };
    let outcome = transfer(&told, &script);
    assert!(outcome.window.ssthresh() < 20., "{outcome:?}");
}

#[test]
fn rack_waits_a_quarter_of_a_round_trip_once_it_has_seen_reordering() {
    let late_by_a_millisecond = BTreeMap::from([((12, 0), Fate::Late(MS))]);
    let strange = transfer(&config(Recovery::Rack), &late_by_a_millisecond);
    assert_eq!(repairs(&strange).1, 1, "behind eighteen of its burst");
    let mut known = late_by_a_millisecond;
    known.extend(reordered(1));
    let known = transfer(&config(Recovery::Rack), &known);
    assert_eq!(repairs(&known), (0, 0, 0));
}

/// 3000 segments, each up to `late_ns` late.
fn late(recovery: Recovery, late_ns: u64, seed: u64) -> Outcome {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let bounded = TcpConfig {
        receive_window: 64,
        ..config(recovery)
    };
    let fate = |_, _| Some(Fate::Late(random.random_range(0..late_ns)));
    transfer_of(3000, &bounded, fate)
}

/// Segments from `first` on that were sent again.
fn resent_from(first: u32, outcome: &Outcome) -> usize {
    let all = outcome.sent.iter().map(|(number, _)| *number);
    let mut sent: Vec<u32> = all.filter(|number| *number >= first).collect();
    let all = sent.len();
    sent.sort_unstable();
    sent.dedup();
    all - sent.len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn what_is_late_by_less_than_a_quarter_of_a_round_trip_is_not_resent(
        late_ms in 1u64..25,
        seed: u64,
    ) {
        let outcome = late(Recovery::Rack, late_ms * MS, seed);
        prop_assert_eq!(resent_from(100, &outcome), 0);
    }

    /// Every recovery in vain makes the reordering window longer by a quarter of a round trip, and is taken back unless the
    /// next begins before that is known.
    #[test]
    fn what_is_late_by_more_is_resent_until_the_window_has_grown(late_ms in 25u64..90, seed: u64) {
        let counters = late(Recovery::Rack, late_ms * MS, seed).counters;
        prop_assert!(u64::from(counters.fast_retransmits) <= 1 + late_ms / 25, "{counters:?}");
        prop_assert!(counters.undone + 1 >= counters.fast_retransmits, "{counters:?}");
        prop_assert_eq!(counters.timeouts, 0);
        let counted = late(Recovery::Sack, late_ms * MS, seed).counters;
        prop_assert!(counted.fast_retransmits > 20, "{counted:?}");
    }
}

fn with_ecn() -> TcpConfig {
    TcpConfig {
        ecn: true,
        ..config(Recovery::Sack)
    }
}

fn marking(numbers: impl IntoIterator<Item = u32>) -> BTreeMap<(u32, u32), Fate> {
    let numbers = numbers.into_iter();
    numbers.map(|number| ((number, 0), Fate::Marked)).collect()
}

#[test]
fn a_mark_halves_the_window_and_resends_nothing() {
    let outcome = transfer(&with_ecn(), &marking([12]));
    assert_eq!((repairs(&outcome), outcome.counters.marked), ((0, 0, 0), 1));
    assert!(outcome.window.ssthresh() < 12., "{:?}", outcome.window);
    let unmarked = transfer(&with_ecn(), &BTreeMap::new());
    assert!(outcome.finished_ns > unmarked.finished_ns);
}

#[test]
fn all_marks_of_a_window_are_one_reduction_and_those_of_the_next_another() {
    // Segments 11 to 30 leave in the second round trip.
    let marked = |numbers: &[u32]| {
        let script = marking(numbers.iter().copied());
        transfer(&with_ecn(), &script).counters.marked
    };
    let window: Vec<u32> = (11..=30).collect();
    assert_eq!((marked(&window), marked(&[12, 20])), (1, 1));
    assert_eq!(marked(&[12, 38]), 2);
}

#[test]
fn a_reduction_is_told_once_and_only_new_data_may_be_marked() {
    let mut script = marking([5]);
    script.extend(losing([30]));
    let outcome = transfer(&with_ecn(), &script);
    let with = |flag| {
        let flags = outcome.sent.iter().zip(&outcome.flags);
        flags
            .filter(move |(_, flags)| flags.has(flag))
            .map(|((number, _), _)| *number)
    };
    assert_eq!(with(Flags::CWR).count(), 2, "a mark, a loss");
    let all: Vec<u32> = (1..=40).collect();
    let mut capable: Vec<u32> = with(Flags::ECT).collect();
    capable.sort_unstable();
    assert_eq!(capable, all, "neither the FIN nor segment 30 again");
}

#[test]
fn without_ecn_nothing_may_be_marked() {
    let outcome = transfer(&config(Recovery::Sack), &BTreeMap::new());
    assert!(outcome.flags.iter().all(|flags| *flags == Flags::default()));
}

#[test]
fn timeouts_back_off_and_karn_keeps_the_estimate_of_what_was_resent() {
    let script = (0..4).map(|which| ((1, which), Fate::Lost)).collect();
    let alone = TcpConfig {
        initial_window: 1,
        ..config(Recovery::Sack)
    };
    let outcome = transfer(&alone, &script);
    let first: Vec<u64> = outcome
        .sent
        .iter()
        .filter(|(number, _)| *number == 1)
        .map(|(_, ns)| ns / MS)
        .collect();
    assert_eq!(first, [100, 1100, 3100, 7100, 15_100]);
    assert_eq!(outcome.counters.timeouts, 4);
}
