//! One direction of a line.

mod change;
mod rare;

use std::collections::VecDeque;

use anabranch_core::Time;
pub use anabranch_scenario::{Buffer, Loss, Red};

use crate::packet::PacketId;
use rare::Rare;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkSpec {
    /// Bits per second; at least 1.
    pub rate_bps: u64,
    /// Propagation.
    pub delay_ns: u64,
    pub buffer: Buffer,
    pub loss: Loss,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub packets: u64,
    pub bytes: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }

    fn plus(self, other: Tally) -> Tally {
        Tally {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// What a link has done. At any time `offered` is the sum of the others and of what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    pub offered: Tally,
    pub delivered: Tally,
    /// Dropped for want of buffer.
    pub overflowed: Tally,
    /// Lost by the line.
    pub lost: Tally,
    /// Dropped by random early detection.
    pub early: Tally,
    /// Swallowed by a cut line.
    pub cut: Tally,
}

/// What became of a packet offered to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// The link was empty: call [`Link::deliver`] at this time.
    Wake(Time),
    /// Accepted behind others.
    Queued,
    Overflowed,
    /// By the line, by random early detection, or because the line is cut.
    Lost,
}

/// Takes the place of a packet that the line will lose.
const GHOST: PacketId = PacketId(u32::MAX);

/// A packet in the link.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// [`GHOST`] if the line will lose it.
    packet: PacketId,
    bytes: u32,
    departure_ns: u64,
    arrival_ns: u64,
}

/// What the limit of a buffer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Bytes,
    Packets,
}

/// A FIFO link with drop-tail buffer, rate, propagation and loss.
///
/// Commands: [`Link::offer`], and [`Link::deliver`] at each time the link asked for. Departures are computed on
/// acceptance, `max(now, last departure) + bits / rate`, in exact fractions of a nanosecond, so that rounding never
/// accumulates.
///
/// The fields stand in the order in which they are used, so that a packet that is taken in and delivered touches two
/// cache lines of 64 bytes.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Link {
    rate_bps: u64,
    delay_ns: u64,
    last_departure_ns: u64,
    /// Of the last departure, in units of 1 / `rate_bps` nanoseconds.
    last_departure_fraction: u64,
    offered: Tally,
    delivered: Tally,
    held: VecDeque<Held>,
    backlog_bytes: u64,
    backlog_packets: u32,
    /// How many of `held`, from the front, have left the buffer and are propagating.
    departed: u32,
    /// How many of `held` will be delivered.
    alive: u32,
    /// Whether `rare` has a say.
    special: bool,
    unit: Unit,
    /// Of the backlog, in `unit`.
    limit: u64,
    rare: Box<Rare>,
    overflowed: Tally,
}

impl Link {
    /// A link whose losses are drawn from the stream `stream` of `seed`; give every link its own.
    pub fn new(spec: LinkSpec, seed: u64, stream: u64) -> Self {
        assert!(spec.rate_bps > 0, "a link needs a rate of at least 1 bit/s");
        let (unit, limit) = match spec.buffer {
            Buffer::Bytes(limit) => (Unit::Bytes, limit),
            Buffer::Packets(limit) => (Unit::Packets, limit),
            Buffer::Unlimited => (Unit::Bytes, u64::MAX),
        };
        Link {
            rate_bps: spec.rate_bps,
            delay_ns: spec.delay_ns,
            last_departure_ns: 0,
            last_departure_fraction: 0,
            offered: Tally::default(),
            delivered: Tally::default(),
            held: VecDeque::new(),
            backlog_bytes: 0,
            backlog_packets: 0,
            departed: 0,
            alive: 0,
            special: spec.loss != Loss::None,
            unit,
            limit,
            rare: Box::new(Rare::new(spec.loss, seed, stream)),
            overflowed: Tally::default(),
        }
    }

    pub fn counters(&self) -> LinkCounters {
        LinkCounters {
            offered: self.offered,
            delivered: self.delivered,
            overflowed: self.overflowed,
            lost: self.rare.lost,
            early: self.rare.early,
            cut: self.rare.cut,
        }
    }

    /// Waiting or in transmission at `now`.
    pub fn backlog(&mut self, now: Time) -> Tally {
        self.depart(now.as_nanos());
        Tally {
            packets: self.backlog_packets.into(),
            bytes: self.backlog_bytes,
        }
    }

    /// Waiting, in transmission or propagating, and not to be lost.
    pub fn held(&self) -> Tally {
        let alive = self.held.iter().filter(|held| held.packet != GHOST);
        let mut tally = Tally::default();
        alive.for_each(|held| tally.add(held.bytes));
        tally
    }

    /// Whether everything offered is accounted for, to the byte.
    pub fn conserves(&self) -> bool {
        let all = self.counters();
        let gone = all.overflowed.plus(all.lost).plus(all.early).plus(all.cut);
        all.offered == all.delivered.plus(gone).plus(self.held())
    }

    /// Takes a packet in, or tells why not.
    #[inline]
    pub fn offer(&mut self, now: Time, packet: PacketId, bytes: u32) -> Offer {
        let now_ns = now.as_nanos();
        self.offered.add(bytes);
        self.depart(now_ns);
        if self.special && self.refuses(now_ns, bytes) {
            return Offer::Lost;
        }
        if !self.has_room(bytes) {
            self.overflowed.add(bytes);
            return Offer::Overflowed;
        }
        let lost = self.special && self.rare.loses(bytes);
        let arrival_ns = self.accept(now_ns, if lost { GHOST } else { packet }, bytes);
        if lost {
            return Offer::Lost;
        }
        if self.special {
            self.rare.enter(now_ns, arrival_ns, self.alive);
        }
        self.alive += 1;
        if self.alive == 1 {
            Offer::Wake(Time::from_nanos(arrival_ns))
        } else {
            Offer::Queued
        }
    }

    /// The packet that arrives now, and when to call again.
    ///
    /// # Panics
    /// If the link holds nothing: it did not ask for this call.
    #[inline]
    pub fn deliver(&mut self) -> (PacketId, Option<Time>) {
        let (packet, bytes) = loop {
            let first = self.held.pop_front().expect("a delivery nobody asked for");
            if self.departed == 0 {
                self.release(first.bytes);
            } else {
                self.departed -= 1;
            }
            if first.packet != GHOST {
                if self.special {
                    self.rare.pass(first.arrival_ns, self.alive);
                }
                break (first.packet, first.bytes);
            }
        };
        self.delivered.add(bytes);
        self.alive -= 1;
        (packet, self.next_arrival())
    }

    /// When the next packet arrives.
    pub(crate) fn next_arrival(&self) -> Option<Time> {
        let mut next = self.held.front()?;
        if next.packet == GHOST {
            next = self.held.iter().find(|held| held.packet != GHOST)?;
        }
        Some(Time::from_nanos(next.arrival_ns))
    }

    fn has_room(&self, bytes: u32) -> bool {
        match self.unit {
            Unit::Bytes => self.backlog_bytes + u64::from(bytes) <= self.limit,
            Unit::Packets => u64::from(self.backlog_packets) < self.limit,
        }
    }

    fn accept(&mut self, now_ns: u64, packet: PacketId, bytes: u32) -> u64 {
        if now_ns > self.last_departure_ns {
            self.last_departure_ns = now_ns;
            self.last_departure_fraction = 0;
        }
        let bit_ns = u64::from(bytes) * 8 * 1_000_000_000 + self.last_departure_fraction;
        self.last_departure_ns += bit_ns / self.rate_bps;
        self.last_departure_fraction = bit_ns % self.rate_bps;
        let mut arrival_ns = self.last_departure_ns + self.delay_ns;
        if self.special {
            // The delay may have been longer when the one before was accepted.
            let before = self.held.back().map_or(0, |before| before.arrival_ns);
            arrival_ns = arrival_ns.max(before);
        }
        self.held.push_back(Held {
            packet,
            bytes,
            departure_ns: self.last_departure_ns,
            arrival_ns,
        });
        self.backlog_packets += 1;
        self.backlog_bytes += u64::from(bytes);
        arrival_ns
    }

    /// Lets what has been transmitted by `now_ns` leave the buffer.
    fn depart(&mut self, now_ns: u64) {
        while let Some(held) = self.held.get(self.departed as usize) {
            if held.departure_ns > now_ns {
                break;
            }
            let bytes = held.bytes;
            self.release(bytes);
            self.departed += 1;
        }
        if self.special && self.alive == 0 {
            self.held.drain(..self.departed as usize);
            self.departed = 0;
        }
    }

    fn release(&mut self, bytes: u32) {
        self.backlog_packets -= 1;
        self.backlog_bytes -= u64::from(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: LinkSpec = LinkSpec {
        rate_bps: 8_000_000,
        delay_ns: 1_000_000,
        buffer: Buffer::Packets(2),
        loss: Loss::None,
    };

    fn at(us: u64) -> Time {
        Time::from_nanos(us * 1_000)
    }

    fn packet(i: u32) -> PacketId {
        PacketId(i)
    }

    #[test]
    fn packets_depart_back_to_back_and_arrive_a_propagation_later() {
        let mut link = Link::new(CLEAN, 0, 0);
        assert_eq!(link.offer(at(0), packet(0), 1000), Offer::Wake(at(2000)));
        assert_eq!(link.offer(at(500), packet(1), 500), Offer::Queued);
        assert_eq!(link.deliver(), (packet(0), Some(at(2500))));
        assert_eq!(link.deliver(), (packet(1), None));
        assert_eq!(link.offer(at(9000), packet(2), 1), Offer::Wake(at(10_001)));
    }

    #[test]
    fn a_packet_leaves_the_buffer_when_it_is_transmitted_not_when_it_arrives() {
        let mut link = Link::new(CLEAN, 0, 0);
        link.offer(at(0), packet(0), 1000);
        link.offer(at(0), packet(1), 1000);
        assert_eq!(link.offer(at(999), packet(2), 1000), Offer::Overflowed);
        assert_eq!(link.offer(at(1000), packet(3), 1000), Offer::Queued);
        assert_eq!(link.backlog(at(1000)).packets, 2);
        assert_eq!(link.held().packets, 3);
        assert!(link.conserves());
    }

    #[test]
    fn a_buffer_in_bytes_takes_what_fits() {
        let buffer = Buffer::Bytes(1500);
        let mut link = Link::new(LinkSpec { buffer, ..CLEAN }, 0, 0);
        link.offer(at(0), packet(0), 1000);
        assert_eq!(link.offer(at(0), packet(1), 501), Offer::Overflowed);
        assert_eq!(link.offer(at(0), packet(2), 500), Offer::Queued);
        assert!(link.conserves());
    }

    #[test]
    fn rounding_does_not_accumulate_over_packets() {
        let spec = LinkSpec {
            rate_bps: 3_000_000_000,
            delay_ns: 0,
            buffer: Buffer::Unlimited,
            ..CLEAN
        };
        let mut link = Link::new(spec, 0, 0);
        for i in 0..3_000_000 {
            link.offer(at(0), packet(i), 1);
        }
        assert_eq!(
            link.held.back().map(|last| last.arrival_ns),
            Some(8_000_000)
        );
    }

    #[test]
    fn a_lost_packet_takes_its_place_and_its_time() {
        let loss = Loss::Independent { probability: 1. };
        let mut link = Link::new(LinkSpec { loss, ..CLEAN }, 0, 0);
        assert_eq!(link.offer(at(0), packet(0), 1000), Offer::Lost);
        assert_eq!(link.offer(at(0), packet(1), 1000), Offer::Lost);
        assert_eq!(link.offer(at(999), packet(2), 1000), Offer::Overflowed);
        assert_eq!(link.backlog(at(999)).packets, 2);
        assert_eq!(link.backlog(at(2000)).packets, 0);
        assert!(link.held.is_empty());
        assert!(link.conserves());
    }

    fn lost_of(loss: Loss, packets: u32, seed: u64) -> Vec<bool> {
        let mut link = Link::new(LinkSpec { loss, ..CLEAN }, seed, 3);
        let lost = |i| {
            let lost = link.offer(at(u64::from(i) * 1000), packet(i), 1000) == Offer::Lost;
            if !lost {
                link.deliver();
            }
            lost
        };
        (0..packets).map(lost).collect()
    }

    #[test]
    fn independent_loss_has_its_rate_and_repeats_with_its_seed() {
        let loss = Loss::Independent { probability: 0.03 };
        let lost = lost_of(loss, 200_000, 5);
        let rate = lost.iter().filter(|lost| **lost).count() as f64 / 200_000.;
        let three_sigma = 3. * (0.03 * 0.97 / 200_000f64).sqrt();
        assert!(
            (rate - 0.03).abs() < three_sigma,
            "observed {rate}, expected 0.03 ± {three_sigma}"
        );
        assert_eq!(lost, lost_of(loss, 200_000, 5));
        assert_ne!(lost, lost_of(loss, 200_000, 6));
    }

    #[test]
    fn bursts_last_as_long_as_the_bad_state() {
        let loss = Loss::Bursty {
            good_to_bad: 0.01,
            bad_to_good: 0.25,
            loss_good: 0.,
            loss_bad: 1.,
        };
        let lost = lost_of(loss, 400_000, 5);
        let losses = lost.iter().filter(|lost| **lost).count() as f64;
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        let (rate, length) = (losses / 400_000., losses / bursts);
        assert!(
            (rate / (0.01 / 0.26) - 1.).abs() < 0.05,
            "loss {rate}, expected 0.03846 ± 5 %"
        );
        assert!(
            (length / 4. - 1.).abs() < 0.05,
            "burst {length}, expected 4 ± 5 %"
        );
    }
}
