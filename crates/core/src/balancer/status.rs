//! The state of links and classes, for display.

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
    /// The link's id.
    pub link: LinkId,
    /// As configured.
    pub name: String,
    /// The operator's order.
    pub admin: Admin,
    /// As configured.
    pub metered: bool,
    /// Available bandwidth towards the internet (Peng eq. 6); none where no rate is declared.
    pub available_up_bps: Option<u64>,
    /// Available bandwidth towards the LAN.
    pub available_down_bps: Option<u64>,
    /// Its weight in the choice of the default class, without a unit.
    pub weight: u32,
    /// As they were last read.
    pub counters: LinkCounters,
    /// Quality of its flows in the last minute.
    pub recent: FlowQuality,
    /// Round trips to the fixed node, if a class measures them.
    pub node: Option<NodeStatus>,
    /// Its state for each address family.
    pub paths: PerFamily<PathStatus>,
}

/// Round trips to the fixed node over one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// Address family of the node.
    pub family: Family,
    /// Number of probes sent since the start.
    pub sent: u64,
    /// The last measured; none before the first answer.
    pub round_trip: Option<Duration>,
}

/// One link for one family, for display.
#[derive(Clone, Debug, PartialEq)]
pub struct PathStatus {
    /// A suspicion shows when its first probe is lost, as in [`Event::Suspected`](super::Event::Suspected).
    pub state: State,
    /// When it last went out of use or came back, by itself or by the operator's order. Suspicions do not count.
    pub since: Time,
    /// Takes new flows of some class.
    pub usable: bool,
    /// Lost probes in the window.
    pub probes_lost: usize,
    /// All probes in that window.
    pub probes_judged: usize,
    /// All probes that were ever to be sent, ...
    pub probes_sent: u64,
    /// ... and those of them that never left the host.
    pub probes_not_sent: u64,
    /// Round-trip time of probes, smoothed; none before the first answer.
    pub round_trip: Option<Duration>,
    /// Its probe targets, in the order of [`Balancer::set_targets`](super::Balancer::set_targets).
    pub targets: Vec<TargetRecord>,
    /// Only the gateway answers, nothing beyond the access line.
    pub near_only: bool,
    /// Until when it is held down although it answers, or stays captive.
    pub held_until: Option<Time>,
    /// How often it went down lately: failures that are not forgotten yet.
    pub falls: usize,
    /// The time of the first of these; none without one.
    pub first_fall: Option<Time>,
    /// How often it went down within the last hour.
    pub falls_within_an_hour: usize,
    /// When a packet or an answer last came in by it.
    pub heard: Time,
    /// Quality of its probes in the last minute.
    pub recent: ProbeQuality,
    /// Kinds of probes that are filtered somewhere, while other kinds are answered.
    pub filtered: Vec<Kind>,
    /// Index of the page target that something else (a captive portal) answers for.
    pub portal: Option<usize>,
    /// Its path MTU, if packets as long as the device allows vanish.
    pub mtu: Option<FoundMtu>,
}

/// One class for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassStatus {
    /// The class's number.
    pub class: ClassId,
    /// The configured tiers of links; none: every link.
    pub tiers: Option<Vec<LinkSet>>,
    /// The links that take its new flows, by address family.
    pub usable: PerFamily<LinkSet>,
    /// The weights in its choice, in the order of the links' ids, without a unit.
    pub weights: Vec<u32>,
}
