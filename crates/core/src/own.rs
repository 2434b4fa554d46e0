//! A policy of one's own: what is slower than a packet, as a trait.
//!
//! A measure of the catalogue is a function of one link. An [`OwnPolicy`] sees all links of a class at once, remembers what
//! it likes, and gives each a weight. What a packet decides stays where it is: dispatch, granularity and period are those of
//! its [`Algorithm`](crate::Algorithm), as of any other.
//!
//! [`Measure::own`](crate::measure::Measure::own) makes a measure of it, and [`catalogue::extend`](crate::catalogue::extend)
//! gives it a name before the first file is read. From there on files, commands and worlds know it: balancers, in the simulator and
//! in the daemon, make one for each class that names it. It is told everything and asks nobody, so that equal runs stay equal.

use std::fmt;
use std::time::Duration;

use anabranch_policy::PerFamily;

use crate::availability::State;
use crate::link::{LinkId, LinkSpec};
use crate::time::Time;

/// Gives links weights.
pub trait OwnPolicy: fmt::Debug + Send {
    /// A weight for each link, in their order and in any unit: a weighted dispatch gives new flows in proportion to them,
    /// `best` to the greatest alone. A link of weight 0 takes none, and what flows it has do as their `on_return` says. If no
    /// link that takes flows has a weight, all of these share alike. A weight that is missing is 0.
    ///
    /// Called at the end of every period, and in between when the links that take flows have changed: then rates and
    /// counts are still those of the last whole period.
    fn weigh(&mut self, now: Time, links: &[LinkView<'_>]) -> Vec<u64>;
}

/// What is known of one link.
#[derive(Clone, Copy, Debug)]
pub struct LinkView<'a> {
    /// Its place among all.
    pub link: LinkId,
    /// As configured: name, rates, weight.
    pub spec: &'a LinkSpec,
    /// It works, and is in the first tier of the class that has such a link. Of others, weights mean nothing.
    pub takes_flows: bool,
    /// Whether it works for each family, and how long a probe took.
    pub paths: PerFamily<PathView>,
    /// Carried towards the internet in the last period, by all classes.
    pub up_bps: u64,
    /// The same towards the LAN.
    pub down_bps: u64,
    /// What is left of the declared rate (Peng eq. 6); none where no rate is declared.
    pub left_up_bps: Option<u64>,
    /// The same towards the LAN.
    pub left_down_bps: Option<u64>,
    /// Flows that it was given in the last period, by all classes.
    pub dispatched: u64,
    /// Flows that are open.
    pub active: u64,
    /// To the fixed node: of measures whose distance is that, where one is configured.
    pub node_round_trip: Option<Duration>,
}

/// One link for one address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathView {
    /// A suspicion shows when its first probe is lost.
    pub state: State,
    /// Of probes, smoothed; none before the first answer.
    pub round_trip: Option<Duration>,
}
