//! Forgets connections that are over or whose server is dead: a walk over their table, for any thread.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anabranch_policy::abi::{self, Connection, FlowKey, VISIT_MAX};
use anabranch_policy::connection::timer;
use aya::maps::{HashMap, Map, MapData, MapError};

use super::object::{Object, SWEEPER};
use super::reset::ClientResets;
use super::{Protocol, ServerId, ServiceId};
use crate::{Error, batch::Reader, clock::monotonic_now, object::pinned, walk::Walk};

const CONNECTIONS: &str = "connections";

/// What asks `sweep_connections` about those that may have run out.
pub struct Sweeper {
    program: Walk<abi::ServiceSweep>,
    connections: MapData,
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
    /// The keys of clients to be sent a RST if their connection is forgotten, and the servers' entries.
    doomed: Vec<(FlowKey, Connection)>,
    swept: Swept,
}

impl Sweeper {
    pub(super) fn open(object: &mut Object, pins: &Path) -> Result<Self, Error> {
        let (map, visits) = ("service_sweeping", "service_visits");
        let entries = HashMap::try_from(Map::HashMap(pinned(pins, CONNECTIONS)?));
        Ok(Sweeper {
            program: Walk::open(object.sweeper()?, pins, SWEEPER, map, visits)?,
            connections: pinned(pins, CONNECTIONS)?,
            entries: entries.map_err(Error::map(CONNECTIONS))?,
            resets: None,
        })
    }

    /// Forgets connections that have run out, and all of the servers in `dead`, which are installed as such.
    ///
    /// # Errors
    /// The kernel refuses to read the table or to run the program.
    pub fn sweep(&mut self, dead: &BTreeSet<(ServiceId, ServerId)>) -> Result<Swept, Error> {
        let settled_ns = monotonic_now().saturating_sub(shortest_timer()).as_nanos() as u64;
        let mut round = Round::default();
        let mut reader = Reader::<FlowKey, Connection>::new();
        let failed = |source| Error::Batch {
            map: CONNECTIONS,
            source,
        };
        while reader.read_on(self.connections.fd()).map_err(failed)? {
            for (key, entry) in reader.entries() {
                let of = (ServiceId(entry.service), ServerId(entry.server));
                let ends = key.side == abi::SIDE_CLIENT && dead.contains(&of);
                if ends {
                    let server = self.speaking_server(&key, &entry);
                    round.doomed.extend(server.map(|server| (key, server)));
                }
                if ends || entry.seen_ns < settled_ns {
                    round.asked.push(key);
                }
                if round.asked.len() == VISIT_MAX {
                    self.ask(&mut round)?;
                }
            }
        }
        self.ask(&mut round)?;
        Ok(round.swept)
    }

    /// The server's entry of a connection of TCP whose client has got an answer, and whose numbers are therefore known.
    fn speaking_server(&self, key: &FlowKey, entry: &Connection) -> Option<Connection> {
        let is_tcp = key.proto == Protocol::Tcp.number();
        let state = entry.state & (abi::CONNECTION_ANSWERED | abi::CONNECTION_CLOSED);
        if !is_tcp || state != abi::CONNECTION_ANSWERED {
            return None;
        }
        let server = FlowKey {
            local: entry.other_local,
            local_port: entry.other_port,
            side: abi::SIDE_SERVER,
            ..*key
        };
        self.entries.get(&server, 0).ok()
    }

    fn ask(&mut self, round: &mut Round) -> Result<(), Error> {
        let arguments = abi::ServiceSweep {
            count: round.asked.len() as u32,
            ..abi::ServiceSweep::default()
        };
        let done = self.program.run(&round.asked, arguments)?;
        round.asked.clear();
        round.swept.forgotten += done.expired;
        for (key, server) in round.doomed.drain(..) {
            if !matches!(self.entries.get(&key, 0), Err(MapError::KeyNotFound)) {
                continue;
            }
            match self.reset(&key, &server) {
                Ok(()) => round.swept.reset += 1,
                Err(error) => tracing::debug!(%error, client = %key.remote.ip(), "no RST sent"),
            }
        }
        Ok(())
    }

    fn reset(&mut self, client: &FlowKey, server: &Connection) -> Result<(), Error> {
        let resets = match &mut self.resets {
            Some(resets) => resets,
            none => none.insert(ClientResets::open()?),
        };
        resets.send(client, server)
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
