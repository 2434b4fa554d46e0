//! The scenario file: TOML, as short as its subject.
//!
//! ```toml
//! length = "24s"
//! policies = ["WSDM", "RR"]
//! link.fiber = { down = "40mbit", up = "20mbit", delay = "6ms" }
//! link.lte   = { down = "15mbit", up = "8mbit", delay = "22ms", loss = "0.1%" }
//! fault = [{ at = "12s", link = "fiber", change = "cut" }]
//! ```
//!
//! Rates, times, sizes and shares carry their unit. A file has links or a trunk; what happens to them; a workload;
//! and what is tried: policies, seeds, and the points of `[sweep]`, where a dotted key of the file stands for a list of
//! values that take its place one after the other. `docs/scenarios.md` lists every key.
//!
//! Reading has two steps, as for the gateway's configuration: `written` holds the keys as they stand and refuses unknown
//! ones, the other modules judge what they mean together. Every error names the file and its line, the key, the value,
//! and what is allowed.

mod faults;
mod groups;
mod load;
mod network;
mod policies;
mod queue;
mod rules;
mod sweep;
mod tcp;
mod trace;
mod worlds;
mod written;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anabranch_config::{BadInput, Source, Span, is_name, read_text};

use crate::{Load, Network, Point, Policy, Run, Scenario, Tcp};
use network::Lines;
use policies::Ground;
pub use policies::inline as inline_policy;
use written::{File, GroupTable, Seeds};

const NAME_CHARS_MAX: usize = 64;
const LENGTH_MAX: Duration = Duration::from_secs(7 * 86_400);
const SAMPLE_MIN: Duration = Duration::from_millis(1);
/// Of every link.
const SAMPLES_MAX: u128 = 1_000_000;
const LENGTH_DEFAULT: Duration = Duration::from_secs(30);
const SAMPLE_DEFAULT: Duration = Duration::from_millis(100);
const PATIENCE_DEFAULT: Duration = Duration::from_secs(10);
const SEEDS_MAX: usize = 100_000;
/// Of one file: policies × seeds × points.
const RUNS_MAX: usize = 1_000_000;

/// A scenario file that is right in itself.
#[derive(Clone, Debug)]
pub struct ScenarioFile {
    path: PathBuf,
    points: Vec<At>,
}

/// The scenario at one point of the sweep.
#[derive(Clone, Debug)]
struct At {
    point: Point,
    /// The file with the point's values in their places.
    text: String,
    scenario: Arc<Scenario>,
}

impl ScenarioFile {
    /// Reads and expands the file at `path`. An error names file, line, key and what is allowed.
    pub fn load(path: &Path) -> Result<ScenarioFile, BadInput> {
        ScenarioFile::parse(path, &read_text(path)?)
    }

    /// `path` gives the scenario its name if the text does not, and the messages theirs.
    pub fn parse(path: &Path, text: &str) -> Result<ScenarioFile, BadInput> {
        let points = sweep::points(path, text)?;
        let at = |(point, text): (Point, String)| match scenario(path, &text) {
            Ok(scenario) => Ok(At {
                scenario: Arc::new(scenario),
                point,
                text,
            }),
            Err(error) => Err(sweep::at_point(error, &point)),
        };
        let file = ScenarioFile {
            path: path.to_owned(),
            points: points.into_iter().map(at).collect::<Result<_, _>>()?,
        };
        file.bounded()
    }

    /// The scenario at the first point; the only one without a sweep.
    pub fn first(&self) -> &Arc<Scenario> {
        &self.points[0].scenario
    }

    /// The scenario at every point, in the order of the sweep.
    pub fn scenarios(&self) -> impl Iterator<Item = (&Point, &Arc<Scenario>)> {
        self.points.iter().map(|at| (&at.point, &at.scenario))
    }

    /// The same with other policies, each a name or a tuple as in the file.
    pub fn with_policies(mut self, names: &[String]) -> Result<ScenarioFile, BadInput> {
        for at in &mut self.points {
            let ground = Ground {
                network: &at.scenario.network,
                faults: &at.scenario.faults,
            };
            let mut scenario = Scenario::clone(&at.scenario);
            scenario.policies = policies::on_command_line(names, ground)?;
            let source = Source::parse(&self.path, &at.text)?.numbered();
            for typed in &scenario.policies {
                policies::fits_classes(&source, &["--policy"], typed, &scenario.network)?;
            }
            at.scenario = Arc::new(scenario);
        }
        self.bounded()
    }

    /// The same with other seeds.
    pub fn with_seeds(mut self, seeds: &[u64]) -> Result<ScenarioFile, BadInput> {
        for at in &mut self.points {
            let mut scenario = Scenario::clone(&at.scenario);
            scenario.seeds = seeds.to_vec();
            scenario.seeds.sort_unstable();
            scenario.seeds.dedup();
            at.scenario = Arc::new(scenario);
        }
        self.bounded()
    }

    /// Every run, expanded and hashed: points, then policies, then seeds, in the order of the file.
    pub fn runs(&self) -> Vec<Run> {
        let of = |at: &At| {
            let scenario = Arc::clone(&at.scenario);
            let point = at.point.clone();
            let trials = at.scenario.policies.iter().flat_map(|policy| {
                let seeds = at.scenario.seeds.iter();
                seeds.map(move |&seed| (policy.clone(), seed))
            });
            trials
                .map(|(policy, seed)| Run::new(Arc::clone(&scenario), policy, seed, point.clone()))
                .collect::<Vec<_>>()
        };
        self.points.iter().flat_map(of).collect()
    }

    fn bounded(self) -> Result<ScenarioFile, BadInput> {
        let runs = |at: &At| at.scenario.policies.len() * at.scenario.seeds.len();
        let runs: usize = self.points.iter().map(runs).sum();
        if runs > RUNS_MAX {
            return Err(BadInput::new(format!(
                "{}: {runs} runs (policies × seeds × points of the sweep); at most {RUNS_MAX} are allowed",
                self.path.display()
            )));
        }
        match self.one_run_twice() {
            None => Ok(self),
            Some((one, other)) => Err(BadInput::new(format!(
                "{}: sweep: {} and {} have the same runs; what differs between points has to decide a result",
                self.path.display(),
                sweep::in_words(one),
                sweep::in_words(other)
            ))),
        }
    }

    /// Two points of the sweep with a run in common, if there are any: one directory cannot have both.
    fn one_run_twice(&self) -> Option<(&Point, &Point)> {
        let mut by_world: BTreeMap<String, Vec<&At>> = BTreeMap::new();
        for at in self.points.iter().filter(|at| !at.point.is_empty()) {
            let world = Run::new(Arc::clone(&at.scenario), Policy::PACKET, 0, Point::new()).hash;
            by_world.entry(world).or_default().push(at);
        }
        let common = |points: &[&At]| {
            let mut seen = BTreeMap::new();
            points.iter().enumerate().find_map(|(index, at)| {
                let trials = at.scenario.policies.iter().flat_map(|policy| {
                    let seeds = at.scenario.seeds.iter();
                    seeds.map(move |&seed| (policy.policy.to_string(), seed))
                });
                let mut before = trials.filter_map(|trial| seen.insert(trial, index));
                before
                    .find(|&before| before != index)
                    .map(|before| (before, index))
            })
        };
        by_world.into_values().find_map(|points| {
            let (one, other) = common(&points)?;
            Some((&points[one].point, &points[other].point))
        })
    }
}

fn scenario(path: &Path, text: &str) -> Result<Scenario, BadInput> {
    let source = Source::parse(path, text)?.numbered();
    let mut file: File = source.read()?;
    let (rules, default) = (mem::take(&mut file.rule), file.default.take());
    let limit = span(&source, "length", file.length, LENGTH_DEFAULT)?;
    if limit > LENGTH_MAX {
        return Err(source.bad(&["length"], "at most 7 days"));
    }
    let sample = span(&source, "sample", file.sample, SAMPLE_DEFAULT)?;
    if sample < SAMPLE_MIN || sample > limit {
        return Err(source.bad(&["sample"], "from 1 ms to the length of the run"));
    }
    if limit.as_nanos() / sample.as_nanos() > SAMPLES_MAX {
        let problem = format!("more than {SAMPLES_MAX} samples in the length of the run");
        return Err(source.bad(&["sample"], problem));
    }
    let tcp = tcp::tcp(&source, &file.tcp)?;
    let tables = groups::tables(&source, &file)?;
    let tcp_of = |(name, table): &(&str, &GroupTable)| {
        let own = groups::tcp_of(&source, name, table)?;
        Ok(own.unwrap_or_else(|| tcp.clone()))
    };
    let tcps: Vec<Tcp> = tables.iter().map(tcp_of).collect::<Result<_, _>>()?;
    let packet_bytes = |tcp: &Tcp| u64::from(tcp.mss_bytes + tcp.header_bytes);
    let lines = Lines {
        source: &source,
        folder: path.parent().unwrap_or(Path::new("")),
        limit,
        packet_bytes: tcps
            .iter()
            .fold(packet_bytes(&tcp), |most, tcp| most.max(packet_bytes(tcp))),
    };
    let users = tables.iter().map(|(_, table)| table.users).sum();
    let network = network::network(&lines, &file, (!tables.is_empty()).then_some(users))?;
    let faults = faults::faults(&source, &file.fault, &network, limit)?;
    let ground = Ground {
        network: &network,
        faults: &faults,
    };
    let policies = policies::policies(&source, file.policies.clone(), ground)?;
    let load = match tables.is_empty() {
        true => load::demand(&source, file.workload.clone(), None, limit)?.into(),
        false => Load::Groups(groups::groups(&lines, &file, &tables, tcps, limit)?),
    };
    let families = file.family.unwrap_or_default();
    let may_match = rules::Ground {
        families,
        load: &load,
    };
    let network = rules::with_classes(&source, rules, default, network, &policies, may_match)?;
    for (index, typed) in policies.iter().enumerate() {
        policies::fits_classes(&source, &["policies", &index.to_string()], typed, &network)?;
    }
    Ok(Scenario {
        name: name(&source, path, file.name.clone())?,
        families,
        faults,
        load,
        policies,
        seeds: seeds(&source, file.seeds.clone())?,
        network,
        limit,
        sample,
        patience: span(&source, "patience", file.patience, PATIENCE_DEFAULT)?,
        tcp,
    })
}

fn name(source: &Source<'_>, path: &Path, written: Option<String>) -> Result<String, BadInput> {
    let Some(name) = written else {
        let stem = path.file_stem().unwrap_or_default();
        return Ok(stem.to_string_lossy().into_owned());
    };
    if is_name(&name, NAME_CHARS_MAX) {
        return Ok(name);
    }
    Err(source.bad(
        &["name"],
        format!("a name has 1 to {NAME_CHARS_MAX} letters, digits, '-' and '_'"),
    ))
}

fn span(
    source: &Source<'_>,
    key: &str,
    written: Option<Span>,
    default: Duration,
) -> Result<Duration, BadInput> {
    let span = written.map_or(default, |Span(span)| span);
    if span.is_zero() {
        return Err(source.bad(&[key], "must be longer than 0"));
    }
    Ok(span)
}

fn seeds(source: &Source<'_>, written: Option<Seeds>) -> Result<Vec<u64>, BadInput> {
    let seeds: Vec<u64> = match written {
        None => vec![1],
        Some(Seeds::Count(count)) => (1..=count).take(SEEDS_MAX + 1).collect(),
        Some(Seeds::List(seeds)) => seeds,
    };
    if !(1..=SEEDS_MAX).contains(&seeds.len()) {
        return Err(source.bad(&["seeds"], format!("1 to {SEEDS_MAX} seeds are allowed")));
    }
    let mut sorted = seeds.clone();
    sorted.sort_unstable();
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(source.bad(&["seeds"], format!("seed {} is there twice", twice[0])));
    }
    Ok(seeds)
}

/// Names of the links or sublinks, which faults and samples use.
pub(crate) fn link_names(network: &Network) -> Vec<String> {
    match network {
        Network::Site(site) => site.links.iter().map(|link| link.name.clone()).collect(),
        Network::Trunk(trunk) => (0..trunk.sublinks.len()).map(|i| i.to_string()).collect(),
    }
}
