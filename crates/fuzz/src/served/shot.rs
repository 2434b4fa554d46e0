//! A packet that arrives at the programs of services.

use std::fmt;

use crate::read::Ip;
use crate::script::to_hex;

/// The frame of the loopback device, which has an address of zeros, without the kind.
pub const ADDRESSES: [u8; 12] = [0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 7];

/// A packet that arrives.
pub struct Shot {
    /// With an Ethernet header, or without.
    pub frame: Vec<u8>,
    pub is_layer3: bool,
    pub after_ns: u64,
    pub random: u32,
}

impl Shot {
    /// As far as it is one.
    pub fn ip(&self) -> Option<Ip<'_>> {
        match self.is_layer3 {
            true => Ip::of(&self.frame),
            false => Ip::of_frame(&self.frame),
        }
    }

    /// Whether it is a frame for this host.
    pub fn is_for_us(&self) -> bool {
        self.is_layer3 || self.frame[..6] == ADDRESSES[..6]
    }
}

impl fmt::Display for Shot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layer = if self.is_layer3 { 3 } else { 2 };
        write!(f, "layer {layer} {}", to_hex(&self.frame))
    }
}
