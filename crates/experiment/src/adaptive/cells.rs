//! Scenarios, the policies that run there, and what of them is looked at.

use std::sync::Arc;

use anabranch_core::catalogue::{self, TargetKind};
use anabranch_core::{RateNeed, Typed};
use anabranch_results::Summary;
use anabranch_scenario::stats::ratio;
use anabranch_scenario::{Declared, Network, Policy, Record, Run, Scenario};
use anabranch_workload::Transfer;

use crate::peng::{Testbed, Workload};
use crate::{Context, ExperimentError, Sample, simulate};

/// Its policies are those of all.
pub(super) const NEAR: &str = "last-mile.toml";
pub(super) const FAR: &str = "remote.toml";
/// Without workloads of their own.
pub(super) const OTHERS: [&str; 7] = [
    "cut",
    "unequal",
    "cellular",
    "bloat",
    "shared",
    "brown-out",
    "return",
];
pub(super) const OURS: &str = "adaptive";
/// What is asked for of a transfer that is short: a page of Peng's at most.
const SHORT_BYTES: u64 = 50_250;

/// What is looked at of one run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub ebu: f64,
    /// Mean over transfers of their own.
    pub throughput_bps: f64,
    pub goodput_bps: f64,
    /// Of those that are short and ended: one that failed took until then. Not a number where none is short.
    pub short_p95_s: f64,
    /// Of those that ended.
    pub failed: f64,
    /// The same of those that began after the first fault.
    pub failed_after: f64,
    /// Packets sent to measure, of a transfer.
    pub measuring: f64,
}

/// One scenario, and all its policies.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub scenario: Arc<Scenario>,
    policies: Vec<Typed<Policy>>,
}

/// Several of them that are looked at together.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub name: &'static str,
    pub cells: Vec<Cell>,
}

impl Group {
    /// One of Peng's files at all of his workloads.
    pub fn congested(
        context: &Context,
        name: &'static str,
        file: &str,
    ) -> Result<Group, ExperimentError> {
        let loads = Workload::CONGESTED.iter();
        let cells = loads.map(|load| {
            let testbed = Testbed::of(context.files, file, *load)?;
            Cell::new(context, testbed.scenario().clone())
        });
        Ok(Group {
            name,
            cells: cells.collect::<Result<_, ExperimentError>>()?,
        })
    }

    /// A file as it stands.
    pub fn single(context: &Context, name: &'static str) -> Result<Group, ExperimentError> {
        let file = context.files.scenario(&format!("{name}.toml"))?;
        let cells = vec![Cell::new(context, file.first().clone())?];
        Ok(Group { name, cells })
    }

    pub fn all(context: &Context) -> Result<Vec<Group>, ExperimentError> {
        let congested = [("near", NEAR), ("far", FAR)].into_iter();
        let congested = congested.map(|(name, file)| Group::congested(context, name, file));
        let single = OTHERS.iter().map(|name| Group::single(context, name));
        congested.chain(single).collect()
    }

    /// Mean over the cells of a number, seed by seed.
    pub fn mean(
        &self,
        context: &Context,
        policy: &str,
        of: fn(&Seen) -> f64,
    ) -> Result<Sample, ExperimentError> {
        let cells = self.cells.iter();
        let each = cells.map(|cell| cell.sample(context, policy, of));
        let each: Vec<Sample> = each.collect::<Result<_, _>>()?;
        Ok(crate::peng::mean_of(&each))
    }

    /// Those of the catalogue.
    pub fn ranked(&self) -> Vec<&str> {
        self.cells[0].names(true)
    }

    /// Those without an ingredient.
    pub fn ablated(&self) -> Vec<&str> {
        self.cells[0].names(false)
    }
}

impl Cell {
    fn new(context: &Context, scenario: Arc<Scenario>) -> Result<Cell, ExperimentError> {
        let file = context.files.scenario(NEAR)?;
        let policies = file.first().policies.clone();
        Ok(Cell { scenario, policies })
    }

    fn names(&self, of_catalogue: bool) -> Vec<&str> {
        let names = self.policies.iter().map(|policy| policy.name.as_str());
        let is_known = |name: &&str| catalogue::find(TargetKind::Link, name).is_some();
        names
            .filter(|name| is_known(name) == of_catalogue)
            .collect()
    }

    /// What a number of a policy's comes to, seed by seed.
    pub fn sample(
        &self,
        context: &Context,
        policy: &str,
        of: fn(&Seen) -> f64,
    ) -> Result<Sample, ExperimentError> {
        let seeds = context.seeds();
        let seen = simulate(context, &self.runs(policy, &seeds)?, seen)?;
        Ok(seeds.into_iter().zip(seen.iter().map(of)).collect())
    }

    /// Links declare rates to those alone that need them.
    pub fn runs(&self, policy: &str, seeds: &[u64]) -> Result<Vec<Run>, ExperimentError> {
        let known = self.policies.iter().find(|each| each.name == policy);
        let policy = known
            .ok_or_else(|| ExperimentError::run(NEAR, format!("`policies` lacks {policy}")))?;
        let scenario = match policy.policy.facts().needs().rates {
            RateNeed::None => declaring(&self.scenario, false),
            _ => self.scenario.clone(),
        };
        let run = |&seed| Run::new(scenario.clone(), policy.clone(), seed, Vec::new());
        Ok(seeds.iter().map(run).collect())
    }
}

/// The same with links that declare their rates, or none.
pub(super) fn declaring(scenario: &Arc<Scenario>, rates: bool) -> Arc<Scenario> {
    let mut scenario = Scenario::clone(scenario);
    if let Network::Site(site) = &mut scenario.network {
        for link in &mut site.links {
            link.declared = Declared::Actual(rates);
        }
    }
    Arc::new(scenario)
}

fn seen(run: &Run, record: &Record) -> Seen {
    let summary = Summary::of(record);
    let faults = run
        .scenario
        .faults
        .iter()
        .map(|fault| fault.at.as_secs_f64());
    let first_fault_s = faults.fold(f64::INFINITY, f64::min);
    let short = |it: &&Transfer| it.bytes_asked <= SHORT_BYTES;
    let short_s = ended(record).filter(short).map(|it| it.duration_s);
    Seen {
        ebu: summary.ebu,
        throughput_bps: summary.mean_throughput_bps,
        goodput_bps: summary.goodput_bps,
        short_p95_s: percentile_95(short_s.collect()),
        failed: share_failed(ended(record)),
        failed_after: share_failed(ended(record).filter(|it| it.start_s >= first_fault_s)),
        measuring: ratio(
            record.counts.measuring.packets as f64,
            record.transfers.len() as f64,
        ),
    }
}

fn ended(record: &Record) -> impl Iterator<Item = &Transfer> {
    let is_over = |it: &&Transfer| it.outcome.is_ok() || it.outcome.is_failure();
    record.transfers.iter().filter(is_over)
}

fn share_failed<'a>(ended: impl Iterator<Item = &'a Transfer>) -> f64 {
    let (failed, ok): (Vec<_>, Vec<_>) = ended.partition(|it| it.outcome.is_failure());
    ratio(failed.len() as f64, (failed.len() + ok.len()) as f64)
}

/// At most so much is what nineteen of twenty have.
pub(super) fn percentile_95(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let count = (values.len() * 19).div_ceil(20);
    let last = count.checked_sub(1).and_then(|index| values.get(index));
    last.copied().unwrap_or(f64::NAN)
}
