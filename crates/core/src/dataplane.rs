//! The interface to what moves the packets: the loaded programs, or a simulator.

use anabranch_policy::{Choice, Family};

use crate::class::ClassId;
use crate::link::{LinkCounters, LinkId};
use crate::survey::Opening;

/// How many flows were ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// TCP flows, whose LAN hosts got a RST.
    pub tcp: u64,
    /// Other flows, which their next packet binds to another link.
    pub udp: u64,
}

/// Moves packets by the installed choices.
pub trait DataPlane {
    /// Why an operation failed.
    type Error;

    /// Reads the counters of all links, in the order of their ids.
    fn counters(&mut self) -> Result<Vec<LinkCounters>, Self::Error>;

    /// Replaces the choice of a class for a family atomically: each later new flow sees all of it.
    fn install(
        &mut self,
        class: ClassId,
        family: Family,
        choice: &Choice,
    ) -> Result<(), Self::Error>;

    /// Returns the connections that classes with a survey have opened since the last call; some may be missing.
    fn openings(&mut self) -> Result<Vec<Opening>, Self::Error> {
        Ok(Vec::new())
    }

    /// Ends the flows of a family that a class has on a link, so that their hosts begin again on another link.
    fn end_flows(
        &mut self,
        class: ClassId,
        family: Family,
        link: LinkId,
    ) -> Result<Ended, Self::Error>;
}
