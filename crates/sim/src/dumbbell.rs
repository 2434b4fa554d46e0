//! The topology most results of the field are told on: every flow crosses one bottleneck.

use crate::link::LinkSpec;
use crate::tcp::TcpConfig;
use crate::world::{FlowId, FlowSpec, LinkId, Work, World};
use anabranch_core::Time;

/// A bottleneck, the same in both directions, between access links; each flow has four of its own, one at either side
/// in either direction.
#[derive(Debug)]
pub struct Dumbbell {
    pub world: World,
    access: LinkSpec,
    there: LinkId,
    back: LinkId,
}

impl Dumbbell {
    pub fn new(seed: u64, bottleneck: LinkSpec, access: LinkSpec) -> Self {
        let mut world = World::new(seed);
        Dumbbell {
            there: world.add_link(bottleneck),
            back: world.add_link(bottleneck),
            access,
            world,
        }
    }

    /// The bottleneck in the direction of the data.
    pub fn bottleneck(&self) -> LinkId {
        self.there
    }

    /// Adds a pair of hosts and the flow between them.
    pub fn open(&mut self, start: Time, work: Work, tcp: TcpConfig) -> FlowId {
        let [out, arrives, answers, returns] = [(); 4].map(|()| self.world.add_link(self.access));
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
