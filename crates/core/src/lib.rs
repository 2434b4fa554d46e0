//! The balancer, without clock and IO.
//!
//! Every algorithm of this field is *measure × dispatch × granularity* over links ([`algorithm`]). The named ones are
//! rows of one table ([`catalogue`]), and each measure has a file ([`measure`]). A program may
//! bring policies of its own ([`OwnPolicy`]). The choice for a packet
//! is made in the packet path (`bpf/policy`); this crate does everything that is slower than a packet. In every measuring period it
//! measures the links — available bandwidth ([`bandwidth`]), bytes carried, round trips to a fixed node ([`rounds`]), or nothing where
//! session counts decide —
//! turns the measures into weights ([`weights`]), and hands the packet path one [`Choice`]: dispatching scheme, weights,
//! the links that take new flows, and from where dispatched flows are counted. Flows that a link was given beyond its share are
//! carried into the next period, so that weights hold also for short periods and few flows.
//!
//! There is one choice for each class of traffic ([`ClassSpec`]). The links, their states and their loads are the same for
//! all classes; algorithm, weights, periods and tiers of links belong to each class. Traffic that no rule matches belongs to the
//! default class.
//!
//! It also watches whether links work ([`availability`]): by the counters alone as long as packets come in, by
//! probes on suspicion ([`targets`]), whose deadlines allow for the link's own load. A link that goes down leaves the choice first;
//! its flows end only after that, and only if another link takes them. Each address family is watched
//! separately: a link over which IPv6 is dead carries IPv4 as before.
//!
//! [`Balancer`] is all of this as one state machine. It reads no clock and does no IO: the daemon drives it with real
//! time and real packets, the simulator with virtual ones, and both run the same balancer by the same [`Driver`], which
//! keeps the order: install the choice, send probes, report events. [`DataPlane`] is the interface to what moves the
//! packets.
//!
//! [`rules`] say which traffic belongs to which class.
//!
//! A trunk of parallel sublinks works differently: its flows are spread by hash over bins, and [`multilink`] moves bins
//! from sublinks whose queues grow.
//!
//! What the balancer never does: declare a link down without lost probes or a missing part (device, carrier, address,
//! gateway); keep a flow from a link it is bound to; refuse new flows while any link is present that the operator has not taken away.

#![deny(missing_docs)]
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod algorithm;
mod answers;
pub mod availability;
mod balancer;
pub mod bandwidth;
pub mod catalogue;
pub mod checks;
mod class;
mod config;
mod dataplane;
mod driver;
mod health;
mod link;
pub mod measure;
pub mod multilink;
mod own;
mod path_mtu;
pub mod popular;
mod quality;
pub mod rounds;
pub mod rules;
mod server;
mod sessions;
mod survey;
pub mod targets;
mod time;
mod tuple;
mod typed;
pub mod weights;

pub use algorithm::{Active, Algorithm};
pub use anabranch_policy::{Choice, Dispatch, Family, Granularity, PerFamily};
pub use answers::{
    Explanation, FlowRow, FlowState, PathRow, PrefixRow, Proto, ReasonCount, Weighed,
};
pub use availability::{DownCause, State, Suspicion};
pub use balancer::{
    Balancer, BuildError, ClassStatus, Event, FoundMtu, LinkStatus, NodeStatus, PathStatus,
    ProbeRequest, UDP_PAUSE, Wakeup, Whom,
};
pub use catalogue::Policy;
pub use class::{ClassCounters, ClassId, ClassSet, ClassSpec, Classes};
pub use config::{Config, ConfigError};
pub use dataplane::{DataPlane, Ended};
pub use driver::{Driver, Effect};
pub use health::{Alarm, CAPTIVE, is_dark, lengths};
pub use link::{
    Admin, LinkCounters, LinkId, LinkSet, LinkSpec, LinkState, Missing, OnReturn, RateNeed,
};
pub use own::{LinkView, OwnPolicy, PathView};
pub use quality::{FlowQuality, ProbeQuality};
pub use server::ServerPolicy;
pub use sessions::Sessions;
pub use survey::{Opening, Question};
pub use targets::{Kind, ProbeId, Reach, TargetRecord, TargetSpec};
pub use time::Time;
pub use tuple::TupleError;
pub use typed::Typed;
