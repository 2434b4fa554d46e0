//! Counts the most frequent keys of a stream in bounded memory: the space-saving algorithm (Metwally, Agrawal and El Abbadi 2005).
//!
//! A new key replaces the one with the least count and continues its count. So no count is too low, and each is too high by at most
//! the `excess` that it has taken over. With n places, every key that makes up more than 1/n of the stream is listed.

use std::collections::{BTreeMap, BTreeSet};

/// A bounded list of keys, ordered by how often they are used.
#[derive(Clone, Debug)]
pub struct Popular<K, V> {
    places: usize,
    listed: BTreeMap<K, Place<V>>,
    /// The keys ordered by count; of equal counts the one that was used longest ago first.
    order: BTreeSet<(u64, u64, K)>,
    uses: u64,
}

#[derive(Clone, Copy, Debug)]
struct Place<V> {
    count: u64,
    excess: u64,
    used: u64,
    value: V,
}

/// A listed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<K, V> {
    /// The key.
    pub key: K,
    /// The value of its last use.
    pub value: V,
    /// Number of uses, and the count that it took over.
    pub count: u64,
    /// The count that it took over: by how much `count` may be too high.
    pub excess: u64,
}

impl<K: Ord + Copy, V: Copy> Popular<K, V> {
    /// With this many places, at least one.
    pub fn new(places: usize) -> Self {
        Popular {
            places: places.max(1),
            listed: BTreeMap::new(),
            order: BTreeSet::new(),
            uses: 0,
        }
    }

    /// Number of listed keys.
    pub fn len(&self) -> usize {
        self.listed.len()
    }

    /// Whether no key is listed.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Whether a key is listed.
    pub fn contains(&self, key: &K) -> bool {
        self.listed.contains_key(key)
    }

    /// The entry of a key if it is listed.
    pub fn get(&self, key: &K) -> Option<Listed<K, V>> {
        let place = self.listed.get(key)?;
        Some(Listed {
            key: *key,
            value: place.value,
            count: place.count,
            excess: place.excess,
        })
    }

    /// All entries, the most used first.
    pub fn iter(&self) -> impl Iterator<Item = Listed<K, V>> {
        let keys = self.order.iter().rev();
        keys.filter_map(|(_, _, key)| self.get(key))
    }

    /// Counts a use of a key.
    pub fn note(&mut self, key: K, value: V) {
        self.uses += 1;
        let (count, excess) = match self.listed.get(&key) {
            Some(place) => (place.count, place.excess),
            None if self.listed.len() < self.places => (0, 0),
            None => self.make_room(),
        };
        self.set(
            key,
            Place {
                count: count + 1,
                excess,
                used: self.uses,
                value,
            },
        );
    }

    /// Halves all counts, so that keys that are no longer used make room.
    pub fn fade(&mut self) {
        let listed = std::mem::take(&mut self.listed);
        self.order.clear();
        for (key, place) in listed {
            let place = Place {
                count: place.count.div_ceil(2),
                excess: place.excess / 2,
                ..place
            };
            self.set(key, place);
        }
    }

    /// Removes the key with the least count. Returns the count that its successor starts from, and the same as its excess.
    fn make_room(&mut self) -> (u64, u64) {
        let Some((count, _, least)) = self.order.pop_first() else {
            return (0, 0);
        };
        self.listed.remove(&least);
        (count, count)
    }

    fn set(&mut self, key: K, place: Place<V>) {
        self.order.insert((place.count, place.used, key));
        if let Some(before) = self.listed.insert(key, place) {
            self.order.remove(&(before.count, before.used, key));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Few that are used much, and many that are not.
    fn uses() -> impl Strategy<Value = Vec<u32>> {
        let one = prop_oneof![3 => 0..6u32, 2 => 0..200u32];
        prop::collection::vec(one, 0..600)
    }

    proptest! {
        #[test]
        fn no_count_is_too_low_nor_too_high_by_more_than_it_tells(uses in uses(), places in 1..20usize) {
            let mut popular = Popular::new(places);
            let mut really: BTreeMap<u32, u64> = BTreeMap::new();
            for (at, key) in uses.iter().enumerate() {
                popular.note(*key, at);
                *really.entry(*key).or_default() += 1;
            }
            prop_assert_eq!(popular.len(), really.len().min(places));
            for one in popular.iter() {
                let used = really[&one.key];
                prop_assert!(used <= one.count && one.count - one.excess <= used, "{one:?}, {used}");
                let last = uses.iter().rposition(|key| *key == one.key);
                prop_assert_eq!(Some(one.value), last);
            }
            let all: u64 = popular.iter().map(|one| one.count).sum();
            prop_assert_eq!(all, uses.len() as u64, "each use counts once");
            for (key, used) in really {
                let is_frequent = used * places as u64 > uses.len() as u64;
                prop_assert!(!is_frequent || popular.contains(&key), "{key}: {used}");
            }
        }

        #[test]
        fn the_most_used_comes_first_and_stays_so_when_counts_fade(uses in uses(), places in 1..20usize) {
            let mut popular = Popular::new(places);
            uses.iter().for_each(|key| popular.note(*key, ()));
            for _ in 0..3 {
                let all: Vec<_> = popular.iter().collect();
                prop_assert!(all.is_sorted_by(|one, next| one.count >= next.count));
                prop_assert!(all.iter().all(|one| one.excess <= one.count));
                popular.fade();
                prop_assert_eq!(popular.len(), all.len());
            }
        }
    }

    #[test]
    fn what_is_used_no_more_makes_room() {
        let mut popular = Popular::new(2);
        (0..100).for_each(|_| popular.note("then", ()));
        for _ in 0..20 {
            (0..5).for_each(|_| popular.note("now", ()));
            popular.note("once", ());
            popular.fade();
        }
        let first = popular.iter().next().map(|one| one.key);
        assert_eq!(first, Some("now"));
    }
}
