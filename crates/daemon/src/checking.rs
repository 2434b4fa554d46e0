//! Runs checks for a role: keeps which tests are running, and their results.

use std::collections::BTreeMap;
use std::time::Duration;

use anabranch_api::CheckStatus;
use anabranch_core::Time;
use anabranch_core::checks::{Ask, AskId, Check, Checks, Health, Outcome, Test, TestStatus};
use tokio::task::JoinSet;

use crate::commands::Commands;
use crate::probe::{self, Via};

/// The checks of many subjects (links, servers), and their tests that are running.
pub(crate) struct Checking<S> {
    checks: Checks<S>,
    under_way: JoinSet<(AskId, Outcome)>,
}

impl<S: Ord + Clone> Checking<S> {
    /// These subjects with their checks, and the results of an earlier daemon.
    pub fn new(
        wanted: impl IntoIterator<Item = (S, Vec<Check>)>,
        known: impl Fn(&S, &Test) -> Option<Health>,
    ) -> Self {
        let mut checks = Checks::new(rand::random());
        checks.set(Time::ZERO, wanted);
        checks.recall(known);
        Self {
            checks,
            under_way: JoinSet::new(),
        }
    }

    /// Takes over a new configuration. Unchanged tests keep their results.
    pub fn set(&mut self, now: Time, wanted: impl IntoIterator<Item = (S, Vec<Check>)>) {
        self.checks.set(now, wanted);
    }

    pub fn next_timeout(&self) -> Option<Time> {
        self.checks.next_timeout()
    }

    /// The next test that is due: start it with [`begin`](Self::begin), or give it back with [`withdraw`](Self::withdraw).
    pub fn next_due(&mut self, now: Time) -> Option<Ask<S>> {
        self.checks.poll_ask(now)
    }

    pub fn begin(&mut self, id: AskId, made: impl Future<Output = Outcome> + Send + 'static) {
        self.under_way.spawn(async move { (id, made.await) });
    }

    /// The test cannot be run now, which is no result.
    pub fn withdraw(&mut self, id: AskId) {
        self.checks.withdraw(id);
    }

    /// Returns the result of the next test that ends. It never returns if none is running.
    pub async fn done(&mut self) -> anyhow::Result<(AskId, Outcome)> {
        match self.under_way.join_next().await {
            Some(done) => Ok(done?),
            None => std::future::pending().await,
        }
    }

    /// Something else casts doubt on a subject: it is tested at once.
    pub fn suspect(&mut self, now: Time, subject: &S, is_silent: bool) {
        self.checks.suspect(now, subject, is_silent);
    }

    /// Adds a result. Returns whether the health of anything has changed by it.
    pub fn take(&mut self, now: Time, (id, outcome): (AskId, Outcome)) -> bool {
        let health = |checks: &Checks<S>| -> Vec<Health> {
            checks.remembered().map(|(_, _, health)| health).collect()
        };
        let before = health(&self.checks);
        self.checks.handle(now, id, outcome);
        health(&self.checks) != before
    }

    /// The results to be saved for the next daemon.
    pub fn remembered(&self) -> impl Iterator<Item = (&S, &Test, Health)> {
        self.checks.remembered()
    }

    pub fn is_down(&self, subject: &S) -> bool {
        self.checks.health(subject) == Health::Down
    }

    /// How long its last check took; none if that failed.
    pub fn took(&self, subject: &S) -> Option<Duration> {
        self.checks.took(subject)
    }

    /// The check because of which a subject is not used, if any.
    pub fn why(&self, subject: &S) -> Option<String> {
        let failing = self.checks.failing(subject)?;
        let words = failing.words.as_deref().unwrap_or("it failed before");
        Some(format!("a check fails: {}: {words}", failing.test))
    }

    /// Tests that cannot be run, and the subject of each.
    pub fn not_made(&self) -> impl Iterator<Item = (&S, String)> {
        self.checks.not_made().map(|(subject, status)| {
            let words = status.words.unwrap_or_default();
            (subject, format!("{} is not checked: {words}", status.test))
        })
    }

    /// The status of each test of a subject.
    pub fn status(&self, subject: &S) -> Vec<CheckStatus> {
        let tests = self.checks.status(subject).into_iter();
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

/// Makes a test, which leaves by `via`; a command is told `about` whom it is.
pub(crate) async fn make_test(
    test: Test,
    via: Via,
    timeout: Duration,
    commands: Commands,
    about: BTreeMap<String, String>,
) -> Outcome {
    match test {
        Test::Target(target) => probe::test(target, via, timeout).await,
        Test::Command(words) => commands.run(&words, about, timeout).await,
    }
}
