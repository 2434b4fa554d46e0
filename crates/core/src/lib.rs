//! The balancer: all decisions that are slower than a packet, without clock and IO.
//!
//! Every algorithm of this field is *measure × dispatch × granularity* over links ([`algorithm`]). Those with names are rows of one
//! table ([`catalogue`]), and each measure has a file ([`measure`]). A program may add policies of its own ([`OwnPolicy`]).
//!
//! The data path (`bpf/policy`) makes the choice for each packet. This crate does everything that is slower. In every measuring
//! period it measures the links (available bandwidth ([`bandwidth`]), bytes, round trips to a fixed node ([`rounds`]), or nothing
//! if the data path compares its own counters), converts the values into weights ([`weights`]), and gives the data path one
//! [`Choice`]: dispatch, weights, the links that take new flows, and the counts from which dispatched flows are counted. If a link
//! got more flows than its share, the surplus is carried into the next period, so that weights hold for short periods and few
//! flows, too.
//!
//! There is one choice for each class of traffic ([`ClassSpec`]). The links, their states and their loads are the same for
//! all classes; algorithm, weights, periods and tiers of links belong to each class. Traffic that no rule matches belongs to the
//! default class.
//!
//! It also decides whether links work ([`availability`]): by the counters alone as long as packets come in, and by probes on
//! suspicion ([`targets`]), whose deadlines allow for the link's own load. A link that goes down is first removed from the choice.
//! Only then do its flows end, and only if another link takes them. Each address family is watched separately: a link over which
//! IPv6 is dead carries IPv4 as before.
//!
//! [`Balancer`] is all of this as one state machine. The daemon drives it with real
//! time and real packets, the simulator with virtual ones. Both use the same [`Driver`], which
//! keeps the order: install the choice, send probes, report events. [`DataPlane`] is the interface to the data path.
//!
//! [`rules`] assign traffic to classes.
//!
//! A trunk of parallel sublinks works differently: its flows are distributed by hash over bins, and [`multilink`] moves bins
//! away from sublinks whose queues grow.
//!
//! What the balancer never does: declare a link down without lost probes or a missing part (device, carrier, address, gateway);
//! move a flow away from a link it is bound to; refuse new flows while a link is present that the operator has not taken out of
//! use.

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
pub mod maglev;
pub mod measure;
pub mod multilink;
pub mod names;
mod own;
pub mod passive;
mod path_mtu;
pub mod polled;
pub mod popular;
mod quality;
pub mod rounds;
pub mod rules;
pub mod served;
mod server;
mod sessions;
pub mod slots;
pub mod slow_start;
mod survey;
pub mod targets;
mod time;
mod tuple;
mod typed;
pub mod weights;

pub use algorithm::{Active, Algorithm, Learning, Racing};
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
pub use server::{Member, ServerAt, ServerPolicy};
pub use sessions::Sessions;
pub use survey::{Opening, Question};
pub use targets::{Kind, ProbeId, Reach, TargetRecord, TargetSpec};
pub use time::Time;
pub use tuple::TupleError;
pub use typed::Typed;
