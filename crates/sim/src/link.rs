//! One direction of a line.

mod change;
mod line;
mod managed;
mod rare;
mod ring;
mod transmitter;

use anabranch_core::Time;
pub use anabranch_scenario::{
    Buffer, Codel, FqCodel, Impairments, Loss, Nature, Passage, Queue, Red, Service, Sort,
};

use crate::packet::PacketId;
use line::Line;
pub use managed::Departure;
use transmitter::Transmitter;

/// One direction of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkSpec {
    /// Bits per second; at least 1. With a trace its mean.
    pub rate_bps: u64,
    /// Propagation.
    pub delay_ns: u64,
    /// Before the line.
    pub buffer: Buffer,
    /// On the line.
    pub loss: Loss,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many.
    pub packets: u64,
    /// Theirs together.
    pub bytes: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }

    fn plus(self, other: Tally) -> Tally {
        Tally {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// What a link has done. At any time `offered` is the sum of the others and of what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// All that came.
    pub offered: Tally,
    /// Came out at the far end.
    pub delivered: Tally,
    /// Dropped for want of buffer.
    pub overflowed: Tally,
    /// Lost by the line.
    pub lost: Tally,
    /// Dropped by the queue's management.
    pub early: Tally,
    /// Swallowed by a cut line.
    pub cut: Tally,
    /// Told of congestion by a mark instead of a drop; they are in one of the others, too.
    pub marked: Tally,
}

impl LinkCounters {
    /// Whatever the reason.
    pub fn dropped(&self) -> Tally {
        let all = [self.overflowed, self.lost, self.early, self.cut];
        all.into_iter().fold(Tally::default(), Tally::plus)
    }
}

/// What became of a packet offered to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// It arrives at this time, unless the line changes before.
    Arrives(Time),
    /// The same, and congestion is to be noted on it.
    Marked(Time),
    /// It waits in a managed queue, which may have dropped it or others for want of room: [`Link::take_dropped`] tells, and
    /// [`Link::arm`] when the next departs.
    Waits,
    /// There was no room in the buffer.
    Overflowed,
    /// By the line, by random early detection, or because the line is cut.
    Lost,
}

/// What a link sees of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Which.
    pub packet: PacketId,
    /// On the wire.
    pub bytes: u32,
    /// The hash of its flow.
    pub flow: u32,
    /// Whether it may be marked instead of dropped (RFC 3168).
    pub ect: bool,
    /// What else may decide whether the line loses it.
    pub nature: Nature,
}

/// What becomes of a packet before it gets as far as the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Taken,
    Marked,
    Refused,
}

/// One direction of a line: a [`Transmitter`], whose buffer drops what finds no room, and the propagation after it.
///
/// It is FIFO, so [`Link::offer`] tells at once when a packet arrives: nothing that is offered later can delay it. (One
/// that has a managed queue is not, and tells when packets depart.) Most
/// links remember what they hold, so that they can count what they delivered, lose packets, and change while packets
/// are on them. A *plain* link forgets a packet that left its buffer: it stays as it is, and costs less.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Link {
    transmitter: Transmitter,
    delay_ns: u64,
    /// None of a plain link.
    line: Option<Box<Line>>,
    overflowed: Tally,
}

impl Link {
    /// A link whose losses are drawn from the stream `stream` of `seed`; give every link its own.
    pub fn new(spec: LinkSpec, seed: u64, stream: u64) -> Self {
        Link {
            line: Some(Box::new(Line::new(spec.loss, seed, stream))),
            ..Link::plain(LinkSpec {
                loss: Loss::None,
                ..spec
            })
        }
    }

    /// # Panics
    /// If it is to lose anything but what finds no room.
    pub fn plain(spec: LinkSpec) -> Self {
        assert!(spec.loss == Loss::None, "a plain link loses nothing");
        Link {
            transmitter: Transmitter::new(spec.rate_bps, spec.buffer),
            delay_ns: spec.delay_ns,
            line: None,
            overflowed: Tally::default(),
        }
    }

    /// Whether nothing can happen on it but delay and overflow: no loss, no early drops, no changes.
    pub fn is_plain(&self) -> bool {
        self.line.is_none()
    }

    /// Whether a packet's [`Nature`] says whether it is lost.
    pub(crate) fn loses_by_nature(&self) -> bool {
        let line = self.line.as_ref();
        line.is_some_and(|line| line.rare.loses_by_nature())
    }

    /// What the link has done by `now`; a plain one counts as delivered what it has accepted.
    pub fn counters(&self, now: Time) -> LinkCounters {
        let accepted = self.transmitter.accepted();
        let mut counters = LinkCounters {
            offered: accepted.plus(self.overflowed),
            delivered: accepted,
            overflowed: self.overflowed,
            ..LinkCounters::default()
        };
        if let Some(line) = &self.line {
            counters.delivered = line.delivered_by(now);
            counters.lost = line.rare.lost;
            counters.early = line.rare.early;
            counters.cut = line.rare.swallowed.plus(line.rare.refused);
            counters.marked = line.rare.marked.plus(line.marked());
            counters.offered = counters
                .offered
                .plus(line.rare.early)
                .plus(line.rare.refused)
                .plus(line.waiting());
        }
        counters
    }

    /// Waiting or in transmission at `now`.
    pub fn backlog(&mut self, now: Time) -> Tally {
        self.transmitter.depart(now.as_nanos());
        let waiting = self
            .line
            .as_ref()
            .map_or(Tally::default(), |line| line.waiting());
        self.transmitter.backlog().plus(waiting)
    }

    /// Waiting, in transmission or propagating at `now`, and not to be lost; nothing on a plain link.
    pub fn held(&self, now: Time) -> Tally {
        self.line.as_ref().map_or(Tally::default(), |line| {
            line.held_at(now).plus(line.waiting())
        })
    }

    /// All that waits in its managed queue, or that will arrive after `now`; nothing on a plain link.
    pub(crate) fn holds(&self, now: Time) -> impl Iterator<Item = PacketId> {
        let managed = self.line.iter().flat_map(|line| &line.managed);
        let waiting = managed.flat_map(|managed| managed.packets());
        self.to_come(now).map(|(packet, _)| packet).chain(waiting)
    }

    /// What will arrive after `now`, and when; nothing on a plain link.
    pub(crate) fn to_come(&self, now: Time) -> impl Iterator<Item = (PacketId, Time)> {
        self.line.iter().flat_map(move |line| line.to_come(now))
    }

    /// Whether everything offered is accounted for, to the byte.
    pub fn conserves(&self, now: Time) -> bool {
        let all = self.counters(now);
        all.offered == all.delivered.plus(all.dropped()).plus(self.held(now))
    }

    /// Takes a packet in that cannot be marked, or tells why not.
    pub fn offer(&mut self, now: Time, packet: PacketId, bytes: u32) -> Offer {
        let frame = Frame {
            packet,
            bytes,
            flow: 0,
            ect: false,
            nature: Nature::ORDINARY,
        };
        self.take(now, frame)
    }

    /// As [`Link::take`], of a plain link.
    #[inline(always)]
    pub fn take_plainly(&mut self, now: Time, bytes: u32) -> Offer {
        match self.transmitter.accept(now.as_nanos(), bytes) {
            Some(departure_ns) => Offer::Arrives(Time::from_nanos(departure_ns + self.delay_ns)),
            None => self.overflow(bytes),
        }
    }

    /// Takes a packet in, or tells why not.
    #[inline(always)]
    pub fn take(&mut self, now: Time, frame: Frame) -> Offer {
        if self.is_plain() {
            return self.take_plainly(now, frame.bytes);
        }
        let (now_ns, bytes) = (now.as_nanos(), frame.bytes);
        let verdict = self.judge(now_ns, frame);
        if verdict == Verdict::Refused {
            return Offer::Lost;
        }
        if self.line_mut().managed.is_some() {
            return self.wait(now, frame);
        }
        let Some(departure_ns) = self.accept(now_ns, bytes) else {
            return self.overflow(bytes);
        };
        let arrival_ns = departure_ns + self.delay_ns;
        let line = self.line_mut();
        match line.enter(now_ns, arrival_ns, frame.packet, bytes, frame.nature) {
            None => Offer::Lost,
            Some(at) if verdict == Verdict::Marked => {
                line.rare.marked.add(bytes);
                Offer::Marked(at)
            }
            Some(at) => Offer::Arrives(at),
        }
    }

    /// When a packet has departed that comes at `now_ns`, if there is room for it.
    #[inline(always)]
    fn accept(&mut self, now_ns: u64, bytes: u32) -> Option<u64> {
        let trace = self.line.as_mut().and_then(|line| line.rare.trace.as_mut());
        match trace {
            None => self.transmitter.accept(now_ns, bytes),
            Some(trace) => self.transmitter.accept_traced(now_ns, bytes, trace),
        }
    }

    fn overflow(&mut self, bytes: u32) -> Offer {
        self.overflowed.add(bytes);
        Offer::Overflowed
    }

    /// # Panics
    /// If the link is plain.
    fn line_mut(&mut self) -> &mut Line {
        let line = self.line.as_deref_mut();
        line.expect("a plain link loses nothing, counts little and never changes")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLEAN: LinkSpec = LinkSpec {
        rate_bps: 8_000_000,
        delay_ns: 1_000_000,
        buffer: Buffer::Packets(2),
        loss: Loss::None,
    };

    fn at(us: u64) -> Time {
        Time::from_nanos(us * 1_000)
    }

    fn packet(i: u32) -> PacketId {
        PacketId(i)
    }

    fn arrives(us: u64) -> Offer {
        Offer::Arrives(at(us))
    }

    #[test]
    fn packets_depart_back_to_back_and_arrive_a_propagation_later() {
        let mut link = Link::new(CLEAN, 0, 0);
        assert_eq!(link.offer(at(0), packet(0), 1000), arrives(2000));
        assert_eq!(link.offer(at(500), packet(1), 500), arrives(2500));
        let by = |us| link.counters(at(us)).delivered.packets;
        assert_eq!([1999, 2000, 2499, 2500].map(by), [0, 1, 1, 2]);
        assert_eq!(link.offer(at(9000), packet(2), 1), arrives(10_001));
    }

    #[test]
    fn a_packet_leaves_the_buffer_when_it_is_transmitted_not_when_it_arrives() {
        let mut link = Link::new(CLEAN, 0, 0);
        link.offer(at(0), packet(0), 1000);
        link.offer(at(0), packet(1), 1000);
        assert_eq!(link.offer(at(999), packet(2), 1000), Offer::Overflowed);
        assert_eq!(link.offer(at(1000), packet(3), 1000), arrives(4000));
        assert_eq!(link.backlog(at(1000)).packets, 2);
        assert_eq!(link.held(at(1000)).packets, 3);
        assert!(link.conserves(at(1000)) && link.conserves(at(3500)));
    }

    #[test]
    fn a_buffer_in_bytes_takes_what_fits() {
        let buffer = Buffer::Bytes(1500);
        let mut link = Link::new(LinkSpec { buffer, ..CLEAN }, 0, 0);
        link.offer(at(0), packet(0), 1000);
        assert_eq!(link.offer(at(0), packet(1), 501), Offer::Overflowed);
        assert_eq!(link.offer(at(0), packet(2), 500), arrives(2500));
        assert!(link.conserves(at(0)));
    }

    proptest! {
        #[test]
        fn a_plain_link_does_the_same(offers in prop::collection::vec((0..2_000u64, 1..2_000u32), 1..200)) {
            for buffer in [Buffer::Packets(3), Buffer::Bytes(4_000), Buffer::Unlimited] {
                let spec = LinkSpec { buffer, ..CLEAN };
                let (mut link, mut plain) = (Link::new(spec, 0, 0), Link::plain(spec));
                let mut now_us = 0;
                for (gap_us, bytes) in &offers {
                    now_us += gap_us;
                    let offers = [&mut link, &mut plain].map(|link| link.offer(at(now_us), packet(0), *bytes));
                    prop_assert_eq!(offers[0], offers[1]);
                    prop_assert_eq!(link.backlog(at(now_us)), plain.backlog(at(now_us)));
                    prop_assert!(link.conserves(at(now_us)) && plain.conserves(at(now_us)));
                }
                let end = at(now_us + 1_000_000_000);
                prop_assert_eq!(link.counters(end), plain.counters(end));
            }
        }
    }

    #[test]
    fn rounding_does_not_accumulate_over_packets() {
        let spec = LinkSpec {
            rate_bps: 3_000_000_000,
            delay_ns: 0,
            buffer: Buffer::Unlimited,
            ..CLEAN
        };
        let mut link = Link::new(spec, 0, 0);
        let offers = (0..3_000_000).map(|i| link.offer(at(0), packet(i), 1));
        assert_eq!(offers.last(), Some(arrives(8_000)));
    }

    #[test]
    fn a_lost_packet_takes_its_place_and_its_time() {
        let loss = Loss::Independent { probability: 1. };
        let mut link = Link::new(LinkSpec { loss, ..CLEAN }, 0, 0);
        assert_eq!(link.offer(at(0), packet(0), 1000), Offer::Lost);
        assert_eq!(link.offer(at(0), packet(1), 1000), Offer::Lost);
        assert_eq!(link.offer(at(999), packet(2), 1000), Offer::Overflowed);
        assert_eq!(link.backlog(at(999)).packets, 2);
        assert_eq!(link.backlog(at(2000)).packets, 0);
        assert!(link.conserves(at(2000)) && link.conserves(at(3000)));
    }

    fn lost_of(loss: Loss, packets: u32, seed: u64) -> Vec<bool> {
        let mut link = Link::new(LinkSpec { loss, ..CLEAN }, seed, 3);
        let lost = |i| link.offer(at(u64::from(i) * 1000), packet(i), 1000) == Offer::Lost;
        (0..packets).map(lost).collect()
    }

    #[test]
    fn independent_loss_has_its_rate_and_repeats_with_its_seed() {
        let loss = Loss::Independent { probability: 0.03 };
        let lost = lost_of(loss, 200_000, 5);
        let rate = lost.iter().filter(|lost| **lost).count() as f64 / 200_000.;
        let three_sigma = 3. * (0.03 * 0.97 / 200_000f64).sqrt();
        assert!(
            (rate - 0.03).abs() < three_sigma,
            "observed {rate}, expected 0.03 ± {three_sigma}"
        );
        assert_eq!(lost, lost_of(loss, 200_000, 5));
        assert_ne!(lost, lost_of(loss, 200_000, 6));
    }

    #[test]
    fn bursts_last_as_long_as_the_bad_state() {
        let loss = Loss::Bursty {
            good_to_bad: 0.01,
            bad_to_good: 0.25,
            loss_good: 0.,
            loss_bad: 1.,
        };
        let lost = lost_of(loss, 400_000, 5);
        let losses = lost.iter().filter(|lost| **lost).count() as f64;
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        let (rate, length) = (losses / 400_000., losses / bursts);
        assert!(
            (rate / (0.01 / 0.26) - 1.).abs() < 0.05,
            "loss {rate}, expected 0.03846 ± 5 %"
        );
        assert!(
            (length / 4. - 1.).abs() < 0.05,
            "burst {length}, expected 4 ± 5 %"
        );
    }
}
