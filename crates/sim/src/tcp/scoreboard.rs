//! What the sender knows of each outstanding segment, RFC 6675 section 4.

use std::collections::VecDeque;

use super::{Block, SackBlocks};

/// DupThresh: so many segments above a hole say that it was lost, not reordered.
pub const DUP_THRESHOLD: u32 = 3;

const SACKED: u8 = 1;
const LOST: u8 = 2;
/// Resent since it was lost last.
const RESENT: u8 = 4;
/// Resent ever.
const TWICE: u8 = 8;

/// While nothing outstanding was SACKed, lost or resent, these few numbers are all there is.
///
/// Every step costs no more than the news it brings: what earlier blocks said is not walked again, and the edges below
/// which segments count as lost or resent only move forward, until a timeout.
///
/// Invariant: `pipe` = Σ over segments not SACKed of (1 unless lost) + (1 if resent).
#[derive(Debug)]
pub struct Scoreboard {
    una: u32,
    /// One more than the greatest number sent.
    end: u32,
    pipe: u32,
    /// Everything below that is not SACKed is lost.
    lost_below: u32,
    marks: Option<Box<Marks>>,
}

/// What is known beyond that a segment was sent.
#[derive(Debug, Default)]
struct Marks {
    /// From `una` on; nothing is known of segments beyond.
    states: VecDeque<u8>,
    /// The greatest SACKed numbers, descending; 0 is none, since the SYN is never SACKed.
    top: [u32; DUP_THRESHOLD as usize],
    /// The retransmission cursor: HighRxt + 1.
    resend_from: u32,
    /// Blocks that were taken in already.
    known: SackBlocks,
    /// Segments that were ever found lost.
    lost: u32,
}

impl Scoreboard {
    pub fn new(una: u32) -> Self {
        Scoreboard {
            una,
            end: una,
            pipe: 0,
            lost_below: una,
            marks: None,
        }
    }

    /// Segments estimated to be in the network.
    pub fn pipe(&self) -> u32 {
        self.pipe
    }

    /// How often a segment was found lost.
    pub fn lost(&self) -> u32 {
        self.marks.as_ref().map_or(0, |marks| marks.lost)
    }

    /// Whether the first outstanding segment counts as lost.
    pub fn first_is_lost(&self) -> bool {
        self.lost_below > self.una
    }

    /// A segment that was not sent before was sent.
    #[inline]
    pub fn send(&mut self) {
        self.end += 1;
        self.pipe += 1;
    }

    /// `number` was sent again.
    pub fn resend(&mut self, number: u32) {
        let una = self.una;
        let marks = self.marks.get_or_insert_default();
        let state = marks.state(number - una);
        if *state & RESENT == 0 {
            *state |= RESENT | TWICE;
            self.pipe += 1;
        }
        marks.resend_from = marks.resend_from.max(number + 1);
    }

    /// Rule 1 of NextSeg: the first lost segment that was not resent.
    pub fn next_lost(&mut self) -> Option<u32> {
        let (una, below) = (self.una, self.lost_below);
        self.marks.as_mut()?.next_hole(una, below)
    }

    /// Rule 3 of NextSeg: the first hole below the highest SACKed segment, lost or not.
    pub fn next_doubtful(&mut self) -> Option<u32> {
        let una = self.una;
        let marks = self.marks.as_mut()?;
        marks.next_hole(una, marks.top[0])
    }

    /// Everything below `ack` arrived.
    #[inline]
    pub fn acknowledge(&mut self, ack: u32) {
        match &mut self.marks {
            Some(marks) if !marks.states.is_empty() => self.pipe -= marks.forget(ack - self.una),
            _ => self.pipe -= ack - self.una,
        }
        self.una = ack;
        self.lost_below = self.lost_below.max(ack);
    }

    /// Takes blocks in; whether they told anything new. `arrived` hears of each segment that they are the first to name,
    /// and whether it was resent.
    #[inline]
    pub fn sack(&mut self, blocks: Option<&SackBlocks>, arrived: impl FnMut(u32, bool)) -> bool {
        match (blocks, &mut self.marks) {
            (Some(blocks), _) => self.take_in(blocks, arrived),
            (None, Some(marks)) => {
                marks.known = SackBlocks::default();
                false
            }
            (None, None) => false,
        }
    }

    fn take_in(&mut self, blocks: &SackBlocks, mut arrived: impl FnMut(u32, bool)) -> bool {
        let una = self.una;
        let earlier = self.marks.get_or_insert_default().known;
        let mut news = false;
        for block in blocks.iter().filter(|block| block.end > una) {
            let within = |known: &&Block| known.start >= block.start && known.end <= block.end;
            let (low, high) = earlier
                .iter()
                .filter(within)
                .max_by_key(|known| known.end - known.start)
                .filter(|known| known.end > known.start)
                .map_or((block.end, block.end), |known| (known.start, known.end));
            news |= self.mark(block.start, low, &mut arrived);
            news |= self.mark(high, block.end, &mut arrived);
        }
        self.marks.get_or_insert_default().known = *blocks;
        news
    }

    /// IsLost: everything below the third of the greatest SACKed numbers.
    pub fn judge_by_count(&mut self) {
        if let Some(marks) = &self.marks {
            self.judge(marks.top[DUP_THRESHOLD as usize - 1]);
        }
    }

    fn mark(&mut self, start: u32, end: u32, arrived: &mut impl FnMut(u32, bool)) -> bool {
        let marks = self.marks.get_or_insert_default();
        let mut news = false;
        for number in start.max(self.una)..end.min(self.end) {
            let state = marks.state(number - self.una);
            if *state & SACKED == 0 {
                self.pipe -= weight(*state);
                *state |= SACKED;
                arrived(number, *state & TWICE != 0);
                marks.rank(number);
                news = true;
            }
        }
        news
    }

    fn judge(&mut self, edge: u32) {
        let marks = self.marks.get_or_insert_default();
        for number in self.lost_below..edge {
            let state = marks.state(number - self.una);
            if *state & (SACKED | LOST) == 0 {
                *state |= LOST;
                marks.lost += 1;
                self.pipe -= 1;
            }
        }
        self.lost_below = self.lost_below.max(edge);
    }

    /// The first segment is to be resent whatever the blocks say (a third duplicate acknowledgement).
    pub fn lose_first(&mut self) {
        self.judge(self.una + 1);
    }

    /// A timeout: all that was not SACKed is lost, resent or not.
    pub fn lose_all(&mut self) {
        let marks = self.marks.get_or_insert_default();
        marks.states.resize((self.end - self.una) as usize, 0);
        for state in &mut marks.states {
            if *state & SACKED == 0 {
                marks.lost += u32::from(*state & LOST == 0 || *state & RESENT != 0);
                *state = *state & TWICE | LOST;
            }
        }
        marks.resend_from = self.una;
        self.pipe = 0;
        self.lost_below = self.end;
    }

    // ---- losses that somebody else finds, who keeps what was not resent

    fn known(&self, number: u32) -> u8 {
        let states = self.marks.as_ref().map(|marks| &marks.states);
        let state = states.and_then(|states| states.get((number - self.una) as usize));
        state.copied().unwrap_or(0)
    }

    /// Whether an outstanding segment was SACKed.
    pub fn is_sacked(&self, number: u32) -> bool {
        self.known(number) & SACKED != 0
    }

    /// Whether an outstanding segment was ever resent.
    pub fn is_resent(&self, number: u32) -> bool {
        self.known(number) & TWICE != 0
    }

    /// Whether a segment has not arrived, is lost and was not resent since.
    pub fn is_to_resend(&self, number: u32) -> bool {
        number >= self.una && self.known(number) & (SACKED | LOST | RESENT) == LOST
    }

    /// Whether the last transmission of a segment may yet arrive.
    pub fn awaits(&self, number: u32) -> bool {
        number >= self.una && !self.is_sacked(number) && !self.is_to_resend(number)
    }

    /// All transmissions of an outstanding segment are lost.
    pub fn lose(&mut self, number: u32) {
        let una = self.una;
        let marks = self.marks.get_or_insert_default();
        marks.lost += 1;
        let state = marks.state(number - una);
        self.pipe -= weight(*state);
        *state = *state & !RESENT | LOST;
    }

    #[cfg(test)]
    fn recount(&self) -> u32 {
        let states = self.marks.iter().flat_map(|marks| &marks.states);
        let known = states.clone().count() as u32;
        states.map(|state| weight(*state)).sum::<u32>() + self.end - self.una - known
    }
}

impl Marks {
    /// Of the segment `ahead` of the first outstanding.
    fn state(&mut self, ahead: u32) -> &mut u8 {
        let ahead = ahead as usize;
        if self.states.len() <= ahead {
            self.states.resize(ahead + 1, 0);
        }
        &mut self.states[ahead]
    }

    /// The first `count` segments arrived: what they added to the pipe.
    fn forget(&mut self, count: u32) -> u32 {
        let known = self.states.len().min(count as usize);
        let weight = self.states.drain(..known).map(weight).sum::<u32>();
        if self.states.is_empty() {
            self.known = SackBlocks::default();
        }
        weight + count - known as u32
    }

    fn rank(&mut self, mut number: u32) {
        for place in &mut self.top {
            if number > *place {
                std::mem::swap(place, &mut number);
            }
        }
    }

    fn next_hole(&mut self, una: u32, below: u32) -> Option<u32> {
        self.resend_from = self.resend_from.max(una);
        while self.resend_from < below {
            let state = self.states.get((self.resend_from - una) as usize);
            if state.is_none_or(|state| state & (SACKED | RESENT) == 0) {
                return Some(self.resend_from);
            }
            self.resend_from += 1;
        }
        None
    }
}

/// What a segment adds to the pipe.
fn weight(state: u8) -> u32 {
    if state & SACKED != 0 {
        return 0;
    }
    u32::from(state & LOST == 0) + u32::from(state & RESENT != 0)
}

impl Block {
    /// The numbers from `start` up to, not including, `end`.
    pub fn new(start: u32, end: u32) -> Self {
        Block { start, end }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sent(n: u32) -> Scoreboard {
        let mut board = Scoreboard::new(1);
        (0..n).for_each(|_| board.send());
        board
    }

    fn blocks(of: &[(u32, u32)]) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        for (place, (start, end)) in blocks.iter_mut().zip(of) {
            *place = Block::new(*start, *end);
        }
        blocks
    }

    fn told(board: &mut Scoreboard, of: &[(u32, u32)]) -> bool {
        let news = board.sack(Some(&blocks(of)), |_, _| {});
        board.judge_by_count();
        news
    }

    #[test]
    fn a_hole_is_lost_when_three_segments_above_it_arrived() {
        let mut board = sent(10);
        assert!(told(&mut board, &[(2, 4)]));
        assert!(!board.first_is_lost());
        assert_eq!(board.pipe(), 8);
        assert!(told(&mut board, &[(2, 5)]));
        assert!(board.first_is_lost());
        assert_eq!((board.pipe(), board.next_lost()), (6, Some(1)));
        board.resend(1);
        assert_eq!((board.pipe(), board.next_lost()), (7, None));
        assert!(!told(&mut board, &[(2, 5)]));
    }

    proptest! {
        #[test]
        fn the_pipe_is_what_a_recount_says(
            ops in prop::collection::vec((0u8..7, 0u32..40, 1u32..8), 1..200),
        ) {
            let mut board = sent(20);
            for (kind, offset, length) in ops {
                let end = board.end;
                match kind {
                    0 => (0..length).for_each(|_| board.send()),
                    1 | 2 => {
                        let start = board.una + 1 + offset;
                        told(&mut board, &[(start, start + length)]);
                    }
                    3 => {
                        if let Some(number) = board.next_lost() {
                            board.resend(number);
                        }
                    }
                    4 => board.acknowledge((board.una + offset / 8).min(end)),
                    5 if board.una + offset < end => board.lose(board.una + offset),
                    _ if offset == 0 => board.lose_all(),
                    _ => {
                        if let Some(number) = board.next_doubtful() {
                            board.resend(number);
                        }
                    }
                }
                prop_assert_eq!(board.pipe(), board.recount());
            }
        }
    }
}
