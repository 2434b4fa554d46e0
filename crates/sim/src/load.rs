//! A scenario's users: they open flows as their workload says, lose patience as the laboratory's clients do, and note
//! what became of each transfer.

use std::iter::Peekable;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anabranch_core::Time;
use anabranch_policy::abi::Addr;
use anabranch_policy::flow_hash;
use anabranch_policy::splitmix::mix;
use anabranch_scenario::{Direction, Load as Plan, Outcome, Transfer, TransferId, UserId};
use anabranch_workload::{Arrivals, Extent, Round, RoundTimes, Tab};

use crate::gateway::Pair;
use crate::net::{FlowId, FlowSpec, Net, News, PathId, Work};
use crate::tcp::TcpConfig;

/// Of a request, and of the answer to an upload.
pub const HEAD_BYTES: u64 = 200;
/// A tab rests so long after a round in which no file arrived.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);

/// What a load's wake-up is for; as a token: kind in the two highest bits but one, subject in the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// The next round of a tab is due.
    Round(u32),
    /// Somebody may have lost patience with the flow of this number.
    Patience(u32),
    /// The next arrival is due.
    Arrival,
}

const KIND: u32 = 28;
const SUBJECT: u32 = (1 << KIND) - 1;

impl Alarm {
    fn token(self) -> u32 {
        match self {
            Alarm::Round(tab) => tab,
            Alarm::Patience(flow) => 1 << KIND | flow,
            Alarm::Arrival => 2 << KIND,
        }
    }

    fn of(token: u32) -> Alarm {
        match token >> KIND {
            0 => Alarm::Round(token),
            1 => Alarm::Patience(token & SUBJECT),
            _ => Alarm::Arrival,
        }
    }
}

/// Between whom a transfer is, and the way its connection takes.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub forward: PathId,
    pub back: PathId,
}

/// What carries the flows of a load.
pub trait Carrier {
    /// The way of transfer `number` between `pair`.
    fn route(&mut self, net: &mut Net, pair: Pair, number: u64) -> Route;

    /// `flow` is about to open.
    fn introduce(&mut self, net: &Net, flow: FlowId, pair: Pair);

    /// The link that carries a flow, by its place in the scenario.
    fn link_of(&self, net: &Net, flow: FlowId) -> Option<usize>;
}

/// A tab between two rounds, or in one.
#[derive(Debug)]
struct Session {
    tab: Tab,
    /// The next round, if it waits for its time; the present one otherwise.
    round: Option<Round>,
    started: Duration,
    running: u32,
    arrived: bool,
}

#[derive(Debug)]
enum Source {
    Tabs(Vec<Session>),
    Arrivals(Peekable<Arrivals>),
}

/// A transfer whose flow is open.
#[derive(Clone, Copy, Debug)]
struct Active {
    transfer: usize,
    tab: u32,
    direction: Direction,
    /// When its one valid look at the clock is due.
    looks: Time,
}

/// All users of a run.
#[derive(Debug)]
pub struct Load {
    source: Source,
    /// No round starts, and no transfer continues, after this.
    end: Time,
    /// Longest wait for a handshake, and for the next segment after it.
    patience: Duration,
    tcp: TcpConfig,
    names: Vec<String>,
    /// By flow.
    active: Vec<Option<Active>>,
    active_count: usize,
    waiting: usize,
    transfers: Vec<Transfer>,
    /// Connections that each user has opened.
    opened: Vec<u32>,
    seed: u64,
    /// Added to every token.
    mark: u32,
}

impl Load {
    /// The users of `plan`; their links are called `names`. Every wake-up they ask for has the bits of `mark`.
    pub fn new(
        plan: &Plan,
        limit: Duration,
        patience: Duration,
        tcp: TcpConfig,
        names: Vec<String>,
        mark: u32,
    ) -> Self {
        let (source, end, seed) = match plan {
            Plan::Pages(workload) => {
                let end = match workload.extent {
                    Extent::Rounds(_) => limit,
                    Extent::Duration(duration) => duration.min(limit),
                };
                let sessions = workload.tabs().map(Session::new).collect();
                (Source::Tabs(sessions), end, workload.seed)
            }
            Plan::Arrivals(plan) => {
                let arrivals = plan.arrivals().peekable();
                (Source::Arrivals(arrivals), limit, plan.seed)
            }
        };
        Load {
            source,
            end: Time::ZERO + end,
            patience,
            tcp,
            names,
            active: Vec::new(),
            active_count: 0,
            waiting: 0,
            transfers: Vec::new(),
            opened: Vec::new(),
            seed,
            mark,
        }
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
        match &mut self.source {
            Source::Tabs(sessions) => {
                for tab in 0..sessions.len() as u32 {
                    self.plan_round(net, tab, None);
                }
            }
            Source::Arrivals(_) => self.plan_arrival(net),
        }
    }

    pub fn wake(&mut self, net: &mut Net, carrier: &mut impl Carrier, token: u32) {
        match Alarm::of(token) {
            Alarm::Round(tab) => self.start_round(net, carrier, tab),
            Alarm::Patience(flow) => self.look(net, flow),
            Alarm::Arrival => self.arrive(net, carrier),
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
            }
            News::FirstByte => {
                transfer.first_byte_s = Some(taken_s);
                let link = carrier.link_of(net, flow);
                transfer.link = link.map(|link| self.names[link].clone());
            }
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
            pair,
            bytes,
            direction,
            round,
            tab,
            planned,
        } = wish;
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
            tcp: self.tcp,
        };
        let flow = net.open_labelled(spec, self.hash(pair));
        carrier.introduce(net, flow, pair);
        let looks = net.now() + self.patience;
        if self.active.len() <= flow.index() {
            self.active.resize(flow.index() + 1, None);
        }
        self.active[flow.index()] = Some(Active {
            transfer: self.transfers.len(),
            tab,
            direction,
            looks,
        });
        self.active_count += 1;
        net.wake_at(looks, self.mark | Alarm::Patience(flow.number()).token());
        self.transfers.push(Transfer {
            id: TransferId(number),
            user: UserId(pair.user),
            source: IpAddr::V4(address_of_user(pair.user)),
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

    /// The hash of the next connection of a user. Its port is drawn as hosts do, uniform over the ephemeral range.
    fn hash(&mut self, pair: Pair) -> u32 {
        let user = pair.user as usize;
        if self.opened.len() <= user {
            self.opened.resize(user + 1, 0);
        }
        let count = self.opened[user];
        self.opened[user] += 1;
        let drawn = mix(self.seed ^ mix(u64::from(pair.user) << 32 | u64::from(count)));
        let port = 32_768 + (drawn % 28_232) as u16;
        let (user, server) = (address_of_user(pair.user), address_of_server(pair.server));
        flow_hash(Addr::from(user), Addr::from(server), port, 80)
    }

    // ---- rounds

    fn plan_round(&mut self, net: &mut Net, tab: u32, previous: Option<RoundTimes>) {
        let Source::Tabs(sessions) = &mut self.source else {
            return;
        };
        let session = &mut sessions[tab as usize];
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
        let Source::Tabs(sessions) = &mut self.source else {
            return;
        };
        self.waiting -= 1;
        let session = &mut sessions[tab as usize];
        let Some(round) = session.round.take() else {
            return;
        };
        let planned = std::mem::replace(&mut session.started, net.now().since(Time::ZERO));
        session.running = round.sizes.len() as u32;
        session.arrived = round.sizes.is_empty();
        let pair = Pair {
            user: session.tab.user.0,
            server: 0,
        };
        for bytes in round.sizes {
            let wish = Wish {
                pair,
                bytes,
                direction: Direction::Down,
                round: round.index,
                tab,
                planned,
            };
            self.open(net, carrier, wish);
        }
    }

    fn end_of_file(&mut self, net: &mut Net, tab: u32, arrived: bool) {
        let Source::Tabs(sessions) = &mut self.source else {
            return;
        };
        let session = &mut sessions[tab as usize];
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

    fn plan_arrival(&mut self, net: &mut Net) {
        let Source::Arrivals(arrivals) = &mut self.source else {
            return;
        };
        let next = arrivals.peek().map(|arrival| Time::ZERO + arrival.at);
        self.waiting = 0;
        if let Some(at) = next.filter(|at| *at < self.end) {
            self.waiting = 1;
            net.wake_at(at, self.mark | Alarm::Arrival.token());
        }
    }

    fn arrive(&mut self, net: &mut Net, carrier: &mut impl Carrier) {
        let Source::Arrivals(arrivals) = &mut self.source else {
            return;
        };
        let Some(arrival) = arrivals.next() else {
            return;
        };
        let wish = Wish {
            pair: Pair {
                user: arrival.user.0,
                server: arrival.server.0,
            },
            bytes: arrival.bytes,
            direction: arrival.direction,
            round: 0,
            tab: 0,
            planned: arrival.at,
        };
        self.open(net, carrier, wish);
        self.plan_arrival(net);
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
        self.end_of_file(net, active.tab, outcome.is_ok());
    }

    fn note(&mut self, net: &Net, active: Active, flow: FlowId, outcome: Outcome) {
        let transfer = &mut self.transfers[active.transfer];
        let endpoint = net.opener(flow);
        let segments = match active.direction {
            Direction::Down => endpoint.received_segments(),
            Direction::Up => endpoint.acknowledged_segments(),
        };
        let arrived = u64::from(segments) * u64::from(self.tcp.mss_bytes);
        transfer.bytes = arrived.min(transfer.bytes_asked);
        transfer.outcome = outcome;
        transfer.duration_s = seconds(net.now()) - transfer.start_s;
        if transfer.setup_s.is_none() {
            transfer.syn_retransmits = endpoint.syn_repeats();
        }
    }
}

impl Session {
    fn new(tab: Tab) -> Self {
        Session {
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
    pair: Pair,
    bytes: u64,
    direction: Direction,
    round: u32,
    tab: u32,
    planned: Duration,
}

fn seconds(time: Time) -> f64 {
    time.since(Time::ZERO).as_secs_f64()
}

/// Users have addresses of 10.0.0.0/8.
fn address_of_user(user: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0002_u32.wrapping_add(user))
}

/// Servers have addresses of 198.18.0.0/15, RFC 2544.
fn address_of_server(server: u32) -> Ipv4Addr {
    Ipv4Addr::from(0xc612_0001_u32.wrapping_add(server))
}
