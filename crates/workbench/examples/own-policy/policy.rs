//! A policy of one's own, for the gateway and for the laboratory.

use anabranch_core::catalogue::Row;
use anabranch_core::measure::Measure;
use anabranch_core::{Algorithm, LinkView, OwnPolicy, RateNeed, Time};

/// What one more flow may hope for: what is left of a link, or an equal part of it.
#[derive(Debug)]
struct Hope;

impl OwnPolicy for Hope {
    fn weigh(&mut self, _now: Time, links: &[LinkView<'_>]) -> Vec<u64> {
        let hope = |link: &LinkView<'_>| {
            let equal = link.spec.rate_down_bps.unwrap_or(0) / (link.active + 1);
            equal.max(link.left_down_bps.unwrap_or(0))
        };
        links.iter().map(hope).collect()
    }
}

static HOPE: Measure = Measure {
    rates: RateNeed::Down,
    ..Measure::own("hope", || Box::new(Hope))
};

pub fn own() -> Vec<Row> {
    let meaning = "in proportion to what one more flow may hope for";
    vec![Row::own(Algorithm::own(&HOPE), meaning)]
}
