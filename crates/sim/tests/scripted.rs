//! TCP through a pipe that loses or delays exactly the transmissions a test names.

use std::collections::BTreeMap;

use anabranch_core::Time;
use anabranch_sim::queue::EventQueue;
use anabranch_sim::tcp::{
    Endpoint, Kind, Recovery, SackBlocks, Segment, SenderCounters, State, TcpConfig,
};

const MS: u64 = 1_000_000;
const ONE_WAY_NS: u64 = 50 * MS;

/// What happens to one transmission.
#[derive(Clone, Copy)]
enum Fate {
    Lost,
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

/// The outcome of a transfer of 40 segments.
struct Outcome {
    counters: SenderCounters,
    finished_ns: u64,
    /// Times of data transmissions: number of the segment, in ns.
    sent: Vec<(u32, u64)>,
}

/// Transfers 40 segments; `script` maps a segment and which of its transmissions (from 0) to its fate.
fn transfer(config: &TcpConfig, script: &BTreeMap<(u32, u32), Fate>) -> Outcome {
    let mut events = EventQueue::default();
    let (mut opener, mut peer) = (Endpoint::new(config), Endpoint::new(config));
    let (mut sent, mut transmissions) = (Vec::new(), BTreeMap::new());
    opener.connect(0);
    opener.write(40 * u64::from(config.mss_bytes), config);
    opener.close();
    let mut now_ns = 0;
    while opener.state() != State::Closed {
        while let Some(segment) = opener.poll_segment(now_ns, config) {
            let mut fate = None;
            if matches!(segment.kind, Kind::Data | Kind::Fin) {
                let which = transmissions.entry(segment.number).or_insert(0);
                fate = script.get(&(segment.number, *which));
                *which += 1;
                sent.push((segment.number, now_ns));
            }
            let late_ns = match fate {
                Some(Fate::Lost) => continue,
                Some(Fate::Late(late_ns)) => *late_ns,
                None => 0,
            };
            let at = Time::from_nanos(now_ns + ONE_WAY_NS + late_ns);
            events.push(
                at,
                Event::Arrival {
                    at_opener: false,
                    segment,
                    sack: opener.sack(),
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
                    sack: peer.sack(),
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
                side.handle_segment(&segment, segment.sacks.then_some(&sack), now_ns, config);
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
    assert_eq!(peer.received_segments(), 41, "40 segments and the FIN");
    Outcome {
        counters: opener.counters(),
        finished_ns: now_ns,
        sent,
    }
}

fn config(recovery: Recovery) -> TcpConfig {
    TcpConfig {
        recovery,
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
fn repairs(outcome: &Outcome) -> (u64, u64, u64) {
    let counters = outcome.counters;
    (
        counters.fast_retransmits,
        counters.retransmitted,
        counters.timeouts,
    )
}

#[test]
fn without_loss_nothing_is_resent() {
    for recovery in [Recovery::Reno, Recovery::NewReno, Recovery::Sack] {
        let outcome = transfer(&config(recovery), &BTreeMap::new());
        assert_eq!(repairs(&outcome), (0, 0, 0));
        assert_eq!(outcome.counters.sent, 41);
    }
}

#[test]
fn sack_repairs_one_to_four_losses_of_a_window_in_one_recovery_without_a_timeout() {
    for losses in 1..=4u32 {
        let outcome = transfer(
            &config(Recovery::Sack),
            &losing((0..losses).map(|i| 12 + 2 * i)),
        );
        assert_eq!(
            repairs(&outcome),
            (1, u64::from(losses), 0),
            "{losses} losses"
        );
    }
}

#[test]
fn newreno_resends_one_hole_per_round_trip() {
    for losses in 1..=4u32 {
        let outcome = transfer(
            &config(Recovery::NewReno),
            &losing((0..losses).map(|i| 12 + 2 * i)),
        );
        assert_eq!(
            repairs(&outcome),
            (1, u64::from(losses), 0),
            "{losses} losses"
        );
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

/// Segment 2 arrives behind `places` later ones of its burst.
fn reordered(places: u32) -> BTreeMap<(u32, u32), Fate> {
    let behind = (2 + places + 1..=10).map(|number| ((number, 0), Fate::Late(2 * MS)));
    behind.chain([((2, 0), Fate::Late(MS))]).collect()
}

#[test]
fn reordering_by_less_than_three_segments_resends_nothing() {
    for recovery in [Recovery::Reno, Recovery::NewReno, Recovery::Sack] {
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
