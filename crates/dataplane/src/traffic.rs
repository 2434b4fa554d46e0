//! What links have carried, read in one system call, as it is twenty times a second.

use std::io;

use anabranch_core::{Family, LinkId};
use anabranch_policy::abi;
use aya::maps::{IterableMap, MapData, PerCpuArray};
use aya::util::nr_cpus;

use crate::{
    Error,
    batch::{Batch, Cursor, lookup},
};

/// Of every class, link and family.
pub(crate) struct Carried {
    /// As many as there are CPUs for each [`abi::traffic_place`].
    counters: Vec<abi::Traffic>,
    cpus: usize,
}

impl Carried {
    /// Of the classes below `classes`.
    pub fn read(map: &PerCpuArray<MapData, abi::Traffic>, classes: u8) -> Result<Self, Error> {
        let failed = |source| Error::Batch {
            map: "traffic",
            source,
        };
        let cpus = nr_cpus().map_err(|(_, error)| failed(error))?;
        let places = abi::traffic_place(classes, 0, Family::ALL[0]) as usize;
        let mut carried = Carried {
            counters: vec![abi::Traffic::default(); places * cpus],
            cpus,
        };
        let mut keys = vec![0u32; places];
        let to = (
            keys.as_mut_ptr().cast(),
            carried.counters.as_mut_ptr().cast(),
        );
        // SAFETY: room for so many places, a counter for each CPU, whose size is a multiple of 8 as the kernel's is.
        let batch = unsafe { lookup(map.map().fd(), &mut Cursor::default(), to, places) };
        match batch.map_err(failed)? {
            // An array has every place.
            Batch::More(count) | Batch::Last(count) if count == places => Ok(carried),
            _ => Err(failed(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// All CPUs added up.
    pub fn of(&self, class: u8, link: LinkId, family: Family) -> abi::Traffic {
        let first = abi::traffic_place(class, link.0, family) as usize * self.cpus;
        let per_cpu = &self.counters[first..first + self.cpus];
        per_cpu.iter().copied().sum()
    }
}
