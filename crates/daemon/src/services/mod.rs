//! Servers behind virtual addresses: each connection to a service goes to one of its servers.
//!
//! The programs ([`anabranch_dataplane::services`]) stand at the ingress of the devices by which clients and servers are reached, before
//! the gateway where the file has one. This loop tells them which endpoints are services, where each server is and how its packets get
//! there, as the host's routes say it; and it has connections forgotten that are over.
//!
//! A service keeps its number, and a server its place, across reloads and restarts: connections in the kernel name both. The maps
//! themselves are what remembers them.

mod config;
mod places;
mod role;
mod ways;

pub use config::{Config, Service};

pub(crate) use role::{Host, ServicesRole};
pub(crate) use ways::check;
