//! How the daemon is asked: one JSON object per line on a Unix socket, a [`Request`] each, answered in order by a
//! [`Response`]. Every line tells the [`VERSION`] of the protocol; who reads one of another says so and does nothing.
//!
//! [`Client`] is the end of whoever asks, and [`paths`] tells where the socket is. Who listens is in the daemon. This is all
//! of it that a command or a laboratory links.

#![deny(missing_docs)]

mod client;
mod messages;
pub mod paths;
mod status;

pub use anabranch_core::{
    Explanation, FlowRow, FlowState, PathRow, PrefixRow, Proto, ReasonCount, Weighed,
};
pub use client::{Client, ClientError};
pub use messages::{
    Explained, LinkAction, Misread, PassedRule, Request, Response, Served, ServerAction, VERSION,
    from_line, to_line, to_line_of,
};
pub use paths::Paths;
pub use status::{
    CheckStatus, ClassLink, ClassStatus, ConnectionsStatus, Finding, FlowsStatus, GatewayStatus,
    LinkFlows, LinkState, LinkStatus, LoadStatus, MemberAddress, MemberStatus, NameStatus,
    NodeStatus, PathStatus, PolledStatus, PrefixesStatus, ProbeStatus, Problem, Rates, RecentFlows,
    RecentProbes, RoleState, RoleStatus, ServerStatus, ServiceStatus, ServicesStatus, Severity,
    Status, SublinkStatus, TargetStatus, Traffic, TrunkStatus,
};
