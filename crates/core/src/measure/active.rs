use anabranch_policy::Load;

use super::{Better, Distance, Measure, Taken};
use crate::link::RateNeed;

/// CSN: flows still incomplete.
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
