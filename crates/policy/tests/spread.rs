//! What the spreading of a trunk promises, whatever the numbers.

use anabranch_policy::abi::{BINS, Flowlet, MAX_LINKS, WEIGHT_MAX, WEIGHT_MIN};
use anabranch_policy::spread::{Table, bin, by_bin, by_hash, by_rendezvous};
use anabranch_policy::{Candidate, Sublinks};
use proptest::prelude::*;

fn all(sublinks: u32) -> u64 {
    (1 << sublinks) - 1
}

fn weighted(weights: &[u32]) -> Sublinks {
    weights
        .iter()
        .map(|&weight| Candidate {
            weight,
            load: 0,
            usable: true,
        })
        .collect()
}

fn weights() -> impl Strategy<Value = Vec<u32>> {
    let weight = prop_oneof![1..10u32, WEIGHT_MIN..=WEIGHT_MAX];
    prop::collection::vec(weight, 1..=MAX_LINKS)
}

/// Flows that each sublink gets.
fn shares(sublinks: &Sublinks, flows: u32) -> [u32; MAX_LINKS] {
    let mut shares = [0; MAX_LINKS];
    for flow in 0..flows {
        let sublink = by_rendezvous(sublinks, flow.wrapping_mul(0x9e37_79b9)).unwrap();
        shares[usize::from(sublink)] += 1;
    }
    shares
}

/// Six standard deviations of a binomial count, and the 0.2 % that the logarithm may be off.
fn assert_share(found: u32, flows: u32, share: f64) {
    let expected = f64::from(flows) * share;
    let tolerance = 6.0 * (expected * (1.0 - share)).sqrt() + 0.0025 * expected;
    assert!(
        (f64::from(found) - expected).abs() <= tolerance,
        "{found} flows, expected {expected:.0} ± {tolerance:.0}"
    );
}

fn table() -> impl Strategy<Value = Table> {
    prop::collection::vec(prop_oneof![4 => 0..18u16, 1 => any::<u16>()], BINS)
        .prop_map(|sublinks| sublinks.try_into().unwrap())
}

#[test]
fn static_hashing_over_k_sublinks_is_the_hash_modulo_k() {
    for sublinks in 1..=MAX_LINKS as u32 {
        for hash in (0..1000).chain(u32::MAX - 1000..=u32::MAX) {
            let expected = (hash % sublinks) as u16;
            assert_eq!(by_hash(hash, all(sublinks)), Some(expected));
        }
    }
}

#[test]
fn no_scheme_finds_a_sublink_when_none_is_usable() {
    assert_eq!(by_hash(7, 0), None);
    assert_eq!(by_bin(&[0; BINS], 7, 0), None);
    assert_eq!(by_rendezvous(&Sublinks::default(), 7), None);
    assert_eq!(Flowlet::default().sublink(0, 1, 1, || None), None);
}

#[test]
fn a_bin_is_the_hash_modulo_1024() {
    assert_eq!(
        [bin(0), bin(1023), bin(1024), bin(u32::MAX)],
        [0, 1023, 0, 1023]
    );
}

#[test]
fn weights_in_the_ratio_1_2_4_8_share_the_flows_in_that_ratio() {
    let flows = 200_000;
    let shares = shares(&weighted(&[1, 2, 4, 8]), flows);
    for (share, weight) in shares.into_iter().zip([1.0, 2.0, 4.0, 8.0]) {
        assert_share(share, flows, weight / 15.0);
    }
}

#[test]
fn a_sublink_of_a_thousandth_of_the_weight_gets_a_thousandth_of_the_flows() {
    let flows = 1_000_000;
    let shares = shares(&weighted(&[1000, 999_000]), flows);
    assert_share(shares[0], flows, 0.001);
}

#[test]
fn sixteen_equal_sublinks_share_equally() {
    let flows = 160_000;
    for share in shares(&weighted(&[7; MAX_LINKS]), flows) {
        assert_share(share, flows, 1.0 / MAX_LINKS as f64);
    }
}

#[test]
fn a_flowlet_lasts_up_to_the_gap_and_ends_beyond_it() {
    let mut flowlet = Flowlet::default();
    let gap_ns = 500;
    let mut sublink = |now_ns, fresh| flowlet.sublink(0b11, now_ns, gap_ns, || Some(fresh));
    assert_eq!(sublink(1000, 0), Some(0), "the first packet chooses");
    assert_eq!(sublink(1500, 1), Some(0), "a gap of 500 is not above 500");
    assert_eq!(
        sublink(2000, 1),
        Some(0),
        "the gap counts from the last packet"
    );
    assert_eq!(sublink(2501, 1), Some(1), "a gap of 501 is");
}

#[test]
fn a_flowlet_chooses_at_its_first_packet_even_at_time_zero() {
    assert_eq!(
        Flowlet::default().sublink(0b11, 0, 500, || Some(1)),
        Some(1)
    );
}

#[test]
fn a_flowlet_leaves_a_sublink_that_is_no_longer_usable_at_once() {
    let mut flowlet = Flowlet::default();
    flowlet.sublink(0b11, 1000, 500, || Some(0));
    assert_eq!(flowlet.sublink(0b10, 1001, 500, || Some(1)), Some(1));
}

#[test]
fn a_packet_stamped_earlier_by_another_cpu_neither_ends_a_flowlet_nor_turns_its_clock_back() {
    let mut flowlet = Flowlet::default();
    flowlet.sublink(0b11, 1000, 500, || Some(0));
    assert_eq!(flowlet.sublink(0b11, 900, 500, || Some(1)), Some(0));
    assert_eq!(flowlet.seen_ns, 1000);
}

proptest! {
    #[test]
    fn every_scheme_names_a_usable_sublink(
        hash: u32, usable in 1..=all(16), table in table(), weights in weights(),
    ) {
        let is_usable = |sublink: Option<u16>| sublink.is_some_and(|s| usable >> s & 1 == 1);
        prop_assert!(is_usable(by_hash(hash, usable)));
        prop_assert!(is_usable(by_bin(&table, hash, usable)));
        let sublinks = Sublinks { usable, ..weighted(&weights) };
        let some_usable = usable & all(weights.len() as u32) != 0;
        prop_assert_eq!(is_usable(by_rendezvous(&sublinks, hash)), some_usable);
    }

    #[test]
    fn the_table_rules_wherever_its_sublink_is_usable(
        hash: u32, usable in 1..=all(16), table in table(),
    ) {
        let assigned = table[usize::from(bin(hash))];
        let usable_one = assigned < MAX_LINKS as u16 && usable >> assigned & 1 == 1;
        let expected = if usable_one { Some(assigned) } else { by_hash(hash, usable) };
        prop_assert_eq!(by_bin(&table, hash, usable), expected);
    }

    #[test]
    fn bits_beyond_the_last_sublink_do_not_matter(hash: u32, usable in 0..=all(16), high: u16) {
        let noisy = usable | u64::from(high) << 16;
        prop_assert_eq!(by_hash(hash, noisy), by_hash(hash, usable));
    }

    #[test]
    fn rendezvous_gives_each_sublink_its_weight_s_share(weights in weights()) {
        let flows = 20_000;
        let total: u32 = weights.iter().sum();
        let shares = shares(&weighted(&weights), flows);
        for (share, weight) in shares.into_iter().zip(weights) {
            let part = f64::from(weight) / f64::from(total);
            if f64::from(flows) * part > 100.0 {
                assert_share(share, flows, part);
            }
        }
    }

    #[test]
    fn when_a_sublink_leaves_only_its_own_flows_move(weights in weights(), gone: prop::sample::Index, seed: u32) {
        let before = weighted(&weights);
        let gone = gone.index(weights.len()) as u16;
        let after = Sublinks { usable: before.usable & !(1 << gone), ..before };
        for hash in (0..500).map(|i: u32| seed.wrapping_add(i)) {
            let (was, is) = (by_rendezvous(&before, hash), by_rendezvous(&after, hash));
            prop_assert!(was == is || was == Some(gone), "flow {hash} went from {was:?} to {is:?}");
        }
    }

    #[test]
    fn when_a_weight_grows_flows_move_only_to_that_sublink(
        weights in weights(), grown: prop::sample::Index, seed: u32,
    ) {
        let before = weighted(&weights);
        let grown = grown.index(weights.len());
        let mut after = before;
        after.weight[grown] = (after.weight[grown] * 2).min(WEIGHT_MAX);
        for hash in (0..500).map(|i: u32| seed.wrapping_add(i)) {
            let (was, is) = (by_rendezvous(&before, hash), by_rendezvous(&after, hash));
            prop_assert!(was == is || is == Some(grown as u16), "flow {hash} went from {was:?} to {is:?}");
        }
    }

    /// FLARE's theorem: packets may change sublink only after a pause that covers the difference of the delays.
    #[test]
    fn flowlets_never_reorder_if_the_gap_covers_the_difference_of_the_delays(
        delays_ns in prop::collection::vec(0..10_000u64, 2..=MAX_LINKS),
        packets in prop::collection::vec((0..20_000u64, any::<u16>()), 1..200),
    ) {
        let gap_ns = delays_ns.iter().max().unwrap() - delays_ns.iter().min().unwrap();
        let sublinks = delays_ns.len() as u32;
        let (mut flowlet, mut now_ns, mut last_arrival_ns) = (Flowlet::default(), 0, 0);
        for (pause_ns, draw) in packets {
            now_ns += pause_ns;
            let fresh = || by_hash(draw.into(), all(sublinks));
            let sublink = flowlet.sublink(all(sublinks), now_ns, gap_ns, fresh).unwrap();
            let arrival_ns = now_ns + delays_ns[usize::from(sublink)];
            prop_assert!(arrival_ns >= last_arrival_ns, "overtaken by {} ns", last_arrival_ns - arrival_ns);
            last_arrival_ns = arrival_ns;
        }
    }
}
