//! Walks over every flow, apart from the gateway whose flows they are: with a million they take some hundred
//! milliseconds, for which who owns the gateway need not wait. A link's flows are ended in the same way ([`Ending`]).

use std::{
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anabranch_core::{ClassSet, Ended, Family, LinkId};

use crate::{
    Error, FlowRow, PrefixRow,
    clock::Clock,
    ending::{Ending, Which},
    flows,
    object::Object,
    prefixes::Prefixes,
    sweep::{Sweeping, Swept},
    walk::FlowTables,
};

/// Walks over the flows of a gateway, one of a kind at a time, for any thread.
pub struct Walker {
    clock: Clock,
    sweeping: Mutex<Sweeping>,
    ending: Mutex<Ending>,
    tables: FlowTables,
    prefixes: Prefixes,
}

impl Walker {
    /// Over the tables pinned in `pins`, with the programs of a loaded object and their clock.
    pub(crate) fn open(object: &mut Object, pins: &Path, clock: Clock) -> Result<Self, Error> {
        Ok(Walker {
            clock,
            sweeping: Mutex::new(Sweeping::open(object, pins)?),
            ending: Mutex::new(Ending::open(object, pins)?),
            tables: FlowTables::open(pins)?,
            prefixes: Prefixes::open(pins)?,
        })
    }

    /// Forgets flows whose timers ran out. To be called about once a second.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn sweep(&self) -> Result<Swept, Error> {
        hold(&self.sweeping).sweep(self.now().as_nanos() as u64)
    }

    /// The time of the programs' clock.
    pub fn now(&self) -> Duration {
        (self.clock)()
    }

    /// Ends flows of one link and family that were opened before a time of [`Walker::now`], and tells the LAN hosts of TCP flows.
    /// The programs' clock moves in ticks: what is opened in the same tick after that time may end, too.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn end_flows(
        &self,
        link: LinkId,
        family: Family,
        classes: ClassSet,
        which: Which,
        opened_before: Duration,
    ) -> Result<Ended, Error> {
        hold(&self.ending).end_flows(link, family, classes, which, opened_before)
    }

    /// Every flow, unconfirmed flows included, by link and address.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn flows(&self) -> Result<Vec<FlowRow>, Error> {
        let mut entries = Vec::new();
        self.tables.for_each(|key, flow| {
            entries.push((key, *flow));
            Ok(())
        })?;
        Ok(flows::rows(entries, self.now()))
    }

    /// What flows have told of each place that they go to, by prefix.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn prefixes(&self) -> Result<Vec<PrefixRow>, Error> {
        self.prefixes.rows(self.now())
    }

    /// Prefixes of which something was told.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn known_prefixes(&self) -> Result<u64, Error> {
        self.prefixes.known()
    }

    /// As many as there is room for.
    pub fn prefixes_max(&self) -> u64 {
        self.prefixes.limit()
    }
}

/// What a walk that panicked left is as good as any.
fn hold<T>(walk: &Mutex<T>) -> MutexGuard<'_, T> {
    walk.lock().unwrap_or_else(PoisonError::into_inner)
}
