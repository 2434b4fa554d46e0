//! Changes the state of a link when probes are lost, and when a check or page fails or recovers.

use super::complaint::Complaint;
use super::outstanding::Outstanding;
use super::{Answers, Availability, DownCause, State, Suspicion, TRIAL};
use crate::bandwidth::LinkLoad;
use crate::time::Time;

impl Availability {
    pub(super) fn judge_late_probes(&mut self, now: Time, load: &LinkLoad) {
        if self.may_be_queued(now, load) {
            self.outstanding.grant_late(now, self.config.queue_max);
        }
        while let Some(probe) = self.outstanding.note_late(now) {
            if !matches!(self.state, State::Down(_)) {
                self.quality.lost(now, (probe.id, probe.target));
            }
            match (probe.judged, probe.beside) {
                (false, false) => self.lose(now, probe),
                _ => self.targets.lost(probe.target, probe.sent),
            }
        }
    }

    /// Whether a late probe may be queued at the ISP, behind packets that users receive.
    fn may_be_queued(&self, now: Time, load: &LinkLoad) -> bool {
        let lately = |at: Time| now.since(at) < self.config.silence;
        match self.answers {
            Answers::Uncounted => self.sent.is_some_and(lately),
            Answers::Here | Answers::Anywhere => load.may_queue_unseen() && lately(self.heard),
        }
    }

    fn lose(&mut self, now: Time, probe: Outstanding) {
        self.row
            .expect(self.quality(now), self.config.down_consecutive);
        self.targets.lost(probe.target, probe.sent);
        let near_counts = self.near_counts(now);
        let counts = self.targets.counts(probe.target, near_counts)
            && !self.targets.is_mute(probe.target, near_counts)
            && self.proved.is_none_or(|proved| proved < probe.sent);
        if counts {
            self.window.lost(now, probe.id, probe.target, &self.config);
            self.row.lose(probe.sent);
            self.answered_in_a_row = 0;
        }
        match self.state {
            State::PossiblyDown(_)
            | State::Captive
            | State::Down(DownCause::HeldDown | DownCause::Portal | DownCause::Check)
                if counts =>
            {
                self.probe_soon(now);
                self.judge_loss(now);
            }
            State::PossiblyDown(_)
            | State::Down(DownCause::HeldDown | DownCause::Portal | DownCause::Check) => {
                self.probe_soon(now);
            }
            State::Up | State::Captive | State::Down(_) => {}
        }
    }

    /// Takes the link down if enough probes are lost, once the verdict may be given or if there is no other link.
    pub(super) fn judge_loss(&mut self, now: Time) {
        let suspicion = match self.state {
            State::PossiblyDown(suspicion) => suspicion,
            _ => Suspicion::Idle,
        };
        if !self.is_too_much_lost() {
            self.row.rest();
            return;
        }
        if self.row.is_ripe(now) || self.is_alone() {
            self.enter(now, State::Down(DownCause::Unanswered(suspicion)));
        }
    }

    fn is_too_much_lost(&self) -> bool {
        self.row.is_enough() || self.is_window_lost()
    }

    /// Whether the window has too many losses. A link that loses probes anyway is judged by rows only.
    pub(super) fn is_window_lost(&self) -> bool {
        let is_clean = self.row.is_of_clean_link(self.config.down_consecutive);
        is_clean && self.loss().0 >= self.config.down_loss
    }

    pub(super) fn probe_soon(&mut self, now: Time) {
        let soon = now + self.config.probe_interval;
        self.next_probe = self.next_probe.map(|due| due.min(soon));
    }

    /// The reason why the link must not be used although it answers.
    fn bar(&self) -> Option<DownCause> {
        match self.targets.portal() {
            _ if self.check_fails => Some(DownCause::Check),
            Some(_) => Some(DownCause::Portal),
            None => None,
        }
    }

    pub(super) fn follow_bar(&mut self, now: Time) {
        match (self.state, self.bar()) {
            (
                State::Up
                | State::PossiblyDown(_)
                | State::Captive
                | State::Down(DownCause::HeldDown | DownCause::Portal | DownCause::Check),
                Some(bar),
            ) => self.enter(now, State::Down(bar)),
            (State::Down(DownCause::Portal | DownCause::Check), None) => {
                let next = self.admitted(now);
                self.enter(now, next);
            }
            _ => {}
        }
    }

    /// The state of a link that has just proved that it works.
    pub(super) fn admitted(&self, now: Time) -> State {
        if let Some(bar) = self.bar() {
            State::Down(bar)
        } else if now < self.held_until {
            State::Down(DownCause::HeldDown)
        } else {
            State::Up
        }
    }

    pub(super) fn enter(&mut self, now: Time, state: State) {
        if state == self.state {
            return;
        }
        if !state.is_probed() {
            self.next_probe = None;
        } else if !self.state.is_probed() {
            self.next_probe = Some(now);
        }
        self.row.rest();
        if state == State::Up {
            self.row.end();
            self.outstanding.judge_all();
        }
        let was_trusted = !matches!(
            self.state,
            State::Down(_) | State::PossiblyDown(Suspicion::Unproven)
        );
        if was_trusted && matches!(state, State::Down(_) | State::Captive) {
            self.fall(now, state);
        }
        // The quality figures describe the link while it is up, so they start again.
        if matches!(state, State::Down(_)) {
            self.quality.forget_judged();
        }
        self.answered_in_a_row = 0;
        self.state = state;
    }

    fn fall(&mut self, now: Time, state: State) {
        let mut hold = self.falls.add(now, &self.config);
        if state == State::Captive {
            hold = hold.max(TRIAL);
            self.captive_since = now;
        }
        self.held_until = now + hold;
        self.complaint = Complaint::default();
    }
}
