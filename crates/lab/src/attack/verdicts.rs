//! What the gateway says of its links meanwhile, and for how long it is wrong.

use std::time::{Duration, Instant};

use anabranch_api::LinkState;
use serde::Serialize;

/// What the gateway said of its links, from before the live flows to after the attack.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Verdicts {
    /// Links that carried everything, and were shown as down, captive or absent at some time.
    pub falsely_lost: usize,
    /// Seconds that these were shown so, together.
    pub falsely_lost_s: f64,
    /// Longest that the broken link was shown as one that carries, in seconds; none where none is broken.
    pub broken_up_s: Option<f64>,
}

impl Verdicts {
    /// A link that is broken has to be found so within this many seconds.
    pub const FOUND_WITHIN_S: f64 = 10.0;

    /// Whether each was just.
    pub fn just(&self) -> bool {
        let longest_s = self.broken_up_s.unwrap_or_default();
        self.falsely_lost == 0 && longest_s <= Self::FOUND_WITHIN_S
    }
}

/// Takes down what is said of each link. What was said holds until something else is.
pub(super) struct Watch {
    at: Instant,
    broken: Option<usize>,
    links: Vec<Seen>,
}

/// How wrong it is to say of a broken link that it carries, or of another that it does not.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    is_wrong: bool,
    /// Until now, without a break.
    lately: Duration,
    longest: Duration,
    total: Duration,
}

impl Watch {
    /// At the beginning all links are said to carry, and the broken one breaks.
    pub fn new(links: usize, broken: Option<usize>, at: Instant) -> Self {
        let seen = |index| Seen {
            is_wrong: Some(index) == broken,
            ..Seen::default()
        };
        Self {
            at,
            broken,
            links: (0..links).map(seen).collect(),
        }
    }

    /// What is said now.
    pub fn note(&mut self, at: Instant, states: impl Iterator<Item = LinkState>) {
        let passed = at.saturating_duration_since(self.at);
        self.at = at;
        for (index, (seen, state)) in self.links.iter_mut().zip(states).enumerate() {
            let carries = matches!(state, LinkState::Up | LinkState::PossiblyDown);
            seen.pass(passed);
            seen.is_wrong = carries == (self.broken == Some(index));
        }
    }

    pub fn verdicts(&self) -> Verdicts {
        let is_broken = |index: usize| self.broken == Some(index);
        let whole = self.links.iter().enumerate();
        let whole = whole.filter(|(index, seen)| !is_broken(*index) && seen.was_wrong());
        let lost: Vec<_> = whole.map(|(_, seen)| seen.total).collect();
        let broken = self.broken.map(|index| self.links[index].longest);
        Verdicts {
            falsely_lost: lost.len(),
            falsely_lost_s: lost.iter().sum::<Duration>().as_secs_f64(),
            broken_up_s: broken.map(|longest| longest.as_secs_f64()),
        }
    }
}

impl Seen {
    fn pass(&mut self, time: Duration) {
        if !self.is_wrong {
            self.lately = Duration::ZERO;
            return;
        }
        self.lately += time;
        self.total += time;
        self.longest = self.longest.max(self.lately);
    }

    /// However shortly.
    fn was_wrong(&self) -> bool {
        self.is_wrong || !self.total.is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use LinkState::{Captive, Down, PossiblyDown, Up};

    /// What comes of states that are said a second apart.
    fn said<const N: usize>(broken: Option<usize>, states: &[[LinkState; N]]) -> Verdicts {
        let begun = Instant::now();
        let mut watch = Watch::new(N, broken, begun);
        for (second, states) in (1..).zip(states) {
            watch.note(begun + Duration::from_secs(second), states.iter().copied());
        }
        watch.verdicts()
    }

    #[test]
    fn a_link_that_carries_is_not_to_be_said_lost() {
        let just = said(None, &[[Up, Up], [PossiblyDown, Up], [Up, Up]]);
        assert!(just.just() && just.broken_up_s.is_none());
        let unjust = said(None, &[[Up, Up], [Down, Captive], [Up, Down], [Up, Up]]);
        assert_eq!((unjust.falsely_lost, unjust.falsely_lost_s), (2, 3.0));
        assert!(!unjust.just());
        assert!(!said(None, &[[Up], [Down]]).just(), "at the very end");
    }

    #[test]
    fn a_broken_link_is_to_be_found_within_ten_seconds_and_not_believed_again() {
        let found = said(Some(1), &[[Up, Up], [Up, Captive], [Up, Down], [Up, Up]]);
        assert_eq!(found.broken_up_s, Some(2.0));
        assert!(found.just());
        let never = said(Some(0), &[[PossiblyDown]; 11]);
        assert!(!never.just() && never.falsely_lost == 0);
        let again = [[[Down]; 3].as_slice(), &[[Up]; 12]].concat();
        assert!(!said(Some(0), &again).just());
    }
}
