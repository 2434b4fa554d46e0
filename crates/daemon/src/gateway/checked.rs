//! Runs the configuration's checks over each link that they cover, and reports their results to the balancer.

use anabranch_core::checks::{AskId, Check, Outcome};
use anabranch_core::{Family, LinkId};

use super::{GatewayRole, Surroundings};
use crate::checking::Checking;
use crate::config::{Config, Link};
use crate::plane::Plane;
use crate::slots::Tested;

/// A link's name, and a family.
pub(crate) type Path = (String, Family);

/// The checks of `config`, with the results of an earlier daemon.
pub(crate) fn checks(config: &Config, known: &Tested) -> Checking<Path> {
    Checking::new(wanted(config), |(link, family), test| {
        known.health(link, *family, test)
    })
}

fn wanted(config: &Config) -> impl Iterator<Item = (Path, Vec<Check>)> {
    let of_link = |link: &Link| {
        let of = |family: Family| {
            let checks = link.checks.iter();
            let checks: Vec<Check> = checks.filter_map(|check| check.of(family)).collect();
            ((link.name.clone(), family), checks)
        };
        Family::ALL.map(of)
    };
    config.links.iter().flat_map(of_link)
}

impl<P: Plane, S: Surroundings> GatewayRole<P, S> {
    /// Takes over a new configuration. Unchanged tests keep their results.
    pub(super) fn set_checks(&mut self) {
        self.checks.set(self.shell.now(), wanted(&self.config));
        self.tell_checks();
    }

    /// Starts the tests that are due. A link that is absent is not tested.
    pub(super) fn make_tests(&mut self) {
        let now = self.shell.now();
        while let Some(ask) = self.checks.next_due(now) {
            let id = ask.id;
            let (link, family) = &ask.subject;
            let link = self.slots.id(link);
            match link.and_then(|link| self.via(link, *family)) {
                Some(via) => self.checks.begin(id, self.surroundings.test(ask, via)),
                None => self.checks.withdraw(id),
            }
        }
    }

    pub(super) fn tested(&mut self, done: (AskId, Outcome)) {
        if self.checks.take(self.shell.now(), done) {
            // The next inspection saves the result.
            self.shell.look_soon();
            self.tell_checks();
        }
    }

    /// The results to be saved for the next daemon.
    pub(super) fn remembered_tests(&self) -> Tested {
        let tests = self.checks.remembered();
        tests
            .map(|((link, family), test, health)| (link.as_str(), *family, test, health))
            .collect()
    }

    /// Tests that cannot be run, a line each.
    pub(super) fn tests_not_made(&self) -> impl Iterator<Item = String> {
        let not_made = self.checks.not_made();
        not_made.map(|((link, _), words)| format!("link {link}: {words}"))
    }

    /// Reports the results to the balancer.
    pub(super) fn tell_checks(&mut self) {
        let now = self.shell.now();
        let links: Vec<(LinkId, String)> = self
            .slots
            .iter()
            .map(|(name, id)| (id, name.to_owned()))
            .collect();
        for (id, name) in links {
            for family in Family::ALL {
                let is_down = self.checks.is_down(&(name.clone(), family));
                self.driver.set_check(now, id, family, is_down);
            }
        }
    }
}
