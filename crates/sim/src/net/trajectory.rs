//! What tells whether two runs were one.

use anabranch_core::Time;

/// A running hash of everything that happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trajectory {
    /// How many.
    pub events: u64,
    /// Of what they were and when.
    pub hash: u64,
}

impl Trajectory {
    /// Multiply and rotate, with the 64-bit primes of xxHash: cheap, and sensitive to order.
    #[inline]
    pub(super) fn note(&mut self, time: Time, kind: u64, subject: u32) {
        const PRIMES: [u64; 2] = [0x9E37_79B1_85EB_CA87, 0xC2B2_AE3D_27D4_EB4F];
        let event = (u64::from(subject) << 2 | kind).wrapping_mul(PRIMES[1]);
        self.hash = (self.hash ^ time.as_nanos() ^ event)
            .rotate_left(31)
            .wrapping_mul(PRIMES[0]);
        self.events += 1;
    }
}
