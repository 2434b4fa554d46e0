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

use crate::prefetch::prefetch;

const BUCKETS: usize = 1 << 12;
const BUCKET_NS_LOG2: u32 = 15;
/// How many ticks of the near wheel are one of the far.
const FAR_TICKS_LOG2: u32 = 9;
const WORDS: usize = BUCKETS / 64;
const NONE: u32 = u32::MAX;
/// The tick of nothing; what the far wheel makes of it is later than any event, too.
const NEVER: u64 = u64::MAX >> FAR_TICKS_LOG2;
const _: () = assert!(WORDS == 64, "one word has a bit for each");

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
    pushed: u64,
    popped: u64,
}

impl<E: Copy> Default for EventQueue<E> {
    fn default() -> Self {
        EventQueue {
            wheel: Wheel::new(),
            draining: Vec::new(),
            elsewhere: BinaryHeap::new(),
            elsewhere_key: u128::MAX,
            pushed: 0,
            popped: 0,
        }
    }
}

impl<E: Copy> EventQueue<E> {
    /// Schedules `event`. A time that has passed is allowed, and is next.
    #[inline(always)]
    pub fn push(&mut self, time: Time, event: E) {
        let entry = Entry {
            time_ns: time.as_nanos(),
            sequence: self.pushed,
            event,
        };
        self.pushed += 1;
        if self.wheel.is_near(entry.tick()) {
            self.wheel.insert_near(entry);
        } else {
            self.push_elsewhere(entry);
        }
    }

    #[inline(never)]
    fn push_elsewhere(&mut self, entry: Entry<E>) {
        if self.wheel.is_far(entry.tick()) {
            self.wheel.insert_far(entry);
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
    #[inline(always)]
    pub fn pop_until(&mut self, end: Time) -> Option<(Time, E)> {
        let entry = match self.draining.is_empty() {
            true => self.turn(end.as_nanos())?,
            false => self.pop_drained(end.as_nanos())?,
        };
        self.popped += 1;
        Some((Time::from_nanos(entry.time_ns), entry.event))
    }

    /// From the next bucket, unless something elsewhere comes before all of it.
    #[inline(always)]
    fn turn(&mut self, end_ns: u64) -> Option<Entry<E>> {
        let waiting = (self.elsewhere_key >> (64 + BUCKET_NS_LOG2)) as u64;
        let tick = self.wheel.first_tick(waiting);
        if tick < waiting
            && let Some(time_ns) = self.wheel.alone_at(tick)
        {
            return (time_ns <= end_ns).then(|| self.wheel.take_first(tick));
        }
        self.turn_slowly(tick, waiting, end_ns)
    }

    /// As [`EventQueue::turn`], where several entries are to be compared.
    #[inline(never)]
    fn turn_slowly(&mut self, tick: u64, waiting: u64, end_ns: u64) -> Option<Entry<E>> {
        if tick <= waiting {
            self.wheel.drain(tick, &mut self.draining);
            sort_latest_first(&mut self.draining);
        } else if !self.elsewhere.is_empty() {
            self.wheel.skip_to(waiting);
        }
        self.pop_drained(end_ns)
    }

    #[inline]
    fn pop_drained(&mut self, end_ns: u64) -> Option<Entry<E>> {
        let near = self.draining.last().copied();
        match near.filter(|near| near.key() < self.elsewhere_key) {
            Some(near) if near.time_ns <= end_ns => {
                self.draining.pop();
                Some(near)
            }
            Some(_) => None,
            None => self.pop_elsewhere(end_ns),
        }
    }

    fn pop_elsewhere(&mut self, end_ns: u64) -> Option<Entry<E>> {
        let due = |first: &Reverse<Entry<E>>| first.0.time_ns <= end_ns;
        if !self.elsewhere.peek().is_some_and(due) {
            return None;
        }
        let first = self.elsewhere.pop()?;
        let next = self.elsewhere.peek();
        self.elsewhere_key = next.map_or(u128::MAX, |next| next.0.key());
        Some(first.0)
    }

    /// What is probably next; something may be next of which nothing is known here.
    #[inline(always)]
    pub fn ahead(&self) -> Option<E> {
        match self.draining.last() {
            Some(entry) => Some(entry.event),
            None => self.wheel.first(),
        }
    }

    /// One after the other, what is in the bucket after the one being drained.
    #[inline(always)]
    pub fn scout(&mut self) -> Option<E> {
        self.wheel.scout()
    }

    /// Events that wait.
    pub fn len(&self) -> usize {
        (self.pushed - self.popped) as usize
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Mostly there are two.
#[inline]
fn sort_latest_first<E>(entries: &mut [Entry<E>]) {
    match entries {
        [first, second] if first.key() < second.key() => std::mem::swap(first, second),
        [_, _] => {}
        more => more.sort_unstable_by_key(|entry| Reverse(entry.key())),
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

impl<E: Copy> Node<E> {
    #[inline]
    fn entry(&self) -> Entry<E> {
        Entry {
            time_ns: self.time_ns,
            sequence: self.sequence,
            event: self.event,
        }
    }
}

/// Unsorted lists of places, one for each of the next [`BUCKETS`] ticks of some length.
#[derive(Debug)]
struct Buckets {
    heads: Box<[u32; BUCKETS]>,
    /// One bit per bucket that is not empty.
    occupied: [u64; WORDS],
    /// One bit per word of `occupied` that is not 0.
    words: u64,
    /// The first tick whose bucket is not empty; [`NEVER`] if there is none.
    first: u64,
}

impl Buckets {
    fn new() -> Self {
        Buckets {
            heads: Box::new([NONE; BUCKETS]),
            occupied: [0; WORDS],
            words: 0,
            first: NEVER,
        }
    }

    #[inline]
    fn head(&self, tick: u64) -> u32 {
        self.heads[tick as usize % BUCKETS]
    }

    #[inline]
    fn put(&mut self, tick: u64, place: u32) {
        let bucket = tick as usize % BUCKETS;
        self.heads[bucket] = place;
        self.occupied[bucket / 64] |= 1 << (bucket % 64);
        self.words |= 1 << (bucket / 64);
        self.first = self.first.min(tick);
    }

    /// Empties the bucket of `tick`, the first that is not, and returns the first of its list.
    #[inline]
    fn take(&mut self, tick: u64) -> u32 {
        let bucket = tick as usize % BUCKETS;
        let word = &mut self.occupied[bucket / 64];
        *word &= !(1 << (bucket % 64));
        if *word == 0 {
            self.words &= !(1 << (bucket / 64));
        }
        self.first = self.first_after(tick);
        std::mem::replace(&mut self.heads[bucket], NONE)
    }

    /// The first tick after `tick` whose bucket is not empty.
    #[inline]
    fn first_after(&self, tick: u64) -> u64 {
        let from = tick + 1;
        let bucket = from as usize % BUCKETS;
        let bits = self.occupied[bucket / 64] >> (bucket % 64);
        if bits != 0 {
            return from + u64::from(bits.trailing_zeros());
        }
        if self.words == 0 {
            return NEVER;
        }
        let next = (bucket / 64 + 1) % WORDS;
        let ahead = self.words.rotate_right(next as u32).trailing_zeros();
        let word = (next + ahead as usize) % WORDS;
        let found = word * 64 + self.occupied[word].trailing_zeros() as usize;
        from + (found.wrapping_sub(bucket) % BUCKETS) as u64
    }
}

/// What lies after `tick`. The lists of both wheels share one slab, so memory follows the number of events, not of
/// buckets.
#[derive(Debug)]
struct Wheel<E> {
    tick: u64,
    near: Buckets,
    far: Buckets,
    nodes: Vec<Node<E>>,
    free: u32,
    /// A bucket, and the place in its list at which [`Wheel::scout`] is.
    scouted: u64,
    scout: u32,
}

impl<E: Copy> Wheel<E> {
    fn new() -> Self {
        Wheel {
            scouted: NEVER,
            scout: NONE,
            tick: 0,
            near: Buckets::new(),
            far: Buckets::new(),
            nodes: Vec::new(),
            free: NONE,
        }
    }

    #[inline]
    fn is_near(&self, tick: u64) -> bool {
        tick.wrapping_sub(self.tick + 1) < BUCKETS as u64 - 1
    }

    fn is_far(&self, tick: u64) -> bool {
        tick > self.tick
            && (tick >> FAR_TICKS_LOG2) - (self.tick >> FAR_TICKS_LOG2) < BUCKETS as u64
    }

    #[inline]
    fn insert_near(&mut self, entry: Entry<E>) {
        let tick = entry.tick();
        let place = self.place(entry, self.near.head(tick));
        self.near.put(tick, place);
    }

    fn insert_far(&mut self, entry: Entry<E>) {
        let tick = entry.tick() >> FAR_TICKS_LOG2;
        let place = self.place(entry, self.far.head(tick));
        self.far.put(tick, place);
    }

    #[inline]
    fn place(&mut self, entry: Entry<E>, next: u32) -> u32 {
        let index = self.free;
        match self.nodes.get_mut(index as usize) {
            // Field by field: put together elsewhere, it would be read back before all of it has been stored.
            Some(place) => {
                self.free = place.next;
                place.time_ns = entry.time_ns;
                place.sequence = entry.sequence;
                place.event = entry.event;
                place.next = next;
                index
            }
            None => self.add_place(Node {
                time_ns: entry.time_ns,
                sequence: entry.sequence,
                event: entry.event,
                next,
            }),
        }
    }

    #[cold]
    fn add_place(&mut self, node: Node<E>) -> u32 {
        let index = u32::try_from(self.nodes.len()).ok();
        self.nodes.push(node);
        index
            .filter(|index| *index != NONE)
            .expect("2^32 pending events")
    }

    /// The first tick at which something is near, if it is not later than `end`, after what is far but not later has
    /// been brought near.
    #[inline]
    fn first_tick(&mut self, end: u64) -> u64 {
        while self.far.first << FAR_TICKS_LOG2 <= self.near.first.min(end) {
            self.bring_near(self.far.first);
        }
        self.near.first
    }

    /// Moves what is in the first far bucket; nothing near may come before it.
    #[inline(never)]
    fn bring_near(&mut self, far_tick: u64) {
        self.tick = self.tick.max((far_tick << FAR_TICKS_LOG2) - 1);
        let mut place = self.far.take(far_tick);
        while place != NONE {
            let node = &mut self.nodes[place as usize];
            let tick = node.time_ns >> BUCKET_NS_LOG2;
            let next = std::mem::replace(&mut node.next, self.near.head(tick));
            self.near.put(tick, place);
            place = next;
        }
    }

    /// What is probably next.
    #[inline]
    fn first(&self) -> Option<E> {
        let node = self.nodes.get(self.near.head(self.near.first) as usize);
        node.map(|node| node.event)
    }

    /// Goes on along the list of the first bucket, and fetches what comes then. A list that has changed may lead it
    /// astray, which costs nothing but time.
    #[inline]
    fn scout(&mut self) -> Option<E> {
        if self.scouted != self.near.first {
            self.scouted = self.near.first;
            self.scout = self.near.head(self.scouted);
        }
        let node = self.nodes.get(self.scout as usize)?;
        self.scout = node.next;
        if let Some(next) = self.nodes.get(node.next as usize) {
            prefetch(next);
        }
        Some(node.event)
    }

    /// The time of what is at `tick`, if that is one entry.
    #[inline]
    fn alone_at(&self, tick: u64) -> Option<u64> {
        let node = self.nodes.get(self.near.head(tick) as usize)?;
        (node.next == NONE).then_some(node.time_ns)
    }

    /// Takes out the first entry in the bucket of `tick`, which holds no other, and moves the wheel to `tick`; no
    /// earlier bucket may hold anything.
    #[inline]
    fn take_first(&mut self, tick: u64) -> Entry<E> {
        let place = self.near.take(tick);
        self.tick = tick;
        self.release(place).0
    }

    /// Gives the place of an entry to others; returns the entry and the place of the next.
    #[inline]
    fn release(&mut self, place: u32) -> (Entry<E>, u32) {
        let node = &mut self.nodes[place as usize];
        let next = std::mem::replace(&mut node.next, self.free);
        self.free = place;
        (node.entry(), next)
    }

    /// Takes out what is in the bucket of `tick`, and moves the wheel to `tick`; no earlier bucket may hold anything.
    fn drain(&mut self, tick: u64, out: &mut Vec<Entry<E>>) {
        let mut place = self.near.take(tick);
        while place != NONE {
            let (entry, next) = self.release(place);
            out.push(entry);
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
