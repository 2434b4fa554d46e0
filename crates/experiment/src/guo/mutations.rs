use std::sync::Arc;

use anabranch_scenario::{LinkPlan, Network, Policy, Run, Scenario};
use anabranch_sim::fluid::{Counted, Sharing};

use super::trace::{Row, addressed};
use crate::{Mutation, mutations};

pub(super) const ALL: &[Mutation] = mutations! {
    "one-link": "one ISP, whatever is said" =>
        run: one_link,
        serve: |rates_bps, _| rates_bps.truncate(1),
        prefixes: |prefixes| prefixes.isps = 1;
    "first-link": "by hash and by load, always the first ISP" =>
        run: |run| match run.policy == Row::Packet.policy() {
            true => run.clone(),
            false => one_link(run),
        },
        serve: |rates_bps, _| rates_bps.truncate(1);
    "packet-for-hash": "packet by packet in place of hash" =>
        run: |run| in_place_of(run, Row::Hash, Row::Packet.policy());
    "packet-for-load": "packet by packet in place of load" =>
        run: |run| in_place_of(run, Row::Load, Row::Packet.policy());
    "hash-for-packet": "by hash in place of packet by packet" =>
        run: |run| in_place_of(run, Row::Packet, Row::Hash.policy());
    "load-for-packet": "by load in place of packet by packet" =>
        run: |run| in_place_of(run, Row::Packet, Row::Load.policy());
    "hash-for-load": "by hash in place of load" =>
        run: |run| in_place_of(run, Row::Load, Row::Hash.policy()),
        serve: |_, sharing| {
            if let Sharing::Chosen(algorithm, _) = sharing {
                *algorithm = "hash-sum".parse().expect("a row of the table");
            }
        };
    "random-load": "at random in place of load" =>
        run: |run| {
            let random = "random".parse().expect("a row of the table");
            in_place_of(run, Row::Load, Policy::gateway(random))
        };
    "half-rate": "links of half the rate" =>
        run: half_rate,
        serve: |rates_bps, _| rates_bps.iter_mut().for_each(|rate_bps| *rate_bps /= 2);
    "even-visits": "every prefix is visited as often" => prefixes: |prefixes| prefixes.skew = 0.0;
    "one-try": "a way is given up after one lost SYN" => prefixes: |prefixes| prefixes.tries = 1;
    "both-ways": "the load of both directions where that of the own one is told" =>
        serve: |_, sharing| {
            if let Sharing::Chosen(_, counted) = sharing {
                *counted = Counted::BothWays;
            }
        };
};

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
