//! Who asks for what, and when.
//!
//! A workload is a set of **users**, each with its own source address. A user opens **tabs**; a tab is a sequence of
//! **rounds**, and a round is a burst of files asked for at once, each over its own HTTP connection. The next round of a
//! tab begins when every file of the last one has arrived and its [`Pacing`] allows it. Two shapes cover what the
//! field uses:
//!
//! - [`Workload::page_rounds`] is Peng's L_n(UN, SN): UN users, one tab each, SN files per round, a number of rounds.
//!   A page is complete when its slowest file is: the barrier is part of the model.
//! - [`Workload::continuous`] keeps links loaded: every user runs SN tabs of one file per round until a duration is
//!   over, so that no transfer waits for another.
//!
//! Both are closed loops: what comes next waits for what came before. [`ArrivalPlan`] is the open loop, where transfers
//! begin at drawn or recorded times whatever the network does.
//!
//! The model is pure: [`Tab`] is an iterator over rounds, [`Round::earliest_start`] is arithmetic on times that the
//! driver supplies, and every tab draws from its own random stream, so that adding a user changes nothing for the
//! others. A simulator drives tabs with virtual time; [`client`] drives the same tabs with real sockets. Both report
//! what happened to each file as a [`Transfer`].

#![deny(missing_docs)]

mod arrivals;
pub mod client;
mod ids;
mod pages;
mod size;
mod transfer;

pub use anabranch_line::Direction;
pub use arrivals::{
    Arrival, ArrivalPlan, Arrivals, BadPlan, Bursts, Class, ClassId, Mix, Pattern, Trace,
};
pub use ids::{RemoteServerId, UserId};
pub use pages::{Extent, Pacing, Round, RoundTimes, Tab, Workload};
pub use size::{BadSize, Size};
pub use transfer::{Outcome, Transfer, TransferId, UnknownOutcome, alternative};
