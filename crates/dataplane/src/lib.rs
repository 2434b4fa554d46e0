//! The programs in the kernel, and everything user space says to them.
//!
//! For the gateway, one BPF object (`bpf/gateway.bpf.c`) holds two forwarding programs, `lan` and `wan`, attached at the ingress of
//! the LAN devices and the links; where the kernel has forwards of its own, `forwarded`, at the egress of the LAN devices, which
//! hears them; and three that are attached nowhere: `explain`, `sweep_flows` and `end_link`. Maps
//! and attachments are pinned in a BPF file system, so that forwarding outlives this process: [`Gateway::open`] either
//! loads afresh or adopts what it finds, replacing the programs in place while the flows stay.
//!
//! The packet path never waits for user space. It reads what is told here ([`Gateway::set_settings`],
//! [`Gateway::set_link`], [`Gateway::set_routes`], and the choice by [`DataPlane::install`]) and leaves counters, flows
//! and reasons to be read. What ends with a dead link ends here: the flows are taken out of the tables inside the
//! kernel, and each TCP flow's LAN host is sent the RST it would accept ([`DataPlane::end_flows`]).
//!
//! What takes as long as there are flows, sweeping, ending and listing them, is a [`Walker`]'s, which any thread may hold.
//!
//! A [`trunk`] is the other, smaller thing: one program at the egress of the trunk device. [`services`] stand before the gateway.
//! A [`member`] is a server of services, which takes packets out of tunnels.
//!
//! [`DataPlane::install`]: anabranch_core::DataPlane::install
//! [`DataPlane::end_flows`]: anabranch_core::DataPlane::end_flows

#![deny(missing_docs)]

mod attach;
mod batch;
mod clock;
mod devices;
mod ending;
mod error;
mod explain;
mod flows;
mod forwards;
mod gateway;
mod leftovers;
pub mod member;
mod next_hops;
mod object;
mod packet;
mod pins;
mod prefixes;
pub mod raw;
mod reasons;
mod reset;
mod routes;
mod run;
pub mod services;
mod signal;
mod sizes;
mod sweep;
mod traffic;
pub mod trunk;
mod upgrade;
mod walk;
mod walker;

pub use anabranch_core::{
    Explanation, FlowRow, FlowState, PathRow, PrefixRow, Proto, ReasonCount, Weighed,
};
pub use anabranch_policy::abi::Settings;
pub use attach::{attach, has_room, programs_at};
pub use clock::Clock;
pub use ending::Which;
pub use error::Error;
pub use forwards::Forwards;
pub use gateway::{Build, Gateway, LinkPath, Role};
pub use object::{gateway_object, remove, upgrade_object};
pub use pins::Pinned;
pub use routes::{Route, RouteTable, Verdict, beyond};
pub use run::{Marked, Ran};
pub use signal::despite_signals;
pub use sizes::{Sizes, UNCONFIRMED_PER_HOST};
pub use sweep::Swept;
pub use walker::Walker;
