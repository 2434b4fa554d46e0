//! The tries of a connection attempt: `bpf/policy/tries.h` behind a safe API.
//!
//! A repeated SYN means that a path failed, or that its round trip is longer than the SYN's timer. The attempt goes on
//! over another link ([`Attempt::go_on`]), from the same external port, and its earlier tries stay candidates. The first
//! answer wins, whichever try it belongs to; answers to the others come [late](Answer::Late) and are reset.
//!
//! An attempt has at most [`TRIES_MAX`] tries, each over a link of its own. At most one of them was ever answered.
//!
//! A race ([`Attempt::race`]) has many tries from the start, and gives none of them up. One of probes ([`Attempt::probe`]) is over
//! when the first is answered ([`Attempt::answer_probe`]): the SYN, which waits for that, takes its link alone.

use crate::abi::{Answer, MAX_LINKS};
use crate::ffi;

/// The present try and three earlier ones, where it is no race.
pub const TRIES_MAX: usize = 4;

/// The tries of one connection attempt, by their links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    link: u16,
    others: u32,
}

impl Attempt {
    /// One that has tried `link` alone.
    pub const fn new(link: u16) -> Self {
        Attempt { link, others: 0 }
    }

    /// One whose SYN takes `link`, and at once those of `race_copies`, as bits, that are below [`MAX_LINKS`].
    pub fn race(link: u16, race_copies: u32) -> Self {
        let others = ffi::ab_tries_race(race_copies & !(1 << link));
        Attempt { link, others }
    }

    /// One whose SYN waits while a probe takes each of these links.
    pub fn probe(link: u16, race_copies: u32) -> Self {
        let others = ffi::ab_tries_probe(race_copies & !(1 << link));
        Attempt { link, others }
    }

    /// Whether its SYN waits.
    pub fn waits(&self) -> bool {
        ffi::ab_waits(self.others)
    }

    /// The remote end has answered the probe that took this link. Whether it is the first, whose link the SYN takes.
    pub fn answer_probe(&mut self, link: u16) -> bool {
        let (current, from) = (ffi::ab_try(self.link), ffi::ab_try(link));
        let judged = ffi::ab_tries_judge(self.others, current, from);
        let is_first = self.waits() && judged == u32::from(Answer::First);
        if is_first {
            *self = Attempt::new(link);
        }
        is_first
    }

    /// Whether its SYN takes all its links at once, or a probe does.
    pub fn is_race(&self) -> bool {
        ffi::ab_is_race(self.others)
    }

    /// As the programs keep what is other than its own link.
    pub(crate) fn word(&self) -> u32 {
        self.others
    }

    /// The link that the flow's packets take: the last one tried, or the winner.
    pub fn link(&self) -> u16 {
        self.link
    }

    /// The links of the other tries, the youngest first; of a race, in the order in which its SYN takes them, behind its own. Once
    /// answered, of the losing copies.
    pub fn others(&self) -> impl Iterator<Item = u16> + use<> {
        let Attempt { link, others } = *self;
        let all = MAX_LINKS as u32;
        let places = match self.is_race() {
            true => (1..all)
                .map(|step| ffi::ab_next_race_copy(link, step).into())
                .collect(),
            false => (0..all).collect::<Vec<u32>>(),
        };
        let others = places.into_iter().map(move |i| ffi::ab_tries_at(others, i));
        others.filter_map(read)
    }

    /// Whether nothing has answered yet.
    pub fn is_open(&self) -> bool {
        ffi::ab_tries_are_free(self.others)
    }

    /// Goes on over another link, new or tried before; not once it was answered. The link whose try is given up for it.
    pub fn go_on(&mut self, link: u16) -> Option<u16> {
        if !self.is_open() || link == self.link {
            return None;
        }
        let (current, next) = (ffi::ab_try(self.link), ffi::ab_try(link));
        let given_up = read(ffi::ab_tries_given_up(self.others, next));
        self.others = ffi::ab_tries_next(self.others, current, next);
        self.link = link;
        given_up
    }

    /// The remote end has answered the SYN that took this link.
    pub fn answer(&mut self, link: u16) -> Answer {
        let (current, from) = (ffi::ab_try(self.link), ffi::ab_try(link));
        let raw = ffi::ab_tries_judge(self.others, current, from);
        let answer = Answer::try_from(raw).expect("tries.h and abi.rs know the same answers");
        if answer == Answer::First {
            self.others = ffi::ab_tries_answered(self.others, current, from);
            self.link = link;
        }
        answer
    }
}

fn read(one: u32) -> Option<u16> {
    (one != 0).then(|| ffi::ab_try_link(one))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one() -> impl Strategy<Value = u16> {
        0..7u16
    }

    #[derive(Clone, Copy, Debug)]
    enum Event {
        GoOn(u16),
        Answer(u16),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![one().prop_map(Event::GoOn), one().prop_map(Event::Answer)]
    }

    /// The attempt in words: its tries, the present one first, and who has won.
    struct Model {
        tries: Vec<u16>,
        winner: Option<u16>,
    }

    impl Model {
        fn go_on(&mut self, next: u16) -> Option<u16> {
            if self.winner.is_some() || self.tries[0] == next {
                return None;
            }
            if let Some(place) = self.tries.iter().position(|held| *held == next) {
                self.tries.swap(0, place);
                return None;
            }
            self.tries.insert(0, next);
            (self.tries.len() > TRIES_MAX).then(|| self.tries.pop().expect("more than four"))
        }

        fn answer(&mut self, from: u16) -> Answer {
            let Some(place) = self.tries.iter().position(|held| *held == from) else {
                return Answer::Foreign;
            };
            match self.winner {
                None => {
                    self.tries.swap(0, place);
                    self.winner = Some(from);
                    Answer::First
                }
                Some(winner) if winner == from => Answer::Again,
                Some(_) => Answer::Late,
            }
        }
    }

    proptest! {
        #[test]
        fn the_first_answer_to_any_try_wins_and_all_others_come_late(
            first in one(),
            events in prop::collection::vec(event(), 0..24),
        ) {
            let mut attempt = Attempt::new(first);
            let mut model = Model { tries: vec![first], winner: None };
            for event in events {
                match event {
                    Event::GoOn(next) => prop_assert_eq!(attempt.go_on(next), model.go_on(next)),
                    Event::Answer(from) => prop_assert_eq!(attempt.answer(from), model.answer(from)),
                }
                let tries: Vec<_> = std::iter::once(attempt.link()).chain(attempt.others()).collect();
                prop_assert_eq!(&tries, &model.tries);
                prop_assert_eq!(attempt.is_open(), model.winner.is_none());
            }
        }

        #[test]
        fn a_try_is_read_as_it_was_written(link in 0..16u16) {
            prop_assert_eq!(read(ffi::ab_try(link)), Some(link));
        }

        #[test]
        fn of_processors_that_go_on_and_answer_at_once_one_wins_and_no_try_is_lost(
            hands in prop::collection::vec(event(), 2..6),
            schedule in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        ) {
                        let mut shared = Shared { word: 0, current: ffi::ab_try(9) };
            let mut hands: Vec<_> = hands.into_iter().map(Hand::new).collect();
            for turn in &schedule {
                let turn = turn.index(hands.len());
                hands[turn].step(&mut shared);
            }
            for hand in &mut hands {
                while !hand.is_done() {
                    hand.step(&mut shared);
                }
            }
            let winners = hands.iter().filter(|hand| hand.has_won()).count();
            let answered = shared.word & (1 << 31) != 0;
            prop_assert_eq!(winners, usize::from(answered));
            prop_assert_eq!(shared.word & (1 << 30), 0, "nobody holds it");
            if let Some(winner) = hands.iter().find(|hand| hand.has_won()) {
                prop_assert_eq!(winner.one, shared.current, "the flow is the winner's");
            }
            let held = (0..3).filter(|i| ffi::ab_tries_at(shared.word, *i) != 0).count();
            prop_assert!(
                held < 3 || (0..3).all(|i| ffi::ab_tries_at(shared.word, i) != shared.current),
                "the flow's own try is no earlier one"
            );
        }
    }

    /// A flow as processors share it: its own try, and the word of the earlier ones.
    struct Shared {
        word: u32,
        current: u32,
    }

    /// A processor at work on it, as the programs are: read and judge, claim by compare-and-swap, change, store.
    #[derive(Debug)]
    struct Hand {
        one: u32,
        answers: bool,
        seen: u32,
        at: At,
    }

    #[derive(Debug, PartialEq)]
    enum At {
        Start,
        Judged,
        Claimed,
        Changed,
        Won,
        Done,
    }

    impl Hand {
        fn new(event: Event) -> Self {
            let (one, answers) = match event {
                Event::GoOn(one) => (one, false),
                Event::Answer(one) => (one, true),
            };
            Hand {
                one: ffi::ab_try(one),
                answers,
                seen: 0,
                at: At::Start,
            }
        }

        fn is_done(&self) -> bool {
            matches!(self.at, At::Done | At::Won)
        }

        fn has_won(&self) -> bool {
            self.at == At::Won
        }

        fn may_begin(&self, shared: &Shared) -> bool {
            if self.answers {
                let judged = ffi::ab_tries_judge(shared.word, shared.current, self.one);
                return judged == u32::from(Answer::First);
            }
            ffi::ab_tries_are_free(shared.word) && shared.current != self.one
        }

        fn step(&mut self, shared: &mut Shared) {
            self.at = match self.at {
                At::Start if self.may_begin(shared) => {
                    self.seen = shared.word;
                    At::Judged
                }
                At::Judged if shared.word == self.seen => {
                    shared.word = ffi::ab_tries_claim(self.seen);
                    At::Claimed
                }
                At::Claimed => {
                    let current = std::mem::replace(&mut shared.current, self.one);
                    self.seen = if self.answers {
                        ffi::ab_tries_answered(self.seen, current, self.one)
                    } else {
                        ffi::ab_tries_next(self.seen, current, self.one)
                    };
                    At::Changed
                }
                At::Changed => {
                    shared.word = self.seen;
                    if self.answers { At::Won } else { At::Done }
                }
                At::Won => At::Won,
                _ => At::Done,
            };
        }
    }
}
