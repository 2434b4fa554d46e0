//! A destination: what is chosen there round by round, and what a download over each link comes to.

use std::sync::Arc;
use std::time::Duration;

use anabranch_config::BadInput;
use anabranch_scenario::{Change, Fault, Load, Loss, Network, Place as Hop, Record, Run, Scenario};
use anabranch_workload::{Arrival, ArrivalPlan, Outcome, Pattern, RemoteServerId, Transfer};

use super::weather;
use crate::{Context, ExperimentError, Sample, simulate};

/// As the figures call them.
pub const PLACES: [&str; 3] = ["de", "us", "jp"];
/// As many as the hit ratios are of; figure 4 (a) has 140.
const ROUNDS: u32 = 100;
const ROUNDS_QUICK: u32 = 30;
/// More than is asked for by who only wants to know a link.
const DOWNLOAD_BYTES: u64 = 1_000_000;

/// One destination in all rounds.
pub struct Place {
    /// One round.
    file: Scenario,
    number: u64,
    pub(super) rounds: u32,
}

/// A round of the truth.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    /// Of a download over each link.
    pub throughput_bps: Vec<f64>,
    /// Of the TCP handshake over each link, when the policy chose; none where a SYN or its answer was lost.
    pub setup_s: Vec<Option<f64>>,
    /// What each link loses at that time.
    pub loss: Vec<f64>,
}

impl Round {
    /// The link with the highest throughput.
    pub fn best(&self) -> usize {
        most(&self.throughput_bps)
    }

    /// The least RTT·√p, in which a link of unknown round trip has no part.
    pub fn least_rtt_root_loss(&self) -> usize {
        let ways = self.setup_s.iter().zip(&self.loss);
        let rate = |(setup_s, loss): (&Option<f64>, &f64)| {
            setup_s.map_or(0.0, |setup_s| 1.0 / (setup_s * loss.sqrt()))
        };
        most(&ways.map(rate).collect::<Vec<_>>())
    }
}

fn most(values: &[f64]) -> usize {
    let all = (0..values.len()).max_by(|a, b| values[*a].total_cmp(&values[*b]));
    all.expect("a link")
}

/// All rounds of one seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Day {
    pub truth: Vec<Round>,
    /// Links, by the race and in turn. Nobody knows the link of what got no answer: [`NONE`].
    pub race: Vec<usize>,
    pub turns: Vec<usize>,
}

impl Place {
    /// One of [`PLACES`].
    pub fn new(context: &Context, name: &str) -> Result<Place, BadInput> {
        let number = PLACES.iter().position(|place| *place == name);
        let rounds = match context.options.quick {
            true => ROUNDS_QUICK,
            false => ROUNDS,
        };
        Ok(Place {
            file: Scenario::clone(context.files.scenario(&format!("{name}.toml"))?.first()),
            number: number.expect("a place") as u64,
            rounds,
        })
    }

    /// Names of the links.
    pub fn links(&self) -> Vec<String> {
        let Network::Site(site) = &self.file.network else {
            return Vec::new();
        };
        site.links.iter().map(|link| link.name.clone()).collect()
    }

    /// Every seed's.
    pub fn days(&self, context: &Context) -> Result<Vec<(u64, Day)>, ExperimentError> {
        let every = self.file.limit;
        let rows = repeated(rows(&self.file), every, self.rounds);
        let seeds = context.seeds();
        let runs = seeds.iter().map(|&seed| {
            // The last download has the time of a round to arrive, as the others have.
            let scenario = self.changing(rows.clone(), every, every * (self.rounds + 1), seed);
            of_policy(scenario, RACE, seed)
        });
        let days = simulate(context, &runs.collect::<Result<Vec<_>, _>>()?, day)?;
        Ok(seeds.into_iter().zip(days).collect())
    }

    /// A run that asks over every link so often for so long.
    pub fn watched(
        &self,
        every: Duration,
        limit: Duration,
        seed: u64,
    ) -> Result<Run, ExperimentError> {
        let small = |row: &&Arrival| row.bytes < DOWNLOAD_BYTES && row.server != CHOSEN;
        let asked: Vec<Arrival> = rows(&self.file).iter().filter(small).copied().collect();
        let count = (limit.as_secs_f64() / every.as_secs_f64()) as u32;
        let rows = repeated(&asked, every, count);
        of_policy(self.changing(rows, every, limit, seed), RACE, seed)
    }

    /// With these rows until `limit`, sampled at every round.
    fn changing(
        &self,
        rows: Vec<Arrival>,
        every: Duration,
        limit: Duration,
        seed: u64,
    ) -> Scenario {
        let mut scenario = with_rows(&self.file, rows);
        (scenario.limit, scenario.sample) = (limit, every);
        scenario.faults = weather::faults(&scenario, seed, self.number);
        scenario
    }
}

/// What a file asks for.
pub fn rows(file: &Scenario) -> &[Arrival] {
    match &file.load {
        Load::Arrivals(ArrivalPlan {
            pattern: Pattern::Rows(rows),
            ..
        }) => rows,
        _ => &[],
    }
}

/// The scenario with these rows in place of its own.
pub fn with_rows(file: &Scenario, rows: Vec<Arrival>) -> Scenario {
    let pattern = Pattern::Rows(rows);
    Scenario {
        load: Load::Arrivals(ArrivalPlan { pattern, seed: 1 }),
        ..file.clone()
    }
}

fn repeated(round: &[Arrival], every: Duration, count: u32) -> Vec<Arrival> {
    let at = |number: u32| {
        round.iter().map(move |row| Arrival {
            at: row.at + every * number,
            ..*row
        })
    };
    (0..count).flat_map(at).collect()
}

/// OFRP, by the older of its names.
pub const RACE: &str = "FRRTDF";
/// Whom the policy chooses a link to, and after those to whom the first links lead, whom links in turn.
const CHOSEN: RemoteServerId = RemoteServerId(0);
const NONE: usize = usize::MAX;

/// A run under one of the scenario's policies.
pub fn of_policy(scenario: Scenario, policy: &str, seed: u64) -> Result<Run, ExperimentError> {
    let known = scenario.policies.iter().find(|each| each.name == policy);
    let policy = known.cloned().ok_or_else(|| {
        ExperimentError::run(&scenario.name, format!("`policies` lacks {policy}"))
    })?;
    Ok(Run::new(Arc::new(scenario), policy, seed, Vec::new()))
}

/// Of every run: its samples are a round apart.
fn day(run: &Run, record: &Record) -> Day {
    let links = record.links.len() as u32;
    Day {
        truth: truth(run, record),
        race: chosen(record, CHOSEN),
        turns: chosen(record, RemoteServerId(links + 1)),
    }
}

pub fn truth(run: &Run, record: &Record) -> Vec<Round> {
    let every = run.scenario.sample;
    let links = record.links.len();
    let round_of = |it: &Transfer| (it.planned_start_s / every.as_secs_f64()) as usize;
    let count = record.transfers.iter().map(round_of).max();
    let round = Round {
        throughput_bps: vec![0.0; links],
        setup_s: vec![None; links],
        loss: Vec::new(),
    };
    let mut rounds = vec![round; count.map_or(0, |last| last + 1)];
    let over_a_link = |it: &&Transfer| (1..=links).contains(&(it.server.0 as usize));
    for transfer in record.transfers.iter().filter(over_a_link) {
        let round = &mut rounds[round_of(transfer)];
        let link = transfer.server.0 as usize - 1;
        if transfer.bytes_asked >= DOWNLOAD_BYTES {
            round.throughput_bps[link] = match transfer.outcome {
                Outcome::Ok => transfer.throughput_bps(),
                _ => 0.0,
            };
        } else if transfer.syn_retransmits == 0 {
            round.setup_s[link] = transfer.setup_s;
        }
    }
    for (number, round) in (0..).zip(&mut rounds) {
        let names = record.links.iter().map(|link| &link.name);
        let loss = names.map(|name| loss_at(&run.scenario, name, every * number));
        round.loss = loss.collect();
    }
    rounds
}

/// What a link loses beyond its last mile.
fn loss_at(scenario: &Scenario, link: &str, at: Duration) -> f64 {
    let of_link = |fault: &&Fault| fault.link == link && fault.place == Hop::Beyond;
    let until = scenario.faults.iter().take_while(|fault| fault.at <= at);
    let losses = until
        .filter(of_link)
        .filter_map(|fault| match fault.change {
            Change::Loss(Loss::Independent { probability }) => Some(probability),
            _ => None,
        });
    losses.last().unwrap_or(0.0)
}

/// The links that what is asked of `server` took, in the order of time.
fn chosen(record: &Record, server: RemoteServerId) -> Vec<usize> {
    let asked = record.transfers.iter().filter(|it| it.server == server);
    let mut asked: Vec<_> = asked.collect();
    asked.sort_by(|a, b| a.planned_start_s.total_cmp(&b.planned_start_s));
    let link = |name: &str| record.links.iter().position(|link| link.name == name);
    let links = asked.iter().map(|it| it.link.as_deref().and_then(link));
    links.map(|link| link.unwrap_or(NONE)).collect()
}

/// The link of the first choice.
pub fn first_chosen(_: &Run, record: &Record) -> usize {
    chosen(record, CHOSEN).first().copied().unwrap_or(NONE)
}

/// One number of every day.
pub fn each(days: &[(u64, Day)], of: impl Fn(&Day) -> f64) -> Sample {
    days.iter().map(|(seed, day)| (*seed, of(day))).collect()
}

/// Share of the rounds in which `links` has the best one.
pub fn hit_ratio(truth: &[Round], links: &[usize]) -> f64 {
    let rounds = truth.iter().zip(links);
    let hits = rounds.filter(|(round, link)| round.best() == **link);
    hits.count() as f64 / truth.len() as f64
}

/// Mean throughput of these links.
pub fn mean_bps(truth: &[Round], links: impl Iterator<Item = usize>) -> f64 {
    let of = |(round, link): (&Round, usize)| round.throughput_bps.get(link).copied();
    let sum: f64 = truth.iter().zip(links).filter_map(of).sum();
    sum / truth.len() as f64
}

/// Mean throughput of `links`, of that of the best one of each round.
pub fn share_of_best(truth: &[Round], links: impl Iterator<Item = usize>) -> f64 {
    mean_bps(truth, links) / mean_bps(truth, truth.iter().map(Round::best))
}
