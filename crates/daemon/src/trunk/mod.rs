//! One logical link between two nodes over k parallel sublinks, without translation (Jo 2002).
//!
//! The operator makes a trunk device, gives it the addresses, routes and MTU of the logical link, and names the devices
//! that carry it. The program at its egress ([`anabranch_dataplane::trunk`]) spreads packets; this loop, one task that
//! owns all state as the gateway's does, keeps the spreading even and true:
//!
//! - every 10 ms it reads what the bins have carried, every 25 ms what waits on the sublinks' devices, and writes the
//!   bins that the [`Controller`](anabranch_core::multilink::Controller) moves into the program's table (DH, DHFV only);
//! - when a device loses its carrier, vanishes or returns, it tells which sublinks may be used. Bins of an unusable
//!   sublink keep their place in the table and go around it meanwhile.
//!
//! Queues are those of the devices' root queueing disciplines: a sublink that is slower than its device needs a shaper
//! (`tbf`, `htb`) there, or its queue is somewhere out of sight.
//!
//! What arrives on a sublink is routed as it came, so nothing stands there but a loose reverse-path filter, put back
//! when the daemon stops. A daemon that is killed leaves the trunk spreading by its last table; the next adopts it.

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
