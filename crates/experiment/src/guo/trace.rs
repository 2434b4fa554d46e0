//! The traces of table II, replayed over so many ISPs.

use std::path::Path;
use std::sync::Arc;

use anabranch_scenario::{Load, Network, Policy, Record, Run, Scenario, ScenarioFile};
use anabranch_workload::{Arrival, ArrivalPlan};

use crate::ExperimentError;

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

    fn text(self) -> &'static str {
        match self {
            Trace::One => {
                include_str!("../../../../experiments/2004-guo-multihoming/trace1.toml")
            }
            Trace::Two => {
                include_str!("../../../../experiments/2004-guo-multihoming/trace2.toml")
            }
        }
    }

    /// The scenario file, which has all three ISPs.
    pub fn scenario(self) -> Result<Scenario, ExperimentError> {
        let path = format!("{}.toml", self.name());
        let file = ScenarioFile::parse(Path::new(&path), self.text())
            .map_err(|error| ExperimentError::run(&path, error))?;
        Ok(Scenario::clone(file.first()))
    }

    /// The scenario over the first `isps` of its links.
    pub fn over(self, isps: usize) -> Result<Arc<Scenario>, ExperimentError> {
        let mut scenario = self.scenario()?;
        if let Network::Site(site) = &mut scenario.network {
            site.links.truncate(isps);
        }
        scenario.name = format!("{}-{isps}-isp", self.name());
        Ok(Arc::new(scenario))
    }

    /// What table III says of it over one ISP.
    pub fn published_one_s(self) -> f64 {
        match self {
            Trace::One => 79_400.0,
            Trace::Two => 6_957.0,
        }
    }

    /// Its connections, by the time they begin.
    pub fn arrivals(self, seed: u64) -> Result<Vec<Arrival>, ExperimentError> {
        match self.scenario()?.load {
            Load::Arrivals(ArrivalPlan { pattern, .. }) => {
                Ok(ArrivalPlan { pattern, seed }.arrivals().collect())
            }
            Load::Pages(_) => Err(ExperimentError::run(self.name(), "a trace is no pages")),
        }
    }
}

/// How the links are chosen, by the row of table III.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    Packet,
    Hash,
    /// "Load based": fewest open connections.
    Load,
}

impl Row {
    pub const ALL: [Row; 3] = [Row::Packet, Row::Hash, Row::Load];

    /// As in the keys of `expected.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Row::Packet => "packet",
            Row::Hash => "hash",
            Row::Load => "load",
        }
    }

    fn policy(self) -> Policy {
        let named = |name: &str| Policy::Gateway(name.parse().expect("a row of the table"));
        match self {
            Row::Packet => Policy::Packet,
            Row::Hash => named("hash"),
            Row::Load => named("LCF"),
        }
    }

    /// One run per seed.
    pub fn runs(self, scenario: &Arc<Scenario>, seeds: &[u64]) -> Vec<Run> {
        let run = |&seed| Run::new(scenario.clone(), self.policy(), seed, Vec::new());
        seeds.iter().map(run).collect()
    }
}

/// The paper's metric: all connections count, also those that were given up.
pub fn duration_sum_s(record: &Record) -> f64 {
    record
        .transfers
        .iter()
        .map(|transfer| transfer.duration_s)
        .sum()
}
