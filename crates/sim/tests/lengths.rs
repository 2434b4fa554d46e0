//! How long packets may be on a link (anabranch-core's `path_mtu`), in virtual time.

mod common;

use std::time::Duration;

use anabranch_core::{Event, LinkId, Time};
use anabranch_scenario::{Change, Network, Probe, Scenario};
use anabranch_sim::watch;
use common::*;

/// When it begins.
const HOLE: Duration = Duration::from_secs(30);

/// Two links, of which those have an MTU black hole after half a minute, for two; little is sent.
fn with_a_hole(names: &[&str]) -> Scenario {
    let links = vec![link("a", 20_000_000), link("b", 20_000_000)];
    let load = downloads(1, 1000, ms(1000), ms(0), ms(239_000));
    let mut scenario = scenario(links, load, ms(240_000));
    let Network::Site(site) = &mut scenario.network else {
        panic!("no links");
    };
    site.probes = vec![Probe::Dns, Probe::Tcp, Probe::Icmp];
    for name in names {
        let hole = fault(HOLE, name, Change::Mtu(Some(1400)));
        let mend = fault(HOLE + ms(120_000), name, Change::Mtu(None));
        scenario.faults.extend([hole, mend]);
    }
    scenario
}

#[test]
fn what_all_links_show_alike_is_said_to_be_so() {
    let run = of(&with_a_hole(&["a", "b"]), gateway("WSDM"), 1);
    let mut last = [None; 2];
    let mut alike = 0;
    let told = watch(&run, ms(1000), &mut |_, paths| {
        if let [Some(a), Some(b)] = [paths[0].mtu, paths[1].mtu] {
            assert_eq!(a.is_alike, a.bytes >= b.bytes, "{a:?} {b:?}");
            assert_eq!(b.is_alike, b.bytes >= a.bytes, "{a:?} {b:?}");
            alike += u32::from(a.is_alike && b.is_alike);
        }
    });
    for (_, event) in told.unwrap() {
        if let Event::PathMtu { link, found, .. } = event {
            last[link.index()] = found.or(last[link.index()]);
        }
    }
    assert!(alike > 10, "{alike} s");
    for found in last {
        assert!(
            found.is_some_and(|found| found.bytes == 1400),
            "they are kept short all the same: {found:?}"
        );
    }
}

#[test]
fn a_black_hole_is_found_at_the_next_check_and_its_end_as_well() {
    for seed in 1..=5 {
        let run = of(&with_a_hole(&["a"]), gateway("WSDM"), seed);
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
                Event::PathMtu { link, found, .. } => {
                    assert_eq!(*link, LinkId(0), "seed {seed}");
                    assert!(!found.is_some_and(|found| found.is_alike), "seed {seed}");
                    Some((*at, found.map(|found| found.bytes)))
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
