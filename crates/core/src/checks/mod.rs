//! Checks of the operator: whether something works as required, a link by a page behind it, a server by what it serves.
//!
//! A [`Check`] has [`Test`]s, each of which is repeated ([`Schedule`]). A test is up after [`Check::rise`] successes in a row, and
//! down after [`Check::fall`] failures in a row; in between it keeps its state ([`Count`]). Before its first state it is unknown,
//! and the user of the check decides what that means. A check is up while as many of its tests are up as its quorum requires, and
//! down when that has become impossible. A test that could not be run proves nothing, and does not end a row.
//!
//! A subject may be *suspected* ([`Checks::suspect`]), as a server is that leaves clients without an answer. Its tests are then due at
//! once, and again and again while they fail, until the row is long enough or one succeeds. They have a shorter time limit if the
//! subject is silent to everybody; if it is only slow, it has all the time of its schedule. So a check still decides by nothing but its
//! own results, only sooner. Whoever can cast suspicion can cause some tests, and no verdict.
//!
//! [`Checks`] has the checks of many subjects, of any type. It says when which test has to be run, takes the result, and has the
//! state of each subject. The caller runs the tests, within their time limits; a test is not due again before its result is
//! reported. If a test is the same after a reload, it keeps its state, its row and its turn. State can also be passed on to the
//! next process.
//!
//! The availability of a link ([`availability`](crate::availability)) uses the same kinds of targets ([`ProbeTarget`]), but does
//! not count in this way. It weighs evidence: users' traffic beside probes, how much the link usually loses, what other links show
//! at the same time; and it probes at once when a link is suspected. A check knows only its own results.

mod target;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anabranch_policy::Family;
use anabranch_policy::splitmix::SplitMix64;
use serde::{Deserialize, Serialize};

use crate::time::Time;
pub use target::{Certificate, Expect, Page, ProbeTarget, is_plain, is_status};

/// Time from one test of a suspected subject to the next.
const URGENT_INTERVAL: Duration = Duration::from_millis(100);
/// The part of its time limit that a test of a silent subject is given.
const SILENT_PART: u32 = 6;
/// At least so many times what the test took when it last succeeded.
const SILENT_ROOM: u32 = 2;
/// A test that has just succeeded out of turn is not made so again before.
const TRUSTED: Duration = Duration::from_millis(500);

/// A single test. It succeeds if the expected answer comes in time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Test {
    /// Expects an answer of a target: an echo; an accepted connection; a DNS answer without an error; a page as expected.
    Target(ProbeTarget),
    /// Runs a program of the operator with arguments, and expects exit code 0.
    Command(Arc<[String]>),
}

impl Test {
    /// Whether it can be run over an address family.
    pub fn is_of(&self, family: Family) -> bool {
        match self {
            Test::Target(target) => target.is_of(family),
            Test::Command(_) => true,
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Test::Target(target) => target.fmt(f),
            Test::Command(words) => write!(f, "command {}", words.join(" ")),
        }
    }
}

/// When a test is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Mean time from one run to the next.
    pub interval: Duration,
    /// A run is earlier or later by up to this percentage of the interval, so that tests that begin together do not stay together.
    pub jitter: u32,
    /// How long an answer is awaited; at most the shortest interval.
    pub timeout: Duration,
}

impl Schedule {
    /// The longest deviation of a run from its time.
    pub fn spread(&self) -> Duration {
        self.interval * self.jitter / 100
    }

    /// Time of the first run: soon, but not at the same time for all tests.
    fn first(&self, now: Time, draw: &mut SplitMix64) -> Time {
        now + up_to(self.spread(), draw)
    }

    /// The time limit of a silent subject's test that `took` so long when it last succeeded.
    fn silent_timeout(&self, took: Duration) -> Duration {
        let room = (self.timeout / SILENT_PART).max(took * SILENT_ROOM);
        room.min(self.timeout)
    }

    fn next(&self, asked: Time, draw: &mut SplitMix64) -> Time {
        asked + (self.interval - self.spread()) + up_to(self.spread() * 2, draw)
    }
}

fn up_to(most: Duration, draw: &mut SplitMix64) -> Duration {
    most.mul_f64(draw.draw() as f64 / u64::MAX as f64)
}

/// A number of tests, and how their results are combined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// At least one.
    pub tests: Vec<Test>,
    /// When each of them is run.
    pub schedule: Schedule,
    /// This many successes in a row bring a test up; at least one.
    pub rise: u32,
    /// This many failures in a row take it down; at least one.
    pub fall: u32,
    /// This many tests have to be up, or all if there are fewer; at least one.
    pub quorum: usize,
}

impl Check {
    /// The part of it that can be run over a family, if any.
    pub fn of(&self, family: Family) -> Option<Check> {
        let mut check = self.clone();
        check.tests.retain(|test| test.is_of(family));
        (!check.tests.is_empty()).then_some(check)
    }
}

/// The state of a test, a check, or a subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// It does not work.
    Down,
    /// There are too few results yet.
    #[default]
    Unknown,
    /// It works.
    Up,
}

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The expected answer.
    Success,
    /// Another answer, or none; in words.
    Failure(String),
    /// It was not run, which proves nothing; in words.
    Inconclusive(String),
}

/// Counts successes or failures in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    health: Health,
    succeeds: bool,
    in_a_row: u32,
}

impl Count {
    fn add(&mut self, succeeds: bool, check: &Check) {
        if self.succeeds != succeeds {
            (self.succeeds, self.in_a_row) = (succeeds, 0);
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        match succeeds {
            true if self.in_a_row >= check.rise => self.health = Health::Up,
            false if self.in_a_row >= check.fall => self.health = Health::Down,
            _ => {}
        }
    }
}

/// Combines tests by a quorum. One more test that is up never makes the result worse.
fn together(tests: impl Iterator<Item = Health> + Clone, quorum: usize) -> Health {
    let at_least = |least: Health| tests.clone().filter(|health| *health >= least).count();
    let needed = quorum.min(tests.clone().count());
    if at_least(Health::Up) >= needed {
        Health::Up
    } else if at_least(Health::Unknown) >= needed {
        Health::Unknown
    } else {
        Health::Down
    }
}

/// The number of one run of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AskId(u64);

/// A test that has to be run now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask<S> {
    /// Unique.
    pub id: AskId,
    /// The subject of the check.
    pub subject: S,
    /// The test.
    pub test: Test,
    /// Its time limit.
    pub timeout: Duration,
}

/// The status of one test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestStatus {
    /// The test.
    pub test: Test,
    /// Its state, by rise and fall.
    pub health: Health,
    /// Number of the last results in a row that were all successes, or all failures.
    pub in_a_row: u32,
    /// Whether the last conclusive result was a success.
    pub succeeds: bool,
    /// Why the last run failed, or was not possible.
    pub words: Option<String>,
}

#[derive(Clone, Debug)]
struct Running {
    test: Test,
    count: Count,
    due: Time,
    /// When it is due out of turn, while its subject is suspected.
    urgent: Option<Time>,
    /// Whether it is suspected because it is silent.
    is_silent: bool,
    /// Until when no suspicion counts.
    trusted_until: Time,
    /// The run that is in progress, if any.
    asked: Option<AskId>,
    /// When the last run began.
    asked_at: Time,
    /// How long the last success took.
    took: Duration,
    words: Option<String>,
    /// How often in a row it could not be run.
    not_made: u32,
}

impl Running {
    fn due(&self) -> Time {
        self.urgent.map_or(self.due, |urgent| urgent.min(self.due))
    }

    fn suspect(&mut self, now: Time, is_silent: bool) {
        let is_known = self.urgent.is_some() && self.is_silent >= is_silent;
        if is_known || self.count.health == Health::Down || now < self.trusted_until {
            return;
        }
        self.urgent = Some(now);
        self.is_silent = is_silent;
        if is_silent {
            // It has more time than there is.
            self.asked = None;
        }
    }

    /// Begins a run, and returns its time limit.
    fn ask(&mut self, now: Time, schedule: &Schedule, draw: &mut SplitMix64) -> Duration {
        self.asked_at = now;
        if self.due <= now {
            self.due = schedule.next(now, draw);
        }
        let timeout = match self.urgent.is_some() && self.is_silent {
            true => schedule.silent_timeout(self.took),
            false => schedule.timeout,
        };
        self.urgent = self.urgent.map(|_| now + URGENT_INTERVAL);
        timeout
    }

    fn take(&mut self, now: Time, succeeds: bool, check: &Check) {
        self.not_made = 0;
        self.count.add(succeeds, check);
        if succeeds {
            self.took = now.since(self.asked_at);
        }
        if succeeds && self.urgent.is_some() {
            self.trusted_until = now + TRUSTED;
        }
        if succeeds || self.count.health == Health::Down {
            self.urgent = None;
        }
    }

    fn status(&self) -> TestStatus {
        TestStatus {
            test: self.test.clone(),
            health: self.count.health,
            in_a_row: self.count.in_a_row,
            succeeds: self.count.succeeds,
            words: self.words.clone(),
        }
    }
}

#[derive(Clone, Debug)]
struct Watch {
    check: Check,
    running: Vec<Running>,
}

impl Watch {
    /// Takes over what `former` knows of the same tests, preferably of the same check.
    fn new(now: Time, check: Check, former: &[Watch], draw: &mut SplitMix64) -> Self {
        let same_check = || former.iter().filter(|watch| watch.check == check);
        let tests = check.tests.iter();
        let running = tests.map(|test| {
            let fresh = Running {
                test: test.clone(),
                count: Count::default(),
                due: check.schedule.first(now, draw),
                urgent: None,
                is_silent: false,
                trusted_until: now,
                asked: None,
                asked_at: now,
                took: Duration::ZERO,
                words: None,
                not_made: 0,
            };
            let mut known = same_check().chain(former).flat_map(|watch| {
                let same = watch.running.iter().filter(|known| known.test == *test);
                same.map(|known| (watch.check.schedule == check.schedule, known))
            });
            match known.next() {
                Some((true, known)) => known.clone(),
                Some((false, known)) => Running {
                    due: fresh.due,
                    ..known.clone()
                },
                None => fresh,
            }
        });
        Watch {
            running: running.collect(),
            check,
        }
    }

    fn health(&self) -> Health {
        let tests = self.running.iter().map(|running| running.count.health);
        together(tests, self.check.quorum)
    }
}

/// The checks of many subjects.
#[derive(Clone, Debug)]
pub struct Checks<S> {
    watches: BTreeMap<S, Vec<Watch>>,
    asked: u64,
    draw: SplitMix64,
}

impl<S: Ord + Clone> Checks<S> {
    /// Without checks. `seed` spreads the tests in time.
    pub fn new(seed: u64) -> Self {
        Checks {
            watches: BTreeMap::new(),
            asked: 0,
            draw: SplitMix64(seed),
        }
    }

    // ---- what is to be checked

    /// Sets the subjects and their checks. A test that does not change keeps its state.
    pub fn set(&mut self, now: Time, wanted: impl IntoIterator<Item = (S, Vec<Check>)>) {
        let mut former = std::mem::take(&mut self.watches);
        for (subject, checks) in wanted {
            let known = former.remove(&subject).unwrap_or_default();
            let draw = &mut self.draw;
            let watches = checks.into_iter();
            let watches = watches.map(|check| Watch::new(now, check, &known, draw));
            self.watches.insert(subject, watches.collect());
        }
    }

    /// Sets the states that an earlier process had, as returned by [`remembered`](Self::remembered).
    pub fn recall(&mut self, health_of: impl Fn(&S, &Test) -> Option<Health>) {
        for (subject, running) in running_mut(&mut self.watches) {
            if let Some(health) = health_of(subject, &running.test) {
                running.count.health = health;
            }
        }
    }

    /// The state of each test.
    pub fn remembered(&self) -> impl Iterator<Item = (&S, &Test, Health)> {
        let watches = self.watches.iter();
        let watches = watches.flat_map(|(subject, all)| all.iter().map(move |one| (subject, one)));
        watches.flat_map(|(subject, watch)| {
            let running = watch.running.iter();
            running.map(move |running| (subject, &running.test, running.count.health))
        })
    }

    // ---- what is to be done

    /// When the next test is due.
    pub fn next_timeout(&self) -> Option<Time> {
        let watches = self.watches.values().flatten();
        let running = watches.flat_map(|watch| &watch.running);
        let idle = running.filter(|running| running.asked.is_none());
        idle.map(Running::due).min()
    }

    /// The next test that is due. Its result has to be reported, by [`handle`](Self::handle) or [`withdraw`](Self::withdraw).
    pub fn poll_ask(&mut self, now: Time) -> Option<Ask<S>> {
        let watches = self.watches.iter_mut();
        let mut watches =
            watches.flat_map(|(subject, all)| all.iter_mut().map(move |one| (subject, one)));
        let (subject, schedule, running) = watches.find_map(|(subject, watch)| {
            let due = watch
                .running
                .iter_mut()
                .find(|running| running.asked.is_none() && running.due() <= now)?;
            Some((subject, watch.check.schedule, due))
        })?;
        let id = AskId(self.asked);
        self.asked += 1;
        running.asked = Some(id);
        let timeout = running.ask(now, &schedule, &mut self.draw);
        Some(Ask {
            id,
            subject: subject.clone(),
            test: running.test.clone(),
            timeout,
        })
    }

    /// Reports that something else casts doubt on a subject, maybe that it is silent to everybody: its tests are due at once.
    pub fn suspect(&mut self, now: Time, subject: &S, is_silent: bool) {
        let watches = self.watches.get_mut(subject).into_iter().flatten();
        let running = watches.flat_map(|watch| &mut watch.running);
        running.for_each(|running| running.suspect(now, is_silent));
    }

    // ---- what came of it

    /// Reports that a test was not begun.
    pub fn withdraw(&mut self, id: AskId) {
        self.end(id).for_each(|(_, running)| running.urgent = None);
    }

    /// Ends a run for all checks that wait for it: after a reload, two checks may share the run of one.
    fn end(&mut self, id: AskId) -> impl Iterator<Item = (&Check, &mut Running)> {
        let watches = self.watches.values_mut().flatten();
        watches.flat_map(move |watch| {
            let check = &watch.check;
            let running = watch.running.iter_mut();
            let waiting = running.filter(move |running| running.asked == Some(id));
            waiting.map(move |running| {
                running.asked = None;
                (check, running)
            })
        })
    }

    /// Reports the result of a test. It is ignored if the test is not run any more.
    pub fn handle(&mut self, now: Time, id: AskId, outcome: Outcome) {
        let (succeeds, words) = match outcome {
            Outcome::Success => (Some(true), None),
            Outcome::Failure(words) => (Some(false), Some(words)),
            Outcome::Inconclusive(words) => (None, Some(words)),
        };
        for (check, running) in self.end(id) {
            running.words.clone_from(&words);
            match succeeds {
                Some(succeeds) => running.take(now, succeeds, check),
                None => {
                    running.urgent = None;
                    running.not_made = running.not_made.saturating_add(1);
                }
            }
        }
    }

    // ---- how it is

    /// Down if one of its checks is down, and up if all are up, or if there are none.
    pub fn health(&self, subject: &S) -> Health {
        let watches = self.watches.get(subject).into_iter().flatten();
        watches.map(Watch::health).min().unwrap_or(Health::Up)
    }

    /// A failing test of a check that is down.
    pub fn failing(&self, subject: &S) -> Option<TestStatus> {
        let mut watches = self.watches.get(subject)?.iter();
        let down = watches.find(|watch| watch.health() == Health::Down)?;
        let mut running = down.running.iter();
        let failing = running.find(|running| running.count.health == Health::Down);
        failing.map(Running::status)
    }

    /// Tests that could not be run as often in a row as failures would take them down, and why.
    pub fn not_made(&self) -> impl Iterator<Item = (&S, TestStatus)> {
        self.watches.iter().flat_map(|(subject, watches)| {
            let not_made = watches.iter().flat_map(|watch| {
                let running = watch.running.iter();
                running.filter(|running| running.not_made >= watch.check.fall)
            });
            not_made.map(move |running| (subject, running.status()))
        })
    }

    /// How long the test of a subject took that ended last; none if it failed. The longest of several.
    pub fn took(&self, subject: &S) -> Option<Duration> {
        let watches = self.watches.get(subject).into_iter().flatten();
        let running = watches.flat_map(|watch| &watch.running);
        let took = running.map(|running| running.count.succeeds.then_some(running.took));
        took.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// The status of each test, in the order of the checks.
    pub fn status(&self, subject: &S) -> Vec<TestStatus> {
        let watches = self.watches.get(subject).into_iter().flatten();
        let running = watches.flat_map(|watch| &watch.running);
        running.map(Running::status).collect()
    }
}

fn running_mut<S>(
    watches: &mut BTreeMap<S, Vec<Watch>>,
) -> impl Iterator<Item = (&S, &mut Running)> {
    let watches = watches.iter_mut();
    watches.flat_map(|(subject, all)| {
        let running = all.iter_mut().flat_map(|watch| watch.running.iter_mut());
        running.map(move |running| (subject, running))
    })
}
