//! A laboratory of network namespaces: real programs, real kernels, links with a chosen rate, delay, loss and fate.
//!
//! It stands on the namespaces and the emulated links of [`anabranch_testbed`].
//!
//! [`topology`] and [`run`] are clients, a gateway under test, one path per ISP and a web server; a load on it,
//! lines that change on a schedule, and a report that says whether the figures can be trusted.
//!
//! [`scenario`] stands on them: it carries out one run of a scenario file, the same that the simulator runs, and
//! hands back the same kind of record.
//!
//! [`trunk`] does so for scenarios with a trunk, on two nodes of its own.
//!
//! [`attack`] floods a gateway on a site of its own and tells what innocent hosts lost meanwhile.
//!
//! [`neighbours`] puts the gateway beside DHCP clients, containers, a VPN and other programs, has things happen to all of them, and
//! tells whose flows were lost without cause.
//!
//! [`product`] is where the gateway under test is found: it is a program of its own.
//!
//! Nothing here touches the host's own namespace, its addresses or its sysctls. Everything needs root (CAP_NET_ADMIN
//! and CAP_SYS_ADMIN) and says so in one line when it is missing.

#![deny(missing_docs)]

pub mod attack;
mod daemon;
pub mod neighbours;
pub mod product;
pub mod run;
pub mod scenario;
mod setup;
pub mod topology;
pub mod trunk;
