//! Table IV: the same trace outward and inward at once, links chosen by the load of the connection's own direction or by
//! the mean of both.
//!
//! What the choice sees of an inward connection and what its bytes meet is all there is to it, so it runs in the fluid
//! model, where links are full duplex. The recording is replayed twice, and every inward connection begins after its
//! twin by the time of its question to the name server. The paper does not say how long that took, and the gain hangs on
//! it: the note of a run has the gains for other times.

use std::sync::Arc;
use std::time::Duration;

use anabranch_report::chart::Chart;
use anabranch_scenario::stats::{Estimate, median};
use anabranch_scenario::{Direction, Network, Scenario};
use anabranch_sim::fluid::{Counted, Flow, Sharing};

use super::trace::Trace;
use crate::{Context, ExperimentError, Findings, Sample};

/// A question to the name server takes a round trip of a link of the scenario that nobody else uses.
const ASKING: Duration = Duration::from_millis(10);
/// Other times that an inward connection may begin after its twin.
const LAGS_MS: [u64; 9] = [1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000];
/// What table IV says: incoming and outgoing by the mean of both directions, then by the own one.
const PUBLISHED_S: [(Trace, [f64; 4]); 2] = [
    (Trace::One, [45_462.0, 34_924.0, 36_475.0, 35_034.0]),
    (Trace::Two, [4_474.0, 3_885.0, 2_623.0, 2_685.0]),
];

/// Its key, what a choice counts, and which of the sums it is.
type Cell = (&'static str, Counted, fn(Sums) -> f64);

/// The cells of a trace, in the same order.
const CELLS: [Cell; 4] = [
    ("both_in", Counted::BothWays, |sums| sums.inward_s),
    ("both_out", Counted::BothWays, |sums| sums.outward_s),
    ("own_in", Counted::OwnWay, |sums| sums.inward_s),
    ("own_out", Counted::OwnWay, |sums| sums.outward_s),
];

/// One replay: sums of durations of the inward and of the outward connections.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sums {
    inward_s: f64,
    outward_s: f64,
}

impl Sums {
    fn total_s(self) -> f64 {
        self.inward_s + self.outward_s
    }
}

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let mut findings = Findings::default();
    let mut chart = Chart::new(
        "Table IV",
        "inward connections begin after their twins, s",
        "sum by both directions, of that by the own",
    )
    .log_x();
    let mut gains = Vec::new();
    for (trace, published_s) in PUBLISHED_S {
        let replay = Replay::new(context, trace)?;
        let gain = replay.gains(ASKING)?;
        findings.observe(format!("{}_gain", trace.name()), gain.median());
        gains.push(gain);
        replay.observe_cells(&mut findings)?;
        let mut curve = Vec::new();
        for lag in LAGS_MS.map(Duration::from_millis) {
            curve.push((lag.as_secs_f64(), replay.gains(lag)?.plotted_median()));
        }
        findings.note(described(trace, &replay, &curve)?);
        let level = published_gain(published_s);
        let ends = [curve[0].0, curve[curve.len() - 1].0];
        chart = chart.estimates(trace.name(), curve).dashed(
            format!("{}, published", trace.name()),
            ends.map(|lag_s| (lag_s, level)),
        );
    }
    findings.observe("trace2_gains_more", gains[1].per(&gains[0]).median());
    findings.plot("table4", chart);
    Ok(findings)
}

fn published_gain([both_in, both_out, own_in, own_out]: [f64; 4]) -> f64 {
    (both_in + both_out) / (own_in + own_out)
}

/// The gains at other times, in words.
fn described(
    trace: Trace,
    replay: &Replay<'_>,
    curve: &[(f64, Estimate)],
) -> Result<String, ExperimentError> {
    let together = median(&replay.gains(Duration::ZERO)?.values());
    let at: Vec<String> = curve
        .iter()
        .map(|(lag_s, gain)| format!("{:.3} after {lag_s} s", gain.median))
        .collect();
    Ok(format!(
        "{}, gain if twins begin together {together:.3}; {}",
        trace.name(),
        at.join(", ")
    ))
}

/// A trace sent both ways.
struct Replay<'a> {
    context: &'a Context<'a>,
    trace: Trace,
    scenario: Arc<Scenario>,
}

impl<'a> Replay<'a> {
    fn new(context: &'a Context<'a>, trace: Trace) -> Result<Self, ExperimentError> {
        let scenario = trace.over(context.files, 2)?;
        Ok(Replay {
            context,
            trace,
            scenario,
        })
    }

    fn rates_bps(&self) -> Vec<u64> {
        match &self.scenario.network {
            Network::Site(site) => site.links.iter().map(|link| link.up.rate_bps).collect(),
            Network::Trunk(_) => Vec::new(),
        }
    }

    /// What the connections of one direction put on the wire.
    fn flows(
        &self,
        seed: u64,
        direction: Direction,
        lag: Duration,
    ) -> Result<Vec<Flow>, ExperimentError> {
        let tcp = &self.scenario.tcp;
        let arrivals = self.trace.arrivals(self.context.files, seed)?;
        // Ports in turn.
        let flow = |(arrival, hash): (&anabranch_workload::Arrival, u32)| {
            let segments = arrival.bytes.div_ceil(tcp.mss_bytes.into());
            Flow {
                at: arrival.at + lag,
                bytes: arrival.bytes + segments * u64::from(tcp.header_bytes),
                direction,
                hash,
            }
        };
        Ok(arrivals.iter().zip(0..).map(flow).collect())
    }

    fn sums(&self, seed: u64, lag: Duration, counted: Counted) -> Result<Sums, ExperimentError> {
        let trace = self.trace.name();
        let run = format!("{trace} both ways, {counted:?}, {lag:?} apart, seed {seed}");
        self.context.numbers(&run, seed, || {
            let mut flows = self.flows(seed, Direction::Up, Duration::ZERO)?;
            flows.extend(self.flows(seed, Direction::Down, lag)?);
            flows.sort_by_key(|flow| flow.at);
            self.serve(&self.rates_bps(), counted, seed, &flows)
        })
    }

    /// All outward connections over one link.
    fn one_s(&self, seed: u64) -> Result<f64, ExperimentError> {
        let run = format!("{} one way, one link, seed {seed}", self.trace.name());
        let one = self.context.numbers(&run, seed, || {
            let flows = self.flows(seed, Direction::Up, Duration::ZERO)?;
            self.serve(&self.rates_bps()[..1], Counted::BothWays, seed, &flows)
        })?;
        Ok(one.outward_s)
    }

    fn serve(
        &self,
        rates_bps: &[u64],
        counted: Counted,
        seed: u64,
        flows: &[Flow],
    ) -> Result<Sums, ExperimentError> {
        let lcf = "LCF".parse().expect("a row of the table");
        let sharing = Sharing::Chosen(lcf, counted);
        let copied = flows.iter().copied();
        let served = self.context.serve(rates_bps, sharing, seed, copied)?;
        let of = |direction| {
            let pairs = flows.iter().zip(&served);
            let mine = pairs.filter(|(flow, _)| flow.direction == direction);
            mine.map(|(_, served)| served.duration_s).sum()
        };
        Ok(Sums {
            inward_s: of(Direction::Down),
            outward_s: of(Direction::Up),
        })
    }

    /// By seed, the sum of all durations by the load of both directions over that by the own direction's.
    fn gains(&self, lag: Duration) -> Result<Sample, ExperimentError> {
        let gain = |seed| {
            let both = self.sums(seed, lag, Counted::BothWays)?;
            let own = self.sums(seed, lag, Counted::OwnWay)?;
            Ok((seed, both.total_s() / own.total_s()))
        };
        self.context.seeds().into_iter().map(gain).collect()
    }

    /// The cells of the table, as ratios to the trace over one link.
    fn observe_cells(&self, findings: &mut Findings) -> Result<(), ExperimentError> {
        for (name, counted, of) in CELLS {
            let ratio = |seed| {
                let cell_s = of(self.sums(seed, ASKING, counted)?);
                Ok((seed, cell_s / self.one_s(seed)?))
            };
            let seeds = self.context.seeds().into_iter();
            let ratios: Sample = seeds.map(ratio).collect::<Result<_, ExperimentError>>()?;
            findings.observe(format!("{}_{name}", self.trace.name()), ratios.median());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::guo::tests::files;
    use crate::run::tests::context;

    /// Each finds its twin on the one link and takes the other, so that either direction has one link to itself.
    #[test]
    fn twins_that_begin_together_use_one_link_each_way_unless_each_direction_is_counted() {
        let (options, files) = (Options::default(), files());
        let context = context(&options, &files);
        let replay = Replay::new(&context, Trace::Two).expect("reads");
        let alone_s = replay.one_s(1).expect("serves");
        let both = replay
            .sums(1, Duration::ZERO, Counted::BothWays)
            .expect("serves");
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
        assert!(near(both.outward_s, alone_s) && near(both.inward_s, alone_s));
        let own = replay
            .sums(1, Duration::ZERO, Counted::OwnWay)
            .expect("serves");
        assert!(own.total_s() < 0.6 * both.total_s());
        let gain = replay.gains(ASKING).expect("serves").values()[0];
        assert!(gain > 1.0 && gain < both.total_s() / own.total_s());
    }
}
