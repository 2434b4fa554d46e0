//! Numbers the links for the data path, and stores the operator's orders.
//!
//! Flow entries contain the number of their link, and outlive the daemon and its configuration. So a name keeps its number over
//! reloads and restarts, and of free numbers the one that was freed last is reused last.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use anabranch_core::Family;
use anabranch_core::checks::{Health, Test};
use anabranch_policy::abi::MAX_LINKS;

use crate::plane::LinkId;
use anabranch_api::LinkAction;

/// The numbers of links in the data path, by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, u16>")]
pub struct Slots(BTreeMap<String, u16>);

impl TryFrom<BTreeMap<String, u16>> for Slots {
    type Error = &'static str;

    fn try_from(numbers: BTreeMap<String, u16>) -> Result<Self, Self::Error> {
        let distinct: BTreeSet<u16> = numbers.values().copied().collect();
        let is_one_each = distinct.len() == numbers.len();
        let is_there = distinct
            .last()
            .is_none_or(|last| usize::from(*last) < MAX_LINKS);
        match is_one_each && is_there {
            true => Ok(Self(numbers)),
            false => Err("links have numbers of others, or that no link has"),
        }
    }
}

impl Slots {
    /// Assigns numbers to `names`, at most [`MAX_LINKS`]. Known names keep theirs.
    pub fn assign<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) -> Self {
        let kept = names
            .clone()
            .filter_map(|name| Some((name.to_owned(), *self.0.get(name)?)));
        let mut next = Self(kept.collect());
        for name in names {
            if !next.0.contains_key(name) {
                let number = next.free(self);
                next.0.insert(name.to_owned(), number);
            }
        }
        next
    }

    /// The number of the link of this name.
    pub fn id(&self, name: &str) -> Option<LinkId> {
        self.0.get(name).map(|number| LinkId(*number))
    }

    /// The link that has this number.
    pub fn name(&self, id: LinkId) -> Option<&str> {
        self.0
            .iter()
            .find(|(_, number)| **number == id.0)
            .map(|(name, _)| name.as_str())
    }

    /// All names and numbers, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, LinkId)> {
        self.0
            .iter()
            .map(|(name, number)| (name.as_str(), LinkId(*number)))
    }

    fn free(&self, former: &Self) -> u16 {
        let taken = |slots: &Self, number: u16| slots.0.values().any(|other| *other == number);
        (0..MAX_LINKS as u16)
            .filter(|number| !taken(self, *number))
            .min_by_key(|number| (taken(former, *number), *number))
            .expect("the configuration allows no more links than there are numbers")
    }
}

/// The operator's orders, by link name; a link in use has no entry. They outlive the daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders(BTreeMap<String, LinkAction>);

impl Orders {
    /// Stores an order. The order to use a link again removes its entry.
    pub fn set(&mut self, name: &str, action: LinkAction) {
        match action {
            LinkAction::Up => self.0.remove(name),
            LinkAction::Drain | LinkAction::Down => self.0.insert(name.to_owned(), action),
        };
    }

    /// Drops the orders for links that are not configured.
    pub fn keep(&mut self, slots: &Slots) {
        self.0.retain(|name, _| slots.id(name).is_some());
    }

    /// All orders, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, LinkAction)> {
        self.0.iter().map(|(name, action)| (name.as_str(), *action))
    }

    /// Whether there is no order.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Results of checks when they were saved, by link and family, and by test. They survive a crash.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tested(BTreeMap<String, BTreeMap<String, Health>>);

impl Tested {
    /// The result of one test.
    pub fn health(&self, link: &str, family: Family, test: &Test) -> Option<Health> {
        let of_link = self.0.get(&subject(link, family))?;
        of_link.get(&test.to_string()).copied()
    }
}

impl<'a> FromIterator<(&'a str, Family, &'a Test, Health)> for Tested {
    fn from_iter<I: IntoIterator<Item = (&'a str, Family, &'a Test, Health)>>(known: I) -> Self {
        let mut tested = Self::default();
        for (link, family, test, health) in known {
            if health != Health::Unknown {
                let of_link = tested.0.entry(subject(link, family)).or_default();
                of_link.insert(test.to_string(), health);
            }
        }
        tested
    }
}

fn subject(link: &str, family: Family) -> String {
    format!("{link} {family}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assign(slots: &Slots, names: &[&str]) -> Vec<u16> {
        let next = slots.assign(names.iter().copied());
        names.iter().map(|name| next.id(name).unwrap().0).collect()
    }

    #[test]
    fn a_name_keeps_its_number_whatever_stands_before_it() {
        let slots = Slots::default().assign(["fiber", "lte"].into_iter());
        assert_eq!(assign(&slots, &["cable", "lte", "fiber"]), [2, 1, 0]);
    }

    #[test]
    fn a_freed_number_is_given_away_last() {
        let slots = Slots::default().assign(["fiber", "lte"].into_iter());
        assert_eq!(assign(&slots, &["lte", "cable"]), [1, 2]);
        let names: Vec<String> = (0..MAX_LINKS).map(|i| format!("l{i}")).collect();
        let full = slots.assign(names.iter().map(String::as_str));
        assert_eq!(full.iter().count(), MAX_LINKS);
    }
}
