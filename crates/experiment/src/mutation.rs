//! Deliberately broken worlds: a claim that holds in all of them claims nothing.
//!
//! A [`Mutation`] changes what a figure is given, while the figure goes on to call it by its old name: DHFV moves the
//! second largest bin, packets go by hash instead of in turn. The claims that a reader would no longer believe must fail.

use std::sync::Arc;

use anabranch_core::Typed;
use anabranch_scenario::{LinkPlan, Network, Policy, Run, Scenario};
use anabranch_sim::fluid::Sharing;

use crate::Prefixes;

/// What is broken, and how.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    /// As in `fails_under`.
    pub name: &'static str,
    /// In a sentence.
    pub what: &'static str,
    /// The run that takes place instead.
    pub run: fn(&Run) -> Run,
    /// What the fluid model is given instead: the rates of the links, and how flows share them.
    pub serve: fn(&mut Vec<u64>, &mut Sharing),
    /// What connections to many prefixes are drawn from instead, and how those are probed.
    pub prefixes: fn(&mut Prefixes),
    /// Whether topics of the simulator's validation are replaced by their mutants of this name.
    pub topics: bool,
}

impl Mutation {
    /// Nothing is broken.
    pub const NONE: Mutation = Mutation {
        name: "",
        what: "",
        run: Run::clone,
        serve: |_, _| {},
        prefixes: |_| {},
        topics: false,
    };
}

/// A table of mutations: those of several experiments, and `NAME: WHAT => FIELDS;` of each other.
macro_rules! mutations {
    ($($($shared:ident),+;)? $($name:literal: $what:literal => $($field:ident: $value:expr),+;)+) => {
        &[$($($shared,)+)? $($crate::Mutation {
            name: $name,
            what: $what,
            $($field: $value,)+
            ..$crate::Mutation::NONE
        }),+]
    };
}
pub(crate) use mutations;

/// The run with another scenario and policy.
pub(crate) fn again(run: &Run, scenario: Arc<Scenario>, policy: impl Into<Typed<Policy>>) -> Run {
    Run::new(scenario, policy, run.seed, run.point.clone())
}

/// The run under the gateway's policy of this name, whatever its own is.
pub(crate) fn under(run: &Run, name: &str) -> Run {
    let policy = Policy::gateway(name.parse().expect("a row of the table"));
    again(run, run.scenario.clone(), policy)
}

/// Nothing is heeded.
pub(crate) const RANDOM: Mutation = Mutation {
    name: "random",
    what: "at random under every policy",
    run: |run| under(run, "random"),
    ..Mutation::NONE
};

/// No link differs, and nothing changes.
pub(crate) const EVEN: Mutation = Mutation {
    name: "even",
    what: "every link is as the first, and stays so",
    run: even,
    ..Mutation::NONE
};

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
