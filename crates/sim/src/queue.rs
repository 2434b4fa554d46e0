//! What will happen, in order.
//!
//! The order is total: by time, then by the order of scheduling. Most events of a network lie a propagation delay
//! ahead, so they go into a wheel of 4096 buckets of 33 µs (134 ms), each an unsorted list; a bucket is sorted when
//! its turn comes. Timers lie further ahead, so they go into a second wheel, whose buckets are 512 times as long (69 s),
//! and from there into the first when the turn of their bucket comes. What lies beyond both, or inside the bucket being
//! drained, waits in a heap. The first of the wheel and of the heap are compared at every step, so where an event waits
//! is a matter of speed and never of order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use anabranch_core::Time;

const BUCKETS: usize = 1 << 12;
const BUCKET_NS_LOG2: u32 = 15;
/// How many ticks of the near wheel are one of the far.
const FAR_TICKS_LOG2: u32 = 9;
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
    /// The bucket of tick `wheel.tick`, latest first.
    draining: Vec<Entry<E>>,
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
        if !self.wheel.insert(entry) {
            self.elsewhere_key = self.elsewhere_key.min(entry.key());
            self.elsewhere.push(Reverse(entry));
        }
    }

    /// The next event and its time.
    pub fn pop(&mut self) -> Option<(Time, E)> {
        self.pop_until(Time::from_nanos(u64::MAX))
    }

    /// The next event and its time, if it is due by `end`.
    #[inline(always)]
    pub fn pop_until(&mut self, end: Time) -> Option<(Time, E)> {
        if self.draining.is_empty() {
            self.turn();
        }
        let near = self.draining.last().copied();
        let entry = match near.filter(|near| near.key() < self.elsewhere_key) {
            Some(near) if near.time_ns <= end.as_nanos() => {
                self.draining.pop();
                near
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
    #[inline(always)]
    fn turn(&mut self) {
        let waiting = (self.elsewhere_key >> (64 + BUCKET_NS_LOG2)) as u64;
        match self.wheel.next_tick(waiting) {
            Some(tick) => {
                self.wheel.drain(tick, &mut self.draining);
                if self.draining.len() > 1 {
                    self.draining
                        .sort_unstable_by_key(|entry| Reverse(entry.key()));
                }
            }
            None if self.elsewhere.is_empty() => {}
            None => self.wheel.skip_to(waiting),
        }
    }

    pub fn len(&self) -> usize {
        self.wheel.len() + self.draining.len() + self.elsewhere.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An entry and the place of the next one in its bucket, laid out to take no more than 32 bytes.
#[derive(Debug)]
struct Node<E> {
    time_ns: u64,
    sequence: u64,
    event: E,
    next: u32,
}

/// Unsorted lists of places, one for each of the next [`BUCKETS`] ticks of some length.
#[derive(Debug)]
struct Buckets {
    heads: Box<[u32; BUCKETS]>,
    /// One bit per bucket that is not empty.
    occupied: [u64; BUCKETS / 64],
}

impl Buckets {
    fn new() -> Self {
        Buckets {
            heads: Box::new([NONE; BUCKETS]),
            occupied: [0; BUCKETS / 64],
        }
    }

    #[inline]
    fn head(&mut self, tick: u64) -> &mut u32 {
        &mut self.heads[tick as usize % BUCKETS]
    }

    #[inline]
    fn put(&mut self, tick: u64, place: u32) {
        let bucket = tick as usize % BUCKETS;
        self.heads[bucket] = place;
        self.occupied[bucket / 64] |= 1 << (bucket % 64);
    }

    /// Empties the bucket of `tick` and returns the first of its list.
    #[inline]
    fn take(&mut self, tick: u64) -> u32 {
        let bucket = tick as usize % BUCKETS;
        self.occupied[bucket / 64] &= !(1 << (bucket % 64));
        std::mem::replace(&mut self.heads[bucket], NONE)
    }

    /// The first tick from `tick` on whose bucket is not empty; some bucket must not be.
    #[inline]
    fn first_from(&self, tick: u64) -> u64 {
        let first = tick as usize % BUCKETS;
        let (mut word, mut bits) = (first / 64, !0 << (first % 64));
        loop {
            bits &= self.occupied[word];
            if bits != 0 {
                let bucket = word * 64 + bits.trailing_zeros() as usize;
                return tick + (bucket.wrapping_sub(first) % BUCKETS) as u64;
            }
            word = (word + 1) % (BUCKETS / 64);
            bits = !0;
        }
    }
}

/// What lies after `tick`. The lists of both wheels share one slab, so memory follows the number of events, not of
/// buckets.
#[derive(Debug)]
struct Wheel<E> {
    tick: u64,
    near: Buckets,
    far: Buckets,
    near_len: usize,
    far_len: usize,
    /// The first far tick whose bucket is not empty.
    far_first: u64,
    nodes: Vec<Node<E>>,
    free: u32,
}

impl<E: Copy> Wheel<E> {
    fn new() -> Self {
        Wheel {
            tick: 0,
            near: Buckets::new(),
            far: Buckets::new(),
            near_len: 0,
            far_len: 0,
            far_first: u64::MAX,
            nodes: Vec::new(),
            free: NONE,
        }
    }

    fn len(&self) -> usize {
        self.near_len + self.far_len
    }

    /// Whether there was a bucket for it.
    #[inline]
    fn insert(&mut self, entry: Entry<E>) -> bool {
        let tick = entry.tick();
        if tick <= self.tick {
            return false;
        }
        let is_near = tick - self.tick < BUCKETS as u64;
        if !is_near && (tick >> FAR_TICKS_LOG2) - (self.tick >> FAR_TICKS_LOG2) >= BUCKETS as u64 {
            return false;
        }
        let place = self.place(entry);
        if is_near {
            self.link_near(tick, place);
        } else {
            self.link_far(tick >> FAR_TICKS_LOG2, place);
        }
        true
    }

    #[inline]
    fn link_near(&mut self, tick: u64, place: u32) {
        self.nodes[place as usize].next = *self.near.head(tick);
        self.near.put(tick, place);
        self.near_len += 1;
    }

    fn link_far(&mut self, far_tick: u64, place: u32) {
        self.nodes[place as usize].next = *self.far.head(far_tick);
        self.far.put(far_tick, place);
        self.far_len += 1;
        self.far_first = self.far_first.min(far_tick);
    }

    #[inline]
    fn place(&mut self, entry: Entry<E>) -> u32 {
        let node = Node {
            time_ns: entry.time_ns,
            sequence: entry.sequence,
            event: entry.event,
            next: NONE,
        };
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

    /// The first near tick whose bucket is not empty, after what is far but not later has been brought near; none if
    /// it is later than `end`.
    #[inline(always)]
    fn next_tick(&mut self, end: u64) -> Option<u64> {
        loop {
            let near = match self.near_len {
                0 => u64::MAX,
                _ => self.near.first_from(self.tick + 1),
            };
            let far = self.far_first.saturating_mul(1 << FAR_TICKS_LOG2);
            if near.min(far) > end || self.len() == 0 {
                return None;
            }
            if near < far {
                return Some(near);
            }
            self.bring_near(far);
        }
    }

    /// Moves what is in the first far bucket, which begins at `tick`; nothing near may come before it.
    fn bring_near(&mut self, tick: u64) {
        self.tick = self.tick.max(tick - 1);
        let mut place = self.far.take(self.far_first);
        while place != NONE {
            let node = &self.nodes[place as usize];
            let (tick, next) = (node.time_ns >> BUCKET_NS_LOG2, node.next);
            self.link_near(tick, place);
            self.far_len -= 1;
            place = next;
        }
        self.far_first = match self.far_len {
            0 => u64::MAX,
            _ => self.far.first_from(self.far_first + 1),
        };
    }

    /// Takes out what is in the bucket of `tick`, and moves the wheel to `tick`; no earlier bucket may hold anything.
    #[inline(always)]
    fn drain(&mut self, tick: u64, out: &mut Vec<Entry<E>>) {
        let mut place = self.near.take(tick);
        while place != NONE {
            let node = &mut self.nodes[place as usize];
            out.push(Entry {
                time_ns: node.time_ns,
                sequence: node.sequence,
                event: node.event,
            });
            self.near_len -= 1;
            let next = std::mem::replace(&mut node.next, self.free);
            self.free = place;
            place = next;
        }
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
            0..300_000_000_000u64,
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
