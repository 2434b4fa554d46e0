//! The one order in which a balancer is driven.
//!
//! What is due is handled, then the choices are installed, then probes are sent, then people and the data path hear what
//! happened. A choice is installed before any flow's end is asked for, so that a client that tries again at once finds the
//! links that are left. The daemon keeps this order in real time, the simulator in virtual time, tests in either: all by
//! [`Driver::turn`].

use std::collections::BTreeSet;

use crate::balancer::{Balancer, Event, ProbeRequest, Wakeup};
use crate::dataplane::DataPlane;
use crate::link::{LinkCounters, LinkId};
use crate::survey::Question;
use crate::time::Time;

/// One balancer over one data path. Reads no clock and does no IO but through [`DataPlane`].
#[derive(Debug)]
pub struct Driver {
    balancer: Balancer,
    counters: Vec<LinkCounters>,
}

/// What a turn leaves to its caller, who takes it in the order it comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send it now.
    Probe(ProbeRequest),
    /// Ask it now. Who is answered tells the data path, not the balancer.
    Ask(Question),
    /// Tell it. The choices that it follows from are installed.
    Event(Event),
}

impl Driver {
    /// For a balancer that nobody has asked anything yet.
    pub fn new(balancer: Balancer) -> Self {
        Driver {
            balancer,
            counters: Vec::new(),
        }
    }

    /// What decides.
    pub fn balancer(&self) -> &Balancer {
        &self.balancer
    }

    /// To tell it what happened, or what the operator wants. A [`turn`](Self::turn) has to follow.
    pub fn balancer_mut(&mut self) -> &mut Balancer {
        &mut self.balancer
    }

    /// As they were last read.
    pub fn counters(&self, link: LinkId) -> LinkCounters {
        self.counters.get(link.index()).copied().unwrap_or_default()
    }

    /// When to call [`turn`](Self::turn) next, if nothing happens before.
    pub fn next_turn(&self) -> Time {
        self.balancer.poll_timeout().0
    }

    /// Does what is due at `now` and returns the rest. Call it after anything that happened, too.
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

    /// What follows from what the balancer was told, without what time has made due.
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

    /// Each kind once: what stays due is due at once again, and time has to pass between two turns.
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

    /// In their time, or before it for somebody who asks.
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
