//! The traces of table II, replayed over so many ISPs.

use std::sync::Arc;

use anabranch_config::BadInput;
use anabranch_scenario::{Load, Network, Policy, Record, Run, Scenario};
use anabranch_workload::{Arrival, ArrivalPlan};

use crate::{ExperimentError, Files};

/// A trace of table II by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    One,
    Two,
}

impl Trace {
    pub const ALL: [Trace; 2] = [Trace::One, Trace::Two];

    /// As in the keys of `expected.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Trace::One => "trace1",
            Trace::Two => "trace2",
        }
    }

    /// The scenario, which has all three ISPs.
    pub fn scenario(self, files: &Files) -> Result<Scenario, BadInput> {
        let file = files.scenario(&format!("{}.toml", self.name()))?;
        Ok(Scenario::clone(file.first()))
    }

    /// The scenario over the first `isps` of its links.
    pub fn over(self, files: &Files, isps: usize) -> Result<Arc<Scenario>, BadInput> {
        let mut scenario = self.scenario(files)?;
        if let Network::Site(site) = &mut scenario.network {
            site.links.truncate(isps);
        }
        scenario.name = format!("{}-{isps}-isp", self.name());
        Ok(Arc::new(scenario))
    }

    /// Its column of table III, from top to bottom.
    pub fn published_s(self) -> [f64; 7] {
        match self {
            Trace::One => [
                79_400.0, 29_932.0, 30_924.0, 30_618.0, 14_553.0, 16_596.0, 17_531.0,
            ],
            Trace::Two => [
                6_957.0, 2_059.0, 3_357.0, 2_222.0, 1_408.0, 2_019.0, 1_930.0,
            ],
        }
    }

    /// Its connections, by the time they begin.
    pub fn arrivals(self, files: &Files, seed: u64) -> Result<Vec<Arrival>, ExperimentError> {
        match self.scenario(files)?.load {
            Load::Arrivals(ArrivalPlan { pattern, .. }) => {
                Ok(ArrivalPlan { pattern, seed }.arrivals().collect())
            }
            _ => Err(ExperimentError::run(self.name(), "a trace is no pages")),
        }
    }
}

/// How the links are chosen, by the row of table III.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    Packet,
    /// By the sum of addresses and ports.
    Hash,
    /// "Load based": fewest open connections.
    Load,
    /// By CRC-32 of addresses and ports: not in the paper.
    Crc,
}

impl Row {
    pub const PUBLISHED: [Row; 3] = [Row::Packet, Row::Hash, Row::Load];

    /// As in the keys of `expected.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Row::Packet => "packet",
            Row::Hash => "hash",
            Row::Load => "load",
            Row::Crc => "crc",
        }
    }

    /// Who chooses.
    pub fn policy(self) -> Policy {
        let named = |name: &str| Policy::gateway(name.parse().expect("a row of the table"));
        match self {
            Row::Packet => Policy::PACKET,
            Row::Hash => named("hash-sum"),
            Row::Load => named("LCF"),
            Row::Crc => named("hash"),
        }
    }

    /// One run per seed.
    pub fn runs(self, scenario: &Arc<Scenario>, seeds: &[u64]) -> Vec<Run> {
        let scenario = addressed(scenario, self.policy());
        let run = |&seed| Run::new(scenario.clone(), self.policy(), seed, Vec::new());
        seeds.iter().map(run).collect()
    }
}

/// The scenario for a policy: but for packet by packet, a connection has the address of its link, by which it is answered.
pub fn addressed(scenario: &Arc<Scenario>, policy: Policy) -> Arc<Scenario> {
    let mut scenario = Scenario::clone(scenario);
    if let Network::Site(site) = &mut scenario.network {
        for link in &mut site.links {
            link.nat = policy != Policy::PACKET;
        }
    }
    Arc::new(scenario)
}

/// The paper's metric: all connections count, also those that were given up.
pub fn duration_sum_s(record: &Record) -> f64 {
    record
        .transfers
        .iter()
        .map(|transfer| transfer.duration_s)
        .sum()
}
