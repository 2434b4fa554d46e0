//! Managed queues before a line that TCP fills: what they do to delay, to shares, and to packets that may be marked.

use std::time::Duration;

use anabranch_core::Time;
use anabranch_sim::dumbbell::line;
use anabranch_sim::link::{Buffer, Codel, FqCodel, LinkCounters, Queue};
use anabranch_sim::tcp::TcpConfig;
use anabranch_sim::world::{FlowId, FlowSpec, PipeId, Work, World};

const MBIT: u64 = 1_000_000;
const MS: u64 = 1_000_000;

const CODEL: Codel = Codel {
    target: Duration::from_millis(5),
    interval: Duration::from_millis(100),
    mtu_bytes: 1500,
    ecn: false,
};

fn fq() -> Queue {
    Queue::FqCodel(FqCodel {
        codel: CODEL,
        quantum_bytes: 1500,
        flows: 1024,
    })
}

/// Endless flows of SACK and Reno over 20 Mbit/s and a round trip of 40 ms, with room for 400 ms.
struct Filled {
    world: World,
    there: PipeId,
    flows: Vec<FlowId>,
}

impl Filled {
    fn new(queue: &Queue, flows: u32, tcp: TcpConfig) -> Filled {
        let mut world = World::new(1);
        let there = world.add_link(line(20 * MBIT, 20 * MS, Buffer::Bytes(1_000_000)));
        world.link_mut(there).set_queue(queue);
        world.audit(there);
        let back = world.add_link(line(1_000 * MBIT, 20 * MS, Buffer::Unlimited));
        let (forward, back) = (world.add_path(&[there]), world.add_path(&[back]));
        let flows = (0..flows).map(|number| {
            let spec = FlowSpec {
                start: Time::from_nanos(u64::from(number) * 10 * MS),
                work: Work::Endless,
                forward,
                back,
                tcp,
            };
            world.open_labelled(spec, number)
        });
        Filled {
            flows: flows.collect(),
            world,
            there,
        }
    }

    /// How much waits, in the mean over looks 1 ms apart, as a time on the line in ms.
    fn wait_ms(&mut self, from_s: u64, to_s: u64) -> f64 {
        let looks = from_s * 1000..to_s * 1000;
        let count = looks.clone().count() as f64;
        let bytes = looks.map(|at_ms| {
            self.world.run_until(Time::from_millis(at_ms));
            let now = self.world.now();
            self.world.link_mut(self.there).backlog(now).bytes as f64
        });
        bytes.sum::<f64>() / count * 8e3 / (20 * MBIT) as f64
    }

    fn counters(&mut self) -> LinkCounters {
        let now = self.world.now();
        assert!(self.world.conserves());
        assert!(self.world.link_mut(self.there).obeys_little(now));
        self.world.counters(self.there)
    }

    fn received(&self) -> Vec<u32> {
        let flows = self.flows.iter();
        flows
            .map(|flow| self.world.receiver(*flow).received_segments())
            .collect()
    }
}

#[test]
fn a_standing_queue_falls_to_about_the_target_and_the_line_stays_busy() {
    let tcp = TcpConfig::default();
    let tail_ms = Filled::new(&Queue::DropTail, 4, tcp).wait_ms(20, 60);
    let mut codel = Filled::new(&Queue::Codel(CODEL), 4, tcp);
    let codel_ms = codel.wait_ms(20, 60);
    let counters = codel.counters();
    let busy = counters.delivered.bytes as f64 * 8.0 / 60.0 / (20 * MBIT) as f64;
    println!("drop-tail {tail_ms:.1} ms, CoDel {codel_ms:.1} ms, busy {busy:.3}");
    assert!(tail_ms > 200.0 && (2.0..10.0).contains(&codel_ms));
    assert!(busy > 0.9 && counters.early.packets > 20 && counters.overflowed.packets == 0);
}

#[test]
fn flow_queues_give_bulk_flows_equal_shares() {
    let shares = |queue: &Queue| {
        let mut filled = Filled::new(queue, 8, TcpConfig::default());
        filled.world.run_until(Time::from_millis(60_000));
        filled.counters();
        let received = filled.received();
        let sum: f64 = received.iter().map(|count| f64::from(*count)).sum();
        let squares: f64 = received.iter().map(|count| f64::from(*count).powi(2)).sum();
        sum * sum / (squares * received.len() as f64)
    };
    let (fq, tail) = (shares(&fq()), shares(&Queue::DropTail));
    println!("Jain's index: FQ-CoDel {fq:.5}, drop-tail {tail:.5}");
    assert!(fq > 0.999 && fq > tail);
}

/// A short request every 100 ms beside four bulk flows.
#[test]
fn flow_queues_spare_short_flows_the_wait_behind_long_ones() {
    let mean_ms = |queue: &Queue| {
        let mut filled = Filled::new(queue, 4, TcpConfig::default());
        let spec = *filled.world.spec(filled.flows[0]);
        let short: Vec<FlowId> = (0..200)
            .map(|number| {
                let spec = FlowSpec {
                    start: Time::from_millis(10_000 + 100 * number),
                    work: Work::Transfer(1_000),
                    ..spec
                };
                filled.world.open_labelled(spec, 100 + number as u32)
            })
            .collect();
        filled.world.run_until(Time::from_millis(40_000));
        filled.counters();
        let taken = short.iter().enumerate().map(|(number, flow)| {
            let finished = filled.world.times(*flow).finished.expect("it came through");
            let start = Time::from_millis(10_000 + 100 * number as u64);
            finished.since(start).as_secs_f64() * 1e3
        });
        taken.sum::<f64>() / short.len() as f64
    };
    let (fq, tail) = (mean_ms(&fq()), mean_ms(&Queue::DropTail));
    println!("handshake and a packet: FQ-CoDel {fq:.1} ms, drop-tail {tail:.1} ms");
    // Two round trips, and no more than a packet or two ahead each time.
    assert!((80.0..85.0).contains(&fq) && tail > 400.0);
}
