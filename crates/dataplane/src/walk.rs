//! What walks over every flow are made of: the tables, read in batches, and a program that is asked about some of their flows.
//!
//! The tables are read a thousand entries at a time, so that other threads have the processor in between, also where the
//! kernel is not preemptible.

use std::path::Path;

use anabranch_policy::abi::{self, Flow, FlowKey};
use aya::{
    Pod, TestRun,
    maps::{Array, MapData},
    programs::{RawTracePoint, RawTracePointRunOptions},
};

use crate::{
    Error,
    batch::Reader,
    despite_signals,
    object::{self, pinned, pinned_array},
};

/// Every flow, two entries each, and what mappings may hear besides. Keys [`FlowKey`], values [`Flow`]; read in batches only.
pub struct FlowTables {
    flows: MapData,
    permissions: MapData,
}

impl FlowTables {
    /// Those pinned in `pins`.
    pub fn open(pins: &Path) -> Result<Self, Error> {
        Ok(FlowTables {
            flows: pinned(pins, "flows")?,
            permissions: pinned(pins, "permissions")?,
        })
    }

    /// Meets every entry.
    pub fn for_each(
        &self,
        mut meet: impl FnMut(FlowKey, &Flow) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let tables = [("flows", &self.flows), ("permissions", &self.permissions)];
        for (map, data) in tables {
            let mut reader = Reader::new();
            let error = |source| Error::Batch { map, source };
            while reader.read_on(data.fd()).map_err(error)? {
                for (key, flow) in reader.entries() {
                    meet(key, &flow)?;
                }
            }
        }
        Ok(())
    }
}

/// A program of the kernel's for many flows, the map in whose one entry it finds its arguments and leaves what came of
/// it, and the map of the flows it is asked about.
pub struct Walk<A: Pod> {
    program: RawTracePoint,
    program_name: &'static str,
    map: Array<MapData, A>,
    map_name: &'static str,
    visits: Array<MapData, [FlowKey; abi::VISIT_MAX]>,
    visits_name: &'static str,
}

impl<A: Pod> Walk<A> {
    /// A loaded program, with its maps pinned in `pins`.
    pub fn open(
        loaded: &mut RawTracePoint,
        pins: &Path,
        program_name: &'static str,
        map_name: &'static str,
        visits_name: &'static str,
    ) -> Result<Self, Error> {
        Ok(Walk {
            program: object::own_sweeper(loaded, pins, program_name)?,
            program_name,
            map: pinned_array(pins, map_name)?,
            map_name,
            visits: pinned_array(pins, visits_name)?,
            visits_name,
        })
    }

    /// What the program was told last, and what came of it.
    pub fn arguments(&self) -> Result<A, Error> {
        self.map.get(&0, 0).map_err(Error::map(self.map_name))
    }

    /// Tells it without running it.
    pub fn tell(&mut self, arguments: A) -> Result<(), Error> {
        let set = self.map.set(0, arguments, 0);
        set.map_err(Error::map(self.map_name))
    }

    /// At most [`abi::VISIT_MAX`] keys, whose number the arguments tell.
    pub fn run(&mut self, keys: &[FlowKey], arguments: A) -> Result<A, Error> {
        let mut visits = [FlowKey::default(); abi::VISIT_MAX];
        visits[..keys.len()].copy_from_slice(keys);
        let set = self.visits.set(0, visits, 0);
        set.map_err(Error::map(self.visits_name))?;
        self.tell(arguments)?;
        let ran = despite_signals(|| self.program.test_run(RawTracePointRunOptions::new()));
        ran.map_err(Error::program(self.program_name))?;
        self.arguments()
    }
}
