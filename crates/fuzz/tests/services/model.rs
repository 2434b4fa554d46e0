//! What the programs of a service are to do, around the decisions of `bpf/policy`.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use anabranch_core::Family;
use anabranch_policy::abi::{
    self, CONNECTION_ANSWERED as ANSWERED, CONNECTION_CLOSED as CLOSED, Choice, Consistent,
    FlowKey, Gauges, ServiceGauges, TCP_ACK, TCP_FIN, TCP_RST, TCP_SYN, Unknown,
};
use anabranch_policy::connection::{self, Sender};
use anabranch_policy::keyed::{client_hash, row_of};
use anabranch_policy::{Dispatch, Request, Why, choose};

use crate::loaded::{ENTRIES, RING, SECRET, flow_key};

/// A segment, or a datagram with no flags.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    pub is_tcp: bool,
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub flags: u8,
    pub seq: u32,
    /// Behind what it occupies.
    pub end: u32,
    pub ack: u32,
}

impl Packet {
    fn is_opening(&self) -> bool {
        let of_handshake = TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN;
        !self.is_tcp || self.flags & of_handshake == TCP_SYN
    }
}

/// Why a packet left, and where from and to, if it was sent on.
pub type Outcome = (&'static str, Option<(SocketAddr, SocketAddr)>);

/// What the programs remember of a connection: its state, its server, and when it saw the last packet.
pub type Entry = (u32, u16, u64);

/// The ends of a connection as its client sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub is_tcp: bool,
    pub client: SocketAddr,
    pub service: SocketAddr,
}

impl Key {
    fn family(&self) -> Family {
        self.client.ip().into()
    }

    /// The same with the server's endpoint.
    fn of_server(&self, at: SocketAddr) -> Key {
        Key {
            service: at,
            ..*self
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Connection {
    turn: usize,
    seen_ns: u64,
    server: u16,
    at: SocketAddr,
    /// Its server answers itself.
    is_direct: bool,
    state: u32,
    /// The client's next number, by what the server has acknowledged.
    acked: u32,
    /// The server's next number.
    reached: u32,
    /// The same by what the client of a direct connection has sent.
    end: u32,
}

/// A server; port 0: the one that the client called.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    pub at: SocketAddr,
    pub site: crate::transcript::Site,
}

impl Server {
    fn endpoint(&self, key: &Key) -> SocketAddr {
        match self.at.port() {
            0 => SocketAddr::new(self.at.ip(), key.service.port()),
            _ => self.at,
        }
    }
}

/// How servers are chosen for clients of a family.
#[derive(Clone)]
pub struct Chosen {
    pub choice: Choice,
    pub table: Box<Consistent>,
    turns: u32,
    /// Where hashes lead, and led before.
    pub rows: Option<[Box<Consistent>; 2]>,
}

impl Chosen {
    pub fn new(choice: Choice, table: Box<Consistent>) -> Self {
        Chosen {
            choice,
            table,
            turns: 0,
            rows: None,
        }
    }

    fn unserved(&self, full: u64) -> &'static str {
        let takes = self.choice.usable.word[0] | self.choice.spare[0].word[0];
        let names = match full & takes {
            0 => ["NO_SERVER_REFUSED", "NO_SERVER_DROPPED", "NO_SERVER"],
            _ => ["FULL_REFUSED", "FULL_DROPPED", "FULL"],
        };
        names[self.choice.without as usize]
    }
}

pub struct Model {
    pub now_ns: u64,
    pub random: u32,
    pub by_family: [Chosen; 2],
    /// By place.
    pub servers: Vec<Server>,
    pub unknown: Unknown,
    pub insert_limit: u32,
    pub former_until_ns: u64,
    bucket_ns: u64,
    pub gauges: Box<ServiceGauges>,
    connections: BTreeMap<Key, Connection>,
    /// The client's key by the server's.
    by_server: BTreeMap<Key, Key>,
    ring: [Option<(Key, usize)>; RING],
    turns: usize,
}

impl Model {
    pub fn new(now_ns: u64, by_family: [Chosen; 2], servers: Vec<Server>) -> Self {
        Model {
            now_ns,
            random: 0,
            by_family,
            servers,
            unknown: Unknown::Host,
            insert_limit: 0,
            former_until_ns: 0,
            bucket_ns: 0,
            gauges: Box::default(),
            connections: BTreeMap::new(),
            by_server: BTreeMap::new(),
            ring: [None; RING],
            turns: 0,
        }
    }

    /// The endpoint of a connection's server.
    pub fn server_of(&self, key: &Key) -> Option<SocketAddr> {
        self.connections.get(key).map(|known| known.at)
    }

    /// The servers with as many connections as they may have, as bits.
    pub fn full(&self) -> u64 {
        let places = (0..).zip(&self.servers).zip(&self.gauges.of.target);
        let full = places.filter(|((_, server), gauge)| {
            let limit = u64::from(server.site.limit);
            limit != 0 && gauge.active() >= limit
        });
        full.fold(0, |bits, ((place, _), _)| bits | 1u64 << place)
    }

    pub fn entries(&self) -> HashMap<FlowKey, Entry> {
        let entry = |(key, one): (&Key, &Connection)| {
            let side = match one.is_direct {
                true => abi::SIDE_DIRECT,
                false => abi::SIDE_NAT,
            };
            (flow_key(key, side), (one.state, one.server, one.seen_ns))
        };
        self.connections.iter().map(entry).collect()
    }

    fn of(&self, key: &Key) -> &Chosen {
        &self.by_family[key.family().index()]
    }

    // ---- how connections end

    fn count_closed(&mut self, key: &Key, server: u16) {
        self.gauges.of.target[usize::from(server)].closed += 1;
        self.gauges.all[key.family().index()].closed += 1;
    }

    fn forget(&mut self, key: &Key) {
        let Some(old) = self.connections.remove(key) else {
            return;
        };
        if !old.is_direct {
            self.by_server.remove(&key.of_server(old.at));
        }
        if old.state & CLOSED == 0 {
            self.count_closed(key, old.server);
        }
    }

    /// The next turn of those that may have to make room.
    fn next_turn(&mut self) -> usize {
        self.turns += 1;
        self.turns - 1
    }

    /// The connection has the place of its turn.
    fn enter_ring(&mut self, key: &Key, turn: usize) {
        if let Some((old, turn)) = self.ring[turn % RING].replace((*key, turn)) {
            let known = self.connections.get(&old);
            let is_it =
                |known: &&Connection| known.turn == turn && connection::is_passing(known.state);
            if known.filter(is_it).is_some() {
                self.forget(&old);
            }
        }
    }

    fn learn(&mut self, key: &Key, after: impl Fn(u32) -> u32) {
        let Some(known) = self.connections.get_mut(key) else {
            return;
        };
        let (before, server, turn) = (known.state, known.server, known.turn);
        known.state = after(before);
        if known.state & !before & CLOSED == 0 {
            return;
        }
        self.count_closed(key, server);
        // The place at which it was opened is kept for long.
        if self.turns - turn < RING / 2 {
            return;
        }
        let turn = self.next_turn();
        if let Some(known) = self.connections.get_mut(key) {
            known.turn = turn;
        }
        self.enter_ring(key, turn);
    }

    pub fn sweep(&mut self) {
        let over: Vec<_> = (self.connections.iter())
            .filter(|(key, one)| self.is_over(key, one))
            .map(|(key, _)| *key)
            .collect();
        over.iter().for_each(|key| self.forget(key));
    }

    fn is_over(&self, key: &Key, one: &Connection) -> bool {
        let protocol = if key.is_tcp { 6 } else { 17 };
        let timer = connection::timer(protocol, one.state).as_nanos() as u64;
        one.seen_ns + timer < self.now_ns || self.servers[usize::from(one.server)].site.is_dead
    }

    // ---- how they begin

    fn choose(&mut self, key: &Key) -> Result<u16, &'static str> {
        let (full, family) = (self.full(), key.family().index());
        let chosen = &mut self.by_family[family];
        let mut draw = self.random;
        if chosen.choice.takes_turns() {
            draw = chosen.turns;
            chosen.turns += 1;
        }
        let request = Request {
            full,
            hash: client_hash(&chosen.choice, &SECRET, key.client, key.service),
            draw,
            open: self.gauges.all[family].active() as u32,
            ..Request::default()
        };
        let decision = choose(&chosen.choice, &self.gauges.of, &chosen.table, &request);
        let target = decision.target.filter(|_| decision.why != Why::Retried);
        target.ok_or_else(|| chosen.unserved(full))
    }

    /// Where the hash of a connection leads.
    fn by_hash(&self, key: &Key) -> Result<u16, &'static str> {
        let of = self.of(key);
        let [rows, _] = of.rows.as_ref().ok_or("NO_SERVER")?;
        let choice = Choice {
            dispatch: Dispatch::Table.into(),
            bound: 0,
            ..of.choice
        };
        let request = Request {
            hash: client_hash(&choice, &SECRET, key.client, key.service),
            ..Request::default()
        };
        let chosen = choose(&choice, &Gauges::default(), rows, &request);
        chosen.target.ok_or_else(|| of.unserved(0))
    }

    /// Where it led before, if that is elsewhere and counts.
    fn former(&self, key: &Key, now: Option<u16>) -> Option<u16> {
        let of = self.of(key);
        let [rows, former] = of.rows.as_ref().filter(|_| self.unknown == Unknown::Peer)?;
        let rows = if self.now_ns < self.former_until_ns {
            former
        } else {
            rows
        };
        let hash = client_hash(&of.choice, &SECRET, key.client, key.service);
        let owner = row_of(rows, hash);
        let site = self.servers.get(usize::from(owner))?.site;
        (!site.is_lost && !site.is_dead && Some(owner) != now).then_some(owner)
    }

    fn gets_entry(&mut self, key: &Key) -> bool {
        if self.insert_limit == 0 {
            return true;
        }
        let next = connection::take_token(self.insert_limit, self.bucket_ns, self.now_ns);
        if let Some(next) = next {
            self.bucket_ns = next;
            return true;
        }
        self.former(key, self.by_hash(key).ok()).is_some()
    }

    fn open(&mut self, key: &Key, packet: &Packet) -> Result<(), &'static str> {
        if !self.gets_entry(key) {
            return Err("TOO_MANY");
        }
        let place = self.choose(key)?;
        let server = self.servers[usize::from(place)];
        if server.site.is_lost {
            return Err("NO_WAY");
        }
        let (at, is_direct) = (server.endpoint(key), server.site.is_direct);
        if !is_direct {
            self.free(&key.of_server(at))?;
        }
        let turn = self.next_turn();
        let of_table = self.connections.values();
        if of_table.filter(|one| one.is_direct == is_direct).count() == ENTRIES {
            return Err("TABLE_FULL");
        }
        if !is_direct {
            self.by_server.insert(key.of_server(at), *key);
        }
        let fresh = Connection {
            turn,
            seen_ns: self.now_ns,
            server: place,
            at,
            is_direct,
            state: 0,
            acked: packet.end,
            reached: 0,
            end: packet.end,
        };
        self.connections.insert(*key, fresh);
        let gauge = &mut self.gauges.of.target[usize::from(place)];
        gauge.dispatched += 1;
        gauge.opened += 1;
        self.gauges.all[key.family().index()].opened += 1;
        self.enter_ring(key, turn);
        Ok(())
    }

    /// Of a connection that is over the client's port is free for another.
    fn free(&mut self, of_server: &Key) -> Result<(), &'static str> {
        let Some(owner) = self.by_server.get(of_server).copied() else {
            return Ok(());
        };
        if self.connections[&owner].state & CLOSED == 0 {
            return Err("PORT_TAKEN");
        }
        self.forget(&owner);
        Ok(())
    }

    fn is_replaced(&self, key: &Key) -> bool {
        let Some(known) = self.connections.get(key) else {
            return false;
        };
        if !key.is_tcp && known.state & (ANSWERED | CLOSED) == ANSWERED {
            return false;
        }
        let takes_new = self.of(key).choice.takes_new(known.server);
        connection::gives_way(known.state, TCP_SYN, takes_new, false)
    }

    // ---- packets

    pub fn client_sends(&mut self, packet: &Packet) -> Outcome {
        let key = Key {
            is_tcp: packet.is_tcp,
            client: packet.from,
            service: packet.to,
        };
        if packet.is_opening() && self.is_replaced(&key) {
            self.forget(&key);
        }
        let is_known = self.connections.contains_key(&key);
        if !is_known {
            let opened = match packet.is_opening() {
                true => self.open(&key, packet),
                false => Err("NO_CONNECTION"),
            };
            match opened {
                Ok(()) => {}
                Err(reason @ ("NO_CONNECTION" | "TOO_MANY" | "TABLE_FULL")) => {
                    return self.without_entry(&key, packet, reason);
                }
                Err(reason) => return refuse(packet, reason),
            }
        }
        let Some(known) = self.connections.get(&key).copied() else {
            return refuse(packet, "TABLE_FULL");
        };
        match known.is_direct {
            _ if !is_known => {}
            true => self.follow_directly(&key, packet),
            false => self.follow(&key, packet),
        }
        if self.servers[usize::from(known.server)].site.is_lost {
            return refuse(packet, "NO_WAY");
        }
        let to = if known.is_direct { packet.to } else { known.at };
        ("TO_SERVER", Some((packet.from, to)))
    }

    fn follow(&mut self, key: &Key, packet: &Packet) {
        let Some(known) = self.connections.get_mut(key) else {
            return;
        };
        known.seen_ns = self.now_ns;
        let (acked, reached) = (known.acked, known.reached);
        self.learn(key, |state| {
            let is_own = connection::is_reset(state, packet.seq, acked);
            let is_heard = connection::is_confirmed(state, packet.ack, reached);
            let unbelieved = if is_own { 0 } else { TCP_RST } | if is_heard { 0 } else { TCP_ACK };
            match packet.is_tcp {
                true => connection::after(state, Sender::Client, packet.flags & !unbelieved),
                false => connection::after_datagram(state, Sender::Client),
            }
        });
    }

    fn follow_directly(&mut self, key: &Key, packet: &Packet) {
        let Some(known) = self.connections.get_mut(key) else {
            return;
        };
        known.seen_ns = self.now_ns;
        if !packet.is_tcp || connection::is_near(packet.seq, known.end) {
            known.end = packet.end;
            self.learn(key, |state| connection::after_direct(state, packet.flags));
        }
    }

    fn without_entry(&self, key: &Key, packet: &Packet, refused: &'static str) -> Outcome {
        match self.unknown {
            Unknown::Drop if refused == "NO_CONNECTION" => return ("UNKNOWN", None),
            Unknown::Host | Unknown::Drop => return (refused, None),
            Unknown::Hash | Unknown::Peer => {}
        }
        let now = self.by_hash(key);
        let former = self.former(key, now.ok());
        if former.is_some() && refused != "NO_CONNECTION" {
            return (refused, None);
        }
        let place = match (former, now) {
            (Some(place), _) | (None, Ok(place)) => place,
            (None, Err(reason)) => return refuse(packet, reason),
        };
        let server = self.servers[usize::from(place)];
        if server.site.is_lost {
            return refuse(packet, "NO_WAY");
        }
        let to = match server.site.is_direct {
            true => packet.to,
            false => server.endpoint(key),
        };
        let reason = if former.is_some() { "FORMER" } else { "HASHED" };
        (reason, Some((packet.from, to)))
    }

    fn answers_without_entry(&self, server: SocketAddr) -> bool {
        let here = self
            .servers
            .iter()
            .find(|one| one.at.ip() == server.ip() && [0, server.port()].contains(&one.at.port()));
        let goes_by_rows = matches!(self.unknown, Unknown::Hash | Unknown::Peer);
        goes_by_rows && here.is_some_and(|one| !one.site.is_direct)
    }

    /// `alias`: the virtual endpoint as which the server answers without an entry.
    pub fn server_sends(&mut self, packet: &Packet, alias: Option<SocketAddr>) -> Outcome {
        let of_server = Key {
            is_tcp: packet.is_tcp,
            client: packet.to,
            service: packet.from,
        };
        let Some(key) = self.by_server.get(&of_server).copied() else {
            let alias = alias.filter(|alias| {
                let client = of_server.of_server(*alias);
                let known = self.connections.get(&client);
                self.answers_without_entry(packet.from) && known.is_none_or(|one| one.is_direct)
            });
            return match alias {
                Some(alias) => ("ALIASED", Some((alias, packet.to))),
                None => ("NOT_OURS", None),
            };
        };
        self.learn(&key, |state| match packet.is_tcp {
            true => connection::after(state, Sender::Server, packet.flags),
            false => connection::after_datagram(state, Sender::Server),
        });
        if let Some(known) = self.connections.get_mut(&key) {
            if packet.flags & TCP_ACK != 0 {
                known.acked = packet.ack;
            }
            known.reached = packet.end;
            known.seen_ns = self.now_ns;
        }
        ("TO_CLIENT", Some((key.service, key.client)))
    }
}

/// A client is told at once if that is wanted: of TCP by a RST in the service's name, which no RST gets.
fn refuse(packet: &Packet, reason: &'static str) -> Outcome {
    let is_reset = packet.is_tcp && packet.flags & TCP_RST == 0 && reason.ends_with("_REFUSED");
    (reason, is_reset.then_some((packet.to, packet.from)))
}
