//! What sends one packet after the other, and the buffer before it.

use anabranch_scenario::{Buffer, Opportunities};

use super::Tally;
use super::ring::Ring;

/// What the limit of a buffer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Bytes,
    Packets,
}

/// A packet that has not departed, as far as anybody looked.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    departure_ns: u64,
    /// Accepted before it.
    bytes_before: u64,
}

/// A drop-tail buffer and a rate.
///
/// Departures are computed on acceptance, `max(now, last departure) + bits / rate`, in exact fractions of a nanosecond,
/// so that rounding never accumulates. What has departed meanwhile is counted when somebody asks, or when the buffer
/// seems full.
///
/// The fields stand in the order in which they are used: a packet touches two cache lines of 64 bytes, and none else if
/// it need not wait.
#[derive(Debug)]
#[repr(C)]
pub struct Transmitter {
    rate_bps: u64,
    /// When all that was accepted has departed.
    last_departure_ns: u64,
    /// Of the last departure, in units of 1 / `rate_bps` nanoseconds.
    last_departure_fraction: u64,
    /// How long packets of `usual_bytes` take, and the rest in the same units. Most packets are as long as the last.
    usual_ns: u64,
    usual_fraction: u64,
    usual_bytes: u32,
    unit: Unit,
    /// Whether the last that was accepted has not departed.
    busy: bool,
    /// Of the backlog, in `unit`.
    limit: u64,
    /// Of the bytes accepted, what has departed.
    departed_bytes: u64,
    accepted: Tally,
    /// Accepted before the last.
    bytes_before_last: u64,
    /// Those before the last.
    waiting: Ring<Waiting>,
}

impl Transmitter {
    /// # Panics
    /// If the rate is 0.
    pub fn new(rate_bps: u64, buffer: Buffer) -> Self {
        assert!(rate_bps > 0, "a link needs a rate of at least 1 bit/s");
        let (unit, limit) = limit(buffer);
        Transmitter {
            rate_bps,
            last_departure_ns: 0,
            last_departure_fraction: 0,
            usual_ns: 0,
            usual_fraction: 0,
            usual_bytes: 0,
            unit,
            busy: false,
            limit,
            departed_bytes: 0,
            accepted: Tally::default(),
            bytes_before_last: 0,
            waiting: Ring::default(),
        }
    }

    pub fn rate_bps(&self) -> u64 {
        self.rate_bps
    }

    /// What it takes at most.
    pub fn buffer(&self) -> Buffer {
        match (self.unit, self.limit) {
            (Unit::Bytes, u64::MAX) => Buffer::Unlimited,
            (Unit::Bytes, bytes) => Buffer::Bytes(bytes),
            (Unit::Packets, packets) => Buffer::Packets(packets),
        }
    }

    /// For packets that come after this.
    pub fn set_buffer(&mut self, buffer: Buffer) {
        (self.unit, self.limit) = limit(buffer);
    }

    /// When all that was accepted has departed.
    pub fn free_ns(&self) -> u64 {
        self.last_departure_ns
    }

    /// All that ever found room.
    pub fn accepted(&self) -> Tally {
        self.accepted
    }

    /// What had not departed when [`Transmitter::depart`] was called last, and what came since.
    #[inline]
    pub fn backlog(&self) -> Tally {
        Tally {
            packets: self.waiting.len() as u64 + u64::from(self.busy),
            bytes: self.accepted.bytes - self.departed_bytes,
        }
    }

    /// When a packet has departed that comes at `now_ns`, if there is room for it.
    #[inline(always)]
    pub fn accept(&mut self, now_ns: u64, bytes: u32) -> Option<u64> {
        self.accept_by(now_ns, bytes, |transmitter| transmitter.transmit(bytes))
    }

    /// The same, where a trace has the last word on departures in place of the rate.
    pub fn accept_traced(
        &mut self,
        now_ns: u64,
        bytes: u32,
        trace: &mut Opportunities,
    ) -> Option<u64> {
        self.accept_by(now_ns, bytes, |transmitter| {
            transmitter.last_departure_ns = trace.depart(transmitter.last_departure_ns, bytes);
            transmitter.last_departure_ns
        })
    }

    #[inline(always)]
    fn accept_by(
        &mut self,
        now_ns: u64,
        bytes: u32,
        transmit: impl FnOnce(&mut Self) -> u64,
    ) -> Option<u64> {
        if now_ns >= self.last_departure_ns {
            self.clear();
            if !self.has_room(bytes) {
                return None;
            }
            if now_ns > self.last_departure_ns {
                (self.last_departure_ns, self.last_departure_fraction) = (now_ns, 0);
            }
        } else {
            if !self.has_room(bytes) {
                self.depart(now_ns);
                if !self.has_room(bytes) {
                    return None;
                }
            }
            if self.busy {
                self.wait(now_ns);
            }
        }
        self.busy = true;
        self.bytes_before_last = self.accepted.bytes;
        self.accepted.add(bytes);
        Some(transmit(self))
    }

    /// Remembers the last that was accepted: another comes after it.
    #[inline]
    fn wait(&mut self, now_ns: u64) {
        if self.waiting.is_full() {
            self.depart(now_ns);
        }
        self.waiting.push(Waiting {
            departure_ns: self.last_departure_ns,
            bytes_before: self.bytes_before_last,
        });
    }

    #[inline]
    fn has_room(&self, bytes: u32) -> bool {
        let backlog = self.backlog();
        match self.unit {
            Unit::Bytes => backlog.bytes + u64::from(bytes) <= self.limit,
            Unit::Packets => backlog.packets < self.limit,
        }
    }

    /// When a packet has departed that comes after all others.
    #[inline(always)]
    fn transmit(&mut self, bytes: u32) -> u64 {
        if bytes != self.usual_bytes {
            let bit_ns = u64::from(bytes) * 8 * 1_000_000_000;
            self.usual_bytes = bytes;
            self.usual_ns = bit_ns / self.rate_bps;
            self.usual_fraction = bit_ns % self.rate_bps;
        }
        let fraction = self.last_departure_fraction + self.usual_fraction;
        let carry = fraction >= self.rate_bps;
        self.last_departure_fraction = fraction - if carry { self.rate_bps } else { 0 };
        self.last_departure_ns += self.usual_ns + u64::from(carry);
        self.last_departure_ns
    }

    /// Counts what has departed by `now_ns`.
    pub fn depart(&mut self, now_ns: u64) {
        if now_ns >= self.last_departure_ns {
            return self.clear();
        }
        while let Some(first) = self.waiting.first() {
            if first.departure_ns > now_ns {
                self.departed_bytes = first.bytes_before;
                return;
            }
            self.waiting.pop();
        }
        self.departed_bytes = self.bytes_before_last;
    }

    #[inline]
    fn clear(&mut self) {
        self.busy = false;
        self.waiting.clear();
        self.departed_bytes = self.accepted.bytes;
    }

    /// Lets go of all that has not departed by `now_ns`.
    pub fn drop_all(&mut self, now_ns: u64) {
        self.clear();
        self.last_departure_ns = self.last_departure_ns.min(now_ns);
        self.last_departure_fraction = 0;
    }

    /// What waits, and the rest of what is in transmission, is sent at `rate_bps`. Returns the departures of all that
    /// has not departed by `now_ns`.
    ///
    /// # Panics
    /// If the rate is 0.
    pub fn set_rate(&mut self, now_ns: u64, rate_bps: u64) -> Vec<u64> {
        assert!(rate_bps > 0, "a link needs a rate of at least 1 bit/s");
        self.depart(now_ns);
        let old_bps = std::mem::replace(&mut self.rate_bps, rate_bps);
        (self.usual_bytes, self.usual_ns, self.usual_fraction) = (0, 0, 0);
        self.last_departure_fraction = 0;
        let packets: Vec<Waiting> = self.all_waiting().collect();
        self.waiting.clear();
        let mut departures = Vec::with_capacity(packets.len());
        for (i, packet) in packets.iter().enumerate() {
            if i == 0 {
                let left = u128::from(packet.departure_ns - now_ns) * u128::from(old_bps);
                self.last_departure_ns = now_ns + (left / u128::from(rate_bps)) as u64;
            } else {
                self.waiting.push(Waiting {
                    departure_ns: self.last_departure_ns,
                    ..packets[i - 1]
                });
                let next = packets.get(i + 1);
                let end = next.map_or(self.accepted.bytes, |next| next.bytes_before);
                self.transmit((end - packet.bytes_before) as u32);
            }
            departures.push(self.last_departure_ns);
        }
        departures
    }

    /// Of all that has not departed, when it departs.
    pub fn departures(&self) -> impl Iterator<Item = u64> {
        self.all_waiting().map(|packet| packet.departure_ns)
    }

    fn all_waiting(&self) -> impl Iterator<Item = Waiting> {
        let last = self.busy.then_some(Waiting {
            departure_ns: self.last_departure_ns,
            bytes_before: self.bytes_before_last,
        });
        self.waiting.iter().copied().chain(last)
    }
}

fn limit(buffer: Buffer) -> (Unit, u64) {
    match buffer {
        Buffer::Bytes(limit) => (Unit::Bytes, limit),
        Buffer::Packets(limit) => (Unit::Packets, limit),
        Buffer::Unlimited => (Unit::Bytes, u64::MAX),
    }
}
