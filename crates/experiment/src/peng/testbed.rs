//! A scenario file at one workload, and what an algorithm comes to there.

use std::sync::Arc;

use anabranch_config::BadInput;
use anabranch_core::Typed;
use anabranch_report::chart::Bars;
use anabranch_results::Summary;
use anabranch_scenario::{Counts, LinkPlan, Load, Network, Policy, Record, Run, Scenario, Tally};

use crate::{Context, ExperimentError, Files, Sample, simulate};

/// L(users, files): users, and the files that each asks for at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload(pub u32, pub u32);

impl Workload {
    /// Less than the capacity of a T1, or about it.
    pub const LIGHT: Workload = Workload(3, 1);
    /// More than it.
    pub const HEAVY: [Workload; 2] = [Workload(3, 3), Workload(10, 3)];
    /// Those of the figures without congestion.
    pub const AGGREGATED: [Workload; 3] = [Workload(3, 1), Workload(3, 3), Workload(10, 3)];
    /// Those of the figures with a congested link.
    pub const CONGESTED: [Workload; 5] = [
        Workload(1, 1),
        Workload(2, 1),
        Workload(3, 1),
        Workload(3, 3),
        Workload(10, 3),
    ];

    /// As in the keys of `expected.toml`.
    pub fn key(self) -> String {
        format!("{}_{}", self.0, self.1)
    }

    /// As the paper writes it.
    pub fn label(self) -> String {
        format!("({},{})", self.0, self.1)
    }
}

/// A file at one workload.
#[derive(Clone, Debug)]
pub struct Testbed {
    scenario: Arc<Scenario>,
}

impl Testbed {
    /// A T1's rate divided into so many links.
    pub fn aggregate(files: &Files, links: usize, load: Workload) -> Result<Testbed, BadInput> {
        let mut testbed = Testbed::of(files, "aggregate.toml", load)?;
        testbed.divide(links);
        Arc::make_mut(&mut testbed.scenario).name = format!("L{links}{}", load.label());
        Ok(testbed)
    }

    /// Downloads without end over all rates of `cut.toml` divided into so many links, of which the first is cut.
    pub fn cut(files: &Files, links: usize) -> Result<Testbed, BadInput> {
        let scenario = Scenario::clone(files.scenario("cut.toml")?.first());
        let mut testbed = Testbed {
            scenario: Arc::new(scenario),
        };
        testbed.divide(links);
        let scenario = Arc::make_mut(&mut testbed.scenario);
        scenario.name = format!("{} L{links}", scenario.name);
        for fault in &mut scenario.faults {
            fault.link = "bl1".to_owned();
        }
        Ok(testbed)
    }

    fn divide(&mut self, count: usize) {
        if let Network::Site(site) = &mut Arc::make_mut(&mut self.scenario).network {
            divide(&mut site.links, count);
        }
    }

    /// A file as it stands, at a workload of pages.
    pub fn of(files: &Files, name: &str, load: Workload) -> Result<Testbed, BadInput> {
        let mut scenario = Scenario::clone(files.scenario(name)?.first());
        if let Load::Pages(pages) = &mut scenario.load {
            (pages.users, pages.files_per_round) = (load.0, load.1);
        }
        scenario.name = format!("{} {}", scenario.name, load.label());
        Ok(Testbed {
            scenario: Arc::new(scenario),
        })
    }

    /// What it is made of.
    pub fn scenario(&self) -> &Arc<Scenario> {
        &self.scenario
    }

    /// What one of the file's algorithms comes to, seed by seed.
    pub fn cell(&self, context: &Context, algorithm: &str) -> Result<Cell, ExperimentError> {
        let seeds = context.seeds();
        let seen = simulate(context, &runs(&self.scenario, algorithm, &seeds)?, seen)?;
        Ok(Cell(seeds.into_iter().zip(seen).collect()))
    }
}

/// One run per seed under the scenario's algorithm of this name.
pub fn runs(
    scenario: &Arc<Scenario>,
    algorithm: &str,
    seeds: &[u64],
) -> Result<Vec<Run>, ExperimentError> {
    let known = scenario.policies.iter().find(|each| each.name == algorithm);
    let policy: &Typed<Policy> = known.ok_or_else(|| {
        ExperimentError::run(&scenario.name, format!("`policies` lacks {algorithm}"))
    })?;
    let run = |&seed| Run::new(scenario.clone(), policy.clone(), seed, Vec::new());
    Ok(seeds.iter().map(run).collect())
}

/// Into so many equal ones of the same rate together.
fn divide(links: &mut Vec<LinkPlan>, count: usize) {
    let mut part = links[0].clone();
    part.up.rate_bps = links.iter().map(|link| link.up.rate_bps).sum::<u64>() / count as u64;
    part.down.rate_bps = links.iter().map(|link| link.down.rate_bps).sum::<u64>() / count as u64;
    let named = |number| LinkPlan {
        name: format!("bl{number}"),
        ..part.clone()
    };
    *links = (1..=count).map(named).collect();
}

/// What the figures need of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// Mean over all sessions of their own throughput.
    pub throughput_bps: f64,
    /// Equation 10.
    pub ebu: f64,
    /// T_c.
    pub completion_s: f64,
    /// Mean absolute deviation of users' throughput.
    pub deviation_bps: f64,
    /// Share of the sessions that BL2 carried.
    pub on_bl2: f64,
    /// What the algorithm sent to measure.
    pub measuring: Tally,
    /// What the gateway sent to know whether its links work.
    pub watching_packets: f64,
}

/// Of a run in either world.
pub fn seen(_: &Run, record: &Record) -> Seen {
    let summary = Summary::of(record);
    let flows: u64 = summary.links.iter().map(|link| link.flows).sum();
    let on_bl2 = summary.links.get(1).map_or(0, |link| link.flows);
    let Counts {
        probes, measuring, ..
    } = record.counts;
    Seen {
        throughput_bps: summary.mean_throughput_bps,
        ebu: summary.ebu,
        completion_s: summary.completion_s,
        deviation_bps: summary.user_deviation_bps,
        on_bl2: on_bl2 as f64 / flows.max(1) as f64,
        measuring,
        watching_packets: (probes.packets - measuring.packets) as f64,
    }
}

/// What an algorithm came to at one workload, by seed.
#[derive(Clone, Debug)]
pub struct Cell(Vec<(u64, Seen)>);

impl Cell {
    /// One of its numbers.
    pub fn of(&self, number: impl Fn(&Seen) -> f64) -> Sample {
        let seeds = self.0.iter();
        seeds.map(|(seed, seen)| (*seed, number(seen))).collect()
    }

    /// Mean throughput.
    pub fn throughput(&self) -> Sample {
        self.of(|seen| seen.throughput_bps)
    }

    /// Effective bandwidth utilisation.
    pub fn ebu(&self) -> Sample {
        self.of(|seen| seen.ebu)
    }
}

/// Seed by seed, the most that any of them has.
pub fn most<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> Sample {
    fold(samples, f64::max)
}

/// Seed by seed, the mean of all.
pub fn mean_of<'a>(samples: impl IntoIterator<Item = &'a Sample> + Clone) -> Sample {
    let count = samples.clone().into_iter().count() as f64;
    fold(samples, |a, b| a + b).map(|sum| sum / count)
}

fn fold<'a>(
    samples: impl IntoIterator<Item = &'a Sample>,
    with: impl Fn(f64, f64) -> f64,
) -> Sample {
    let mut samples = samples.into_iter();
    let first = samples.next().cloned().unwrap_or_default();
    samples.fold(first, |so_far, next| so_far.with(next, &with))
}

/// Bars by workload, a series for each name.
pub fn bars<'a>(
    title: &str,
    y: &str,
    loads: &[Workload],
    series: impl IntoIterator<Item = (&'a str, Vec<Sample>)>,
) -> Bars {
    let bars = Bars::new(title, y, loads.iter().map(|load| load.label()));
    let series = series.into_iter();
    series.fold(bars, |bars, (name, samples)| {
        bars.series(name, samples.iter().map(Sample::plotted))
    })
}
