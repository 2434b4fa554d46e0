//! Forgets connections that are over: a walk over their table, for any thread.

use std::path::Path;
use std::time::Duration;

use anabranch_policy::abi::{self, Connection, FlowKey, VISIT_MAX};
use anabranch_policy::connection::timer;
use aya::maps::MapData;

use super::Protocol;
use super::object::{Object, SWEEPER};
use crate::{Error, batch::Reader, clock::monotonic_now, object::pinned, walk::Walk};

/// What asks `sweep_connections` about those that may have run out.
pub struct Sweeper {
    program: Walk<abi::ServiceSweep>,
    connections: MapData,
}

impl Sweeper {
    pub(super) fn open(object: &mut Object, pins: &Path) -> Result<Self, Error> {
        let (map, visits) = ("service_sweeping", "service_visits");
        Ok(Sweeper {
            program: Walk::open(object.sweeper()?, pins, SWEEPER, map, visits)?,
            connections: pinned(pins, "connections")?,
        })
    }

    /// How many connections were forgotten.
    ///
    /// # Errors
    /// The kernel refuses to read the table or to run the program.
    pub fn sweep(&mut self) -> Result<u64, Error> {
        let settled_ns = monotonic_now().saturating_sub(shortest_timer()).as_nanos() as u64;
        let mut asked = Vec::with_capacity(VISIT_MAX);
        let mut expired = 0;
        let mut reader = Reader::<FlowKey, Connection>::new();
        let failed = |source| Error::Batch {
            map: "connections",
            source,
        };
        while reader.read_on(self.connections.fd()).map_err(failed)? {
            for (key, entry) in reader.entries() {
                if entry.seen_ns < settled_ns {
                    asked.push(key);
                }
                if asked.len() == VISIT_MAX {
                    expired += self.ask(&mut asked)?;
                }
            }
        }
        Ok(expired + self.ask(&mut asked)?)
    }

    fn ask(&mut self, asked: &mut Vec<FlowKey>) -> Result<u64, Error> {
        let arguments = abi::ServiceSweep {
            count: asked.len() as u32,
            ..abi::ServiceSweep::default()
        };
        let done = self.program.run(asked, arguments)?;
        asked.clear();
        Ok(done.expired)
    }
}

fn shortest_timer() -> Duration {
    let states = [0, abi::CONNECTION_CLOSED, abi::CONNECTION_ESTABLISHED];
    Protocol::ALL
        .into_iter()
        .flat_map(|protocol| states.map(|state| timer(protocol.number(), state)))
        .min()
        .unwrap_or_default()
}
