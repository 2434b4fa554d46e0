//! A resilient overlay network (Andersen, Balakrishnan, Kaashoek and Morris, SOSP 2001, as Peng 2005 §2.2 tells it).
//!
//! Every [`Node`] probes every other, for the first time when it begins, then about every 12 s: three packets with one random
//! number of 64 bits, from which both ends learn that the path between them works and how long its round trip is. A probe that is
//! not answered has the next ones follow in a second each; when four are lost in a row, there is an outage. From what it has
//! measured, and from the tables that all others send it, a node knows which way is best: the path itself, or one other node in
//! between.
//!
//! A path that breaks is next probed W later, W = (T²/2 + TJ/2 + J²/8) / (T + J/3) in the mean, where the interval is T and up
//! to J = T/3 more, and either end's probe begins both ends' intervals anew: 7.35 s. Four probes later it is left: after
//! W + 4·1 s = 11.35 s, which are Peng's "about ten". A second is the shortest time after which something may count as lost on a
//! path that nobody knows (RFC 6298 section 2.4). The original waits three for each, which makes 19.35 s; its authors report
//! "less than twenty seconds on average". An outage that ends sooner is sat out.
//!
//! For each of n nodes, probes and tables are 8 (n − 1) (3/2 · 69 / (T + J/3) + (60 + 20 (n − 1)) / 14 s) bit/s: 32.2 kbit/s of 50
//! nodes, which are Peng's 33.
//!
//! [`Overlay`] is one of a site, whose addresses at its providers are nodes, and of a node at each prefix. What passes between
//! the two sides takes the link of that address; inside each side packets take no time and are never lost.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use anabranch_core::{LinkId, Time};
use anabranch_policy::paths::Prefix;

use crate::peer::Metric;
use crate::ways::{Journey, Sent, Table};

/// Before a third of it at most is added at random.
pub(crate) const PROBE_INTERVAL: Duration = Duration::from_secs(12);
/// From a probe to the next, if it is not answered meanwhile.
const AGAIN: Duration = Duration::from_secs(1);
/// Lost in a row.
const OUTAGE: usize = 4;
const ROUTING_INTERVAL: Duration = Duration::from_secs(14);
/// Each with IP and UDP headers.
pub(crate) const PROBE_BYTES: u32 = 69;
const TABLE_BYTES: u32 = 60;
const ROW_BYTES: u32 = 20;
/// Probes by which loss is judged.
const WINDOW: usize = 100;
/// What a round trip counts for in the mean.
const GAIN: f64 = 0.1;
/// Less loss makes no difference to throughput.
const LOSS_MIN: f64 = 0.02;
/// A way is left for one that costs less than this part of it.
const BETTER: f64 = 0.95;
/// A packet that has not arrived after so long never will.
const LIFETIME: Duration = Duration::from_secs(60);

/// Random numbers, uniform over all values.
pub(crate) type Random<'a> = &'a mut dyn FnMut() -> u64;

/// What nodes send each other.
#[derive(Clone, Debug)]
enum Message {
    Probe(u64),
    Response(u64),
    /// To a response, so that both ends know.
    Acknowledgement(u64),
    /// What the sender knows of its path to each node.
    Table(Vec<Quality>),
}

impl Message {
    fn bytes(&self) -> u32 {
        match self {
            Message::Table(rows) => TABLE_BYTES + ROW_BYTES * (rows.len() as u32 - 1),
            _ => PROBE_BYTES,
        }
    }
}

/// Of a path.
#[derive(Clone, Copy, Debug)]
struct Quality {
    /// None in an outage, and of what was never measured.
    latency_s: Option<f64>,
    loss: f64,
}

impl Quality {
    const NONE: Quality = Quality {
        latency_s: None,
        loss: 0.0,
    };

    fn then(self, next: Quality) -> Quality {
        Quality {
            latency_s: self
                .latency_s
                .zip(next.latency_s)
                .map(|(one, other)| one + other),
            loss: 1.0 - (1.0 - self.loss) * (1.0 - next.loss),
        }
    }

    /// The less the better; none if it is no way.
    fn cost(self, metric: Metric) -> Option<f64> {
        let latency_s = self.latency_s?;
        Some(match metric {
            Metric::Latency => latency_s,
            // Latency decides between those that lose alike.
            Metric::Loss => self.loss + latency_s / 1e3,
            Metric::Throughput => latency_s * self.loss.max(LOSS_MIN).sqrt(),
        })
    }
}

/// What a node knows of its path to another.
#[derive(Clone, Debug)]
struct Link {
    /// When the next probe is.
    due: Time,
    /// Not answered yet.
    asked: Vec<(u64, Time)>,
    /// The last probe of the other that was answered.
    answered: Option<(u64, Time)>,
    latency_s: Option<f64>,
    outage: bool,
    fates: VecDeque<bool>,
}

impl Link {
    fn quality(&self) -> Quality {
        let lost = self.fates.iter().filter(|lost| **lost).count();
        Quality {
            latency_s: self.latency_s.filter(|_| !self.outage),
            loss: lost as f64 / self.fates.len().max(1) as f64,
        }
    }

    fn note(&mut self, lost: bool) {
        self.fates.push_back(lost);
        if self.fates.len() > WINDOW {
            self.fates.pop_front();
        }
    }

    fn hear(&mut self, round_trip: Duration) {
        let sample = round_trip.as_secs_f64();
        let latency = self.latency_s.unwrap_or(sample);
        self.latency_s = Some(latency + (sample - latency) * GAIN);
        self.outage = false;
        self.note(false);
    }

    /// The probe that is due, if there is to be one.
    fn probe(&mut self, now: Time, random: Random<'_>) -> Option<Message> {
        if now < self.due {
            return None;
        }
        if !self.asked.is_empty() {
            self.note(true);
        }
        if self.asked.len() == OUTAGE {
            self.asked.clear();
            self.outage = true;
            self.due = now + interval(random);
            return None;
        }
        let number = random();
        self.asked.push((number, now));
        self.due = now + AGAIN;
        Some(Message::Probe(number))
    }
}

fn interval(random: Random<'_>) -> Duration {
    PROBE_INTERVAL + PROBE_INTERVAL.mul_f64(share(random) / 3.0)
}

/// Uniform from 0 to 1.
fn share(random: Random<'_>) -> f64 {
    random() as f64 / u64::MAX as f64
}

/// One of the overlay. Its place is its number.
#[derive(Clone, Debug)]
struct Node {
    place: usize,
    metric: Metric,
    /// By place; its own is not used.
    links: Vec<Link>,
    /// What others told of their paths, by place.
    told: Vec<Vec<Quality>>,
    /// By place: by which node, none for the path itself.
    by: Vec<Option<usize>>,
    announces: Time,
}

impl Node {
    fn new(place: usize, nodes: usize, metric: Metric, random: Random<'_>) -> Node {
        let link = || Link {
            due: Time::ZERO,
            asked: Vec::new(),
            answered: None,
            latency_s: None,
            outage: false,
            fates: VecDeque::new(),
        };
        let links = (0..nodes).map(|_| link()).collect();
        Node {
            place,
            metric,
            links,
            told: vec![vec![Quality::NONE; nodes]; nodes],
            by: vec![None; nodes],
            announces: Time::ZERO + ROUTING_INTERVAL.mul_f64(share(random)),
        }
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let place = self.place;
        (0..self.links.len()).filter(move |other| *other != place)
    }

    fn next_turn(&self) -> Time {
        let links = self.others().map(|other| self.links[other].due);
        links.fold(self.announces, Time::min)
    }

    fn turn(&mut self, now: Time, random: Random<'_>) -> Vec<(usize, Message)> {
        let mut sent = Vec::new();
        let outages = self.outages();
        for other in self.others() {
            if let Some(probe) = self.links[other].probe(now, random) {
                sent.push((other, probe));
            }
        }
        let mut judges = self.outages() != outages;
        if self.announces <= now {
            self.announces = now + ROUTING_INTERVAL;
            judges = true;
            let table: Vec<_> = self.links.iter().map(Link::quality).collect();
            sent.extend(
                self.others()
                    .map(|other| (other, Message::Table(table.clone()))),
            );
        }
        if judges {
            self.choose();
        }
        sent
    }

    fn outages(&self) -> usize {
        self.links.iter().filter(|link| link.outage).count()
    }

    fn hear(
        &mut self,
        now: Time,
        from: usize,
        message: Message,
        random: Random<'_>,
    ) -> Option<Message> {
        let link = &mut self.links[from];
        let was_outage = link.outage;
        let answer = match message {
            Message::Probe(number) => {
                link.answered = Some((number, now));
                if link.asked.is_empty() {
                    link.due = now + interval(random);
                }
                Some(Message::Response(number))
            }
            Message::Response(number) => {
                let asked = link.asked.iter().find(|(asked, _)| *asked == number);
                let sent = asked.map(|(_, sent)| *sent);
                sent.map(|sent| {
                    // The first interval is a part, so that nodes that begin at once do not go on so.
                    link.due = now
                        + match link.latency_s {
                            None => PROBE_INTERVAL.mul_f64(share(random)),
                            Some(_) => interval(random),
                        };
                    link.hear(now.since(sent));
                    link.asked.clear();
                    Message::Acknowledgement(number)
                })
            }
            Message::Acknowledgement(number) => {
                if let Some((_, sent)) = link.answered.take_if(|(known, _)| *known == number) {
                    link.hear(now.since(sent));
                }
                None
            }
            Message::Table(rows) => {
                self.told[from] = rows;
                None
            }
        };
        if was_outage && !self.links[from].outage {
            self.choose();
        }
        answer
    }

    fn cost(&self, to: usize, by: Option<usize>) -> Option<f64> {
        let way = match by {
            None => self.links[to].quality(),
            Some(by) => self.links[by].quality().then(self.told[by][to]),
        };
        way.cost(self.metric)
    }

    /// With every table that is sent, and when an outage begins or ends.
    fn choose(&mut self) {
        for to in self.others() {
            let relays = self.others().filter(|by| *by != to).map(Some);
            let ways = [None].into_iter().chain(relays);
            let costs = ways.filter_map(|by| Some((by, self.cost(to, by)?)));
            let Some((by, cost)) = costs.min_by(|one, other| one.1.total_cmp(&other.1)) else {
                continue;
            };
            let present = self.cost(to, self.by[to]);
            if present.is_none_or(|present| cost < present * BETTER) {
                self.by[to] = by;
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Overlay {
    links: usize,
    prefixes: Vec<Prefix>,
    /// The site's, then those of the prefixes.
    nodes: Vec<Node>,
    /// On their way over links: when they left, between whom.
    under_way: BTreeMap<u32, (Time, usize, usize, Message)>,
    sent: u32,
}

impl Overlay {
    pub fn new(metric: Metric, links: usize, prefixes: Vec<Prefix>, random: Random<'_>) -> Self {
        let count = links + prefixes.len();
        Overlay {
            links,
            prefixes,
            nodes: (0..count)
                .map(|place| Node::new(place, count, metric, random))
                .collect(),
            under_way: BTreeMap::new(),
            sent: 0,
        }
    }

    /// Some prefix is reached over the link.
    pub fn is_alive(&self, link: LinkId) -> bool {
        let node = &self.nodes[link.index()];
        node.links[self.links..].iter().any(|path| !path.outage)
    }

    pub fn next_turn(&self) -> Time {
        let nodes = self.nodes.iter().map(Node::next_turn);
        nodes.min().unwrap_or_default()
    }

    pub fn turn(&mut self, now: Time, random: Random<'_>) -> Vec<Sent> {
        self.under_way
            .retain(|_, (left, ..)| *left + LIFETIME > now);
        let mut sent = Vec::new();
        for from in 0..self.nodes.len() {
            for (to, message) in self.nodes[from].turn(now, random) {
                self.send(now, (from, to), message, random, &mut sent);
            }
        }
        sent
    }

    pub fn arrive(&mut self, now: Time, token: u32, random: Random<'_>) -> Vec<Sent> {
        let mut sent = Vec::new();
        if let Some((_, from, to, message)) = self.under_way.remove(&token) {
            let answer = self.nodes[to].hear(now, from, message, random);
            if let Some(answer) = answer {
                self.send(now, (to, from), answer, random, &mut sent);
            }
        }
        sent
    }

    fn send(
        &mut self,
        now: Time,
        (from, to): (usize, usize),
        message: Message,
        random: Random<'_>,
        sent: &mut Vec<Sent>,
    ) {
        let (link, journey) = match (from < self.links, to < self.links) {
            (true, false) => (from, Journey::Up),
            (false, true) => (to, Journey::Down),
            _ => {
                if let Some(answer) = self.nodes[to].hear(now, from, message, random) {
                    self.send(now, (to, from), answer, random, sent);
                }
                return;
            }
        };
        self.sent = self.sent.wrapping_add(1);
        sent.push(Sent {
            link: LinkId(link as u16),
            journey,
            bytes: message.bytes(),
            token: self.sent,
        });
        self.under_way.insert(self.sent, (now, from, to, message));
    }

    /// Hosts of the site come to the overlay by its first address.
    pub fn table(&self) -> Table {
        let ways = (self.links..).zip(&self.prefixes);
        let link = |by: Option<usize>| LinkId(by.filter(|by| *by < self.links).unwrap_or(0) as u16);
        Table {
            hosts: vec![LinkId(0)],
            prefixes: ways
                .map(|(to, prefix)| (*prefix, link(self.nodes[0].by[to])))
                .collect(),
        }
    }

    /// By which of the site's addresses a prefix sends to its hosts.
    pub fn inward(&self, from: Prefix) -> Option<LinkId> {
        let place = self.prefixes.iter().position(|prefix| *prefix == from)?;
        let by = self.nodes[self.links + place].by[0];
        Some(LinkId(by.filter(|by| *by < self.links).unwrap_or(0) as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Between any two nodes.
    const ONE_WAY: Duration = Duration::from_millis(20);

    /// Nodes that reach each other in the same time, but for one pair that may be cut.
    struct Mesh {
        nodes: Vec<Node>,
        now: Time,
        /// By arrival and number.
        under_way: BTreeMap<(Time, u64), (usize, usize, Message)>,
        cut: Option<(usize, usize)>,
        sent_bytes: u64,
        packets: u64,
        state: u64,
    }

    impl Mesh {
        fn new(nodes: usize, seed: u64) -> Mesh {
            println!("seed {seed}");
            let mut state = seed;
            let mut random = || next(&mut state);
            let node = |place| Node::new(place, nodes, Metric::Latency, &mut random);
            Mesh {
                nodes: (0..nodes).map(node).collect(),
                now: Time::ZERO,
                under_way: BTreeMap::new(),
                cut: None,
                sent_bytes: 0,
                packets: 0,
                state,
            }
        }

        fn send(&mut self, from: usize, sent: Vec<(usize, Message)>) {
            for (to, message) in sent {
                self.sent_bytes += u64::from(message.bytes());
                self.packets += 1;
                if self.cut != Some((from.min(to), from.max(to))) {
                    let arrives = (self.now + ONE_WAY, self.packets);
                    self.under_way.insert(arrives, (from, to, message));
                }
            }
        }

        fn run_until(&mut self, end: Time, mut until: impl FnMut(&Mesh) -> bool) {
            while self.now < end && !until(self) {
                let turns = self.nodes.iter().map(Node::next_turn);
                let arrival = self.under_way.first_key_value().map(|((at, _), _)| *at);
                self.now = turns.chain(arrival).min().unwrap().min(end);
                let mut state = self.state;
                for place in 0..self.nodes.len() {
                    let sent = self.nodes[place].turn(self.now, &mut || next(&mut state));
                    self.send(place, sent);
                }
                let now = self.now;
                while let Some(entry) = self.under_way.first_entry().filter(|it| it.key().0 <= now)
                {
                    let (from, to, message) = entry.remove();
                    let random: Random<'_> = &mut || next(&mut state);
                    let answer = self.nodes[to].hear(self.now, from, message, random);
                    self.send(
                        to,
                        answer.map(|answer| (from, answer)).into_iter().collect(),
                    );
                }
                self.state = state;
            }
        }
    }

    /// splitmix64.
    fn next(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Between two exchanges of a pair in the mean: the shorter of two intervals.
    fn between_exchanges_s() -> f64 {
        let interval_s = PROBE_INTERVAL.as_secs_f64();
        interval_s + interval_s / 3.0 / 3.0
    }

    #[test]
    fn probes_and_tables_are_33_kbit_s_of_each_of_50_nodes() {
        let nodes = 50;
        let others = f64::from(nodes - 1);
        let probes = 1.5 * f64::from(PROBE_BYTES) / between_exchanges_s();
        let rows = f64::from(ROW_BYTES) * others;
        let tables = (f64::from(TABLE_BYTES) + rows) / ROUTING_INTERVAL.as_secs_f64();
        let derived = 8.0 * others * (probes + tables);
        assert!((derived / 33e3 - 1.0).abs() < 0.03, "{derived} bit/s");
        let mut mesh = Mesh::new(nodes as usize, 7);
        mesh.run_until(Time::from_millis(30_000), |_| false);
        let before = mesh.sent_bytes;
        // Five tables of each.
        mesh.run_until(Time::from_millis(100_000), |_| false);
        let bps = (mesh.sent_bytes - before) as f64 * 8.0 / 70.0 / f64::from(nodes);
        assert!((bps / derived - 1.0).abs() < 0.02, "{bps} of {derived}");
    }

    /// From an outage until the node that sends has lost [`OUTAGE`] probes, in the mean.
    fn escape_s() -> f64 {
        let interval = PROBE_INTERVAL.as_secs_f64();
        let more = interval / 3.0;
        let waits = interval * interval / 2.0 + interval * more / 2.0 + more * more / 8.0;
        waits / between_exchanges_s() + OUTAGE as f64 * AGAIN.as_secs_f64()
    }

    #[test]
    fn an_outage_is_escaped_by_one_relay_when_four_probes_are_lost() {
        let seeds = 1..=200;
        let escape = |seed| {
            let mut mesh = Mesh::new(4, seed);
            mesh.run_until(Time::from_millis(100_000 + 317 * seed), |_| false);
            assert_eq!(mesh.nodes[0].by[1], None, "the path itself, while it works");
            mesh.cut = Some((0, 1));
            let cut = mesh.now;
            mesh.run_until(cut + Duration::from_secs(60), |mesh| {
                mesh.nodes[0].by[1].is_some()
            });
            let by = mesh.nodes[0].by[1].expect("a relay");
            assert!(by > 1);
            let after_s = mesh.now.since(cut).as_secs_f64();
            mesh.cut = None;
            let whole = mesh.now + Duration::from_secs(60);
            mesh.run_until(whole, |mesh| mesh.nodes[0].by[1].is_none());
            assert!(mesh.now < whole, "the path is taken again");
            after_s
        };
        let after_s: Vec<f64> = seeds.map(escape).collect();
        let count = after_s.len() as f64;
        let mean_s = after_s.iter().sum::<f64>() / count;
        let squares = after_s.iter().map(|after_s| (after_s - mean_s).powi(2));
        let error_s = (squares.sum::<f64>() / (count - 1.0) / count).sqrt();
        let derived_s = escape_s();
        println!("{mean_s} s ± {error_s} s, derived {derived_s} s");
        assert!((mean_s - derived_s).abs() < 3.0 * error_s);
        assert!((derived_s - 11.35).abs() < 0.01);
        // Never before four probes were lost, nor later than an interval and them.
        let longest_s = PROBE_INTERVAL.as_secs_f64() * 4.0 / 3.0 + 4.1;
        assert!(after_s.iter().all(|it| (3.9..longest_s).contains(it)));
    }

    #[test]
    fn ways_are_compared_by_the_metric_and_by_no_other() {
        let way = |latency_ms: f64, loss| Quality {
            latency_s: Some(latency_ms / 1e3),
            loss,
        };
        let (fast, clean, mild) = (way(10.0, 0.5), way(80.0, 0.0), way(30.0, 0.04));
        let best = |metric| {
            let ways = [fast, clean, mild].into_iter().enumerate();
            let costs = ways.map(|(index, way)| (index, way.cost(metric).unwrap()));
            costs
                .min_by(|one, other| one.1.total_cmp(&other.1))
                .unwrap()
                .0
        };
        assert_eq!(
            [Metric::Latency, Metric::Loss, Metric::Throughput].map(best),
            [0, 1, 2]
        );
        let through = clean.then(way(5.0, 0.5));
        assert_eq!((through.latency_s, through.loss), (Some(0.085), 0.5));
    }
}
