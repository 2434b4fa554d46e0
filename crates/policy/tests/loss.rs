//! Response times and loss together, whatever the numbers.

use anabranch_policy::abi::MAX_LINKS;
use anabranch_policy::paths::{Known, Path, Paths, Silence, syn_sent};
use anabranch_policy::{Choice, Decision, Gauges, NO_TABLE, Request, Why, choose};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
const LIFETIME: u64 = 60 * SECOND;
const NOW: u64 = 1000 * SECOND;
/// What is rarer is as good as nothing, and few SYNs are worth no more.
const PRIOR: f64 = 0.01;

fn choice(usable: u64) -> Choice {
    Choice {
        lifetime_ns: LIFETIME,
        by_loss: 1,
        ..Choice::round_robin(MAX_LINKS as u32, usable)
    }
}

/// Of a link that has told a second ago.
fn told(response_us: u32, samples: u16, failures: u16) -> Path {
    Path {
        learned_ns: NOW - SECOND,
        response_us,
        samples,
        failures,
        ..Path::default()
    }
}

fn paths(told: &[Path]) -> Paths {
    let mut paths = Paths::default();
    paths.path[..told.len()].copy_from_slice(told);
    paths
}

fn decide(choice: &Choice, paths: &Paths) -> Decision {
    let known = choice.know(Some(paths), NOW, false);
    let request = Request {
        known,
        ..Request::default()
    };
    choose(choice, &Gauges::default(), &NO_TABLE, &request)
}

fn chosen(paths: &Paths) -> u16 {
    let decision = decide(&choice(u64::from(u32::MAX >> (32 - MAX_LINKS))), paths);
    assert_eq!(decision.why, Why::Loss);
    decision.target.expect("a link is known")
}

/// R √p, in words.
fn cost(path: &Path) -> f64 {
    let failures = f64::from(path.failures);
    let syns = failures + f64::from(path.samples);
    let loss = ((failures + 1.) / (syns + 100.)).max(PRIOR);
    f64::from(path.response_us.min((1 << 24) - 1)) * loss.sqrt()
}

#[test]
fn a_link_that_loses_four_times_as_much_has_to_be_twice_as_fast() {
    // Of 900 SYNs 9 and 39 were lost: 10 and 40 of 1000.
    let near = |response_us| paths(&[told(50_000, 891, 9), told(response_us, 861, 39)]);
    assert_eq!(chosen(&near(25_500)), 0);
    assert_eq!(chosen(&near(24_500)), 1);
}

#[test]
fn of_few_syns_and_of_rare_losses_nothing_is_told() {
    let unused_is_nearer = paths(&[told(50_000, 900, 0), told(49_000, 1, 0)]);
    assert_eq!(chosen(&unused_is_nearer), 1);
    let one_was_lost = paths(&[told(50_000, 1, 0), told(40_000, 0, 1)]);
    assert_eq!(chosen(&one_was_lost), 0, "2 of 101 are more than 1 of 101");
    let much_nearer = paths(&[told(50_000, 1, 0), told(30_000, 0, 1)]);
    assert_eq!(chosen(&much_nearer), 1, "one SYN is no proof");
}

#[test]
fn a_silence_is_a_loss_of_each_host_once_in_a_lifetime_and_no_response() {
    let now = choice(0);
    let mut path = told(20_000, 5, 0);
    let sent = syn_sent(NOW - SECOND);
    let mut met = [Silence::default(); 2];
    for host in [0, 0, 0, 1] {
        now.learn_silence(&mut path, &mut met[host], 0, sent, NOW);
    }
    assert_eq!((path.response_us, path.failures), (20_000, 2));
    assert_eq!(path.learned_ns, NOW - SECOND, "nor does it make that last");
    let mut known = Known {
        fresh: 0b11,
        ..Known::default()
    };
    now.heed(&mut known, &met[0], NOW);
    assert_eq!(known.fresh, 0b11, "loss is compared, not avoided");
    let mut unknown = Path::default();
    now.learn_silence(&mut unknown, &mut Silence::default(), 0, sent, NOW);
    assert_eq!((unknown.response_us, unknown.failures), (0, 1));
}

#[test]
fn half_is_forgotten_of_a_thousand_syns() {
    let mut path = told(20_000, 1000, 24);
    choice(0).learn_answer(&mut path, syn_sent(NOW), NOW);
    assert_eq!((path.samples, path.failures), (500, 12));
    let mut kept = told(20_000, 1000, 24);
    let now = choice(0);
    Choice { by_loss: 0, ..now }.learn_answer(&mut kept, syn_sent(NOW), NOW);
    assert_eq!((kept.samples, kept.failures), (1001, 24));
}

proptest! {
    #[test]
    fn the_link_of_the_least_product_takes_the_flow(
        links in prop::collection::vec(
            (prop_oneof![1..2_000_000u32, any::<u32>()], any::<u16>(), 0..2000u16, any::<bool>()),
            2..=MAX_LINKS,
        ),
        usable in 1..1u64 << MAX_LINKS,
    ) {
        let told: Vec<_> = links
            .iter()
            .map(|&(response_us, samples, failures, is_known)| match is_known {
                true => told(response_us, samples, failures),
                false => Path::default(),
            })
            .collect();
        let decision = decide(&choice(usable), &paths(&told));
        let candidates = told.iter().enumerate().filter(|(link, path)| usable >> link & 1 == 1 && path.learned_ns != 0);
        let least = candidates.map(|(_, path)| cost(path)).min_by(f64::total_cmp);
        if decision.why != Why::Loss {
            prop_assert!(usable.count_ones() == 1 || least.is_none(), "{decision:?}");
            return Ok(());
        }
        let link = usize::from(decision.target.expect("one"));
        prop_assert_eq!(usable >> link & 1, 1);
        // Loss is told in parts of 16384, 163 at least.
        let least = least.expect("a link was known");
        prop_assert!(cost(&told[link]) <= least * 1.004, "{} of {least}", cost(&told[link]));
    }
}
