//! What measuring costs whoever waits for it, and how many measurements a list of destinations takes.

use std::sync::Arc;

use anabranch_core::{Active, Algorithm, Learning, Typed};
use anabranch_scenario::{Load, Policy, Record, Run, Scenario};
use anabranch_workload::{
    Arrival, ArrivalPlan, ClassId, Direction, Pattern, RemoteServerId, UserId,
};

use super::testbed::runs;
use crate::{Context, ExperimentError, Findings, Sample, simulate};

/// Destinations of the text, each in a prefix of its own: those of three links are 900 and 3000 measurements.
const LISTS: [u32; 2] = [300, 1000];
/// Servers of one /24.
const PREFIX: u32 = 256;
/// In how many of the periods each destination is asked for something.
const PERIODS: u32 = 6;

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let file = context.files.scenario("waiting.toml")?;
    let scenario = file.first();
    let seeds = context.seeds();
    let waited = |name| -> Result<Sample, ExperimentError> {
        let setups = simulate(context, &runs(scenario, name, &seeds)?, setup_sum_s)?;
        Ok(seeds.iter().copied().zip(setups).collect())
    };
    let mut findings = Findings::default();
    findings.observe("pcm_s", waited("PCM")?.minus(&waited("RR")?).mean());
    findings.observe("wsdm_s", waited("WSDM")?.minus(&waited("RR")?).mean());
    for listed in LISTS {
        let of_seed = seeds.iter().map(|&seed| listing(scenario, listed, seed));
        let runs: Vec<Run> = of_seed.collect::<Result<_, _>>()?;
        let each = simulate(context, &runs, a_period)?;
        let each: Sample = seeds.iter().copied().zip(each).collect();
        findings.observe(format!("active_{listed}"), each.mean());
    }
    Ok(findings)
}

/// Of all connections, until the handshake is complete.
fn setup_sum_s(_: &Run, record: &Record) -> f64 {
    record.transfers.iter().filter_map(|it| it.setup_s).sum()
}

/// Probes sent in one period. In the first nothing is listed yet.
fn a_period(_: &Run, record: &Record) -> f64 {
    record.counts.measuring.packets as f64 / f64::from(PERIODS - 1)
}

/// The file's links under `active` with a list of so many, all of which are asked for something once in a period.
fn listing(file: &Arc<Scenario>, listed: u32, seed: u64) -> Result<Run, ExperimentError> {
    let known = file.policies.iter().find(|each| each.name == "active");
    let algorithm = known.and_then(|typed| typed.policy.algorithm());
    let Some((algorithm, active)) = algorithm.and_then(|it| Some((it, it.learning.active()?)))
    else {
        return Err(ExperimentError::run(
            &file.name,
            "`policies` lacks active".to_owned(),
        ));
    };
    let period = active.period();
    let algorithm = Algorithm {
        learning: Learning::Active(Active { listed, ..active }),
        ..algorithm
    };
    let mut scenario = Scenario::clone(file);
    scenario.limit = period * PERIODS;
    let row = |number: u32| Arrival {
        at: period * (number / listed) + period * (number % listed) / listed,
        user: UserId(0),
        server: RemoteServerId(number % listed * PREFIX),
        class: ClassId::default(),
        bytes: 1000,
        direction: Direction::default(),
    };
    let rows = (0..listed * PERIODS).map(row).collect();
    scenario.load = Load::Arrivals(ArrivalPlan {
        pattern: Pattern::Rows(rows),
        seed,
    });
    let policy: Typed<Policy> = Policy::gateway(algorithm).into();
    Ok(Run::new(Arc::new(scenario), policy, seed, Vec::new()))
}
