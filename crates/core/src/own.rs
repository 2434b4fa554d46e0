//! The trait for policies of a program's own. It decides all that is slower than a packet.
//!
//! A measure of the catalogue is a function of one link. An [`OwnPolicy`] sees all links of a class together, may keep state, and
//! returns a weight for each link. What happens for each packet does not change: dispatch, granularity and period are those of
//! its [`Algorithm`](crate::Algorithm).
//!
//! [`Measure::own`](crate::measure::Measure::own) makes a measure of it, and [`catalogue::extend`](crate::catalogue::extend) gives
//! it a name before the first file is read. From then on files and commands may name it, and balancers, in the simulator and in the
//! daemon, create an instance for each class that names it. All input is passed in and it asks for nothing, so that equal runs have
//! equal results.

use std::fmt;
use std::time::Duration;

use anabranch_policy::PerFamily;

use crate::availability::State;
use crate::link::{LinkId, LinkSpec};
use crate::time::Time;

/// A policy that weighs links.
pub trait OwnPolicy: fmt::Debug + Send {
    /// Returns a weight for each link, in the order of `links` and in any unit. Weighted dispatch distributes new flows in
    /// proportion to the weights; `best` gives all to the greatest. A link of weight 0 gets no new flows, and its flows do what
    /// their `on_return` says. If no link that takes flows has a weight, all of these share equally. A missing weight is 0.
    ///
    /// It is called at the end of each period, and also when the set of links that take flows changes. In that case rates and
    /// counts are still those of the last whole period.
    fn weigh(&mut self, now: Time, links: &[LinkView<'_>]) -> Vec<u64>;
}

/// What is known of one link.
#[derive(Clone, Copy, Debug)]
pub struct LinkView<'a> {
    /// Its index.
    pub link: LinkId,
    /// As configured: name, rates, weight.
    pub spec: &'a LinkSpec,
    /// Whether it works and is in the first tier of the class that has such a link. The weights of other links have no effect.
    pub takes_flows: bool,
    /// Whether it works for each family, and how long a probe took.
    pub paths: PerFamily<PathView>,
    /// Carried towards the internet in the last period, by all classes.
    pub up_bps: u64,
    /// The same towards the LAN.
    pub down_bps: u64,
    /// Available bandwidth (Peng eq. 6); none if no rate is declared.
    pub left_up_bps: Option<u64>,
    /// The same towards the LAN.
    pub left_down_bps: Option<u64>,
    /// Flows that it was given in the last period, by all classes.
    pub dispatched: u64,
    /// Flows that are open.
    pub active: u64,
    /// Round trip to the fixed node; only for measures with [`Distance::Node`](crate::measure::Distance), if a node is configured.
    pub node_round_trip: Option<Duration>,
}

/// One link for one address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathView {
    /// State of the path. A suspicion shows only when its first probe is lost.
    pub state: State,
    /// Smoothed round trip of probes; none before the first answer.
    pub round_trip: Option<Duration>,
}
