//! What is known of a destination.

use crate::abi::MAX_LINKS;

/// What is known of a flow's destination when its link is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Links whose response time is known, as bits.
    pub fresh: u32,
    /// Links that the flow may be sent over to tell theirs.
    pub unknown: u32,
    /// It tells, and nothing was ever told of its destination.
    pub untold: bool,
    /// Of the links of `fresh`.
    pub response_us: [u32; MAX_LINKS],
    /// What is lost there, of 16384, where that counts.
    pub loss: [u16; MAX_LINKS],
}
