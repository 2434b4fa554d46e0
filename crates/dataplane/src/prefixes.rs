//! What flows have told of the way to their destinations, as the programs keep it (`bpf/lib/gateway/paths.h`).

use std::{path::Path, time::Duration};

use anabranch_core::{PathRow, PrefixRow};
use anabranch_policy::paths::{self, Paths, Prefix};
use aya::maps::MapData;

use crate::{
    Error,
    batch::Reader,
    object::{self, pinned},
};

const MAP: &str = "prefixes";

/// The table, read in batches only.
pub struct Prefixes {
    table: MapData,
    limit: u32,
}

impl Prefixes {
    /// That pinned in `pins`.
    pub fn open(pins: &Path) -> Result<Self, Error> {
        Ok(Prefixes {
            table: pinned(pins, MAP)?,
            limit: object::max_entries(pins, MAP)?,
        })
    }

    /// Prefixes that it has room for.
    pub fn limit(&self) -> u64 {
        self.limit.into()
    }

    /// Prefixes of which something is known.
    pub fn known(&self) -> Result<u64, Error> {
        let mut known = 0;
        self.for_each(|_, _| known += 1)?;
        Ok(known)
    }

    /// What is known of each, in their order, at `now`.
    pub fn rows(&self, now: Duration) -> Result<Vec<PrefixRow>, Error> {
        let mut all = Vec::new();
        self.for_each(|prefix, paths| all.push((prefix, paths)))?;
        all.sort_by_key(|(prefix, _)| *prefix);
        // One that was told of again while the table was read may have been met twice.
        all.dedup_by_key(|(prefix, _)| *prefix);
        Ok(all
            .iter()
            .map(|(prefix, paths)| row(*prefix, paths, now))
            .collect())
    }

    fn for_each(&self, mut meet: impl FnMut(Prefix, Paths)) -> Result<(), Error> {
        let mut reader = Reader::new();
        let error = |source| Error::Batch { map: MAP, source };
        while reader.read_on(self.table.fd()).map_err(error)? {
            for (prefix, paths) in reader.entries() {
                meet(prefix, paths);
            }
        }
        Ok(())
    }
}

fn row(prefix: Prefix, paths: &Paths, now: Duration) -> PrefixRow {
    let told = (0..).zip(&paths.path);
    let told = told.filter(|(_, path)| path.learned_ns != 0 || path.asked_ns != 0);
    PrefixRow {
        prefix: prefix.to_string(),
        listed: false,
        paths: told.map(|(link, path)| path_row(link, path, now)).collect(),
    }
}

fn path_row(link: u16, path: &paths::Path, now: Duration) -> PathRow {
    let ago_ms = |at_ns: u64| {
        let ago = now.saturating_sub(Duration::from_nanos(at_ns));
        (at_ns != 0).then_some(ago.as_millis() as u64)
    };
    let learned = ago_ms(path.learned_ns);
    PathRow {
        link,
        response_us: learned.map(|_| path.response_us),
        learned_ms_ago: learned,
        asked_ms_ago: ago_ms(path.asked_ns),
        samples: path.samples,
        failures: path.failures,
    }
}
