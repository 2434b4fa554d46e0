use anabranch_scenario::{Network, Outcome};
use anabranch_workload::{Arrival, Direction};

use super::trace::{Row, Trace, duration_sum_s};
use super::*;
use crate::run::tests::context;
use crate::{Files, Observation, Options, simulate};

pub(super) fn files() -> Files {
    Files::of(&EXPERIMENT, None).expect("built in")
}

fn quick() -> Options {
    Options {
        quick: true,
        jobs: 2,
        ..Options::default()
    }
}

fn arrivals(trace: Trace, seed: u64) -> Vec<Arrival> {
    trace.arrivals(&files(), seed).expect("reads")
}

#[test]
fn every_seed_has_the_connections_and_half_of_the_bytes_of_table_2() {
    for (trace, connections, bytes) in [
        (Trace::One, 4_774, 218_000_000),
        (Trace::Two, 6_020, 153_000_000),
    ] {
        for seed in 1..=20 {
            let arrivals = arrivals(trace, seed);
            assert_eq!(arrivals.len(), connections);
            let sent: u64 = arrivals.iter().map(|arrival| arrival.bytes).sum();
            assert_eq!(sent, bytes / 2);
            assert!(
                arrivals
                    .iter()
                    .all(|a| a.direction == Direction::Up && a.at.as_secs() < 3_600)
            );
        }
    }
}

/// Few connections carry most of the bytes: what "heavy tail" means to a balancer.
#[test]
fn a_tenth_of_the_connections_carries_more_than_half_of_the_bytes() {
    for trace in Trace::ALL {
        let mut bytes: Vec<u64> = arrivals(trace, 1)
            .iter()
            .map(|arrival| arrival.bytes)
            .collect();
        bytes.sort_unstable_by(|a, b| b.cmp(a));
        let top: u64 = bytes[..bytes.len() / 10].iter().sum();
        let share = top as f64 / bytes.iter().sum::<u64>() as f64;
        assert!((0.5..0.9).contains(&share), "{share}");
    }
}

#[test]
fn fewer_isps_leave_the_last_links_out_and_change_nothing_else() {
    let three = Trace::One.over(&files(), 3).expect("reads");
    let two = Trace::One.over(&files(), 2).expect("reads");
    let links = |network: &Network| match network {
        Network::Site(site) => site.links.clone(),
        Network::Trunk(_) => panic!("a site"),
    };
    let (all, first) = (links(&three.network), links(&two.network));
    assert_eq!(all[..2], first[..]);
    assert_eq!(all.len(), 3);
    assert!(all.iter().all(|link| link.up.rate_bps == 500_000));
    assert_eq!((&two.load, &two.tcp), (&three.load, &three.tcp));
}

#[test]
fn figure_9_is_exact() {
    let (options, files) = (quick(), files());
    let context = context(&options, &files);
    let findings = fig9::run(&context).expect("runs");
    let fluid = |(key, _): &(String, Observation)| !key.contains("packets");
    let observed: Vec<_> = findings.observed.into_iter().filter(fluid).collect();
    let exact = [12.0, 3.0, 4.0, 1.0, 2.0, 2.0].map(Observation::Exact);
    assert!(
        observed.iter().map(|(_, observed)| observed).eq(&exact),
        "{observed:?}"
    );
}

#[test]
fn a_trace_is_replayed_to_its_end_the_same_every_time_and_faster_over_two_isps() {
    let (options, files) = (quick(), files());
    let context = context(&options, &files);
    let mut runs = Row::Load.runs(&Trace::Two.over(&files, 1).expect("reads"), &[1]);
    runs.extend(Row::Load.runs(&Trace::Two.over(&files, 2).expect("reads"), &[1, 1]));
    let sums_s = simulate(&context, &runs, |_, record| {
        let ok = |outcome: Outcome| outcome.is_ok();
        assert_eq!(record.transfers.len(), 6_020);
        assert!(record.transfers.iter().all(|transfer| ok(transfer.outcome)));
        duration_sum_s(record)
    });
    let sums_s = sums_s.expect("runs");
    assert_eq!(sums_s[1], sums_s[2]);
    let ratio = sums_s[1] / sums_s[0];
    assert!((0.2..0.5).contains(&ratio), "{ratio}");
}
