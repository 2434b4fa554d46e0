use std::sync::Arc;

use anabranch_scenario::{LinkPlan, Network, Policy, Run, Scenario};
use anabranch_sim::fluid::{Counted, Sharing};

use super::trace::{Row, addressed};
use crate::Mutation;

pub(super) const ALL: &[Mutation] = &[
    Mutation {
        name: "one-link",
        what: "one ISP, whatever is said",
        run: one_link,
        serve: |rates_bps, _| rates_bps.truncate(1),
        prefixes: |prefixes| prefixes.isps = 1,
        ..Mutation::NONE
    },
    Mutation {
        name: "first-link",
        what: "by hash and by load, always the first ISP",
        run: |run| match run.policy == Row::Packet.policy() {
            true => run.clone(),
            false => one_link(run),
        },
        serve: |rates_bps, _| rates_bps.truncate(1),
        ..Mutation::NONE
    },
    Mutation {
        name: "packet-for-hash",
        what: "packet by packet in place of hash",
        run: |run| in_place_of(run, Row::Hash, Row::Packet.policy()),
        ..Mutation::NONE
    },
    Mutation {
        name: "packet-for-load",
        what: "packet by packet in place of load",
        run: |run| in_place_of(run, Row::Load, Row::Packet.policy()),
        ..Mutation::NONE
    },
    Mutation {
        name: "hash-for-packet",
        what: "by hash in place of packet by packet",
        run: |run| in_place_of(run, Row::Packet, Row::Hash.policy()),
        ..Mutation::NONE
    },
    Mutation {
        name: "load-for-packet",
        what: "by load in place of packet by packet",
        run: |run| in_place_of(run, Row::Packet, Row::Load.policy()),
        ..Mutation::NONE
    },
    Mutation {
        name: "hash-for-load",
        what: "by hash in place of load",
        run: |run| in_place_of(run, Row::Load, Row::Hash.policy()),
        serve: |_, sharing| {
            if let Sharing::Chosen(algorithm, _) = sharing {
                *algorithm = "hash-sum".parse().expect("a row of the table");
            }
        },
        ..Mutation::NONE
    },
    Mutation {
        name: "random-load",
        what: "at random in place of load",
        run: |run| {
            let random = "random".parse().expect("a row of the table");
            in_place_of(run, Row::Load, Policy::gateway(random))
        },
        ..Mutation::NONE
    },
    Mutation {
        name: "half-rate",
        what: "links of half the rate",
        run: half_rate,
        serve: |rates_bps, _| rates_bps.iter_mut().for_each(|rate_bps| *rate_bps /= 2),
        ..Mutation::NONE
    },
    Mutation {
        name: "even-visits",
        what: "every prefix is visited as often",
        prefixes: |prefixes| prefixes.skew = 0.0,
        ..Mutation::NONE
    },
    Mutation {
        name: "one-try",
        what: "a way is given up after one lost SYN",
        prefixes: |prefixes| prefixes.tries = 1,
        ..Mutation::NONE
    },
    Mutation {
        name: "both-ways",
        what: "the load of both directions where that of the own one is told",
        serve: |_, sharing| {
            if let Sharing::Chosen(_, counted) = sharing {
                *counted = Counted::BothWays;
            }
        },
        ..Mutation::NONE
    },
];

fn one_link(run: &Run) -> Run {
    with_links(run, |links| links.truncate(1))
}

fn half_rate(run: &Run) -> Run {
    with_links(run, |links| {
        for link in links {
            link.up.rate_bps /= 2;
            link.down.rate_bps /= 2;
        }
    })
}

fn with_links(run: &Run, change: impl Fn(&mut Vec<LinkPlan>)) -> Run {
    let mut scenario = Scenario::clone(&run.scenario);
    if let Network::Site(site) = &mut scenario.network {
        change(&mut site.links);
    }
    Run::new(Arc::new(scenario), run.policy, run.seed, run.point.clone())
}

fn in_place_of(run: &Run, row: Row, policy: Policy) -> Run {
    let policy = match run.policy == row.policy() {
        true => policy,
        false => run.policy,
    };
    let scenario = addressed(&run.scenario, policy);
    Run::new(scenario, policy, run.seed, run.point.clone())
}
