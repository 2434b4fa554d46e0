//! What all rigs of programs have in common that are told the time and every random number.

use std::path::Path;

use anabranch_dataplane::raw::RawMap;
use anyhow::Result;
use aya::Pod;

/// As in `bpf/lib/packet/ambient.h`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Ambient {
    /// What the clock says.
    pub now_ns: u64,
    /// Every random number.
    pub random: u64,
}

// SAFETY: two numbers of 64 bits, without padding.
unsafe impl Pod for Ambient {}

/// Counters of reasons for which packets left.
pub struct Counters {
    map: RawMap,
    known: Vec<u64>,
}

impl Counters {
    /// Those of a pinned map with so many, which begin at zero.
    ///
    /// # Errors
    /// There is no such map.
    pub fn open(path: &Path, number: usize) -> Result<Self> {
        Ok(Self {
            map: RawMap::open(path)?,
            known: vec![0; number],
        })
    }

    /// The reasons that were counted since this was last asked, by their numbers, and how often.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn rose(&mut self) -> Result<Vec<(usize, u64)>> {
        let (known, mut rose) = (&mut self.known, Vec::new());
        self.map.for_each(|key, value| {
            let number = u32::from_ne_bytes(key.try_into().expect("a number")) as usize;
            let cpus = value.chunks_exact(8);
            let cpus = cpus.map(|cpu| u64::from_ne_bytes(cpu.try_into().expect("8 bytes")));
            let now = cpus.sum();
            let before = std::mem::replace(&mut known[number], now);
            if now != before {
                rose.push((number, now.wrapping_sub(before)));
            }
        })?;
        Ok(rose)
    }
}
