//! How well a link has carried packets over the last minute.
//!
//! There are two sources, and neither is complete. *Probes* are few and small, and measure both directions together: how many
//! are lost, and how much the round trips to one target vary. Losses of a mute target, one that does not answer over any link, are
//! not counted. *Flows* show how many were opened, and how often a SYN was retransmitted: the link lost it or its answer, or the
//! server did not answer.

use std::collections::VecDeque;
use std::time::Duration;

use crate::targets::ProbeId;
use crate::time::Time;

/// How far back the figures go.
pub const SPAN: Duration = Duration::from_secs(60);
/// Flows are counted in intervals of this length.
const PART: Duration = Duration::from_secs(5);
/// Bound on the memory for probes: more than a link is sent in a minute at the default interval.
const PROBES_MAX: usize = 1024;
/// A link is lossy if it lost at least this many probes, ...
const LOSSY_PROBES: usize = 3;
/// ... and at least one of this many.
const LOSSY_ONE_OF: usize = 20;

/// Figures of the last minute's probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeQuality {
    /// Probes that were answered or lost.
    pub judged: usize,
    /// Those that were lost.
    pub lost: usize,
    /// Mean round trip.
    pub round_trip: Option<Duration>,
    /// Mean difference between one round trip and the next to the same target.
    pub jitter: Option<Duration>,
    /// Time of the last answer, however old.
    pub last_answer: Option<Time>,
}

impl ProbeQuality {
    /// At least 3 probes were lost, and one of 20: 5 %.
    pub fn is_lossy(&self) -> bool {
        self.lost >= LOSSY_PROBES && self.lost * LOSSY_ONE_OF >= self.judged
    }
}

/// Figures of the last minute's flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowQuality {
    /// Flows of any protocol that were opened.
    pub opened: u64,
    /// SYNs that were retransmitted.
    pub syn_retries: u64,
}

#[derive(Clone, Copy, Debug)]
struct Judged {
    id: ProbeId,
    at: Time,
    target: usize,
    /// None if it was lost.
    answer: Option<Answer>,
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    round_trip: Duration,
    /// Difference to the previous round trip to the same target.
    difference: Option<Duration>,
}

/// The probes of the last minute.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probes {
    judged: VecDeque<Judged>,
    last_answer: Option<Time>,
}

impl Probes {
    /// `before` is the previous round trip to the same target. An answer that comes late replaces the loss that was recorded.
    pub fn answered(
        &mut self,
        now: Time,
        (id, target): (ProbeId, usize),
        round_trip: Duration,
        before: Option<Duration>,
    ) {
        self.last_answer = Some(now);
        let difference = before.map(|before| before.abs_diff(round_trip));
        let answer = Some(Answer {
            round_trip,
            difference,
        });
        match self.judged.iter_mut().find(|judged| judged.id == id) {
            Some(judged) => judged.answer = answer,
            None => self.push(now, id, target, answer),
        }
    }

    pub fn lost(&mut self, now: Time, (id, target): (ProbeId, usize)) {
        self.push(now, id, target, None);
    }

    fn push(&mut self, now: Time, id: ProbeId, target: usize, answer: Option<Answer>) {
        self.judged.retain(|judged| now.since(judged.at) < SPAN);
        if self.judged.len() == PROBES_MAX {
            self.judged.pop_front();
        }
        self.judged.push_back(Judged {
            id,
            at: now,
            target,
            answer,
        });
    }

    /// Keeps the time of the last answer.
    pub fn forget_judged(&mut self) {
        self.judged.clear();
    }

    pub fn forget(&mut self) {
        *self = Probes::default();
    }

    /// Losses of mute targets are left out.
    pub fn quality(&self, now: Time, is_mute: impl Fn(usize) -> bool) -> ProbeQuality {
        let counted: Vec<&Judged> = self
            .judged
            .iter()
            .filter(|judged| now.since(judged.at) < SPAN)
            .filter(|judged| judged.answer.is_some() || !is_mute(judged.target))
            .collect();
        let answers = || counted.iter().filter_map(|judged| judged.answer);
        ProbeQuality {
            judged: counted.len(),
            lost: counted.len() - answers().count(),
            round_trip: mean(answers().map(|answer| answer.round_trip)),
            jitter: mean(answers().filter_map(|answer| answer.difference)),
            last_answer: self.last_answer,
        }
    }
}

fn mean(times: impl Iterator<Item = Duration>) -> Option<Duration> {
    let (count, sum) = times.fold((0, Duration::ZERO), |(count, sum), time| {
        (count + 1, sum + time)
    });
    (count > 0).then(|| sum / count)
}

/// The flows of the last minute.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flows(VecDeque<(Time, FlowQuality)>);

impl Flows {
    pub fn add(&mut self, now: Time, opened: u64, syn_retries: u64) {
        self.0.retain(|(begun, _)| now.since(*begun) < SPAN);
        if opened == 0 && syn_retries == 0 {
            return;
        }
        match self.0.back_mut() {
            Some((begun, part)) if now.since(*begun) < PART => {
                part.opened += opened;
                part.syn_retries += syn_retries;
            }
            _ => self.0.push_back((
                now,
                FlowQuality {
                    opened,
                    syn_retries,
                },
            )),
        }
    }

    pub fn quality(&self, now: Time) -> FlowQuality {
        let recent = self.0.iter().filter(|(begun, _)| now.since(*begun) < SPAN);
        recent.fold(FlowQuality::default(), |sum, (_, part)| FlowQuality {
            opened: sum.opened + part.opened,
            syn_retries: sum.syn_retries + part.syn_retries,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;
    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn loss_and_jitter_are_of_the_last_minute_and_an_answer_takes_its_loss_back() {
        let mut probes = Probes::default();
        for second in 0..90 {
            let now = Time::ZERO + S(second);
            let probe = (ProbeId(second), 0);
            match second {
                10 | 60 | 70 => probes.lost(now, probe),
                _ => probes.answered(now, probe, MS(20 + 10 * (second % 2)), Some(MS(25))),
            }
        }
        let now = Time::ZERO + S(89);
        let quality = probes.quality(now, |_| false);
        assert_eq!((quality.judged, quality.lost), (60, 2), "one is too old");
        assert_eq!(quality.jitter, Some(MS(5)));
        assert!(!quality.is_lossy());
        probes.answered(now, (ProbeId(70), 0), MS(900), None);
        assert_eq!(probes.quality(now, |_| false).lost, 1);
        let later = now + S(600);
        let stale = probes.quality(later, |_| false);
        assert_eq!((stale.judged, stale.round_trip), (0, None));
        assert_eq!(stale.last_answer, Some(now), "how old that is can be told");
    }

    #[test]
    fn what_a_mute_target_lost_is_no_loss_of_the_link() {
        let mut probes = Probes::default();
        for id in 0..40 {
            let target = id as usize % 2;
            match target {
                0 => probes.answered(Time::ZERO, (ProbeId(id), 0), MS(20), None),
                _ => probes.lost(Time::ZERO, (ProbeId(id), 1)),
            }
        }
        let of_all = probes.quality(Time::ZERO, |_| false);
        assert!(of_all.lost == 20 && of_all.is_lossy());
        let quality = probes.quality(Time::ZERO, |target| target == 1);
        assert_eq!((quality.judged, quality.lost), (20, 0));
    }

    #[test]
    fn repeated_syns_are_counted_beside_the_flows_that_were_opened() {
        let mut flows = Flows::default();
        for second in 0..100 {
            flows.add(Time::ZERO + S(second), 2, u64::from(second == 80));
        }
        let quality = flows.quality(Time::ZERO + S(99));
        assert!((110..=120).contains(&quality.opened), "{quality:?}");
        assert_eq!(quality.syn_retries, 1);
        let later = flows.quality(Time::ZERO + S(300));
        assert_eq!(later, FlowQuality::default());
    }
}
