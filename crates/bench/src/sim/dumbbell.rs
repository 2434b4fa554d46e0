//! The network that is measured, in the simulator.

use anabranch_core::Time;
use anabranch_sim::dumbbell::Dumbbell;
use anabranch_sim::link::{Buffer, LinkSpec, Loss};
use anabranch_sim::tcp::TcpConfig;
use anabranch_sim::world::Work;
use anyhow::{Result, ensure};

/// Flows start 10 ms apart, or closer so that all have started by this time.
const ALL_STARTED_NS: u64 = 5_000_000_000;

/// Runs it and prints the segments that arrived in order, and the events it took.
pub fn run(flows: u64, seconds: u64) -> Result<()> {
    let line = |rate_bps, delay_ms: u64, packets| LinkSpec {
        rate_bps,
        delay_ns: delay_ms * 1_000_000,
        buffer: Buffer::Packets(packets),
        loss: Loss::None,
    };
    let mut dumbbell = Dumbbell::new(1, line(45_000_000, 10, 400), line(100_000_000, 1, 1000));
    let tcp = TcpConfig {
        mss_bytes: 1460,
        header_bytes: 40,
        ..TcpConfig::default()
    };
    let apart_ns = 10_000_000.min(ALL_STARTED_NS / flows.max(1));
    for i in 0..flows {
        dumbbell.open(Time::from_nanos(apart_ns * i), Work::Endless, tcp);
    }
    let world = &mut dumbbell.world;
    world.run_until(Time::from_millis(1000 * seconds));
    ensure!(world.conserves(), "packets are missing");
    let segments: u64 = world
        .flows()
        .map(|flow| u64::from(world.receiver(flow).received_segments()))
        .sum();
    println!("{segments} {}", world.trajectory().events);
    Ok(())
}
