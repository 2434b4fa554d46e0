//! IPv4.

use crate::addresses::IPV4 as SITE;

#[path = "../both/mod.rs"]
mod both;
mod cut;
