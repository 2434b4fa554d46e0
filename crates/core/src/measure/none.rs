use super::{Better, Distance, Measure, Taken};
use crate::link::RateNeed;

/// Nothing: every usable target is as good as another.
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
