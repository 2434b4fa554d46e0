//! What is tried, and what is recorded of it: one scenario file and one record for the simulator and the laboratory.
//!
//! A [`ScenarioFile`] says what there is (links or a trunk), what happens to it, what users ask for, and what is tried:
//! policies, seeds, the points of a sweep. It is resolved into [`Scenario`]s and expanded into [`Run`]s, each hashed over
//! all that decides its result. A **world** takes a `Run` and gives back a [`Record`].
//!
//! A record is three kinds of evidence. **Transfers** are what the users saw, one row per file. **Series** are what the
//! links carried and what the gateway believed of them, sampled over time. **Events** are the moments that a reader wants
//! marked: a link cut, its death detected, its return. Beside them it has the [`Counts`] that no transfer tells, and the
//! problems that make a run invalid. What follows from a record is derived in `anabranch-results`, and shown by
//! `anabranch-report`.
//!
//! Nothing in this crate reads a clock or a random number, or writes a file.

#![deny(missing_docs)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod event;
mod file;
mod hosts;
mod plan;
mod policy;
mod record;
mod series;
pub mod stats;
#[cfg(feature = "testing")]
pub mod testing;

pub use anabranch_config::format;
pub use anabranch_core::multilink::Spread;
pub use anabranch_core::{Family, Typed};
pub use anabranch_line::{
    Buffer, Cable, Change, Codel, FqCodel, Impairments, Leaving, Line, Loss, Lte, MTU_MAX_BYTES,
    MTU_MIN_BYTES, ManagedQueue, NEAREST, Nature, Opportunities, Passage, Queue, Red, Service,
    Sort, Tally, Trace, TraceSource, Waiting,
};
pub use anabranch_peers::Peer;
pub use anabranch_workload::{Direction, Outcome, RemoteServerId, Transfer, TransferId, UserId};
pub use event::{Event, EventKind, loss_text};
pub use file::{ScenarioFile, inline_policy};
pub use hosts::{Families, Hosts, hops_to};
pub use plan::{
    Access, Beyond, Control, Declared, Demand, Fault, Group, Growth, LinkPlan, Load, Network,
    Place, Point, Ports, Probe, Recovery, Run, Scenario, Site, Tcp, Trunk,
};
pub use policy::{Policy, extend, pages};
pub use record::{Counts, Link, Record, World};
pub use series::{LinkReading, LinkSample, LinkSeries, LinkState};
