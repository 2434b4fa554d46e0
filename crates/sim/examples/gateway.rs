//! Concurrent flows through one gateway: what each costs in memory, and how fast they run.
//!
//! `FLOWS` downloads of 1 MB open evenly within 10 s over four links that give each of them 40 kbit/s, so that all are
//! open at the end of that time; 2 s later the world stops.
//!
//! `cargo run --release -p anabranch-sim --example gateway -- [FLOWS]`

use std::time::Duration;

use anabranch_core::{Balancer, Config, LinkSpec as Told, Time};
use anabranch_sim::gateway::{Gateway, Lines, Pair};
use anabranch_sim::link::{Buffer, LinkSpec, Loss};
use anabranch_sim::tcp::TcpConfig;
use anabranch_sim::world::{FlowSpec, Work, World};

const LINKS: u64 = 4;
const OPENING_NS: u64 = 10_000_000_000;

fn main() {
    let flows = match std::env::args().nth(1) {
        Some(text) => text
            .parse::<u64>()
            .unwrap_or_else(|_| panic!("usage: gateway [FLOWS], a number, not {text:?}")),
        None => 1_000_000,
    };
    let before = (cpu_s(), peak_bytes());
    let mut world = site(flows);
    open(&mut world, flows);
    world.run_until(Time::from_nanos(OPENING_NS));
    let at_once = world.flow_count();
    world.run_until(Time::from_nanos(OPENING_NS) + Duration::from_secs(2));
    let cpu_s = cpu_s() - before.0;
    let bytes = peak_bytes() - before.1;
    let events = world.trajectory().events;
    let delivered: u64 = world
        .links()
        .map(|link| world.link(link).counters().delivered.packets)
        .sum();
    println!(
        "{flows} flows, {at_once} at once: {:.2} GiB, {:.0} bytes per flow; {events} events in {cpu_s:.1} s of CPU: {:.0} events/s; {delivered} packets delivered by links; {} packets at once",
        bytes as f64 / f64::from(1 << 30),
        bytes as f64 / flows as f64,
        events as f64 / cpu_s,
        world.packet_places(),
    );
    assert!(world.conserves(), "packets are missing");
}

/// Four equal links, flows in turn.
fn site(flows: u64) -> World<Gateway> {
    let rate_bps = (flows * 40_000 / LINKS).max(10_000_000);
    let line = LinkSpec {
        rate_bps,
        delay_ns: 10_000_000,
        buffer: Buffer::Bytes(rate_bps / 8 / 10),
        loss: Loss::None,
    };
    let mut network = World::new(1);
    let lines: Vec<Lines> = (0..LINKS)
        .map(|_| Lines {
            up: vec![network.add_link(line)],
            down: vec![network.add_link(line)],
        })
        .collect();
    let told = (0..LINKS)
        .map(|i| Told {
            name: i.to_string(),
            rate_up_bps: Some(rate_bps),
            rate_down_bps: Some(rate_bps),
            ..Told::default()
        })
        .collect();
    let algorithm = "RR".parse().expect("a policy of the table");
    let balancer = Balancer::new(Time::ZERO, algorithm, told, Config::default())
        .expect("four links that need nothing");
    let mut world = network.become_site(Gateway::new(balancer, &lines, 1));
    let (gateway, net) = world.parts();
    gateway.begin(net);
    world
}

fn open(world: &mut World<Gateway>, flows: u64) {
    let to_gateway = world.add_path(&[Gateway::LAN]);
    for i in 0..flows {
        let spec = FlowSpec {
            start: Time::from_nanos(OPENING_NS / flows * i),
            work: Work::Request {
                request_bytes: 200,
                response_bytes: 1_000_000,
            },
            forward: to_gateway,
            back: to_gateway,
            tcp: TcpConfig::default(),
        };
        let flow = world.open(spec);
        let pair = Pair {
            user: i as u32,
            server: 0,
        };
        world.site.nat.introduce(flow, pair);
    }
}

/// CPU time of the main thread so far.
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat")
        .expect("Linux tells each thread's CPU time");
    let ns = stat
        .split(' ')
        .next()
        .and_then(|first| first.parse::<f64>().ok());
    ns.expect("schedstat begins with nanoseconds on the CPU") / 1e9
}

/// The most memory the process has had.
fn peak_bytes() -> u64 {
    let status =
        std::fs::read_to_string("/proc/self/status").expect("Linux tells a process's memory");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.expect("VmHWM is a number of kB") * 1024
}
