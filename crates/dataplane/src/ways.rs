//! What becomes of packets, by number. Many prefixes have the same next hop, device and link: each has the number alone, so that an
//! entry of a full table costs the kernel 64 bytes, not 96.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use anabranch_policy::abi::{Route, WAYS_MAX};
use aya::maps::{Array, MapData};

use crate::Error;
use crate::object::pinned_array;

const NAME: &str = "ways";
/// The kernel's own routing, whether written or not.
const KERNELS: u32 = 0;

/// The table of numbers, for the one who writes it.
pub(crate) struct Ways {
    map: Array<MapData, Route>,
    numbers: HashMap<Route, u32>,
    /// None of them has a way that a prefix names; the smallest is last.
    free: Vec<u32>,
}

impl Ways {
    /// With those that an earlier process of the instance has numbered.
    pub fn open(pins: &Path) -> Result<Self, Error> {
        let map: Array<_, Route> = pinned_array(pins, NAME)?;
        let mut numbers = HashMap::from([(Route::default(), KERNELS)]);
        let mut free = Vec::new();
        for number in (KERNELS + 1..WAYS_MAX as u32).rev() {
            let way = map.get(&number, 0).map_err(Error::map(NAME))?;
            if way == Route::default() {
                free.push(number);
            } else {
                numbers.insert(way, number);
            }
        }
        Ok(Ways { map, numbers, free })
    }

    /// The number of a way, which may be a new one; none if all are taken.
    pub fn number(&mut self, way: Route) -> Result<Option<u32>, Error> {
        if let Some(number) = self.numbers.get(&way) {
            return Ok(Some(*number));
        }
        let Some(number) = self.free.pop() else {
            return Ok(None);
        };
        self.map.set(number, way, 0).map_err(Error::map(NAME))?;
        self.numbers.insert(way, number);
        Ok(Some(number))
    }

    /// The way of a number that was given.
    pub fn way(&self, number: u32) -> Result<Route, Error> {
        self.map.get(&number, 0).map_err(Error::map(NAME))
    }

    /// Frees the numbers that are not `named`.
    pub fn keep_only(&mut self, named: &BTreeSet<u32>) {
        let free = &mut self.free;
        self.numbers.retain(|_, number| {
            let is_kept = *number == KERNELS || named.contains(number);
            if !is_kept {
                free.push(*number);
            }
            is_kept
        });
        free.sort_unstable_by(|a, b| b.cmp(a));
    }
}
