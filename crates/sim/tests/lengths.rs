//! How long packets may be on a link (anabranch-core's `path_mtu`), in virtual time.

mod common;

use std::time::Duration;

use anabranch_core::{Event, LinkId, Time};
use anabranch_scenario::{Change, Network, Probe, Scenario};
use anabranch_sim::watch;
use common::*;

/// When it begins.
const HOLE: Duration = Duration::from_secs(30);

/// Two links, of which the first has an MTU black hole after half a minute, for two; little is sent.
fn with_a_hole() -> Scenario {
    let links = vec![link("a", 20_000_000), link("b", 20_000_000)];
    let load = downloads(1, 1000, ms(1000), ms(0), ms(239_000));
    let mut scenario = scenario(links, load, ms(240_000));
    let Network::Site(site) = &mut scenario.network else {
        panic!("no links");
    };
    site.probes = vec![Probe::Dns, Probe::Tcp, Probe::Icmp];
    let mend = fault(HOLE + ms(120_000), "a", Change::Mtu(None));
    scenario.faults = vec![fault(HOLE, "a", Change::Mtu(Some(1400))), mend];
    scenario
}

#[test]
fn a_black_hole_is_found_at_the_next_check_and_its_end_as_well() {
    for seed in 1..=5 {
        let run = of(&with_a_hole(), gateway("WSDM"), seed);
        let told = watch(&run, ms(1000), &mut |_, _| ()).unwrap();
        assert!(
            !told
                .iter()
                .any(|(_, event)| matches!(event, Event::LinkDown { .. })),
            "seed {seed}: {told:?}"
        );
        let lengths: Vec<(Time, Option<u32>)> = told
            .iter()
            .filter_map(|(at, event)| match event {
                Event::PathMtu { link, mtu, .. } => {
                    assert_eq!(*link, LinkId(0), "seed {seed}");
                    Some((*at, *mtu))
                }
                _ => None,
            })
            .collect();
        let [(first, Some(1280)), (found, Some(1400)), (mended, None)] = lengths[..] else {
            panic!("seed {seed}: {lengths:?}");
        };
        let hole = Time::ZERO + HOLE;
        assert!(
            hole < first && first < hole + ms(70_000),
            "seed {seed}: {first:?}"
        );
        assert!(found < first + ms(15_000), "seed {seed}: {found:?}");
        assert!(mended > hole + ms(120_000), "seed {seed}: {mended:?}");
    }
}
