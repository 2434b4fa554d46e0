use super::{Better, Distance, Measure, Taken};
use crate::link::RateNeed;

/// No measure: all usable targets are equally good.
pub static NONE: Measure = Measure {
    name: "none",
    distance: Distance::Local,
    better: Better::More,
    taken: Taken::Never,
    rates: RateNeed::None,
    by_rate: false,
    meaning: "nothing",
    state: "nothing",
};
