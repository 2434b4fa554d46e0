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
    /// The default route is gone for less than a second, as while a network manager starts again.
    RouteAway(usize),
    /// The link's IPv6 address is deprecated for a while (RFC 4862 §5.5.4).
    Deprecated(usize),
    LeaseRenewed(usize),
    LeaseChanged(usize),
    DhcpClientRestarts(usize),
    DhcpServerRestarts(usize),
    /// The shaper of a link is set up anew.
    ShaperRestarts(usize),
    /// Downloads of a link are shaped at its ingress for a while.
    IngressShaper(usize),
    Reload,
    /// The daemon is killed and started again.
    Kill,
    /// The daemon is told to end, and started again.
    Stop,
    /// Somebody takes away all of nftables, and everybody but the gateway loads their own again.
    Flush,
    /// Another router takes the virtual address for a while.
    AnotherMaster,
    KeepalivedRestarts,
    RadvdRestarts,
    /// Another prefix is advertised as the preferred one, and the present one as deprecated.
    OtherPrefix,
    ContainersReload,
    PolicyTable,
    /// A rule leads what one LAN host sends to a link, for a while.
    SourceRule(usize),
}

impl Happening {
    /// Whether it takes something away for a while that is given back afterwards.
    pub fn lasts(self) -> bool {
        matches!(
            self,
            Self::Carrier(_)
                | Self::Silence(_)
                | Self::Deprecated(_)
                | Self::IngressShaper(_)
                | Self::AnotherMaster
                | Self::SourceRule(_)
        )
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |link: &usize| NAMES[*link];
        match self {
            Self::Carrier(link) => write!(f, "{} loses its carrier", name(link)),
            Self::Silence(link) => write!(f, "{} goes silent behind its carrier", name(link)),
            Self::RouteAway(link) => write!(f, "default route of {} goes and returns", name(link)),
            Self::Deprecated(link) => write!(f, "IPv6 address of {} is deprecated", name(link)),
            Self::LeaseRenewed(link) => write!(f, "{} renews its lease", name(link)),
            Self::LeaseChanged(link) => write!(f, "{} gets another address", name(link)),
            Self::DhcpClientRestarts(link) => write!(f, "DHCP client of {} restarts", name(link)),
            Self::DhcpServerRestarts(link) => write!(f, "DHCP server of {} restarts", name(link)),
            Self::ShaperRestarts(link) => write!(f, "shaper of {} is set up anew", name(link)),
            Self::IngressShaper(link) => write!(f, "{} is shaped at its ingress", name(link)),
            Self::Reload => f.write_str("anabranch reloads"),
            Self::Kill => f.write_str("anabranch is killed and starts again"),
            Self::Stop => f.write_str("anabranch stops and starts again"),
            Self::Flush => f.write_str("nft flush ruleset"),
            Self::AnotherMaster => f.write_str("another router has the virtual address"),
            Self::KeepalivedRestarts => f.write_str("keepalived restarts"),
            Self::RadvdRestarts => f.write_str("radvd restarts"),
            Self::OtherPrefix => f.write_str("radvd prefers the other prefix"),
            Self::ContainersReload => f.write_str("rules of the containers are loaded anew"),
            Self::PolicyTable => f.write_str("policy table is flushed and made anew"),
            Self::SourceRule(link) => write!(f, "a source rule leads a LAN host to {}", name(link)),
        }
    }
}

/// Of the links, in the configuration.
pub(super) const NAMES: [&str; LINKS] = ["one", "two", "three"];

/// What the site is made of where there is a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Choices {
    /// The second link's lease is taken by dhcpcd, not by dhclient.
    pub dhcpcd: bool,
    /// The virtual address has a hardware address of its own.
    pub virtual_mac: bool,
    /// The container has a published port, so that the gateway leaves what it does not know to the kernel (`nat.forwards`).
    pub published: bool,
}

impl fmt::Display for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let client = if self.dhcpcd { "dhcpcd" } else { "dhclient" };
        let router = if self.virtual_mac { "with" } else { "without" };
        let port = if self.published { "a" } else { "no" };
        write!(
            f,
            "{client} on two, a virtual address {router} a hardware address of its own, {port} published port"
        )
    }
}

pub(super) fn choices(seed: u64) -> Choices {
    let mut random = random(seed, CHOICES);
    Choices {
        dhcpcd: random.random(),
        virtual_mac: random.random(),
        published: random.random(),
    }
}

/// What is drawn apart from each other.
const LINKS_STREAM: u64 = 0;
const SERVICES_STREAM: u64 = 1;
const CHOICES: u64 = 2;

fn random(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(stream);
    random
}

/// A happening, after a pause; what lasts is undone after `hold_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub pause_ms: u64,
    pub what: Happening,
    pub hold_ms: u64,
}

/// What happens to the links and the daemon, one after the other. `only` has words of the kinds that happen; all do if there
/// are none.
pub(super) fn links(seed: u64, only: &[String]) -> impl Iterator<Item = Step> + use<> {
    use Happening::*;
    let mut kinds = vec![Reload, Kill, Stop, Flush];
    kinds.extend([
        Deprecated(STATIC),
        ShaperRestarts(STATIC),
        IngressShaper(STATIC),
    ]);
    for link in 0..LINKS {
        kinds.extend([Carrier(link), Silence(link), RouteAway(link)]);
    }
    for link in LEASED {
        kinds.extend([
            LeaseRenewed(link),
            LeaseChanged(link),
            DhcpClientRestarts(link),
            DhcpServerRestarts(link),
        ]);
    }
    steps(kinds, only, random(seed, LINKS_STREAM))
}

/// What happens to the services meanwhile.
pub(super) fn services(seed: u64, only: &[String]) -> impl Iterator<Item = Step> + use<> {
    use Happening::*;
    let kinds = vec![
        AnotherMaster,
        KeepalivedRestarts,
        RadvdRestarts,
        OtherPrefix,
        ContainersReload,
        PolicyTable,
        SourceRule(STATIC),
    ];
    steps(kinds, only, random(seed, SERVICES_STREAM))
}

/// All kinds in random order, then all again in another.
fn steps(
    mut kinds: Vec<Happening>,
    only: &[String],
    mut random: ChaCha8Rng,
) -> impl Iterator<Item = Step> + use<> {
    kinds.retain(|kind| {
        let words = kind.to_string();
        only.is_empty() || only.iter().any(|part| words.contains(part))
    });
    let mut left = Vec::new();
    std::iter::from_fn(move || {
        if left.is_empty() {
            left.clone_from(&kinds);
            left.shuffle(&mut random);
        }
        Some(Step {
            pause_ms: random.random_range(1500..4000),
            what: left.pop()?,
            hold_ms: random.random_range(1000..6000),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(seed: u64, count: usize) -> Vec<Step> {
        links(seed, &[]).take(count).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_order_and_another_one_another() {
        assert_eq!(first(7, 100), first(7, 100));
        assert_ne!(first(7, 100), first(8, 100));
        let pauses = |steps: Vec<Step>| -> Vec<_> { steps.iter().map(|it| it.pause_ms).collect() };
        let others = services(7, &[]).take(100).collect();
        assert_ne!(pauses(others), pauses(first(7, 100)));
    }

    #[test]
    fn seeds_choose_among_all_there_is() {
        assert_eq!(choices(7), choices(7));
        let mut all: Vec<_> = (0..50).map(choices).collect();
        all.sort_by_key(|it| (it.dhcpcd, it.virtual_mac, it.published));
        all.dedup();
        assert_eq!(all.len(), 8);
    }

    #[test]
    fn only_what_is_asked_for_happens() {
        let only = ["carrier".to_owned()];
        let mut steps = links(7, &only).take(20);
        assert!(steps.all(|step| step.what.to_string().contains("carrier")));
        assert_eq!(services(7, &only).next(), None);
    }

    #[test]
    fn every_kind_comes_before_any_comes_again() {
        let kinds = 24;
        let mut shown: Vec<_> = first(3, kinds)
            .iter()
            .map(|step| step.what.to_string())
            .collect();
        shown.sort();
        shown.dedup();
        assert_eq!(shown.len(), kinds);
    }
}
