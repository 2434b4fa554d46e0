//! Scenarios of a site with several links.

#![allow(dead_code)]

use std::sync::Arc;
use std::time::Duration;

use anabranch_core::Time;
use anabranch_scenario::{
    Beyond, Buffer, Change, Declared, Direction, Families, Fault, Impairments, Line, LinkPlan,
    Load, Loss, Network, Outcome, Place, Policy, Queue, Record, Run, Scenario, Site, Tcp,
};
use anabranch_workload::{Arrival, ArrivalPlan, ClassId, Pattern, RemoteServerId, UserId};

pub const MBIT: u64 = 1_000_000;
/// Of [`three_links`].
pub const NAMES: [&str; 3] = ["a", "b", "c"];

pub fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub fn line(rate_bps: u64, delay: Duration) -> Line {
    Line {
        trace: None,
        rate_bps,
        delay,
        buffer: Buffer::Bytes(rate_bps / 8 / 10), // 100 ms
        loss: Loss::None,
        queue: Queue::DropTail,
        impairments: Impairments::default(),
    }
}

/// A symmetric link of 10 ms one way.
pub fn link(name: &str, rate_bps: u64) -> LinkPlan {
    LinkPlan {
        name: name.into(),
        down: line(rate_bps, ms(10)),
        up: line(rate_bps, ms(10)),
        beyond: None,
        declared: Declared::Actual(true),
        metered: false,
        weight: None,
        nat: true,
    }
}

/// Behind a last mile of 10 ms one way, so much further.
pub fn far(name: &str, beyond: Duration) -> LinkPlan {
    let mut link = link(name, 20 * MBIT);
    link.beyond = Some(Beyond {
        shared: None,
        down: line(100 * MBIT, beyond),
        up: line(100 * MBIT, Duration::ZERO),
    });
    link
}

/// Of round trips of 50, 25 and 80 ms.
pub fn three_links() -> Vec<LinkPlan> {
    vec![far("a", ms(30)), far("b", ms(5)), far("c", ms(60))]
}

/// The site's addresses are reachable over all its links.
pub fn route(scenario: &mut Scenario) {
    let Network::Site(site) = &mut scenario.network else {
        panic!("no links");
    };
    for link in &mut site.links {
        link.nat = false;
    }
}

/// One download every `gap`, from `from` to `to`, by users in turn.
pub fn downloads(users: u32, bytes: u64, gap: Duration, from: Duration, to: Duration) -> Load {
    let mut rows = Vec::new();
    let mut at = from;
    while at < to {
        rows.push(Arrival {
            at,
            user: UserId(rows.len() as u32 % users),
            server: RemoteServerId(0),
            class: ClassId(0),
            bytes,
            direction: Direction::Down,
        });
        at += gap;
    }
    Load::Arrivals(ArrivalPlan {
        pattern: Pattern::Rows(rows),
        seed: 0,
    })
}

pub fn scenario(links: Vec<LinkPlan>, load: Load, limit: Duration) -> Scenario {
    Scenario {
        name: "test".into(),
        network: Network::Site(Site::new(links)),
        families: Families::V4,
        faults: Vec::new(),
        load,
        policies: Vec::new(),
        seeds: Vec::new(),
        limit,
        sample: ms(100),
        patience: ms(10_000),
        tcp: Tcp::default(),
    }
}

pub fn fault(at: Duration, link: &str, change: Change) -> Fault {
    Fault {
        at,
        link: link.into(),
        place: Place::LastMile,
        direction: None,
        change,
    }
}

pub fn of(scenario: &Scenario, policy: Policy, seed: u64) -> Run {
    Run {
        scenario: Arc::new(scenario.clone()),
        policy_name: policy.to_string(),
        policy,
        seed,
        point: Vec::new(),
        hash: String::new(),
    }
}

pub fn gateway(name: &str) -> Policy {
    Policy::gateway(name.parse().expect("a policy of the table"))
}

/// Runs it, and holds it to its own audit.
pub fn play(scenario: &Scenario, policy: Policy, seed: u64) -> Record {
    let mut last = Time::ZERO;
    let mut progress = |now| {
        assert!(now > last);
        last = now;
    };
    let record = anabranch_sim::run(&of(scenario, policy, seed), &mut progress);
    let record = record.expect("the scenario can be run");
    assert_eq!(record.problems, Vec::<String>::new());
    record
}

pub fn assert_all_ok(record: &Record) {
    for transfer in &record.transfers {
        assert_eq!(transfer.outcome, Outcome::Ok, "{transfer:?}");
    }
}

/// Transfers that each link carried.
pub fn carried(record: &Record, names: &[&str]) -> Vec<usize> {
    let on = |name: &&str| {
        let link = |t: &&anabranch_scenario::Transfer| t.link.as_deref() == Some(*name);
        record.transfers.iter().filter(link).count()
    };
    names.iter().map(on).collect()
}
