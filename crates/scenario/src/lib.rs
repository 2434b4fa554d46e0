//! What is tried, and what came of it: one scenario file and one result schema for the simulator and the laboratory.
//!
//! A [`ScenarioFile`] says what there is (links or a trunk), what happens to it, what users ask for, and what is tried:
//! policies, seeds, the points of a sweep. It is resolved into [`Scenario`]s and expanded into [`Run`]s, each hashed over
//! all that decides its result. A **world** takes a `Run` and gives back a [`Record`]; [`execute()`] does so for many on all
//! cores, and a [`Sweep`] keeps what is complete and goes on where it stopped, in a [`ResultsDir`] that one process at a
//! time writes to.
//!
//! A record is three kinds of evidence. **Transfers** are what the users saw, one row per file. **Series** are what the
//! links carried and what the gateway believed of them, sampled over time. **Events** are the moments that a reader wants
//! marked: a link cut, its death detected, its return. Beside them it has the [`Counts`] that no transfer tells, and the
//! problems that make a run invalid. Everything else is derived here and nowhere else:
//!
//! - [`Summary`] computes the figures of the field: EBU, T_c, throughput, fairness among users, percentiles, flows and
//!   bytes per link.
//! - [`Finished`] is the directory of one run, [`Comparison`] what many say about the policies, with [`stats`].
//! - [`Report`] renders the evidence as one self-contained HTML page, [`chart`] draws.
//! - [`DemoResult`] is the machine-readable answer of `anabranch demo`.
//!
//! Nothing in this crate reads a clock or a random number: the same evidence renders to the same bytes.

mod build_id;
pub mod chart;
mod comparison;
mod demo;
mod drawings;
mod execute;
mod figure;
mod file;
pub mod format;
mod metrics;
mod output;
mod plan;
mod plots;
mod png;
mod record;
mod repeat;
mod report;
mod results;
mod results_dir;
mod rows;
mod series;
pub mod stats;
mod sweep;
mod words;

pub use anabranch_workload::{Direction, Outcome, Transfer, TransferId, UserId};
pub use build_id::BuildId;
pub use comparison::{Compared, Comparison};
pub use demo::{Cut, CutSeen, DemoLink, DemoResult, DemoRun};
pub use drawings::{Drawings, Drawn};
pub use execute::{Progress, RunFailed, execute};
pub use file::ScenarioFile;
pub use metrics::{Link, LinkSummary, Percentiles, Summary};
pub use output::{
    OutputError, read_transfers_csv, write_json, write_series_csv, write_transfers_csv,
};
pub use plan::{
    Beyond, Buffer, Change, Control, Fault, Growth, Line, LinkPlan, Load, Loss, Network, Place,
    Point, Policy, Recovery, Red, Run, Scenario, Site, Spread, Tcp, Trunk,
};
pub use png::draw_pngs;
pub use record::{Counts, Record, Tally, World};
pub use repeat::{repeat, twice};
pub use report::{Event, EventKind, Headline, Report};
pub use results::{Finished, Manifest, Rows};
pub use results_dir::{ResultsDir, ResultsDirError};
pub use rows::{read_transfers_parquet, write_transfers_parquet};
pub use series::{LinkReading, LinkSample, LinkSeries, LinkState};
pub use sweep::{RunError, Sweep, SweepError};
