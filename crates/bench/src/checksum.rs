//! The internet checksum (RFC 1071).

/// As it stands in a header whose checksum field is zero in `bytes`.
pub fn of(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u32::from(low)))
        .sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 1071 section 3, whose sum is 0xddf2.
    #[test]
    fn the_example_of_the_rfc_holds() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(of(&bytes), !0xddf2);
    }

    #[test]
    fn an_odd_last_byte_counts_as_the_high_one() {
        assert_eq!(of(&[0x12]), !0x1200);
    }
}
