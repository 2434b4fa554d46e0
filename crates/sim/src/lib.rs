//! Networks in virtual time, packet by packet.
//!
//! Everything that will happen is an event in one [`queue::EventQueue`], ordered by time and then by the order in which
//! it was scheduled, so that a run is a pure function of its parameters and its seed. Time is
//! [`anabranch_core::Time`], the same clock the balancer is driven by.
//!
//! A [`link::Link`] is one direction of a line: a buffer, a rate, a propagation delay, and what the line loses. It is
//! FIFO, so a packet's arrival is known when it is accepted: one event a packet and link, or fewer, where a link is fed
//! by one other alone. Where nothing changes and nobody audits, a link can be *plain*, and cheaper.
//!
//! [`tcp`] is a pure state machine per side of a connection, told the time and never asking for it. Its reader is never
//! slow, so that no window closes to zero, and one side opens, never both at once. [`net`] holds links, flows and
//! packets, and hashes every event so that two runs can be compared. Between links a packet may come to a *site*, where
//! somebody decides on its way while it is on its way: [`world`] calls whoever that is.
//!
//! Two such deciders are built on it. [`gateway`] binds flows to the links of a site as the loaded programs do, ruled by
//! the very balancer that rules the real ones; [`trunk`] spreads packets over parallel sublinks. Neither contains a
//! policy: all choices are those of `anabranch_policy` and `anabranch_core`.
//!
//! [`run`] takes a scenario and hands back its record: it lays the lines, lets users loose and faults strike, and audits
//! itself: every packet is in one place, and Little's law holds to the nanosecond on every line.
//!
//! Nothing reads a clock, allocates per packet, or shares a random stream: every link, user and gateway draws from its
//! own, so that a component added to a scenario changes nothing for the others. What has ended is forgotten, so that
//! memory follows what is alive and not how long the world has lived.

#![deny(missing_docs)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod crowd;
mod draws;
pub mod dumbbell;
pub mod fluid;
pub mod gateway;
pub mod link;
mod load;
pub mod net;
pub mod packet;
mod prefetch;
pub mod queue;
mod resequencer;
mod run;
pub mod tcp;
pub mod trunk;
pub mod validation;
pub mod world;

pub use load::HEAD_BYTES;
pub use run::{SimError, bin_volumes, run, watch};
