//! What happens, in which order: drawn from the seed before anything runs.

use std::fmt;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Links of the box. The last has fixed addresses, the others have leases.
pub(super) const LINKS: usize = 3;
const LEASED: [usize; 2] = [0, 1];
const STATIC: usize = 2;

/// Something that real boxes meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Happening {
    /// The cable is out for a while.
    Carrier(usize),
    /// Nothing passes the modem for a while, and the cable stays in.
    Silence(usize),
    LeaseRenewed(usize),
    LeaseChanged(usize),
    DhcpClientRestarts(usize),
    DhcpServerRestarts(usize),
    /// The shaper of a link is set up anew.
    ShaperRestarts(usize),
    Reload,
    /// The daemon is killed and started again.
    Kill,
}

impl Happening {
    /// Whether it takes something away for a while that is given back afterwards.
    pub fn lasts(self) -> bool {
        matches!(self, Self::Carrier(_) | Self::Silence(_))
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |link: &usize| NAMES[*link];
        match self {
            Self::Carrier(link) => write!(f, "{} loses its carrier", name(link)),
            Self::Silence(link) => write!(f, "{} goes silent behind its carrier", name(link)),
            Self::LeaseRenewed(link) => write!(f, "{} renews its lease", name(link)),
            Self::LeaseChanged(link) => write!(f, "{} gets another address", name(link)),
            Self::DhcpClientRestarts(link) => write!(f, "DHCP client of {} restarts", name(link)),
            Self::DhcpServerRestarts(link) => write!(f, "DHCP server of {} restarts", name(link)),
            Self::ShaperRestarts(link) => write!(f, "shaper of {} is set up anew", name(link)),
            Self::Reload => f.write_str("anabranch reloads"),
            Self::Kill => f.write_str("anabranch is killed and starts again"),
        }
    }
}

/// Of the links, in the configuration.
pub(super) const NAMES: [&str; LINKS] = ["one", "two", "three"];

/// A happening, after a pause; what lasts is undone after `hold_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub pause_ms: u64,
    pub what: Happening,
    pub hold_ms: u64,
}

/// What happens to the links and the daemon, one after the other.
pub(super) fn links(seed: u64) -> impl Iterator<Item = Step> {
    use Happening::*;
    let mut kinds = vec![Reload, Kill, ShaperRestarts(STATIC)];
    for link in 0..LINKS {
        kinds.extend([Carrier(link), Silence(link)]);
    }
    for link in LEASED {
        kinds.extend([
            LeaseRenewed(link),
            LeaseChanged(link),
            DhcpServerRestarts(link),
        ]);
    }
    // udhcpc flushes the address when it starts; dhclient keeps it.
    kinds.push(DhcpClientRestarts(1));
    steps(kinds, seed)
}

/// All kinds in random order, then all again in another.
fn steps(kinds: Vec<Happening>, seed: u64) -> impl Iterator<Item = Step> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut left = Vec::new();
    std::iter::repeat_with(move || {
        if left.is_empty() {
            left.clone_from(&kinds);
            left.shuffle(&mut random);
        }
        Step {
            pause_ms: random.random_range(1500..4000),
            what: left.pop().expect("there are kinds"),
            hold_ms: random.random_range(1000..6000),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(seed: u64, count: usize) -> Vec<Step> {
        links(seed).take(count).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_order_and_another_one_another() {
        assert_eq!(first(7, 100), first(7, 100));
        assert_ne!(first(7, 100), first(8, 100));
    }

    #[test]
    fn every_kind_comes_before_any_comes_again() {
        let kinds = 16;
        let mut shown: Vec<_> = first(3, kinds)
            .iter()
            .map(|step| step.what.to_string())
            .collect();
        shown.sort();
        shown.dedup();
        assert_eq!(shown.len(), kinds);
    }
}
