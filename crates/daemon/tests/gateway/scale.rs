//! A table of routes as a routing daemon keeps it in the kernel: many, and never at rest.
//!
//! `ANABRANCH_ROUTES=1000000` has as many as the internet (`make bench-routes`), and prints what they cost.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anabranch_api::Proto;
use anabranch_api::{LinkState, Request, Response};
use anabranch_testbed::netns::{Child, Exit};
use nix::sys::signal::Signal;

use crate::rig::*;

const ROUTES: &str = "ANABRANCH_ROUTES";
const CHANGES_PER_S: u32 = 100;
/// Two providers, and a second router of one of them; the link that each is on.
const ROUTERS: [(&str, &str, &str); 3] = [
    ("203.0.113.1", "wan0", "fiber"),
    ("198.51.100.1", "wan1", "lte"),
    ("198.51.100.9", "wan1", "lte"),
];
/// Of a full table: so many in a hundred are of this length (cidr-report.org, rounded).
const LENGTHS: [(u8, u32); 7] = [
    (24, 60),
    (23, 12),
    (22, 12),
    (21, 5),
    (20, 5),
    (19, 3),
    (16, 3),
];

/// Prefixes of the internet, each once.
fn prefixes(count: usize) -> Vec<(Ipv4Addr, u8)> {
    let mut draw = 1_u64;
    let mut next = move || {
        draw = draw
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (draw >> 32) as u32
    };
    let mut all = BTreeSet::new();
    while all.len() < count {
        let mut rest = next() % 100;
        let found = LENGTHS.iter().find(|(_, share)| {
            let is_it = rest < *share;
            rest = rest.wrapping_sub(*share);
            is_it
        });
        let length = found.map_or(24, |(length, _)| *length);
        let network = next() & (u32::MAX << (32 - length));
        let [first, second, ..] = Ipv4Addr::from(network).octets();
        let is_of_rig = [(192, 0), (192, 168), (198, 51), (203, 0)].contains(&(first, second));
        if (11..224).contains(&first) && first != 127 && !is_of_rig {
            all.insert((Ipv4Addr::from(network), length));
        }
    }
    all.into_iter().collect()
}

fn route(prefix: (Ipv4Addr, u8), router: usize) -> String {
    let (via, device, _) = ROUTERS[router % ROUTERS.len()];
    format!(
        "route replace {}/{} via {via} dev {device} metric 32 proto bird\n",
        prefix.0, prefix.1
    )
}

/// The link that the programs would take to the first host of a prefix, because of a route.
fn leads(daemon: &Daemon, (network, _): (Ipv4Addr, u8)) -> Option<u16> {
    let to = Ipv4Addr::from_bits(network.to_bits() + 1);
    let answer = daemon.call(&Request::Explain {
        from: "192.168.1.20:1234".parse().unwrap(),
        to: SocketAddr::new(to.into(), 80),
        proto: Proto::Tcp,
    });
    match answer {
        Response::Explanation(explained) => {
            let answer = explained.explanation;
            answer.link.filter(|_| answer.why.contains("route"))
        }
        other => panic!("{other:?}"),
    }
}

/// Seconds of processors that a process has used, and kilobytes that it has.
fn used(id: u32) -> (f64, u64) {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks = |place: usize| fields[place].parse::<f64>().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    let kb = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    ((ticks(11) + ticks(12)) / 100.0, kb)
}

/// Of the kernel, in megabytes.
fn kernel_mb() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let of = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    (of("SUnreclaim:") + of("Percpu:")) / 1000
}

/// Changes routes until it is dropped.
struct Churn(Child);

impl Churn {
    /// A prefix goes from one router to the next.
    fn begin(rig: &Rig, prefixes: &[(Ipv4Addr, u8)]) -> Self {
        let mut command = Command::new("ip");
        command.args(["-batch", "-"]).stdin(Stdio::piped());
        let mut child = rig.gateway.spawn(command).unwrap();
        let mut pipe = child.pipes().stdin.take().unwrap();
        let prefixes: Vec<_> = prefixes.iter().step_by(97).copied().collect();
        std::thread::spawn(move || {
            let rounds =
                (1..).flat_map(|round| prefixes.iter().map(move |prefix| (round, *prefix)));
            for (place, (round, prefix)) in rounds.enumerate() {
                if pipe
                    .write_all(route(prefix, place + round).as_bytes())
                    .is_err()
                {
                    return;
                }
                std::thread::sleep(Duration::from_secs(1) / CHANGES_PER_S);
            }
        });
        Self(child)
    }
}

impl Drop for Churn {
    fn drop(&mut self) {
        self.0.signal(Signal::SIGTERM);
    }
}

#[test]
fn a_table_of_routes_that_never_rests_costs_little_and_delays_nothing() {
    let wanted = std::env::var(ROUTES).map(|count| count.parse().unwrap());
    let (count, watched) = match wanted {
        Ok(count) => (count, Duration::from_secs(60)),
        Err(_) => (50_000, Duration::from_secs(3)),
    };
    let rig = Rig::new();
    let daemon = rig.start_up();
    let (_, before_kb) = used(daemon.child.id());
    let all = prefixes(count);
    let mut batch = String::new();
    for (place, prefix) in all.iter().enumerate() {
        batch.write_str(&route(*prefix, place)).unwrap();
    }
    let began = Instant::now();
    rig.gateway
        .exec_with_input("ip", &["-batch", "-"], &batch)
        .unwrap();
    drop(batch);
    let added = began.elapsed();
    let slots = ROUTERS.map(|(_, _, link)| daemon.link(link).slot);
    // Longer ones may have the first host of a shorter one.
    let sampled = (0..count).step_by(count / 300 + 1);
    let sampled: Vec<usize> = sampled.filter(|place| all[*place].1 == 24).collect();
    let are_known = |daemon: &Daemon| {
        let mut sampled = sampled.iter();
        sampled.all(|place| leads(daemon, all[*place]) == Some(slots[place % slots.len()]))
    };
    let behind = until("all routes are known", || are_known(&daemon));

    let (used_before, _) = used(daemon.child.id());
    let churn = Churn::begin(&rig, &all);
    let began = Instant::now();
    let mut slowest = Duration::ZERO;
    while began.elapsed() < watched {
        let asked = Instant::now();
        for name in ["fiber", "lte"] {
            let link = daemon.link(name);
            assert_eq!(link.state, LinkState::Up, "{name}: {}", link.why);
        }
        slowest = slowest.max(asked.elapsed() / 2);
        std::thread::sleep(watched / 20);
    }
    let (used_after, rss_kb) = used(daemon.child.id());
    let part = (used_after - used_before) / began.elapsed().as_secs_f64() * 100.0;
    rig.internet.ip("link set wan0-far down").unwrap();
    let verdict = until("the link is down", || {
        daemon.link("fiber").state != LinkState::Up
    });
    rig.internet.ip("link set wan0-far up").unwrap();
    drop(churn);

    let with = kernel_mb();
    assert_eq!(
        daemon.end(Signal::SIGKILL),
        Exit::Signal(Signal::SIGKILL as i32)
    );
    let began = Instant::now();
    let daemon = rig.start();
    let start = began.elapsed();
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    // The kernel frees what nobody can look at any more, in its own time.
    std::thread::sleep(Duration::from_secs(2));
    let maps = with.saturating_sub(kernel_mb());
    println!(
        "{count} routes: added in {added:.1?}, known {behind:.1?} later; {CHANGES_PER_S} changes a second: {part:.1} % of a core, \
         status in {slowest:.0?} at most, carrier lost told in {verdict:.0?}; started anew in {start:.1?}; daemon {} MB \
         (before {} MB), its maps {maps} MB",
        rss_kb / 1000,
        before_kb / 1000,
    );
    assert!(part < 25.0, "{part} % of a core");
    assert!(verdict < Duration::from_secs(2), "{verdict:?}");
}
