//! The topology most results of the field are told on: every flow crosses one bottleneck. And the least of all, one flow
//! over one line.

use crate::link::{Buffer, LinkSpec, Loss};
use crate::tcp::TcpConfig;
use crate::world::{FlowId, FlowSpec, PipeId, Work, World};
use anabranch_core::Time;

/// A bottleneck, the same in both directions, between access links; each flow has four of its own, one at either side
/// in either direction. All are plain.
#[derive(Debug)]
pub struct Dumbbell {
    /// The network, for who adds flows.
    pub world: World,
    access: LinkSpec,
    there: PipeId,
    back: PipeId,
}

impl Dumbbell {
    /// Without flows.
    pub fn new(seed: u64, bottleneck: LinkSpec, access: LinkSpec) -> Self {
        let mut world = World::new(seed);
        Dumbbell {
            there: world.add_plain_link(bottleneck),
            back: world.add_plain_link(bottleneck),
            access,
            world,
        }
    }

    /// The bottleneck in the direction of the data.
    pub fn bottleneck(&self) -> PipeId {
        self.there
    }

    /// Adds a pair of hosts and the flow between them.
    pub fn open(&mut self, start: Time, work: Work, tcp: TcpConfig) -> FlowId {
        let [out, answers] = [(); 2].map(|()| self.world.add_plain_link(self.access));
        let [arrives, returns] =
            [self.there, self.back].map(|line| self.world.add_link_behind(line, self.access));
        let spec = FlowSpec {
            start,
            work,
            forward: self.world.add_path(&[out, self.there, arrives]),
            back: self.world.add_path(&[answers, self.back, returns]),
            tcp,
        };
        self.world.open(spec)
    }
}

/// Flows of [`race`] start so far apart, or closer so that all have started within 5 s.
const APART_NS: u64 = 10_000_000;
const ALL_STARTED_NS: u64 = 5_000_000_000;

/// What happens by `end` on the dumbbell on which simulators are compared: 45 Mbit/s and 10 ms with a buffer of 400
/// packets between access links of 100 Mbit/s and 1 ms, endless SACK flows in packets of 1500 bytes, an acknowledgement
/// per segment.
pub fn race(flows: u64, end: Time) -> World {
    race_narrowed(flows, 1, end)
}

/// As [`race`], over a bottleneck with a rate and a buffer `narrowing` times as small: each flow fares as one among
/// `narrowing` times as many, and less memory is in use.
///
/// # Panics
/// If `narrowing` is 0.
pub fn race_narrowed(flows: u64, narrowing: u64, end: Time) -> World {
    let buffer = Buffer::Packets(400 / narrowing);
    let bottleneck = line(45_000_000 / narrowing, 10_000_000, buffer);
    let access = line(100_000_000, 1_000_000, Buffer::Packets(1000));
    let mut dumbbell = Dumbbell::new(1, bottleneck, access);
    let tcp = TcpConfig {
        mss_bytes: 1460,
        header_bytes: 40,
        ..TcpConfig::default()
    };
    let apart_ns = APART_NS.min(ALL_STARTED_NS / flows.max(1));
    for i in 0..flows {
        dumbbell.open(Time::from_nanos(apart_ns * i), Work::Endless, tcp);
    }
    dumbbell.world.run_until(end);
    dumbbell.world
}

/// A line that loses nothing but what finds no room.
pub fn line(rate_bps: u64, delay_ns: u64, buffer: Buffer) -> LinkSpec {
    LinkSpec {
        rate_bps,
        delay_ns,
        buffer,
        loss: Loss::None,
    }
}

/// One flow over `forward`; the way back adds only delay.
pub fn one_flow(
    seed: u64,
    forward: LinkSpec,
    work: Work,
    tcp: TcpConfig,
) -> (World, FlowId, PipeId) {
    let mut world = World::new(seed);
    let there = world.add_link(forward);
    let back = world.add_link(line(1_000_000_000_000, forward.delay_ns, Buffer::Unlimited));
    let spec = FlowSpec {
        start: Time::ZERO,
        work,
        forward: world.add_path(&[there]),
        back: world.add_path(&[back]),
        tcp,
    };
    let flow = world.open(spec);
    (world, flow, there)
}
