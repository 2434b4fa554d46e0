//! Address families, and what there is of each.

use std::fmt;
use std::net::IpAddr;
use std::ops::{Index, IndexMut};

use crate::abi::{FAMILIES, Family};

impl Family {
    /// Every one, in the order of their numbers.
    pub const ALL: [Family; FAMILIES] = [Family::V4, Family::V6];

    /// For tables with a place for each family.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// As a set of families has it.
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

impl From<IpAddr> for Family {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        })
    }
}

/// One value for each address family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerFamily<T>([T; FAMILIES]);

impl<T> PerFamily<T> {
    /// What `of` says of each.
    pub fn from_fn(of: impl FnMut(Family) -> T) -> Self {
        PerFamily(Family::ALL.map(of))
    }

    /// What `of` makes of each.
    pub fn map<U>(self, of: impl FnMut(T) -> U) -> PerFamily<U> {
        PerFamily(self.0.map(of))
    }

    /// In the order of their numbers.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    /// The same, to change them.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }

    /// Each with its family.
    pub fn iter(&self) -> impl Iterator<Item = (Family, &T)> {
        Family::ALL.into_iter().zip(&self.0)
    }

    /// The same, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Family, &mut T)> {
        Family::ALL.into_iter().zip(&mut self.0)
    }
}

impl<T: Default> PerFamily<T> {
    /// `value` for `family`, and the default for the other.
    pub fn only(family: Family, value: T) -> Self {
        let mut all = PerFamily::default();
        all[family] = value;
        all
    }
}

impl<T> Index<Family> for PerFamily<T> {
    type Output = T;

    fn index(&self, family: Family) -> &T {
        &self.0[family.index()]
    }
}

impl<T> IndexMut<Family> for PerFamily<T> {
    fn index_mut(&mut self, family: Family) -> &mut T {
        &mut self.0[family.index()]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::Ipv6Addr;

    use super::*;
    use crate::abi::{Addr, MAX_CLASSES, MAX_LINKS, choice_place, link_place, traffic_place};

    #[test]
    fn a_mapped_address_is_of_ipv4() {
        let of = |text: &str| Addr::from(text.parse::<Ipv6Addr>().unwrap()).family();
        assert_eq!(of("::ffff:192.0.2.1"), Family::V4);
        assert_eq!(of("2001:db8::1"), Family::V6);
        assert_eq!(of("::192.0.2.1"), Family::V6);
    }

    #[test]
    fn every_link_class_and_family_has_a_place_of_its_own() {
        let mut links = BTreeSet::new();
        let mut choices = BTreeSet::new();
        let mut traffic = BTreeSet::new();
        for family in Family::ALL {
            for class in 0..MAX_CLASSES as u8 {
                choices.insert(choice_place(class, family));
                traffic
                    .extend((0..MAX_LINKS as u16).map(|link| traffic_place(class, link, family)));
            }
            links.extend((0..MAX_LINKS as u16).map(|link| link_place(link, family)));
        }
        let count = |places: &BTreeSet<u32>| (places.len(), places.last().copied());
        let full = |places: usize| (places, Some(places as u32 - 1));
        assert_eq!(count(&links), full(MAX_LINKS * FAMILIES));
        assert_eq!(count(&choices), full(MAX_CLASSES * FAMILIES));
        assert_eq!(count(&traffic), full(MAX_CLASSES * MAX_LINKS * FAMILIES));
    }
}
