//! The sublink of a packet: `bpf/policy/bins.h` behind a safe API.
//!
//! | spread | chosen | when a sublink leaves |
//! |---|---|---|
//! | [`by_hash`] | flow hash modulo the number of usable sublinks (SH, Jo 2002) | most flows move |
//! | [`by_hash`] of [`layer34`] | likewise, as the Linux bonding driver does | likewise |
//! | [`by_bin`] | the table's entry for the hash modulo 1024 (DH and DHFV, Jo 2002) | only its bins move |
//! | [`by_rendezvous`] | argmin of exponential draws, one per sublink, with its weight as rate | only its flows move |
//! | [`Flowlet::sublink`] | as the caller likes, anew after every gap (FLARE) | only its flowlets move |
//! | [`Drr::sublink`] | packet by packet, bytes in the ratio of the quanta (deficit round robin) | packets of all flows take what is left |
//!
//! A set of usable sublinks is a mask: bit `i` for sublink `i`, up to [`MAX_LINKS`](crate::abi::MAX_LINKS). No function
//! names a sublink outside it; none usable is `None`.

use std::net::{IpAddr, SocketAddr};

use crate::abi::{BINS, Drr, Flowlet, MAX_LINKS, NO_TARGET, Sublinks};

use crate::ffi;

/// The sublink of every bin.
pub type Table = [u16; BINS];

/// SH: the `hash mod n`-th of the `n` usable sublinks.
pub fn by_hash(hash: u32, usable: u64) -> Option<u16> {
    some(ffi::ab_sublink_by_hash(hash, usable))
}

/// The hash of the Linux bonding driver, `xmit_hash_policy=layer3+4`, for unfragmented TCP and UDP: ports XOR addresses,
/// folded, without the lowest bit (Documentation/networking/bonding.rst). Words are those of a little-endian machine, which
/// matters only where the number of sublinks is no power of two. [`by_hash`] reduces it.
pub fn layer34(from: SocketAddr, to: SocketAddr) -> u32 {
    let [[a, b], [c, d]] = [from, to].map(|end| end.port().to_be_bytes());
    let hash = u32::from_le_bytes([a, b, c, d]) ^ folded(from.ip()) ^ folded(to.ip());
    let hash = hash ^ hash >> 16;
    (hash ^ hash >> 8) >> 1
}

/// The words of an address (`ipv6_addr_hash` of Linux).
fn folded(address: IpAddr) -> u32 {
    let words = |octets: &[u8]| {
        let (words, _) = octets.as_chunks::<4>();
        words
            .iter()
            .fold(0, |hash, word| hash ^ u32::from_le_bytes(*word))
    };
    match address {
        IpAddr::V4(v4) => words(&v4.octets()),
        IpAddr::V6(v6) => words(&v6.octets()),
    }
}

/// The bin of a flow, below [`BINS`]: `hash mod 1024`.
pub fn bin(hash: u32) -> u16 {
    ffi::ab_bin(hash) as u16
}

/// DH and DHFV: what the table says, or [`by_hash`] while that sublink is not usable.
pub fn by_bin(table: &Table, hash: u32, usable: u64) -> Option<u16> {
    some(ffi::ab_sublink_by_bin(table, hash, usable))
}

/// Weighted rendezvous hashing: each usable sublink has its weight's share of the flows. Weights are
/// clamped as by [`choose`](crate::choose).
pub fn by_rendezvous(sublinks: &Sublinks, hash: u32) -> Option<u16> {
    some(ffi::ab_sublink_by_rendezvous(sublinks, hash))
}

impl Flowlet {
    /// The sublink of a packet sent at `now_ns`. It is the last packet's if that was at most `gap_ns` ago and its
    /// sublink is still usable, and else what `fresh` chooses. If `fresh` chooses none, nothing is remembered.
    pub fn sublink(
        &mut self,
        usable: u64,
        now_ns: u64,
        gap_ns: u64,
        fresh: impl FnOnce() -> Option<u16>,
    ) -> Option<u16> {
        let sublink = if ffi::ab_flowlet_lasts(self, usable, now_ns, gap_ns) {
            self.sublink as u16
        } else {
            fresh()?
        };
        ffi::ab_flowlet_send(self, sublink, now_ns);
        Some(sublink)
    }
}

impl Drr {
    /// The sublink of a packet of `length` bytes, among the first `count`. A quantum of zero counts as one byte.
    pub fn sublink(
        &mut self,
        quantum: &[u32; MAX_LINKS],
        count: u32,
        length: u32,
        usable: u64,
    ) -> Option<u16> {
        some(ffi::ab_sublink_by_deficit(
            self, quantum, count, length, usable,
        ))
    }
}

fn some(sublink: u16) -> Option<u16> {
    (sublink != NO_TARGET).then_some(sublink)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::layer34;
    use crate::ffi;

    /// By hand, of 192.0.2.1:49152 and 198.51.100.7:80, that is c0000201 c000, c6336407 0050. The lowest byte is the XOR of
    /// all twelve: c3 ^ 96 ^ c0 ^ 50 = c5, and without its lowest bit 62.
    #[test]
    fn the_bonding_driver_s_hash_folds_addresses_and_ports_and_drops_a_bit() {
        let at = |octets: [u8; 4], port| SocketAddr::from((octets, port));
        let (a, b) = (at([192, 0, 2, 1], 49_152), at([198, 51, 100, 7], 80));
        assert_eq!(layer34(a, b) & 0x7f, 0x62);
        let next = at([192, 0, 2, 1], 49_153);
        assert_eq!(layer34(next, b) & 0x7f, 0x62, "the bit that is dropped");
        let even = at([192, 0, 2, 1], 49_154);
        assert_eq!(layer34(even, b) & 0x7f, 0x63);
    }

    /// The words of fd00::c000:201 are fd000000, 0, 0 and c0000201; of 2001:db8::c633:6407, 20010db8, 0, 0 and c6336407. So the
    /// lowest byte is that above XOR fd ^ 20 ^ 01 ^ 0d ^ b8 = 69: c5 ^ 69 = ac, and without its lowest bit 56.
    #[test]
    fn the_bonding_driver_s_hash_folds_all_words_of_an_ipv6_address() {
        let at = |address: &str| address.parse::<SocketAddr>().unwrap();
        let (a, b) = (at("[fd00::c000:201]:49152"), at("[2001:db8::c633:6407]:80"));
        assert_eq!(layer34(a, b) & 0x7f, 0x56);
        assert_eq!(layer34(b, a) & 0x7f, 0x56);
    }

    /// The same with floating point.
    fn exact(draw: u32) -> f64 {
        -((f64::from(draw) + 0.5) / 2f64.powi(32)).log2()
    }

    #[test]
    fn the_integer_logarithm_is_as_near_the_true_one_as_the_header_says() {
        let near_each_power =
            (0..32).flat_map(|bit| (0..3).map(move |i| (1u32 << bit).wrapping_sub(1) + i));
        let everywhere = (0..1u32 << 16).map(|i| i * 65_521);
        let near_the_end = (0..1000).map(|i| u32::MAX - i * 3);
        for draw in near_each_power.chain(everywhere).chain(near_the_end) {
            let (found, exact) = (ffi::ab_neg_log2(draw) as f64 / 2f64.powi(36), exact(draw));
            let excess = found - exact;
            let bound = (0.0025 * exact).min(2f64.powi(-16)) + 2f64.powi(-35);
            assert!(
                (-2f64.powi(-30)..=bound).contains(&excess),
                "draw {draw}: {found}, exactly {exact}"
            );
        }
    }

    #[test]
    fn the_integer_logarithm_stays_between_12_and_33_times_2_to_the_36() {
        assert_eq!(ffi::ab_neg_log2(u32::MAX), 12);
        assert_eq!(ffi::ab_neg_log2(0), 33 << 36);
    }

    #[test]
    fn a_greater_draw_never_has_a_greater_logarithm() {
        let draws = (0..1u32 << 20).map(|i| i * 4093 + (i >> 3));
        let mut sorted: Vec<_> = draws.collect();
        sorted.sort_unstable();
        let logarithms: Vec<_> = sorted.into_iter().map(ffi::ab_neg_log2).collect();
        assert!(logarithms.is_sorted_by(|a, b| a >= b));
    }
}
