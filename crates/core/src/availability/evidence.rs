//! Handles counters and answers, and decides what they prove about a link.

use std::time::Duration;

use anabranch_policy::abi::Traffic;

use super::round_trip::RoundTrip;
use super::{Answers, Availability, DownCause, State, Suspicion};
use crate::bandwidth::LinkLoad;
use crate::targets::ProbeId;
use crate::time::Time;

/// When the first packet was sent after the last evidence of one kind: from then on evidence is due.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watch(Option<Time>);

impl Watch {
    pub fn see(&mut self, now: Time, sent: bool, heard: bool) {
        if heard {
            self.0 = None;
        }
        if sent {
            self.0.get_or_insert(now);
        }
    }

    pub fn due(self, patience: Duration) -> Option<Time> {
        self.0.map(|since| since + patience)
    }
}

impl Availability {
    /// Reports the packets that were carried since the last call.
    pub fn observe(&mut self, now: Time, carried: &Traffic, load: &LinkLoad) {
        if !self.is_present() || self.is_changing {
            return;
        }
        let sent = carried.tx_packets > 0;
        let heard = carried.rx_packets > 0;
        let proved = carried.rx_progress > 0;
        self.weak.see(now, sent, heard);
        self.strict.see(now, sent, proved);
        if sent {
            self.sent = Some(now);
        }
        if self.answers == Answers::Here {
            self.complaint.see(now, carried);
        }
        if heard {
            self.heard = now;
        }
        if proved || (heard && self.is_settled_by_any_packet()) {
            self.proved = Some(now);
        }
        if proved {
            (self.progressed, self.far_heard) = (Some(now), Some(now));
        }
        match self.state {
            State::Captive if proved => self.enter(now, State::Up),
            State::PossiblyDown(Suspicion::Silent | Suspicion::Idle) if heard => {
                self.enter(now, State::Up)
            }
            State::PossiblyDown(_) if proved => self.enter(now, State::Up),
            State::Down(_) if self.proved == Some(now) && self.may_count_passive(now) => {
                self.win(now, None)
            }
            State::Up
                if carried.syn_retries > 0
                    && self
                        .strict
                        .due(self.config.silence)
                        .is_some_and(|due| due <= now) =>
            {
                self.enter(now, State::PossiblyDown(Suspicion::OneWay));
            }
            _ => {}
        }
        self.tick(now, load);
    }

    /// Whether the link is suspected, or down, only because nothing came in. Then any packet is evidence enough.
    fn is_settled_by_any_packet(&self) -> bool {
        let (State::PossiblyDown(suspicion) | State::Down(DownCause::Unanswered(suspicion))) =
            self.state
        else {
            return false;
        };
        matches!(suspicion, Suspicion::Silent | Suspicion::Idle)
    }

    /// Reports that probe `id` was answered `round_trip` after it was sent, in time or not.
    pub fn answer(&mut self, now: Time, id: ProbeId, round_trip: Duration) {
        let Some(probe) = self.outstanding.take(id) else {
            return;
        };
        let counts = self.targets.counts(probe.target, self.near_counts(now));
        let before = self.targets.records().get(probe.target);
        let before = before.and_then(|record| record.round_trip);
        self.quality
            .answered(now, (id, probe.target), round_trip, before);
        self.targets.answered(probe.target, now, round_trip);
        if self.targets.counts(probe.target, false) {
            self.far_heard = Some(now);
        }
        self.follow_bar(now);
        if self.state == State::Captive && self.targets.kinds_heard(self.captive_since) > 1 {
            self.enter(now, State::Up);
        }
        let smoothed = self.round_trip_of(probe.target);
        // Such a probe was sent on a busy link, so its round trip is longer than the link's own.
        if probe.beside && smoothed.is_some() {
            return;
        }
        *smoothed = Some(RoundTrip::update(*smoothed, round_trip, probe.allowance));
        if !counts || probe.beside {
            return;
        }
        self.heard = now;
        self.weak = Watch::default();
        self.strict = Watch::default();
        self.win(now, Some(id));
    }

    /// Reports that probe `id` was never sent, for a reason of this host. It proves nothing about the link.
    pub fn withdraw(&mut self, id: ProbeId) {
        if let Some(probe) = self.outstanding.take(id) {
            self.not_sent += 1;
            self.targets.withdrawn(probe.target);
        }
    }

    /// Reports that another host answered probe `id` in place of its target.
    pub fn answer_wrong(&mut self, now: Time, id: ProbeId) {
        if let Some(probe) = self.outstanding.take(id) {
            self.targets.answered_wrong(probe.target, now);
            self.follow_bar(now);
        }
    }

    fn round_trip_of(&mut self, target: usize) -> &mut Option<RoundTrip> {
        let is_far = self.targets.counts(target, false);
        &mut self.round_trips[usize::from(is_far)]
    }

    /// Each reason to suspect this link, and when it applies.
    pub(super) fn suspicions(&self) -> [(Suspicion, Option<Time>); 3] {
        let up = self.state == State::Up && !self.is_changing;
        let idle = self.heard + self.slowed(self.config.idle_probe);
        [
            (
                Suspicion::Silent,
                self.weak.due(self.config.silence).filter(|_| up),
            ),
            (
                Suspicion::OneWay,
                self.strict.due(self.config.one_way).filter(|_| up),
            ),
            (Suspicion::Idle, Some(idle).filter(|_| up)),
        ]
    }

    /// Acknowledgements of new data count like probe answers, but at most one per probe interval.
    fn may_count_passive(&self, now: Time) -> bool {
        let last = self.window.last_passive();
        last.is_none_or(|at| now.since(at) >= self.config.probe_interval)
    }

    fn win(&mut self, now: Time, id: Option<ProbeId>) {
        if !matches!(self.state, State::Down(_)) {
            self.row.learn();
        }
        self.row.end();
        self.answered_in_a_row += 1;
        self.window.answered(now, id, &self.config);
        let near_counts = self.near_counts(now);
        let targets = &self.targets;
        let is_mute = |target| targets.is_mute(target, near_counts);
        self.window.forget_of(is_mute);
        self.judge_answer(now);
    }

    fn judge_answer(&mut self, now: Time) {
        let (lost, _) = self.loss();
        match self.state {
            State::PossiblyDown(_) if !self.is_window_lost() => self.enter(now, State::Up),
            State::PossiblyDown(suspicion) => {
                self.enter(now, State::Down(DownCause::Unanswered(suspicion)))
            }
            State::Down(DownCause::Unanswered(_) | DownCause::Returning)
                if lost <= self.config.up_loss
                    && self.answered_in_a_row > self.config.up_consecutive =>
            {
                let next = self.admitted(now);
                self.enter(now, next);
            }
            State::Captive
            | State::Down(DownCause::HeldDown | DownCause::Portal | DownCause::Check) => {}
            State::Down(_) if self.answered_in_a_row == 1 => self.probe_soon(now),
            _ => {}
        }
    }
}
