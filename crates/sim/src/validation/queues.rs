//! Queues under Poisson arrivals and under users who think. Times are in units of the mean service time, 1/μ; ρ = λ/μ.

use std::collections::VecDeque;

use anabranch_core::Time;
use anabranch_policy::abi::MAX_TARGETS;
use anabranch_policy::{Candidate, Choice, Dispatch, Gauges, NO_TABLE, Request, choose};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Check, Effort, Mutant, Observed, Tolerance, Topic, mean};
use crate::link::{Buffer, Link, LinkSpec, Loss, Offer};
use crate::packet::{PacketId, Slab};
use crate::queue::EventQueue;

/// Every queue of the table.
pub const QUEUES: &[Topic] = &[
    Topic::random("M/M/1", measure_mm1, judge_mm1),
    Topic::random("M/M/1/K", measure_mm1k, judge_mm1k),
    Topic::random("M/D/1", measure_md1, judge_md1),
    Topic::random("M/G/1", measure_mg1, judge_mg1),
    Topic::random("M/M/c", measure_mmc, judge_mmc),
    Topic::random("closed users", measure_closed, judge_closed),
    Topic::random("JSQ(d)", measure_jsq, judge_jsq),
];

/// Servers a tenth slower than theory is told (of many servers, a twentieth: they fill for long), and who would join the
/// shortest queue joins any.
pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::slow_server("M/M/1", |seed, effort| mm1(seed, effort, 1.1 * MM1_LOAD)),
    Mutant::slow_server("M/M/1/K", |seed, effort| mm1k(seed, effort, 1.1)),
    Mutant::slow_server("M/D/1", |seed, effort| md1(seed, effort, 1.1)),
    Mutant::slow_server("M/G/1", |seed, effort| mg1(seed, effort, 1.1 * MG1_LOAD)),
    Mutant::slow_server("M/M/c", |seed, effort| mmc(seed, effort, 1.1 * MMC_LOAD)),
    Mutant::slow_server("closed users", |seed, effort| {
        closed(seed, effort, THINK / 1.1)
    }),
    Mutant::slow_server("JSQ(d)", |seed, effort| jsqs(seed, effort, 1.05 * JSQ_LOAD)),
    Mutant {
        name: "any-queue",
        topic: "JSQ(d)",
        measure: |seed, effort| {
            let any = jsq(seed, 1, Dispatch::Random, JSQ_LOAD, effort);
            vec![any; JSQ_CHOICES.len()]
        },
    },
];

/// Mean size in bytes, large so that whole bytes follow the distribution, and the mean service time it takes.
const MEAN_BYTES: f64 = 100_000.;
const SERVICE_NS: f64 = 1_000_000.;
const RATE_BPS: u64 = 800_000_000;
/// Arrivals of a run that are not counted.
const WARM_UP: usize = 5_000;

#[derive(Clone, Copy)]
enum Service {
    Exponential,
    Deterministic,
    /// Shape, and the greatest size as a multiple of the least.
    BoundedPareto {
        alpha: f64,
        ratio: f64,
    },
}

const PARETO: Service = Service::BoundedPareto {
    alpha: 1.5,
    ratio: 100.,
};

impl Service {
    fn bytes(self, random: &mut ChaCha8Rng) -> u32 {
        let units = match self {
            Service::Exponential => exponential(random),
            Service::Deterministic => 1.,
            Service::BoundedPareto { alpha, ratio } => {
                let (u, least): (f64, f64) = (random.random(), 1. / self.moment(1.));
                least * (1. - u * (1. - ratio.powf(-alpha))).powf(-1. / alpha)
            }
        };
        (units * MEAN_BYTES).round().max(1.) as u32
    }

    /// E[Sⁿ] where the least value is 1.
    fn moment(self, n: f64) -> f64 {
        match self {
            Service::Exponential => (1..=n as u64).product::<u64>() as f64,
            Service::Deterministic => 1.,
            Service::BoundedPareto { alpha, ratio } => {
                alpha / (alpha - n) * (1. - ratio.powf(n - alpha)) / (1. - ratio.powf(-alpha))
            }
        }
    }
}

/// Of mean 1.
fn exponential(random: &mut ChaCha8Rng) -> f64 {
    -(1. - random.random::<f64>()).ln()
}

fn server(buffer: Buffer) -> Link {
    let spec = LinkSpec {
        rate_bps: RATE_BPS,
        delay_ns: 0,
        buffer,
        loss: Loss::None,
    };
    Link::new(spec, 0, 0)
}

fn after(now: Time, services: f64) -> Time {
    Time::from_nanos(now.as_nanos() + (services * SERVICE_NS).round() as u64)
}

fn services(from: Time, to: Time) -> f64 {
    to.since(from).as_nanos() as f64 / SERVICE_NS
}

#[derive(Clone, Copy)]
enum Event {
    /// Of a customer from outside, or of the user who has thought.
    Arrival,
    /// The server with this number is done with somebody.
    /// By a server, of a customer.
    Delivery(usize, PacketId),
}

/// One link as the server of a queue.
struct Single {
    /// Times in the link, in service times, in the order of arrival.
    sojourns: Vec<f64>,
    drop_ratio: f64,
    /// By the link's own count, in the mean over time.
    in_link: f64,
    /// Little's law: that count over time, less the times of all packets in the link as seen from outside; and bytes not
    /// accounted for.
    unaccounted: f64,
}

impl Single {
    fn mean(&self) -> f64 {
        mean(&self.sojourns[WARM_UP..])
    }

    fn p99(&self) -> f64 {
        let mut sorted = self.sojourns[WARM_UP..].to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted[sorted.len() * 99 / 100]
    }
}

fn single(seed: u64, load: f64, service: Service, buffer: Buffer, effort: Effort) -> Single {
    let packets_offered = effort.of(60_000, 400_000);
    let mut link = server(buffer);
    link.audit(Time::ZERO);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut events, mut packets) = (EventQueue::default(), Slab::default());
    let (mut sojourns, mut arrivals) = (Vec::new(), 0);
    let (mut last, mut total_ns) = (Time::ZERO, 0u128);
    events.push(Time::ZERO, Event::Arrival);
    while let Some((now, event)) = events.pop() {
        last = now;
        match event {
            Event::Arrival => {
                arrivals += 1;
                let packet = packets.insert(now);
                match link.offer(now, packet, service.bytes(&mut random)) {
                    Offer::Arrives(at) => events.push(at, Event::Delivery(0, packet)),
                    _ => drop(packets.remove(packet)),
                }
                if arrivals < packets_offered {
                    events.push(after(now, exponential(&mut random) / load), Event::Arrival);
                }
            }
            Event::Delivery(_, packet) => {
                let since = packets.remove(packet);
                total_ns += now.since(since).as_nanos();
                sojourns.push(services(since, now));
            }
        }
    }
    let counters = link.counters(last);
    let (_, integral_ns) = link.little_ns(last).expect("it is audited");
    let little_ns = integral_ns.abs_diff(total_ns as i128) as f64;
    Single {
        sojourns,
        in_link: integral_ns as f64 / last.as_nanos() as f64,
        drop_ratio: counters.overflowed.packets as f64 / counters.offered.packets as f64,
        unaccounted: little_ns + f64::from(u8::from(!link.conserves(last))),
    }
}

fn little(name: &str, unaccounted: &[f64]) -> Check {
    let name = format!("{name}, Little's law and conservation, what is unaccounted for");
    Check::new(9, name, "ns", unaccounted, 0., Tolerance::Absolute(0.)).identity()
}

const MM1_LOAD: f64 = 0.7;

fn measure_mm1(seed: u64, effort: Effort) -> Vec<f64> {
    mm1(seed, effort, MM1_LOAD)
}

fn mm1(seed: u64, effort: Effort, load: f64) -> Vec<f64> {
    let run = single(seed, load, Service::Exponential, Buffer::Unlimited, effort);
    vec![run.mean(), run.p99(), run.unaccounted, run.in_link]
}

fn judge_mm1(observed: &Observed, _: Effort) -> Vec<Check> {
    let in_system = 1. / (1. - MM1_LOAD);
    let check = |number, i, name: &str, unit, expected, part| {
        let name = format!("M/M/1 at ρ = {MM1_LOAD}, {name}");
        let tolerance = Tolerance::Relative(part);
        Check::new(number, name, unit, &observed.column(i), expected, tolerance)
    };
    let p99 = in_system * 100f64.ln();
    vec![
        check(1, 0, "time in system", "1/μ", in_system, 0.02),
        check(1, 1, "99th percentile", "1/μ", p99, 0.03),
        check(9, 3, "packets in the link", "", MM1_LOAD * in_system, 0.02),
        little("M/M/1", &observed.column(2)),
    ]
}

/// Load and room.
const MM1K: [(f64, u64); 2] = [(0.8, 5), (1.2, 10)];

fn measure_mm1k(seed: u64, effort: Effort) -> Vec<f64> {
    mm1k(seed, effort, 1.)
}

/// At so many times the loads.
fn mm1k(seed: u64, effort: Effort, times: f64) -> Vec<f64> {
    let run = |(load, k): (f64, u64)| {
        let load = times * load;
        let run = single(seed, load, Service::Exponential, Buffer::Packets(k), effort);
        [run.drop_ratio, run.unaccounted]
    };
    MM1K.into_iter().flat_map(run).collect()
}

fn judge_mm1k(observed: &Observed, _: Effort) -> Vec<Check> {
    let checks = MM1K.into_iter().enumerate().flat_map(|(i, (load, k))| {
        let dropped = (1. - load) * load.powi(k as i32) / (1. - load.powi(k as i32 + 1));
        let name = format!("M/M/1/{k} at ρ = {load}, share dropped");
        let share = observed.column(2 * i);
        [
            Check::new(1, name, "", &share, dropped, Tolerance::Relative(0.02)),
            little(&format!("M/M/1/{k}"), &observed.column(2 * i + 1)),
        ]
    });
    checks.collect()
}

const MD1_LOADS: [f64; 2] = [0.5, 0.8];

fn measure_md1(seed: u64, effort: Effort) -> Vec<f64> {
    md1(seed, effort, 1.)
}

/// At so many times the loads.
fn md1(seed: u64, effort: Effort, times: f64) -> Vec<f64> {
    let wait = |load: f64| {
        single(
            seed,
            times * load,
            Service::Deterministic,
            Buffer::Unlimited,
            effort,
        )
        .mean()
            - 1.
    };
    MD1_LOADS.into_iter().map(wait).collect()
}

fn judge_md1(observed: &Observed, _: Effort) -> Vec<Check> {
    let checks = MD1_LOADS.into_iter().enumerate().map(|(i, load)| {
        let name = format!("M/D/1 at ρ = {load}, time waiting");
        let expected = load / (2. * (1. - load));
        let tolerance = Tolerance::Relative(0.02);
        Check::new(2, name, "1/μ", &observed.column(i), expected, tolerance)
    });
    checks.collect()
}

const MG1_LOAD: f64 = 0.6;

fn measure_mg1(seed: u64, effort: Effort) -> Vec<f64> {
    mg1(seed, effort, MG1_LOAD)
}

fn mg1(seed: u64, effort: Effort, load: f64) -> Vec<f64> {
    let run = single(seed, load, PARETO, Buffer::Unlimited, effort);
    vec![run.mean() - 1., run.unaccounted]
}

/// Pollaczek and Khinchine.
fn judge_mg1(observed: &Observed, _: Effort) -> Vec<Check> {
    let second_moment = PARETO.moment(2.) / PARETO.moment(1.).powi(2);
    let expected = MG1_LOAD * second_moment / (2. * (1. - MG1_LOAD));
    let name = format!("M/G/1 at ρ = {MG1_LOAD}, bounded Pareto, time waiting");
    let tolerance = Tolerance::Relative(0.03);
    vec![
        Check::new(3, name, "1/μ", &observed.column(0), expected, tolerance),
        little("M/G/1", &observed.column(1)),
    ]
}

/// Exponential servers, each with a queue of its own; which one a customer takes is the product's choice.
struct Bank {
    links: Vec<Link>,
    choice: Choice,
    /// With the customers at each.
    gauges: Box<Gauges>,
    events: EventQueue<Event>,
    /// When each customer arrived.
    customers: Slab<Time>,
    random: ChaCha8Rng,
    /// For choices.
    draws: ChaCha8Rng,
}

impl Bank {
    fn new(seed: u64, servers: usize, dispatch: Dispatch) -> Self {
        let candidate = Candidate {
            weight: 1,
            load: 0,
            usable: true,
        };
        let (choice, gauges) = Choice::among(dispatch, &vec![candidate; servers]);
        let mut draws = ChaCha8Rng::seed_from_u64(seed);
        draws.set_stream(1);
        Bank {
            links: (0..servers).map(|_| server(Buffer::Unlimited)).collect(),
            choice,
            gauges: Box::new(gauges),
            events: EventQueue::default(),
            customers: Slab::default(),
            random: ChaCha8Rng::seed_from_u64(seed),
            draws,
        }
    }

    /// The server of a new customer.
    fn choose(&mut self) -> usize {
        let request = Request {
            draw: self.draws.random(),
            ..Request::default()
        };
        let decision = choose(&self.choice, &self.gauges, &NO_TABLE, &request);
        usize::from(decision.target.expect("all servers are usable"))
    }

    /// An arrival after `mean` service times, exponentially.
    fn arrive_after(&mut self, now: Time, mean: f64) -> f64 {
        let gap = mean * exponential(&mut self.random);
        self.events.push(after(now, gap), Event::Arrival);
        gap
    }

    /// A customer who arrived at `since` queues at server `i`.
    fn enter(&mut self, i: usize, now: Time, since: Time) {
        let bytes = Service::Exponential.bytes(&mut self.random);
        let customer = self.customers.insert(since);
        if let Offer::Arrives(at) = self.links[i].offer(now, customer, bytes) {
            self.events.push(at, Event::Delivery(i, customer));
            self.gauges.target[i].dispatched += 1;
        }
    }

    /// Server `i` is done with a customer who arrived at the time returned.
    fn leave(&mut self, i: usize, customer: PacketId) -> Time {
        self.gauges.target[i].dispatched -= 1;
        self.customers.remove(customer)
    }

    fn is_free(&self, i: usize) -> bool {
        self.gauges.target[i].dispatched == 0
    }
}

const SERVERS: usize = 4;
const MMC_LOAD: f64 = 0.8;

/// Servers behind one queue: the share that waits, and how long all wait on average.
fn measure_mmc(seed: u64, effort: Effort) -> Vec<f64> {
    mmc(seed, effort, MMC_LOAD)
}

fn mmc(seed: u64, effort: Effort, load: f64) -> Vec<f64> {
    let customers = effort.of(60_000, 400_000);
    let mut bank = Bank::new(seed, SERVERS, Dispatch::Weighted);
    let (mut queue, mut waits) = (VecDeque::new(), Vec::with_capacity(customers));
    bank.arrive_after(Time::ZERO, 1.);
    while waits.len() < customers {
        let (now, event) = bank.events.pop().expect("arrivals never end");
        let free = match event {
            Event::Arrival => {
                bank.arrive_after(now, 1. / (load * SERVERS as f64));
                queue.push_back(now);
                Some(bank.choose()).filter(|i| bank.is_free(*i))
            }
            Event::Delivery(i, customer) => {
                bank.leave(i, customer);
                Some(i)
            }
        };
        if let Some((i, since)) = free.and_then(|i| Some((i, queue.pop_front()?))) {
            waits.push(services(since, now));
            bank.enter(i, now, since);
        }
    }
    let waits = &waits[WARM_UP..];
    let waited = waits.iter().filter(|wait| **wait > 0.).count();
    vec![waited as f64 / waits.len() as f64, mean(waits)]
}

/// Erlang C.
fn judge_mmc(observed: &Observed, _: Effort) -> Vec<Check> {
    let offered = MMC_LOAD * SERVERS as f64;
    let term = |k: usize| (1..=k).fold(1., |term, i| term * offered / i as f64);
    let full = term(SERVERS) / (1. - MMC_LOAD);
    let waits = full / ((0..SERVERS).map(term).sum::<f64>() + full);
    let wait = waits / (SERVERS as f64 * (1. - MMC_LOAD));
    let check = |i, name: &str, unit, expected, part| {
        let name = format!("M/M/{SERVERS} at ρ = {MMC_LOAD}, {name}");
        let tolerance = Tolerance::Relative(part);
        Check::new(5, name, unit, &observed.column(i), expected, tolerance)
    };
    vec![
        check(0, "share that waits", "", waits, 0.01),
        check(1, "time waiting", "1/μ", wait, 0.03),
    ]
}

const USERS: usize = 20;
/// Mean, in service times.
const THINK: f64 = 15.;

/// Users who think, ask one server, and think again: throughput, response time, think time.
fn measure_closed(seed: u64, effort: Effort) -> Vec<f64> {
    closed(seed, effort, THINK)
}

fn closed(seed: u64, effort: Effort, think: f64) -> Vec<f64> {
    let answers = effort.of(60_000, 400_000);
    let mut bank = Bank::new(seed, 1, Dispatch::Weighted);
    for _ in 0..USERS {
        bank.arrive_after(Time::ZERO, think);
    }
    let (mut responses, mut thoughts) = (Vec::new(), Vec::new());
    let (mut begun, mut ended) = (Time::ZERO, Time::ZERO);
    while responses.len() < answers {
        let (now, event) = bank.events.pop().expect("users never leave");
        match event {
            Event::Arrival => bank.enter(0, now, now),
            Event::Delivery(i, customer) => {
                responses.push(services(bank.leave(i, customer), now));
                thoughts.push(bank.arrive_after(now, think));
                ended = now;
                if responses.len() == WARM_UP {
                    begun = now;
                }
            }
        }
    }
    let answered = (answers - WARM_UP) as f64;
    vec![
        answered / services(begun, ended),
        mean(&responses[WARM_UP..]),
        mean(&thoughts[WARM_UP..]),
    ]
}

fn judge_closed(observed: &Observed, _: Effort) -> Vec<Check> {
    let users = USERS as f64;
    let (throughput, response, think) =
        (observed.column(0), observed.column(1), observed.column(2));
    let cycle = response.iter().zip(&think).map(|(r, z)| r + z);
    let present: Vec<f64> = throughput.iter().zip(cycle).map(|(x, c)| x * c).collect();
    // The machine repairman: with k of N users at it, a server has the odds N! / (N − k)! / Zᵏ of being found so.
    let states = (0..=USERS).map(|k| (0..k).map(|i| (users - i as f64) / THINK).product::<f64>());
    let expected = 1. - 1. / states.sum::<f64>();
    let named = |name: &str| format!("{USERS} closed users, Z = {THINK}, {name}");
    let tolerance = Tolerance::Relative(0.01);
    vec![
        Check::new(6, named("X · (R + Z)"), "users", &present, users, tolerance).identity(),
        Check::new(
            6,
            named("throughput"),
            "μ",
            &throughput,
            expected,
            tolerance,
        ),
    ]
}

const JSQ_LOAD: f64 = 0.9;
/// How many queues everybody compares, by which dispatch, and the tolerance: queues that nobody compares remember long how
/// full they were.
const JSQ_CHOICES: [(u32, Dispatch, f64); 2] =
    [(1, Dispatch::Random, 0.05), (2, Dispatch::RandomTwo, 0.02)];
/// As many as the product may choose among; enough that the limit of infinitely many is within 1 %.
const JSQ_SERVERS: usize = MAX_TARGETS;

/// Servers with at least `length` customers in the limit, Mitzenmacher and Vvedenskaya: ρ^((dⁱ − 1) / (d − 1)).
fn jsq_share(choices: u32, length: u32) -> f64 {
    let exponent: u64 = (0..length).map(|i| u64::from(choices).pow(i)).sum();
    JSQ_LOAD.powf(exponent as f64)
}

fn measure_jsq(seed: u64, effort: Effort) -> Vec<f64> {
    jsqs(seed, effort, JSQ_LOAD)
}

fn jsqs(seed: u64, effort: Effort, load: f64) -> Vec<f64> {
    JSQ_CHOICES
        .into_iter()
        .map(|(choices, dispatch, _)| jsq(seed, choices, dispatch, load, effort))
        .collect()
}

/// Mean time in system where everybody joins the shortest of `choices` queues, as `dispatch` does. Begins as it will stay,
/// and ends when the last of those who count has left.
fn jsq(seed: u64, choices: u32, dispatch: Dispatch, load: f64, effort: Effort) -> f64 {
    let customers = effort.of(60_000, 400_000);
    let mut bank = Bank::new(seed, JSQ_SERVERS, dispatch);
    for i in 0..JSQ_SERVERS {
        let draw: f64 = bank.draws.random();
        for _ in (1..).take_while(|length| draw < jsq_share(choices, *length)) {
            bank.enter(i, Time::ZERO, Time::ZERO);
        }
    }
    bank.arrive_after(Time::ZERO, 1. / (load * JSQ_SERVERS as f64));
    let (mut arrived, mut last) = (0, Time::ZERO);
    let (mut total, mut counted) = (0., 0);
    while counted < customers {
        let (now, event) = bank.events.pop().expect("arrivals never end");
        match event {
            Event::Arrival => {
                bank.arrive_after(now, 1. / (load * JSQ_SERVERS as f64));
                let shortest = bank.choose();
                bank.enter(shortest, now, now);
                arrived += 1;
                if arrived <= customers {
                    last = now;
                }
            }
            Event::Delivery(i, customer) => {
                let since = bank.leave(i, customer);
                if since > Time::ZERO && since <= last {
                    total += services(since, now);
                    counted += 1;
                }
            }
        }
    }
    total / counted as f64
}

fn judge_jsq(observed: &Observed, _: Effort) -> Vec<Check> {
    let checks = JSQ_CHOICES
        .into_iter()
        .enumerate()
        .map(|(i, (choices, _, part))| {
            let present: f64 = (1..200)
                .map(|length| jsq_share(choices, length))
                .take_while(|share| *share > 1e-12)
                .sum();
            let name = format!(
                "shortest of {choices} of {JSQ_SERVERS} queues at ρ = {JSQ_LOAD}, time in system"
            );
            let (times, expected) = (observed.column(i), present / JSQ_LOAD);
            Check::new(7, name, "1/μ", &times, expected, Tolerance::Relative(part))
        });
    checks.collect()
}
