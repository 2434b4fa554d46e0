//! Packet transcripts through the loaded programs: what arrives, what leaves, and the reason it is counted for.
//!
//! What holds for both families stands in `both`, and is run as `ipv4::both` and as `ipv6::both`; what one of them alone has,
//! beside it in `ipv4` or `ipv6`.

// The files of `both` are compiled once for each family.
#![allow(clippy::duplicate_mod)]

#[path = "../common/mod.rs"]
mod common;
mod families;
#[path = "../common/former.rs"]
mod former;
mod ipv4;
mod ipv6;
mod member;
mod pool;
#[path = "../common/property.rs"]
mod property;
mod rig;
mod services;
#[path = "../common/site.rs"]
mod site;
mod trunk;

use anabranch_frames as frame;
