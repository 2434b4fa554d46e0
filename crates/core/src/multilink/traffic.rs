//! What every sublink sent of late, compared with what it can send.

use std::cmp::Ordering;
use std::collections::VecDeque;

use super::{Queue, SublinkId};

/// What every sublink has sent by each of the last checks, oldest first. Before the second check all count as idle.
#[derive(Clone, Debug)]
pub struct Traffic {
    counters_bytes: VecDeque<Vec<u64>>,
    checks: usize,
}

impl Traffic {
    /// Of that many periods between checks.
    pub fn new(checks: usize) -> Self {
        Traffic {
            counters_bytes: VecDeque::new(),
            checks,
        }
    }

    pub fn record(&mut self, queues: &[Queue]) {
        if self.counters_bytes.len() > self.checks {
            self.counters_bytes.pop_front();
        }
        let counters_bytes = queues.iter().map(|queue| queue.sent_bytes).collect();
        self.counters_bytes.push_back(counters_bytes);
    }

    /// The usable sublink, other than `from`, that uses the least part of its rate; of equals, the next after `from`.
    pub fn least(&self, queues: &[Queue], from: SublinkId) -> Option<SublinkId> {
        others(queues, from).min_by(|&a, &b| self.utilisation(queues, a, b))
    }

    /// The next usable sublink after `from`, the first following the last, that uses less of its rate than all usable
    /// ones together use of theirs.
    pub fn next_below_mean(&self, queues: &[Queue], from: SublinkId) -> Option<SublinkId> {
        let usable = || (0u16..).zip(queues).filter(|(_, queue)| queue.usable);
        let sent = usable()
            .map(|(i, _)| self.sent_bytes(SublinkId(i)))
            .sum::<u128>();
        let can = usable().map(|(_, queue)| rate(queue)).sum::<u128>();
        others(queues, from).find(|&i| self.sent_bytes(i) * can < sent * rate(&queues[i.index()]))
    }

    /// A counter that went backwards was replaced, and counts as nothing sent.
    fn sent_bytes(&self, sublink: SublinkId) -> u128 {
        let counter = |at: Option<&Vec<u64>>| at.map_or(0, |counters| counters[sublink.index()]);
        let (first, last) = (self.counters_bytes.front(), self.counters_bytes.back());
        counter(last).saturating_sub(counter(first)).into()
    }

    /// Compares the parts of their rates that two sublinks use.
    fn utilisation(&self, queues: &[Queue], a: SublinkId, b: SublinkId) -> Ordering {
        let scaled = |of, by: SublinkId| self.sent_bytes(of) * rate(&queues[by.index()]);
        scaled(a, b).cmp(&scaled(b, a))
    }
}

/// The usable sublinks but `from`, beginning after it.
fn others(queues: &[Queue], from: SublinkId) -> impl Iterator<Item = SublinkId> {
    let (before, after) = (0..from.0, from.0 + 1..queues.len() as u16);
    after
        .chain(before)
        .map(SublinkId)
        .filter(|i| queues[i.index()].usable)
}

fn rate(queue: &Queue) -> u128 {
    queue.rate_bps.max(1).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(sent_bytes: u64, rate_bps: u64) -> Queue {
        Queue {
            length_bytes: 0,
            buffer_bytes: 1000,
            sent_bytes,
            rate_bps,
            usable: true,
        }
    }

    /// Two checks, between which the sublinks sent so much.
    fn after<const N: usize>(queues: [Queue; N]) -> Traffic {
        let mut traffic = Traffic::new(4);
        traffic.record(&queues.map(|queue| Queue {
            sent_bytes: 0,
            ..queue
        }));
        traffic.record(&queues);
        traffic
    }

    #[test]
    fn what_was_sent_more_checks_ago_is_forgotten() {
        let mut traffic = Traffic::new(2);
        let sent = [100, 1100, 1110, 1120, 3000].map(|bytes| {
            traffic.record(&[queue(bytes, 1)]);
            traffic.sent_bytes(SublinkId(0))
        });
        assert_eq!(sent, [0, 1000, 1010, 20, 1890]);
    }

    #[test]
    fn a_counter_that_starts_again_sent_nothing() {
        let mut traffic = Traffic::new(2);
        traffic.record(&[queue(500, 1)]);
        traffic.record(&[queue(20, 1)]);
        assert_eq!(traffic.sent_bytes(SublinkId(0)), 0);
    }

    #[test]
    fn the_least_uses_the_smallest_part_of_its_own_rate_and_is_usable_and_another() {
        let unusable = Queue {
            usable: false,
            ..queue(0, 10)
        };
        let queues = [queue(10, 10), queue(90, 100), queue(300, 1000), unusable];
        let traffic = after(queues);
        assert_eq!(traffic.least(&queues, SublinkId(0)), Some(SublinkId(2)));
        assert_eq!(traffic.least(&queues, SublinkId(2)), Some(SublinkId(1)));
        assert_eq!(after([queues[0]]).least(&queues[..1], SublinkId(0)), None);
    }

    /// Of 1600 that they can send all together send 800: a half.
    #[test]
    fn the_next_below_the_mean_is_looked_for_from_the_overloaded_one_on_and_around() {
        let queues = [100, 300, 199, 201].map(|bytes| queue(bytes, 400));
        let next = |from| after(queues).next_below_mean(&queues, SublinkId(from));
        assert_eq!(next(1), Some(SublinkId(2)));
        assert_eq!(next(2), Some(SublinkId(0)));
        assert_eq!(next(3), Some(SublinkId(0)));
        let even = [queue(200, 400); 4];
        assert_eq!(after(even).next_below_mean(&even, SublinkId(0)), None);
    }

    #[test]
    fn the_mean_is_of_the_usable_and_who_sends_nothing_is_below_it() {
        let mut queues = [100, 0, 40, 900].map(|bytes| queue(bytes, 1000));
        queues[1].usable = false;
        queues[3].usable = false;
        let traffic = after(queues);
        assert_eq!(
            traffic.next_below_mean(&queues, SublinkId(0)),
            Some(SublinkId(2))
        );
        assert_eq!(traffic.next_below_mean(&queues, SublinkId(2)), None);
    }
}
