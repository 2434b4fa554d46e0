//! SplitMix64 (Steele, Lea and Flood 2014): numbers that look random, of a seed alone. Nothing that must not be guessed
//! comes of it.

/// The odd number nearest to 2^64 over the golden ratio: what a state advances by.
pub const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// A number that looks random of one that does not; different ones of different ones.
pub fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(GAMMA);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// A sequence, by its seed.
#[derive(Clone, Debug)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// The next of the sequence.
    pub fn draw(&mut self) -> u64 {
        let drawn = mix(self.0);
        self.0 = self.0.wrapping_add(GAMMA);
        drawn
    }

    /// The low bits of the next, 32 at most.
    pub fn bits(&mut self, bits: u32) -> u32 {
        self.draw() as u32 & ((1u64 << bits) - 1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        // Of the reference implementation (Vigna, splitmix64.c), seed 1234567.
        let mut sequence = SplitMix64(1_234_567);
        let drawn = [(); 3].map(|()| sequence.draw());
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(drawn, published);
    }
}
