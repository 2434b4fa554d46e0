//! What happens to a line while packets are on it.

use anabranch_core::Time;

use super::rare::Audit;
use super::{GHOST, Link, Loss, Offer, Red};
use crate::packet::PacketId;

/// After a change, packets arrive when [`Link::to_come`] says, no longer when [`Link::offer`] said.
impl Link {
    /// The line becomes a blackhole: returns what was on it, and loses what it is offered.
    pub fn cut(&mut self, now: Time) -> Vec<PacketId> {
        let now_ns = now.as_nanos();
        self.arrive(now_ns);
        self.special = true;
        self.rare.is_cut = true;
        let mut swallowed = Vec::new();
        for held in self.held.iter().filter(|held| held.packet != GHOST) {
            self.rare.cut.add(held.bytes);
            self.rare.leave(now_ns);
            self.rare
                .shift(i128::from(now_ns) - i128::from(held.arrival_ns));
            swallowed.push(held.packet);
        }
        self.held.clear();
        self.waiting = self.held.end();
        self.departed_bytes = self.accepted_bytes;
        self.last_departure_ns = self.last_departure_ns.min(now_ns);
        self.last_departure_fraction = 0;
        swallowed
    }

    /// The line is whole again.
    pub fn restore(&mut self) {
        self.rare.is_cut = false;
    }

    /// What waits, and the rest of what is in transmission, is sent at `rate_bps`.
    ///
    /// # Panics
    /// If the rate is 0.
    pub fn set_rate(&mut self, now: Time, rate_bps: u64) {
        assert!(rate_bps > 0, "a link needs a rate of at least 1 bit/s");
        let now_ns = now.as_nanos();
        self.arrive(now_ns);
        let old_bps = std::mem::replace(&mut self.rate_bps, rate_bps);
        (self.usual_bytes, self.usual_ns, self.usual_fraction) = (0, 0, 0);
        self.last_departure_fraction = 0;
        let mut waiting = self.held.from(self.waiting);
        let Some(sending) = waiting.next() else {
            return;
        };
        let left_ns = self.held.at(sending).departure_ns - now_ns;
        let left = u128::from(left_ns) * u128::from(old_bps);
        self.last_departure_ns = now_ns + (left / u128::from(rate_bps)) as u64;
        self.postpone(sending, self.last_departure_ns);
        for number in waiting {
            let departure_ns = self.transmit(now_ns, self.held.at(number).bytes);
            self.postpone(number, departure_ns);
        }
    }

    /// Packets whose transmission begins after this take `delay_ns`, but none overtakes another.
    pub fn set_delay(&mut self, now: Time, delay_ns: u64) {
        self.special = true;
        self.arrive(now.as_nanos());
        self.delay_ns = delay_ns;
        for number in self.held.from(self.waiting).skip(1) {
            self.postpone(number, self.held.at(number).departure_ns);
        }
    }

    pub fn set_loss(&mut self, loss: Loss) {
        self.special = true;
        self.rare.set_loss(loss);
    }

    /// Drops early, before the buffer is full.
    pub fn set_red(&mut self, red: Red) {
        self.special = true;
        self.rare.set_red(red);
    }

    /// From here on, both sides of Little's law are added up.
    pub fn audit(&mut self, now: Time) {
        self.arrive(now.as_nanos());
        self.special = true;
        let mut audit = Audit::new(now.as_nanos(), self.held(now).packets);
        audit.sojourn_ns = self.still_ns(now.as_nanos());
        self.rare.audit = Some(audit);
    }

    /// Whether the time that packets have spent here is the integral of how many were here. True without an audit.
    pub fn obeys_little(&mut self, now: Time) -> bool {
        self.arrive(now.as_nanos());
        let Some(mut audit) = self.rare.audit else {
            return true;
        };
        audit.pass(now.as_nanos());
        audit.sojourn_ns - self.still_ns(now.as_nanos()) == audit.integral_ns
    }

    /// How long what is held will still be here after `now_ns`.
    fn still_ns(&self, now_ns: u64) -> i128 {
        let alive = self.held.iter().filter(|held| held.packet != GHOST);
        let still = alive.map(|held| i128::from(held.arrival_ns) - i128::from(now_ns));
        still.sum()
    }

    /// Gives a packet another time to depart, and to arrive, though not before the one ahead of it.
    fn postpone(&mut self, number: u32, departure_ns: u64) {
        let is_first = self.held.from(number).len() == self.held.len();
        let ahead_ns = match is_first {
            true => 0,
            false => self.held.at(number.wrapping_sub(1)).arrival_ns,
        };
        let delay_ns = self.delay_ns;
        let held = self.held.at_mut(number);
        let before_ns = held.arrival_ns;
        held.departure_ns = departure_ns;
        held.arrival_ns = (departure_ns + delay_ns).max(ahead_ns);
        if held.packet != GHOST {
            let by_ns = i128::from(held.arrival_ns) - i128::from(before_ns);
            self.rare.shift(by_ns);
        }
    }

    /// As [`Link::offer`], where chance, a fault or an audit has a say.
    pub(super) fn offer_special(
        &mut self,
        now_ns: u64,
        entry_ns: u64,
        packet: PacketId,
        bytes: u32,
    ) -> Offer {
        self.arrive(now_ns);
        self.depart(entry_ns);
        if self.refuses(entry_ns, bytes) {
            return Offer::Lost;
        }
        if !self.has_room(bytes) {
            self.overflowed.add(bytes);
            return Offer::Overflowed;
        }
        let lost = self.rare.loses(bytes);
        let departure_ns = self.transmit(entry_ns, bytes);
        // The delay may have been longer when the one before was accepted.
        let before_ns = self.held.last().map_or(0, |before| before.arrival_ns);
        let arrival_ns = (departure_ns + self.delay_ns).max(before_ns);
        let entered = if lost { GHOST } else { packet };
        self.hold(departure_ns, arrival_ns, entered, bytes);
        if lost {
            return Offer::Lost;
        }
        self.rare.enter(entry_ns, arrival_ns);
        Offer::Arrives(Time::from_nanos(arrival_ns))
    }

    /// What never gets as far as the buffer.
    fn refuses(&mut self, entry_ns: u64, bytes: u32) -> bool {
        if self.rare.is_cut {
            self.rare.cut.add(bytes);
            return true;
        }
        if !self.rare.detects_early() {
            return false;
        }
        let idle_ns = entry_ns.saturating_sub(self.last_departure_ns);
        let idle = u128::from(idle_ns) * u128::from(self.rate_bps) / 8_000_000_000;
        let idle_bytes = u64::try_from(idle).unwrap_or(u64::MAX);
        self.rare
            .drops_early(self.backlog_bytes(), idle_bytes, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Buffer, LinkSpec, Offer};
    use super::*;

    /// 1000 bytes take 1 ms, and 1 ms on the way.
    const SPEC: LinkSpec = LinkSpec {
        rate_bps: 8_000_000,
        delay_ns: 1_000_000,
        buffer: Buffer::Unlimited,
        loss: Loss::None,
    };

    fn at(us: u64) -> Time {
        Time::from_nanos(us * 1_000)
    }

    /// Four packets of 1000 bytes at time 0.
    fn four(spec: LinkSpec) -> Link {
        let mut link = Link::new(spec, 1, 1);
        link.audit(at(0));
        for i in 0..4 {
            link.offer(at(0), PacketId(i), 1000);
        }
        link
    }

    fn arrives(us: u64) -> Offer {
        Offer::Arrives(at(us))
    }

    /// When what is held at `now` arrives, in µs.
    fn arrivals(link: &mut Link, now: Time) -> Vec<u64> {
        let all: Vec<Time> = link.to_come(now).map(|(_, arrival)| arrival).collect();
        assert!(all.iter().all(|arrival| link.obeys_little(*arrival)));
        all.iter().map(|time| time.as_nanos() / 1000).collect()
    }

    #[test]
    fn a_rate_that_doubles_halves_what_is_left_to_send() {
        let mut link = four(SPEC);
        link.set_rate(at(1500), 16_000_000);
        // One propagates, of one a half is sent, two wait.
        assert_eq!(arrivals(&mut link, at(1500)), [2000, 2750, 3250, 3750]);
        assert!(link.conserves(at(9000)) && link.obeys_little(at(9000)));
        assert_eq!(link.offer(at(9000), PacketId(9), 1000), arrives(10_500));
    }

    #[test]
    fn a_rate_that_falls_delays_what_is_in_transmission() {
        let mut link = four(SPEC);
        link.set_rate(at(500), 4_000_000);
        assert_eq!(arrivals(&mut link, at(500)), [2500, 4500, 6500, 8500]);
    }

    #[test]
    fn a_shorter_delay_lets_nobody_overtake() {
        let mut link = four(LinkSpec {
            delay_ns: 10_000_000,
            ..SPEC
        });
        link.set_delay(at(1500), 1_000_000);
        // The second was in transmission: its delay is the old one, and the others wait behind it.
        let expected = [11_000, 12_000, 12_000, 12_000];
        assert_eq!(arrivals(&mut link, at(1500)), expected);
        link.set_delay(at(20_000), 2_000_000);
        assert_eq!(link.offer(at(20_000), PacketId(9), 1000), arrives(23_000));
    }

    #[test]
    fn a_cut_line_swallows_what_it_has_and_what_comes_until_it_is_whole() {
        let mut link = four(SPEC);
        assert_eq!(link.cut(at(1500)).len(), 4);
        assert_eq!(link.offer(at(1600), PacketId(5), 1000), Offer::Lost);
        assert!(link.conserves(at(2000)) && link.obeys_little(at(3000)));
        assert_eq!(link.counters(at(2000)).cut.packets, 5);
        link.restore();
        assert_eq!(link.offer(at(4000), PacketId(6), 1000), arrives(6000));
        assert_eq!(arrivals(&mut link, at(4000)), [6000]);
        assert!(link.conserves(at(5000)));
    }

    #[test]
    fn losses_can_begin_and_end() {
        let mut link = Link::new(SPEC, 1, 1);
        link.set_loss(Loss::Independent { probability: 1. });
        assert_eq!(link.offer(at(0), PacketId(0), 1000), Offer::Lost);
        link.set_loss(Loss::None);
        assert_eq!(link.offer(at(500), PacketId(1), 1000), arrives(3000));
        assert!(link.conserves(at(500)));
    }
}
