//! Whether something works as the operator would have it: a link by a page behind it, a server by what it serves.
//!
//! A [`Check`] makes [`Test`]s, each by itself and again and again ([`Schedule`]). A test is up after [`Check::rise`] successes in a row,
//! and down after [`Check::fall`] failures in a row; between them it stays what it was ([`Count`]). Before either it is unknown: whoever
//! asks decides what that means to him. The check is up while as many of its tests are up as its quorum says, and down when so many cannot
//! be any more. A test that could not be made proves nothing, and ends no row.
//!
//! [`Checks`] has the checks of many subjects, of whatever kind they are: it says when which test is to be made, is told what came of it, and
//! says how the subject is. Whoever drives it makes the tests, within their time limits: a test is not begun again before it is told of. What is checked alike after a reload as
//! before it keeps its state, its row and its turn; state can also be handed over to the next process.
//!
//! A link's own availability ([`availability`](crate::availability)) shares with this who can be asked and how ([`ProbeTarget`]), but not the
//! counting. It weighs evidence: users' traffic beside probes, how much the link loses anyway, what other links show at the same time, and
//! it asks at once when something is suspect. A check knows nothing but its own answers.

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

/// One thing that is tried. It succeeds if the answer is right and comes in time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Test {
    /// The right answer: an echo; an accepted connection; a DNS answer without an error; a page as expected.
    Target(ProbeTarget),
    /// A program of the operator's and its arguments: right is exit code 0.
    Command(Arc<[String]>),
}

impl Test {
    /// Whether it can be made of an address family.
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

/// When a test is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// From one to the next, on the average.
    pub interval: Duration,
    /// By so many percent of the interval, at most, the next is earlier or later: those who begin together do not stay together.
    pub jitter: u32,
    /// So long an answer is waited for: no longer than the shortest interval.
    pub timeout: Duration,
}

impl Schedule {
    /// How far from its time a test may be.
    pub fn spread(&self) -> Duration {
        self.interval * self.jitter / 100
    }

    /// The first soon, but not all at once.
    fn first(&self, now: Time, draw: &mut SplitMix64) -> Time {
        now + up_to(self.spread(), draw)
    }

    fn next(&self, asked: Time, draw: &mut SplitMix64) -> Time {
        asked + (self.interval - self.spread()) + up_to(self.spread() * 2, draw)
    }
}

fn up_to(most: Duration, draw: &mut SplitMix64) -> Duration {
    most.mul_f64(draw.draw() as f64 / u64::MAX as f64)
}

/// What is to be done again and again, and what follows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// At least one.
    pub tests: Vec<Test>,
    /// When each of them is made.
    pub schedule: Schedule,
    /// So many successes in a row bring a test up; at least one.
    pub rise: u32,
    /// So many failures in a row take it down; at least one.
    pub fall: u32,
    /// So many tests have to be up, or all if there are fewer; at least one.
    pub quorum: usize,
}

impl Check {
    /// What of it can be made of a family, if anything.
    pub fn of(&self, family: Family) -> Option<Check> {
        let mut check = self.clone();
        check.tests.retain(|test| test.is_of(family));
        (!check.tests.is_empty()).then_some(check)
    }
}

/// What is known of a test, a check, or what is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// It does not work.
    Down,
    /// Too little has been tried.
    #[default]
    Unknown,
    /// It works.
    Up,
}

/// What came of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The right answer.
    Success,
    /// Another one, or none; in words.
    Failure(String),
    /// It was not made, which proves nothing; in words.
    Inconclusive(String),
}

/// Successes or failures in a row.
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

/// Whether enough of them are up, or may be. With one more up it is never worse.
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

/// Names one making of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AskId(u64);

/// A test to make at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask<S> {
    /// Of no other.
    pub id: AskId,
    /// What it is to tell of.
    pub subject: S,
    /// What is to be tried.
    pub test: Test,
    /// So long.
    pub timeout: Duration,
}

/// How one test fares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestStatus {
    /// Which.
    pub test: Test,
    /// By rise and fall.
    pub health: Health,
    /// Successes if the last was one, or else failures, one after the other up to now.
    pub in_a_row: u32,
    /// Whether the last that proved anything was a success.
    pub succeeds: bool,
    /// Why the last one failed, or was not made.
    pub words: Option<String>,
}

#[derive(Clone, Debug)]
struct Running {
    test: Test,
    count: Count,
    due: Time,
    /// While it is under way.
    asked: Option<AskId>,
    words: Option<String>,
    /// So often in a row it was not made.
    not_made: u32,
}

impl Running {
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
    /// With what `former` knows of the same tests: that of the same check, if there is one.
    fn new(now: Time, check: Check, former: &[Watch], draw: &mut SplitMix64) -> Self {
        let same_check = || former.iter().filter(|watch| watch.check == check);
        let tests = check.tests.iter();
        let running = tests.map(|test| {
            let fresh = Running {
                test: test.clone(),
                count: Count::default(),
                due: check.schedule.first(now, draw),
                asked: None,
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
    /// Of none. `seed` spreads the tests.
    pub fn new(seed: u64) -> Self {
        Checks {
            watches: BTreeMap::new(),
            asked: 0,
            draw: SplitMix64(seed),
        }
    }

    // ---- what is to be checked

    /// These subjects by these checks from here on. What is tested as before stays as it is known.
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

    /// What an earlier process knew of tests, as [`remembered`](Self::remembered) told it.
    pub fn recall(&mut self, health_of: impl Fn(&S, &Test) -> Option<Health>) {
        for (subject, running) in running_mut(&mut self.watches) {
            if let Some(health) = health_of(subject, &running.test) {
                running.count.health = health;
            }
        }
    }

    /// What is known of each test.
    pub fn remembered(&self) -> impl Iterator<Item = (&S, &Test, Health)> {
        let watches = self.watches.iter();
        let watches = watches.flat_map(|(subject, all)| all.iter().map(move |one| (subject, one)));
        watches.flat_map(|(subject, watch)| {
            let running = watch.running.iter();
            running.map(move |running| (subject, &running.test, running.count.health))
        })
    }

    // ---- what is to be done

    /// When the next test is to be made.
    pub fn next_timeout(&self) -> Option<Time> {
        let watches = self.watches.values().flatten();
        let running = watches.flat_map(|watch| &watch.running);
        let idle = running.filter(|running| running.asked.is_none());
        idle.map(|running| running.due).min()
    }

    /// The next test to make by now. It is to be told of, by [`handle`](Self::handle) or [`withdraw`](Self::withdraw).
    pub fn poll_ask(&mut self, now: Time) -> Option<Ask<S>> {
        let watches = self.watches.iter_mut();
        let mut watches =
            watches.flat_map(|(subject, all)| all.iter_mut().map(move |one| (subject, one)));
        let (subject, schedule, running) = watches.find_map(|(subject, watch)| {
            let due = watch
                .running
                .iter_mut()
                .find(|running| running.asked.is_none() && running.due <= now)?;
            Some((subject, watch.check.schedule, due))
        })?;
        let id = AskId(self.asked);
        self.asked += 1;
        running.asked = Some(id);
        running.due = schedule.next(now, &mut self.draw);
        Some(Ask {
            id,
            subject: subject.clone(),
            test: running.test.clone(),
            timeout: schedule.timeout,
        })
    }

    // ---- what came of it

    /// It was not begun after all.
    pub fn withdraw(&mut self, id: AskId) {
        self.end(id).for_each(drop);
    }

    /// It is under way no more, for all that wait for it: after a reload two checks may make the test that one has made.
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

    /// Of a test that is not made any more it says nothing.
    pub fn handle(&mut self, id: AskId, outcome: Outcome) {
        let (succeeds, words) = match outcome {
            Outcome::Success => (Some(true), None),
            Outcome::Failure(words) => (Some(false), Some(words)),
            Outcome::Inconclusive(words) => (None, Some(words)),
        };
        for (check, running) in self.end(id) {
            running.words.clone_from(&words);
            match succeeds {
                Some(succeeds) => {
                    running.not_made = 0;
                    running.count.add(succeeds, check);
                }
                None => running.not_made = running.not_made.saturating_add(1),
            }
        }
    }

    // ---- how it is

    /// Down if one of its checks is, and up if all are; also without any.
    pub fn health(&self, subject: &S) -> Health {
        let watches = self.watches.get(subject).into_iter().flatten();
        watches.map(Watch::health).min().unwrap_or(Health::Up)
    }

    /// A test that fails of a check that is down.
    pub fn failing(&self, subject: &S) -> Option<TestStatus> {
        let mut watches = self.watches.get(subject)?.iter();
        let down = watches.find(|watch| watch.health() == Health::Down)?;
        let mut running = down.running.iter();
        let failing = running.find(|running| running.count.health == Health::Down);
        failing.map(Running::status)
    }

    /// Tests that could not be made as often as failures would take them down, and why.
    pub fn not_made(&self) -> impl Iterator<Item = (&S, TestStatus)> {
        self.watches.iter().flat_map(|(subject, watches)| {
            let not_made = watches.iter().flat_map(|watch| {
                let running = watch.running.iter();
                running.filter(|running| running.not_made >= watch.check.fall)
            });
            not_made.map(move |running| (subject, running.status()))
        })
    }

    /// Each test, in the order of the checks.
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
