use std::sync::Arc;

use anabranch_scenario::{LinkPlan, Network, Run, Scenario, Site};

use crate::mutation::{again, under};
use crate::{Mutation, mutations};

pub(super) const ALL: &[Mutation] = mutations! {
    "one-link": "only BL1, whatever is said" => run: |run| with_site(run, |site| site.links.truncate(1));
    "random": "at random under every algorithm" => run: |run| under(run, "random");
    "swapped": "weighted in place of best, and best in place of weighted" => run: |run| stand_in(run, &SCHEMES);
    "pair-for-connection": "one choice per pair of hosts in place of one per connection, and the reverse" =>
        run: |run| stand_in(run, &GRANULARITIES);
    "other-measure": "each measuring type is the next: CSN is ST, ST is MRT, MRT is CSN" =>
        run: |run| stand_in(run, &MEASURES);
    "always-asking": "FRRTFNF under every algorithm" => run: |run| under(run, "FRRTFNF");
    "merged": "one link of all rates together" => run: |run| with_site(run, merge);
    "no-congestion": "BL2 is as the others" =>
        run: |run| {
            with_site(run, |site| {
                let first = site.links[0].clone();
                if let Some(second) = site.links.get_mut(1) {
                    let name = second.name.clone();
                    *second = LinkPlan { name, ..first };
                }
            })
        };
    "equal-links": "each link has 512 kbit/s, however many there are" =>
        run: |run| {
            with_site(run, |site| {
                for link in &mut site.links {
                    (link.up.rate_bps, link.down.rate_bps) = (512_000, 512_000);
                }
            })
        };
    "half-rate": "links of half the rate" =>
        run: |run| {
            with_site(run, |site| {
                for link in &mut site.links {
                    link.up.rate_bps /= 2;
                    link.down.rate_bps /= 2;
                }
            })
        };
};

/// What stands in for what, where the scenario has it.
const SCHEMES: [(&str, &str); 10] = [
    ("MORBF", "WMORBF"),
    ("WMORBF", "MORBF"),
    ("MORBF-1s", "WMORBF-1s"),
    ("WMORBF-1s", "MORBF-1s"),
    ("FRRTFNF", "WFRRTFNF"),
    ("WFRRTFNF", "FRRTFNF"),
    ("MIRBF", "WMIRBF"),
    ("WMIRBF", "MIRBF"),
    ("best", "weighted"),
    ("weighted", "best"),
];
const GRANULARITIES: [(&str, &str); 2] = [("WMORBF", "WMORBF-pair"), ("WMORBF-pair", "WMORBF")];
const MEASURES: [(&str, &str); 6] = [
    ("RR", "MORBF"),
    ("LCF", "WMORBF"),
    ("MORBF", "FRRTFNF"),
    ("WMORBF", "WFRRTFNF"),
    ("FRRTFNF", "RR"),
    ("WFRRTFNF", "LCF"),
];

fn stand_in(run: &Run, table: &[(&str, &str)]) -> Run {
    let row = table.iter().find(|(from, _)| *from == run.policy_name);
    let policies = &run.scenario.policies;
    let policy = row.and_then(|(_, to)| policies.iter().find(|each| each.name == *to));
    match policy {
        Some(policy) => again(run, run.scenario.clone(), policy.clone()),
        None => run.clone(),
    }
}

fn merge(site: &mut Site) {
    let rate = |of: fn(&LinkPlan) -> u64| site.links.iter().map(of).sum();
    let (up, down) = (
        rate(|link| link.up.rate_bps),
        rate(|link| link.down.rate_bps),
    );
    site.links.truncate(1);
    (site.links[0].up.rate_bps, site.links[0].down.rate_bps) = (up, down);
}

fn with_site(run: &Run, change: impl Fn(&mut Site)) -> Run {
    let mut scenario = Scenario::clone(&run.scenario);
    if let Network::Site(site) = &mut scenario.network {
        change(site);
        let names: Vec<_> = site.links.iter().map(|link| link.name.clone()).collect();
        scenario.faults.retain(|fault| names.contains(&fault.link));
    }
    again(run, Arc::new(scenario), run.policy)
}
