//! One direction of a link as a pure queue: no sockets, no clock; `now_ns` is an argument.
//!
//! A packet offered to the pipe waits in a drop-tail queue, is serialised at the link's rate, travels for the link's
//! delay and arrives. Departures are computed on a virtual clock,
//!
//! > departs = max(now, last departure) + bits / rate
//!
//! so a driver that polls late delivers late but never slows the link: lateness does not add up. Fractions of a
//! nanosecond are carried from packet to packet, so the rate is exact over any busy period.
//!
//! Losses happen on the line: a lost packet takes its place in the queue and its time on the line like any other. An
//! outage is a blackhole: what is inside and what is offered is swallowed, and nobody is told.
//!
//! At any time offered = delivered + lost + dropped by the queue + swallowed by an outage + inside.

use std::collections::VecDeque;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

const NS_PER_S: u64 = 1_000_000_000;

/// How much may wait for serialisation, the packet being serialised included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueLimit {
    Bytes(u64),
    Packets(u64),
}

/// What one direction of a link does to its packets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Bits of IP packets per second: link headers are free.
    pub rate_bps: u64,
    /// From the end of serialisation to arrival.
    pub delay_us: u64,
    /// Probability that a packet is lost on the line, each by itself.
    pub loss: f64,
    pub queue: QueueLimit,
}

impl Shape {
    /// A lossless line whose queue holds 100 ms of its rate, and ten full packets at least.
    pub fn new(rate_bps: u64, delay_us: u64) -> Self {
        Self {
            rate_bps,
            delay_us,
            loss: 0.0,
            queue: QueueLimit::Bytes((rate_bps / 8 / 10).max(15_000)),
        }
    }

    /// Says which value is out of range and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        let room = match self.queue {
            QueueLimit::Bytes(room) | QueueLimit::Packets(room) => room,
        };
        let most_us = 10_000_000;
        match self {
            Self { rate_bps: 0, .. } => Err("rate_bps = 0: at least 1".into()),
            Self { delay_us, .. } if *delay_us > most_us => {
                Err(format!("delay_us = {delay_us}: at most {most_us}"))
            }
            Self { loss, .. } if !(0.0..=1.0).contains(loss) => {
                Err(format!("loss = {loss}: a probability from 0 to 1"))
            }
            _ if room == 0 => Err("queue = 0: room for one packet at least".into()),
            _ => Ok(()),
        }
    }
}

/// Why a packet was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    Queue,
    Outage,
}

/// Packets and bytes by fate. `inside` of the conservation law is what is left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub offered: u64,
    pub delivered: u64,
    pub delivered_bytes: u64,
    pub lost: u64,
    pub queue_drops: u64,
    pub outage_drops: u64,
}

/// A packet that has come out at the far end, or has got lost on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival<T> {
    pub packet: T,
    /// When it should have arrived; the driver's lateness is measured from here.
    pub due_ns: u64,
    pub lost: bool,
}

#[derive(Debug, Clone, Copy)]
struct Parcel<T> {
    packet: T,
    bytes: u32,
    departs_ns: u64,
    arrives_ns: u64,
    lost: bool,
}

/// One direction of a link. `T` stands for a packet.
#[derive(Debug)]
pub struct Pipe<T> {
    shape: Shape,
    out: bool,
    random: ChaCha8Rng,
    /// In order of arrival. The first `on_line` have been serialised, the others wait.
    parcels: VecDeque<Parcel<T>>,
    on_line: usize,
    queued_bytes: u64,
    last_departure_ns: u64,
    /// What the last departure was rounded off by, in 1/rate_bps nanoseconds.
    rounded_off: u64,
    tally: Tally,
}

impl<T: Copy> Pipe<T> {
    /// `seed` decides which packets are lost, by their order.
    pub fn new(shape: Shape, seed: u64) -> Self {
        Self {
            shape,
            out: false,
            random: ChaCha8Rng::seed_from_u64(seed),
            parcels: VecDeque::new(),
            on_line: 0,
            queued_bytes: 0,
            last_departure_ns: 0,
            rounded_off: 0,
            tally: Tally::default(),
        }
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Packets offered and still without a fate.
    pub fn inside(&self) -> usize {
        self.parcels.len()
    }

    /// Offers a packet of `bytes` that reached the link at `now_ns`.
    pub fn offer(&mut self, now_ns: u64, bytes: u32, packet: T) -> Result<(), Refusal> {
        self.tally.offered += 1;
        let lost = self.random.next_u64() < threshold(self.shape.loss);
        if self.out {
            self.tally.outage_drops += 1;
            return Err(Refusal::Outage);
        }
        self.serialise_until(now_ns);
        if !self.has_room(bytes) {
            self.tally.queue_drops += 1;
            return Err(Refusal::Queue);
        }
        let departs_ns = self.departure(now_ns, bytes);
        let arrives_ns = self.arrival(departs_ns, self.parcels.back());
        self.queued_bytes += u64::from(bytes);
        self.parcels.push_back(Parcel {
            packet,
            bytes,
            departs_ns,
            arrives_ns,
            lost,
        });
        Ok(())
    }

    /// When the next packet arrives.
    pub fn next_due_ns(&self) -> Option<u64> {
        self.parcels.front().map(|parcel| parcel.arrives_ns)
    }

    /// Takes the next packet that is due at `now_ns`.
    pub fn pop(&mut self, now_ns: u64) -> Option<Arrival<T>> {
        if self.next_due_ns()? > now_ns {
            return None;
        }
        self.serialise_until(now_ns);
        let parcel = self.parcels.pop_front()?;
        self.on_line -= 1;
        if parcel.lost {
            self.tally.lost += 1;
        } else {
            self.tally.delivered += 1;
            self.tally.delivered_bytes += u64::from(parcel.bytes);
        }
        Some(Arrival {
            packet: parcel.packet,
            due_ns: parcel.arrives_ns,
            lost: parcel.lost,
        })
    }

    /// Changes rate, delay, loss and queue limit. Waiting packets are serialised at the new rate, the one on the
    /// transmitter from its remaining bits on; packets on the line arrive when they would have. A smaller queue limit
    /// drops nothing that is inside.
    pub fn set_shape(&mut self, now_ns: u64, shape: Shape) {
        self.serialise_until(now_ns);
        let old_rate_bps = std::mem::replace(&mut self.shape, shape).rate_bps;
        self.rounded_off = 0;
        for index in self.on_line..self.parcels.len() {
            let Parcel {
                bytes, departs_ns, ..
            } = self.parcels[index];
            let departs_ns = if index == self.on_line {
                let left_ns = u128::from(departs_ns - now_ns);
                let left_ns = left_ns * u128::from(old_rate_bps) / u128::from(shape.rate_bps);
                self.last_departure_ns = now_ns + left_ns as u64;
                self.last_departure_ns
            } else {
                self.departure(now_ns, bytes)
            };
            let ahead = index.checked_sub(1).map(|ahead| &self.parcels[ahead]);
            let arrives_ns = self.arrival(departs_ns, ahead);
            let parcel = &mut self.parcels[index];
            (parcel.departs_ns, parcel.arrives_ns) = (departs_ns, arrives_ns);
        }
    }

    /// Begins an outage: everything inside is swallowed, and handed to `swallowed`.
    pub fn cut(&mut self, mut swallowed: impl FnMut(T)) {
        self.out = true;
        self.tally.outage_drops += self.parcels.len() as u64;
        for parcel in self.parcels.drain(..) {
            swallowed(parcel.packet);
        }
        (self.on_line, self.queued_bytes, self.last_departure_ns) = (0, 0, 0);
    }

    /// Ends an outage: the link is idle.
    pub fn restore(&mut self) {
        self.out = false;
    }

    /// Moves what has departed by `now_ns` from the queue to the line.
    fn serialise_until(&mut self, now_ns: u64) {
        while let Some(parcel) = self.parcels.get(self.on_line) {
            if parcel.departs_ns > now_ns {
                break;
            }
            self.queued_bytes -= u64::from(parcel.bytes);
            self.on_line += 1;
        }
    }

    fn has_room(&self, bytes: u32) -> bool {
        match self.shape.queue {
            QueueLimit::Bytes(room) => self.queued_bytes + u64::from(bytes) <= room,
            QueueLimit::Packets(room) => ((self.parcels.len() - self.on_line) as u64) < room,
        }
    }

    /// The virtual clock: when the transmitter is done with a packet that comes next.
    fn departure(&mut self, now_ns: u64, bytes: u32) -> u64 {
        if now_ns > self.last_departure_ns {
            (self.last_departure_ns, self.rounded_off) = (now_ns, 0);
        }
        let work = u64::from(bytes) * 8 * NS_PER_S + self.rounded_off;
        self.rounded_off = work % self.shape.rate_bps;
        self.last_departure_ns += work / self.shape.rate_bps;
        self.last_departure_ns
    }

    /// A shorter delay never lets a packet overtake the one ahead.
    fn arrival(&self, departs_ns: u64, ahead: Option<&Parcel<T>>) -> u64 {
        let arrives_ns = departs_ns + self.shape.delay_us * 1000;
        ahead.map_or(arrives_ns, |ahead| arrives_ns.max(ahead.arrives_ns))
    }
}

/// The number of 64-bit draws out of 2^64 that mean `probability`.
fn threshold(probability: f64) -> u64 {
    (probability * 2f64.powi(64)) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shape(rate_bps: u64, delay_us: u64, queue: QueueLimit) -> Shape {
        Shape {
            rate_bps,
            delay_us,
            loss: 0.0,
            queue,
        }
    }

    fn queues() -> impl Strategy<Value = QueueLimit> {
        prop_oneof![
            (1_500u64..100_000).prop_map(QueueLimit::Bytes),
            (1u64..100).prop_map(QueueLimit::Packets),
        ]
    }

    prop_compose! {
        fn shapes()(rate_bps in 1_000u64..1_000_000_000, delay_us in 0u64..200_000, loss in 0f64..0.5, queue in queues())
            -> Shape {
            Shape { rate_bps, delay_us, loss, queue }
        }
    }

    /// What may happen to a pipe, and how long after the event before it.
    #[derive(Debug, Clone)]
    enum Event {
        Offer(u32),
        Pop,
        Shape(Shape),
        Cut,
        Restore,
    }

    fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
        let event = prop_oneof![
            10 => (20u32..1500).prop_map(Event::Offer),
            6 => Just(Event::Pop),
            1 => shapes().prop_map(Event::Shape),
            1 => Just(Event::Cut),
            1 => Just(Event::Restore),
        ];
        prop::collection::vec((0u64..5_000_000, event), 1..300)
    }

    proptest! {
        #[test]
        fn every_packet_has_one_fate_and_none_overtakes(first in shapes(), seed: u64, events in events()) {
            let mut pipe = Pipe::new(first, seed);
            let (mut now_ns, mut next, mut seen) = (0, 0u64, None);
            let mut swallowed = 0;
            for (pause_ns, event) in events {
                now_ns += pause_ns;
                match event {
                    Event::Offer(bytes) => {
                        let _ = pipe.offer(now_ns, bytes, next);
                        next += 1;
                    }
                    Event::Pop => while let Some(arrival) = pipe.pop(now_ns) {
                        prop_assert!(arrival.due_ns <= now_ns);
                        prop_assert!(seen < Some(arrival.packet));
                        seen = Some(arrival.packet);
                    },
                    Event::Shape(shape) => pipe.set_shape(now_ns, shape),
                    Event::Cut => pipe.cut(|_| swallowed += 1),
                    Event::Restore => pipe.restore(),
                }
                let tally = pipe.tally();
                let fates = tally.delivered + tally.lost + tally.queue_drops + tally.outage_drops;
                prop_assert_eq!(tally.offered, fates + pipe.inside() as u64);
                prop_assert!(swallowed <= tally.outage_drops);
            }
        }

        #[test]
        fn a_busy_pipe_sends_at_its_rate_to_the_nanosecond_however_late_it_is_polled(
            rate_bps in 1_000u64..1_000_000_000, sizes in prop::collection::vec(20u32..1500, 1..500), lateness_ns in 0u64..1_000_000_000,
        ) {
            let mut pipe = Pipe::new(shape(rate_bps, 0, QueueLimit::Packets(500)), 0);
            for &bytes in &sizes {
                pipe.offer(0, bytes, ()).unwrap();
            }
            let mut last_ns = 0;
            while let Some(due_ns) = pipe.next_due_ns() {
                last_ns = pipe.pop(due_ns + lateness_ns).unwrap().due_ns;
            }
            let bits = sizes.iter().map(|&bytes| u128::from(bytes) * 8).sum::<u128>();
            prop_assert_eq!(u128::from(last_ns), bits * u128::from(NS_PER_S) / u128::from(rate_bps));
        }

        #[test]
        fn the_queue_takes_what_has_room_and_not_a_byte_more(queue in queues(), sizes in prop::collection::vec(20u32..1500, 1..500)) {
            let mut pipe = Pipe::new(shape(1_000_000, 0, queue), 0);
            let (mut bytes_in, mut packets_in) = (0, 0);
            for &bytes in &sizes {
                let fits = match queue {
                    QueueLimit::Bytes(room) => bytes_in + u64::from(bytes) <= room,
                    QueueLimit::Packets(room) => packets_in < room,
                };
                prop_assert_eq!(pipe.offer(0, bytes, ()).is_ok(), fits);
                if fits {
                    bytes_in += u64::from(bytes);
                    packets_in += 1;
                }
            }
        }
    }

    #[test]
    fn an_idle_packet_takes_its_serialisation_and_the_delay() {
        let mut pipe = Pipe::new(shape(8_000_000, 10_000, QueueLimit::Packets(10)), 0);
        pipe.offer(5_000, 1_000, ()).unwrap();
        assert_eq!(pipe.next_due_ns(), Some(5_000 + 1_000_000 + 10_000_000));
    }

    #[test]
    fn losses_have_their_share_and_still_take_their_time() {
        let line = Shape {
            loss: 0.03,
            ..shape(8_000_000, 0, QueueLimit::Packets(1))
        };
        let mut pipe = Pipe::new(line, 7);
        let count = 200_000u64;
        for packet in 0..count {
            pipe.offer(packet * 1_000_000, 1_000, packet).unwrap();
            let arrival = pipe.pop((packet + 1) * 1_000_000).unwrap();
            assert_eq!(arrival.due_ns, (packet + 1) * 1_000_000);
        }
        // Four standard deviations of a binomial share: 4 * sqrt(0.03 * 0.97 / 200 000) = 0.0015.
        let share = pipe.tally().lost as f64 / count as f64;
        assert!((share - 0.03).abs() < 0.0015, "{share}");
    }

    #[test]
    fn the_same_seed_loses_the_same_packets() {
        let lost = |seed| {
            let line = Shape {
                loss: 0.1,
                ..shape(1_000_000_000, 0, QueueLimit::Packets(2000))
            };
            let mut pipe = Pipe::new(line, seed);
            for packet in 0..1000 {
                pipe.offer(0, 100, packet).unwrap();
            }
            let arrivals = std::iter::from_fn(|| pipe.pop(u64::MAX)).collect::<Vec<_>>();
            let lost = arrivals.iter().filter(|arrival| arrival.lost);
            lost.map(|arrival| arrival.packet).collect::<Vec<_>>()
        };
        assert_eq!(lost(1), lost(1));
        assert_ne!(lost(1), lost(2));
    }

    #[test]
    fn a_new_rate_holds_for_the_rest_of_the_packet_on_the_transmitter_and_for_the_queue() {
        let slow = shape(1_000_000, 0, QueueLimit::Packets(10));
        let mut pipe = Pipe::new(slow, 0);
        pipe.offer(0, 1_000, 0).unwrap(); // 8 ms at 1 Mbit/s
        pipe.offer(0, 1_000, 1).unwrap();
        let fast = Shape {
            rate_bps: 2_000_000,
            ..slow
        };
        pipe.set_shape(4_000_000, fast); // half of the first is left: 2 ms more
        assert_eq!(pipe.next_due_ns(), Some(6_000_000));
        pipe.pop(6_000_000).unwrap();
        assert_eq!(pipe.next_due_ns(), Some(10_000_000));
    }

    #[test]
    fn a_cut_swallows_what_is_inside_and_what_comes_until_it_is_restored() {
        let mut pipe = Pipe::new(shape(1_000_000, 0, QueueLimit::Packets(10)), 0);
        pipe.offer(0, 1_000, 'a').unwrap();
        let mut swallowed = vec![];
        pipe.cut(|packet| swallowed.push(packet));
        assert_eq!(swallowed, ['a']);
        assert_eq!(pipe.offer(1, 1_000, 'b'), Err(Refusal::Outage));
        pipe.restore();
        pipe.offer(2, 1_000, 'c').unwrap();
        assert_eq!(pipe.next_due_ns(), Some(8_000_002));
        assert_eq!(pipe.tally().outage_drops, 2);
    }

    #[test]
    fn a_shape_out_of_range_names_its_key() {
        for (shape, key) in [
            (Shape::new(0, 0), "rate_bps"),
            (Shape::new(1, 10_000_001), "delay_us"),
            (
                Shape {
                    loss: 1.5,
                    ..Shape::new(1, 0)
                },
                "loss",
            ),
            (
                Shape {
                    queue: QueueLimit::Bytes(0),
                    ..Shape::new(1, 0)
                },
                "queue",
            ),
        ] {
            assert!(shape.check().unwrap_err().contains(key));
        }
    }
}
