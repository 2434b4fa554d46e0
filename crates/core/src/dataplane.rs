//! What the balancer's driver needs of whatever moves the packets: the loaded programs, or a simulator.

use anabranch_policy::{Choice, Family};

use crate::class::ClassId;
use crate::link::{LinkCounters, LinkId};
use crate::survey::Opening;

/// Flows that were ended with their link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Answered with a RST towards the LAN.
    pub tcp: u64,
    /// Rebound by their next packet.
    pub udp: u64,
}

/// Moves packets as the installed choice says.
pub trait DataPlane {
    /// Why something could not be done.
    type Error;

    /// What every link has carried, in the order of their ids.
    fn counters(&mut self) -> Result<Vec<LinkCounters>, Self::Error>;

    /// Replaces the choice of a class for a family as a whole: every new flow of them after that sees all of it.
    fn install(
        &mut self,
        class: ClassId,
        family: Family,
        choice: &Choice,
    ) -> Result<(), Self::Error>;

    /// Connections of classes that survey their destinations, since this was last asked; some may have been missed.
    fn openings(&mut self) -> Result<Vec<Opening>, Self::Error> {
        Ok(Vec::new())
    }

    /// Ends the flows of a family that a class has on a link, so that their hosts begin anew on another.
    fn end_flows(
        &mut self,
        class: ClassId,
        family: Family,
        link: LinkId,
    ) -> Result<Ended, Self::Error>;
}
