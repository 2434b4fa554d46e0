use std::time::Duration;

use super::*;
use crate::FqCodel;

const MS: u64 = 1_000_000;
/// A packet a millisecond at 12 Mbit/s.
const BYTES: u32 = 1500;

const CODEL: Codel = Codel {
    target: Duration::from_millis(5),
    interval: Duration::from_millis(100),
    mtu_bytes: BYTES,
    ecn: true,
};

const FQ: FqCodel = FqCodel {
    codel: CODEL,
    quantum_bytes: BYTES,
    flows: 1024,
};

fn packet(number: u64, now_ns: u64, flow: u32) -> Waiting<u64> {
    Waiting {
        packet: number,
        bytes: BYTES,
        since_ns: now_ns,
        flow,
        ect: false,
    }
}

/// A queue before a line that sends a packet a millisecond, and what became of its packets.
struct Driven {
    queue: ManagedQueue<u64>,
    now_ns: u64,
    taken: u64,
    gone: Vec<Waiting<u64>>,
    /// When each packet was dropped or marked as it left.
    struck_ns: Vec<u64>,
    sent: Vec<(u64, Leaving<u64>)>,
}

impl Driven {
    fn new(queue: Queue, limit: Buffer) -> Self {
        Driven {
            queue: ManagedQueue::new(&queue, limit).unwrap(),
            now_ns: 0,
            taken: 0,
            gone: Vec::new(),
            struck_ns: Vec::new(),
            sent: Vec::new(),
        }
    }

    fn push(&mut self, flow: u32, ect: bool) {
        let came = Waiting {
            ect,
            ..packet(self.taken, self.now_ns, flow)
        };
        self.taken += 1;
        self.queue.push(came, Tally::default(), &mut self.gone);
    }

    /// A millisecond passes, and a packet leaves.
    fn pop(&mut self) {
        self.now_ns += MS;
        let before = self.gone.len();
        let leaving = self.queue.pop(self.now_ns, &mut self.gone);
        let dropped = self.gone.len() - before;
        self.struck_ns.extend(vec![self.now_ns; dropped]);
        if let Some(leaving) = leaving {
            if leaving.marked {
                self.struck_ns.push(self.now_ns);
            }
            self.sent.push((self.now_ns, leaving));
        }
    }

    fn adds_up(&self) -> bool {
        let waiting = self.queue.waiting();
        let held = self.queue.iter().count() as u64;
        let gone = (self.gone.len() + self.sent.len()) as u64;
        waiting.packets == held
            && waiting.bytes == held * u64::from(BYTES)
            && self.taken == gone + held
    }
}

/// From RFC 8289's text: nothing happens in the first interval in which all wait too long; then the n-th drop follows
/// interval / √n after the one before.
#[test]
fn drops_come_at_the_interval_over_the_root_of_their_number() {
    for ect in [false, true] {
        let mut driven = Driven::new(Queue::Codel(CODEL), Buffer::Unlimited);
        for _ in 0..200 {
            driven.push(0, ect);
        }
        for _ in 0..1_000 {
            driven.push(0, ect);
            driven.pop();
        }
        // The first packet that waited 5 ms leaves at 5 ms.
        let mut expected_ns = vec![105 * MS];
        let mut next_ns = 205.0 * MS as f64;
        for count in 2..20 {
            expected_ns.push((next_ns / MS as f64).ceil() as u64 * MS);
            next_ns += 100.0 * MS as f64 / f64::from(count).sqrt();
        }
        assert_eq!(driven.struck_ns[..19], expected_ns);
        assert_eq!(driven.gone.is_empty(), ect);
        assert!(driven.adds_up());
    }
}

#[test]
fn a_queue_that_empties_in_every_interval_loses_nothing() {
    let mut driven = Driven::new(Queue::Codel(CODEL), Buffer::Unlimited);
    for _ in 0..50 {
        for _ in 0..60 {
            driven.push(0, false);
        }
        for _ in 0..70 {
            driven.pop();
        }
    }
    assert!(driven.gone.is_empty() && driven.sent.len() == 3_000);
}

#[test]
fn a_full_packet_that_is_left_is_not_dropped_however_long_it_waited() {
    let mut driven = Driven::new(Queue::Codel(CODEL), Buffer::Unlimited);
    driven.push(0, false);
    for _ in 0..20 {
        driven.push(0, false);
        driven.now_ns += 50 * MS;
        driven.pop();
    }
    assert!(driven.gone.is_empty());
}

#[test]
fn drops_resume_where_they_stopped_if_the_queue_is_bad_again_soon() {
    let first_gap = |pause_ms: u64| {
        let mut driven = Driven::new(Queue::Codel(CODEL), Buffer::Unlimited);
        let bad = |driven: &mut Driven| {
            for _ in 0..50 {
                driven.push(0, false);
            }
            for _ in 0..600 {
                driven.push(0, false);
                driven.pop();
            }
        };
        bad(&mut driven);
        while driven.queue.waiting().packets > 0 {
            driven.pop();
        }
        driven.now_ns += pause_ms * MS;
        let before = driven.struck_ns.len();
        bad(&mut driven);
        (driven.struck_ns[before + 1] - driven.struck_ns[before]) / MS
    };
    assert!(first_gap(100) < 60);
    assert_eq!(first_gap(5_000), 100);
}

#[test]
fn what_finds_no_room_is_lost_at_the_tail_of_one_queue_and_at_the_head_of_the_longest() {
    let mut tail = Driven::new(Queue::Codel(CODEL), Buffer::Packets(10));
    let mut longest = Driven::new(Queue::FqCodel(FQ), Buffer::Bytes(10 * u64::from(BYTES)));
    for driven in [&mut tail, &mut longest] {
        for _ in 0..8 {
            driven.push(7, false);
        }
        for flow in 0..3 {
            driven.push(flow, false);
        }
        assert!(driven.adds_up());
    }
    let numbers = |driven: &Driven| {
        driven
            .gone
            .iter()
            .map(|gone| gone.packet)
            .collect::<Vec<_>>()
    };
    assert_eq!(numbers(&tail), [10]);
    assert_eq!(numbers(&longest), [0, 1, 2, 3]);
}

/// A flow that sends a packet every 40 ms beside 20 that always have some waiting.
#[test]
fn a_sparse_flow_waits_for_no_more_than_a_packet() {
    const SPARSE: u32 = 99;
    let waits = |queue| {
        let mut driven = Driven::new(queue, Buffer::Unlimited);
        for flow in 0..200 {
            driven.push(flow % 20, false);
        }
        for turn in 0..2_000 {
            driven.push(turn % 20, false);
            if turn > 200 && turn % 40 == 0 {
                driven.push(SPARSE, false);
            }
            driven.pop();
        }
        let sent = driven.sent.iter();
        let sparse = sent.filter(|(_, leaving)| leaving.waiting.flow == SPARSE);
        let waits = sparse.map(|(at_ns, leaving)| at_ns - leaving.waiting.since_ns);
        waits.max().unwrap() / MS
    };
    assert!(waits(Queue::FqCodel(FQ)) <= 2);
    assert!(waits(Queue::Codel(CODEL)) > 50);
}

#[test]
fn flows_that_always_send_share_by_bytes_whatever_the_size_of_their_packets() {
    let mut queue = ManagedQueue::new(&Queue::FqCodel(FQ), Buffer::Unlimited).unwrap();
    let (mut gone, mut sent) = (Vec::new(), [0_u64; 3]);
    let sizes = [1500, 500, 900];
    for number in 0..30_000 {
        // A time that stands still drops nothing.
        for (flow, bytes) in (0..).zip(sizes) {
            let came = Waiting {
                bytes,
                ..packet(number, 0, flow)
            };
            queue.push(came, Tally::default(), &mut gone);
        }
        let leaving = queue.pop(0, &mut gone).unwrap();
        sent[leaving.waiting.flow as usize] += u64::from(leaving.waiting.bytes);
    }
    let mean = sent.iter().sum::<u64>() as f64 / 3.0;
    for bytes in sent {
        assert!((bytes as f64 / mean - 1.0).abs() < 0.001, "{sent:?}");
    }
    assert!(gone.is_empty());
}
