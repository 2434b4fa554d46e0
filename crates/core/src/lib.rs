//! The balancer without its surroundings.
//!
//! Every algorithm of this field is *measure × dispatch × granularity* over links ([`algorithm`]); those that have a name are
//! rows of one table ([`catalogue`]), what may be measured has a file each ([`measure`]); a program may
//! bring policies of its own ([`OwnPolicy`]). The choice itself
//! falls in the packet path (`bpf/policy`); this crate does everything slower than a packet. Every measuring period it
//! measures the links — available bandwidth ([`bandwidth`]), bytes carried, round trips to a fixed node ([`rounds`]), or nothing where
//! session counts decide —
//! turns the measures into weights ([`weights`]), and hands the packet path one [`Choice`]: dispatching scheme, weights,
//! the links that take new flows, and from where dispatched flows are counted. What a link was given beyond its share is
//! carried into the next period, so that short periods and few flows are shared by weight too.
//!
//! There is one choice for each class of traffic ([`ClassSpec`]): links, whether they work, and their loads are the same for
//! all, algorithm, weights, periods and tiers of links are each one's own. What no rule gives to a class is the default class.
//!
//! Beside that it watches whether links work ([`availability`]): from the counters alone as long as packets come in, by
//! probes on suspicion ([`targets`]), judged against the link's own load. A link that goes down leaves the choice first;
//! its flows end only after that, and only if another link takes them. All of this is watched for each address family by
//! itself: a link over which IPv6 is dead carries IPv4 as before.
//!
//! [`Balancer`] is all of this as one state machine. It reads no clock and does no IO: the daemon drives it with real
//! time and real packets, the simulator with virtual ones, and both run the same balancer by the same [`Driver`], which
//! keeps the order: install the choice, send probes, tell events. [`DataPlane`] is what it needs of whatever moves the
//! packets.
//!
//! Traffic may be of several classes, each with a policy and links of its own: [`rules`] say which.
//!
//! A trunk of parallel sublinks is another matter: its flows are spread by hash over bins, and [`multilink`] moves bins
//! from sublinks whose queues grow.
//!
//! What the balancer never does: declare a link down without lost probes or a missing part; keep a flow from a link it
//! is bound to; refuse new flows while any link is present that the operator has not taken away.

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
pub use sessions::Sessions;
pub use survey::{Opening, Question};
pub use targets::{Kind, ProbeId, Reach, TargetRecord, TargetSpec};
pub use time::Time;
pub use tuple::TupleError;
pub use typed::Typed;
