//! The daemon: the tokio shell around the balancer and the data path.
//!
//! Two machines do the work and neither is here: the programs in the kernel move packets and go on when this process dies
//! ([`anabranch_dataplane`]); the balancer decides and touches nothing ([`anabranch_core`]). The daemon carries between
//! them and the world:
//!
//! - [`config`]: three lines of TOML, and one line of error for whatever is wrong with them; [`preflight`]: whether this
//!   host can do what they say;
//! - [`observe`]: devices, addresses, gateways and routes by netlink, and what follows from them for the data path;
//! - [`neighbours`]: what else on the host touches the traffic, what that means for packets, and what to do about it;
//! - [`host`]: policy routing for the host's own packets, forwarding, the kernel's NAT as a fallback; all put back when
//!   the daemon stops;
//! - [`probe`]: questions to the internet over one link, and the time the answer takes;
//! - [`control`]: the socket behind `anabranch status`, `flows`, `explain` and `link`;
//! - [`services`] and [`trunk`]: the other roles that an instance can have, servers behind virtual addresses, and one logical link over
//!   parallel sublinks.
//!
//! [`run()`] opens the roles that the file names and hands them to the shell, where each is a task that takes one event at a
//! time and owns all its state, so nothing is locked and nothing is half done when the next event comes. A role that fails leaves the others alone.
//! What may take long is done by other threads and ends in an event: walks over all flows, and reading the carriers of the
//! links. Whatever outlives the process lies in three places: pinned maps and programs, our rules and routes (known by their protocol
//! number), and a state file of each role with the former values of what was changed and the numbers of the links. A daemon that starts
//! finds all three and carries on from there; one that stops cleanly removes them.
//!
//! Once the programs are loaded it gives up what only loading needs: three capabilities and some hundred system calls are
//! left to it and to the `nft` it starts.
//!
//! What it never does: touch a rule, route, table or setting that is not its own; change anything for a configuration it
//! refuses; end flows before the choice that spares their successors is installed.

#![deny(missing_docs)]

mod aside;
mod classes;
mod commands;
pub mod config;
pub mod control;
mod driver;
mod error;
mod gateway;
pub mod host;
mod lock;
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
