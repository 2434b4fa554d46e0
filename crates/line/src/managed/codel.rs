//! Controlled delay, RFC 8289: a queue is bad if no packet of a whole interval waited less than the target. Then packets
//! are dropped from its head, the next one `interval / √count` after the last, until one has waited less.

use crate::{Codel, Waiting};

use super::Fifo;

/// A drop state that is entered again so soon goes on where the last one stopped (RFC 8289, section 4.5), in intervals.
const REMEMBERED: u64 = 16;

/// What a queue is remembered by between two departures.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Law {
    /// When packets will have waited too long for an interval, if they do now.
    bad_at_ns: Option<u64>,
    dropping: bool,
    /// When the next packet is dropped while they are.
    next_ns: u64,
    /// Dropped since the state was entered, and what that was when it was.
    count: u32,
    entered_with: u32,
}

/// A packet at the head of a queue, and whether the queue is bad.
struct Head<P> {
    packet: Waiting<P>,
    bad: bool,
}

impl Law {
    /// The packet that leaves `fifo` at `now_ns`, and whether it is marked; what is dropped before it joins `dropped`.
    pub fn dequeue<P: Copy>(
        &mut self,
        codel: &Codel,
        now_ns: u64,
        fifo: &mut Fifo<P>,
        dropped: &mut Vec<Waiting<P>>,
    ) -> Option<(Waiting<P>, bool)> {
        let mut head = self.take(codel, now_ns, fifo)?;
        if !self.dropping {
            if !head.bad {
                return Some((head.packet, false));
            }
            self.enter(codel, now_ns);
            if codel.ecn && head.packet.ect {
                return Some((head.packet, true));
            }
            dropped.push(head.packet);
            let next = self.take(codel, now_ns, fifo)?;
            return Some((next.packet, false));
        }
        self.dropping = head.bad;
        while self.dropping && now_ns >= self.next_ns {
            self.count += 1;
            if codel.ecn && head.packet.ect {
                self.next_ns = self.after(codel, self.next_ns);
                return Some((head.packet, true));
            }
            dropped.push(head.packet);
            head = self.take(codel, now_ns, fifo)?;
            self.dropping = head.bad;
            if head.bad {
                self.next_ns = self.after(codel, self.next_ns);
            }
        }
        Some((head.packet, false))
    }

    fn take<P: Copy>(&mut self, codel: &Codel, now_ns: u64, fifo: &mut Fifo<P>) -> Option<Head<P>> {
        let Some(packet) = fifo.pop() else {
            (self.bad_at_ns, self.dropping) = (None, false);
            return None;
        };
        let waited_ns = now_ns - packet.since_ns;
        let bad = self.is_bad(codel, now_ns, waited_ns, fifo.tally().bytes);
        Some(Head { packet, bad })
    }

    fn is_bad(&mut self, codel: &Codel, now_ns: u64, waited_ns: u64, left_bytes: u64) -> bool {
        let target_ns = codel.target.as_nanos() as u64;
        if waited_ns < target_ns || left_bytes <= u64::from(codel.mtu_bytes) {
            self.bad_at_ns = None;
            return false;
        }
        let interval_ns = codel.interval.as_nanos() as u64;
        now_ns >= *self.bad_at_ns.get_or_insert(now_ns + interval_ns)
    }

    fn enter(&mut self, codel: &Codel, now_ns: u64) {
        let interval_ns = codel.interval.as_nanos() as u64;
        let recent = now_ns.saturating_sub(self.next_ns) < REMEMBERED * interval_ns;
        let added = self.count - self.entered_with;
        self.count = if added > 1 && recent { added } else { 1 };
        self.entered_with = self.count;
        self.dropping = true;
        self.next_ns = self.after(codel, now_ns);
    }

    /// The control law of section 4.3.
    fn after(&self, codel: &Codel, time_ns: u64) -> u64 {
        let interval_ns = codel.interval.as_nanos() as f64;
        time_ns + (interval_ns / f64::from(self.count).sqrt()) as u64
    }
}
