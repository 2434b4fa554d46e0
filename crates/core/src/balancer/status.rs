//! What people are shown of links and classes.

use anabranch_policy::{Family, PerFamily};
use std::time::Duration;

use super::FoundMtu;
use crate::availability::State;
use crate::class::ClassId;
use crate::link::{Admin, LinkCounters, LinkId, LinkSet};
use crate::quality::{FlowQuality, ProbeQuality};
use crate::targets::{Kind, TargetRecord};
use crate::time::Time;

/// One link for display.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkStatus {
    /// Which.
    pub link: LinkId,
    /// As configured.
    pub name: String,
    /// What the operator wants of it.
    pub admin: Admin,
    /// As configured.
    pub metered: bool,
    /// What is left in each direction (Peng eq. 6); none where no rate is declared.
    pub available_up_bps: Option<u64>,
    /// The same towards the LAN.
    pub available_down_bps: Option<u64>,
    /// As it stands in the default class's choice, without a unit.
    pub weight: u32,
    /// As of the last reading.
    pub counters: LinkCounters,
    /// What its flows tell of the last minute.
    pub recent: FlowQuality,
    /// What the fixed node says of it, if it is asked.
    pub node: Option<NodeStatus>,
    /// How it fares for each family.
    pub paths: PerFamily<PathStatus>,
}

/// Round trips to the fixed node over one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// Of the node.
    pub family: Family,
    /// Questions, since the beginning.
    pub sent: u64,
    /// The last to have ended; none before the first has.
    pub round_trip: Option<Duration>,
}

/// One link for one family, for display.
#[derive(Clone, Debug, PartialEq)]
pub struct PathStatus {
    /// A suspicion shows when its first probe is lost, as in [`Event::Suspected`](super::Event::Suspected).
    pub state: State,
    /// When it was last taken away, or came back, by itself or by order. Suspicions change nothing.
    pub since: Time,
    /// Takes new flows of some class.
    pub usable: bool,
    /// Lost and all probes of the window.
    pub probes_lost: usize,
    /// The size of that window so far.
    pub probes_judged: usize,
    /// All that were ever to be sent, ...
    pub probes_sent: u64,
    /// ... and of those what never left the host.
    pub probes_not_sent: u64,
    /// Smoothed; none before the first answer.
    pub round_trip: Option<Duration>,
    /// In the order of [`Balancer::set_targets`](super::Balancer::set_targets).
    pub targets: Vec<TargetRecord>,
    /// Nothing beyond the access line answers.
    pub near_only: bool,
    /// Until when it answers without being used, or captive.
    pub held_until: Option<Time>,
    /// How often it went down of late, and the first of those times.
    pub falls: usize,
    /// None without a fall.
    pub first_fall: Option<Time>,
    /// How often it went down within the last hour.
    pub falls_within_an_hour: usize,
    /// When anything was heard last.
    pub heard: Time,
    /// What probes tell of the last minute.
    pub recent: ProbeQuality,
    /// Ways of asking that somebody filters, while others are answered.
    pub filtered: Vec<Kind>,
    /// The target that shows that somebody else answers for pages.
    pub portal: Option<usize>,
    /// Longer packets do not come through, though its device allows more.
    pub mtu: Option<FoundMtu>,
}

/// One class for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassStatus {
    /// Which.
    pub class: ClassId,
    /// As configured; none: every link.
    pub tiers: Option<Vec<LinkSet>>,
    /// Take its new flows of each family.
    pub usable: PerFamily<LinkSet>,
    /// As they stand in its choice, in the order of the links' ids, without a unit.
    pub weights: Vec<u32>,
}
