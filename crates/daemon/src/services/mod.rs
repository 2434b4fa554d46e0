//! Servers behind virtual addresses: each connection to a service goes to one of its servers.
//!
//! The programs ([`anabranch_dataplane::services`]) are attached at the ingress of the devices over which clients and servers are
//! reached, before the gateway if the file has one. This loop writes which endpoints are services, where each server is, and how
//! its packets get there according to the host's routes. It also removes connections that are over.
//!
//! A service keeps its number, and a server its place, across reloads and restarts, because connections in the kernel contain both.
//! They are stored only in the maps.

mod among;
mod checked;
mod config;
mod members;
mod places;
mod role;
mod ways;

pub use config::{Config, Service};
pub use members::Member;

pub(crate) use role::{Host, ServicesRole};
pub(crate) use ways::check;
