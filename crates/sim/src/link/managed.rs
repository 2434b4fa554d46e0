//! A link whose queue decides what leaves it when it leaves.
//!
//! The transmitter then holds the packet in transmission and no other. As long as something waits, one event is pending:
//! that the line is free for the next.

use anabranch_core::Time;
use anabranch_scenario::{Buffer, ManagedQueue, Queue, Tally as Amount, Waiting};

use super::rare::Rare;
use super::{Frame, Link, Nature, Offer, Tally};
use crate::packet::PacketId;

/// A packet that the line takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Which.
    pub packet: PacketId,
    /// When it arrives; none if the line loses it.
    pub arrives: Option<Time>,
    /// Whether congestion is to be noted on it.
    pub marked: bool,
}

/// The queue, and what is to be told of it.
#[derive(Debug)]
pub(super) struct Managed {
    queue: ManagedQueue<PacketId>,
    /// When the one valid event comes that asks for the next packet; `u64::MAX` if none is pending.
    departs_ns: u64,
    /// Dropped, and not yet told.
    dropped: Vec<Waiting<PacketId>>,
    pub marked: Tally,
}

impl Managed {
    pub fn new(queue: &Queue, limit: Buffer) -> Option<Self> {
        Some(Managed {
            queue: ManagedQueue::new(queue, limit)?,
            departs_ns: u64::MAX,
            dropped: Vec::new(),
            marked: Tally::default(),
        })
    }

    pub fn waiting(&self) -> Tally {
        let Amount { packets, bytes } = self.queue.waiting();
        Tally { packets, bytes }
    }

    pub fn packets(&self) -> impl Iterator<Item = PacketId> {
        self.queue.iter().map(|waiting| waiting.packet)
    }

    /// How long all that waits has been there at `now_ns`.
    pub fn waited_ns(&self, now_ns: u64) -> i128 {
        let waited = |waiting: &Waiting<_>| i128::from(now_ns) - i128::from(waiting.since_ns);
        self.queue.iter().map(waited).sum()
    }

    /// The line is cut: what waits is swallowed, and told.
    pub fn swallow(&mut self, now_ns: u64, rare: &mut Rare) -> Vec<PacketId> {
        let swallowed: Vec<_> = self.queue.iter().copied().collect();
        for waiting in &swallowed {
            rare.refused.add(waiting.bytes);
            rare.wait_ends(waiting.since_ns, now_ns);
        }
        self.queue.clear();
        self.departs_ns = u64::MAX;
        swallowed
            .into_iter()
            .map(|waiting| waiting.packet)
            .collect()
    }
}

impl Link {
    /// From here on the queue before the line is this one, with the buffer that the line has.
    ///
    /// # Panics
    /// If the link is plain.
    pub fn set_queue(&mut self, queue: &Queue) {
        let line = self.line.as_deref_mut();
        let line = line.expect("a plain link drops at the tail");
        if let Queue::Red(red) = queue {
            line.rare.set_red(*red);
        }
        line.managed = Managed::new(queue, self.transmitter.buffer()).map(Box::new);
        if line.managed.is_some() {
            self.transmitter.set_buffer(Buffer::Unlimited);
        }
    }

    /// As [`Link::offer`], of a managed link that is whole.
    pub(super) fn wait(&mut self, now: Time, frame: Frame) -> Offer {
        let now_ns = now.as_nanos();
        self.transmitter.depart(now_ns);
        let Tally { packets, bytes } = self.transmitter.backlog();
        let line = self.line_mut();
        let managed = line.managed.as_deref_mut();
        let managed = managed.expect("a link that has a queue to wait in");
        let waiting = Waiting {
            packet: frame.packet,
            bytes: frame.bytes,
            since_ns: now_ns,
            flow: frame.flow,
            ect: frame.ect,
        };
        let told = managed.dropped.len();
        let sent = Amount { packets, bytes };
        managed.queue.push(waiting, sent, &mut managed.dropped);
        line.rare.wait_begins(now_ns);
        let mut overflowed = Tally::default();
        for gone in &managed.dropped[told..] {
            overflowed.add(gone.bytes);
            line.rare.wait_ends(gone.since_ns, now_ns);
        }
        self.overflowed = self.overflowed.plus(overflowed);
        Offer::Waits
    }

    /// Packets that the queue has dropped since this was asked last.
    pub(crate) fn take_dropped(&mut self) -> impl Iterator<Item = PacketId> {
        let managed = self.line.iter_mut().flat_map(|line| &mut line.managed);
        managed.flat_map(|managed| managed.dropped.drain(..).map(|gone| gone.packet))
    }

    /// When the line is free for the next packet, which with a trace is when it has an opportunity, if one waits and nobody was told yet.
    pub(crate) fn arm(&mut self, now: Time) -> Option<Time> {
        let free_ns = self.transmitter.free_ns().max(now.as_nanos());
        let line = self.line.as_deref_mut()?;
        let managed = line.managed.as_deref_mut()?;
        let pending = managed.departs_ns != u64::MAX;
        if pending || managed.queue.waiting().packets == 0 {
            return None;
        }
        let trace = line.rare.trace.as_mut();
        managed.departs_ns = trace.map_or(free_ns, |trace| trace.next_ns(free_ns));
        Some(Time::from_nanos(managed.departs_ns))
    }

    /// What was told of the next departure holds no longer.
    pub(super) fn disarm(&mut self) {
        if let Some(managed) = self.line.as_mut().and_then(|line| line.managed.as_mut()) {
            managed.departs_ns = u64::MAX;
        }
    }

    /// Whether this is the time that was told last.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        let managed = self.line.as_ref().and_then(|line| line.managed.as_ref());
        managed.is_some_and(|managed| managed.departs_ns == now.as_nanos())
    }

    /// The next packet, if the queue does not drop all it has; the line is free for it. `nature` tells of a packet.
    pub(crate) fn next(
        &mut self,
        now: Time,
        nature: impl FnOnce(PacketId) -> Nature,
    ) -> Option<Departure> {
        let now_ns = now.as_nanos();
        let line = self.line.as_deref_mut()?;
        let managed = line.managed.as_deref_mut()?;
        managed.departs_ns = u64::MAX;
        let told = managed.dropped.len();
        let leaving = managed.queue.pop(now_ns, &mut managed.dropped);
        for gone in &managed.dropped[told..] {
            line.rare.early.add(gone.bytes);
            line.rare.wait_ends(gone.since_ns, now_ns);
        }
        let leaving = leaving?;
        let Waiting {
            packet,
            bytes,
            since_ns,
            ..
        } = leaving.waiting;
        if leaving.marked {
            managed.marked.add(bytes);
        }
        line.rare.wait_ends(since_ns, now_ns);
        line.arrive(now_ns);
        let departure_ns = self.accept(now_ns, bytes);
        let departure_ns = departure_ns.expect("room without a limit");
        let line = self.line.as_deref_mut()?;
        let arrival_ns = departure_ns + self.delay_ns;
        Some(Departure {
            packet,
            arrives: line.enter(now_ns, arrival_ns, packet, bytes, nature(packet)),
            marked: leaving.marked,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Codel, LinkCounters, LinkSpec, Loss, Red};
    use super::*;

    /// A packet a millisecond.
    const SPEC: LinkSpec = LinkSpec {
        rate_bps: 12_000_000,
        delay_ns: 1_000_000,
        buffer: Buffer::Unlimited,
        loss: Loss::None,
    };
    const CODEL: Codel = Codel {
        target: Duration::from_millis(5),
        interval: Duration::from_millis(100),
        mtu_bytes: 1500,
        ecn: true,
    };

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    /// A link and the departures that a network would make of what it tells.
    struct Driven {
        link: Link,
        due: Option<Time>,
        departures: Vec<(Time, Departure)>,
        dropped: usize,
    }

    impl Driven {
        fn new(queue: &Queue, spec: LinkSpec) -> Self {
            let mut link = Link::new(spec, 1, 1);
            link.set_queue(queue);
            link.audit(at(0));
            Driven {
                link,
                due: None,
                departures: Vec::new(),
                dropped: 0,
            }
        }

        fn offer(&mut self, now: Time, number: u32, ect: bool) -> Offer {
            self.run(now);
            let frame = Frame {
                packet: PacketId(number),
                bytes: 1500,
                flow: 0,
                ect,
                nature: Nature::ORDINARY,
            };
            let offer = self.link.take(now, frame);
            self.due = self.link.arm(now).or(self.due);
            self.run(now);
            offer
        }

        fn run(&mut self, until: Time) {
            while let Some(now) = self.due.filter(|due| *due <= until) {
                let sent = self
                    .link
                    .is_due(now)
                    .then(|| self.link.next(now, |_| Nature::ORDINARY))
                    .flatten();
                self.departures
                    .extend(sent.map(|departure| (now, departure)));
                self.due = self.link.arm(now);
            }
            self.dropped += self.link.take_dropped().count();
        }

        fn counters(&mut self, now: Time) -> LinkCounters {
            assert!(self.link.conserves(now) && self.link.obeys_little(now));
            self.link.counters(now)
        }
    }

    #[test]
    fn packets_depart_back_to_back_as_they_do_without_management() {
        let mut managed = Driven::new(&Queue::Codel(CODEL), SPEC);
        let mut plain = Link::plain(SPEC);
        let mut arrivals = Vec::new();
        for (number, ms) in (0..).zip([0, 0, 1, 1, 7, 8, 8, 20]) {
            assert_eq!(managed.offer(at(ms), number, false), Offer::Waits);
            arrivals.push(plain.offer(at(ms), PacketId(number), 1500));
        }
        managed.run(at(99));
        let departed = managed.departures.iter();
        let departed = departed.map(|(_, d)| Offer::Arrives(d.arrives.unwrap()));
        assert_eq!(departed.collect::<Vec<_>>(), arrivals);
        assert_eq!(managed.counters(at(99)).delivered.packets, 8);
    }

    #[test]
    fn a_changed_rate_a_cut_and_a_loss_leave_every_packet_accounted_for() {
        let lossy = Loss::Independent { probability: 0.3 };
        let mut driven = Driven::new(
            &Queue::Codel(CODEL),
            LinkSpec {
                loss: lossy,
                ..SPEC
            },
        );
        for number in 0..200 {
            driven.offer(at(u64::from(number) / 2), number, false);
        }
        driven.link.set_rate(at(100), 24_000_000);
        driven.due = driven.link.arm(at(100));
        driven.run(at(120));
        let (lost, held) = (driven.counters(at(120)).lost, driven.link.held(at(120)));
        assert!(lost.packets > 20 && held.packets > 20);
        // From here on 2 packets leave in a millisecond.
        let late = driven.departures.iter().filter(|(now, _)| *now > at(101));
        assert_eq!(late.count(), 38);
        let swallowed = driven.link.cut(at(120)).len() as u64;
        let counters = driven.counters(at(120));
        assert_eq!(
            (swallowed, counters.cut.packets),
            (held.packets, held.packets)
        );
        assert_eq!(driven.link.held(at(120)).packets, 0);
        driven.link.restore();
        driven.offer(at(200), 900, false);
        driven.counters(at(300));
    }

    /// A queue of about 100 packets before a line that sends one a millisecond, for 2 s.
    fn loaded(queue: &Queue, ect: bool) -> LinkCounters {
        let mut driven = Driven::new(queue, SPEC);
        for number in 0..2_100u32 {
            driven.offer(at(u64::from(number).saturating_sub(100)), number, ect);
        }
        driven.run(at(2_000));
        let counters = driven.counters(at(2_000));
        let marked = driven.departures.iter().filter(|(_, d)| d.marked).count();
        if driven.link.line_mut().managed.is_some() {
            assert_eq!(counters.marked.packets, marked as u64);
            assert_eq!(counters.early.packets, driven.dropped as u64);
        }
        counters
    }

    #[test]
    fn what_may_be_marked_is_marked_and_the_rest_is_dropped() {
        let red = Red {
            min_bytes: 10_000,
            max_bytes: 1_000_000,
            max_probability: 0.2,
            gentle: false,
            weight: 0.01,
            ecn: true,
        };
        for queue in [Queue::Codel(CODEL), Queue::Red(red)] {
            for ect in [false, true] {
                let counters = loaded(&queue, ect);
                let (early, marked) = (counters.early.packets, counters.marked.packets);
                assert_eq!((early > 10, marked > 10), (!ect, ect), "{counters:?}");
                assert!(early == 0 || marked == 0);
            }
        }
        let never = Queue::Codel(Codel {
            ecn: false,
            ..CODEL
        });
        assert!(loaded(&never, true).early.packets > 10);
        // Beyond its thresholds RED drops all, whatever they say.
        let full = Queue::Red(Red {
            max_bytes: 20_000,
            weight: 1.,
            ..red
        });
        assert!(loaded(&full, true).early.packets > 50);
    }
}
