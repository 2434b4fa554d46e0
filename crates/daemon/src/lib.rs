//! The daemon: the tokio shell around the balancer and the data path.
//!
//! The work is done elsewhere: the programs in the kernel move packets, also after this process has died
//! ([`anabranch_dataplane`]); the balancer decides, without any IO ([`anabranch_core`]). The daemon connects the two with
//! the host and the internet:
//!
//! - [`config`]: the configuration file, and a one-line error for anything wrong in it; [`preflight`]: whether this
//!   host can do what it says;
//! - [`observe`]: devices, addresses, gateways and routes by netlink, and what follows from them for the data path;
//! - [`neighbours`]: other programs on the host that handle the traffic, what that means for packets, and what to do about it;
//! - [`host`]: policy routing for the host's own packets, forwarding, the kernel's NAT as a fallback; all undone when
//!   the daemon stops;
//! - [`probe`]: probes over one link, and their round-trip times;
//! - [`control`]: the socket behind `anabranch status`, `flows`, `explain` and `link`;
//! - [`services`], [`trunk`] and [`member`]: the other roles that an instance can have, servers behind virtual addresses, one logical link
//!   over parallel sublinks, and one of the servers.
//!
//! [`run()`] opens the roles that the file names and hands them to the shell, where each is a task that takes one event at a
//! time and owns all its state. So nothing is locked, and nothing is half done when the next event comes. A role that fails does not
//! affect the others.
//! Other threads do what may take long, and report with an event: walks over all flows, and reading the carriers of the
//! links. Three things outlive the process: pinned maps and programs, our rules and routes (known by their protocol
//! number), and a state file of each role with the former values of what was changed and the numbers of the links. A daemon that starts
//! finds all three and continues from there; one that stops cleanly removes them.
//!
//! Once the programs are loaded it drops the privileges that only loading needs: three capabilities and some hundred system calls are
//! left to it and to the `nft` it starts.
//!
//! What it never does: touch a rule, route, table or setting that is not its own; change anything for a configuration it
//! refuses; end flows before the choice is installed that sends the next ones elsewhere.

#![deny(missing_docs)]

mod aside;
mod attaching;
mod checking;
mod classes;
mod commands;
pub mod config;
pub mod control;
mod driver;
mod error;
mod gateway;
pub mod host;
mod lock;
pub mod member;
mod meter;
pub mod neighbours;
mod notify;
pub mod observe;
pub mod plane;
pub mod preflight;
mod privileges;
pub mod probe;
mod run;
pub mod services;
mod shell;
mod slots;
pub mod trunk;

pub use error::{BadInput, Error, with_causes};
pub use run::run;
pub use slots::{Orders, Slots};
