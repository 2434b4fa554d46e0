//! Calls a balancer's methods in the right order.
//!
//! In each turn it handles timeouts, then installs choices, then returns the probes to send, then the events.
//! A choice is installed before any flow is ended, so that a client that tries again at once gets one of the
//! links that are left. The daemon does this in real time, the simulator in virtual time, and tests in either: all call
//! [`Driver::turn`].

use std::collections::BTreeSet;

use crate::balancer::{Balancer, Event, ProbeRequest, Wakeup};
use crate::dataplane::DataPlane;
use crate::link::{LinkCounters, LinkId};
use crate::survey::Question;
use crate::time::Time;

/// One balancer and its data path. It reads no clock, and does no IO except through [`DataPlane`].
#[derive(Debug)]
pub struct Driver {
    balancer: Balancer,
    counters: Vec<LinkCounters>,
}

/// What a turn leaves to its caller, in the order in which it has to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send this probe now.
    Probe(ProbeRequest),
    /// Probe this destination now. The answer is reported to the data path, not to the balancer.
    Ask(Question),
    /// Act on this event, and report it. The choices that belong to it are installed.
    Event(Event),
}

impl Driver {
    /// Takes a new balancer, before any of its methods was called.
    pub fn new(balancer: Balancer) -> Self {
        Driver {
            balancer,
            counters: Vec::new(),
        }
    }

    /// The balancer, to read its state.
    pub fn balancer(&self) -> &Balancer {
        &self.balancer
    }

    /// The balancer, to report what happened or an order of the operator. Call [`turn`](Self::turn) afterwards.
    pub fn balancer_mut(&mut self) -> &mut Balancer {
        &mut self.balancer
    }

    /// The counters of a link as they were last read.
    pub fn counters(&self, link: LinkId) -> LinkCounters {
        self.counters.get(link.index()).copied().unwrap_or_default()
    }

    /// When to call [`turn`](Self::turn) next, if nothing happens before.
    pub fn next_turn(&self) -> Time {
        self.balancer.poll_timeout().0
    }

    /// Does what is due at `now`, and returns what is left to the caller. Call it also after each report to the balancer.
    ///
    /// # Errors
    /// Those of the data path, after which the balancer and the data path do not agree: drive it no further.
    pub fn turn<P: DataPlane>(
        &mut self,
        now: Time,
        plane: &mut P,
    ) -> Result<Vec<Effect>, P::Error> {
        self.handle_timeouts(now, plane)?;
        self.poll(now, plane)
    }

    /// The same without timeouts: only what follows from reports to the balancer.
    ///
    /// # Errors
    /// Those of the data path.
    pub fn poll<P: DataPlane>(
        &mut self,
        now: Time,
        plane: &mut P,
    ) -> Result<Vec<Effect>, P::Error> {
        let mut effects = Vec::new();
        loop {
            if let Some((class, family, choice)) = self.balancer.poll_choice() {
                plane.install(class, family, &choice)?;
            } else if let Some(probe) = self.balancer.poll_probe(now) {
                effects.push(Effect::Probe(probe));
            } else if let Some(question) = self.balancer.poll_question(now) {
                effects.push(Effect::Ask(question));
            } else if let Some(event) = self.balancer.poll_event() {
                effects.push(Effect::Event(event));
            } else {
                return Ok(effects);
            }
        }
    }

    /// Handles each kind of timeout once: one that stays due would be due again at once, and time has to pass between two turns.
    fn handle_timeouts<P: DataPlane>(&mut self, now: Time, plane: &mut P) -> Result<(), P::Error> {
        let mut done = BTreeSet::new();
        loop {
            let (at, wakeup) = self.balancer.poll_timeout();
            if at > now || !done.insert(wakeup) {
                return Ok(());
            }
            match wakeup {
                Wakeup::Counters => self.read_counters(now, plane)?,
                Wakeup::Timeout(..) => self.balancer.handle_timeout(now),
                Wakeup::Probe(..) | Wakeup::Question(_) => return Ok(()),
            }
        }
    }

    /// Reads the counters, when they are due, or earlier because somebody asks for the status.
    ///
    /// # Errors
    /// Those of the data path.
    pub fn read_counters<P: DataPlane>(
        &mut self,
        now: Time,
        plane: &mut P,
    ) -> Result<(), P::Error> {
        self.counters = plane.counters()?;
        if self.balancer.surveys() {
            let openings = plane.openings()?;
            self.balancer.handle_openings(&openings);
        }
        self.balancer.handle_counters(now, &self.counters);
        Ok(())
    }
}
