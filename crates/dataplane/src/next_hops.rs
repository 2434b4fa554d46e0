//! Routers that prefixes are behind, by number. Many prefixes have the same, so that each has the number alone, and an entry of a
//! full table costs the kernel 64 bytes, not 96.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anabranch_policy::abi::{Addr, NEXT_HOPS_MAX};
use aya::maps::{Array, MapData};

use crate::Error;
use crate::object::pinned_array;

const NAME: &str = "next_hops";
/// Directly connected.
const NONE: u32 = 0;

/// The table of numbers, for the one who writes it.
pub(crate) struct NextHops {
    map: Array<MapData, Addr>,
    numbers: BTreeMap<Addr, u32>,
    /// None of them has a next hop that a route names; the smallest is last.
    free: Vec<u32>,
}

impl NextHops {
    /// With those that an earlier process of the instance has numbered.
    pub fn open(pins: &Path) -> Result<Self, Error> {
        let map: Array<_, Addr> = pinned_array(pins, NAME)?;
        let mut numbers = BTreeMap::from([(Addr::default(), NONE)]);
        let (mut number, end) = (NONE + 1, NEXT_HOPS_MAX as u32);
        while number < end {
            let next_hop = map.get(&number, 0).map_err(Error::map(NAME))?;
            // They are given from the smallest on, and never emptied.
            if next_hop == Addr::default() {
                break;
            }
            numbers.insert(next_hop, number);
            number += 1;
        }
        let free = (number..end).rev().collect();
        Ok(NextHops { map, numbers, free })
    }

    /// The number of a next hop, which may be a new one; none if all are taken.
    pub fn number(&mut self, next_hop: Addr) -> Result<Option<u32>, Error> {
        if let Some(number) = self.numbers.get(&next_hop) {
            return Ok(Some(*number));
        }
        let Some(number) = self.free.pop() else {
            return Ok(None);
        };
        let set = self.map.set(number, next_hop, 0);
        set.map_err(Error::map(NAME))?;
        self.numbers.insert(next_hop, number);
        Ok(Some(number))
    }

    /// Frees the numbers that are not `named`.
    pub fn keep_only(&mut self, named: &BTreeSet<u32>) {
        let free = &mut self.free;
        self.numbers.retain(|_, number| {
            let is_kept = *number == NONE || named.contains(number);
            if !is_kept {
                free.push(*number);
            }
            is_kept
        });
        free.sort_unstable_by(|a, b| b.cmp(a));
    }
}
