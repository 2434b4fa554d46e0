use anabranch_core::RateNeed;
use anabranch_core::catalogue::{self, TargetKind};
use anabranch_scenario::{Policy, Run};

use super::cells::{OURS, declaring};
use crate::mutation::{EVEN, RANDOM, again, under};
use crate::{Mutation, mutations};

pub(super) const ALL: &[Mutation] = mutations! {
    RANDOM, EVEN;
    "swapped": "adaptive is WSDM, and WSDM is adaptive" =>
        run: |run| match run.policy_name.as_str() {
            OURS => stand_in(run, "WSDM"),
            "WSDM" => stand_in(run, OURS),
            _ => run.clone(),
        };
    "whole": "nothing is left out of adaptive" =>
        run: |run| match run.policy_name.starts_with("no-") {
            true => stand_in(run, OURS),
            false => run.clone(),
        };
    "unaware": "adaptive is a random mark for each connection, over dead links, too" =>
        run: |run| match run.policy_name.as_str() {
            OURS => stand_in(run, "nftables"),
            _ => run.clone(),
        };
    "always-racing": "FRRTDF under every policy" => run: |run| under(run, "FRRTDF");
};

fn stand_in(run: &Run, name: &str) -> Run {
    let policy = catalogue::find(TargetKind::Link, name)
        .expect("a row")
        .policy;
    let policy = Policy::Product(policy);
    let declares = policy.facts().needs().rates != RateNeed::None;
    again(run, declaring(&run.scenario, declares), policy)
}
