use anabranch_policy::Load;

use super::{Better, Distance, Measure, Taken};
use crate::link::RateNeed;

/// Peng's CSN, current session number, counted by dispatches: flows that were given to the link.
pub static DISPATCHED: Measure = Measure {
    name: "dispatched",
    distance: Distance::Local,
    better: Better::Less,
    taken: Taken::AtChoice(Load::Dispatched),
    rates: RateNeed::None,
    by_rate: true,
    meaning: "flows dispatched to each link",
    state: "a counter",
};
