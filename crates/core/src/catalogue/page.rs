//! What people are told of a policy beside its row, all of it from its parts: how far it looks and how often, what is sent for
//! it, and which sites it suits.

use std::time::Duration;

use anabranch_policy::Dispatch;
use serde::Serialize;

use super::{Cost, Needs, Parameter, Parts, Policy, Row, Target, default};
use crate::algorithm::{Algorithm, Retry, Weighting};
use crate::link::RateNeed;
use crate::measure::{self, Distance};
use crate::multilink::{Parameters, Spread};

/// A segment without data or options, over IPv4.
const SEGMENT_BYTES: u32 = 40;

/// What is sent to measure, and from what (Peng 2005 table 5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// With IP headers, where it has any.
    pub bytes: String,
    /// Of the host.
    pub sockets: &'static str,
}

/// All that people are told of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// As files, commands and reports write it.
    pub name: &'static str,
    /// Understood as well.
    pub alias: Option<&'static str>,
    /// In a few words.
    pub meaning: &'static str,
    /// Where it is defined.
    pub source: &'static str,
    /// What it chooses among.
    pub target: Target,
    /// It is used where nothing is named.
    pub is_default: bool,
    /// As files write it without a name.
    pub tuple: Option<String>,
    /// In the words of files.
    pub parts: Parts,
    /// The measure is divided by what links were given.
    pub by_rate: bool,
    /// What paths are compared by, in words.
    pub measured: &'static str,
    /// How far away that looks which paths are compared by.
    pub distance: Distance,
    /// Between two measurements, where a timer says when.
    pub period: Option<Duration>,
    /// What may be set, with its defaults.
    pub parameters: Vec<Parameter>,
    /// What has to be there.
    pub needs: Needs,
    /// What it costs.
    pub cost: Cost,
    /// What is sent for it.
    pub sent: Sent,
    /// Which sites it suits, and which not.
    pub suits: Vec<&'static str>,
}

impl Row {
    /// What people are told of it.
    pub fn page(&self) -> Page {
        let policy = &self.policy;
        let algorithm = match policy {
            Policy::Gateway(algorithm) => Some(algorithm),
            Policy::Packet | Policy::Trunk(_) => None,
        };
        let parts = policy.parts();
        Page {
            name: self.name,
            alias: self.alias,
            meaning: self.meaning,
            source: self.source,
            target: policy.target(),
            is_default: default(policy.target()) == self,
            tuple: algorithm.map(Algorithm::tuple),
            parts,
            by_rate: algorithm.is_some_and(|it| it.weighting == Weighting::Rate),
            measured: algorithm.map_or(parts.measure, Algorithm::measured),
            distance: policy.distance(),
            period: policy.period(),
            parameters: policy.parameters(),
            needs: policy.needs(),
            cost: policy.cost(),
            sent: policy.sent(),
            suits: policy.suits(),
        }
    }
}

impl Policy {
    /// How far away that looks which paths are compared by.
    fn distance(&self) -> Distance {
        match self {
            Policy::Gateway(algorithm) => algorithm.distance(),
            Policy::Packet | Policy::Trunk(_) => Distance::Local,
        }
    }

    /// Between two measurements, where a timer says when.
    fn period(&self) -> Option<Duration> {
        match self {
            Policy::Gateway(algorithm) => {
                let active = algorithm.active.map(|active| active.period());
                algorithm.period.or(active)
            }
            Policy::Packet => None,
            Policy::Trunk(spread) => spread.period(),
        }
    }

    /// What is sent for it.
    fn sent(&self) -> Sent {
        match self {
            Policy::Gateway(algorithm) => algorithm.sent(),
            Policy::Packet | Policy::Trunk(_) => Sent::nothing(),
        }
    }

    /// Which sites it suits, and which not.
    fn suits(&self) -> Vec<&'static str> {
        match self {
            Policy::Gateway(algorithm) => algorithm.suits(),
            Policy::Packet => vec![
                "a site whose own addresses all providers route to it, and whose hosts bear packets out of order",
            ],
            Policy::Trunk(spread) => vec![spread.suits()],
        }
    }
}

impl Sent {
    /// Nothing, from no socket.
    pub fn nothing() -> Sent {
        Sent::new("none", "none")
    }

    /// So many bytes from these sockets.
    pub fn new(bytes: impl Into<String>, sockets: &'static str) -> Sent {
        Sent {
            bytes: bytes.into(),
            sockets,
        }
    }
}

impl Algorithm {
    fn sent(&self) -> Sent {
        if self.races_per_s.is_some() {
            let bytes =
                format!("of a SYN what the host's has, of a RST {SEGMENT_BYTES}; IPv6 20 more");
            return Sent::new(bytes, "none");
        }
        if self.probes_per_s.is_some() {
            let bytes = format!("{SEGMENT_BYTES} a segment, as many in answer; IPv6 20 more");
            return Sent::new(bytes, "none");
        }
        if let Some(active) = self.active {
            let a_second = active.listed * SEGMENT_BYTES / active.period_s;
            let bytes = format!(
                "{SEGMENT_BYTES} a segment: {a_second} a second over each link, as many in answer; IPv6 20 more"
            );
            return Sent::new(bytes, "one, while a segment leaves");
        }
        match self.measure.distance {
            Distance::Node => Sent::new(
                "of a question and its answer 56 (ICMP), 144 (DNS) or 212 (TCP); IPv6 20 more a packet",
                "one for each link, while an answer is out",
            ),
            Distance::Local | Distance::LastMile | Distance::Destination => Sent::nothing(),
        }
    }

    fn suits(&self) -> Vec<&'static str> {
        let mut suits = vec![self.suits_by_reach()];
        if self.measure.is_periodic() && self.dispatch == Dispatch::Best {
            suits.push("few flows at a time: all that open between two measurements take one link");
        }
        if self.measure.is_periodic() && self.dispatch == Dispatch::Weighted {
            suits.push("many flows at a time: they are spread between two measurements, too");
        }
        if self.weighting == Weighting::Rate {
            suits.push("links of unequal rates");
        }
        if self.by_loss {
            suits.push("links that lose more than a packet of a hundred, each another part");
        }
        if self.retry == Retry::Elsewhere {
            suits.push(
                "links that fail beyond what availability sees: a SYN sent again goes elsewhere",
            );
        }
        suits
    }

    fn suits_by_reach(&self) -> &'static str {
        match self.distance() {
            Distance::Destination if self.dispatch == Dispatch::Soonest => {
                "links whose rates nobody knows, with destinations near over some and far over others"
            }
            Distance::Destination if self.races_per_s.is_some() => {
                "destinations that are nearer over some links, whoever they are; servers see SYNs that are reset"
            }
            Distance::Destination if self.probes_per_s.is_some() => {
                "destinations that are nearer over some links, where connections may wait a round trip more"
            }
            Distance::Destination if self.active.is_some() => {
                "destinations that are nearer over some links, where a list of them takes most connections"
            }
            Distance::Destination => {
                "destinations that are nearer over some links and are asked again and again; nothing is sent"
            }
            Distance::Node => {
                "links that are slow before the fixed node; what is beyond it is not seen"
            }
            Distance::LastMile if self.measure.rates != RateNeed::None => {
                "links whose declared rates are what they carry, and that are the bottleneck; what is beyond them is not seen"
            }
            Distance::LastMile => "links that are the bottleneck; what is beyond them is not seen",
            Distance::Local if *self.measure == measure::NONE => {
                "links that are alike, and many small flows"
            }
            Distance::Local if self.measure.counts_live_flows() => {
                "links whose rates nobody knows: on a slow one flows stay open, and so it gets fewer"
            }
            Distance::Local => "links that are alike, and flows that are, too",
        }
    }
}

impl Spread {
    fn period(self) -> Option<Duration> {
        let check_period = Parameters::default().check_period;
        self.is_dynamic().then_some(check_period)
    }

    fn suits(self) -> &'static str {
        match self {
            Spread::Hash => {
                "many small flows: nothing is kept, and a large one has its sublink to the end"
            }
            Spread::Dh => "flows of about equal rate: it moves many bins at once",
            Spread::Dhfv => "flows of which few carry most: it moves the one that matters",
            Spread::Drr => "traffic that bears packets out of order: as even as can be",
            Spread::Flowlet { .. } => "flows that pause for longer than sublinks differ in delay",
            Spread::Rendezvous => "sublinks that come and go: only what was on them moves",
            Spread::Bonding | Spread::Mlppp | Spread::Single => "comparisons, in scenarios alone",
        }
    }
}
