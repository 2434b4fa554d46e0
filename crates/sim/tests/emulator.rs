//! The simulator's line and the emulator's are two laws, one for millions of events and one for real packets. They must
//! not differ: the same packets offered at the same times are dropped by both, lost by both, or leave both at the same
//! nanosecond.

use std::time::Duration;

use anabranch_core::Time;
use anabranch_scenario::{Cable, Lte, Nature, Opportunities, Trace, TraceSource};
use anabranch_sim::link::{
    Buffer, Frame, Impairments, Link, LinkSpec, Loss, Offer, Passage, Service, Sort,
};
use anabranch_sim::packet::PacketId;
use anabranch_testbed::emulator::{Pipe, lossless};
use proptest::prelude::*;

/// Of the seed.
const STREAM: u64 = 5;

/// When a packet comes, how long it is, and when it arrives; none if it finds no room.
type Fate = (u64, u32, Option<u64>);

/// What a line does beside delay, loss and overflow, and what its packets are to it.
#[derive(Clone, Copy, Debug)]
struct Odd {
    impairments: Impairments,
    nature: Nature,
}

const PLAIN: Odd = Odd {
    impairments: Impairments {
        jitter: Duration::ZERO,
        mtu_bytes: None,
        passage: Passage::All,
    },
    nature: Nature::ORDINARY,
};

struct Vector {
    rate_bps: u64,
    delay_ns: u64,
    buffer: Buffer,
    packets: &'static [Fate],
}

/// 8 Mbit/s is a byte in a microsecond.
const VECTORS: [Vector; 6] = [
    // Idle: serialisation and propagation; a packet that comes as the last one leaves does not wait.
    Vector {
        rate_bps: 8_000_000,
        delay_ns: 10_000_000,
        buffer: Buffer::Packets(1),
        packets: &[
            (5_000, 1_000, Some(11_005_000)),
            (1_005_000, 500, Some(11_505_000)),
            (9_000_000, 1, Some(19_001_000)),
        ],
    },
    // The packet in transmission takes its place, until its last bit has left.
    Vector {
        rate_bps: 8_000_000,
        delay_ns: 0,
        buffer: Buffer::Packets(2),
        packets: &[
            (0, 1_000, Some(1_000_000)),
            (0, 1_000, Some(2_000_000)),
            (999_999, 40, None),
            (1_000_000, 1_000, Some(3_000_000)),
            (1_000_000, 40, None),
        ],
    },
    // What does not fit is dropped whole, and what is shorter may still fit.
    Vector {
        rate_bps: 8_000_000,
        delay_ns: 0,
        buffer: Buffer::Bytes(1_500),
        packets: &[
            (0, 1_000, Some(1_000_000)),
            (0, 501, None),
            (0, 500, Some(1_500_000)),
            (999_999, 1, None),
            (1_000_000, 1_000, Some(2_500_000)),
        ],
    },
    // A packet longer than the buffer never fits.
    Vector {
        rate_bps: 8_000_000,
        delay_ns: 0,
        buffer: Buffer::Bytes(1_000),
        packets: &[(0, 1_001, None), (0, 1_000, Some(1_000_000))],
    },
    // A byte takes 8/3 ns: what is rounded off is not lost while the line is busy, and forgotten when it is idle.
    Vector {
        rate_bps: 3_000_000_000,
        delay_ns: 0,
        buffer: Buffer::Unlimited,
        packets: &[
            (0, 1, Some(2)),
            (0, 1, Some(5)),
            (0, 1, Some(8)),
            (0, 1, Some(10)),
            (20, 1, Some(22)),
            (20, 1, Some(25)),
        ],
    },
    // A departure that is rounded down ends the wait: who comes then finds the line idle.
    Vector {
        rate_bps: 3_000_000_000,
        delay_ns: 0,
        buffer: Buffer::Packets(1),
        packets: &[(0, 1, Some(2)), (1, 1, None), (2, 1, Some(5))],
    },
];

/// When each packet arrives that is offered to the simulator's line, which draws from the stream `STREAM` of `seed`.
fn simulated(
    spec: LinkSpec,
    trace: Option<&TraceSource>,
    seed: u64,
    odd: Odd,
    offers: &[(u64, u32)],
) -> Vec<Option<u64>> {
    let mut link = Link::new(spec, seed, STREAM);
    if let Some(trace) = trace {
        link.set_trace(Opportunities::new(trace.trace(), 0));
    }
    link.set_impairments(odd.impairments);
    link.audit(Time::ZERO);
    let frame = |bytes| Frame {
        packet: PacketId::default(),
        bytes,
        flow: 0,
        ect: false,
        nature: odd.nature,
    };
    let offer =
        |&(at_ns, bytes): &(u64, u32)| match link.take(Time::from_nanos(at_ns), frame(bytes)) {
            Offer::Arrives(time) => Some(time.as_nanos()),
            Offer::Overflowed | Offer::Lost => None,
            queued => panic!("{queued:?} before a line without a managed queue"),
        };
    let arrivals: Vec<_> = offers.iter().map(offer).collect();
    for at_ns in arrivals.iter().flatten() {
        let now = Time::from_nanos(*at_ns);
        assert!(link.conserves(now) && link.obeys_little(now));
    }
    arrivals
}

/// The same of the emulator's.
fn emulated(
    spec: LinkSpec,
    trace: Option<&TraceSource>,
    seed: u64,
    odd: Odd,
    offers: &[(u64, u32)],
) -> Vec<Option<u64>> {
    let mut line = lossless(spec.rate_bps, Duration::from_nanos(spec.delay_ns));
    line.buffer = spec.buffer;
    line.loss = spec.loss;
    line.trace = trace.cloned();
    line.impairments = odd.impairments;
    let mut pipe = Pipe::new(line, seed, STREAM);
    let mut arrivals = vec![None; offers.len()];
    for (index, &(at_ns, bytes)) in offers.iter().enumerate() {
        // What fits is known at once, when it arrives only later.
        let _ = pipe.offer_as(at_ns, bytes, odd.nature, index);
    }
    while let Some(arrival) = pipe.pop(u64::MAX) {
        arrivals[arrival.packet] = (!arrival.lost).then_some(arrival.due_ns);
    }
    arrivals
}

#[test]
fn both_queues_obey_the_vectors() {
    for (number, vector) in VECTORS.iter().enumerate() {
        let Vector {
            rate_bps,
            delay_ns,
            buffer,
            packets,
        } = *vector;
        let offers: Vec<_> = packets.iter().map(|&(at, bytes, _)| (at, bytes)).collect();
        let expected: Vec<_> = packets.iter().map(|&(.., arrival)| arrival).collect();
        let spec = LinkSpec {
            rate_bps,
            delay_ns,
            buffer,
            loss: Loss::None,
        };
        let simulated = simulated(spec, None, 1, PLAIN, &offers);
        assert_eq!(simulated, expected, "vector {number}, the simulator");
        let emulated = emulated(spec, None, 1, PLAIN, &offers);
        assert_eq!(emulated, expected, "vector {number}, the emulator");
    }
}

fn buffers() -> impl Strategy<Value = Buffer> {
    prop_oneof![
        (1u64..20_000).prop_map(Buffer::Bytes),
        (1u64..20).prop_map(Buffer::Packets),
        Just(Buffer::Unlimited),
    ]
}

fn losses() -> impl Strategy<Value = Loss> {
    prop_oneof![
        Just(Loss::None),
        (0f64..1.).prop_map(|probability| Loss::Independent { probability }),
        (0f64..1., 0f64..1.).prop_map(|(good_to_bad, bad_to_good)| Loss::Bursty {
            good_to_bad,
            bad_to_good,
            loss_good: 0.1,
            loss_bad: 0.9,
        }),
        (0f64..0.5).prop_map(|probability| Loss::PerHop { probability }),
    ]
}

fn odds() -> impl Strategy<Value = Odd> {
    let passages = prop_oneof![
        4 => Just(Passage::All),
        1 => Just(Passage::Only(Service::Dns)),
        1 => Just(Passage::AllBut(Service::Dns)),
    ];
    let sorts = prop_oneof![Just(Sort::Other), Just(Sort::Of(Service::Dns))];
    let jitters = prop_oneof![Just(0), 1u64..50_000_000];
    let mtus = prop::option::of(400u32..1_600);
    let all = (jitters, mtus, passages, sorts, 0u16..50);
    all.prop_map(|(jitter_ns, mtu_bytes, passage, sort, hops)| Odd {
        impairments: Impairments {
            jitter: Duration::from_nanos(jitter_ns),
            mtu_bytes,
            passage,
        },
        nature: Nature { hops, sort },
    })
}

fn traces() -> impl Strategy<Value = TraceSource> {
    let recorded = prop::collection::vec(0u32..20, 1..60).prop_map(|gaps| {
        let mut at_ms = 0;
        let times = gaps.iter().map(|gap| {
            at_ms += gap;
            format!("{at_ms}\n")
        });
        let text: String = times.collect();
        TraceSource::Recorded {
            sha256: String::new(),
            trace: Trace::parse(&format!("{text}{}\n", at_ms + 1))
                .unwrap()
                .into(),
        }
    });
    let lte = any::<u64>().prop_map(|seed| {
        TraceSource::Lte(Lte {
            mean_bps: 5_000_000,
            variation: 1.,
            outage: Duration::from_millis(50),
            between: Duration::from_millis(200),
            length: Duration::from_secs(1),
            seed,
        })
    });
    let cable = (any::<u64>(), 1u64..100_000).prop_map(|(seed, burst_bytes)| {
        TraceSource::Cable(Cable {
            steady_bps: 2_000_000,
            boost_bps: 8_000_000,
            burst_bytes,
            dip: 0.5,
            day: Duration::from_secs(60),
            length: Duration::from_secs(3),
            seed,
        })
    });
    prop_oneof![recorded, lte, cable]
}

proptest! {
    #[test]
    fn the_lines_do_the_same_with_any_packets(
        rate_bps in 1_000u64..10_000_000_000,
        delay_ns in 0u64..50_000_000,
        buffer in buffers(),
        loss in losses(),
        seed: u64,
        odd in odds(),
        gaps in prop::collection::vec((0u64..4, 1u32..1_600), 1..300),
    ) {
        // Gaps of a few hundred bytes' time: queues that fill, drain and run empty.
        let unit_ns = 2_400_000_000_000 / rate_bps;
        let mut now_ns = 0;
        let offers: Vec<(u64, u32)> = gaps
            .into_iter()
            .map(|(gap, bytes)| {
                now_ns += gap * unit_ns;
                (now_ns, bytes)
            })
            .collect();
        let spec = LinkSpec { rate_bps, delay_ns, buffer, loss };
        prop_assert_eq!(simulated(spec, None, seed, odd, &offers), emulated(spec, None, seed, odd, &offers));
    }

    #[test]
    fn the_lines_do_the_same_with_any_packets_over_any_trace(
        trace in traces(),
        delay_ns in 0u64..50_000_000,
        buffer in buffers(),
        loss in losses(),
        seed: u64,
        odd in odds(),
        gaps in prop::collection::vec((0u64..4_000_000, 1u32..1_600), 1..300),
    ) {
        let mut now_ns = 0;
        let offers: Vec<(u64, u32)> = gaps
            .into_iter()
            .map(|(gap_ns, bytes)| {
                now_ns += gap_ns;
                (now_ns, bytes)
            })
            .collect();
        let spec = LinkSpec { rate_bps: trace.mean_bps(), delay_ns, buffer, loss };
        let both = [simulated, emulated].map(|world| world(spec, Some(&trace), seed, odd, &offers));
        prop_assert_eq!(&both[0], &both[1]);
    }
}
