//! Links: their numbers, configuration, counters and state, as the balancer and its driver exchange them.

use std::fmt;

use anabranch_policy::{PerFamily, abi};
use serde::Deserialize;

/// A link by its place in the list given to [`Balancer::new`](crate::Balancer::new), which is its index in every map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u16);

impl LinkId {
    /// Index into tables with a place for each link.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {}", self.0)
    }
}

/// Seen from the LAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Towards the LAN.
    Down,
    /// Towards the internet.
    Up,
}

/// A set of links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSet(u64);

impl LinkSet {
    /// The bits in the programs' representation.
    pub const fn targets(self) -> abi::Set {
        abi::Set::of_word(self.0)
    }

    /// This set without a link.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the set has a link.
    pub const fn contains(self, link: LinkId) -> bool {
        (self.0 >> link.0) & 1 == 1
    }
}

impl std::ops::BitOr for LinkSet {
    type Output = LinkSet;

    /// The union of two sets.
    fn bitor(self, other: LinkSet) -> LinkSet {
        LinkSet(self.0 | other.0)
    }
}

impl std::ops::BitAnd for LinkSet {
    type Output = LinkSet;

    /// The intersection of two sets.
    fn bitand(self, other: LinkSet) -> LinkSet {
        LinkSet(self.0 & other.0)
    }
}

impl FromIterator<LinkId> for LinkSet {
    fn from_iter<I: IntoIterator<Item = LinkId>>(links: I) -> Self {
        LinkSet(links.into_iter().fold(0, |bits, link| bits | 1 << link.0))
    }
}

/// The configuration of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkSpec {
    /// Its name, which no other link has.
    pub name: String,
    /// Physical rate towards the internet (Peng's FB, outbound).
    pub rate_up_bps: Option<u64>,
    /// Physical rate towards the LAN (Peng's FB, inbound).
    pub rate_down_bps: Option<u64>,
    /// For algorithms weighted by rate, in place of the rates. Dimensionless; all links have one, or none.
    pub weight: Option<u32>,
    /// Takes new flows of a class without tiers only while no unmetered link is usable, and is probed less often.
    pub metered: bool,
    /// Without NAT: the addresses of the LAN are known beyond it.
    pub routed: bool,
    /// What happens to flows on it when a better link returns, unless their class says otherwise.
    pub on_return: OnReturn,
}

/// The declared rates that a policy needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateNeed {
    /// None.
    None,
    /// Towards the internet, of every link.
    Up,
    /// Towards the LAN, of every link.
    Down,
    /// At least one direction of every link.
    Either,
    /// At least one direction of every link, or a weight.
    EitherOrWeight,
}

impl RateNeed {
    /// Whether a link declares what is needed.
    pub fn is_met_by(self, spec: &LinkSpec) -> bool {
        let either = spec.rate_up_bps.is_some() || spec.rate_down_bps.is_some();
        match self {
            RateNeed::None => true,
            RateNeed::Up => spec.rate_up_bps.is_some(),
            RateNeed::Down => spec.rate_down_bps.is_some(),
            RateNeed::Either => either,
            RateNeed::EitherOrWeight => either || spec.weight.is_some(),
        }
    }
}

impl fmt::Display for RateNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RateNeed::None => "nothing",
            RateNeed::Up => "`up`",
            RateNeed::Down => "`down`",
            RateNeed::Either => "`down` or `up`",
            RateNeed::EitherOrWeight => "`weight`, `down` or `up`",
        })
    }
}

/// What happens to flows on a link when a better link returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnReturn {
    /// They stay until they end.
    #[default]
    Stay,
    /// UDP flows move in their first pause of a second, all of them within five; TCP flows stay.
    Idle,
    /// All move at once: TCP connections are reset, as when the link is lost.
    Move,
}

/// The data path's counters of a link since it was loaded, summed over all CPUs.
///
/// They count forwarded flows only: if they counted the driver's own probes, each probe would cause the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets and bytes of both directions, and the signs in them that the link works or loses packets.
    pub traffic: PerFamily<abi::Traffic>,
    /// Flows dispatched, opened and closed, of all families.
    pub flows: abi::Gauge,
}

impl LinkCounters {
    /// The traffic of all families, which is the link's load.
    pub fn carried(&self) -> abi::Traffic {
        let mut sum = abi::Traffic::default();
        self.traffic.values().for_each(|traffic| sum += *traffic);
        sum
    }
}

/// Whether a link has what it needs to carry packets of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// It has everything.
    Present,
    /// It has a carrier but no address, and had one a moment ago: its flows wait for the address. It takes no new ones, and
    /// unanswered probes prove nothing.
    Changing,
    /// Something is missing.
    Absent(Missing),
}

/// The first thing that an absent link lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Its device.
    Device,
    /// Its device is down or unplugged.
    Carrier,
    /// An address to send from.
    Address,
    /// A next hop.
    Gateway,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Missing::Device => "no device",
            Missing::Carrier => "no carrier",
            Missing::Address => "no address",
            Missing::Gateway => "no gateway",
        })
    }
}

/// The operator's order for a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admin {
    /// In use.
    #[default]
    Up,
    /// No new flows; those it has live on.
    Drain,
    /// No flows at all: those it has end as soon as another link can take them.
    Down,
}
