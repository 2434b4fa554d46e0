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
    /// The class of what no rule matches.
    pub const DEFAULT: ClassId = ClassId(0);

    /// For tables with a place for each class.
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

    /// One bit for each, as the programs have it.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether a class is among them.
    pub const fn contains(self, class: ClassId) -> bool {
        (self.0 >> class.0) & 1 == 1
    }

    /// None is.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// In ascending order.
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

/// What the data path has counted of a class since the beginning, all CPUs added up.
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

/// What is configured of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassSpec {
    /// How it chooses.
    pub algorithm: Algorithm,
    /// Which of its connections stick together; by default the algorithm's granularity is all.
    pub sessions: Sessions,
    /// Its new flows take the first that has a link left. None: every link, unmetered before metered.
    pub tiers: Option<Vec<LinkSet>>,
    /// What becomes of its new flows when no tier has a link left.
    pub when_none: WhenNone,
    /// Where most of its bytes go, for measures that weigh both directions; none: as the site's do.
    pub direction: Option<Direction>,
    /// Live flows that one host may have in it; none: as many as in all.
    pub flows_per_host: Option<u32>,
    /// What its flows do when a link of an earlier tier returns; none: what each link says for itself.
    pub on_return: Option<OnReturn>,
}

impl ClassSpec {
    /// The default class, and no other.
    pub fn alone(algorithm: Algorithm) -> Classes {
        BTreeMap::from([(ClassId::DEFAULT, algorithm.into())])
    }

    /// Of a class as people write it, where `default` is the default class and `id` knows the links by name.
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
    /// Over every link.
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
