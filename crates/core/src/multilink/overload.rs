//! Decides which sublinks are overloaded, and which are lighter.

use std::cmp::Ordering;

use super::{Queue, SublinkId};

/// Remembers the queues of the previous check.
#[derive(Clone, Debug)]
pub struct Watch {
    last_bytes: Vec<u64>,
    overload_percent: u8,
    shrink_percent: u8,
}

impl Watch {
    /// Before the first check all queues count as empty.
    pub fn new(sublinks: usize, overload_percent: u8, shrink_percent: u8) -> Self {
        Watch {
            last_bytes: vec![0; sublinks],
            overload_percent,
            shrink_percent,
        }
    }

    /// The overloaded sublinks, in order.
    pub fn check(&mut self, queues: &[Queue]) -> Vec<SublinkId> {
        let overloaded = (0u16..)
            .zip(queues.iter().zip(&self.last_bytes))
            .filter(|(_, (queue, last_bytes))| {
                queue.usable && self.exceeds(queue) && !self.shrinks(queue, **last_bytes)
            })
            .map(|(i, _)| SublinkId(i))
            .collect();
        for (last_bytes, queue) in self.last_bytes.iter_mut().zip(queues) {
            *last_bytes = queue.length_bytes;
        }
        overloaded
    }

    fn exceeds(&self, queue: &Queue) -> bool {
        u128::from(queue.length_bytes) * 100 > buffer(queue) * u128::from(self.overload_percent)
    }

    fn shrinks(&self, queue: &Queue, last_bytes: u64) -> bool {
        let by_bytes = u128::from(last_bytes.saturating_sub(queue.length_bytes));
        by_bytes > 0 && by_bytes * 100 >= buffer(queue) * u128::from(self.shrink_percent)
    }
}

/// The usable sublinks whose queues fill the least part of their buffers, if that is less than `from` fills.
pub fn lightest(queues: &[Queue], from: SublinkId) -> Vec<SublinkId> {
    let mut lightest = Vec::new();
    let mut least = &queues[from.index()];
    for (i, queue) in (0u16..).zip(queues).filter(|(_, queue)| queue.usable) {
        match fill(queue, least) {
            Ordering::Less => {
                least = queue;
                lightest = vec![SublinkId(i)];
            }
            Ordering::Equal if !lightest.is_empty() => lightest.push(SublinkId(i)),
            _ => {}
        }
    }
    lightest
}

/// The usable sublinks whose queues fill less of their buffers than `from` fills, in order.
pub fn lighter(queues: &[Queue], from: SublinkId) -> Vec<SublinkId> {
    let is_lighter = |queue: &Queue| fill(queue, &queues[from.index()]) == Ordering::Less;
    (0u16..)
        .zip(queues)
        .filter(|(_, queue)| queue.usable && is_lighter(queue))
        .map(|(i, _)| SublinkId(i))
        .collect()
}

/// Compares two queues by the share of their buffers that they fill.
fn fill(a: &Queue, b: &Queue) -> Ordering {
    (u128::from(a.length_bytes) * buffer(b)).cmp(&(u128::from(b.length_bytes) * buffer(a)))
}

fn buffer(queue: &Queue) -> u128 {
    queue.buffer_bytes.max(1).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(length_bytes: u64, buffer_bytes: u64) -> Queue {
        Queue {
            length_bytes,
            buffer_bytes,
            usable: true,
        }
    }

    #[test]
    fn a_queue_of_exactly_half_the_buffer_does_not_exceed_it() {
        let mut watch = Watch::new(2, 50, 0);
        let found = watch.check(&[queue(34_950, 69_900), queue(34_951, 69_900)]);
        assert_eq!(found, [SublinkId(1)]);
    }

    #[test]
    fn a_long_queue_is_overloaded_while_it_grows_or_stands_and_not_while_it_shrinks() {
        let mut watch = Watch::new(1, 50, 0);
        let lengths = [
            40_000, 60_000, 60_000, 59_999, 59_999, 50_000, 30_000, 50_000,
        ];
        let overloaded = lengths.map(|bytes| !watch.check(&[queue(bytes, 69_900)]).is_empty());
        assert_eq!(
            overloaded,
            [true, true, true, false, true, false, false, true]
        );
    }

    /// 5 % of 69 900 bytes are 3495.
    #[test]
    fn a_queue_shrinks_if_it_is_shorter_by_the_part_of_the_buffer_that_is_asked_for() {
        let mut watch = Watch::new(1, 50, 5);
        let lengths = [60_000, 59_999, 56_505, 53_010, 49_515, 49_515];
        let overloaded = lengths.map(|bytes| !watch.check(&[queue(bytes, 69_900)]).is_empty());
        assert_eq!(overloaded, [true, true, true, false, false, true]);
    }

    #[test]
    fn the_lightest_sublinks_are_those_that_fill_the_least_part_of_their_own_buffer() {
        let queues = [queue(90, 100), queue(20, 100), queue(30, 300), queue(1, 10)];
        assert_eq!(
            lightest(&queues, SublinkId(0)),
            [SublinkId(2), SublinkId(3)]
        );
    }

    #[test]
    fn lighter_is_every_sublink_that_fills_less_of_its_own_buffer() {
        let queues = [queue(25, 100), queue(20, 100), queue(75, 300), queue(1, 10)];
        assert_eq!(lighter(&queues, SublinkId(0)), [SublinkId(1), SublinkId(3)]);
        assert_eq!(lighter(&queues, SublinkId(3)), []);
    }

    #[test]
    fn nothing_is_lighter_than_a_sublink_where_all_are_equally_full() {
        assert_eq!(lightest(&[queue(90, 100); 4], SublinkId(2)), []);
    }

    #[test]
    fn an_unusable_sublink_neither_gives_nor_takes() {
        let unusable = |length_bytes| Queue {
            usable: false,
            ..queue(length_bytes, 100)
        };
        let queues = [unusable(90), queue(80, 100), unusable(0)];
        assert_eq!(Watch::new(3, 50, 0).check(&queues), [SublinkId(1)]);
        assert_eq!(lightest(&queues, SublinkId(1)), []);
        assert_eq!(lighter(&queues, SublinkId(1)), []);
    }
}
