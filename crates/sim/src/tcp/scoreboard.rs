//! What the sender knows of each outstanding segment, RFC 6675 section 4.

use std::collections::VecDeque;

use super::{Block, SackBlocks};

/// DupThresh: so many segments above a hole say that it was lost, not reordered.
pub const DUP_THRESHOLD: u32 = 3;

const SACKED: u8 = 1;
const LOST: u8 = 2;
const RESENT: u8 = 4;

/// Every step costs no more than the news it brings: what earlier blocks said is not walked again, and the edges below
/// which segments count as lost or resent only move forward, until a timeout.
///
/// Invariant: `pipe` = Σ over segments not SACKed of (1 unless lost) + (1 if resent).
#[derive(Debug, Default)]
pub struct Scoreboard {
    una: u32,
    states: VecDeque<u8>,
    pipe: u32,
    /// The greatest SACKed numbers, descending; 0 is none, since the SYN is never SACKed.
    top: [u32; DUP_THRESHOLD as usize],
    /// Everything below that is not SACKed is lost.
    lost_below: u32,
    /// The retransmission cursor: HighRxt + 1.
    resend_from: u32,
    /// Blocks that were taken in already.
    known: SackBlocks,
}

impl Scoreboard {
    pub fn new(una: u32) -> Self {
        Scoreboard {
            una,
            lost_below: una,
            resend_from: una,
            ..Scoreboard::default()
        }
    }

    /// Segments estimated to be in the network.
    pub fn pipe(&self) -> u32 {
        self.pipe
    }

    /// Whether the first outstanding segment counts as lost.
    pub fn first_is_lost(&self) -> bool {
        self.lost_below > self.una
    }

    /// A segment that was not sent before was sent.
    pub fn send(&mut self) {
        self.states.push_back(0);
        self.pipe += 1;
    }

    /// `number` was sent again.
    pub fn resend(&mut self, number: u32) {
        let state = &mut self.states[(number - self.una) as usize];
        if *state & RESENT == 0 {
            *state |= RESENT;
            self.pipe += 1;
        }
        self.resend_from = self.resend_from.max(number + 1);
    }

    /// Rule 1 of NextSeg: the first lost segment that was not resent.
    pub fn next_lost(&mut self) -> Option<u32> {
        self.next_hole(self.lost_below)
    }

    /// Rule 3 of NextSeg: the first hole below the highest SACKed segment, lost or not.
    pub fn next_doubtful(&mut self) -> Option<u32> {
        self.next_hole(self.top[0])
    }

    fn next_hole(&mut self, below: u32) -> Option<u32> {
        self.resend_from = self.resend_from.max(self.una);
        while self.resend_from < below {
            if self.states[(self.resend_from - self.una) as usize] & (SACKED | RESENT) == 0 {
                return Some(self.resend_from);
            }
            self.resend_from += 1;
        }
        None
    }

    /// Everything below `ack` arrived.
    pub fn acknowledge(&mut self, ack: u32) {
        while self.una < ack {
            let state = self
                .states
                .pop_front()
                .expect("an acknowledged segment was sent");
            self.pipe -= weight(state);
            self.una += 1;
        }
        self.lost_below = self.lost_below.max(ack);
    }

    /// Takes blocks in; whether they told anything new.
    pub fn sack(&mut self, blocks: &SackBlocks) -> bool {
        if blocks[0].end == 0 {
            self.known = SackBlocks::default();
            return false;
        }
        let mut news = false;
        let una = self.una;
        for block in blocks.iter().filter(|block| block.end > una) {
            let known = self.known.iter().copied();
            let within = known.filter(|known| known.start >= block.start && known.end <= block.end);
            let (low, high) = within
                .max_by_key(|known| known.end - known.start)
                .filter(|known| known.end > known.start)
                .map_or((block.end, block.end), |known| (known.start, known.end));
            news |= self.mark(block.start, low) | self.mark(high, block.end);
        }
        self.known = *blocks;
        if news {
            self.judge(self.top[DUP_THRESHOLD as usize - 1]);
        }
        news
    }

    fn mark(&mut self, start: u32, end: u32) -> bool {
        let mut news = false;
        let sent = self.una + self.states.len() as u32;
        for number in start.max(self.una)..end.min(sent) {
            let state = &mut self.states[(number - self.una) as usize];
            if *state & SACKED == 0 {
                self.pipe -= weight(*state);
                *state |= SACKED;
                self.rank(number);
                news = true;
            }
        }
        news
    }

    fn rank(&mut self, mut number: u32) {
        for place in &mut self.top {
            if number > *place {
                std::mem::swap(place, &mut number);
            }
        }
    }

    /// IsLost for everything below `edge`.
    fn judge(&mut self, edge: u32) {
        for number in self.lost_below..edge {
            let state = &mut self.states[(number - self.una) as usize];
            if *state & (SACKED | LOST) == 0 {
                *state |= LOST;
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
        for state in &mut self.states {
            if *state & SACKED == 0 {
                *state = LOST;
            }
        }
        self.pipe = 0;
        self.resend_from = self.una;
        self.lost_below = self.una + self.states.len() as u32;
    }

    #[cfg(test)]
    fn recount(&self) -> u32 {
        self.states.iter().map(|state| weight(*state)).sum()
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

    #[test]
    fn a_hole_is_lost_when_three_segments_above_it_arrived() {
        let mut board = sent(10);
        assert!(board.sack(&blocks(&[(2, 4)])));
        assert!(!board.first_is_lost());
        assert_eq!(board.pipe(), 8);
        assert!(board.sack(&blocks(&[(2, 5)])));
        assert!(board.first_is_lost());
        assert_eq!((board.pipe(), board.next_lost()), (6, Some(1)));
        board.resend(1);
        assert_eq!((board.pipe(), board.next_lost()), (7, None));
        assert!(!board.sack(&blocks(&[(2, 5)])));
    }

    proptest! {
        #[test]
        fn the_pipe_is_what_a_recount_says(
            ops in prop::collection::vec((0u8..6, 0u32..40, 1u32..8), 1..200),
        ) {
            let mut board = sent(20);
            for (kind, offset, length) in ops {
                let end = board.una + board.states.len() as u32;
                match kind {
                    0 => (0..length).for_each(|_| board.send()),
                    1 | 2 => {
                        let start = board.una + 1 + offset;
                        board.sack(&blocks(&[(start, start + length)]));
                    }
                    3 => {
                        if let Some(number) = board.next_lost() {
                            board.resend(number);
                        }
                    }
                    4 => board.acknowledge((board.una + offset / 8).min(end)),
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
