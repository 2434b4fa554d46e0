//! The `poll_…` methods: what has to be done, and when.

use std::net::SocketAddr;

use anabranch_policy::{Choice, Family};

use super::class::Class;
use super::links::Path;
use super::{Balancer, Event, ProbeRequest, Wakeup, Whom};
use crate::class::ClassId;
use crate::link::{LinkId, LinkSet};
use crate::survey::Question;
use crate::time::Time;

impl Balancer {
    /// The choice to install for a class and family, if it differs from the installed one.
    pub fn poll_choice(&mut self) -> Option<(ClassId, Family, Choice)> {
        let mut classes = self.classes.iter_mut();
        classes.find_map(|(id, class)| {
            let (family, choice) = class.poll_choice()?;
            Some((*id, family, choice))
        })
    }

    /// The next probe that is due.
    pub fn poll_probe(&mut self, now: Time) -> Option<ProbeRequest> {
        self.poll_availability(now)
            .or_else(|| self.poll_rounds(now))
            .or_else(|| self.poll_lengths(now))
    }

    fn poll_lengths(&mut self, now: Time) -> Option<ProbeRequest> {
        let request = self.next_length(now);
        self.events.extend(self.links.tell_lengths());
        request
    }

    fn next_length(&mut self, now: Time) -> Option<ProbeRequest> {
        let config = &self.config;
        self.links.iter_mut().find_map(|(link, state)| {
            let period = state.length_period(config);
            let mut paths = state.paths.iter_mut();
            paths.find_map(|(family, path)| {
                let long = path.next_length(now, period)?;
                Some(ProbeRequest {
                    link,
                    family,
                    id: long.id,
                    deadline: long.deadline,
                    whom: Whom::Host {
                        host: long.host,
                        bytes: long.bytes,
                    },
                })
            })
        })
    }

    fn poll_rounds(&mut self, now: Time) -> Option<ProbeRequest> {
        let family = self.links.node?;
        let mut links = self
            .links
            .iter_mut()
            .filter(|(_, link)| link.is_eligible(family));
        links.find_map(|(link, state)| {
            let (id, deadline) = state.rounds.next_probe(now)?;
            Some(ProbeRequest {
                link,
                family,
                id,
                deadline,
                whom: Whom::Node,
            })
        })
    }

    fn poll_availability(&mut self, now: Time) -> Option<ProbeRequest> {
        self.links.iter_mut().find_map(|(id, link)| {
            let mut paths = link.paths.iter_mut();
            let (family, probe) = paths.find_map(|(family, path)| {
                let probe = path.availability.next_probe(now, &link.load)?;
                Some((family, probe))
            })?;
            Some(ProbeRequest {
                link: id,
                family,
                id: probe.id,
                deadline: probe.deadline,
                whom: Whom::Target(probe.target_index),
            })
        })
    }

    /// The next survey probe that is due.
    pub fn poll_question(&mut self, now: Time) -> Option<Question> {
        let classes = &self.classes;
        self.surveys.iter_mut().find_map(|(class, survey)| {
            let usable = |to: SocketAddr| {
                let paths = classes.get(class).map(|class| class.paths());
                paths.map_or_else(LinkSet::default, |paths| {
                    paths[Family::from(to.ip())].usable
                })
            };
            let (link, to) = survey.poll(now, usable)?;
            Some(Question {
                class: *class,
                link,
                to,
            })
        })
    }

    /// The next event; none while a choice waits to be polled.
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.classes.values().any(Class::has_pending) {
            None
        } else {
            self.events.pop_front()
        }
    }

    /// When to call next, and why.
    pub fn poll_timeout(&self) -> (Time, Wakeup) {
        let counters = self.links.read_due(self.config.poll);
        let links = self.links.iter();
        let paths = links.flat_map(|(id, link)| {
            let paths = link.paths.iter();
            paths.flat_map(move |(family, path)| path_timeouts(id, family, path))
        });
        paths
            .chain(self.rounds())
            .chain(self.period_end())
            .chain(self.questions())
            .fold((counters, Wakeup::Counters), Ord::min)
    }

    /// Timeouts of the round trips to the fixed node.
    pub(super) fn rounds(&self) -> impl Iterator<Item = (Time, Wakeup)> {
        let families = self.links.node.into_iter();
        families.flat_map(|family| {
            let links = self
                .links
                .iter()
                .filter(move |(_, link)| link.is_eligible(family));
            links.flat_map(move |(id, link)| {
                let probe = link.rounds.probe_due();
                let probe = probe.map(|at| (at, Wakeup::Probe(id, family)));
                let timeout = link.rounds.timeout();
                let timeout = timeout.map(|at| (at, Wakeup::Timeout(id, family)));
                [probe, timeout].into_iter().flatten()
            })
        })
    }

    fn questions(&self) -> impl Iterator<Item = (Time, Wakeup)> {
        let surveys = self.surveys.iter();
        surveys.map(|(class, survey)| (survey.due(), Wakeup::Question(*class)))
    }

    /// The end of the measuring period that ends first. While no link carries anything, there is nothing to measure, and the period
    /// ends with the next reading of counters, unless an own policy has to be called.
    pub(super) fn period_end(&self) -> Option<(Time, Wakeup)> {
        self.links.counted?;
        let is_quiet = self.is_quiet();
        let classes = self.classes.values();
        let classes = classes.filter(|class| !is_quiet || class.has_own_policy());
        let ends = classes.filter_map(Class::period_end);
        ends.min().map(|at| (at, Wakeup::Counters))
    }

    /// Whether nothing was carried lately. Then the driver may read counters less often.
    pub fn is_quiet(&self) -> bool {
        self.links.is_quiet()
    }
}

fn path_timeouts(
    link: LinkId,
    family: Family,
    path: &Path,
) -> impl Iterator<Item = (Time, Wakeup)> + use<> {
    let timeout = path.availability.next_timeout();
    let length = path.length_due();
    let probe = move |at| (at, Wakeup::Probe(link, family));
    let probes = [path.availability.probe_due(), length]
        .into_iter()
        .flatten();
    let timeout = timeout.map(|at| (at, Wakeup::Timeout(link, family)));
    probes.map(probe).chain(timeout)
}
