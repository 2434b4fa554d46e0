//! A member: a server that has the virtual addresses of services, and answers their clients itself.
//!
//! Balancers send it clients' packets as they are (`forwarding = "direct"`), or in a tunnel. The programs
//! ([`anabranch_dataplane::member`]) take the latter out of their tunnels, and have clients send segments that fit. This loop gives the
//! host the virtual addresses without announcing them, and loosens reverse-path filtering, since answers may leave by another device.
//! It also tells balancers that ask how many connections this server has. All of that is undone by a clean stop. Programs of a daemon
//! that was killed go on, and so do the addresses.

mod config;
mod doctor;
mod host;
mod load;
mod role;

pub use config::Config;
pub use doctor::examine;
pub(crate) use host::{Host, check, forget};
pub(crate) use role::MemberRole;
