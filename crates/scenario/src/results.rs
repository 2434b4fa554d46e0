//! The directory of one run.
//!
//! ```text
//! manifest.json        what ran, where, under which conditions, and whether it is valid
//! summary.json         the figures
//! transfers.parquet    one row per transfer (or transfers.csv)
//! links.csv            the links over time
//! events.json          what happened to them
//! report.html          all of it for a reader, with throughput.svg and durations.svg beside it
//! ```
//!
//! The directory is written under another name and renamed when it is complete, so that one that exists is whole.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anabranch_workload::Transfer;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::output::{read_json, read_series_csv, write_json};
use crate::report::{EVENTS, Headline, Report, SERIES};
use crate::rows::{read_transfers_parquet, write_transfers_parquet};
use crate::{
    BuildId, Link, OutputError, Record, Run, Summary, World, format, read_transfers_csv, words,
    write_transfers_csv,
};

const MANIFEST: &str = "manifest.json";
const SUMMARY: &str = "summary.json";
const PARQUET: &str = "transfers.parquet";
const CSV: &str = "transfers.csv";

/// How transfers are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rows {
    #[default]
    Parquet,
    Csv,
}

/// What ran, and whether its result can be trusted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Of Anabranch.
    pub version: String,
    /// The executable that made this.
    pub build: BuildId,
    pub scenario: String,
    pub world: World,
    pub policy: String,
    pub seed: u64,
    /// What the sweep set, by dotted key.
    pub point: BTreeMap<String, String>,
    /// Of all that decides the result.
    pub hash: String,
    /// No problems.
    pub valid: bool,
    pub problems: Vec<String>,
    /// Kernel, congestion control, lateness, trajectory hash…
    pub conditions: BTreeMap<String, String>,
    /// The resolved scenario: network, faults, load, TCP, and the policy as its tuple.
    pub plan: Value,
}

/// A run whose directory is complete.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    pub directory: PathBuf,
    pub manifest: Manifest,
    pub summary: Summary,
}

impl Manifest {
    fn of(run: &Run, record: &Record, build: &BuildId) -> Manifest {
        Manifest {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            build: build.clone(),
            scenario: run.scenario.name.clone(),
            world: record.world,
            policy: run.policy.to_string(),
            seed: run.seed,
            point: run.point.iter().cloned().collect(),
            hash: run.hash.clone(),
            valid: record.problems.is_empty(),
            problems: record.problems.clone(),
            conditions: record.conditions.iter().cloned().collect(),
            plan: run.plan(),
        }
    }

    /// Whether names, policy and point are those of `run`, whose hash this has.
    fn is_of(&self, run: &Run) -> bool {
        self.scenario == run.scenario.name
            && self.policy == run.policy.to_string()
            && self.point == run.point.iter().cloned().collect()
    }
}

impl Finished {
    /// Writes `directory`, in place of what may be there; its parent must exist.
    pub fn write(
        directory: &Path,
        run: &Run,
        record: Record,
        rows: Rows,
        build: &BuildId,
    ) -> Result<Finished, OutputError> {
        let unfinished = unfinished(directory);
        remove(&unfinished)?;
        fs::create_dir_all(&unfinished).map_err(|error| io_error(&unfinished, error))?;
        let finished = Finished {
            directory: directory.to_owned(),
            manifest: Manifest::of(run, &record, build),
            summary: record.summary(),
        };
        match rows {
            Rows::Parquet => {
                write_transfers_parquet(&unfinished.join(PARQUET), &record.transfers)?;
            }
            Rows::Csv => write_transfers_csv(&unfinished.join(CSV), &record.transfers)?,
        }
        write_json(&unfinished.join(SUMMARY), &finished.summary)?;
        write_json(&unfinished.join(MANIFEST), &finished.manifest)?;
        finished.report(run, record).write_page(&unfinished)?;
        remove(directory)?;
        fs::rename(&unfinished, directory).map_err(|error| io_error(directory, error))?;
        Ok(finished)
    }

    /// Reads a directory that [`Finished::write`] wrote.
    pub fn read(directory: &Path) -> Result<Finished, OutputError> {
        Ok(Finished {
            manifest: read_json(&directory.join(MANIFEST))?,
            summary: read_json(&directory.join(SUMMARY))?,
            directory: directory.to_owned(),
        })
    }

    /// Writes again what names and trials beside the run decide and its hash does not, or how its transfers are
    /// written: all that `run` and `rows` want otherwise than they are.
    pub fn renamed(self, run: &Run, rows: Rows) -> Result<Finished, OutputError> {
        let name = match rows {
            Rows::Parquet => PARQUET,
            Rows::Csv => CSV,
        };
        if self.manifest.is_of(run) && self.directory.join(name).exists() {
            return Ok(self);
        }
        let record = self.record(run)?;
        Finished::write(&self.directory, run, record, rows, &self.manifest.build)
    }

    /// Whether the evidence can be read, and is what the summary is of: a machine that lost its power may have kept a
    /// file's name and not its bytes.
    pub(crate) fn is_whole(&self, run: &Run) -> bool {
        let record = self.record(run);
        record.is_ok_and(|record| record.summary() == self.summary)
    }

    pub fn transfers(&self) -> Result<Vec<Transfer>, OutputError> {
        let parquet = self.directory.join(PARQUET);
        if parquet.exists() {
            return read_transfers_parquet(&parquet);
        }
        read_transfers_csv(&self.directory.join(CSV))
    }

    /// The evidence again, of the run that it came of.
    pub fn record(&self, run: &Run) -> Result<Record, OutputError> {
        let Finished {
            manifest, summary, ..
        } = self;
        let links = summary.links.iter().map(|link| Link {
            name: link.name.clone(),
            rate_bps: link.rate_bps,
        });
        let conditions = manifest.conditions.iter();
        Ok(Record {
            world: manifest.world,
            transfers: self.transfers()?,
            series: read_series_csv(&self.directory.join(SERIES), run.series())?,
            events: read_json(&self.directory.join(EVENTS))?,
            links: links.collect(),
            counts: summary.counts.unwrap_or_default(),
            conditions: conditions.map(|(k, v)| (k.clone(), v.clone())).collect(),
            problems: manifest.problems.clone(),
        })
    }

    /// Where the page for readers is.
    pub fn page(&self) -> PathBuf {
        self.directory.join("report.html")
    }

    fn report(&self, run: &Run, record: Record) -> Report {
        let Manifest {
            scenario,
            policy,
            seed,
            world,
            ..
        } = &self.manifest;
        Report {
            title: format!("{scenario}: {policy}"),
            lead: format!(
                "{} transfers {}, seed {seed}.",
                self.summary.transfers,
                world.place()
            ),
            headline: headline(&self.summary),
            manifest: self.facts(run),
            problems: record.problems,
            links: record.links,
            series: record.series,
            events: record.events,
            transfers: record.transfers,
            counts: Some(record.counts),
        }
    }

    fn facts(&self, run: &Run) -> Vec<(String, String)> {
        let Manifest {
            version,
            build,
            hash,
            seed,
            point,
            conditions,
            ..
        } = &self.manifest;
        let fact = |key: &str, value: String| (key.to_owned(), value);
        let mut facts = vec![
            fact("anabranch", version.clone()),
            fact("build", build.as_str().to_owned()),
            fact("hash", hash.clone()),
            fact("seed", seed.to_string()),
        ];
        facts.extend(point.clone());
        // A world may tell the seed and the policy too.
        let told = conditions
            .iter()
            .filter(|(key, _)| !["seed", "policy"].contains(&key.as_str()));
        facts.extend(told.map(|(key, value)| fact(key, value.clone())));
        facts.extend(words::plan(run));
        facts
    }
}

impl Run {
    /// The resolved scenario of this run as JSON.
    fn plan(&self) -> Value {
        let scenario = &self.scenario;
        serde_json::json!({
            "network": scenario.network,
            "faults": scenario.faults,
            "load": self.load(),
            "policy": self.policy,
            "limit_s": scenario.limit.as_secs_f64(),
            "sample_s": scenario.sample.as_secs_f64(),
            "patience_s": scenario.patience.as_secs_f64(),
            "tcp": scenario.tcp,
        })
    }
}

fn headline(summary: &Summary) -> Vec<Headline> {
    let ended = summary.ok + summary.failed;
    let mut tiles = vec![
        Headline::new("Goodput", format::bps(summary.goodput_bps))
            .note(format!("{} of the links", format::percent(summary.ebu))),
        Headline::new("Median duration", format::seconds(summary.duration.p50_s))
            .note(format!("p99 {}", format::seconds(summary.duration.p99_s))),
        Headline::new("Failed", summary.failed.to_string()).note(format!("of {ended} transfers")),
    ];
    if let Some(counts) = &summary.counts {
        let dropped = counts.dropped();
        tiles.push(
            Headline::new("Packets lost", dropped.packets.to_string())
                .note(format::percent(counts.loss_ratio())),
        );
    }
    tiles
}

/// Where a directory is before it is complete. Whatever stands there is of a run that was interrupted.
fn unfinished(directory: &Path) -> PathBuf {
    let mut name = directory.file_name().unwrap_or_default().to_owned();
    name.push(".unfinished");
    directory.with_file_name(name)
}

fn remove(directory: &Path) -> Result<(), OutputError> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error(directory, error)),
        _ => Ok(()),
    }
}

fn io_error(path: &Path, error: io::Error) -> OutputError {
    OutputError::Io {
        path: path.into(),
        error,
    }
}
