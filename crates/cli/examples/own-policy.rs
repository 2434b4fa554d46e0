//! A policy of one's own in the simulator, beside WSDM and RR. With arguments this is the command `anabranch`, which knows the
//! policy everywhere: `lab run`, `run`, `policies`, ….

use std::env::args;
use std::process::ExitCode;

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

fn main() -> ExitCode {
    let meaning = "in proportion to what one more flow may hope for";
    let own = vec![Row::own(Algorithm::own(&HOPE), meaning)];
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/own-policy.toml");
    match args().len() {
        1 => anabranch_cli::run(["own-policy", "sim", "run", scenario], own),
        _ => anabranch_cli::run(args(), own),
    }
}
