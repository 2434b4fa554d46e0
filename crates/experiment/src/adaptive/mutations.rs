use std::sync::Arc;

use anabranch_core::RateNeed;
use anabranch_core::catalogue::{self, Target};
use anabranch_scenario::{LinkPlan, Network, Run, Scenario};

use super::cells::{OURS, declaring};
use crate::Mutation;
use crate::mutation::{again, under};

pub(super) const ALL: &[Mutation] = &[
    Mutation {
        name: "random",
        what: "at random under every policy",
        run: |run| under(run, "random"),
        ..Mutation::NONE
    },
    Mutation {
        name: "swapped",
        what: "adaptive is WSDM, and WSDM is adaptive",
        run: |run| match run.policy_name.as_str() {
            OURS => stand_in(run, "WSDM"),
            "WSDM" => stand_in(run, OURS),
            _ => run.clone(),
        },
        ..Mutation::NONE
    },
    Mutation {
        name: "whole",
        what: "nothing is left out of adaptive",
        run: |run| match run.policy_name.starts_with("no-") {
            true => stand_in(run, OURS),
            false => run.clone(),
        },
        ..Mutation::NONE
    },
    Mutation {
        name: "unaware",
        what: "adaptive is a random mark for each connection, over dead links, too",
        run: |run| match run.policy_name.as_str() {
            OURS => stand_in(run, "nftables"),
            _ => run.clone(),
        },
        ..Mutation::NONE
    },
    Mutation {
        name: "always-racing",
        what: "FRRTDF under every policy",
        run: |run| under(run, "FRRTDF"),
        ..Mutation::NONE
    },
    Mutation {
        name: "even",
        what: "every link is as the first, and stays so",
        run: even,
        ..Mutation::NONE
    },
];

fn stand_in(run: &Run, name: &str) -> Run {
    let policy = catalogue::find(Target::Link, name).expect("a row").policy;
    let declares = policy.needs().rates != RateNeed::None;
    again(run, declaring(&run.scenario, declares), policy)
}

fn even(run: &Run) -> Run {
    let mut scenario = Scenario::clone(&run.scenario);
    scenario.faults.clear();
    if let Network::Site(site) = &mut scenario.network {
        let first = site.links[0].clone();
        for link in &mut site.links {
            let name = link.name.clone();
            *link = LinkPlan {
                name,
                ..first.clone()
            };
        }
    }
    again(run, Arc::new(scenario), run.policy)
}
