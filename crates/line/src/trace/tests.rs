use std::time::Duration;

use proptest::prelude::*;

use super::*;

const MS: u64 = NS_PER_MS;

fn opportunities(text: &str) -> Opportunities {
    let trace = Trace::parse(text).unwrap_or_else(|error| panic!("{error}"));
    Opportunities::new(Arc::new(trace), 0)
}

fn lte() -> Lte {
    Lte {
        mean_bps: 20_000_000,
        variation: 0.4,
        outage: Duration::from_millis(200),
        between: Duration::from_secs(5),
        length: Duration::from_secs(60),
        seed: 1,
    }
}

fn cable() -> Cable {
    Cable {
        steady_bps: 10_000_000,
        boost_bps: 40_000_000,
        burst_bytes: 1_000_000,
        dip: 0.3,
        day: Duration::from_secs(600),
        length: Duration::from_secs(60),
        seed: 1,
    }
}

#[test]
fn full_packets_leave_at_the_lines_of_the_file_which_repeats_at_its_end() {
    let mut line = opportunities("1\n3\n3\n10\n");
    let departures: Vec<u64> = (0..7).map(|_| line.depart(0, 1500) / MS).collect();
    assert_eq!(departures, [1, 3, 3, 10, 11, 13, 13]);
    assert_eq!(Trace::parse("1\n3\n3\n10\n").unwrap().mean_bps(), 4_800_000);
}

#[test]
fn an_opportunity_takes_several_packets_or_a_part_of_one() {
    let mut line = opportunities("5\n6\n");
    let mut depart = |bytes| line.depart(0, bytes) / MS;
    assert_eq!(
        [depart(700), depart(800), depart(1), depart(1500)],
        [5, 5, 6, 11]
    );
}

#[test]
fn what_nobody_used_is_lost() {
    let mut line = opportunities("5\n6\n");
    assert_eq!(line.depart(0, 100), 5 * MS);
    // The rest of the first opportunity is for what is there at its time, and no later.
    assert_eq!(line.depart(5 * MS, 100), 5 * MS);
    assert_eq!(line.depart(5 * MS + 1, 1500), 6 * MS);
    assert_eq!(line.depart(600 * MS + 1, 1500), 605 * MS);
}

#[test]
fn the_end_of_a_period_and_the_beginning_of_the_next_are_two_opportunities() {
    let mut line = opportunities("0\n10\n");
    let departures: Vec<u64> = (0..4).map(|_| line.depart(0, 1500) / MS).collect();
    assert_eq!(departures, [0, 10, 10, 20]);
    assert_eq!(
        [line.depart(100 * MS, 1500), line.depart(0, 1500)],
        [100 * MS; 2]
    );
}

#[test]
fn what_is_given_back_can_be_used_again() {
    let mut line = opportunities("5\n6\n");
    (0..9).for_each(|_| _ = line.depart(0, 1500));
    line.give_back(7 * MS);
    assert_eq!(line.depart(7 * MS, 1500), 11 * MS);
}

#[test]
fn the_next_opportunity_is_one_that_is_not_used_up() {
    let mut line = opportunities("5\n6\n");
    assert_eq!(line.next_ns(0), 5 * MS);
    line.depart(0, 1000);
    assert_eq!(line.next_ns(5 * MS), 5 * MS);
    line.depart(0, 500);
    assert_eq!(line.next_ns(5 * MS), 6 * MS);
}

#[test]
fn a_malformed_trace_is_refused_with_its_line_and_why() {
    for (text, message) in [
        (
            "",
            "line 1: no opportunity; write one a line, in milliseconds",
        ),
        (
            "0\n0\n",
            "line 2: the trace takes no time; it must end after 0",
        ),
        (
            "3\n2\n",
            "line 2: 2 ms is before the line above, 3 ms; times must not fall",
        ),
        (
            "1\n\n2\n",
            "line 2: \"\" is no time; allowed: whole milliseconds from 0 to 4294967295",
        ),
        (
            "1\n1.5\n",
            "line 2: \"1.5\" is no time; allowed: whole milliseconds from 0 to 4294967295",
        ),
        (
            "-1\n",
            "line 1: \"-1\" is no time; allowed: whole milliseconds from 0 to 4294967295",
        ),
    ] {
        assert_eq!(Trace::parse(text).unwrap_err().to_string(), message);
    }
}

#[test]
fn a_cable_is_fast_until_its_bucket_is_empty_and_again_after_a_pause() {
    let cable = Cable { dip: 0., ..cable() };
    let mut line = Opportunities::new(Arc::new(cable.draw()), 0);
    let mut sent = |from_ns: u64, packets: u32| {
        let last = (0..packets).map(|_| line.depart(from_ns, 1500)).last();
        (last.unwrap() - from_ns) as f64 / 1e9
    };
    // A bucket of 1 MB that fills by 10 while 40 Mbit/s leave it lasts 1.33 MB: 889 packets.
    let boost_s = sent(0, 800);
    assert!((boost_s - 800. * 12_000. / 40e6).abs() < 0.002, "{boost_s}");
    let all_s = sent(0, 4000);
    let expected_s = (4800. * 12_000. - 8e6) / 10e6;
    assert!(
        (all_s - expected_s).abs() < 0.003,
        "{all_s}, expected {expected_s}"
    );
    let again_s = sent(30 * 1_000_000_000, 800);
    assert!((again_s - boost_s).abs() < 0.002, "{again_s}");
}

#[test]
fn outages_are_as_often_and_as_long_as_was_asked_for() {
    let long = Lte {
        length: Duration::from_secs(3600),
        ..lte()
    };
    // Between two outages the rate is seldom so low that a gap of 100 ms is none.
    let gaps = |lte: &Lte| {
        let trace = lte.draw();
        let pairs = trace.slots.windows(2);
        let gaps = pairs.map(|pair| pair[1].at_ms - pair[0].at_ms);
        gaps.filter(|gap| *gap >= 100).count() as f64
    };
    let none = Lte {
        between: Duration::ZERO,
        ..long.clone()
    };
    // 3600 s / 5.2 s = 692 outages, of which e^-0.5 last 100 ms and more; three standard deviations are 62.
    let (with, without) = (gaps(&long), gaps(&none));
    assert!(
        (with - without - 420.).abs() < 62.,
        "{with} with, {without} without"
    );
}

#[test]
fn a_drawn_trace_has_the_mean_that_was_asked_for_and_varies() {
    for seed in 0..20 {
        let trace = Lte { seed, ..lte() }.draw();
        let error = trace.mean_bps() as f64 / 20e6 - 1.;
        assert!(error.abs() < 1e-3, "seed {seed}: {}", trace.mean_bps());
        let by = |s: u64| trace.bytes_by(s * 1_000_000_000);
        let seconds: Vec<u64> = (0..60).map(|s| (by(s + 1) - by(s)) * 8).collect();
        let (least, most) = (seconds.iter().min().unwrap(), seconds.iter().max().unwrap());
        assert!(most > &(2 * least), "seed {seed}: {seconds:?}");
    }
}

#[test]
fn equal_seeds_draw_equal_traces_and_others_do_not() {
    for (seed, is_same) in [(1, true), (2, false)] {
        assert_eq!(Lte { seed, ..lte() }.draw() == lte().draw(), is_same);
        assert_eq!(Cable { seed, ..cable() }.draw() == cable().draw(), is_same);
    }
}

fn traces() -> impl Strategy<Value = Trace> {
    let gaps = prop::collection::vec(
        prop_oneof![3 => Just(0u32), 5 => 1..4u32, 1 => 4..300u32],
        1..60,
    );
    let recorded = gaps.prop_map(|gaps| {
        let mut at_ms = 0;
        let times = gaps.iter().map(|gap| {
            at_ms += gap;
            format!("{at_ms}\n")
        });
        let text: String = times.collect();
        // The last line is after 0.
        Trace::parse(&format!("{text}{}\n", at_ms + 1)).unwrap()
    });
    let drawn = any::<u64>().prop_map(|seed| {
        let length = Duration::from_millis(500);
        Lte {
            seed,
            length,
            ..lte()
        }
        .draw()
    });
    prop_oneof![3 => recorded, 1 => drawn]
}

proptest! {
    /// Opportunities one by one, in the order of time, as Mahimahi's queue takes them.
    #[test]
    fn departures_are_those_of_a_queue_that_meets_every_opportunity(
        trace in traces(), packets in prop::collection::vec((0..40_000_000u64, 1..4000u32), 1..80),
    ) {
        let period_ns = trace.period_ns();
        let mut line = Opportunities::new(Arc::new(trace.clone()), 0);
        let mut all = (0..).flat_map(|cycle| {
            let at_ns = move |slot: &Slot| cycle * period_ns + u64::from(slot.at_ms) * MS;
            trace.slots.iter().map(move |slot| (at_ns(slot), slot.bytes()))
        });
        let (mut at_ns, mut left) = all.next().unwrap();
        let (mut now_ns, mut free_ns, mut carried) = (0, 0, 0);
        for (pause_ns, bytes) in packets {
            now_ns += pause_ns;
            let from_ns = now_ns.max(free_ns);
            let mut missing = u64::from(bytes);
            loop {
                if at_ns >= from_ns {
                    let taken = missing.min(left);
                    (missing, left) = (missing - taken, left - taken);
                    if missing == 0 { break }
                }
                (at_ns, left) = all.next().unwrap();
            }
            free_ns = at_ns;
            prop_assert_eq!(line.depart(from_ns, bytes), at_ns);
            carried += u64::from(bytes);
            prop_assert!(carried <= trace.bytes_by(at_ns));
        }
    }

    #[test]
    fn a_busy_line_carries_a_period_as_it_carried_the_last(trace in traces()) {
        prop_assume!(trace.slots[0].at_ms > 0);
        let packets = trace.period_bytes() / u64::from(OPPORTUNITY_BYTES);
        let period_ns = trace.period_ns();
        let mut line = Opportunities::new(Arc::new(trace), 0);
        let mut period = |_| (0..packets).map(|_| line.depart(0, OPPORTUNITY_BYTES)).collect::<Vec<_>>();
        let (first, second) = (period(0), period(1));
        let later: Vec<u64> = first.iter().map(|at_ns| at_ns + period_ns).collect();
        prop_assert_eq!(second, later);
    }
}
