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

use anabranch_scenario::{Event, Link, LinkSeries, Record, Run, World};
use anabranch_workload::Transfer;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::output::{read_json, read_series_csv, write_json, write_series_csv};
use crate::rows::{read_transfers_parquet, write_transfers_parquet};
use crate::{BuildId, OutputError, Summary, read_transfers_csv, write_transfers_csv};

const MANIFEST: &str = "manifest.json";
const SUMMARY: &str = "summary.json";
const PARQUET: &str = "transfers.parquet";
const CSV: &str = "transfers.csv";
const SERIES: &str = "links.csv";
const EVENTS: &str = "events.json";
const PAGE: &str = "report.html";

/// How transfers are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rows {
    /// Compressed, in columns.
    #[default]
    Parquet,
    /// Text, for spreadsheets.
    Csv,
}

/// Writes into a directory what a reader opens first: `report.html` and its plots.
pub type WritePage = fn(&Path, &Finished, &Run, Record) -> Result<(), OutputError>;

/// How the directory of a run is written.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Of the transfers.
    pub rows: Rows,
    /// What a reader opens first.
    pub page: WritePage,
}

/// What ran, and whether its result can be trusted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Of Anabranch.
    pub version: String,
    /// The executable that made this.
    pub build: BuildId,
    /// Its name.
    pub scenario: String,
    /// Where it ran.
    pub world: World,
    /// Its name, or its tuple.
    pub policy: String,
    /// Of all that is drawn.
    pub seed: u64,
    /// What the sweep set, by dotted key.
    pub point: BTreeMap<String, String>,
    /// Of all that decides the result.
    pub hash: String,
    /// No problems.
    pub valid: bool,
    /// Why the result cannot be trusted; empty if it can.
    pub problems: Vec<String>,
    /// Kernel, congestion control, lateness, trajectory hash…
    pub conditions: BTreeMap<String, String>,
    /// The resolved scenario: network, faults, load, TCP, and the policy as its tuple.
    pub plan: Value,
}

/// A run whose directory is complete.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// Where it is.
    pub directory: PathBuf,
    /// What ran.
    pub manifest: Manifest,
    /// What came of it.
    pub summary: Summary,
}

impl Manifest {
    fn of(run: &Run, record: &Record, build: &BuildId) -> Manifest {
        Manifest {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            build: build.clone(),
            scenario: run.scenario.name.clone(),
            world: record.world,
            policy: run.policy_name.clone(),
            seed: run.seed,
            point: run.point.iter().cloned().collect(),
            hash: run.hash.clone(),
            valid: record.problems.is_empty(),
            problems: record.problems.clone(),
            conditions: record.conditions.iter().cloned().collect(),
            plan: plan(run),
        }
    }

    /// Whether names, policy and point are those of `run`, whose hash this has.
    fn is_of(&self, run: &Run) -> bool {
        self.scenario == run.scenario.name
            && self.policy == run.policy_name
            && self.point == run.point.iter().cloned().collect()
    }
}

impl Finished {
    /// Writes `directory`, in place of what may be there; its parent must exist.
    pub fn write(
        directory: &Path,
        run: &Run,
        record: Record,
        layout: Layout,
        build: &BuildId,
    ) -> Result<Finished, OutputError> {
        let unfinished = unfinished(directory);
        remove(&unfinished)?;
        fs::create_dir_all(&unfinished).map_err(OutputError::io(&unfinished))?;
        let finished = Finished {
            directory: directory.to_owned(),
            manifest: Manifest::of(run, &record, build),
            summary: Summary::of(&record),
        };
        match layout.rows {
            Rows::Parquet => {
                write_transfers_parquet(&unfinished.join(PARQUET), &record.transfers)?;
            }
            Rows::Csv => write_transfers_csv(&unfinished.join(CSV), &record.transfers)?,
        }
        write_json(&unfinished.join(SUMMARY), &finished.summary)?;
        write_json(&unfinished.join(MANIFEST), &finished.manifest)?;
        write_timeline(&unfinished, &record.series, &record.events)?;
        (layout.page)(&unfinished, &finished, run, record)?;
        remove(directory)?;
        fs::rename(&unfinished, directory).map_err(OutputError::io(directory))?;
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
    /// written: all that `run` and `layout` want otherwise than they are.
    pub fn renamed(self, run: &Run, layout: Layout) -> Result<Finished, OutputError> {
        let name = match layout.rows {
            Rows::Parquet => PARQUET,
            Rows::Csv => CSV,
        };
        if self.manifest.is_of(run) && self.directory.join(name).exists() {
            return Ok(self);
        }
        let record = self.record(run)?;
        Finished::write(&self.directory, run, record, layout, &self.manifest.build)
    }

    /// Whether the evidence can be read, and is what the summary is of: a machine that lost its power may have kept a
    /// file's name and not its bytes.
    pub(crate) fn is_whole(&self, run: &Run) -> bool {
        let record = self.record(run);
        record.is_ok_and(|record| Summary::of(&record) == self.summary)
    }

    /// Every transfer, in the order in which they were written.
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
            down_rate_bps: link.down_rate_bps,
            up_rate_bps: link.up_rate_bps,
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
        self.directory.join(PAGE)
    }
}

/// The links over time and what happened to them, beside the other tables in `directory`.
pub fn write_timeline(
    directory: &Path,
    series: &[LinkSeries],
    events: &[Event],
) -> Result<(), OutputError> {
    write_series_csv(&directory.join(SERIES), series)?;
    write_json(&directory.join(EVENTS), &events)
}

/// The resolved scenario of a run.
fn plan(run: &Run) -> Value {
    let scenario = &run.scenario;
    serde_json::json!({
        "network": scenario.network,
        "faults": scenario.faults,
        "load": run.load(),
        "policy": run.policy,
        "limit_s": scenario.limit.as_secs_f64(),
        "sample_s": scenario.sample.as_secs_f64(),
        "patience_s": scenario.patience.as_secs_f64(),
        "tcp": scenario.tcp,
    })
}

/// Where a directory is before it is complete. Whatever stands there is of a run that was interrupted.
fn unfinished(directory: &Path) -> PathBuf {
    let mut name = directory.file_name().unwrap_or_default().to_owned();
    name.push(".unfinished");
    directory.with_file_name(name)
}

fn remove(directory: &Path) -> Result<(), OutputError> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(OutputError::io(directory)(error))
        }
        _ => Ok(()),
    }
}
