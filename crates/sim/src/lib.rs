//! Networks in virtual time, packet by packet.
//!
//! Everything that will happen is an event in one [`queue::EventQueue`], ordered by time and then by the order in which
//! it was scheduled, so that a run is a pure function of its parameters and its seed. Time is
//! [`anabranch_core::Time`], the same clock the balancer is driven by.
//!
//! A [`link::Link`] is one direction of a line: a buffer, a rate, a propagation delay, and what the line loses. It is
//! FIFO, so a packet's departure and arrival are known when it is accepted; the link keeps all its packets in one ring
//! and only one event pending, the next arrival.
//!
//! [`tcp`] is a pure state machine per side of a connection, told the time and never asking for it; [`world`] joins
//! links, paths and connections, and hashes every event so that two runs can be compared.
//!
//! Nothing reads a clock, allocates per packet, or shares a random stream: every lossy link draws from its own, so that
//! a component added to a scenario changes nothing for the others.

pub mod dumbbell;
pub mod fluid;
pub mod gateway;
pub mod link;
mod load;
pub mod net;
pub mod packet;
pub mod queue;
mod run;
pub mod tcp;
pub mod trunk;
pub mod world;

pub use run::{SimError, run};
