//! Why packets left a program.

use anabranch_core::ReasonCount;
use anabranch_policy::{Fate, Reason};
use aya::maps::{MapData, PerCpuArray};

use crate::Error;

/// The counters of `known`, all CPUs added up.
pub fn read(
    counters: &PerCpuArray<MapData, u64>,
    known: &[Reason],
) -> Result<Vec<ReasonCount>, Error> {
    (0u32..)
        .zip(known)
        .map(|(index, reason)| {
            let per_cpu = counters.get(&index, 0).map_err(Error::map("reasons"))?;
            Ok(ReasonCount {
                name: reason.name.to_lowercase().replace('_', "-"),
                fate: fate_name(reason.fate).to_owned(),
                words: reason.words.to_owned(),
                packets: per_cpu.iter().sum(),
            })
        })
        .collect()
}

fn fate_name(fate: Fate) -> &'static str {
    match fate {
        Fate::Sent => "sent",
        Fate::Passed => "passed",
        Fate::Dropped => "dropped",
        Fate::Refused => "refused",
    }
}
