//! The state that every role has: a name, a clock, and how far its data path is behind the host.

use std::time::Duration;

use anabranch_api::Status;
use anabranch_core::Time;
use tokio::time::Instant;

use super::trouble::Troubles;

/// How far the data path is behind the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behind {
    /// It has all that the last inspection found.
    Nothing,
    /// It has the losses; the rest waits until the flows that are being ended have ended.
    Rest,
    /// The host has, or may have, changed since the last inspection.
    Look {
        /// The rest of the inspection before waits as well.
        has_rest: bool,
    },
}

/// The part of the state that all roles have.
#[derive(Debug)]
pub(crate) struct Shell {
    pub instance: String,
    /// Whether the data path of an earlier run was adopted.
    pub adopted: bool,
    /// What could not be written to the data path, or done on the host: the next tick tries again.
    pub troubles: Troubles,
    origin: Instant,
    behind: Behind,
}

impl Shell {
    pub fn new(instance: &str, adopted: bool) -> Self {
        Self {
            instance: instance.to_owned(),
            adopted,
            troubles: Troubles::default(),
            origin: Instant::now(),
            behind: Behind::Nothing,
        }
    }

    // ---- the clock

    pub fn now(&self) -> Time {
        Time::ZERO + self.uptime()
    }

    /// The part of the status that belongs to no role.
    pub fn status(&self) -> Status {
        Status {
            instance: self.instance.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.uptime().as_secs_f64(),
            roles: Vec::new(),
            gateway: None,
            services: None,
            trunk: None,
            member: None,
        }
    }

    pub fn uptime(&self) -> Duration {
        self.origin.elapsed()
    }

    /// When it is `time` by [`Shell::now`].
    pub fn instant(&self, time: Time) -> Instant {
        self.origin + Duration::from_nanos(time.as_nanos())
    }

    // ---- the host

    /// The host has, or may have, changed: the next turn inspects it.
    pub fn look_soon(&mut self) {
        self.behind = Behind::Look {
            has_rest: self.has_rest(),
        };
    }

    /// The same if something failed at the last inspection.
    pub fn look_again_after_trouble(&mut self) {
        if !self.troubles.is_clear() {
            self.look_soon();
        }
    }

    /// Whether the host has to be inspected now; the caller then does so.
    pub fn take_look(&mut self) -> bool {
        let Behind::Look { has_rest } = self.behind else {
            return false;
        };
        self.behind = if has_rest {
            Behind::Rest
        } else {
            Behind::Nothing
        };
        true
    }

    /// Notes that the data path has all that the inspection found, or only the losses.
    pub fn told(&mut self, is_all: bool) {
        self.behind = match (self.behind, is_all) {
            (Behind::Look { .. }, _) => Behind::Look { has_rest: !is_all },
            (_, true) => Behind::Nothing,
            (_, false) => Behind::Rest,
        };
    }

    /// Whether the rest of the last inspection can be written now.
    pub fn tell_rest_soon(&mut self) {
        if self.has_rest() {
            self.look_soon();
        }
    }

    pub fn has_rest(&self) -> bool {
        matches!(self.behind, Behind::Rest | Behind::Look { has_rest: true })
    }

    // ---- what went wrong

    /// Notes a failure; the next tick tries again. It is logged if it lasts: the host may have changed since the inspection, and
    /// the next one notices that.
    pub fn report_and_retry(&mut self, trouble: &str) {
        if self.troubles.meet(trouble) {
            tracing::warn!("{trouble}");
        }
    }

    /// What was done. A failure is noted as above, with its causes.
    pub fn done<T>(&mut self, result: anyhow::Result<T>) -> Option<T> {
        let noted = |error| self.report_and_retry(&format!("{error:#}"));
        result.map_err(noted).ok()
    }

    /// Failures that more than one inspection has met, a line each.
    pub fn standing(&self) -> Vec<String> {
        self.troubles.standing().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_look_is_taken_once_and_the_rest_of_it_waits_for_flows_to_end() {
        let mut shell = Shell::new("a", false);
        assert!(!shell.take_look());
        shell.look_soon();
        assert!(shell.take_look() && !shell.take_look());
        shell.told(false);
        assert!(shell.has_rest() && !shell.take_look());
        shell.look_soon();
        assert!(
            shell.take_look() && shell.has_rest(),
            "a look forgets no rest"
        );
        shell.tell_rest_soon();
        assert!(shell.take_look());
        shell.told(true);
        shell.tell_rest_soon();
        assert!(!shell.has_rest() && !shell.take_look());
    }

    #[tokio::test(start_paused = true)]
    async fn what_failed_is_tried_again_at_the_next_tick() {
        let mut shell = Shell::new("a", true);
        shell.look_again_after_trouble();
        assert!(!shell.take_look());
        shell.report_and_retry("routes: no room");
        shell.look_again_after_trouble();
        assert!(shell.take_look());
    }
}
