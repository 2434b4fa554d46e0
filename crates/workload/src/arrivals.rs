//! Open-loop arrivals: transfers begin when they begin, whatever became of those before.
//!
//! The [`Pattern`] of an [`ArrivalPlan`] is one of three things. A [`Mix`] is a set of **classes**; in each class every user asks at the
//! times of a Poisson process for objects of the class's size: Jo's 1200 clients. A [`Trace`] stands for a recording of
//! which only the totals are known: so many connections, so many bytes, so long; sizes are drawn and scaled until the
//! totals are met exactly: Guo's table II. [`Pattern::Rows`] says each transfer itself.
//!
//! [`Bursts`] make arrivals bursty without changing their mean: a process that is common to all users of a class turns
//! between burst and quiet after exponential times (a two-state Markov-modulated Poisson process). It acts as a clock:
//! arrivals are Poisson in *operational time*, which passes faster in a burst. So every user keeps a random stream of
//! its own, and a user or class added to a plan changes nothing for the others.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use anabranch_line::Direction;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::ids::{RemoteServerId, UserId};
use crate::size::open_unit;
use crate::{BadSize, Size};

/// A class of a [`Mix`], from 0 in the order of the plan; 0 for traces.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ClassId(pub u32);

/// One transfer over a connection of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrival {
    /// When the user opens the connection, since the workload began.
    pub at: Duration,
    /// Who opens it.
    pub user: UserId,
    /// Whom it asks.
    pub server: RemoteServerId,
    /// Of which kind it is.
    #[serde(default)]
    pub class: ClassId,
    /// Of the file, without headers.
    pub bytes: u64,
    /// Which way the file goes.
    #[serde(default)]
    pub direction: Direction,
}

/// Which transfers begin when. The same plan draws the same arrivals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrivalPlan {
    /// What is known of the transfers.
    pub pattern: Pattern,
    /// Of the draws: same seed, same arrivals.
    pub seed: u64,
}

/// What an [`ArrivalPlan`] knows about its transfers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Pattern {
    /// Kinds of transfers at mean rates.
    Mix(Mix),
    /// A synthetic recording with exact totals.
    Trace(Trace),
    /// In any order.
    Rows(Vec<Arrival>),
}

/// Users who ask for objects of several classes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// How many, each with its own address.
    pub users: u32,
    /// Each transfer asks any of these, with equal probability, unless its class has servers of its own.
    pub servers: u32,
    /// No transfer begins this long after the workload began, in seconds.
    pub duration_s: f64,
    /// Every class has exactly its expected number of transfers and of bytes, whatever the seed: the Poisson process
    /// given its totals, sizes scaled to theirs. Runs of different seeds then differ in when and whom, not in how much.
    #[serde(default)]
    pub exact: bool,
    /// The kinds; at least one.
    pub classes: Vec<Class>,
}

/// One kind of transfer in a [`Mix`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// For people; part of figures and tables.
    pub name: String,
    /// Mean rate at which each user begins transfers of this class.
    pub per_user_per_s: f64,
    /// Of one transfer.
    pub size: Size,
    /// Each transfer asks any of these, in place of any of the mix; none twice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<RemoteServerId>,
    /// Which way the bytes go.
    #[serde(default)]
    pub direction: Direction,
    /// Poisson arrivals if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bursts: Option<Bursts>,
}

/// How arrivals crowd: a share of them falls into bursts. Lengths are exponential.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bursts {
    /// Mean length of a burst, in seconds.
    pub burst_s: f64,
    /// Mean length of the quiet between bursts, in seconds.
    pub quiet_s: f64,
    /// Expected share of the arrivals that fall into bursts, below 1.
    pub share: f64,
}

/// A synthetic recording with exact totals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// How many transfers, exactly.
    pub connections: u32,
    /// Bytes of all transfers together.
    pub bytes: u64,
    /// Length of the recording, in seconds.
    pub duration_s: f64,
    /// Shape of the distribution of sizes; its scale follows from the totals.
    pub size: Size,
    /// Which way the bytes go.
    #[serde(default)]
    pub direction: Direction,
    /// Transfers fall to any of so many, with equal probability.
    pub users: u32,
    /// And ask any of so many.
    pub servers: u32,
    /// Arrivals uniform over the recording if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bursts: Option<Bursts>,
}

/// Why a plan cannot be carried out.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum BadPlan {
    #[error("{key} = {value} is not possible; {allowed}")]
    Value {
        /// The key within the plan.
        key: &'static str,
        value: f64,
        allowed: &'static str,
    },
    #[error("classes is empty; name at least one class")]
    NoClass,
    #[error("class \"{class}\": {bad}")]
    Class { class: String, bad: Box<BadPlan> },
    #[error("size: {0}")]
    Size(#[from] BadSize),
    #[error("the trace has {connections} connections and {bytes} bytes; each needs at least one")]
    TooFewBytes { connections: u32, bytes: u64 },
}

impl ArrivalPlan {
    /// All transfers in the order in which they begin. The pattern must pass [`Pattern::check`].
    pub fn arrivals(&self) -> Arrivals {
        Arrivals(match &self.pattern {
            Pattern::Mix(mix) if mix.exact => listed(mix.rows(self.seed)),
            Pattern::Mix(mix) => Source::Drawn(Merge::new(mix, self.seed)),
            Pattern::Trace(trace) => listed(trace.rows(self.seed, ClassId(0))),
            Pattern::Rows(rows) => listed(rows.clone()),
        })
    }
}

fn listed(mut rows: Vec<Arrival>) -> Source {
    rows.sort_by_key(|row| row.at);
    Source::Listed(rows.into_iter())
}

impl Pattern {
    /// The first thing that makes no sense.
    pub fn check(&self) -> Result<(), BadPlan> {
        match self {
            Pattern::Mix(mix) => mix.check(),
            Pattern::Trace(trace) => trace.check(),
            Pattern::Rows(rows) => {
                let empty = rows.iter().any(|row| row.bytes == 0);
                at_least_one("bytes", u64::from(!empty))
            }
        }
    }

    /// Of the classes, by their numbers; none have names but those of a mix.
    pub fn class_names(&self) -> impl Iterator<Item = &str> {
        let classes = match self {
            Pattern::Mix(mix) => &mix.classes[..],
            Pattern::Trace(_) | Pattern::Rows(_) => &[],
        };
        classes.iter().map(|class| class.name.as_str())
    }

    /// One more than the highest user.
    pub fn users(&self) -> u32 {
        match self {
            Pattern::Mix(mix) => mix.users,
            Pattern::Trace(trace) => trace.users,
            Pattern::Rows(rows) => rows.iter().map(|row| row.user.0 + 1).max().unwrap_or(0),
        }
    }

    /// One more than the highest server.
    pub fn servers(&self) -> u32 {
        match self {
            Pattern::Mix(mix) => {
                let own = mix.classes.iter().flat_map(|class| &class.servers);
                own.fold(mix.servers, |count, server| count.max(server.0 + 1))
            }
            Pattern::Trace(trace) => trace.servers,
            Pattern::Rows(rows) => rows.iter().map(|row| row.server.0 + 1).max().unwrap_or(0),
        }
    }
}

impl Mix {
    fn check(&self) -> Result<(), BadPlan> {
        at_least_one("users", self.users.into())?;
        at_least_one("servers", self.servers.into())?;
        positive("duration_s", self.duration_s)?;
        if self.classes.is_empty() {
            return Err(BadPlan::NoClass);
        }
        self.classes.iter().try_for_each(|class| {
            let totals = || match self.exact {
                true => self.totals(class).check(),
                false => Ok(()),
            };
            class
                .check()
                .and_then(|()| totals())
                .map_err(|bad| BadPlan::Class {
                    class: class.name.clone(),
                    bad: Box::new(bad),
                })
        })
    }

    /// What is expected of a class, as a recording of just that.
    fn totals(&self, class: &Class) -> Trace {
        let expected = f64::from(self.users) * class.per_user_per_s * self.duration_s;
        let connections = expected.round() as u32;
        Trace {
            connections,
            bytes: (f64::from(connections) * class.size.mean_bytes()).round() as u64,
            duration_s: self.duration_s,
            size: class.size,
            direction: class.direction,
            users: self.users,
            servers: class.choices(self.servers),
            bursts: class.bursts,
        }
    }

    fn rows(&self, seed: u64) -> Vec<Arrival> {
        let classes = (0..).map(ClassId).zip(&self.classes);
        let of_class = |(id, class): (ClassId, &Class)| {
            let mut rows = self.totals(class).rows(seed, id);
            for row in &mut rows {
                row.server = class.server(row.server.0);
            }
            rows
        };
        classes.flat_map(of_class).collect()
    }

    /// Mean load in bit/s that the classes offer in `direction`.
    pub fn offered_bps(&self, direction: Direction) -> f64 {
        let of_direction = self
            .classes
            .iter()
            .filter(|class| class.direction == direction);
        let per_user: f64 = of_direction
            .map(|class| class.per_user_per_s * class.size.mean_bytes() * 8.0)
            .sum();
        per_user * f64::from(self.users)
    }
}

impl Class {
    fn check(&self) -> Result<(), BadPlan> {
        positive("per_user_per_s", self.per_user_per_s)?;
        self.size.check()?;
        self.bursts.iter().try_for_each(Bursts::check)
    }

    /// Among how many servers its transfers choose, where the mix has `all`.
    fn choices(&self, all: u32) -> u32 {
        match self.servers.len() {
            0 => all,
            own => own as u32,
        }
    }

    /// The one that was chosen.
    fn server(&self, choice: u32) -> RemoteServerId {
        let own = self.servers.get(choice as usize);
        own.copied().unwrap_or(RemoteServerId(choice))
    }
}

impl Bursts {
    fn check(&self) -> Result<(), BadPlan> {
        positive("burst_s", self.burst_s)?;
        positive("quiet_s", self.quiet_s)?;
        if (0.0..1.0).contains(&self.share) {
            return Ok(());
        }
        Err(BadPlan::Value {
            key: "share",
            value: self.share,
            allowed: "must be at least 0 and below 1",
        })
    }

    /// Share of the time that is burst.
    fn duty(&self) -> f64 {
        self.burst_s / (self.burst_s + self.quiet_s)
    }
}

impl Trace {
    fn check(&self) -> Result<(), BadPlan> {
        at_least_one("connections", self.connections.into())?;
        at_least_one("users", self.users.into())?;
        at_least_one("servers", self.servers.into())?;
        positive("duration_s", self.duration_s)?;
        self.size.check()?;
        self.bursts.iter().try_for_each(Bursts::check)?;
        if self.bytes < u64::from(self.connections) {
            return Err(BadPlan::TooFewBytes {
                connections: self.connections,
                bytes: self.bytes,
            });
        }
        Ok(())
    }

    fn rows(&self, seed: u64, class: ClassId) -> Vec<Arrival> {
        let mut ends = stream(seed, class.0, ENDS);
        let sizes = self.sizes(&mut stream(seed, class.0, SIZES));
        let times = self.times(seed, class);
        times
            .into_iter()
            .zip(sizes)
            .map(|(at, bytes)| Arrival {
                at,
                user: UserId(ends.random_range(0..self.users)),
                server: RemoteServerId(ends.random_range(0..self.servers)),
                class,
                bytes,
                direction: self.direction,
            })
            .collect()
    }

    /// Instants that are uniform in operational time, in order.
    fn times(&self, seed: u64, class: ClassId) -> Vec<Duration> {
        let mut clock = Clock::new(self.bursts, stream(seed, class.0, CLOCK));
        let length = clock.operational(self.duration_s);
        let mut random = stream(seed, class.0, TIMES);
        let mut times: Vec<Duration> = (0..self.connections)
            .map(|_| clock.real(random.random::<f64>() * length))
            .map(Duration::from_secs_f64)
            .collect();
        times.sort_unstable();
        times
    }

    /// A byte for each connection, and the rest of all bytes in proportion to what is drawn.
    fn sizes(&self, random: &mut ChaCha8Rng) -> Vec<u64> {
        let drawn: Vec<u64> = (0..self.connections)
            .map(|_| self.size.draw(random))
            .collect();
        let sum: u128 = drawn.iter().map(|&bytes| u128::from(bytes)).sum();
        let rest = u128::from(self.bytes - u64::from(self.connections));
        let (mut upto, mut given) = (0u128, 0u128);
        drawn
            .into_iter()
            .map(|bytes| {
                upto += u128::from(bytes);
                let share = rest * upto / sum - given;
                given += share;
                1 + share as u64
            })
            .collect()
    }
}

fn at_least_one(key: &'static str, value: u64) -> Result<(), BadPlan> {
    if value > 0 {
        return Ok(());
    }
    Err(BadPlan::Value {
        key,
        value: 0.0,
        allowed: "must be at least 1",
    })
}

fn positive(key: &'static str, value: f64) -> Result<(), BadPlan> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err(BadPlan::Value {
        key,
        value,
        allowed: "must be greater than 0",
    })
}

// Streams of a class beside those of its users.
const CLOCK: u32 = u32::MAX;
const TIMES: u32 = u32::MAX - 1;
const SIZES: u32 = u32::MAX - 2;
const ENDS: u32 = u32::MAX - 3;

fn stream(seed: u64, class: u32, of: u32) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(u64::from(class) << 32 | u64::from(of));
    random
}

/// Transfers in the order in which they begin.
#[derive(Clone, Debug)]
pub struct Arrivals(Source);

#[derive(Clone, Debug)]
enum Source {
    Drawn(Merge),
    Listed(std::vec::IntoIter<Arrival>),
}

impl Iterator for Arrivals {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        match &mut self.0 {
            Source::Drawn(merge) => merge.next(),
            Source::Listed(rows) => rows.next(),
        }
    }
}

/// The processes of all users and classes, merged by time, then class, then user.
#[derive(Clone, Debug)]
struct Merge {
    classes: Vec<Class>,
    clocks: Vec<Clock>,
    users: Vec<UserProcess>,
    next: BinaryHeap<Reverse<(Duration, usize)>>,
    servers: u32,
    end: Duration,
}

/// The transfers of one user in one class.
#[derive(Clone, Debug)]
struct UserProcess {
    class: u32,
    user: UserId,
    /// Operational time of the last arrival, in seconds.
    operational_s: f64,
    random: ChaCha8Rng,
}

impl Merge {
    fn new(mix: &Mix, seed: u64) -> Merge {
        let classes = 0..mix.classes.len() as u32;
        let clock = |(class, bursts)| Clock::new(bursts, stream(seed, class, CLOCK));
        let process = |class, user| UserProcess {
            class,
            user: UserId(user),
            operational_s: 0.0,
            random: stream(seed, class, user),
        };
        let bursts = mix.classes.iter().map(|class| class.bursts);
        let mut merge = Merge {
            clocks: classes.clone().zip(bursts).map(clock).collect(),
            users: classes
                .flat_map(|class| (0..mix.users).map(move |user| process(class, user)))
                .collect(),
            classes: mix.classes.clone(),
            next: BinaryHeap::new(),
            servers: mix.servers,
            end: Duration::from_secs_f64(mix.duration_s),
        };
        for index in 0..merge.users.len() {
            merge.schedule(index);
        }
        merge
    }

    /// Draws the user's next instant and queues it if it falls within the workload.
    fn schedule(&mut self, index: usize) {
        let process = &mut self.users[index];
        let class = process.class as usize;
        let wait = -open_unit(&mut process.random).ln() / self.classes[class].per_user_per_s;
        process.operational_s += wait;
        let real_s = self.clocks[class].real(process.operational_s);
        if let Ok(at) = Duration::try_from_secs_f64(real_s)
            && at < self.end
        {
            self.next.push(Reverse((at, index)));
        }
    }

    fn next(&mut self) -> Option<Arrival> {
        let Reverse((at, index)) = self.next.pop()?;
        let process = &mut self.users[index];
        let class = &self.classes[process.class as usize];
        let choice = process.random.random_range(0..class.choices(self.servers));
        let arrival = Arrival {
            at,
            user: process.user,
            server: class.server(choice),
            class: ClassId(process.class),
            bytes: class.size.draw(&mut process.random),
            direction: class.direction,
        };
        self.schedule(index);
        Some(arrival)
    }
}

/// Operational time: passes at rate 1 on average, faster in bursts, slower between them.
#[derive(Clone, Debug)]
struct Clock {
    bursts: Option<Bursts>,
    random: ChaCha8Rng,
    /// Beginnings of the spans drawn so far, and the end of the last.
    spans: Vec<Instant>,
    in_burst: bool,
}

/// One instant in both times, in seconds.
#[derive(Clone, Copy, Debug)]
struct Instant {
    real_s: f64,
    operational_s: f64,
}

impl Clock {
    fn new(bursts: Option<Bursts>, mut random: ChaCha8Rng) -> Clock {
        let in_burst = bursts.is_some_and(|bursts| random.random::<f64>() < bursts.duty());
        Clock {
            bursts,
            random,
            spans: vec![Instant {
                real_s: 0.0,
                operational_s: 0.0,
            }],
            in_burst,
        }
    }

    /// Real time in seconds at an operational time.
    fn real(&mut self, operational_s: f64) -> f64 {
        self.convert(operational_s, |at| at.operational_s, |at| at.real_s)
    }

    /// Operational time in seconds at a real time.
    fn operational(&mut self, real_s: f64) -> f64 {
        self.convert(real_s, |at| at.real_s, |at| at.operational_s)
    }

    fn convert(&mut self, x: f64, from: fn(&Instant) -> f64, to: fn(&Instant) -> f64) -> f64 {
        let Some(bursts) = self.bursts else {
            return x;
        };
        while from(&self.spans[self.spans.len() - 1]) <= x {
            self.extend(bursts);
        }
        let after = self.spans.partition_point(|at| from(at) <= x);
        let (begin, end) = (&self.spans[after - 1], &self.spans[after]);
        let part = (x - from(begin)) / (from(end) - from(begin));
        to(begin) + part * (to(end) - to(begin))
    }

    fn extend(&mut self, bursts: Bursts) {
        let (mean_s, rate) = if self.in_burst {
            (bursts.burst_s, bursts.share / bursts.duty())
        } else {
            (bursts.quiet_s, (1.0 - bursts.share) / (1.0 - bursts.duty()))
        };
        let length_s = -open_unit(&mut self.random).ln() * mean_s;
        let last = self.spans[self.spans.len() - 1];
        self.spans.push(Instant {
            real_s: last.real_s + length_s,
            operational_s: last.operational_s + length_s * rate,
        });
        self.in_burst = !self.in_burst;
    }
}

#[cfg(test)]
mod tests;
