//! Concurrent flows through one gateway, in the simulator.

use std::time::Duration;

use anabranch_core::Time;
use anabranch_sim::crowd::{OPENING, crowd};
use anyhow::{Result, ensure};

/// Opens `flows` and runs on for `seconds`; prints the packets that links delivered, the events it took, and the
/// trajectory's hash.
pub fn run(flows: u64, seconds: u64) -> Result<()> {
    let mut world = crowd(flows);
    world.run_until(Time::ZERO + OPENING);
    let at_once = world.flow_count() as u64;
    ensure!(
        at_once >= flows * 99 / 100,
        "{at_once} of {flows} flows at once"
    );
    world.run_until(Time::ZERO + OPENING + Duration::from_secs(seconds));
    ensure!(world.conserves(), "packets are missing");
    let delivered = world
        .links()
        .map(|link| world.counters(link).delivered.packets);
    let (delivered, trajectory) = (delivered.sum::<u64>(), world.trajectory());
    println!("{delivered} {} {:016x}", trajectory.events, trajectory.hash);
    Ok(())
}
