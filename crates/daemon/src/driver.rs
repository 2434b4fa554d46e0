//! The driver of [`anabranch_core`] for links that are known by their slots. It marks each probe with the configuration for which
//! it was sent, and logs events with the names of links.

use std::collections::BTreeSet;
use std::time::Duration;

use anabranch_core::{
    Admin, Balancer, BuildError, CAPTIVE, ClassId, ClassSet, ClassStatus, DataPlane, Effect, Event,
    Family, LinkCounters, LinkId, LinkSet, LinkSpec, LinkState, LinkStatus, OnReturn, ProbeRequest,
    Question, TargetSpec, Time, is_dark, lengths,
};
use anabranch_policy::abi::MAX_LINKS;

use crate::classes::ClassSlots;
use crate::config::Config;
use crate::plane::Which;
use crate::slots::Slots;

/// Drives one balancer over one data path. Links are known by their slots.
pub struct Driver {
    core: anabranch_core::Driver,
    slots: Slots,
    /// Incremented with every configuration.
    generation: u64,
    /// The generation in which a slot got another link. Older probes do not belong to that link.
    changed: [u64; MAX_LINKS],
}

/// A probe to send. Its answer has to be reported with all of this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeOrder {
    pub request: ProbeRequest,
    generation: u64,
}

/// What the caller has to do.
#[derive(Debug, Default)]
pub struct Due {
    pub probes: Vec<ProbeOrder>,
    pub questions: Vec<Question>,
    /// Flows to end. The choices without these links are installed.
    pub ended: Vec<Ending>,
    /// Whether the path MTU of a link has changed.
    pub lengths: bool,
}

/// Flows of a link that have to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending {
    pub link: LinkId,
    pub family: Family,
    pub classes: ClassSet,
    pub which: Which,
}

impl Due {
    /// Adds a class, so that one walk over the table serves all classes.
    fn end(&mut self, class: ClassId, link: LinkId, family: Family, which: Which) {
        let asked = (link, family, which);
        let mut known = self.ended.iter_mut();
        match known.find(|known| (known.link, known.family, known.which) == asked) {
            Some(known) => known.classes.extend([class]),
            None => self.ended.push(Ending {
                link,
                family,
                classes: ClassSet::from_iter([class]),
                which,
            }),
        }
    }
}

impl Driver {
    /// `config` has been validated, so the balancer refuses it only because of a defect.
    pub fn new(
        now: Time,
        config: &Config,
        slots: &Slots,
        classes: &ClassSlots,
    ) -> Result<Self, BuildError> {
        let balancer = Balancer::new(
            now,
            classes.specs(config, slots),
            specs(config, slots, slots),
            config.availability.clone(),
        )?;
        Ok(Self {
            core: anabranch_core::Driver::new(balancer),
            slots: slots.clone(),
            generation: 0,
            changed: [0; MAX_LINKS],
        })
    }

    /// Changes classes, links and settings. Links and classes with the same slots keep their state.
    pub fn reconfigure(
        &mut self,
        now: Time,
        config: &Config,
        slots: &Slots,
        classes: &ClassSlots,
    ) -> Result<(), BuildError> {
        self.core.balancer_mut().reconfigure(
            now,
            classes.specs(config, slots),
            specs(config, &self.slots, slots),
            config.availability.clone(),
        )?;
        self.generation += 1;
        for link in (0..MAX_LINKS as u16).map(LinkId) {
            if slots.name(link) != self.slots.name(link) {
                self.changed[link.index()] = self.generation;
            }
        }
        self.slots = slots.clone();
        Ok(())
    }

    // ---- getters

    pub fn status(&self, now: Time, link: LinkId) -> Option<LinkStatus> {
        let statuses = self.core.balancer().status(now);
        statuses.into_iter().find(|status| status.link == link)
    }

    pub fn class_status(&self) -> Vec<ClassStatus> {
        self.core.balancer().class_status()
    }

    /// The prefixes whose destinations are probed.
    pub fn listed(&self) -> BTreeSet<String> {
        let listed = self.core.balancer().listed();
        listed.iter().map(ToString::to_string).collect()
    }

    /// Number of survey probes since the start.
    pub fn asked(&self) -> u64 {
        self.core.balancer().asked()
    }

    /// The path MTU, if packets as long as the device allows do not arrive.
    pub fn path_mtu(&self, link: LinkId, family: Family) -> Option<u32> {
        self.core.balancer().path_mtu(link, family)
    }

    pub fn counters(&self, link: LinkId) -> LinkCounters {
        self.core.counters(link)
    }

    /// Whether nothing was carried lately.
    pub fn is_quiet(&self) -> bool {
        self.core.balancer().is_quiet()
    }

    /// Whether this is the last link that works for new flows.
    pub fn is_last(&self, link: LinkId) -> bool {
        self.core.balancer().is_last(link)
    }

    /// The first link of the configuration's order that takes new flows of a class and family.
    pub fn first_usable(&self, config: &Config, class: ClassId, family: Family) -> Option<LinkId> {
        let mut ids = config
            .links
            .iter()
            .filter_map(|link| self.slots.id(&link.name));
        let usable = self.core.balancer().usable(class, family);
        ids.find(|id| usable.contains(*id))
    }

    /// Whether a link takes new flows of a class.
    pub fn is_usable(&self, class: ClassId, link: LinkId, family: Family) -> bool {
        let usable = self.core.balancer().usable(class, family);
        usable.contains(link)
    }

    /// The links that carry packets of a family.
    pub fn alive(&self, family: Family) -> LinkSet {
        self.core.balancer().alive(family)
    }

    // ---- what happened

    pub fn handle_link_state(&mut self, now: Time, link: LinkId, family: Family, state: LinkState) {
        let balancer = self.core.balancer_mut();
        balancer.handle_link_state(now, link, family, state);
    }

    /// Sets the MTU of a link's device, and the number of far hosts that may be probed for the path MTU.
    pub fn set_length(&mut self, now: Time, link: LinkId, family: Family, mtu: u32, hosts: usize) {
        let balancer = self.core.balancer_mut();
        balancer.set_length(now, link, family, mtu, hosts);
    }

    pub fn set_targets(&mut self, link: LinkId, family: Family, specs: &[TargetSpec]) {
        self.core.balancer_mut().set_targets(link, family, specs);
    }

    pub fn handle_answer(&mut self, now: Time, order: ProbeOrder, round_trip: Duration) {
        if self.is_current(order) {
            let balancer = self.core.balancer_mut();
            balancer.handle_answer(now, &order.request, round_trip);
        }
    }

    /// Reports whether the previous survey probe was answered.
    pub fn handle_question(&mut self, question: &Question, answered: bool) {
        self.core.balancer_mut().handle_question(question, answered);
    }

    /// Reports that a probe could not be sent, or that its answer was too short.
    pub fn handle_inconclusive(&mut self, order: ProbeOrder) {
        if self.is_current(order) {
            self.core.balancer_mut().handle_inconclusive(&order.request);
        }
    }

    /// Reports that another host answered in place of the target.
    pub fn handle_wrong_answer(&mut self, now: Time, order: ProbeOrder) {
        if self.is_current(order) {
            let balancer = self.core.balancer_mut();
            balancer.handle_wrong_answer(now, &order.request);
        }
    }

    /// Reports whether a check of the configuration is down.
    pub fn set_check(&mut self, now: Time, link: LinkId, family: Family, fails: bool) {
        self.core.balancer_mut().set_check(now, link, family, fails);
    }

    /// Whether its slot still has the same link.
    fn is_current(&self, order: ProbeOrder) -> bool {
        order.generation >= self.changed[order.request.link.index()]
    }

    /// Whether no link works.
    pub fn is_dark(&self, now: Time) -> bool {
        is_dark(&self.core.balancer().status(now))
    }

    pub fn set_admin(&mut self, now: Time, link: LinkId, admin: Admin) {
        self.core.balancer_mut().set_admin(now, link, admin);
    }

    // ---- what is to be done

    /// When to call [`Driver::turn`] next, if nothing happens before.
    pub fn next_turn(&self) -> Time {
        self.core.next_turn()
    }

    /// Does what is due at `now` and returns the rest. Call it also after each report.
    pub fn turn<P: DataPlane>(&mut self, now: Time, plane: &mut P) -> Result<Due, P::Error> {
        let mut due = Due::default();
        for effect in self.core.turn(now, plane)? {
            match effect {
                Effect::Probe(probe) => due.probes.push(self.order(probe)),
                Effect::Ask(question) => due.questions.push(question),
                Effect::Event(event) => self.tell(event, &mut due),
            }
        }
        Ok(due)
    }

    fn order(&self, request: ProbeRequest) -> ProbeOrder {
        ProbeOrder {
            request,
            generation: self.generation,
        }
    }

    /// Reads the counters before they are due, for a request.
    pub fn read_counters<P: DataPlane>(
        &mut self,
        now: Time,
        plane: &mut P,
    ) -> Result<(), P::Error> {
        self.core.read_counters(now, plane)
    }

    fn tell(&self, event: Event, due: &mut Due) {
        match event {
            Event::Suspected {
                link,
                family,
                suspicion,
            } => tracing::info!("{} possibly down: {suspicion}", self.subject(link, family)),
            Event::Captive { link, family } => {
                tracing::warn!("{} {CAPTIVE}", self.subject(link, family));
            }
            Event::LinkUp {
                link,
                family,
                down_for,
            } => {
                let ms = down_for.as_millis();
                tracing::info!("{} up after {ms} ms", self.subject(link, family));
            }
            Event::LinkDown {
                link,
                family,
                after,
                cause,
            } => {
                let ms = after.as_millis();
                tracing::warn!("{} down after {ms} ms: {cause}", self.subject(link, family));
            }
            Event::PathMtu {
                link,
                family,
                found,
            } => {
                due.lengths = true;
                tracing::warn!("{} {}", self.subject(link, family), lengths(found));
            }
            Event::EndFlows {
                class,
                link,
                family,
            } => due.end(class, link, family, Which::All),
            Event::MoveUdp {
                class,
                link,
                family,
                idle,
            } => due.end(class, link, family, Which::Udp { idle }),
        }
    }

    /// The link and family of an event, for the log.
    fn subject(&self, link: LinkId, family: Family) -> String {
        let name = self.slots.name(link).unwrap_or("of before");
        match family {
            Family::V4 => format!("link {name}"),
            Family::V6 => format!("link {name}, {family}:"),
        }
    }
}

/// The configuration of every slot up to the last, including a link that has just left and whose flows have to end. A slot without
/// a link gets one that is never present.
fn specs(config: &Config, former: &Slots, slots: &Slots) -> Vec<LinkSpec> {
    let weighted = config.links.iter().any(|link| link.weight.is_some());
    let nobody = LinkSpec {
        name: String::new(),
        rate_up_bps: Some(1),
        rate_down_bps: Some(1),
        weight: weighted.then_some(1),
        metered: true,
        routed: false,
        on_return: OnReturn::Stay,
    };
    let count = slots
        .iter()
        .chain(former.iter())
        .map(|(_, id)| id.index() + 1)
        .max()
        .unwrap_or(0);
    let mut specs = vec![nobody; count];
    for link in &config.links {
        if let Some(id) = slots.id(&link.name) {
            specs[id.index()] = link.spec();
        }
    }
    specs
}
