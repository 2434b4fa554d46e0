use anabranch_policy::Load;

use super::{Better, Distance, Measure, Taken};
use crate::link::RateNeed;

/// Peng's CSN, current session number: flows that are still open.
pub static ACTIVE: Measure = Measure {
    name: "active",
    distance: Distance::Local,
    better: Better::Less,
    taken: Taken::AtChoice(Load::Active),
    rates: RateNeed::None,
    by_rate: true,
    meaning: "flows still open on each link",
    state: "two counters",
};
