//! Runs the configuration's checks over each link that they cover, and reports their results to the balancer.

use anabranch_api::CheckStatus;
use anabranch_core::checks::{Ask, AskId, Check, Checks, Health, Outcome, TestStatus};
use anabranch_core::{Family, LinkId, Time};
use tokio::task::JoinSet;

use super::{GatewayRole, Surroundings};
use crate::config::{Config, Link};
use crate::plane::Plane;
use crate::slots::Tested;

/// A link's name, and a family.
pub(crate) type Path = (String, Family);

/// The checks of all links.
pub(crate) struct LinkChecks {
    checks: Checks<Path>,
    under_way: JoinSet<(AskId, Outcome)>,
}

impl LinkChecks {
    /// The checks of `config`, with the results of an earlier daemon.
    pub fn new(config: &Config, known: &Tested) -> Self {
        let mut checks = Checks::new(rand::random());
        checks.set(Time::ZERO, wanted(config));
        checks.recall(|(link, family), test| known.health(link, *family, test));
        Self {
            checks,
            under_way: JoinSet::new(),
        }
    }

    pub fn next_timeout(&self) -> Option<Time> {
        self.checks.next_timeout()
    }

    /// Returns the result of the next test that ends. It never returns if none is running.
    pub async fn done(&mut self) -> anyhow::Result<(AskId, Outcome)> {
        match self.under_way.join_next().await {
            Some(done) => Ok(done?),
            None => std::future::pending().await,
        }
    }

    /// The results to be saved for the next daemon.
    pub fn tested(&self) -> Tested {
        self.checks
            .remembered()
            .map(|((link, family), test, health)| (link.as_str(), *family, test, health))
            .collect()
    }

    fn is_down(&self, path: &Path) -> bool {
        self.checks.health(path) == Health::Down
    }

    /// The check because of which a link is not used, if any.
    pub fn why(&self, link: &str, family: Family) -> Option<String> {
        let failing = self.checks.failing(&(link.to_owned(), family))?;
        let words = failing.words.as_deref().unwrap_or("it failed before");
        Some(format!("a check fails: {}: {words}", failing.test))
    }

    /// Tests that cannot be run, a line each.
    pub fn troubles(&self) -> impl Iterator<Item = String> {
        self.checks.not_made().map(|((link, _), status)| {
            let words = status.words.unwrap_or_default();
            format!("link {link}: {} is not checked: {words}", status.test)
        })
    }

    /// The status of each test over a link.
    pub fn status(&self, link: &str, family: Family) -> Vec<CheckStatus> {
        let tests = self.checks.status(&(link.to_owned(), family)).into_iter();
        tests.map(check_status).collect()
    }
}

fn check_status(status: TestStatus) -> CheckStatus {
    CheckStatus {
        check: status.test.to_string(),
        state: match status.health {
            Health::Up => "up",
            Health::Unknown => "unknown",
            Health::Down => "down",
        }
        .to_owned(),
        succeeds: status.succeeds,
        in_a_row: status.in_a_row,
        why: status.words,
    }
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
        let now = self.shell.now();
        self.checks.checks.set(now, wanted(&self.config));
        self.tell_checks();
    }

    /// Starts the tests that are due. A link that is absent is not tested.
    pub(super) fn make_tests(&mut self) {
        let now = self.shell.now();
        while let Some(ask) = self.checks.checks.poll_ask(now) {
            let (link, family) = &ask.subject;
            let known = self.slots.id(link);
            let Ask { id, .. } = ask;
            match known.and_then(|link| self.via(link, *family)) {
                None => self.checks.checks.withdraw(id),
                Some(via) => {
                    let outcome = self.surroundings.test(ask, via);
                    let made = async move { (id, outcome.await) };
                    self.checks.under_way.spawn(made);
                }
            }
        }
    }

    pub(super) fn tested(&mut self, (id, outcome): (AskId, Outcome)) {
        let before = self.checks.tested();
        self.checks.checks.handle(id, outcome);
        if self.checks.tested() != before {
            // The next inspection saves the result.
            self.shell.look_soon();
            self.tell_checks();
        }
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
