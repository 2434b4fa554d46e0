use std::sync::Arc;

use anabranch_scenario::{LinkPlan, Network, Run, Scenario};

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
        name: "always-probing",
        what: "PCM under every policy",
        run: |run| under(run, "PCM"),
        ..Mutation::NONE
    },
    Mutation {
        name: "even",
        what: "every link is as the first, and stays so",
        run: even,
        ..Mutation::NONE
    },
];

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
