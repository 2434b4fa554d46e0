//! Whether somebody at the other end of a line answers: what is asked every period, and how long silence is borne.

use std::time::Duration;

use anabranch_core::Time;

/// One line's.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    period: Duration,
    patience: Duration,
    /// Of the next question.
    due: Time,
    heard: Time,
    alive: bool,
}

impl Watch {
    /// Alive, and last heard of when the clock began.
    pub fn new(period: Duration, patience: Duration) -> Self {
        Watch {
            period,
            patience,
            due: Time::ZERO,
            heard: Time::ZERO,
            alive: true,
        }
    }

    pub fn is_alive(&self) -> bool {
        self.alive
    }

    /// Whether a question is to be sent. It is not due again before the next period.
    pub fn asks(&mut self, now: Time) -> bool {
        let is_due = self.due <= now;
        if is_due {
            self.due = now + self.period;
        }
        is_due
    }

    /// An answer came. Whether that changes anything.
    pub fn hear(&mut self, now: Time) -> bool {
        self.heard = now;
        !std::mem::replace(&mut self.alive, true)
    }

    /// Whether it has died of silence just now.
    pub fn dies(&mut self, now: Time) -> bool {
        let dies = self.alive && self.heard + self.patience <= now;
        self.alive &= !dies;
        dies
    }

    /// When something is due.
    pub fn next(&self) -> Time {
        match self.alive {
            true => self.due.min(self.heard + self.patience),
            false => self.due,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_borne_for_its_time_and_one_answer_ends_it() {
        let mut watch = Watch::new(Duration::from_millis(300), Duration::from_millis(900));
        assert!(watch.asks(Time::ZERO) && !watch.asks(Time::from_millis(299)));
        assert!(!watch.hear(Time::from_millis(20)));
        assert!(!watch.dies(Time::from_millis(919)));
        assert!(watch.dies(Time::from_millis(920)) && !watch.dies(Time::from_millis(921)));
        assert!(!watch.is_alive() && watch.asks(watch.next()));
        assert!(watch.hear(Time::from_millis(1_000)) && watch.is_alive());
    }
}
