//! Periodic work: the balancer's turns, sweeps of the flow tables, surveys of other programs and hosts.

use std::time::Duration;

use anabranch_api::Finding;
use anabranch_core::ClassId;
use tokio::time::Instant;

use super::{GatewayRole, Surroundings};
use crate::plane::{self, Plane, Swept, Walk, Which};

/// A sweep that took time t is followed by this many times t without one, while there is room in the table.
const SWEEP_REST: u32 = 200;
/// Time between sweeps of a table that was empty.
const SWEEP_REST_EMPTY: Duration = Duration::from_secs(5);

impl<P: Plane, S: Surroundings> GatewayRole<P, S> {
    /// Drives the balancer, ends flows and sends probes.
    pub(super) fn turn_balancer(&mut self) -> anyhow::Result<()> {
        let now = self.shell.now();
        let due = self.driver.turn(now, &mut self.plane)?;
        if due.lengths {
            self.shell.look_soon();
        }
        self.end_returns();
        for ending in due.ended {
            let leaves = ending.which == Which::All && ending.classes.contains(ClassId::DEFAULT);
            let external = self.externals.get(&(ending.link, ending.family));
            if let Some(external) = external.filter(|_| leaves) {
                self.abandoned.push((ending.link, external.address));
            }
            if let Which::Udp { .. } = ending.which {
                self.begin_return(ending);
            }
            self.end_flows(ending);
        }
        for order in due.probes {
            self.send(order);
        }
        for question in due.questions {
            self.ask(&question)?;
        }
        Ok(())
    }

    pub(super) fn sweep(&mut self) -> anyhow::Result<()> {
        let is_early = Instant::now() < self.sweep_at && !self.plane.is_pressed()?;
        if is_early || !self.sweeps.is_empty() {
            return Ok(());
        }
        let walker = self.plane.walker();
        self.sweeps.spawn_blocking(move || {
            let began = std::time::Instant::now();
            (walker.sweep(), began.elapsed())
        });
        Ok(())
    }

    pub(super) fn swept(
        &mut self,
        (swept, took): (Result<Swept, plane::Error>, Duration),
    ) -> anyhow::Result<()> {
        self.swept = swept?;
        let rest = match self.swept.met {
            0 => SWEEP_REST_EMPTY,
            _ => took * SWEEP_REST,
        };
        self.sweep_at = Instant::now() + rest;
        Ok(())
    }

    /// Starts a survey, at most once a second.
    pub(super) fn survey_neighbours(&mut self) {
        if self.survey.is_due() || self.surroundings.has_other_neighbours() {
            self.begin_survey();
        }
    }

    pub(super) fn begin_survey(&mut self) {
        if self.surveys.is_empty() {
            let survey = self.surroundings.survey(&self.config, self.survey.take());
            self.surveys.spawn(survey);
        }
    }

    /// Takes the result of a survey. If it failed, the former result stays valid.
    pub(super) fn surveyed(&mut self, found: anyhow::Result<Vec<Finding>>) {
        // Whether connections are tracked decides which nftables rules are installed.
        let others_track = self.surroundings.others_track();
        if std::mem::replace(&mut self.others_track, others_track) != others_track {
            self.shell.look_soon();
        }
        match found {
            Ok(found) => self.survey.tell(found),
            Err(error) => tracing::debug!("survey of the host: {error:#}"),
        }
        self.surveyed.append(&mut self.asking);
    }
}
