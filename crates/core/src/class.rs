//! Classes: traffic that shares a policy and a set of links.

use std::collections::BTreeMap;
use std::fmt;

use crate::algorithm::Algorithm;
use crate::link::{LinkId, LinkSet, OnReturn};
use crate::sessions::Sessions;

/// As many as there may be, the default class included.
pub const CLASSES_MAX: usize = 64;

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
    pub tiers: Vec<LinkSet>,
    /// What becomes of its new flows when no tier has a link left.
    pub without: Without,
    /// What its flows do when a link of an earlier tier returns; none: what each link says for itself.
    pub on_return: Option<OnReturn>,
}

impl ClassSpec {
    /// The default class, and no other.
    pub fn alone(algorithm: Algorithm) -> Classes {
        BTreeMap::from([(ClassId::DEFAULT, algorithm.into())])
    }

    /// Whether a link is in one of its tiers.
    pub fn names(&self, link: LinkId) -> bool {
        self.tiers.is_empty() || self.tiers.iter().any(|tier| tier.contains(link))
    }
}

impl From<Algorithm> for ClassSpec {
    /// Over every link.
    fn from(algorithm: Algorithm) -> Self {
        ClassSpec {
            algorithm,
            sessions: Sessions::default(),
            tiers: Vec::new(),
            without: Without::default(),
            on_return: None,
        }
    }
}

/// What becomes of the new flows of a class that has no link left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Without {
    /// They take the links of the default class; of the default class, any that works.
    #[default]
    Any,
    /// They are dropped.
    Drop,
    /// The kernel's own NAT carries them.
    Kernel,
}
