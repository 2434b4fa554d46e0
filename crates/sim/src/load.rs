//! A scenario's users: they open flows as their workload says, lose patience as the laboratory's clients do, and note
//! what became of each transfer.

use std::iter::Peekable;
use std::net::SocketAddr;
use std::time::Duration;

use anabranch_core::Time;
use anabranch_policy::splitmix::mix;
use anabranch_scenario::{
    Demand, Direction, Families, Family, Outcome, Ports, RemoteServerId, Site, Transfer,
    TransferId, UserId, hops_to,
};
use anabranch_workload::{Arrivals, Extent, Round, RoundTimes, Tab};

use crate::gateway::{Ends, Pair};
use crate::net::{FlowId, FlowSpec, Net, News, PathId, Work};
use crate::tcp::TcpConfig;

/// Of a request, and of the answer to an upload.
pub const HEAD_BYTES: u64 = 200;
/// Ephemeral ports, as Linux has them by default.
const FIRST_PORT: u16 = 32_768;
const PORTS: u64 = 28_232;
/// A tab rests so long after a round in which no file arrived.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);

/// What a load's wake-up is for; as a token: kind in the two highest bits but one, subject in the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// The next round of a tab is due.
    Round(u32),
    /// Somebody may have lost patience with the flow of this number.
    Patience(u32),
    /// The next arrival of this stream is due.
    Arrival(u32),
}

const KIND: u32 = 28;
const SUBJECT: u32 = (1 << KIND) - 1;

impl Alarm {
    fn token(self) -> u32 {
        match self {
            Alarm::Round(tab) => tab,
            Alarm::Patience(flow) => 1 << KIND | flow,
            Alarm::Arrival(stream) => 2 << KIND | stream,
        }
    }

    fn of(token: u32) -> Alarm {
        match token >> KIND {
            0 => Alarm::Round(token),
            1 => Alarm::Patience(token & SUBJECT),
            _ => Alarm::Arrival(token & SUBJECT),
        }
    }
}

/// Between whom a transfer is, and the way its connection takes.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub forward: PathId,
    pub back: PathId,
}

/// The CRC-32 by which the programs know a flow.
pub fn flow_hash((from, to): Ends) -> u32 {
    anabranch_policy::flow_hash(from.ip().into(), to.ip().into(), from.port(), to.port())
}

/// What carries the flows of a load.
pub trait Carrier {
    /// The way of transfer `number` between `pair`.
    fn route(&mut self, net: &mut Net, pair: Pair, number: u64) -> Route;

    /// What the choice of a connection's path reads of its addresses and ports.
    fn hash(&self, ends: Ends) -> u32 {
        flow_hash(ends)
    }

    /// `flow` is about to open.
    fn introduce(&mut self, flow: FlowId, pair: Pair, ends: Ends);

    /// The link that carries a flow, by its place in the scenario.
    fn link_of(&self, net: &Net, flow: FlowId) -> Option<usize>;
}

/// Users who have a TCP and what they ask for in common: those of a group, or all.
#[derive(Clone, Debug)]
pub struct Party {
    /// None if the scenario has no groups.
    pub group: Option<String>,
    /// Of the party, among all users; its demand counts from 0.
    pub first_user: u32,
    pub demand: Demand,
    pub tcp: TcpConfig,
    pub ports: Ports,
}

/// What the transfers of a party have in common.
#[derive(Debug)]
struct Common {
    group: Option<String>,
    /// Of classes, by their numbers.
    classes: Vec<String>,
    first_user: u32,
    tcp: TcpConfig,
    ports: Ports,
}

/// A tab between two rounds, or in one.
#[derive(Debug)]
struct Session {
    party: usize,
    tab: Tab,
    /// The next round, if it waits for its time; the present one otherwise.
    round: Option<Round>,
    started: Duration,
    running: u32,
    arrived: bool,
}

/// Transfers that begin when they begin.
#[derive(Debug)]
struct Stream {
    party: usize,
    arrivals: Peekable<Arrivals>,
}

/// A transfer whose flow is open.
#[derive(Clone, Copy, Debug)]
struct Active {
    transfer: usize,
    /// Of which its file is; none if it came by itself.
    tab: Option<u32>,
    /// When its one valid look at the clock is due.
    looks: Time,
}

/// All users of a run.
#[derive(Debug)]
pub struct Load {
    parties: Vec<Common>,
    sessions: Vec<Session>,
    streams: Vec<Stream>,
    /// No round starts, and no transfer continues, after this.
    end: Time,
    /// Longest wait for a handshake, and for the next segment after it.
    patience: Duration,
    names: Vec<String>,
    /// By flow.
    active: Vec<Option<Active>>,
    active_count: usize,
    waiting: usize,
    transfers: Vec<Transfer>,
    /// Connections that each user has opened.
    opened: Vec<u32>,
    families: Families,
    /// Servers that answer nothing.
    dead: Vec<u32>,
    seed: u64,
    /// Added to every token.
    mark: u32,
}

impl Load {
    /// Users whose links are called `names`. Every wake-up they ask for has the bits of `mark`; the ports and,
    /// where hosts have both, the families of their connections are drawn from `seed`.
    pub fn new(
        parties: Vec<Party>,
        limit: Duration,
        patience: Duration,
        names: Vec<String>,
        families: Families,
        seed: u64,
        mark: u32,
    ) -> Self {
        let ends = parties.iter().map(|party| end_of(&party.demand, limit));
        let mut load = Load {
            end: Time::ZERO + ends.max().unwrap_or(limit),
            parties: Vec::new(),
            sessions: Vec::new(),
            streams: Vec::new(),
            patience,
            names,
            active: Vec::new(),
            active_count: 0,
            waiting: 0,
            transfers: Vec::new(),
            opened: Vec::new(),
            families,
            dead: Vec::new(),
            seed,
            mark,
        };
        parties.into_iter().for_each(|party| load.admit(party));
        load
    }

    /// From here on these servers answer nothing.
    pub fn kill_servers(&mut self, servers: &[u32]) {
        self.dead.extend(servers);
    }

    fn admit(&mut self, party: Party) {
        let number = self.parties.len();
        let mut classes = Vec::new();
        match &party.demand {
            Demand::Pages(workload) => {
                let sessions = workload.tabs().map(|tab| Session::new(number, tab));
                self.sessions.extend(sessions);
            }
            Demand::Arrivals(plan) => {
                classes.extend(plan.pattern.class_names().map(str::to_owned));
                self.streams.push(Stream {
                    party: number,
                    arrivals: plan.arrivals().peekable(),
                });
            }
        }
        self.parties.push(Common {
            group: party.group,
            classes,
            first_user: party.first_user,
            tcp: party.tcp,
            ports: party.ports,
        });
    }

    /// When the run ends at the latest.
    pub fn end(&self) -> Time {
        self.end
    }

    /// Whether nothing runs and nothing will begin.
    pub fn is_over(&self) -> bool {
        self.active_count == 0 && self.waiting == 0
    }

    /// Asks for the first wake-ups.
    pub fn begin(&mut self, net: &mut Net) {
        for tab in 0..self.sessions.len() as u32 {
            self.plan_round(net, tab, None);
        }
        for stream in 0..self.streams.len() as u32 {
            self.plan_arrival(net, stream);
        }
    }

    pub fn wake(&mut self, net: &mut Net, carrier: &mut impl Carrier, token: u32) {
        match Alarm::of(token) {
            Alarm::Round(tab) => self.start_round(net, carrier, tab),
            Alarm::Patience(flow) => self.look(net, flow),
            Alarm::Arrival(stream) => self.arrive(net, carrier, stream),
        }
    }

    pub fn told(&mut self, net: &mut Net, carrier: &impl Carrier, flow: FlowId, news: News) {
        let Some(&Some(active)) = self.active.get(flow.index()) else {
            return;
        };
        let now_s = seconds(net.now());
        let transfer = &mut self.transfers[active.transfer];
        let taken_s = now_s - transfer.start_s;
        match news {
            News::Established => {
                transfer.setup_s = Some(taken_s);
                transfer.syn_retransmits = net.opener(flow).syn_repeats();
                let link = carrier.link_of(net, flow);
                transfer.link = link.map(|link| self.names[link].clone());
            }
            News::FirstByte => transfer.first_byte_s = Some(taken_s),
            News::Finished => self.settle(net, flow, Outcome::Ok),
            News::Reset if transfer.setup_s.is_none() => self.settle(net, flow, Outcome::Refused),
            News::Reset => self.settle(net, flow, Outcome::Reset),
            News::Unreachable => self.settle(net, flow, Outcome::Unreachable),
            News::GivenUp if transfer.setup_s.is_none() => {
                self.settle(net, flow, Outcome::ConnectTimeout);
            }
            News::GivenUp => self.settle(net, flow, Outcome::IdleTimeout),
            News::Gone => {}
        }
    }

    /// Every transfer, those that still run as unfinished.
    pub fn finish(mut self, net: &mut Net) -> Vec<Transfer> {
        for place in 0..self.active.len() {
            if let Some(active) = self.active[place].take() {
                self.note(net, active, FlowId::at(place), Outcome::Unfinished);
            }
        }
        self.transfers
    }

    // ---- opening

    fn open(&mut self, net: &mut Net, carrier: &mut impl Carrier, wish: Wish) {
        let Wish {
            party,
            user,
            server,
            class,
            bytes,
            direction,
            round,
            tab,
            planned,
        } = wish;
        let common = &self.parties[party];
        let (tcp, ports) = (common.tcp, common.ports);
        let class = common.classes.get(class).cloned();
        let pair = Pair {
            user: common.first_user + user,
            server,
        };
        let number = self.transfers.len() as u64;
        let route = carrier.route(net, pair, number);
        let (request_bytes, response_bytes) = match direction {
            Direction::Down => (HEAD_BYTES, bytes),
            Direction::Up => (HEAD_BYTES + bytes, HEAD_BYTES),
        };
        let spec = FlowSpec {
            start: net.now(),
            work: Work::Request {
                request_bytes,
                response_bytes,
            },
            forward: route.forward,
            back: route.back,
            tcp,
        };
        let family = self.families.of_transfer(self.seed, TransferId(number));
        let ends = self.ends(family, pair, ports);
        let flow = net.open_labelled(spec, carrier.hash(ends));
        net.set_hops(flow, hops_to(pair.server));
        if self.dead.contains(&pair.server) {
            net.silence_peer(flow);
        }
        carrier.introduce(flow, pair, ends);
        let looks = net.now() + self.patience;
        if self.active.len() <= flow.index() {
            self.active.resize(flow.index() + 1, None);
        }
        self.active[flow.index()] = Some(Active {
            transfer: self.transfers.len(),
            tab,
            looks,
        });
        self.active_count += 1;
        net.wake_at(looks, self.mark | Alarm::Patience(flow.number()).token());
        self.transfers.push(Transfer {
            id: TransferId(number),
            user: UserId(pair.user),
            group: self.parties[party].group.clone(),
            source: ends.0.ip(),
            server: RemoteServerId(server),
            class,
            direction,
            round,
            planned_start_s: planned.as_secs_f64(),
            start_s: seconds(net.now()),
            setup_s: None,
            first_byte_s: None,
            duration_s: 0.,
            bytes_asked: bytes,
            bytes: 0,
            link: None,
            outcome: Outcome::Unfinished,
            syn_retransmits: 0,
        });
    }

    /// Between which the next connection of a pair is.
    fn ends(&mut self, family: Family, pair: Pair, ports: Ports) -> Ends {
        let user = pair.user as usize;
        if self.opened.len() <= user {
            self.opened.resize(user + 1, 0);
        }
        let count = self.opened[user];
        self.opened[user] += 1;
        let drawn = |count| mix(self.seed ^ mix(u64::from(pair.user) << 32 | u64::from(count)));
        let place = match ports {
            Ports::Random => drawn(count) % PORTS,
            Ports::Consecutive => (drawn(0) % PORTS + u64::from(count)) % PORTS,
        };
        let user = Site::USERS.address(family, pair.user);
        let server = Site::SERVERS.address(family, pair.server);
        (
            SocketAddr::new(user, FIRST_PORT + place as u16),
            SocketAddr::new(server, Site::SERVER_PORT),
        )
    }

    // ---- rounds

    fn plan_round(&mut self, net: &mut Net, tab: u32, previous: Option<RoundTimes>) {
        let session = &mut self.sessions[tab as usize];
        session.round = session.tab.next();
        let Some(round) = &session.round else {
            return;
        };
        let planned = Time::ZERO + round.earliest_start(previous);
        if planned >= self.end {
            session.round = None;
            return;
        }
        session.started = planned.since(Time::ZERO);
        self.waiting += 1;
        net.wake_at(
            planned.max(net.now()),
            self.mark | Alarm::Round(tab).token(),
        );
    }

    fn start_round(&mut self, net: &mut Net, carrier: &mut impl Carrier, tab: u32) {
        self.waiting -= 1;
        let session = &mut self.sessions[tab as usize];
        let Some(round) = session.round.take() else {
            return;
        };
        let planned = std::mem::replace(&mut session.started, net.now().since(Time::ZERO));
        session.running = round.sizes.len() as u32;
        session.arrived = round.sizes.is_empty();
        let (party, user) = (session.party, session.tab.user.0);
        for bytes in round.sizes {
            let wish = Wish {
                party,
                user,
                server: 0,
                class: 0,
                bytes,
                direction: Direction::Down,
                round: round.index,
                tab: Some(tab),
                planned,
            };
            self.open(net, carrier, wish);
        }
    }

    fn end_of_file(&mut self, net: &mut Net, tab: u32, arrived: bool) {
        let session = &mut self.sessions[tab as usize];
        session.running -= 1;
        session.arrived |= arrived;
        if session.running > 0 {
            return;
        }
        let pause = if session.arrived {
            Duration::ZERO
        } else {
            FAILURE_PAUSE
        };
        let times = RoundTimes {
            started: session.started,
            ended: net.now().since(Time::ZERO) + pause,
        };
        self.plan_round(net, tab, Some(times));
    }

    // ---- arrivals

    fn plan_arrival(&mut self, net: &mut Net, stream: u32) {
        let arrivals = &mut self.streams[stream as usize].arrivals;
        let next = arrivals.peek().map(|arrival| Time::ZERO + arrival.at);
        if let Some(at) = next.filter(|at| *at < self.end) {
            self.waiting += 1;
            net.wake_at(at, self.mark | Alarm::Arrival(stream).token());
        }
    }

    fn arrive(&mut self, net: &mut Net, carrier: &mut impl Carrier, stream: u32) {
        self.waiting -= 1;
        let Stream { party, arrivals } = &mut self.streams[stream as usize];
        let party = *party;
        let Some(arrival) = arrivals.next() else {
            return;
        };
        let wish = Wish {
            party,
            user: arrival.user.0,
            server: arrival.server.0,
            class: arrival.class.0 as usize,
            bytes: arrival.bytes,
            direction: arrival.direction,
            round: 0,
            tab: None,
            planned: arrival.at,
        };
        self.open(net, carrier, wish);
        self.plan_arrival(net, stream);
    }

    // ---- ends

    /// Whoever has heard nothing for too long gives up.
    fn look(&mut self, net: &mut Net, flow: u32) {
        let id = FlowId::at(flow as usize);
        let Some(Some(active)) = self.active.get_mut(flow as usize) else {
            return;
        };
        if active.looks != net.now() {
            return;
        }
        let patient_until = net.heard(id) + self.patience;
        let opened = net.times(id).established.is_some();
        if opened && patient_until > net.now() {
            active.looks = patient_until;
            net.wake_at(patient_until, self.mark | Alarm::Patience(flow).token());
        } else {
            net.abandon(id);
        }
    }

    fn settle(&mut self, net: &mut Net, flow: FlowId, outcome: Outcome) {
        let Some(active) = self.active[flow.index()].take() else {
            return;
        };
        self.active_count -= 1;
        self.note(net, active, flow, outcome);
        if let Some(tab) = active.tab {
            self.end_of_file(net, tab, outcome.is_ok());
        }
    }

    fn note(&mut self, net: &Net, active: Active, flow: FlowId, outcome: Outcome) {
        let transfer = &mut self.transfers[active.transfer];
        let endpoint = net.opener(flow);
        let mss_bytes = u64::from(net.spec(flow).tcp.mss_bytes);
        let arrived = match transfer.direction {
            Direction::Down => u64::from(endpoint.received_segments()) * mss_bytes,
            Direction::Up => {
                let with_request = u64::from(endpoint.acknowledged_segments()) * mss_bytes;
                with_request.saturating_sub(HEAD_BYTES)
            }
        };
        transfer.bytes = arrived.min(transfer.bytes_asked);
        transfer.outcome = outcome;
        transfer.duration_s = seconds(net.now()) - transfer.start_s;
        if transfer.setup_s.is_none() {
            transfer.syn_retransmits = endpoint.syn_repeats();
        }
    }
}

impl Session {
    fn new(party: usize, tab: Tab) -> Self {
        Session {
            party,
            tab,
            round: None,
            started: Duration::ZERO,
            running: 0,
            arrived: false,
        }
    }
}

/// A transfer that somebody wants now.
struct Wish {
    party: usize,
    /// Of the party, from 0.
    user: u32,
    server: u32,
    /// By its number.
    class: usize,
    bytes: u64,
    direction: Direction,
    round: u32,
    tab: Option<u32>,
    planned: Duration,
}

/// When nothing more is asked for.
fn end_of(demand: &Demand, limit: Duration) -> Duration {
    match demand {
        Demand::Pages(workload) => match workload.extent {
            Extent::Rounds(_) => limit,
            Extent::Duration(duration) => duration.min(limit),
        },
        Demand::Arrivals(_) => limit,
    }
}

fn seconds(time: Time) -> f64 {
    time.since(Time::ZERO).as_secs_f64()
}
