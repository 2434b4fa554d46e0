//! One direction of a line.

mod change;
mod rare;
mod ring;

use anabranch_core::Time;
pub use anabranch_scenario::{Buffer, Loss, Red};

use crate::packet::PacketId;
use rare::Rare;
use ring::Ring;

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
    /// It arrives at this time, unless the line changes before.
    Arrives(Time),
    Overflowed,
    /// By the line, by random early detection, or because the line is cut.
    Lost,
}

/// Takes the place of a packet that the line will lose.
const GHOST: PacketId = PacketId(u32::MAX);

/// A packet in the link.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    departure_ns: u64,
    arrival_ns: u64,
    /// That the link had accepted before.
    bytes_before: u64,
    /// [`GHOST`] if the line will lose it.
    packet: PacketId,
    bytes: u32,
}

/// What the limit of a buffer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Bytes,
    Packets,
}

/// A FIFO link with drop-tail buffer, rate, propagation and loss.
///
/// [`Link::offer`] tells at once when a packet arrives, since nothing that is offered later can delay it: departures are
/// `max(now, last departure) + bits / rate`, in exact fractions of a nanosecond, so that rounding never accumulates.
/// What has departed and arrived meanwhile is counted when somebody asks, or when the buffer seems full.
///
/// The fields stand in the order in which they are used, so that a packet touches two cache lines of 64 bytes, and one
/// of the ring.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Link {
    rate_bps: u64,
    delay_ns: u64,
    last_departure_ns: u64,
    /// Of the last departure, in units of 1 / `rate_bps` nanoseconds.
    last_departure_fraction: u64,
    /// How long packets of `usual_bytes` take, and the rest in the same units. Most packets are as long as the last.
    usual_ns: u64,
    usual_fraction: u64,
    /// Of the backlog, in `unit`.
    limit: u64,
    usual_bytes: u32,
    unit: Unit,
    /// Whether `rare` has a say.
    special: bool,
    held: Ring<Held>,
    /// The first that has not left the buffer: those before it are propagating.
    waiting: u32,
    accepted_bytes: u64,
    /// Of `accepted_bytes`, what has left the buffer.
    departed_bytes: u64,
    offered: Tally,
    delivered: Tally,
    overflowed: Tally,
    rare: Box<Rare>,
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
            usual_ns: 0,
            usual_fraction: 0,
            limit,
            usual_bytes: 0,
            unit,
            special: spec.loss != Loss::None,
            held: Ring::default(),
            waiting: 0,
            accepted_bytes: 0,
            departed_bytes: 0,
            offered: Tally::default(),
            delivered: Tally::default(),
            overflowed: Tally::default(),
            rare: Box::new(Rare::new(spec.loss, seed, stream)),
        }
    }

    /// What the link has done by `now`.
    pub fn counters(&self, now: Time) -> LinkCounters {
        let arrived = |held: &&Held| held.arrival_ns <= now.as_nanos();
        let unsettled = tally(self.held.iter().take_while(arrived));
        LinkCounters {
            offered: self.offered,
            delivered: self.delivered.plus(unsettled),
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
            packets: self.backlog_packets(),
            bytes: self.backlog_bytes(),
        }
    }

    /// Waiting, in transmission or propagating at `now`, and not to be lost.
    pub fn held(&self, now: Time) -> Tally {
        let now_ns = now.as_nanos();
        tally(self.held.iter().filter(|held| held.arrival_ns > now_ns))
    }

    /// Whether everything offered is accounted for, to the byte.
    pub fn conserves(&self, now: Time) -> bool {
        let all = self.counters(now);
        let gone = all.overflowed.plus(all.lost).plus(all.early).plus(all.cut);
        all.offered == all.delivered.plus(gone).plus(self.held(now))
    }

    /// Takes a packet in, or tells why not.
    #[inline]
    pub fn offer(&mut self, now: Time, packet: PacketId, bytes: u32) -> Offer {
        self.offer_ahead(now, now, packet, bytes)
    }

    /// Takes in a packet that will come at `entry`, and no other before it.
    #[inline(always)]
    pub fn offer_ahead(&mut self, now: Time, entry: Time, packet: PacketId, bytes: u32) -> Offer {
        self.offered.add(bytes);
        if self.held.is_full() {
            self.arrive(now.as_nanos());
        }
        if self.special {
            return self.offer_special(now.as_nanos(), entry.as_nanos(), packet, bytes);
        }
        if !self.has_room(bytes) {
            self.depart(entry.as_nanos());
            if !self.has_room(bytes) {
                self.overflowed.add(bytes);
                return Offer::Overflowed;
            }
        }
        let departure_ns = self.transmit(entry.as_nanos(), bytes);
        let arrival_ns = departure_ns + self.delay_ns;
        self.hold(departure_ns, arrival_ns, packet, bytes);
        Offer::Arrives(Time::from_nanos(arrival_ns))
    }

    /// What will arrive after `now`, and when.
    pub(crate) fn to_come(&self, now: Time) -> impl Iterator<Item = (PacketId, Time)> {
        let coming = move |held: &&Held| held.arrival_ns > now.as_nanos() && held.packet != GHOST;
        let arrival = |held: &Held| (held.packet, Time::from_nanos(held.arrival_ns));
        self.held.iter().filter(coming).map(arrival)
    }

    #[inline]
    fn backlog_packets(&self) -> u64 {
        self.held.end().wrapping_sub(self.waiting).into()
    }

    #[inline]
    fn backlog_bytes(&self) -> u64 {
        self.accepted_bytes - self.departed_bytes
    }

    #[inline]
    fn has_room(&self, bytes: u32) -> bool {
        match self.unit {
            Unit::Bytes => self.backlog_bytes() + u64::from(bytes) <= self.limit,
            Unit::Packets => self.backlog_packets() < self.limit,
        }
    }

    #[inline(always)]
    fn hold(&mut self, departure_ns: u64, arrival_ns: u64, packet: PacketId, bytes: u32) {
        self.held.push(Held {
            departure_ns,
            arrival_ns,
            bytes_before: self.accepted_bytes,
            packet,
            bytes,
        });
        self.accepted_bytes += u64::from(bytes);
    }

    /// When a packet has departed that comes at `entry_ns`.
    #[inline(always)]
    fn transmit(&mut self, entry_ns: u64, bytes: u32) -> u64 {
        if bytes != self.usual_bytes {
            let bit_ns = u64::from(bytes) * 8 * 1_000_000_000;
            self.usual_bytes = bytes;
            self.usual_ns = bit_ns / self.rate_bps;
            self.usual_fraction = bit_ns % self.rate_bps;
        }
        let (mut last_ns, mut fraction) = (self.last_departure_ns, self.last_departure_fraction);
        if entry_ns > last_ns {
            (last_ns, fraction) = (entry_ns, 0);
        }
        fraction += self.usual_fraction;
        let carry = fraction >= self.rate_bps;
        self.last_departure_fraction = fraction - if carry { self.rate_bps } else { 0 };
        self.last_departure_ns = last_ns + self.usual_ns + u64::from(carry);
        self.last_departure_ns
    }

    /// Counts what has left the buffer by `now_ns`.
    fn depart(&mut self, now_ns: u64) {
        while self.waiting != self.held.end() {
            let held = self.held.at(self.waiting);
            if held.departure_ns > now_ns {
                self.departed_bytes = held.bytes_before;
                return;
            }
            self.waiting = self.waiting.wrapping_add(1);
        }
        self.departed_bytes = self.accepted_bytes;
    }

    /// Counts what has arrived by `now_ns`, and lets go of it.
    fn arrive(&mut self, now_ns: u64) {
        self.depart(now_ns);
        while let Some(first) = self.held.first().copied() {
            if first.arrival_ns > now_ns {
                return;
            }
            self.held.pop();
            if first.packet != GHOST {
                self.delivered.add(first.bytes);
                if self.special {
                    self.rare.leave(first.arrival_ns);
                }
            }
        }
    }
}

/// Of those that are not to be lost.
fn tally<'a>(held: impl Iterator<Item = &'a Held>) -> Tally {
    let mut tally = Tally::default();
    held.filter(|held| held.packet != GHOST)
        .for_each(|held| tally.add(held.bytes));
    tally
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

    fn arrives(us: u64) -> Offer {
        Offer::Arrives(at(us))
    }

    #[test]
    fn packets_depart_back_to_back_and_arrive_a_propagation_later() {
        let mut link = Link::new(CLEAN, 0, 0);
        assert_eq!(link.offer(at(0), packet(0), 1000), arrives(2000));
        assert_eq!(link.offer(at(500), packet(1), 500), arrives(2500));
        let by = |us| link.counters(at(us)).delivered.packets;
        assert_eq!([1999, 2000, 2499, 2500].map(by), [0, 1, 1, 2]);
        assert_eq!(link.offer(at(9000), packet(2), 1), arrives(10_001));
    }

    #[test]
    fn a_packet_leaves_the_buffer_when_it_is_transmitted_not_when_it_arrives() {
        let mut link = Link::new(CLEAN, 0, 0);
        link.offer(at(0), packet(0), 1000);
        link.offer(at(0), packet(1), 1000);
        assert_eq!(link.offer(at(999), packet(2), 1000), Offer::Overflowed);
        assert_eq!(link.offer(at(1000), packet(3), 1000), arrives(4000));
        assert_eq!(link.backlog(at(1000)).packets, 2);
        assert_eq!(link.held(at(1000)).packets, 3);
        assert!(link.conserves(at(1000)) && link.conserves(at(3500)));
    }

    #[test]
    fn a_buffer_in_bytes_takes_what_fits() {
        let buffer = Buffer::Bytes(1500);
        let mut link = Link::new(LinkSpec { buffer, ..CLEAN }, 0, 0);
        link.offer(at(0), packet(0), 1000);
        assert_eq!(link.offer(at(0), packet(1), 501), Offer::Overflowed);
        assert_eq!(link.offer(at(0), packet(2), 500), arrives(2500));
        assert!(link.conserves(at(0)));
    }

    #[test]
    fn what_comes_ahead_of_its_time_finds_the_buffer_as_it_will_be() {
        let mut link = Link::new(CLEAN, 0, 0);
        let entries = [0, 0, 999, 1000].map(at);
        let offers = entries.map(|entry| link.offer_ahead(at(0), entry, packet(0), 1000));
        let expected = [
            arrives(2000),
            arrives(3000),
            Offer::Overflowed,
            arrives(4000),
        ];
        assert_eq!(offers, expected);
        assert_eq!(link.counters(at(0)).delivered.packets, 0);
        assert_eq!(link.held(at(0)).packets, 3);
        assert!([0, 2000, 9000].iter().all(|us| link.conserves(at(*us))));
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
            link.held.iter().last().map(|last| last.arrival_ns),
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
        assert!(link.conserves(at(2000)) && link.conserves(at(3000)));
    }

    fn lost_of(loss: Loss, packets: u32, seed: u64) -> Vec<bool> {
        let mut link = Link::new(LinkSpec { loss, ..CLEAN }, seed, 3);
        let lost = |i| link.offer(at(u64::from(i) * 1000), packet(i), 1000) == Offer::Lost;
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
