//! What will happen, in order.
//!
//! The order is total: by time, then by the order of scheduling. Most events of a network lie a propagation delay
//! ahead, so they go into a wheel of 4096 buckets of 33 µs (134 ms), each an unsorted list; a bucket is sorted when
//! its turn comes. What lies beyond the wheel, or inside the bucket being drained, waits in a heap. Both are compared at
//! every step, so where an event waits is a matter of speed and never of order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use anabranch_core::Time;

const BUCKETS: usize = 1 << 12;
const BUCKET_NS_LOG2: u32 = 15;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    time_ns: u64,
    sequence: u64,
    event: E,
}

impl<E> Entry<E> {
    /// Both in one number, which compares without a branch.
    #[inline]
    fn key(&self) -> u128 {
        u128::from(self.time_ns) << 64 | u128::from(self.sequence)
    }

    fn tick(&self) -> u64 {
        self.time_ns >> BUCKET_NS_LOG2
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// Pending events, earliest first; those of one time in the order they were pushed.
#[derive(Debug)]
pub struct EventQueue<E> {
    wheel: Wheel<E>,
    /// The bucket of tick `wheel.tick`, latest first, as places in the wheel.
    draining: Vec<u32>,
    elsewhere: BinaryHeap<Reverse<Entry<E>>>,
    /// The key of the first entry elsewhere; the greatest number if there is none.
    elsewhere_key: u128,
    sequence: u64,
}

impl<E: Copy> Default for EventQueue<E> {
    fn default() -> Self {
        EventQueue {
            wheel: Wheel::new(),
            draining: Vec::new(),
            elsewhere: BinaryHeap::new(),
            elsewhere_key: u128::MAX,
            sequence: 0,
        }
    }
}

impl<E: Copy> EventQueue<E> {
    /// Schedules `event`. A time that has passed is allowed, and is next.
    #[inline]
    pub fn push(&mut self, time: Time, event: E) {
        let entry = Entry {
            time_ns: time.as_nanos(),
            sequence: self.sequence,
            event,
        };
        self.sequence += 1;
        if self.wheel.covers(entry.tick()) {
            self.wheel.insert(entry);
        } else {
            self.elsewhere_key = self.elsewhere_key.min(entry.key());
            self.elsewhere.push(Reverse(entry));
        }
    }

    /// The next event and its time.
    pub fn pop(&mut self) -> Option<(Time, E)> {
        self.pop_until(Time::from_nanos(u64::MAX))
    }

    /// The next event and its time, if it is due by `end`.
    #[inline]
    pub fn pop_until(&mut self, end: Time) -> Option<(Time, E)> {
        if self.draining.is_empty() {
            self.turn();
        }
        let near = self.draining.last().map(|place| self.wheel.entry(*place));
        let entry = match near.filter(|near| near.key() < self.elsewhere_key) {
            Some(near) if near.time_ns <= end.as_nanos() => {
                let due = (Time::from_nanos(near.time_ns), near.event);
                let place = self.draining.pop();
                self.wheel.release(place.expect("the last was just seen"));
                return Some(due);
            }
            Some(_) => return None,
            None => self.pop_elsewhere(end)?,
        };
        Some((Time::from_nanos(entry.time_ns), entry.event))
    }

    fn pop_elsewhere(&mut self, end: Time) -> Option<Entry<E>> {
        let due = |first: &Reverse<Entry<E>>| first.0.time_ns <= end.as_nanos();
        if !self.elsewhere.peek().is_some_and(due) {
            return None;
        }
        let first = self.elsewhere.pop()?;
        let next = self.elsewhere.peek();
        self.elsewhere_key = next.map_or(u128::MAX, |next| next.0.key());
        Some(first.0)
    }

    /// Drains the next bucket, unless something elsewhere comes before all of it.
    #[inline]
    fn turn(&mut self) {
        let waiting = (self.elsewhere_key >> (64 + BUCKET_NS_LOG2)) as u64;
        match self.wheel.next_tick() {
            Some(tick) if tick <= waiting => {
                self.wheel.drain(tick, &mut self.draining);
                if self.draining.len() > 1 {
                    let wheel = &self.wheel;
                    self.draining
                        .sort_unstable_by_key(|place| Reverse(wheel.entry(*place).key()));
                }
            }
            _ if self.elsewhere.is_empty() => {}
            _ => self.wheel.skip_to(waiting),
        }
    }

    pub fn len(&self) -> usize {
        self.wheel.len + self.draining.len() + self.elsewhere.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[derive(Debug)]
struct Node<E> {
    entry: Entry<E>,
    next: u32,
}

/// Unsorted buckets for the ticks after `tick`, fewer than [`BUCKETS`] of them. The lists share one slab, so memory
/// follows the number of events, not of buckets.
#[derive(Debug)]
struct Wheel<E> {
    tick: u64,
    heads: Box<[u32; BUCKETS]>,
    /// One bit per bucket that is not empty.
    occupied: [u64; BUCKETS / 64],
    nodes: Vec<Node<E>>,
    free: u32,
    len: usize,
}

impl<E: Copy> Wheel<E> {
    fn new() -> Self {
        Wheel {
            tick: 0,
            heads: Box::new([NONE; BUCKETS]),
            occupied: [0; BUCKETS / 64],
            nodes: Vec::new(),
            free: NONE,
            len: 0,
        }
    }

    fn covers(&self, tick: u64) -> bool {
        tick > self.tick && tick - self.tick < BUCKETS as u64
    }

    fn bucket(tick: u64) -> usize {
        tick as usize % BUCKETS
    }

    fn insert(&mut self, entry: Entry<E>) {
        let bucket = Self::bucket(entry.tick());
        let node = Node {
            entry,
            next: self.heads[bucket],
        };
        self.heads[bucket] = self.place(node);
        self.occupied[bucket / 64] |= 1 << (bucket % 64);
        self.len += 1;
    }

    fn place(&mut self, node: Node<E>) -> u32 {
        if self.free == NONE {
            self.nodes.push(node);
            return u32::try_from(self.nodes.len() - 1).expect("2^32 pending events");
        }
        let index = self.free;
        let place = &mut self.nodes[index as usize];
        self.free = place.next;
        *place = node;
        index
    }

    /// The first tick whose bucket is not empty.
    fn next_tick(&self) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        let first = Self::bucket(self.tick + 1);
        let (mut word, mut bits) = (first / 64, !0 << (first % 64));
        loop {
            bits &= self.occupied[word];
            if bits != 0 {
                let bucket = word * 64 + bits.trailing_zeros() as usize;
                let ahead = (bucket + BUCKETS - first) % BUCKETS;
                return Some(self.tick + 1 + ahead as u64);
            }
            word = (word + 1) % (BUCKETS / 64);
            bits = !0;
        }
    }

    fn entry(&self, place: u32) -> &Entry<E> {
        &self.nodes[place as usize].entry
    }

    fn release(&mut self, place: u32) {
        self.nodes[place as usize].next = self.free;
        self.free = place;
    }

    /// Takes the places of `tick`'s bucket out, to be released one by one, and moves the wheel to `tick`; no earlier
    /// bucket may hold anything.
    fn drain(&mut self, tick: u64, out: &mut Vec<u32>) {
        let bucket = Self::bucket(tick);
        let mut place = std::mem::replace(&mut self.heads[bucket], NONE);
        while place != NONE {
            out.push(place);
            self.len -= 1;
            place = self.nodes[place as usize].next;
        }
        self.occupied[bucket / 64] &= !(1 << (bucket % 64));
        self.tick = tick;
    }

    /// Turns the wheel so that `tick` is its first bucket; no earlier bucket may hold anything.
    fn skip_to(&mut self, tick: u64) {
        self.tick = self.tick.max(tick.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the queue must equal: a heap of everything.
    #[derive(Default)]
    struct Model {
        heap: BinaryHeap<Reverse<(u64, u64)>>,
        sequence: u64,
    }

    impl Model {
        fn push(&mut self, time_ns: u64) -> u64 {
            self.heap.push(Reverse((time_ns, self.sequence)));
            self.sequence += 1;
            self.sequence - 1
        }

        fn pop(&mut self) -> Option<(u64, u64)> {
            self.heap.pop().map(|Reverse(key)| key)
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Push { ahead_ns: u64 },
        Pop,
    }

    fn step() -> impl Strategy<Value = Step> {
        let ahead_ns = prop_oneof![
            Just(0),
            0..5_000u64,
            0..1_000_000u64,
            60_000_000..70_000_000u64,
            0..3_000_000_000u64,
        ];
        prop_oneof![
            3 => ahead_ns.prop_map(|ahead_ns| Step::Push { ahead_ns }),
            2 => Just(Step::Pop),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn it_equals_a_heap_of_everything(steps in prop::collection::vec(step(), 1..600)) {
            let (mut queue, mut model, mut now_ns) = (EventQueue::default(), Model::default(), 0);
            for step in steps {
                match step {
                    Step::Push { ahead_ns } => {
                        let id = model.push(now_ns + ahead_ns);
                        queue.push(Time::from_nanos(now_ns + ahead_ns), id);
                    }
                    Step::Pop => {
                        let expected = model.pop();
                        let popped = queue.pop().map(|(time, id)| (time.as_nanos(), id));
                        prop_assert_eq!(popped, expected);
                        now_ns = expected.map_or(now_ns, |(time_ns, _)| time_ns);
                    }
                }
                prop_assert_eq!(queue.len(), model.heap.len());
            }
            while let Some(expected) = model.pop() {
                let popped = queue.pop().map(|(time, id)| (time.as_nanos(), id));
                prop_assert_eq!(popped, Some(expected));
            }
            prop_assert!(queue.is_empty());
        }
    }

    #[test]
    fn nothing_comes_out_before_it_is_due() {
        let mut queue = EventQueue::default();
        for time_ms in [1, 200] {
            queue.push(Time::from_millis(time_ms), time_ms);
            assert_eq!(queue.pop_until(Time::from_millis(time_ms - 1)), None);
            let due = Time::from_millis(time_ms);
            assert_eq!(queue.pop_until(due), Some((due, time_ms)));
        }
    }

    #[test]
    fn a_million_events_of_one_time_keep_their_order() {
        let mut queue = EventQueue::default();
        for i in 0..1_000_000u32 {
            queue.push(Time::ZERO, i);
        }
        for i in 0..1_000_000 {
            assert_eq!(queue.pop(), Some((Time::ZERO, i)));
        }
        assert_eq!(queue.pop(), None);
    }
}
