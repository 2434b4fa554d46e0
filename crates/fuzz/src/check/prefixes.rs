//! What a host's address becomes behind a prefix, from RFC 6296.

use std::net::Ipv6Addr;

use crate::sum;

/// With the first bits those of `prefix`, and one word such that all words sum to what they did; none if there is no such word.
pub(super) fn translated(host: Ipv6Addr, (prefix, length): (Ipv6Addr, u8)) -> Option<Ipv6Addr> {
    let mask = !(u128::MAX >> length);
    let moved = Ipv6Addr::from((host.to_bits() & !mask) | (prefix.to_bits() & mask));
    let mut words = moved.segments();
    // Sections 3.4 and 3.5: that of the subnet, or the first behind 64 bits that is not all ones.
    let candidates = if length > 48 { 4..8 } else { 3..4 };
    let at = candidates.into_iter().find(|&at| words[at] != 0xffff)?;
    let is_neutral = |word: &u16| {
        words[at] = *word;
        let is = sum::sum(&Ipv6Addr::from(words).octets());
        sum::is_same(is, sum::sum(&host.octets()))
    };
    // Never all ones (section 3.6).
    let word = (0..0xffff).find(is_neutral)?;
    words[at] = word;
    Some(words.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_6296_come_out() {
        let prefix = ("2001:db8:1::".parse().unwrap(), 48);
        let host = "fd01:203:405:1::1234".parse().unwrap();
        let external: Ipv6Addr = "2001:db8:1:d550::1234".parse().unwrap();
        assert_eq!(translated(host, prefix), Some(external));
    }

    #[test]
    fn an_address_without_a_word_to_change_has_no_other() {
        let prefix = ("2001:db8:1::".parse().unwrap(), 56);
        let host = "fd01:203:405:1:ffff:ffff:ffff:ffff".parse().unwrap();
        assert_eq!(translated(host, prefix), None);
    }
}
