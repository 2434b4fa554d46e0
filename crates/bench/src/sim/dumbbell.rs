//! The network that is measured, in the simulator.

use anabranch_core::Time;
use anabranch_sim::dumbbell::race;
use anyhow::{Result, ensure};

/// Runs it and prints the segments that arrived in order, the events it took, and the trajectory's hash.
pub fn run(flows: u64, seconds: u64) -> Result<()> {
    let world = race(flows, Time::from_millis(1000 * seconds));
    ensure!(world.conserves(), "packets are missing");
    let segments: u64 = world
        .flows()
        .map(|flow| u64::from(world.receiver(flow).received_segments()))
        .sum();
    let trajectory = world.trajectory();
    println!("{segments} {} {:016x}", trajectory.events, trajectory.hash);
    Ok(())
}
