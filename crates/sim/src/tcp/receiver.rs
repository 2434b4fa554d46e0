//! What arrived, and what to tell the sender.

use super::{Block, Flags, SackBlocks, Segment, TcpConfig};

/// Order of arrival in, acknowledgements out.
#[derive(Debug)]
pub struct Receiver {
    next: u32,
    fin: Option<u32>,
    /// Runs above `next`, the one that changed last first (RFC 2018 section 4).
    runs: Vec<Block>,
    /// Arrived again, to be reported (RFC 2883); 0 if nothing did, since the SYN is not reported.
    repeated: u32,
    unacknowledged: u32,
    /// TS.Recent of RFC 7323 section 4.3.
    stamp: u32,
    /// Of what it tells: SACK if something is missing below what has arrived, or arrived twice; ECE once a packet was marked,
    /// until the sender has heard of it (RFC 3168 section 6.1.3).
    flags: Flags,
    pub(super) ack_due: bool,
    /// When the acknowledgement may wait no longer, in ns; `u64::MAX` if none waits.
    pub(super) delayed_until_ns: u64,
}

impl Default for Receiver {
    fn default() -> Self {
        Receiver {
            next: 0,
            fin: None,
            runs: Vec::new(),
            repeated: 0,
            unacknowledged: 0,
            stamp: 0,
            flags: Flags::default(),
            ack_due: false,
            delayed_until_ns: u64::MAX,
        }
    }
}

impl Receiver {
    /// The first number that has not arrived.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Whether everything up to and with the FIN arrived.
    pub fn finished(&self) -> bool {
        self.fin.is_some_and(|fin| self.next > fin)
    }

    /// What its acknowledgements say in single bits.
    #[inline]
    pub fn flags(&self) -> Flags {
        self.flags
    }

    /// What an acknowledgement echoes.
    pub fn stamp(&self) -> u32 {
        self.stamp
    }

    /// Of a segment that is about to be received. One beyond what was last acknowledged is not echoed: so an acknowledgement
    /// that waited tells the round trip with its wait, and one from above a hole that of what arrived last in order.
    #[inline(always)]
    pub fn read_stamp(&mut self, segment: &Segment) {
        if segment.number < self.next || segment.number == self.next && self.unacknowledged == 0 {
            self.stamp = segment.stamp;
        }
    }

    /// There may be other blocks to tell than before.
    fn tell_blocks(&mut self) {
        let some = !self.runs.is_empty() || self.repeated != 0;
        self.flags.set(Flags::SACK, some);
    }

    /// What arrived twice, which is told once, and what arrived beyond a hole.
    pub fn take_blocks(&mut self) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        let repeated = match std::mem::take(&mut self.repeated) {
            0 => None,
            number => Some(Block::new(number, number + 1)),
        };
        let told = repeated.iter().chain(&self.runs);
        for (place, block) in blocks.iter_mut().zip(told) {
            *place = *block;
        }
        self.tell_blocks();
        blocks
    }

    /// The segment `number` arrived. Acknowledges every second one, at once what is out of order, fills a hole or
    /// repeats (RFC 5681 section 4.2).
    #[inline(always)]
    pub fn receive(&mut self, number: u32, fin: bool, now_ns: u64, config: &TcpConfig) {
        if fin {
            self.fin = Some(number);
        }
        let in_order = number == self.next && self.runs.is_empty();
        if number == self.next {
            self.next += 1;
            self.join();
        } else {
            if config.dsack && self.has(number) {
                self.repeated = number;
            }
            if number > self.next {
                self.remember(number);
            }
            self.tell_blocks();
        }
        self.unacknowledged += 1;
        match config.delayed_ack_ns {
            Some(delay_ns) if in_order && !fin && self.unacknowledged < 2 => {
                self.delayed_until_ns = now_ns + delay_ns;
            }
            _ => self.ack_due = true,
        }
    }

    /// An acknowledgement left.
    pub fn acknowledged(&mut self) {
        self.unacknowledged = 0;
        self.ack_due = false;
        self.delayed_until_ns = u64::MAX;
    }

    pub fn handle_timeout(&mut self, now_ns: u64) {
        if self.delayed_until_ns <= now_ns {
            self.ack_due = true;
            self.delayed_until_ns = u64::MAX;
        }
    }

    fn has(&self, number: u32) -> bool {
        let within = |run: &Block| (run.start..run.end).contains(&number);
        number < self.next || self.runs.iter().any(within)
    }

    /// The ECN bits of a segment with data (RFC 3168 section 6.1.3). The first mark is told at once, as Linux does.
    pub fn notice(&mut self, flags: Flags) {
        if flags.has(Flags::CWR) {
            self.flags.set(Flags::ECE, false);
        }
        if flags.has(Flags::CE) {
            self.ack_due |= !self.flags.has(Flags::ECE);
            self.flags.set(Flags::ECE, true);
        }
    }

    /// Takes in the run that `next` has reached.
    fn join(&mut self) {
        let next = self.next;
        if let Some(i) = self.runs.iter().position(|run| run.start == next) {
            self.next = self.runs.remove(i).end;
            self.tell_blocks();
        }
    }

    #[inline(never)]
    fn remember(&mut self, number: u32) {
        let mut run = Block {
            start: number,
            end: number + 1,
        };
        self.runs.retain(|other| {
            let touches = other.start <= run.end && run.start <= other.end;
            if touches {
                run.start = run.start.min(other.start);
                run.end = run.end.max(other.end);
            }
            !touches
        });
        self.runs.insert(0, run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::Kind;

    fn blocks(receiver: &mut Receiver) -> Vec<(u32, u32)> {
        let blocks = receiver.take_blocks();
        let some = blocks.iter().filter(|block| block.end > 0);
        some.map(|block| (block.start, block.end)).collect()
    }

    #[test]
    fn blocks_tell_the_latest_change_first_and_vanish_when_the_hole_is_filled() {
        let config = TcpConfig::default();
        let mut receiver = Receiver::default();
        for number in [0, 2, 5, 3] {
            receiver.receive(number, false, 0, &config);
        }
        assert_eq!(blocks(&mut receiver), [(2, 4), (5, 6)]);
        receiver.receive(4, false, 0, &config);
        assert_eq!(blocks(&mut receiver), [(2, 6)]);
        receiver.receive(1, false, 0, &config);
        assert_eq!((receiver.next(), blocks(&mut receiver)), (6, vec![]));
    }

    #[test]
    fn what_arrived_twice_is_told_once_and_before_the_rest() {
        let config = TcpConfig {
            dsack: true,
            ..TcpConfig::default()
        };
        let mut receiver = Receiver::default();
        for (number, told) in [
            (0, vec![]),
            (1, vec![]),
            (1, vec![(1, 2)]),
            (4, vec![(4, 5)]),
            (4, vec![(4, 5), (4, 5)]),
            (1, vec![(1, 2), (4, 5)]),
        ] {
            receiver.receive(number, false, 0, &config);
            assert_eq!(blocks(&mut receiver), told, "{number}");
        }
        assert_eq!(blocks(&mut receiver), [(4, 5)]);
    }

    #[test]
    fn a_mark_is_echoed_until_the_sender_has_reduced_its_window() {
        let mut receiver = Receiver::default();
        let marked = Flags::ECT.with(Flags::CE, true);
        receiver.notice(marked);
        assert!(receiver.flags.has(Flags::ECE) && receiver.ack_due);
        receiver.notice(Flags::ECT);
        assert!(receiver.flags.has(Flags::ECE));
        receiver.notice(marked.with(Flags::CWR, true));
        assert!(
            receiver.flags.has(Flags::ECE),
            "marked after the window was reduced"
        );
        receiver.notice(Flags::ECT.with(Flags::CWR, true));
        assert!(!receiver.flags.has(Flags::ECE));
    }

    /// The examples of RFC 7323 section 4.3.
    #[test]
    fn the_stamp_echoed_is_that_of_the_oldest_segment_that_waits_for_its_acknowledgement() {
        let config = TcpConfig {
            delayed_ack_ns: Some(100),
            ..TcpConfig::default()
        };
        let mut receiver = Receiver::default();
        let mut arrives = |number, stamp, acknowledged: bool| {
            let segment = Segment {
                number,
                stamp,
                ..Segment::bare(Kind::Data)
            };
            receiver.read_stamp(&segment);
            receiver.receive(number, false, 0, &config);
            if acknowledged {
                receiver.acknowledged();
            }
            receiver.stamp()
        };
        assert_eq!([arrives(0, 1, false), arrives(1, 2, true)], [1, 1]);
        let beyond_a_hole = [
            arrives(2, 3, true),
            arrives(4, 5, true),
            arrives(5, 6, true),
        ];
        assert_eq!(beyond_a_hole, [3, 3, 3]);
        assert_eq!(arrives(3, 7, true), 7);
    }

    #[test]
    fn a_delayed_acknowledgement_covers_two_segments_and_never_hides_a_hole() {
        let config = TcpConfig {
            delayed_ack_ns: Some(100),
            ..TcpConfig::default()
        };
        let mut receiver = Receiver::default();
        receiver.receive(0, false, 0, &config);
        assert!(!receiver.ack_due);
        assert_eq!(receiver.delayed_until_ns, 100);
        receiver.receive(1, false, 10, &config);
        assert!(receiver.ack_due);
        receiver.acknowledged();
        receiver.receive(3, false, 20, &config);
        assert!(receiver.ack_due);
    }
}
