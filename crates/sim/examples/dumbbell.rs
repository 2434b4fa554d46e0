//! Delivered data segments per second of CPU on the SACK dumbbell: 45 Mbit/s and 10 ms with a buffer of 400 packets
//! between access links of 100 Mbit/s and 1 ms, endless flows, an acknowledgement per segment. With NARROWING, rate and
//! buffer are that many times as small.
//!
//! `cargo run --release -p anabranch-sim --example dumbbell -- [FLOWS [SECONDS [NARROWING]]]`

mod cpu;

use anabranch_core::Time;
use anabranch_sim::dumbbell::race_narrowed;
use cpu::cpu_s;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| {
        text.parse::<u64>().unwrap_or_else(|_| {
            panic!("usage: dumbbell [FLOWS [SECONDS [NARROWING]]], numbers, not {text:?}")
        })
    });
    let flows = arguments.next().unwrap_or(50);
    let seconds = arguments.next().unwrap_or(200);
    let narrowing = arguments.next().unwrap_or(1);
    let before_s = cpu_s();
    let world = race_narrowed(flows, narrowing, Time::from_millis(seconds * 1000));
    let cpu_s = cpu_s() - before_s;
    let trajectory = world.trajectory();
    let delivered: u64 = world
        .flows()
        .map(|flow| u64::from(world.receiver(flow).received_segments()))
        .sum();
    println!(
        "{flows} flows, {seconds} s: {delivered} segments in {cpu_s:.3} s of CPU: {:.0} segments/s, {:.0} events/s, {:.2} events per segment, trajectory {:016x}",
        delivered as f64 / cpu_s,
        trajectory.events as f64 / cpu_s,
        trajectory.events as f64 / delivered as f64,
        trajectory.hash,
    );
    assert!(world.conserves(), "packets are missing");
}
