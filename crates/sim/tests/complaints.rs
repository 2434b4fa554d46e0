//! What hosts say against links that carry flows, in virtual time.

mod common;

use std::time::Duration;

use anabranch_core::Event;
use anabranch_scenario::{Change, Load, Network, Passage, Place, Probe, Scenario, Service};
use anabranch_sim::watch;
use anabranch_workload::{Arrival, Pattern, RemoteServerId, UserId};
use common::*;

/// They answer nobody.
const DEAD: [u32; 3] = [1, 2, 3];
const LENGTH: Duration = Duration::from_secs(120);

/// Two links that work, of which somebody filters pings, and one user who asks for something now and then. `hosts` others call dead
/// servers all the time.
fn with_dead_servers(hosts: u32) -> Scenario {
    let links = vec![far("a", ms(5)), far("b", ms(5))];
    let mut load = downloads(1, 1000, ms(4000), ms(0), LENGTH);
    let Load::Arrivals(plan) = &mut load else {
        panic!("no arrivals");
    };
    let Pattern::Rows(rows) = &mut plan.pattern else {
        panic!("no rows");
    };
    let mut calls = Vec::new();
    let mut at = ms(10_000);
    while at < LENGTH {
        let servers = DEAD.into_iter().map(RemoteServerId);
        let users = (1..=hosts).map(UserId);
        let pairs = users.flat_map(|user| servers.clone().map(move |server| (user, server)));
        calls.extend(pairs.map(|(user, server)| Arrival {
            at,
            user,
            server,
            ..rows[0]
        }));
        at += ms(1500);
    }
    rows.extend(calls);
    let mut scenario = scenario(links, load, LENGTH);
    let Network::Site(site) = &mut scenario.network else {
        panic!("no links");
    };
    site.probes = vec![Probe::Dns, Probe::Icmp];
    site.dead_servers = DEAD.to_vec();
    for name in ["a", "b"] {
        let mut filter = fault(ms(1), name, Change::Passage(Passage::AllBut(Service::Icmp)));
        filter.place = Place::Beyond;
        scenario.faults.push(filter);
    }
    scenario
}

#[test]
fn one_host_with_dead_ends_sways_no_link_where_a_kind_is_filtered_on_all() {
    for seed in 1..=5 {
        let run = of(&with_dead_servers(1), gateway("RR"), seed);
        let told = watch(&run, ms(1000), &mut |_, _| ()).unwrap();
        let is_accusation =
            |event: &Event| matches!(event, Event::Captive { .. } | Event::LinkDown { .. });
        assert!(
            !told.iter().any(|(_, event)| is_accusation(event)),
            "seed {seed}: {told:?}"
        );
    }
}
