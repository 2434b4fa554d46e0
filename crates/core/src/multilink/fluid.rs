//! The claims of Jo 2002 in a model small enough for a test: flows of constant rate poured into sublinks, millisecond by
//! millisecond. Nobody retransmits, so what is lost and moved is the doing of the scheme alone.

use anabranch_policy::spread::{Table, by_bin};

use super::tests::random;
use super::*;
use crate::time::Time;

const K: usize = 8;
/// 5.592 Mbit/s.
const SUBLINK_BYTES_PER_MS: u64 = 699;
/// 100 ms of it.
const BUFFER_BYTES: u64 = 69_900;

/// A kind of flow and its part of the load.
struct Kind {
    mean_bytes: f64,
    bytes_per_ms: u64,
    /// Of what all sublinks can carry.
    load: f64,
}

struct Flow {
    hash: u32,
    left_bytes: u64,
    bytes_per_ms: u64,
}

/// Arrivals of flows, the same for every scheme.
struct Source<'a, R> {
    kinds: &'a [Kind],
    random: R,
}

impl<R: FnMut() -> u32> Source<'_, R> {
    /// Exponential with mean 1.
    fn exponential(&mut self) -> f64 {
        -((f64::from((self.random)()) + 0.5) / 2f64.powi(32)).ln()
    }

    /// The flows that begin in one millisecond: as many exponential pauses as fit.
    fn arrivals(&mut self) -> Vec<Flow> {
        let mut flows = Vec::new();
        for kind in self.kinds {
            let capacity = (K as u64 * SUBLINK_BYTES_PER_MS) as f64;
            let per_ms = kind.load * capacity / kind.mean_bytes;
            let mut time = self.exponential();
            while time < per_ms {
                flows.push(Flow {
                    hash: (self.random)(),
                    left_bytes: (kind.mean_bytes * self.exponential()) as u64 + 1,
                    bytes_per_ms: kind.bytes_per_ms,
                });
                time += self.exponential();
            }
        }
        flows
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Outcome {
    lost_bytes: u64,
    moves: usize,
}

/// The sublinks' queues, and what the bins have carried.
struct Trunk {
    table: Table,
    queues_bytes: [u64; K],
    counters: Counters,
    outcome: Outcome,
}

impl Trunk {
    /// One millisecond: the flows pour in, the sublinks drain, what exceeds a buffer is lost.
    fn carry(&mut self, flows: &mut Vec<Flow>) {
        for flow in flows.iter_mut() {
            let bytes = flow.bytes_per_ms.min(flow.left_bytes);
            flow.left_bytes -= bytes;
            self.counters[BinId::of_hash(flow.hash).index()] += bytes;
            let sublink = by_bin(&self.table, flow.hash, (1 << K) - 1).unwrap();
            self.queues_bytes[usize::from(sublink)] += bytes;
        }
        flows.retain(|flow| flow.left_bytes > 0);
        for queue in &mut self.queues_bytes {
            let waiting = queue.saturating_sub(SUBLINK_BYTES_PER_MS);
            *queue = waiting.min(BUFFER_BYTES);
            self.outcome.lost_bytes += waiting - *queue;
        }
    }

    fn control(&mut self, controller: &mut Controller, now: Time, mut random: impl FnMut() -> u32) {
        let queues = self.queues_bytes.map(|length_bytes| Queue {
            length_bytes,
            buffer_bytes: BUFFER_BYTES,
            usable: true,
        });
        while controller.wakeup().0 <= now {
            match controller.wakeup().1 {
                Wakeup::Volumes => controller.record_volumes(now, &self.counters),
                Wakeup::Queues => {
                    self.outcome.moves += controller.check_queues(now, &queues, &mut random).len();
                    self.table = *controller.bins().table();
                }
            }
        }
    }
}

/// Outcomes of SH, DH and DHFV after `length_ms`, from the same table under the same flows.
fn outcomes(bins: &Bins, kinds: &[Kind], length_ms: u64, seed: u32) -> [Outcome; 3] {
    let parameters = Parameters::default();
    let dh = Controller::dh(bins.clone(), &parameters, Time::ZERO).unwrap();
    let dhfv = Controller::dhfv(bins.clone(), &parameters, Time::ZERO, &[0; BINS]).unwrap();
    [None, Some(dh), Some(dhfv)].map(|mut controller| {
        let mut source = Source {
            kinds,
            random: random(seed),
        };
        let mut draws = random(!seed);
        let mut flows = Vec::new();
        let mut trunk = Trunk {
            table: *bins.table(),
            queues_bytes: [0; K],
            counters: [0; BINS],
            outcome: Outcome::default(),
        };
        for now in (1..=length_ms).map(Time::from_millis) {
            flows.extend(source.arrivals());
            trunk.carry(&mut flows);
            if let Some(controller) = &mut controller {
                trunk.control(controller, now, &mut draws);
            }
        }
        trunk.outcome
    })
}

/// Jo 2002, figures 9 and 10: SH lost 9 times as much as DH, and DH moved over 60 times as many bins as DHFV. Here
/// large flows of 2 Mbit/s bring four fifths of a load of 70 %.
#[test]
fn where_few_flows_bring_most_bytes_dhfv_moves_least_and_static_hashing_loses_most() {
    let (load, large, small) = (0.7, 0.8, 0.2);
    let kinds = [
        Kind {
            mean_bytes: 600_000.0,
            bytes_per_ms: 250,
            load: load * large,
        },
        Kind {
            mean_bytes: 10_000.0,
            bytes_per_ms: 60,
            load: load * small,
        },
    ];
    for seed in 1..=3 {
        let [sh, dh, dhfv] = outcomes(&Bins::new(K).unwrap(), &kinds, 20_000, seed);
        let all = format!("SH {sh:?}\nDH {dh:?}\nDHFV {dhfv:?}");
        assert!(sh.lost_bytes > 9 * dh.lost_bytes, "{all}");
        assert!(dh.lost_bytes > dhfv.lost_bytes, "{all}");
        assert!(sh.moves == 0 && dhfv.moves > 0, "{all}");
        assert!(dh.moves > 30 * dhfv.moves, "{all}");
    }
}

/// Jo 2002, section IV.E: "If all the flows have the same flow bandwidth, DH would perform best while DHFV would fail."
/// Small equal flows hardly ever get uneven by themselves, so one sublink begins with half of all bins: DH takes a
/// tenth from it at every check, DHFV one bin, which carries next to nothing.
#[test]
fn where_all_flows_are_equal_dh_recovers_from_a_lopsided_table_and_dhfv_fails() {
    let kinds = [Kind {
        mean_bytes: 10_000.0,
        bytes_per_ms: 10,
        load: 0.7,
    }];
    let even = Bins::new(K).unwrap();
    let lopsided = std::array::from_fn(|bin| if bin < BINS / 2 { 0 } else { even.table()[bin] });
    let bins = Bins::adopt(K, &lopsided).unwrap();
    for seed in 1..=3 {
        let [sh, dh, dhfv] = outcomes(&bins, &kinds, 4_000, seed);
        let all = format!("SH {sh:?}\nDH {dh:?}\nDHFV {dhfv:?}");
        assert!(sh.lost_bytes > dhfv.lost_bytes, "{all}");
        assert!(dhfv.lost_bytes > 5 * dh.lost_bytes, "{all}");
    }
}
