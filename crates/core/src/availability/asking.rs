//! Which target is probed next, when, and how long its answer may take.

use std::time::Duration;

use super::outstanding::Outstanding;
use super::{Availability, DownCause, State, Suspicion};
use crate::bandwidth::LinkLoad;
use crate::targets::{Asks, ProbeId};
use crate::time::Time;

/// Time between two requests for a page, ...
const PAGE: Duration = Duration::from_secs(30);
/// ... while a captive portal answers in its place, ...
const PAGE_PORTAL: Duration = Duration::from_secs(5);
/// ... and while one page answers as expected and another one does not.
const PAGE_AGAIN: Duration = Duration::from_secs(1);
/// These times are multiplied by this on metered links, because a page takes about a thousand bytes.
const PAGE_METERED: u32 = 4;

/// A probe that has to be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Unique among the probes of this link.
    pub id: ProbeId,
    /// From this time on it counts as lost, or later if the load explains the delay. An answer after it still counts: see
    /// [`Availability::answer`].
    pub deadline: Time,
    /// Index in the list of [`Availability::set_targets`].
    pub target_index: usize,
}

impl Availability {
    /// The probe to send at `now`, if one is due.
    pub fn next_probe(&mut self, now: Time, load: &LinkLoad) -> Option<Probe> {
        if self.next_probe.is_some_and(|due| due <= now) {
            let target = match self.state {
                State::Captive => self.targets.next_of_any_kind(),
                _ => {
                    let asks = self.asks();
                    self.targets.next(self.near_counts(now), asks)
                }
            };
            let probe = self.ask(now, load, target, false);
            self.next_probe = Some(now + self.pace(now, probe.deadline));
            return Some(probe);
        }
        if let Some(since) = self.comparison_since()
            && let Some(target) = self.targets.next_unheard(since, self.silent_after)
        {
            return Some(self.ask(now, load, target, true));
        }
        if self.page_due().is_some_and(|due| due <= now) {
            self.page_asked = Some(now);
            let target = self.targets.next_page()?;
            return Some(self.ask(now, load, target, true));
        }
        if self.measure_due().is_some_and(|due| due <= now) {
            let target = self.targets.next(self.near_counts(now), Asks::All);
            return Some(self.ask(now, load, target, true));
        }
        None
    }

    fn ask(&mut self, now: Time, load: &LinkLoad, target: usize, beside: bool) -> Probe {
        let probe = Outstanding {
            id: ProbeId(self.targets.sent() - 1),
            target,
            sent: now,
            due: now + self.patience(target),
            allowance: load.queue_up(now),
            judged: false,
            noted: false,
            beside,
        };
        self.outstanding.push(probe);
        self.targets.asked(target, now);
        self.asked = Some(now);
        Probe {
            id: probe.id,
            deadline: probe.deadline(),
            target_index: target,
        }
    }

    /// Which targets may be probed, by what depends on the answer.
    fn asks(&self) -> Asks {
        match self.state {
            State::PossiblyDown(Suspicion::Idle) if !self.is_losing() => Asks::All,
            State::PossiblyDown(Suspicion::Unproven) | State::Down(_) => Asks::Known,
            _ => Asks::Trusted,
        }
    }

    /// When to call [`Availability::next_probe`].
    pub fn probe_due(&self) -> Option<Time> {
        let unheard = self
            .comparison_since()
            .filter(|since| self.targets.has_unheard(*since, self.silent_after));
        let due = [
            self.next_probe,
            unheard,
            self.page_due(),
            self.measure_due(),
        ];
        due.into_iter().flatten().min()
    }

    fn page_due(&self) -> Option<Time> {
        let interval = match self.state {
            State::Down(DownCause::Portal) => PAGE_PORTAL,
            State::Up
            | State::PossiblyDown(_)
            | State::Captive
            | State::Down(DownCause::HeldDown | DownCause::Check) => PAGE,
            State::Down(_) => return None,
        };
        if !self.targets.has_pages_beside() {
            return None;
        }
        let interval = match (self.targets.is_portal_in_question(), self.metered) {
            (true, _) => PAGE_AGAIN,
            (false, true) => interval * PAGE_METERED,
            (false, false) => interval,
        };
        let asked = self.page_asked.map(|asked| asked + interval);
        Some(asked.unwrap_or(Time::ZERO))
    }

    /// The interval is longer than that of idle probes, so that a link without traffic is not probed twice.
    fn measure_due(&self) -> Option<Time> {
        let is_due = self.config.measures && self.state == State::Up;
        let interval = self.slowed(self.config.idle_probe) * 6 / 5;
        self.asked.filter(|_| is_due).map(|asked| asked + interval)
    }

    /// Time from a probe with this deadline to the next probe.
    fn pace(&self, now: Time, deadline: Time) -> Duration {
        match self.state {
            State::PossiblyDown(Suspicion::Idle) if !self.is_losing() => deadline.since(now),
            State::Captive
            | State::Down(DownCause::HeldDown | DownCause::Portal | DownCause::Check)
                if !self.is_losing() =>
            {
                self.slowed(self.config.idle_probe).max(deadline.since(now))
            }
            State::Down(_) if self.answered_in_a_row == 0 => self.slowed(self.config.down_interval),
            _ => self.config.probe_interval,
        }
    }

    fn patience(&self, target: usize) -> Duration {
        let is_far = self.targets.counts(target, false);
        let Some(round_trip) = self.round_trips[usize::from(is_far)] else {
            return self.config.deadline_unmeasured;
        };
        round_trip
            .patience()
            .clamp(self.config.deadline_min, self.config.deadline_max)
    }

    pub(super) fn slowed(&self, interval: Duration) -> Duration {
        interval * self.config.times_rarer(self.metered)
    }
}
