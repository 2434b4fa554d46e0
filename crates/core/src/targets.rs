//! Whom to ask whether a link works, and whose answers and silence count.
//!
//! A *far* target stands on the internet: its answer proves the link. A *near* one, the link's own gateway, proves the
//! access line and nothing behind it; it is heard where far targets say nothing at all, because somebody filters them:
//!
//! - A far answer always counts.
//! - A near answer counts only while every far target is *given up*: it was asked and has never answered over this link, or
//!   has been silent for [`Config::far_silence`](crate::Config::far_silence).
//! - A lost probe counts unless its target is *mute*: another one, whose answers count, answered its last probe, and this one
//!   has never answered, or has missed [`MUTE_AFTER`] in a row.
//!
//! Probes go in turn to the targets that have answered and are not mute; every [`TRY_EVERY`]th goes to one of the rest.

use std::time::Duration;

use crate::time::Time;

/// How much of the way an answer proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The access line: the link's gateway, or whatever else is in the link's own network.
    Near,
    /// Into the internet.
    Far,
}

/// A target that has answered is mute after so many lost probes in a row.
pub const MUTE_AFTER: u32 = 3;
/// One probe of so many asks a target that is not relied on.
pub const TRY_EVERY: u64 = 8;

/// What became of the probes to one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    /// Where it stands.
    pub reach: Reach,
    /// Since it was set.
    pub sent: u64,
    /// Of those.
    pub answered: u64,
    /// Since its last answer.
    pub lost_in_a_row: u32,
    /// None before the first.
    pub last_answer: Option<Time>,
    /// Since the first probe that was lost after the last answer.
    pub losing_since: Option<Time>,
    /// Of the last answer.
    pub round_trip: Option<Duration>,
}

impl TargetRecord {
    fn new(reach: Reach) -> Self {
        TargetRecord {
            reach,
            sent: 0,
            answered: 0,
            lost_in_a_row: 0,
            last_answer: None,
            losing_since: None,
            round_trip: None,
        }
    }

    fn is_given_up(&self, now: Time, far_silence: Duration) -> bool {
        self.losing_since
            .is_some_and(|since| self.last_answer.is_none() || now.since(since) >= far_silence)
    }
}

/// The targets of one link.
#[derive(Clone, Debug)]
pub(crate) struct Targets {
    records: Vec<TargetRecord>,
    sent: u64,
    /// Where the turn begins among those relied on, and among the rest.
    turns: [usize; 2],
}

impl Targets {
    /// There is at least one.
    pub fn new(reaches: &[Reach]) -> Self {
        Targets {
            records: reaches.iter().copied().map(TargetRecord::new).collect(),
            sent: 0,
            turns: [0; 2],
        }
    }

    pub fn records(&self) -> &[TargetRecord] {
        &self.records
    }

    pub fn are(&self, reaches: &[Reach]) -> bool {
        self.records
            .iter()
            .map(|record| record.reach)
            .eq(reaches.iter().copied())
    }

    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// All that was learnt was of another line.
    pub fn forget(&mut self) {
        for record in &mut self.records {
            *record = TargetRecord {
                sent: record.sent,
                answered: record.answered,
                ..TargetRecord::new(record.reach)
            };
        }
    }

    /// No far target has anything to say.
    pub fn are_far_given_up(&self, now: Time, far_silence: Duration) -> bool {
        let mut far = self
            .records
            .iter()
            .filter(|record| record.reach == Reach::Far);
        far.all(|record| record.is_given_up(now, far_silence))
    }

    /// `near_counts`: answers of near targets do.
    pub fn counts(&self, index: usize, near_counts: bool) -> bool {
        self.records
            .get(index)
            .is_some_and(|record| record.reach == Reach::Far || near_counts)
    }

    pub fn is_mute(&self, index: usize, near_counts: bool) -> bool {
        let Some(record) = self.records.get(index) else {
            return true;
        };
        let enough = match record.last_answer {
            None => 1,
            Some(_) => MUTE_AFTER,
        };
        let answers = |other: usize| {
            let other_record = &self.records[other];
            self.counts(other, near_counts)
                && other_record.last_answer > record.last_answer
                && other_record.losing_since.is_none()
        };
        record.lost_in_a_row >= enough && (0..self.records.len()).any(answers)
    }

    /// The one to ask next.
    pub fn next(&mut self, near_counts: bool) -> usize {
        let relied_on = self.relied_on(near_counts);
        let rest: Vec<usize> = (0..self.records.len())
            .filter(|index| !relied_on.contains(index))
            .collect();
        self.sent += 1;
        let tries = !rest.is_empty() && self.sent.is_multiple_of(TRY_EVERY);
        let among = if tries || relied_on.is_empty() {
            &rest
        } else {
            &relied_on
        };
        let turn = &mut self.turns[usize::from(tries)];
        let index = among[*turn % among.len()];
        *turn += 1;
        self.records[index].sent += 1;
        index
    }

    fn relied_on(&self, near_counts: bool) -> Vec<usize> {
        let may: Vec<usize> = (0..self.records.len())
            .filter(|&index| self.counts(index, near_counts) && !self.is_mute(index, near_counts))
            .collect();
        let has_answered = |index: &usize| self.records[*index].last_answer.is_some();
        if may.iter().any(has_answered) {
            may.into_iter().filter(has_answered).collect()
        } else {
            may
        }
    }

    pub fn answered(&mut self, index: usize, now: Time, round_trip: Duration) {
        if let Some(record) = self.records.get_mut(index) {
            record.answered += 1;
            record.lost_in_a_row = 0;
            record.losing_since = None;
            record.last_answer = Some(now);
            record.round_trip = Some(round_trip);
        }
    }

    pub fn lost(&mut self, index: usize, now: Time) {
        if let Some(record) = self.records.get_mut(index) {
            record.lost_in_a_row += 1;
            record.losing_since.get_or_insert(now);
        }
    }
}
