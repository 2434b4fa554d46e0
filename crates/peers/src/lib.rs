//! What others put in the place of a gateway like ours: what a site is compared with.
//!
//! Scenarios name a [`Peer`] where they name a policy. No configuration does: a peer is another program, or nothing but routes.
//! In the laboratory they are those programs. In the simulator a [`Control`] decides for them whatever is slower than a packet:
//! which link is the way to where ([`Table`]), at the site and, where the internet learns of it, in the internet. It reads no
//! clock and does no IO: it hands out what is to be sent over which link ([`Sent`]), is told what arrives, and which lines fail
//! where somebody who runs them would see that.
//!
//! Their names are rows of a table of their own, [`catalogue`]: what runs on a router knows no peers.

#![deny(missing_docs)]
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod catalogue;
mod control;
mod peer;
mod ron;
mod route_control;
mod router;
mod watch;
mod ways;

pub use anabranch_policy::paths::Prefix;
pub use control::Control;
pub use peer::{Addresses, Bgp, Metric, Peer};
pub use ways::{Inward, Journey, Sent, Table};

#[cfg(test)]
mod tests;
