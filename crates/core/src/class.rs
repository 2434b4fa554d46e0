//! Classes: traffic that shares a policy and a set of links.

use std::collections::BTreeMap;
use std::fmt;

use anabranch_policy::abi;

use crate::algorithm::Algorithm;
use crate::link::{Direction, LinkId, LinkSet, OnReturn};
use crate::rules::{Class, WhenNone};
use crate::sessions::Sessions;

/// A class by its number in every map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u8);

impl ClassId {
    /// The class of traffic that no rule matches.
    pub const DEFAULT: ClassId = ClassId(0);

    /// Index into tables with a place for each class.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ClassId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "class {}", self.0)
    }
}

/// A set of classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassSet(u64);

impl ClassSet {
    /// Every class there may be.
    pub const ALL: ClassSet = ClassSet(u64::MAX);

    /// A bit for each class, as in the programs.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether the set has a class.
    pub const fn contains(self, class: ClassId) -> bool {
        (self.0 >> class.0) & 1 == 1
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Its classes, in ascending order.
    pub fn iter(self) -> impl Iterator<Item = ClassId> {
        let all = (0..u64::BITS as u8).map(ClassId);
        all.filter(move |class| self.contains(*class))
    }
}

impl Extend<ClassId> for ClassSet {
    fn extend<I: IntoIterator<Item = ClassId>>(&mut self, classes: I) {
        self.0 = classes
            .into_iter()
            .fold(self.0, |bits, class| bits | 1 << class.0);
    }
}

impl FromIterator<ClassId> for ClassSet {
    fn from_iter<I: IntoIterator<Item = ClassId>>(classes: I) -> Self {
        let mut set = ClassSet::default();
        set.extend(classes);
        set
    }
}

/// The data path's counters of a class since it was loaded, summed over all CPUs.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClassCounters {
    /// Flows, and packets that opened none.
    pub counts: abi::Class,
    /// Packets and bytes of both directions.
    pub traffic: abi::Traffic,
}

impl ClassCounters {
    /// Its flows that are not closed.
    pub fn live(&self) -> u64 {
        self.counts.opened.saturating_sub(self.counts.closed)
    }
}

/// All classes of a gateway.
pub type Classes = BTreeMap<ClassId, ClassSpec>;

/// The configuration of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassSpec {
    /// The algorithm that chooses its links.
    pub algorithm: Algorithm,
    /// Which of its connections take one link together, beyond the algorithm's granularity.
    pub sessions: Sessions,
    /// Its tiers of links: new flows take the first tier with a usable link. None: all links, unmetered before metered.
    pub tiers: Option<Vec<LinkSet>>,
    /// What happens to its new flows when no tier has a usable link.
    pub when_none: WhenNone,
    /// The direction of most of its bytes, for measures that weigh both directions; none: that of the whole site.
    pub direction: Option<Direction>,
    /// Bound on the live flows of one host in it; none: only the bound for all classes together.
    pub flows_per_host: Option<u32>,
    /// What happens to its flows when a link of an earlier tier returns; none: as the flow's link says.
    pub on_return: Option<OnReturn>,
}

impl ClassSpec {
    /// A gateway with only the default class.
    pub fn alone(algorithm: Algorithm) -> Classes {
        BTreeMap::from([(ClassId::DEFAULT, algorithm.into())])
    }

    /// Makes it from a class as people write it. `default` is the default class, and `id` finds a link by name.
    pub fn of(class: &Class, default: &ClassSpec, id: impl Fn(&str) -> Option<LinkId>) -> Self {
        ClassSpec {
            algorithm: class.algorithm(default.algorithm),
            sessions: class.sessions(&default.sessions),
            tiers: class.tiers_of(id),
            when_none: class.when_none,
            direction: class.direction,
            flows_per_host: class.flows_per_host,
            on_return: class.on_return,
        }
    }

    /// Whether a link is in one of its tiers.
    pub fn names(&self, link: LinkId) -> bool {
        let tiers = self.tiers.as_ref();
        tiers.is_none_or(|tiers| tiers.iter().any(|tier| tier.contains(link)))
    }
}

impl From<Algorithm> for ClassSpec {
    /// With all links.
    fn from(algorithm: Algorithm) -> Self {
        ClassSpec {
            algorithm,
            sessions: Sessions::default(),
            tiers: None,
            when_none: WhenNone::default(),
            direction: None,
            flows_per_host: None,
            on_return: None,
        }
    }
}
