//! One logical link between two nodes over k parallel sublinks, without translation (Jo 2002).
//!
//! The operator creates a trunk device, gives it the addresses, routes and MTU of the logical link, and names the devices
//! that carry it. The program at its egress ([`anabranch_dataplane::trunk`]) distributes packets. This loop, one task that
//! owns all state as the gateway's does, keeps the distribution even and up to date:
//!
//! - Every 10 ms it reads the bytes of the bins, every 25 ms the queues of the sublinks' devices, and writes the
//!   bins that the [`Controller`](anabranch_core::multilink::Controller) moves to the program's table (DH, DHFV only).
//! - When a device loses its carrier, vanishes or returns, it updates which sublinks may be used. Bins of an unusable
//!   sublink keep their place in the table, and their packets take other sublinks meanwhile.
//!
//! Queues are those of the devices' root queueing disciplines: a sublink that is slower than its device needs a shaper
//! (`tbf`, `htb`) there, otherwise its queue cannot be observed.
//!
//! Packets that arrive on a sublink are routed as usual, so no program is needed there. Only the reverse-path filter is loosened,
//! and restored when the daemon stops. If the daemon is killed, the trunk continues with its last table, and the next daemon adopts
//! it.

mod config;
mod plane;
mod queues;
mod role;
mod view;

#[cfg(test)]
mod tests;

pub use config::{Config, Sublink};
pub use queues::DeviceQueue;
pub use view::{Missing, SublinkView, View};

pub(crate) use plane::host;
pub(crate) use queues::read as read_queues;
pub(crate) use role::TrunkRole;
pub(crate) use view::{check, check_queues};
