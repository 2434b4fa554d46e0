//! Measures: what is known of a target when a flow chooses among targets. Each measure has a file and a row of [`MEASURES`].
//!
//! A measure states how far away it looks, when it is taken, whether a greater or smaller value is better, and which rates it
//! needs. All other code uses these properties only: no code outside the measure's file knows a measure by its name.

mod active;
mod capacity;
mod carried;
mod carried_way;
mod dispatched;
mod none;
mod response;
mod server;
mod st_in;
mod st_mix;
mod st_out;
#[cfg(any(test, feature = "toys"))]
pub mod toy;

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use anabranch_policy::Load;
use anabranch_policy::abi::Traffic;
use serde::{Serialize, Serializer};

use crate::bandwidth::LinkLoad;
use crate::link::{Direction, RateNeed};
use crate::own::OwnPolicy;
use crate::served::Served;

pub use active::ACTIVE;
pub use capacity::{CAPACITY, CAPACITY_ALIKE, CAPACITY_AT_ONCE, CAPACITY_TRUSTING, FlowSizes};
pub use carried::CARRIED;
pub use carried_way::CARRIED_WAY;
pub use dispatched::DISPATCHED;
pub use none::NONE;
pub use response::RESPONSE;
pub use server::{ANSWER_TIME, CHECK_TIME, OPEN_THEN, PEAK, SENT};
pub use st_in::ST_IN;
pub use st_mix::{Mixture, ST_MIX};
pub use st_out::ST_OUT;

/// Every measure that files may name.
pub static MEASURES: [&Measure; 13] = [
    &NONE,
    &DISPATCHED,
    &ACTIVE,
    &CARRIED,
    &CARRIED_WAY,
    &ST_OUT,
    &ST_IN,
    &ST_MIX,
    &RESPONSE,
    &CAPACITY,
    &CAPACITY_ALIKE,
    &CAPACITY_TRUSTING,
    &CAPACITY_AT_ONCE,
];

#[cfg(any(test, feature = "toys"))]
static TOYS: &[&Measure] = &[&toy::PACKETS];
#[cfg(not(any(test, feature = "toys")))]
static TOYS: &[&Measure] = &[];

/// One measure. Two are the same if they have the same name.
pub struct Measure {
    /// Its name in files.
    pub name: &'static str,
    /// How far away it looks.
    pub distance: Distance,
    /// Which of two values is the better one.
    pub better: Better,
    /// When it is taken, and by whom.
    pub taken: Taken,
    /// Rates that each link must declare, or the measure has no value.
    pub rates: RateNeed,
    /// Whether it may be divided by the links' rates before links are compared (`by_rate`).
    pub by_rate: bool,
    /// What is compared, in a few words. docs/policies.md has it.
    pub meaning: &'static str,
    /// The state that it needs for each target, in a few words.
    pub state: &'static str,
}

/// How far away a measure looks (Peng 2005, measuring distance).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// Own counters: D = 0.
    Local,
    /// The access line: D = 1.
    LastMile,
    /// A fixed node: D = H(P).
    Node,
    /// The destination of the flow: D = H(S).
    Destination,
}

/// Which of two values is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// The greater.
    More,
    /// The smaller.
    Less,
}

/// When a measure is taken, and by whom.
#[derive(Clone, Copy, Debug)]
pub enum Taken {
    /// Never: the dispatch uses no measure.
    Never,
    /// By the data path, at each choice.
    AtChoice(Load),
    /// By the balancer at the end of each period. The values are the weights.
    EveryPeriod(fn(&Observed<'_>) -> u64),
    /// By the balancer, which probes the fixed node over each link again as soon as it has the last answer (Peng's ΔT). The values
    /// are the weights.
    BackToBack(fn(&Observed<'_>) -> u64),
    /// Of servers, at the end of each window. The least value is the best; the weights follow from the values.
    EveryWindow(fn(&Served) -> u64),
    /// Of servers, at each result of their checks; the same for the rest.
    ByCheck(fn(&Served) -> u64),
    /// By an own policy, which sees all links at the end of each period. Each class has its own instance.
    ByPolicy(fn() -> Box<dyn OwnPolicy>),
}

/// What the balancer knows of a link at the end of a period.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// Its rates and its available bandwidth.
    pub load: &'a LinkLoad,
    /// What it carried in this period.
    pub carried: Traffic,
    /// Direction of the flows that will be assigned, if it is known.
    pub direction: Option<Direction>,
    /// The last round trip to the fixed node, if any.
    pub response: Option<Duration>,
    /// Of the site's traffic over all links.
    pub mixture: &'a Mixture,
}

impl Distance {
    /// Peng's notation.
    pub const fn word(self) -> &'static str {
        match self {
            Distance::Local => "0",
            Distance::LastMile => "1",
            Distance::Node => "H(P)",
            Distance::Destination => "H(S)",
        }
    }

    /// For people.
    pub const fn meaning(self) -> &'static str {
        match self {
            Distance::Local => "at the gateway itself",
            Distance::LastMile => "on the access line",
            Distance::Node => "as far as a fixed node",
            Distance::Destination => "as far as the destination",
        }
    }
}

impl Measure {
    /// The measure of an own policy; `make` creates an instance for each class. It needs no rates and no fixed node. For others
    /// write `Measure { rates, distance, ..Measure::own(name, make) }`.
    pub const fn own(name: &'static str, make: fn() -> Box<dyn OwnPolicy>) -> Measure {
        Measure {
            name,
            distance: Distance::LastMile,
            better: Better::More,
            taken: Taken::ByPolicy(make),
            rates: RateNeed::None,
            by_rate: false,
            meaning: "what it sees of all links",
            state: "what it remembers",
        }
    }

    /// Whether the balancer takes it at the end of each period.
    pub fn is_periodic(&self) -> bool {
        matches!(self.taken, Taken::EveryPeriod(_) | Taken::ByPolicy(_))
    }

    /// Whether it is that of an own policy.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.taken, Taken::ByPolicy(_))
    }

    /// Whether the balancer takes it with each answer of the fixed node.
    pub fn is_back_to_back(&self) -> bool {
        matches!(self.taken, Taken::BackToBack(_))
    }

    /// Whether its values are weights of the links. Otherwise the data path compares its counters.
    pub fn ranks(&self) -> bool {
        self.is_periodic() || self.is_back_to_back()
    }

    /// The packets that are sent for this measure, in words.
    pub fn probes(&self) -> &'static str {
        match self.distance {
            Distance::Node => {
                "one after the other over each link, at most 50 in a second, 2.5 over a metered one"
            }
            Distance::Local | Distance::LastMile | Distance::Destination => "none",
        }
    }

    /// Whether it counts open flows. It is of no use where packets are not counted as flows.
    pub fn counts_live_flows(&self) -> bool {
        matches!(self.taken, Taken::AtChoice(Load::Active))
    }
}

static OWN: OnceLock<Vec<&'static Measure>> = OnceLock::new();

/// Adds the measures of a program's own policies. Only the first call has an effect.
pub(crate) fn extend(own: Vec<&'static Measure>) {
    OWN.get_or_init(|| own);
}

/// Every measure that files may name.
pub(crate) fn all() -> impl Iterator<Item = &'static Measure> {
    let own = OWN.get().into_iter().flatten();
    MEASURES.iter().chain(TOYS).chain(own).copied()
}

/// The names of the measures for which `are` is true, each in quotation marks.
pub(crate) fn names_of(are: fn(&Measure) -> bool) -> String {
    let names = MEASURES.iter().filter(|measure| are(measure));
    let names: Vec<_> = names.map(|measure| format!("{:?}", measure.name)).collect();
    names.join(", ")
}

impl PartialEq for Measure {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Measure {}

impl fmt::Debug for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Serialize for Measure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}
