//! Forgets connections that are over or whose server is dead: a walk over their table, for any thread.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anabranch_policy::abi::{self, Connection, Direct, FlowKey, VISIT_MAX};
use anabranch_policy::connection::timer;
use aya::Pod;
use aya::maps::{HashMap, Map, MapData, MapError};

use super::object::{Object, SWEEPER, TABLES};
use super::reset::ClientResets;
use super::{Protocol, ServerId, ServiceId};
use crate::{Error, batch::Reader, clock::monotonic_now, object::pinned, walk::Walk};

const CONNECTIONS: &str = TABLES[0];

/// What asks `sweep_connections` about those that may have run out.
pub struct Sweeper {
    program: Walk<abi::ServiceSweep>,
    tables: [MapData; 2],
    entries: HashMap<MapData, FlowKey, Connection>,
    resets: Option<ClientResets>,
}

/// What a sweep has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Connections forgotten.
    pub forgotten: u64,
    /// Those of them whose clients were sent a RST.
    pub reset: u64,
}

/// A sweep under way.
#[derive(Default)]
struct Round {
    asked: Vec<FlowKey>,
    /// Those whose clients are sent a RST if they are forgotten.
    doomed: Vec<(FlowKey, Connection)>,
    swept: Swept,
}

/// Of an entry what its sweep depends on.
trait Entry: Pod + Default {
    fn place(&self) -> (ServiceId, ServerId);
    fn seen_ns(&self) -> u64;
    /// Itself if its client has to hear of the death of its server: the client has got an answer, so the numbers are known.
    fn speaking(&self) -> Option<Connection>;
}

impl Entry for Connection {
    fn place(&self) -> (ServiceId, ServerId) {
        (ServiceId(self.service), ServerId(self.server))
    }

    fn seen_ns(&self) -> u64 {
        self.client_seen_ns.max(self.server_seen_ns)
    }

    fn speaking(&self) -> Option<Connection> {
        let state = self.state & (abi::CONNECTION_ANSWERED | abi::CONNECTION_CLOSED);
        (state == abi::CONNECTION_ANSWERED).then_some(*self)
    }
}

impl Entry for Direct {
    fn place(&self) -> (ServiceId, ServerId) {
        let place = self.state >> abi::DIRECT_SERVER_SHIFT;
        let of = |number: u32| number as u16;
        let targets = abi::MAX_TARGETS as u32;
        (
            ServiceId(of(place / targets)),
            ServerId(of(place % targets)),
        )
    }

    fn seen_ns(&self) -> u64 {
        self.seen_ns
    }

    fn speaking(&self) -> Option<Connection> {
        None
    }
}

impl Sweeper {
    pub(super) fn open(object: &mut Object, pins: &Path) -> Result<Self, Error> {
        let (map, visits) = ("service_sweeping", "service_visits");
        let entries = HashMap::try_from(Map::HashMap(pinned(pins, CONNECTIONS)?));
        Ok(Sweeper {
            program: Walk::open(object.sweeper()?, pins, SWEEPER, map, visits)?,
            tables: [pinned(pins, TABLES[0])?, pinned(pins, TABLES[1])?],
            entries: entries.map_err(Error::map(CONNECTIONS))?,
            resets: None,
        })
    }

    /// Forgets connections that have run out, and all of the servers in `dead`, which are installed as such.
    ///
    /// # Errors
    /// The kernel refuses to read the table or to run the program.
    pub fn sweep(&mut self, dead: &BTreeSet<(ServiceId, ServerId)>) -> Result<Swept, Error> {
        let mut round = Round::default();
        self.sweep_table::<Connection>(0, dead, &mut round)?;
        self.sweep_table::<Direct>(1, dead, &mut round)?;
        Ok(round.swept)
    }

    fn sweep_table<E: Entry>(
        &mut self,
        table: usize,
        dead: &BTreeSet<(ServiceId, ServerId)>,
        round: &mut Round,
    ) -> Result<(), Error> {
        let settled_ns = monotonic_now().saturating_sub(shortest_timer()).as_nanos() as u64;
        let mut reader = Reader::<FlowKey, E>::new();
        let failed = |source| Error::Batch {
            map: TABLES[table],
            source,
        };
        while reader.read_on(self.tables[table].fd()).map_err(failed)? {
            for (key, entry) in reader.entries() {
                let ends = dead.contains(&entry.place());
                if ends && key.proto == Protocol::Tcp.number() {
                    let speaking = entry.speaking();
                    round.doomed.extend(speaking.map(|entry| (key, entry)));
                }
                if ends || entry.seen_ns() < settled_ns {
                    round.asked.push(key);
                }
                if round.asked.len() == VISIT_MAX {
                    self.ask(round)?;
                }
            }
        }
        self.ask(round)
    }

    fn ask(&mut self, round: &mut Round) -> Result<(), Error> {
        let arguments = abi::ServiceSweep {
            count: round.asked.len() as u32,
            ..abi::ServiceSweep::default()
        };
        let done = self.program.run(&round.asked, arguments)?;
        round.asked.clear();
        round.swept.forgotten += done.expired;
        for (key, entry) in round.doomed.drain(..) {
            if !matches!(self.entries.get(&key, 0), Err(MapError::KeyNotFound)) {
                continue;
            }
            match self.reset(&key, &entry) {
                Ok(()) => round.swept.reset += 1,
                Err(error) => tracing::debug!(%error, client = %key.remote.ip(), "no RST sent"),
            }
        }
        Ok(())
    }

    fn reset(&mut self, key: &FlowKey, entry: &Connection) -> Result<(), Error> {
        let resets = match &mut self.resets {
            Some(resets) => resets,
            none => none.insert(ClientResets::open()?),
        };
        resets.send(key, entry)
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
