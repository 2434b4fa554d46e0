//! The numbers that choices are drawn by, as `draw_for` of `bpf/lib/gateway/open.h` draws them for the programs.

use anabranch_core::ClassId;
use anabranch_policy::Choice;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Random numbers, and whose turn it is.
#[derive(Debug)]
pub(crate) struct Draws {
    /// By class.
    turns: Vec<u32>,
    random: ChaCha8Rng,
}

impl Draws {
    /// Of one of the streams of `seed`.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(stream);
        Draws {
            turns: Vec::new(),
            random,
        }
    }

    /// The random number that is drawn next.
    pub(crate) fn peek(&self) -> u32 {
        self.random.clone().random()
    }

    /// Where the random numbers have come to.
    pub(crate) fn mark(&self) -> ChaCha8Rng {
        self.random.clone()
    }

    /// The random numbers that came after `mark` come again: a packet for which two choices are made has one. Turns go on.
    pub(crate) fn repeat(&mut self, mark: ChaCha8Rng) {
        self.random = mark;
    }

    /// [`Request::draw`](anabranch_policy::Request::draw) of the next choice of a class, for what races or not.
    pub(crate) fn next(&mut self, class: ClassId, choice: &Choice, races: bool) -> u32 {
        if !choice.takes_turns() && !races {
            return self.random.random();
        }
        if self.turns.len() <= class.index() {
            self.turns.resize(class.index() + 1, 0);
        }
        let turn = &mut self.turns[class.index()];
        *turn = turn.wrapping_add(1);
        turn.wrapping_sub(1)
    }
}
