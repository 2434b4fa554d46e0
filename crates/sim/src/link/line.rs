//! What is on a line, from when it was accepted until it arrives.

use anabranch_core::Time;

use super::managed::Managed;
use super::rare::Rare;
use super::ring::Ring;
use super::{Loss, Nature, Tally};
use crate::packet::PacketId;

/// Takes the place of a packet that the line will lose.
const GHOST: PacketId = PacketId(u32::MAX);

/// A packet on the line.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    arrival_ns: u64,
    /// [`GHOST`] if the line will lose it.
    packet: PacketId,
    bytes: u32,
}

#[derive(Debug)]
pub(super) struct Line {
    held: Ring<Held>,
    delivered: Tally,
    pub rare: Rare,
    /// Before the line, if its queue decides what leaves.
    pub managed: Option<Box<Managed>>,
}

impl Line {
    pub fn new(loss: Loss, seed: u64, stream: u64) -> Self {
        Line {
            held: Ring::default(),
            delivered: Tally::default(),
            rare: Rare::new(loss, seed, stream),
            managed: None,
        }
    }

    /// In the managed queue.
    pub fn waiting(&self) -> Tally {
        let managed = self.managed.as_ref();
        managed.map_or(Tally::default(), |managed| managed.waiting())
    }

    /// By the managed queue.
    pub fn marked(&self) -> Tally {
        let managed = self.managed.as_ref();
        managed.map_or(Tally::default(), |managed| managed.marked)
    }

    pub fn delivered_by(&self, now: Time) -> Tally {
        let arrived = |held: &&Held| held.arrival_ns <= now.as_nanos();
        let uncounted = tally(self.held.iter().take_while(arrived));
        self.delivered.plus(uncounted)
    }

    pub fn held_at(&self, now: Time) -> Tally {
        let coming = |held: &&Held| held.arrival_ns > now.as_nanos();
        tally(self.held.iter().filter(coming))
    }

    pub fn to_come(&self, now: Time) -> impl Iterator<Item = (PacketId, Time)> {
        let coming = move |held: &&Held| held.arrival_ns > now.as_nanos() && held.packet != GHOST;
        let arrival = |held: &Held| (held.packet, Time::from_nanos(held.arrival_ns));
        self.held.iter().filter(coming).map(arrival)
    }

    /// A packet was accepted at `now_ns`, to arrive at `arrival_ns`, though not before the one ahead of it: the delay may
    /// have been longer when that was accepted, and there may be jitter. When it arrives, unless the line loses it.
    #[inline(always)]
    pub fn enter(
        &mut self,
        now_ns: u64,
        arrival_ns: u64,
        packet: PacketId,
        bytes: u32,
        nature: Nature,
    ) -> Option<Time> {
        let arrival_ns = arrival_ns + self.rare.later_ns();
        let arrival_ns = arrival_ns.max(self.held.last().map_or(0, |last| last.arrival_ns));
        let lost = self.rare.loses(bytes, nature);
        self.held.push(Held {
            arrival_ns,
            packet: if lost { GHOST } else { packet },
            bytes,
        });
        if lost {
            return None;
        }
        self.rare.enter(now_ns, arrival_ns);
        Some(Time::from_nanos(arrival_ns))
    }

    /// Counts what has arrived by `now_ns`, and lets go of it.
    pub fn arrive(&mut self, now_ns: u64) {
        while let Some(first) = self.held.first().copied() {
            if first.arrival_ns > now_ns {
                return;
            }
            self.held.pop();
            if first.packet != GHOST {
                self.delivered.add(first.bytes);
                self.rare.leave(first.arrival_ns);
            }
        }
    }

    /// Swallows what has not arrived by `now_ns`, and tells what that was.
    pub fn swallow(&mut self, now_ns: u64) -> Vec<PacketId> {
        self.arrive(now_ns);
        let mut swallowed = Vec::new();
        for held in self.held.iter().filter(|held| held.packet != GHOST) {
            self.rare.swallowed.add(held.bytes);
            self.rare.leave(now_ns);
            self.rare
                .shift(i128::from(now_ns) - i128::from(held.arrival_ns));
            swallowed.push(held.packet);
        }
        self.held.clear();
        if let Some(managed) = &mut self.managed {
            swallowed.extend(managed.swallow(now_ns, &mut self.rare));
        }
        swallowed
    }

    /// The last of what is held arrives at these times, though nothing before what is ahead of it.
    pub fn postpone(&mut self, arrivals_ns: &[u64]) {
        let first = self.held.end().wrapping_sub(arrivals_ns.len() as u32);
        let mut ahead_ns = match arrivals_ns.len() == self.held.len() {
            true => 0,
            false => self.held.at(first.wrapping_sub(1)).arrival_ns,
        };
        for (number, &arrival_ns) in self.held.from(first).zip(arrivals_ns) {
            let held = self.held.at_mut(number);
            let before_ns = std::mem::replace(&mut held.arrival_ns, arrival_ns.max(ahead_ns));
            ahead_ns = held.arrival_ns;
            if held.packet != GHOST {
                self.rare
                    .shift(i128::from(ahead_ns) - i128::from(before_ns));
            }
        }
    }

    /// How long what is on the line will still be there after `now_ns`, less what is queued has been there before: what
    /// sojourns were counted too long, as those on the line are counted when they begin, and those in a managed queue when
    /// they end.
    pub fn still_ns(&self, now_ns: u64) -> i128 {
        let alive = self.held.iter().filter(|held| held.packet != GHOST);
        let still = alive.map(|held| i128::from(held.arrival_ns) - i128::from(now_ns));
        let managed = self.managed.as_ref();
        let waited_ns = managed.map_or(0, |managed| managed.waited_ns(now_ns));
        still.sum::<i128>() - waited_ns
    }
}

/// Of those that are not to be lost.
fn tally<'a>(held: impl Iterator<Item = &'a Held>) -> Tally {
    let mut tally = Tally::default();
    held.filter(|held| held.packet != GHOST)
        .for_each(|held| tally.add(held.bytes));
    tally
}
