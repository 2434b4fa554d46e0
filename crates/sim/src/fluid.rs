//! The fluid limit: flows instead of packets.
//!
//! A link is shared equally at every instant by the flows on it (processor sharing): what TCP tends to when flows are
//! long for the round trip and the buffer. There are no packets, round trips or losses, so what a policy gains here it
//! gains by its choices alone. Flows come in the open loop and never change their link. A link carries as much one way
//! as the other, and what goes one way is in nobody's way that goes the other.
//!
//! Time is exact: between two events each link serves every flow of it at the same rate, so one number per link, the
//! bits that each flow was served since the link was last idle, is a clock by which every flow's end is known when it
//! begins. An event costs the logarithm of the number of flows.
//!
//! The gateway's links are chosen by the balancer's own weights and the choice of `bpf/policy/choose.h`. Algorithms that
//! measure links periodically have nothing to measure here and are refused.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

use anabranch_core::catalogue::Facts;
use anabranch_core::measure::Distance;
use anabranch_core::{
    Algorithm, Balancer, BuildError, ClassId, ClassSpec, Config, LinkCounters, LinkId, LinkSpec,
    LinkState, Time,
};
use anabranch_policy::abi::Choice;
use anabranch_policy::{Gauges, Granularity, NO_TABLE, Request, choose};
use anabranch_scenario::Direction;

use crate::draws::Draws;
use crate::gateway::FAMILY;

/// How flows share the links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// All links are one, as if every packet could take any: the ideal of packet-by-packet spreading.
    Pooled,
    /// Each flow is bound to a link when it begins.
    Chosen(Algorithm, Counted),
}

/// The flows that are a link's load when a link is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// All, as the gateway counts: it need not know which way a flow will go.
    BothWays,
    /// Those that go the way of the new one.
    OwnWay,
}

/// One transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// When it begins.
    pub at: Duration,
    /// Of the transfer; above 0.
    pub bytes: u64,
    /// Which way the bytes go.
    pub direction: Direction,
    /// Of its addresses and ports, see [`Choice::hash_for`].
    pub hash: u32,
}

/// What became of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served {
    /// From its beginning to its last bit, in seconds.
    pub duration_s: f64,
    /// None if the links are pooled.
    pub link: Option<LinkId>,
}

/// Why there is no fluid model of this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum FluidError {
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(
        "{0} measures links every period, and there is nothing to measure in a fluid: choose a policy that counts flows or hashes"
    )]
    Periodic(Algorithm),
    #[error(
        "{0} chooses once for each pair of hosts, and fluid flows have no hosts: choose one per connection"
    )]
    Session(Algorithm),
    #[error(
        "{0} compares links by how fast destinations answer, and in a fluid nobody does: choose a policy that counts flows or hashes"
    )]
    Destination(Algorithm),
}

/// Serves `flows`, which must come in the order of their beginnings, over links of `rates_bps`, and says what became of
/// each, in the same order. `seed` is that of random choices.
///
/// # Errors
/// If the sharing is not possible over these links, or not in a fluid.
pub fn serve(
    rates_bps: &[u64],
    sharing: Sharing,
    seed: u64,
    flows: impl IntoIterator<Item = Flow>,
) -> Result<Vec<Served>, FluidError> {
    let mut fluid = Fluid::new(rates_bps, sharing, seed)?;
    for flow in flows {
        fluid.begin(flow);
    }
    Ok(fluid.finish())
}

/// The gateway's part: which link a flow takes.
#[derive(Debug)]
struct Gateway {
    counted: Counted,
    choice: Choice,
    gauges: Box<Gauges>,
    /// By link and direction.
    dispatched: Vec<[u32; 2]>,
    draws: Draws,
}

impl Gateway {
    fn new(
        rates_bps: &[u64],
        algorithm: Algorithm,
        counted: Counted,
        seed: u64,
    ) -> Result<Gateway, FluidError> {
        if algorithm.measure.ranks() {
            return Err(FluidError::Periodic(algorithm));
        }
        if algorithm.granularity != Granularity::Connection {
            return Err(FluidError::Session(algorithm));
        }
        if algorithm.distance() == Distance::Destination {
            return Err(FluidError::Destination(algorithm));
        }
        let choice = first_choice(rates_bps, algorithm)?;
        Ok(Gateway {
            counted,
            choice,
            gauges: Box::default(),
            dispatched: vec![[0; 2]; rates_bps.len()],
            draws: Draws::new(seed, 0),
        })
    }

    /// Of links that carry `active` flows each, by direction.
    fn choose(&mut self, flow: &Flow, active: impl Iterator<Item = [u32; 2]>) -> usize {
        let way = way(flow.direction);
        let counted = |flows: [u32; 2]| match self.counted {
            Counted::BothWays => u64::from(flows[0]) + u64::from(flows[1]),
            Counted::OwnWay => flows[way].into(),
        };
        let links = active.zip(&self.dispatched);
        for (gauge, (active, dispatched)) in self.gauges.target.iter_mut().zip(links) {
            gauge.opened = counted(active);
            gauge.dispatched = counted(*dispatched);
        }
        let request = Request {
            hash: flow.hash,
            draw: self.draws.next(ClassId::DEFAULT, &self.choice, false),
            ..Request::default()
        };
        let target = choose(&self.choice, &self.gauges, &NO_TABLE, &request).target;
        let link = usize::from(target.expect("every link is usable"));
        self.dispatched[link][way] += 1;
        link
    }
}

/// Where a direction stands in a pair.
fn way(direction: Direction) -> usize {
    match direction {
        Direction::Down => 0,
        Direction::Up => 1,
    }
}

/// The balancer's choice with all links present and idle.
fn first_choice(rates_bps: &[u64], algorithm: Algorithm) -> Result<Choice, BuildError> {
    let links = rates_bps
        .iter()
        .enumerate()
        .map(|(link, &rate_bps)| LinkSpec {
            name: link.to_string(),
            rate_up_bps: Some(rate_bps),
            rate_down_bps: Some(rate_bps),
            ..LinkSpec::default()
        });
    let classes = ClassSpec::alone(algorithm);
    let mut balancer = Balancer::new(Time::ZERO, classes, links.collect(), Config::default())?;
    for link in 0..rates_bps.len() as u16 {
        balancer.handle_link_state(Time::ZERO, LinkId(link), FAMILY, LinkState::Present);
    }
    balancer.handle_counters(Time::ZERO, &vec![LinkCounters::default(); rates_bps.len()]);
    let mut choices = std::iter::from_fn(|| balancer.poll_choice());
    let (.., choice) = choices
        .find(|(_, family, _)| *family == FAMILY)
        .expect("the first counters bring a choice");
    Ok(choice)
}

#[derive(Debug)]
struct Fluid {
    /// By link and direction.
    links: Vec<[Shared; 2]>,
    gateway: Option<Gateway>,
    served: Vec<Served>,
}

impl Fluid {
    fn new(rates_bps: &[u64], sharing: Sharing, seed: u64) -> Result<Fluid, FluidError> {
        let (links, gateway) = match sharing {
            Sharing::Pooled => (vec![rates_bps.iter().sum()], None),
            Sharing::Chosen(algorithm, counted) => {
                let gateway = Gateway::new(rates_bps, algorithm, counted, seed)?;
                (rates_bps.to_vec(), Some(gateway))
            }
        };
        Ok(Fluid {
            links: links
                .into_iter()
                .map(|rate_bps| [Shared::new(rate_bps), Shared::new(rate_bps)])
                .collect(),
            gateway,
            served: Vec::new(),
        })
    }

    fn begin(&mut self, flow: Flow) {
        let now_s = flow.at.as_secs_f64();
        for shared in self.links.as_flattened_mut() {
            shared.run(now_s, &mut self.served);
        }
        let count = |link: &[Shared; 2]| link.each_ref().map(|shared| shared.flows.len() as u32);
        let active = self.links.iter().map(count);
        let gateway = self.gateway.as_mut();
        let link = gateway.map(|gateway| gateway.choose(&flow, active));
        let shared = &mut self.links[link.unwrap_or(0)][way(flow.direction)];
        shared.add(now_s, flow.bytes, self.served.len());
        self.served.push(Served {
            duration_s: 0.0,
            link: link.map(|link| LinkId(link as u16)),
        });
    }

    fn finish(mut self) -> Vec<Served> {
        for shared in self.links.as_flattened_mut() {
            shared.run(f64::INFINITY, &mut self.served);
        }
        self.served
    }
}

/// One direction of a link under processor sharing.
#[derive(Debug)]
struct Shared {
    rate_bps: f64,
    now_s: f64,
    /// Bits that a flow present since the link was last idle has been served.
    served_bit: f64,
    flows: BinaryHeap<Reverse<Present>>,
}

/// A flow on a link, ordered by its end.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Present {
    /// [`Shared::served_bit`] at its end.
    end_bit: f64,
    begun_s: f64,
    index: usize,
}

impl Eq for Present {}

impl PartialOrd for Present {
    fn partial_cmp(&self, other: &Present) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Present {
    fn cmp(&self, other: &Present) -> Ordering {
        let by_end = self.end_bit.total_cmp(&other.end_bit);
        by_end.then(self.index.cmp(&other.index))
    }
}

impl Shared {
    fn new(rate_bps: u64) -> Shared {
        Shared {
            rate_bps: rate_bps as f64,
            now_s: 0.0,
            served_bit: 0.0,
            flows: BinaryHeap::new(),
        }
    }

    fn add(&mut self, now_s: f64, bytes: u64, index: usize) {
        self.flows.push(Reverse(Present {
            end_bit: self.served_bit + bytes as f64 * 8.0,
            begun_s: now_s,
            index,
        }));
    }

    /// Serves until `now_s`; flows that end at that very instant have ended.
    fn run(&mut self, now_s: f64, served: &mut [Served]) {
        while let Some(&Reverse(next)) = self.flows.peek() {
            let per_flow_bps = self.rate_bps / self.flows.len() as f64;
            let end_s = self.now_s + (next.end_bit - self.served_bit) / per_flow_bps;
            if end_s > now_s {
                self.served_bit += (now_s - self.now_s) * per_flow_bps;
                break;
            }
            self.flows.pop();
            self.now_s = end_s;
            self.served_bit = next.end_bit;
            served[next.index].duration_s = end_s - next.begun_s;
        }
        if self.flows.is_empty() {
            // The clock begins anew, and keeps its precision however long the run.
            self.served_bit = 0.0;
        }
        self.now_s = now_s;
    }
}

#[cfg(test)]
mod tests;
