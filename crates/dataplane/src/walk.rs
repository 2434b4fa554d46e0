//! Walks over every flow, apart from the gateway whose flows they are: with a million they take some hundred
//! milliseconds, for which who owns the gateway need not wait.

use std::{
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anabranch_policy::abi;
use aya::{
    TestRun,
    maps::{Array, Map, MapData},
    programs::{RawTracePoint, RawTracePointRunOptions},
};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::{
    Error, FlowRow, batch, flows,
    object::{self, Object},
};

/// What a sweep did and saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swept {
    /// Flows whose timer ran out.
    pub expired: u64,
    /// Embryos the kernel had to evict since the last sweep.
    pub evicted: u64,
    /// Flows of each link that are not closed.
    pub live: Vec<u64>,
    /// Confirmed flows in the table, closed ones included.
    pub confirmed: u64,
}

/// How full the main table is.
pub struct Occupancy {
    table: Array<MapData, abi::Table>,
    /// Confirmed flows the table holds.
    pub flows_max: u64,
}

/// Above this share of the table, closed flows go at once.
const PRESSURE_PERCENT: u64 = 80;

impl Occupancy {
    /// Of the table pinned in `pins`.
    pub fn open(pins: &Path) -> Result<Self, Error> {
        let info = pinned(pins, "flows")?.info().map_err(Error::map("flows"))?;
        let table = Map::Array(pinned(pins, "table")?);
        Ok(Occupancy {
            table: Array::try_from(table).map_err(Error::map("table"))?,
            flows_max: u64::from(info.max_entries() / object::ENTRIES_PER_FLOW),
        })
    }

    /// Confirmed flows in the table, closed ones that linger included.
    pub fn confirmed(&self) -> Result<u64, Error> {
        let table = self.table.get(&0, 0).map_err(Error::map("table"))?;
        Ok(table.confirmed.saturating_sub(table.forgotten))
    }

    /// The table is so full that closed flows are to go at once.
    pub fn is_pressed(&self) -> Result<bool, Error> {
        Ok(self.confirmed()? * 100 > self.flows_max * PRESSURE_PERCENT)
    }
}

/// Walks over the flows of a gateway, one at a time, for any thread.
pub struct Walker {
    tables: Mutex<Tables>,
}

struct Tables {
    sweep: Walk,
    occupancy: Occupancy,
    /// Keys [`abi::FlowKey`], values [`abi::Flow`]; read in batches only.
    flows: MapData,
    embryos: MapData,
}

impl Walker {
    /// Over the tables pinned in `pins`, with the program of a loaded object.
    pub(crate) fn open(object: &mut Object, pins: &Path) -> Result<Self, Error> {
        let tables = Tables {
            sweep: Walk::open(object, pins, "sweep_flows", "sweep")?,
            occupancy: Occupancy::open(pins)?,
            flows: pinned(pins, "flows")?,
            embryos: pinned(pins, "embryos")?,
        };
        Ok(Walker {
            tables: Mutex::new(tables),
        })
    }

    /// Forgets flows whose timers ran out, inside the kernel. To be called about once a second.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn sweep(&self) -> Result<Swept, Error> {
        self.tables().sweep()
    }

    /// Every flow, embryos included, by link and address.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn flows(&self) -> Result<Vec<FlowRow>, Error> {
        let entries = self.tables().entries()?;
        Ok(flows::rows(entries, monotonic_now()))
    }

    /// What a walk that panicked left is as good as any.
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    fn sweep(&mut self) -> Result<Swept, Error> {
        let arguments = abi::Sweep {
            pressure: u32::from(self.occupancy.is_pressed()?),
            ..Default::default()
        };
        let done = self.sweep.run(arguments)?;
        Ok(Swept {
            expired: done.expired,
            evicted: done.evicted,
            live: done.live.to_vec(),
            confirmed: self.occupancy.confirmed()?,
        })
    }

    fn entries(&self) -> Result<Vec<(abi::FlowKey, abi::Flow)>, Error> {
        let read = |map, data: &MapData| {
            batch::read_all(data.fd()).map_err(|source| Error::Batch { map, source })
        };
        let mut entries = read("flows", &self.flows)?;
        entries.extend(read("embryos", &self.embryos)?);
        Ok(entries)
    }
}

/// A walk inside the kernel: a program, and the map in whose one entry it finds its arguments and leaves what came of it.
pub struct Walk {
    program: RawTracePoint,
    program_name: &'static str,
    map: Array<MapData, abi::Sweep>,
    map_name: &'static str,
}

impl Walk {
    /// A program of a loaded object, with its map pinned in `pins`.
    pub fn open(
        object: &mut Object,
        pins: &Path,
        program_name: &'static str,
        map_name: &'static str,
    ) -> Result<Self, Error> {
        let program = object.sweeper(program_name)?.info();
        let program =
            program.and_then(|info| RawTracePoint::from_program_info(info, program_name.into()));
        let map = Array::try_from(Map::Array(pinned(pins, map_name)?));
        Ok(Walk {
            program: program.map_err(Error::program(program_name))?,
            program_name,
            map: map.map_err(Error::map(map_name))?,
            map_name,
        })
    }

    pub fn run(&mut self, arguments: abi::Sweep) -> Result<abi::Sweep, Error> {
        let set = self.map.set(0, arguments, 0);
        set.map_err(Error::map(self.map_name))?;
        let ran = self.program.test_run(RawTracePointRunOptions::new());
        ran.map_err(Error::program(self.program_name))?;
        let done = self.map.get(&0, 0);
        done.map_err(Error::map(self.map_name))
    }
}

fn pinned(pins: &Path, name: &'static str) -> Result<MapData, Error> {
    MapData::from_pin(pins.join(name)).map_err(Error::map(name))
}

fn monotonic_now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}
