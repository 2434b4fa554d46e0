//! Concurrent flows through one gateway: what each costs in memory, and how fast they run.
//!
//! `cargo run --release -p anabranch-sim --example gateway -- [FLOWS]`, 1 000 000 if it is not said. The world stops 2 s
//! after all are open.

mod cpu;

use std::time::Duration;

use anabranch_core::Time;
use anabranch_sim::crowd::{OPENING, crowd};
use cpu::cpu_s;

fn main() {
    let flows = match std::env::args().nth(1) {
        Some(text) => text
            .parse::<u64>()
            .unwrap_or_else(|_| panic!("usage: gateway [FLOWS], a number, not {text:?}")),
        None => 1_000_000,
    };
    let before = (cpu_s(), peak_bytes());
    let mut world = crowd(flows);
    world.run_until(Time::ZERO + OPENING);
    let at_once = world.flow_count();
    world.run_until(Time::ZERO + OPENING + Duration::from_secs(2));
    let cpu_s = cpu_s() - before.0;
    let bytes = peak_bytes() - before.1;
    let events = world.trajectory().events;
    println!(
        "{flows} flows, {at_once} at once: {:.2} GiB, {:.0} bytes per flow; {events} events in {cpu_s:.1} s of CPU: {:.0} events/s; {} packets at once",
        bytes as f64 / f64::from(1 << 30),
        bytes as f64 / flows as f64,
        events as f64 / cpu_s,
        world.packet_places(),
    );
    assert!(world.conserves(), "packets are missing");
}

/// The most memory the process has had.
fn peak_bytes() -> u64 {
    let status =
        std::fs::read_to_string("/proc/self/status").expect("Linux tells a process's memory");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.expect("VmHWM is a number of kB") * 1024
}
