//! Walks over every flow, apart from the gateway whose flows they are: with a million they take some hundred
//! milliseconds, for which who owns the gateway need not wait.
//!
//! The tables are read a thousand entries at a time, so that other threads have the processor in between, also where the
//! kernel is not preemptible. What a timer may have run out for is decided by the program `sweep_flows`; here is known
//! only that it cannot have been for flows that were seen lately. A link's flows are ended in the same way ([`Ending`]).

use std::{
    path::Path,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anabranch_core::{ClassSet, Ended, Family, LinkId};
use anabranch_policy::abi::{self, Flow, FlowKey};
use aya::{
    Pod, TestRun,
    maps::{Array, MapData},
    programs::{RawTracePoint, RawTracePointRunOptions},
};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::{
    Error, FlowRow, PrefixRow,
    batch::Reader,
    ending::{Ending, Which},
    flows,
    object::{self, Object, pinned, pinned_array},
    prefixes::Prefixes,
};

/// What a sweep did and saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swept {
    /// Entries of the tables.
    pub met: u64,
    /// Flows whose timer ran out.
    pub expired: u64,
    /// Confirmed flows in the table, closed ones included.
    pub confirmed: u64,
    /// Embryos that have made room for others of their host, since the tables were made.
    pub evicted: u64,
}

/// How full the table is.
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
        Ok(Occupancy {
            table: pinned_array(pins, "table")?,
            flows_max: object::flows_max(pins)?.into(),
        })
    }

    /// Confirmed flows in the table, closed ones that linger included.
    pub fn confirmed(&self) -> Result<u64, Error> {
        let table = self.counts()?;
        Ok(table.confirmed.saturating_sub(table.forgotten))
    }

    /// Embryos that made room for others of their host.
    pub fn evicted(&self) -> Result<u64, Error> {
        Ok(self.counts()?.evicted)
    }

    fn counts(&self) -> Result<abi::Table, Error> {
        self.table.get(&0, 0).map_err(Error::map("table"))
    }

    /// The table is so full that closed flows are to go at once.
    pub fn is_pressed(&self) -> Result<bool, Error> {
        Ok(self.confirmed()? * 100 > self.flows_max * PRESSURE_PERCENT)
    }
}

/// What time it is, since the machine was started.
pub type Clock = Box<dyn Fn() -> Duration + Send + Sync>;

/// That of programs which ask the kernel: of no time namespace (time_namespaces(7)).
pub fn monotonic_now() -> Duration {
    static OFFSET_NS: LazyLock<i128> = LazyLock::new(|| {
        let offsets = std::fs::read_to_string("/proc/self/timens_offsets");
        offsets.map_or(0, |offsets| monotonic_offset_ns(&offsets))
    });
    let here = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    let kernels = here.as_nanos() as i128 - *OFFSET_NS;
    Duration::from_nanos(kernels.clamp(0, i128::from(u64::MAX)) as u64)
}

/// What a time namespace adds to the kernel's clock. A kernel without such has no file of offsets.
fn monotonic_offset_ns(offsets: &str) -> i128 {
    let lines = offsets.lines().map(str::split_whitespace);
    let mut monotonic = lines.filter_map(|mut words| match words.next() {
        Some("monotonic") => {
            let seconds: i128 = words.next()?.parse().ok()?;
            let ns: i128 = words.next()?.parse().ok()?;
            Some(seconds * 1_000_000_000 + ns)
        }
        _ => None,
    });
    monotonic.next().unwrap_or(0)
}

/// Walks over the flows of a gateway, one of a kind at a time, for any thread.
pub struct Walker {
    clock: Clock,
    sweeping: Mutex<Sweeping>,
    ending: Mutex<Ending>,
    tables: FlowTables,
    prefixes: Prefixes,
}

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

struct Sweeping {
    program: Walk<abi::Sweep>,
    tables: FlowTables,
    settings: Array<MapData, abi::Settings>,
    occupancy: Occupancy,
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

    /// Every flow, embryos included, by link and address.
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

impl Sweeping {
    fn open(object: &mut Object, pins: &Path) -> Result<Self, Error> {
        Ok(Sweeping {
            program: Walk::open(object, pins, "sweep_flows", "sweeping", "visits")?,
            tables: FlowTables::open(pins)?,
            settings: pinned_array(pins, "settings")?,
            occupancy: Occupancy::open(pins)?,
        })
    }

    fn sweep(&mut self, now_ns: u64) -> Result<Swept, Error> {
        let mut round = self.begin(now_ns)?;
        let program = &mut self.program;
        let mut met = 0;
        self.tables.for_each(|key, flow| {
            met += 1;
            round.meet(key, flow);
            if round.asked.len() < abi::VISIT_MAX {
                return Ok(());
            }
            round.ask(program)
        })?;
        round.arguments.is_last = 1;
        round.ask(program)?;
        Ok(Swept {
            met,
            expired: round.arguments.expired,
            confirmed: self.occupancy.confirmed()?,
            evicted: self.occupancy.evicted()?,
        })
    }

    fn begin(&self, now_ns: u64) -> Result<Round, Error> {
        let settings = self.settings.get(&0, 0).map_err(Error::map("settings"))?;
        let is_pressed = self.occupancy.is_pressed()?;
        let timer_ns = shortest_timer_ns(&settings);
        let closed_timer_ns = if is_pressed {
            timer_ns.min(abi::PRESSED_CLOSED_NS)
        } else {
            timer_ns
        };
        Ok(Round {
            arguments: abi::Sweep {
                pressure: is_pressed.into(),
                ..Default::default()
            },
            settled_ns: now_ns.saturating_sub(timer_ns),
            closed_settled_ns: now_ns.saturating_sub(closed_timer_ns),
            asked: Vec::with_capacity(abi::VISIT_MAX),
        })
    }
}

/// A sweep under way.
struct Round {
    arguments: abi::Sweep,
    /// For what was seen since, no timer can have run out.
    settled_ns: u64,
    /// The same of closed flows.
    closed_settled_ns: u64,
    asked: Vec<FlowKey>,
}

impl Round {
    /// Lets the program decide what has been gathered.
    fn ask(&mut self, program: &mut Walk<abi::Sweep>) -> Result<(), Error> {
        self.arguments.count = self.asked.len() as u32;
        self.arguments = program.run(&self.asked, self.arguments)?;
        self.asked.clear();
        Ok(())
    }

    fn meet(&mut self, key: FlowKey, flow: &Flow) {
        let is_closed = flow.state & abi::STATE_CLOSED != 0;
        let settled_ns = if is_closed {
            self.closed_settled_ns
        } else {
            self.settled_ns
        };
        if flow.seen_ns < settled_ns {
            self.asked.push(key);
        }
    }
}

fn shortest_timer_ns(settings: &abi::Settings) -> u64 {
    let timers_ns = [
        settings.tcp_established_ns,
        settings.tcp_transitory_ns,
        settings.udp_ns,
        settings.icmp_ns,
        settings.embryo_ns,
    ];
    timers_ns.into_iter().min().unwrap_or(0)
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
    /// A program of a loaded object, with its maps pinned in `pins`.
    pub fn open(
        object: &mut Object,
        pins: &Path,
        program_name: &'static str,
        map_name: &'static str,
        visits_name: &'static str,
    ) -> Result<Self, Error> {
        Ok(Walk {
            program: object::own_sweeper(object, pins, program_name)?,
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
        let ran = self.program.test_run(RawTracePointRunOptions::new());
        ran.map_err(Error::program(self.program_name))?;
        self.arguments()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_namespace_tells_how_far_its_clock_is_from_the_kernels() {
        let offset = monotonic_offset_ns;
        assert_eq!(offset("monotonic 0 0\nboottime 7 0\n"), 0);
        assert_eq!(
            offset("monotonic           -86400         5\nboottime 0 0\n"),
            -86_399_999_999_995
        );
        assert_eq!(offset(""), 0);
    }
}
