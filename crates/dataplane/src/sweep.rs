//! Sweeps over the flow tables. What a timer may have run out for is decided by the program `sweep_flows`; here is known
//! only that it cannot have been for flows that were seen lately.

use std::path::Path;

use anabranch_policy::abi::{self, Flow, FlowKey};
use aya::maps::{Array, MapData};
use serde::{Deserialize, Serialize};

use crate::{
    Error,
    object::{self, Object, pinned_array},
    walk::{FlowTables, Walk},
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
    /// Unconfirmed flows that have made room for others of their host, since the tables were made.
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

    /// Unconfirmed flows that made room for others of their host.
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

pub(crate) struct Sweeping {
    program: Walk<abi::Sweep>,
    tables: FlowTables,
    settings: Array<MapData, abi::Settings>,
    occupancy: Occupancy,
}

impl Sweeping {
    pub fn open(object: &mut Object, pins: &Path) -> Result<Self, Error> {
        Ok(Sweeping {
            program: Walk::open(
                object.sweeper("sweep_flows")?,
                pins,
                "sweep_flows",
                "sweeping",
                "visits",
            )?,
            tables: FlowTables::open(pins)?,
            settings: pinned_array(pins, "settings")?,
            occupancy: Occupancy::open(pins)?,
        })
    }

    pub fn sweep(&mut self, now_ns: u64) -> Result<Swept, Error> {
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
        settings.unconfirmed_ns,
    ];
    timers_ns.into_iter().min().unwrap_or(0)
}
