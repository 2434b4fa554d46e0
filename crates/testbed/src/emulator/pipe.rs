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
//! A line with a trace has its [`Opportunities`] in place of a rate.
//!
//! Losses happen on the line: a lost packet takes its place in the queue and its time on the line like any other. An
//! outage is a blackhole: what is inside and what is offered is swallowed, and nobody is told.
//!
//! At any time offered = delivered + lost + dropped by the queue + swallowed by an outage + inside.

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_line::{
    Buffer, Impairments, Line, Loss, MTU_MAX_BYTES, MTU_MIN_BYTES, Nature, Opportunities, Queue,
    Tally,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

const NS_PER_S: u64 = 1_000_000_000;
const DELAY_MAX: Duration = Duration::from_secs(10);
/// Set in the stream of a pipe's jitter, as in the simulator's.
const JITTER: u64 = 1 << 62;

/// A lossless line whose buffer holds 100 ms of its rate, and ten full packets at least.
pub fn lossless(rate_bps: u64, delay: Duration) -> Line {
    Line {
        rate_bps,
        delay,
        buffer: Buffer::Bytes((rate_bps / 8 / 10).max(15_000)),
        loss: Loss::None,
        queue: Queue::DropTail,
        trace: None,
        impairments: Impairments::default(),
    }
}

/// Says which value is out of range and what is allowed.
pub fn check(line: &Line) -> Result<(), String> {
    if line.rate_bps == 0 {
        return Err("rate_bps = 0: at least 1".into());
    }
    for (key, time) in [("delay", line.delay), ("jitter", line.impairments.jitter)] {
        if time > DELAY_MAX {
            let [time, most] = [time, DELAY_MAX].map(|time| time.as_secs_f64());
            return Err(format!("{key} = {time} s: at most {most} s"));
        }
    }
    if let Some(mtu_bytes) = line.impairments.mtu_bytes
        && !(MTU_MIN_BYTES..=MTU_MAX_BYTES).contains(&mtu_bytes)
    {
        return Err(format!(
            "mtu_bytes = {mtu_bytes}: {MTU_MIN_BYTES} to {MTU_MAX_BYTES}"
        ));
    }
    if line.queue != Queue::DropTail {
        let name = line.queue.name();
        return Err(format!(
            "queue = {name}: only the simulator has it, emulated lines drop at the tail"
        ));
    }
    if matches!(line.buffer, Buffer::Bytes(0) | Buffer::Packets(0)) {
        return Err("buffer = 0: room for one packet at least".into());
    }
    let wrong = probabilities(&line.loss)
        .into_iter()
        .find(|value| !(0.0..=1.0).contains(value));
    match wrong {
        Some(value) => Err(format!("loss = {value}: a probability from 0 to 1")),
        None => Ok(()),
    }
}

fn probabilities(loss: &Loss) -> Vec<f64> {
    match *loss {
        Loss::None => Vec::new(),
        Loss::Independent { probability } | Loss::PerHop { probability } => vec![probability],
        Loss::Bursty {
            good_to_bad,
            bad_to_good,
            loss_good,
            loss_bad,
        } => vec![good_to_bad, bad_to_good, loss_good, loss_bad],
    }
}

/// Why a packet was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There was no room in the buffer.
    Queue,
    /// The line is cut.
    Outage,
}

/// Packets and bytes by fate. `inside` of the conservation law is what is left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Fates {
    /// All that came.
    pub offered: Tally,
    /// Came out at the far end.
    pub delivered: Tally,
    /// Lost on the way, by the law of the line, or because the line carries no such packets.
    pub lost: Tally,
    /// Found no room in the buffer.
    pub overflowed: Tally,
    /// Swallowed by an outage.
    pub cut: Tally,
}

/// Which packets get lost.
#[derive(Debug)]
struct Chance {
    loss: Loss,
    /// Of a Gilbert–Elliott chain.
    bad: bool,
    random: ChaCha8Rng,
}

impl Chance {
    /// Draws the fate of the next packet, whose server is so many hops away.
    fn strikes(&mut self, hops: u16) -> bool {
        let random = &mut self.random;
        self.loss.strikes(&mut self.bad, hops, |probability| {
            random.next_u64() < threshold(probability)
        })
    }
}

/// A packet that has come out at the far end, or has got lost on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival<T> {
    /// What was offered.
    pub packet: T,
    /// When it should have arrived; the driver's lateness is measured from here.
    pub due_ns: u64,
    /// It got lost on the way: nobody is to be given it.
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
    line: Line,
    out: bool,
    chance: Chance,
    /// Of jitter.
    delays: ChaCha8Rng,
    /// In order of arrival. The first `on_line` have been serialised, the others wait.
    parcels: VecDeque<Parcel<T>>,
    on_line: usize,
    queued_bytes: u64,
    last_departure_ns: u64,
    /// What the last departure was rounded off by, in 1/rate_bps nanoseconds.
    rounded_off: u64,
    /// When packets leave, in place of a rate.
    trace: Option<Opportunities>,
    fates: Fates,
}

impl<T: Copy> Pipe<T> {
    /// The stream `stream` of `seed` decides which packets are lost, by their order, as it does in the simulator.
    pub fn new(line: Line, seed: u64, stream: u64) -> Self {
        let random = |stream| {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            random.set_stream(stream);
            random
        };
        Self {
            chance: Chance {
                loss: line.loss,
                bad: false,
                random: random(stream),
            },
            delays: random(stream | JITTER),
            trace: line.opportunities(0),
            line,
            out: false,
            parcels: VecDeque::new(),
            on_line: 0,
            queued_bytes: 0,
            last_departure_ns: 0,
            rounded_off: 0,
            fates: Fates::default(),
        }
    }

    /// As it is by now.
    pub fn line(&self) -> &Line {
        &self.line
    }

    /// Of everything offered so far.
    pub fn fates(&self) -> Fates {
        self.fates
    }

    /// Packets offered and still without a fate.
    pub fn inside(&self) -> usize {
        self.parcels.len()
    }

    /// Offers a packet of `bytes` that reached the link at `now_ns`.
    pub fn offer(&mut self, now_ns: u64, bytes: u32, packet: T) -> Result<(), Refusal> {
        self.offer_as(now_ns, bytes, Nature::ORDINARY, packet)
    }

    /// The same, of a packet of which more is known.
    pub fn offer_as(
        &mut self,
        now_ns: u64,
        bytes: u32,
        Nature { hops, sort }: Nature,
        packet: T,
    ) -> Result<(), Refusal> {
        self.fates.offered.add(bytes.into());
        if self.out {
            self.fates.cut.add(bytes.into());
            return Err(Refusal::Outage);
        }
        self.serialise_until(now_ns);
        if !self.has_room(bytes) {
            self.fates.overflowed.add(bytes.into());
            return Err(Refusal::Queue);
        }
        let impairments = self.line.impairments;
        let lost = !impairments.takes(bytes, sort) || self.chance.strikes(hops);
        let departs_ns = self.departure(now_ns, bytes);
        let ahead = self.parcels.back().map(|ahead| ahead.arrives_ns);
        let later = Duration::from_nanos(impairments.later_ns(|| self.delays.next_u64()));
        let arrives_ns = arrival(departs_ns, self.line.delay + later, ahead);
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
        let fate = if parcel.lost {
            &mut self.fates.lost
        } else {
            &mut self.fates.delivered
        };
        fate.add(parcel.bytes.into());
        Some(Arrival {
            packet: parcel.packet,
            due_ns: parcel.arrives_ns,
            lost: parcel.lost,
        })
    }

    /// The line's trace, if it has one, begins at this time; what waits keeps the departure it has.
    pub fn restart_trace(&mut self, begin_ns: u64) {
        if let Some(trace) = &mut self.trace {
            trace.restart(begin_ns);
        }
    }

    /// Changes rate, delay, loss, impairments and buffer; a trace stays what it is. Waiting packets are serialised at the new rate,
    /// the one on the transmitter from its remaining bits on; the new delay is that of packets whose serialisation begins after
    /// the change, which have no jitter then. A smaller buffer drops nothing that is inside.
    pub fn set_line(&mut self, now_ns: u64, line: Line) {
        self.serialise_until(now_ns);
        if line.loss != self.line.loss {
            (self.chance.loss, self.chance.bad) = (line.loss, false);
        }
        let old = std::mem::replace(&mut self.line, line);
        self.rounded_off = 0;
        for index in self.on_line..self.parcels.len() {
            let Parcel {
                bytes, departs_ns, ..
            } = self.parcels[index];
            let ahead = index
                .checked_sub(1)
                .map(|ahead| self.parcels[ahead].arrives_ns);
            let (departs_ns, delay) = if self.trace.is_some() {
                let is_first = index == self.on_line;
                (
                    departs_ns,
                    if is_first { old.delay } else { self.line.delay },
                )
            } else if index == self.on_line {
                let left_ns = u128::from(departs_ns - now_ns);
                let left_ns = left_ns * u128::from(old.rate_bps) / u128::from(self.line.rate_bps);
                self.last_departure_ns = now_ns + left_ns as u64;
                (self.last_departure_ns, old.delay)
            } else {
                (self.departure(now_ns, bytes), self.line.delay)
            };
            let parcel = &mut self.parcels[index];
            parcel.departs_ns = departs_ns;
            parcel.arrives_ns = arrival(departs_ns, delay, ahead);
        }
    }

    /// Begins an outage: everything inside is swallowed, and handed to `swallowed`.
    pub fn cut(&mut self, now_ns: u64, mut swallowed: impl FnMut(T)) {
        self.out = true;
        if let Some(trace) = &mut self.trace {
            trace.give_back(now_ns);
        }
        for parcel in self.parcels.drain(..) {
            self.fates.cut.add(parcel.bytes.into());
            swallowed(parcel.packet);
        }
        (self.on_line, self.queued_bytes, self.last_departure_ns) = (0, 0, 0);
    }

    /// Whether there is an outage.
    pub fn is_cut(&self) -> bool {
        self.out
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
        match self.line.buffer {
            Buffer::Bytes(room) => self.queued_bytes + u64::from(bytes) <= room,
            Buffer::Packets(room) => ((self.parcels.len() - self.on_line) as u64) < room,
            Buffer::Unlimited => true,
        }
    }

    /// The virtual clock: when the transmitter is done with a packet that comes next.
    fn departure(&mut self, now_ns: u64, bytes: u32) -> u64 {
        if now_ns > self.last_departure_ns {
            (self.last_departure_ns, self.rounded_off) = (now_ns, 0);
        }
        if let Some(trace) = &mut self.trace {
            self.last_departure_ns = trace.depart(self.last_departure_ns, bytes);
            return self.last_departure_ns;
        }
        let work = u64::from(bytes) * 8 * NS_PER_S + self.rounded_off;
        self.rounded_off = work % self.line.rate_bps;
        self.last_departure_ns += work / self.line.rate_bps;
        self.last_departure_ns
    }
}

/// A shorter delay never lets a packet overtake the one ahead.
fn arrival(departs_ns: u64, delay: Duration, ahead_ns: Option<u64>) -> u64 {
    let arrives_ns = departs_ns + delay.as_nanos() as u64;
    ahead_ns.map_or(arrives_ns, |ahead_ns| arrives_ns.max(ahead_ns))
}

/// The number of 64-bit draws out of 2^64 that mean `probability`.
fn threshold(probability: f64) -> u64 {
    (probability * 2f64.powi(64)) as u64
}

#[cfg(test)]
mod tests {
    use anabranch_line::{Lte, Passage, Service, Sort, TraceSource};
    use proptest::prelude::*;

    use super::*;

    fn line(rate_bps: u64, delay_us: u64, buffer: Buffer) -> Line {
        Line {
            buffer,
            ..lossless(rate_bps, Duration::from_micros(delay_us))
        }
    }

    fn buffers() -> impl Strategy<Value = Buffer> {
        prop_oneof![
            (1_500u64..100_000).prop_map(Buffer::Bytes),
            (1u64..100).prop_map(Buffer::Packets),
            Just(Buffer::Unlimited),
        ]
    }

    fn losses() -> impl Strategy<Value = Loss> {
        let bursty = (0f64..0.5, 0.01f64..1.0, 0f64..0.1, 0f64..1.0);
        prop_oneof![
            Just(Loss::None),
            (0f64..0.5).prop_map(|probability| Loss::Independent { probability }),
            bursty.prop_map(
                |(good_to_bad, bad_to_good, loss_good, loss_bad)| Loss::Bursty {
                    good_to_bad,
                    bad_to_good,
                    loss_good,
                    loss_bad
                }
            ),
        ]
    }

    prop_compose! {
        fn lines()(rate_bps in 1_000u64..1_000_000_000, delay_us in 0u64..200_000, loss in losses(), buffer in buffers())
            -> Line {
            Line { loss, ..line(rate_bps, delay_us, buffer) }
        }
    }

    fn traces() -> impl Strategy<Value = TraceSource> {
        (100_000u64..100_000_000, any::<u64>()).prop_map(|(mean_bps, seed)| {
            TraceSource::Lte(Lte {
                mean_bps,
                variation: 1.0,
                outage: Duration::from_millis(100),
                between: Duration::from_millis(300),
                length: Duration::from_secs(1),
                seed,
            })
        })
    }

    /// What may happen to a pipe, and how long after the event before it.
    #[derive(Debug, Clone)]
    enum Event {
        Offer(u32),
        Pop,
        Line(Box<Line>),
        Cut,
        Restore,
    }

    fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
        let event = prop_oneof![
            10 => (20u32..1500).prop_map(Event::Offer),
            6 => Just(Event::Pop),
            1 => lines().prop_map(|line| Event::Line(line.into())),
            1 => Just(Event::Cut),
            1 => Just(Event::Restore),
        ];
        prop::collection::vec((0u64..5_000_000, event), 1..300)
    }

    proptest! {
        #[test]
        fn every_packet_has_one_fate_and_none_overtakes(
            first in lines(), trace in prop::option::of(traces()), seed: u64, events in events(),
        ) {
            let first = Line { trace, ..first };
            let mut pipe = Pipe::new(first, seed, 0);
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
                    Event::Line(line) => pipe.set_line(now_ns, *line),
                    Event::Cut => pipe.cut(now_ns, |_| swallowed += 1),
                    Event::Restore => pipe.restore(),
                }
                let Fates { offered, delivered, lost, overflowed, cut } = pipe.fates();
                let ended = delivered.packets + lost.packets + overflowed.packets + cut.packets;
                prop_assert_eq!(offered.packets, ended + pipe.inside() as u64);
                prop_assert!(swallowed <= cut.packets);
            }
        }

        #[test]
        fn a_busy_pipe_sends_at_its_rate_to_the_nanosecond_however_late_it_is_polled(
            rate_bps in 1_000u64..1_000_000_000, sizes in prop::collection::vec(20u32..1500, 1..500), lateness_ns in 0u64..1_000_000_000,
        ) {
            let mut pipe = Pipe::new(line(rate_bps, 0, Buffer::Packets(500)), 0, 0);
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
        fn the_queue_takes_what_has_room_and_not_a_byte_more(buffer in buffers(), sizes in prop::collection::vec(20u32..1500, 1..500)) {
            let mut pipe = Pipe::new(line(1_000_000, 0, buffer), 0, 0);
            let (mut bytes_in, mut packets_in) = (0, 0);
            for &bytes in &sizes {
                let fits = match buffer {
                    Buffer::Bytes(room) => bytes_in + u64::from(bytes) <= room,
                    Buffer::Packets(room) => packets_in < room,
                    Buffer::Unlimited => true,
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
        let mut pipe = Pipe::new(line(8_000_000, 10_000, Buffer::Packets(10)), 0, 0);
        pipe.offer(5_000, 1_000, ()).unwrap();
        assert_eq!(pipe.next_due_ns(), Some(5_000 + 1_000_000 + 10_000_000));
    }

    #[test]
    fn losses_have_their_share_and_still_take_their_time() {
        let line = Line {
            loss: Loss::Independent { probability: 0.03 },
            ..line(8_000_000, 0, Buffer::Packets(1))
        };
        let mut pipe = Pipe::new(line, 7, 0);
        let count = 200_000u64;
        for packet in 0..count {
            pipe.offer(packet * 1_000_000, 1_000, packet).unwrap();
            let arrival = pipe.pop((packet + 1) * 1_000_000).unwrap();
            assert_eq!(arrival.due_ns, (packet + 1) * 1_000_000);
        }
        // Four standard deviations of a binomial share: 4 * sqrt(0.03 * 0.97 / 200 000) = 0.0015.
        let share = pipe.fates().lost.packets as f64 / count as f64;
        assert!((share - 0.03).abs() < 0.0015, "{share}");
    }

    #[test]
    fn the_same_seed_loses_the_same_packets() {
        let lost = |seed| {
            let line = Line {
                loss: Loss::Independent { probability: 0.1 },
                ..line(1_000_000_000, 0, Buffer::Packets(2000))
            };
            let mut pipe = Pipe::new(line, seed, 0);
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
        let slow = line(1_000_000, 0, Buffer::Packets(10));
        let mut pipe = Pipe::new(slow.clone(), 0, 0);
        pipe.offer(0, 1_000, 0).unwrap(); // 8 ms at 1 Mbit/s
        pipe.offer(0, 1_000, 1).unwrap();
        let fast = Line {
            rate_bps: 2_000_000,
            ..slow
        };
        pipe.set_line(4_000_000, fast); // half of the first is left: 2 ms more
        assert_eq!(pipe.next_due_ns(), Some(6_000_000));
        pipe.pop(6_000_000).unwrap();
        assert_eq!(pipe.next_due_ns(), Some(10_000_000));
    }

    #[test]
    fn a_cut_swallows_what_is_inside_and_what_comes_until_it_is_restored() {
        let mut pipe = Pipe::new(line(1_000_000, 0, Buffer::Packets(10)), 0, 0);
        pipe.offer(0, 1_000, 'a').unwrap();
        let mut swallowed = vec![];
        pipe.cut(0, |packet| swallowed.push(packet));
        assert_eq!(swallowed, ['a']);
        assert_eq!(pipe.offer(1, 1_000, 'b'), Err(Refusal::Outage));
        pipe.restore();
        pipe.offer(2, 1_000, 'c').unwrap();
        assert_eq!(pipe.next_due_ns(), Some(8_000_002));
        assert_eq!(pipe.fates().cut.packets, 2);
    }

    #[test]
    fn bursty_losses_have_the_share_and_the_run_length_of_their_chain() {
        let bursty = Line {
            loss: Loss::Bursty {
                good_to_bad: 0.01,
                bad_to_good: 0.25,
                loss_good: 0.0,
                loss_bad: 1.0,
            },
            ..line(8_000_000, 0, Buffer::Packets(1))
        };
        let mut pipe = Pipe::new(bursty, 7, 0);
        let count = 400_000u64;
        let (mut bursts, mut before) = (0u64, false);
        for packet in 0..count {
            pipe.offer(packet * 1_000_000, 1_000, packet).unwrap();
            let lost = pipe.pop((packet + 1) * 1_000_000).unwrap().lost;
            bursts += u64::from(lost && !before);
            before = lost;
        }
        let lost = pipe.fates().lost.packets as f64;
        // Stationary share of the bad state 0.01 / (0.01 + 0.25), mean run 1 / 0.25 packets. About 3800 runs, whose
        // lengths deviate by 3.5: four standard errors are 6 % of either.
        assert!(
            (lost / count as f64 / (0.01 / 0.26) - 1.0).abs() < 0.09,
            "{lost}"
        );
        assert!(
            (lost / bursts as f64 / 4.0 - 1.0).abs() < 0.06,
            "{lost} in {bursts}"
        );
    }

    #[test]
    fn jitter_holds_packets_up_and_lets_none_overtake() {
        let impairments = Impairments {
            jitter: Duration::from_millis(20),
            ..Impairments::default()
        };
        let jittery = Line {
            impairments,
            ..line(8_000_000, 10_000, Buffer::Unlimited)
        };
        let mut pipe = Pipe::new(jittery, 7, 0);
        for packet in 0..1000u64 {
            pipe.offer(packet * 2_000_000, 1_000, packet).unwrap();
        }
        let mut late_ns = Vec::new();
        let mut expected = 0;
        while let Some(arrival) = pipe.pop(u64::MAX) {
            assert_eq!(arrival.packet, expected);
            expected += 1;
            late_ns.push(arrival.due_ns - arrival.packet * 2_000_000);
        }
        assert!(
            late_ns
                .iter()
                .all(|ns| (11_000_000..31_000_000).contains(ns))
        );
        assert!(late_ns.iter().any(|ns| *ns > 25_000_000));
    }

    #[test]
    fn what_is_too_long_or_of_no_service_that_the_line_carries_vanishes() {
        let impairments = Impairments {
            mtu_bytes: Some(1400),
            passage: Passage::Only(Service::Dns),
            ..Impairments::default()
        };
        let captive = Line {
            impairments,
            ..line(1_000_000_000, 0, Buffer::Unlimited)
        };
        let mut pipe = Pipe::new(captive, 7, 0);
        let dns = Sort::Of(Service::Dns);
        for (bytes, sort) in [(1400, dns), (1401, dns), (60, Sort::Other), (60, dns)] {
            let nature = Nature {
                sort,
                ..Nature::ORDINARY
            };
            pipe.offer_as(0, bytes, nature, ()).unwrap();
        }
        let arrivals = std::iter::from_fn(|| pipe.pop(u64::MAX));
        let lost: Vec<bool> = arrivals.map(|arrival| arrival.lost).collect();
        assert_eq!(lost, [false, true, true, false]);
        assert_eq!(pipe.fates().lost.packets, 2);
    }

    #[test]
    fn a_new_delay_holds_for_what_is_not_on_the_transmitter_and_nothing_overtakes() {
        let far = line(8_000_000, 10_000, Buffer::Packets(10));
        let mut pipe = Pipe::new(far.clone(), 0, 0);
        pipe.offer(0, 1_000, 0).unwrap(); // serialised until 1 ms, arrives at 11 ms
        pipe.offer(0, 1_000, 1).unwrap();
        let near = Line {
            delay: Duration::ZERO,
            ..far
        };
        pipe.set_line(500_000, near);
        let arrivals = std::iter::from_fn(|| pipe.pop(u64::MAX));
        let due: Vec<_> = arrivals
            .map(|arrival| (arrival.packet, arrival.due_ns))
            .collect();
        assert_eq!(due, [(0, 11_000_000), (1, 11_000_000)]);
    }

    #[test]
    fn a_line_out_of_range_names_its_key() {
        let plain = || lossless(1, Duration::ZERO);
        for (line, key) in [
            (lossless(0, Duration::ZERO), "rate_bps"),
            (lossless(1, Duration::from_secs(11)), "delay"),
            (
                Line {
                    loss: Loss::Independent { probability: 1.5 },
                    ..plain()
                },
                "loss",
            ),
            (
                Line {
                    buffer: Buffer::Bytes(0),
                    ..plain()
                },
                "buffer",
            ),
            (
                Line {
                    impairments: Impairments {
                        jitter: Duration::from_secs(11),
                        ..Impairments::default()
                    },
                    ..plain()
                },
                "jitter",
            ),
            (
                Line {
                    impairments: Impairments {
                        mtu_bytes: Some(67),
                        ..Impairments::default()
                    },
                    ..plain()
                },
                "mtu_bytes",
            ),
        ] {
            assert!(check(&line).unwrap_err().contains(key));
        }
    }
}
