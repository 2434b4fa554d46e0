//! What runs came to, derived from their records here and nowhere else, and kept.
//!
//! [`execute()`] carries out many [`Run`](anabranch_scenario::Run)s on all cores. A [`Sweep`] keeps what is complete and
//! goes on where it stopped, in a [`ResultsDir`] that one process at a time writes to; [`Finished`] is the directory of one
//! run. Of a [`Record`](anabranch_scenario::Record):
//!
//! - [`Summary`] computes the figures of the field: EBU, T_c, throughput, fairness among users, percentiles, flows and
//!   bytes per link. [`FIGURES`] is the table of those that runs are compared by, with names, meanings and units.
//! - [`Comparison`] is what many runs say about the policies, with [`stats`](anabranch_scenario::stats).
//! - [`DemoResult`] is the machine-readable answer of `anabranch-lab demo`.
//!
//! The page of a run is drawn by whoever keeps it ([`Layout`]): this crate draws nothing. Nothing here reads a clock or a
//! random number: the same evidence gives the same bytes.

#![deny(missing_docs)]

mod build_id;
mod comparison;
mod demo;
mod execute;
mod figures;
mod finished;
mod metrics;
mod output;
mod repeat;
mod results_dir;
mod rows;
mod sweep;

pub use build_id::{BuildId, sha256_hex};
pub use comparison::{Compared, Comparison};
pub use demo::{Cut, CutSeen, DemoLink, DemoResult, DemoRun};
pub use execute::{Progress, RunFailed, execute};
pub use figures::{FIGURES, Figure, Quantity};
pub use finished::{Finished, Layout, Manifest, Rows, WritePage, write_timeline};
pub use metrics::{
    Distribution, LinkSummary, PartSummary, Percentiles, Summary, directions, succeeded,
};
pub use output::{
    OutputError, read_json, read_transfers_csv, write_json, write_records, write_series_csv,
    write_transfers_csv,
};
pub use repeat::{repeat, twice};
pub use results_dir::{ResultsDir, ResultsDirError};
pub use rows::{read_transfers_parquet, write_transfers_parquet};
pub use sweep::{RunError, Sweep, SweepError};
