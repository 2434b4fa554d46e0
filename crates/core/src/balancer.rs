//! The balancer as a state machine: counters, probe results and link states in; choices, probes and events out.
//!
//! Links and classes are separate ([`links`], [`class`]): whether a link works, and its load, are the same for all classes; the
//! choice is each class's own. Whether a link works is decided for each address family separately; its load is that of both.

mod build;
mod class;
mod events;
mod links;
mod own;
mod polls;
mod show;
mod status;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use anabranch_policy::Family;
use anabranch_policy::paths::Prefix;

pub use self::build::BuildError;
use self::build::{check_classes, check_links};
use self::class::Class;
pub use self::class::UDP_PAUSE;
pub use self::events::{Event, FoundMtu, ProbeRequest, Wakeup, Whom};
use self::links::Links;
pub use self::status::{ClassStatus, LinkStatus, NodeStatus, PathStatus};
use crate::class::{ClassId, Classes};
use crate::config::Config;
use crate::link::{Admin, LinkCounters, LinkId, LinkSet, LinkSpec, LinkState};
use crate::survey::{Opening, Question, Survey};
use crate::targets::TargetSpec;
use crate::time::Time;

/// The balancer of one gateway.
///
/// Its methods are of four kinds. None blocks, reads a clock or does IO:
/// - *getters*: [`status`](Self::status), [`class_status`](Self::class_status), [`usable`](Self::usable);
/// - *`handle_…`* report what happened, with the time at which it happened;
/// - *commands* of the operator: [`set_admin`](Self::set_admin), [`reconfigure`](Self::reconfigure);
/// - *`poll_…`* return what has to be done.
///
/// After any `handle_…` or command, poll in this order until each returns nothing: [`poll_choice`](Self::poll_choice) (install it),
/// [`poll_probe`](Self::poll_probe) (send it), [`poll_event`](Self::poll_event). Then wait until
/// [`poll_timeout`](Self::poll_timeout). Events are held back while a choice waits to be polled, so that no flow ends before the
/// data path knows which links take new ones. At the start, report every link's state, then the counters: there is no choice before
/// the first counters.
#[derive(Debug)]
pub struct Balancer {
    config: Config,
    links: Links,
    /// The default class and the classes of rules.
    classes: BTreeMap<ClassId, Class>,
    /// One for each class with an active survey.
    surveys: BTreeMap<ClassId, Survey>,
    events: VecDeque<Event>,
}

impl Balancer {
    /// Creates a balancer for `links`, in the order of their ids. All are absent until their state is reported.
    pub fn new(
        now: Time,
        classes: Classes,
        links: Vec<LinkSpec>,
        config: Config,
    ) -> Result<Self, BuildError> {
        config.validate()?;
        check_links(&links)?;
        check_classes(&classes, &links, &config)?;
        let count = links.len();
        let surveys = classes.iter().filter_map(|(id, spec)| {
            let active = spec.algorithm.learning.active()?;
            Some((*id, Survey::new(now, active)))
        });
        let surveys = surveys.collect();
        let class = |(id, spec)| (id, Class::new(now, spec, count));
        let mut balancer = Balancer {
            links: Links::new(now, links, &config),
            classes: classes.into_iter().map(class).collect(),
            surveys,
            events: VecDeque::new(),
            config,
        };
        balancer.listen();
        Ok(balancer)
    }

    fn listen(&mut self) {
        let classes = &self.classes;
        let is_per_packet = |link| classes.values().any(|class| class.spreads_over(link));
        self.links.listen(is_per_packet);
        let asks = classes.values().any(Class::needs_node);
        self.links.node = self.config.node.filter(|_| asks);
    }

    /// The links that take new flows of a class.
    pub fn usable(&self, class: ClassId, family: Family) -> LinkSet {
        let class = self.classes.get(&class);
        let usable = class.map(|class| class.paths()[family].usable);
        usable.unwrap_or_default()
    }

    /// The links that carry packets of a family, whether or not they take new flows.
    pub fn alive(&self, family: Family) -> LinkSet {
        let alive = self.links.iter().filter(|(_, link)| link.is_alive(family));
        alive.map(|(id, _)| id).collect()
    }

    /// The path MTU, if packets as long as the device allows do not arrive.
    pub fn path_mtu(&self, link: LinkId, family: Family) -> Option<u32> {
        let found = self.links.found_mtu(link, family)?;
        Some(found.bytes)
    }

    /// Whether this is the last link that works for new flows of some family.
    pub fn is_last(&self, link: LinkId) -> bool {
        Family::ALL.into_iter().any(|family| {
            let mut others = self.links.iter().filter(|(id, _)| *id != link);
            self.takes_flows(link, family) && !others.any(|(_, link)| link.is_alive(family))
        })
    }

    /// Whether it takes new flows of any class.
    fn takes_flows(&self, link: LinkId, family: Family) -> bool {
        let mut classes = self.classes.values();
        classes.any(|class| class.paths()[family].usable.contains(link))
    }

    /// Whether any class surveys its destinations.
    pub fn surveys(&self) -> bool {
        !self.surveys.is_empty()
    }

    /// The prefixes that the surveys probe.
    pub fn listed(&self) -> BTreeSet<Prefix> {
        self.surveys.values().flat_map(Survey::listed).collect()
    }

    /// Number of survey probes since the start.
    pub fn asked(&self) -> u64 {
        self.surveys.values().map(Survey::asked).sum()
    }

    /// Reports new connections, for the surveys.
    pub fn handle_openings(&mut self, openings: &[Opening]) {
        for opening in openings {
            if let Some(survey) = self.surveys.get_mut(&opening.class) {
                survey.note(opening.to);
            }
        }
    }

    /// Reports the counters of all links, in the order of their ids. If counters went backwards, they were reset.
    pub fn handle_counters(&mut self, now: Time, counters: &[LinkCounters]) {
        let first = self.links.counted.is_none();
        self.links.handle_counters(now, counters);
        for class in self.classes.values_mut() {
            if first {
                class.begin_window(now, &self.links);
            } else if class.period_end().is_some_and(|end| end <= now) {
                class.end_period(now, &self.links);
            }
        }
        self.settle(now);
    }

    /// Reports an answer to a probe, in time or not: any packet that only the target could have sent. Probes
    /// without an answer need no report.
    pub fn handle_answer(&mut self, now: Time, probe: &ProbeRequest, round_trip: Duration) {
        let Some(link) = self.links.get_mut(probe.link) else {
            return;
        };
        match probe.whom {
            Whom::Target(_) => {
                let path = &mut link.paths[probe.family];
                path.availability.answer(now, probe.id, round_trip);
                self.settle(now);
            }
            Whom::Node if link.rounds.answer(probe.id, round_trip) => self.end_rounds(now),
            Whom::Node => {}
            Whom::Host { .. } => {
                let period = link.length_period(&self.config);
                let path = &mut link.paths[probe.family];
                path.mtu.answer(now, probe.id, period);
            }
        }
    }

    /// Compares links again, because a round trip to the fixed node has ended.
    fn end_rounds(&mut self, now: Time) {
        let classes = self.classes.values_mut();
        for class in classes.filter(|class| class.is_back_to_back()) {
            class.end_period(now, &self.links);
        }
    }

    /// Reports whether the previous survey probe to this destination over the same link was answered.
    pub fn handle_question(&mut self, question: &Question, answered: bool) {
        if let Some(survey) = self.surveys.get_mut(&question.class) {
            survey.hear(question.to, answered);
        }
    }

    /// Reports that a probe proves nothing: it could not be sent, for a reason of this host, or its answer is shorter than
    /// requested.
    pub fn handle_inconclusive(&mut self, probe: &ProbeRequest) {
        let Some(link) = self.links.get_mut(probe.link) else {
            return;
        };
        let path = &mut link.paths[probe.family];
        match probe.whom {
            Whom::Target(_) => path.availability.withdraw(probe.id),
            Whom::Host { .. } => path.mtu.withdraw(probe.id),
            Whom::Node => {}
        }
    }

    /// Reports that another host answered in place of the target: a page has unexpected content.
    pub fn handle_wrong_answer(&mut self, now: Time, probe: &ProbeRequest) {
        if let (Some(link), Whom::Target(_)) = (self.links.get_mut(probe.link), probe.whom) {
            let path = &mut link.paths[probe.family];
            path.availability.answer_wrong(now, probe.id);
            self.settle(now);
        }
    }

    /// Reports whether a check of the operator that covers this link and family is down. Then the link is not used although it
    /// answers.
    pub fn set_check(&mut self, now: Time, link: LinkId, family: Family, fails: bool) {
        if let Some(link) = self.links.get_mut(link) {
            link.paths[family].availability.set_check(now, fails);
            self.settle(now);
        }
    }

    /// Reports a change of a link's device, carrier, address or gateway. A link is absent in a family until the first report.
    pub fn handle_link_state(&mut self, now: Time, link: LinkId, family: Family, state: LinkState) {
        let Some(link) = self.links.get_mut(link) else {
            return;
        };
        link.paths[family].availability.set_link_state(now, state);
        self.settle(now);
    }

    /// Sets the probe targets of a link; at least one. A new link has one far target.
    pub fn set_targets(&mut self, link: LinkId, family: Family, specs: &[TargetSpec]) {
        if let Some(link) = self.links.get_mut(link) {
            link.paths[family].availability.set_targets(specs);
        }
    }

    /// Sets the MTU of the link's device, and the number of far hosts that may be probed for the path MTU.
    pub fn set_length(&mut self, now: Time, link: LinkId, family: Family, mtu: u32, hosts: usize) {
        if let Some(link) = self.links.get_mut(link) {
            link.paths[family].mtu.set(now, mtu, hosts);
        }
    }

    /// Handles what is due at the time of [`poll_timeout`](Self::poll_timeout).
    pub fn handle_timeout(&mut self, now: Time) {
        for (_, link) in self.links.iter_mut() {
            for path in link.paths.values_mut() {
                path.availability.tick(now, &link.load);
            }
        }
        self.settle(now);
        let ended = self
            .links
            .iter_mut()
            .filter_map(|(_, link)| link.rounds.tick(now).then_some(()));
        if ended.count() > 0 {
            self.end_rounds(now);
        }
    }

    /// Takes a link out of use or back into use, even if it is held down. A link that is drained or taken down is not used even if
    /// it is the last.
    pub fn set_admin(&mut self, now: Time, link: LinkId, admin: Admin) {
        let Some(link) = self.links.get_mut(link) else {
            return;
        };
        link.set_admin(now, admin);
        self.settle(now);
    }

    /// Changes classes, links and settings. A link with the same place and name keeps its state: up or down, and the operator's
    /// orders. But a link that gets NAT or loses it is absent until its state is reported again, and its flows end for good; so
    /// report its state only when they have ended. A class with the same number keeps its state, and also its window if it
    /// distributes flows over the same links by the same algorithm. If the new configuration is refused, nothing changes.
    pub fn reconfigure(
        &mut self,
        now: Time,
        classes: Classes,
        links: Vec<LinkSpec>,
        config: Config,
    ) -> Result<(), BuildError> {
        let mut before = std::mem::replace(self, Balancer::new(now, classes, links, config)?);
        let same_links = self.links.specs().eq(before.links.specs());
        let both = self.links.specs().zip(before.links.specs());
        let is_same = |now: &LinkSpec, before: &LinkSpec| {
            (&now.name, now.routed) == (&before.name, before.routed)
        };
        let stays: Vec<bool> = both.map(|(now, before)| is_same(now, before)).collect();
        self.links.succeed(before.links, &self.config);
        self.listen();
        self.events = before.events;
        for (id, survey) in &mut self.surveys {
            let same = |survey: &Survey, before: &Survey| survey.active() == before.active();
            if let Some(before) = before
                .surveys
                .remove(id)
                .filter(|before| same(survey, before))
            {
                *survey = before;
            }
        }
        for (id, class) in &mut self.classes {
            if let Some(before) = before.classes.remove(id) {
                class.succeed(before, &stays, same_links);
            }
        }
        self.settle(now);
        Ok(())
    }

    /// Updates events and choices after a change of the links' states.
    fn settle(&mut self, now: Time) {
        self.events.extend(self.links.settle(now));
        let mut default = None;
        for class in self.classes.values_mut() {
            class.settle(now, &self.links, default.as_ref());
            default.get_or_insert(*class.paths());
        }
        self.move_flows(now);
    }

    /// Ends flows of links that are lost. A link that is used again before the event was polled keeps its flows, as does one whose
    /// flows no link can take any more.
    fn move_flows(&mut self, now: Time) {
        if self.links.counted.is_none() {
            return;
        }
        let (classes, links) = (&mut self.classes, &self.links);
        self.events.retain(|event| match event {
            Event::EndFlows {
                class,
                link,
                family,
            } => {
                let class = classes.get_mut(class);
                class.is_some_and(|class| class.still_ends(links, *link, *family))
            }
            Event::MoveUdp {
                class,
                link,
                family,
                ..
            } => {
                let class = classes.get(class);
                class.is_some_and(|class| !class.paths()[*family].usable.contains(*link))
            }
            _ => true,
        });
        for (id, class) in &mut self.classes {
            class.end_flows(*id, &self.links, &mut self.events);
            class.move_flows(now, *id, &self.links, &mut self.events);
        }
    }
}
