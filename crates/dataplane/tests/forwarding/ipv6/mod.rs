//! IPv6.

use crate::addresses::IPV6 as SITE;

#[path = "../both/mod.rs"]
mod both;
