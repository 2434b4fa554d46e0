//! What is known of a target when a path is chosen: a file each, and a row of [`MEASURES`].
//!
//! A measure says how far away it looks, when it is taken, which of two values is the better one, and which rates it
//! cannot do without. Whoever chooses asks it and nothing else: no code beyond its file knows a measure by its name.

mod active;
mod carried;
mod dispatched;
mod none;
mod st_in;
mod st_mix;
mod st_out;
#[cfg(any(test, feature = "toys"))]
pub mod toy;

use std::fmt;

use anabranch_policy::Load;
use serde::{Serialize, Serializer};

use crate::bandwidth::LinkLoad;
use crate::link::RateNeed;

pub use active::ACTIVE;
pub use carried::CARRIED;
pub use dispatched::DISPATCHED;
pub use none::NONE;
pub use st_in::ST_IN;
pub use st_mix::{Mixture, ST_MIX};
pub use st_out::ST_OUT;

/// Every measure, as files may name it.
pub static MEASURES: [&Measure; 7] = [
    &NONE,
    &DISPATCHED,
    &ACTIVE,
    &CARRIED,
    &ST_OUT,
    &ST_IN,
    &ST_MIX,
];

#[cfg(any(test, feature = "toys"))]
static TOYS: &[&Measure] = &[&toy::PACKETS];
#[cfg(not(any(test, feature = "toys")))]
static TOYS: &[&Measure] = &[];

/// One measure. Two are the same if they have the same name.
pub struct Measure {
    /// As files name it.
    pub name: &'static str,
    /// How far away it looks.
    pub distance: Distance,
    /// Which of two values is the better one.
    pub better: Better,
    /// When and by whom.
    pub taken: Taken,
    /// Without which it has no value.
    pub rates: RateNeed,
    /// What has to be kept of each target.
    pub state: &'static str,
}

/// How far away a measure looks (Peng 2005, measuring distance).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// Own counters: D = 0.
    Local,
    /// The access line: D = 1.
    LastMile,
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
    /// Not at all: the dispatch looks at nothing.
    Never,
    /// By the data path, at each choice.
    AtChoice(Load),
    /// By the balancer, anew every period; so it ranks links by itself.
    EveryPeriod(fn(&Observed<'_>) -> u64),
}

/// What the balancer knows of a link at the end of a period.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// Its rates and what is left of them.
    pub load: &'a LinkLoad,
    /// In both directions, since the period began.
    pub carried_bytes: u64,
    /// The same in packets.
    pub carried_packets: u64,
    /// Of the site's traffic over all links.
    pub mixture: &'a Mixture,
}

impl Measure {
    /// Whether the balancer takes it, every period.
    pub fn is_periodic(&self) -> bool {
        matches!(self.taken, Taken::EveryPeriod(_))
    }

    /// Whether it is of flows while they live: nothing is to be had of it where packets make none.
    pub fn counts_live_flows(&self) -> bool {
        matches!(self.taken, Taken::AtChoice(Load::Active))
    }
}

/// Every measure that files may name.
pub(crate) fn all() -> impl Iterator<Item = &'static Measure> {
    MEASURES.iter().chain(TOYS).copied()
}

/// The names of those that rank links, in quotation marks.
pub(crate) fn periodic_names() -> String {
    let names = MEASURES.iter().filter(|measure| measure.is_periodic());
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
