//! The far end of a trunk whose packets carry sequence numbers: order is restored there (RFC 1990, section 4.1).
//!
//! A sublink delivers in order. So what is missing below the least of the numbers that each sublink delivered last is
//! lost, and what waited for it goes on. A sublink that has nothing to carry keeps that least number where it is: so nothing
//! waits longer than a time that the caller keeps ([`Resequencer::overdue_at`]), and no more than there is room for
//! (section 4.2). What comes after it was given up is late.

use std::collections::BTreeMap;

use anabranch_core::Time;

/// Restores the order of packets numbered from 0.
#[derive(Debug)]
pub struct Resequencer<P> {
    /// The next number that goes on.
    expected: u64,
    /// One more than the number that each sublink delivered last.
    passed: Vec<u64>,
    waiting: BTreeMap<u64, Waiting<P>>,
    waiting_bytes: u64,
    room_bytes: u64,
    patience_ns: u64,
}

#[derive(Debug)]
struct Waiting<P> {
    since: Time,
    bytes: u32,
    packet: P,
}

/// What becomes of a packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It waits, or goes on at once.
    Kept,
    /// It was given up before: nobody may have it now.
    Late,
}

impl<P> Resequencer<P> {
    /// So many bytes may wait, and none longer than `patience_ns`.
    pub fn new(sublinks: usize, room_bytes: u64, patience_ns: u64) -> Self {
        Resequencer {
            expected: 0,
            passed: vec![0; sublinks],
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            room_bytes,
            patience_ns,
        }
    }

    /// Packet `number` comes out of `sublink`. What goes on now: [`go_on`](Self::go_on).
    pub fn arrive(
        &mut self,
        now: Time,
        sublink: usize,
        number: u64,
        bytes: u32,
        packet: P,
    ) -> Fate {
        self.passed[sublink] = number + 1;
        if number < self.expected {
            return Fate::Late;
        }
        let waiting = Waiting {
            since: now,
            bytes,
            packet,
        };
        self.waiting.insert(number, waiting);
        self.waiting_bytes += u64::from(bytes);
        Fate::Kept
    }

    /// The next packet that need not wait any longer. `usable` says which sublinks may still bring one.
    pub fn go_on(&mut self, now: Time, usable: u64) -> Option<P> {
        let first = *self.waiting.first_key_value()?.0;
        if first > self.expected && !self.gives_up(now, usable, first) {
            return None;
        }
        self.expected = first + 1;
        let gone = self.waiting.remove(&first)?;
        self.waiting_bytes -= u64::from(gone.bytes);
        Some(gone.packet)
    }

    /// When what waits goes on whatever is missing; none if nothing waits.
    pub fn overdue_at(&self) -> Option<Time> {
        let since = self.waiting.values().map(|waiting| waiting.since).min()?;
        Some(Time::from_nanos(
            since.as_nanos().saturating_add(self.patience_ns),
        ))
    }

    /// Whether what is missing before `first` is not waited for any longer.
    fn gives_up(&self, now: Time, usable: u64, first: u64) -> bool {
        let passed = (0..).zip(&self.passed);
        let alive = passed.filter(|(i, _)| usable >> i & 1 == 1);
        let is_lost = alive.map(|(_, passed)| *passed).min() > Some(first);
        let is_full = self.waiting_bytes > self.room_bytes;
        is_lost || is_full || self.overdue_at().is_some_and(|due| due <= now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: u64 = u64::MAX;
    const NONE: [u64; 0] = [];

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn resequencer(sublinks: usize) -> Resequencer<u64> {
        Resequencer::new(sublinks, 4000, 100_000_000)
    }

    /// Packets are their own numbers.
    fn arrive(of: &mut Resequencer<u64>, now: Time, sublink: usize, number: u64) -> Vec<u64> {
        assert_eq!(of.arrive(now, sublink, number, 1000, number), Fate::Kept);
        all(of, now)
    }

    fn all(of: &mut Resequencer<u64>, now: Time) -> Vec<u64> {
        std::iter::from_fn(|| of.go_on(now, ALL)).collect()
    }

    #[test]
    fn what_overtakes_waits_for_what_it_overtook() {
        let mut of = resequencer(2);
        assert_eq!(arrive(&mut of, ms(1), 1, 1), NONE);
        assert_eq!(arrive(&mut of, ms(2), 1, 3), NONE);
        assert_eq!(arrive(&mut of, ms(3), 0, 0), [0, 1]);
        assert_eq!(arrive(&mut of, ms(4), 0, 2), [2, 3]);
    }

    /// Packet 0 is lost: as soon as its sublink has delivered a later one.
    #[test]
    fn what_no_sublink_can_bring_any_more_is_lost_and_not_waited_for() {
        let mut of = resequencer(2);
        assert_eq!(arrive(&mut of, ms(1), 1, 1), NONE);
        assert_eq!(arrive(&mut of, ms(2), 1, 3), NONE);
        assert_eq!(arrive(&mut of, ms(3), 0, 2), [1, 2, 3]);
    }

    #[test]
    fn a_sublink_out_of_use_is_not_waited_for() {
        let mut of = resequencer(2);
        assert_eq!(arrive(&mut of, ms(1), 1, 1), NONE);
        assert_eq!(of.go_on(ms(1), 0b10), Some(1));
    }

    #[test]
    fn nothing_is_waited_for_longer_than_the_patience_and_what_comes_then_is_late() {
        let mut of = resequencer(2);
        assert_eq!(of.overdue_at(), None);
        assert_eq!(arrive(&mut of, ms(10), 1, 1), NONE);
        assert_eq!(of.overdue_at(), Some(ms(110)));
        assert_eq!(all(&mut of, ms(109)), NONE);
        assert_eq!(all(&mut of, ms(110)), [1]);
        assert_eq!(of.arrive(ms(111), 0, 0, 1000, 0), Fate::Late);
        assert_eq!(of.overdue_at(), None);
    }

    #[test]
    fn no_more_wait_than_there_is_room_for() {
        let mut of = resequencer(2);
        for number in 1..=4 {
            assert_eq!(arrive(&mut of, ms(1), 1, number), NONE);
        }
        assert_eq!(arrive(&mut of, ms(1), 1, 5), [1, 2, 3, 4, 5]);
    }

    proptest! {
        /// Every sublink keeps order and loses some; what goes on is in order, and in the end nothing is left behind.
        #[test]
        fn what_goes_on_is_in_order_and_complete(
            ways in prop::collection::vec((0..4usize, prop::bool::weighted(0.9)), 1..200),
            turns in prop::collection::vec(0..4usize, 1..1000),
        ) {
            let mut of = Resequencer::new(4, 16_000, 1_000_000);
            let mut lines = vec![std::collections::VecDeque::new(); 4];
            for (number, (line, arrives)) in (0u64..).zip(&ways) {
                if *arrives {
                    lines[*line].push_back(number);
                }
            }
            let mut gone_on = Vec::new();
            let mut late = 0;
            let rest = (0..4).cycle().take(4 * ways.len());
            for line in turns.into_iter().chain(rest) {
                if let Some(number) = lines[line].pop_front() {
                    late += usize::from(of.arrive(ms(0), line, number, 1000, number) == Fate::Late);
                    gone_on.extend(std::iter::from_fn(|| of.go_on(ms(0), ALL)));
                }
            }
            gone_on.extend(std::iter::from_fn(|| of.go_on(ms(1), ALL)));
            prop_assert!(gone_on.is_sorted_by(|a, b| a < b), "{gone_on:?}");
            let arrived = ways.iter().filter(|(_, arrives)| *arrives).count();
            prop_assert_eq!(gone_on.len() + late, arrived);
        }
    }
}
