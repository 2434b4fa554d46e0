//! The runs behind the figures, and what is kept of each.

use anabranch_scenario::stats::{Estimate, mean};
use anabranch_scenario::{
    Direction, Load, Policy, Record, Run, Scenario, ScenarioFile, Spread, Transfer,
};

use crate::{Context, ExperimentError, Sample, simulate};

/// The paper's scenario.
pub(super) const JO: &str = "jo.toml";
/// All flows alike, and a sublink that falls back.
pub(super) const EQUAL: &str = "equal.toml";

pub(super) const SH: Policy = Policy::trunk(Spread::Hash);
pub(super) const DH: Policy = Policy::trunk(Spread::Dh);
pub(super) const DHFV: Policy = Policy::trunk(Spread::Dhfv);
pub(super) const DRR: Policy = Policy::trunk(Spread::Drr);
pub(super) const SINGLE: Policy = Policy::trunk(Spread::Single);

/// The paper draws bits per sublink, and a busy sublink at what it sends in a second.
pub(super) const INTERVAL_S: f64 = 1.0;
/// Of the peak rate, for which the paper names no interval.
pub(super) const PEAK_INTERVAL_S: f64 = 0.2;
pub(super) const KB: f64 = 1000.0;
/// Of the undivided link, and of all sublinks together.
pub(super) const CAPACITY_BPS: f64 = 44_736_000.0;

/// One run.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub length_s: f64,
    /// Of each sublink, its mean rate in every [`INTERVAL_S`].
    pub sublinks_bps: Vec<Vec<f64>>,
    /// What all sublinks together carried in the busiest [`PEAK_INTERVAL_S`], as a part of what they can carry.
    pub peak: f64,
    /// In all sublinks' queues.
    pub lost_bytes: f64,
    pub reassignments: f64,
    pub reordered: f64,
    /// What the servers' TCP sent, retransmissions included, and what the clients' received of it in order.
    pub sent_bytes: f64,
    pub received_bytes: f64,
    /// What left the sublinks, retransmissions and headers included.
    pub carried_bytes: f64,
    pub retransmitted_bytes: f64,
}

impl Outcome {
    pub fn of(run: &Run, record: &Record) -> Outcome {
        let scenario = &run.scenario;
        let length_s = scenario.limit.as_secs_f64();
        let counts = &record.counts;
        let in_intervals = |interval_s: f64| -> Vec<Vec<f64>> {
            let intervals = (length_s / interval_s).round() as usize;
            let series = record.series.iter();
            series
                .map(|series| series.down_bps_in_bins(0.0, length_s, intervals))
                .collect()
        };
        let header_bytes = f64::from(scenario.tcp.header_bytes) * counts.offered.packets as f64;
        Outcome {
            length_s,
            sublinks_bps: in_intervals(INTERVAL_S),
            peak: load(&in_intervals(PEAK_INTERVAL_S))
                .into_iter()
                .fold(0.0, f64::max),
            lost_bytes: counts.overflowed.bytes as f64,
            reassignments: counts.reassignments as f64,
            reordered: counts.reordered as f64,
            sent_bytes: counts.offered.bytes as f64 - header_bytes,
            received_bytes: received_bytes(run, &record.transfers),
            carried_bytes: counts.delivered.bytes as f64,
            retransmitted_bytes: counts.retransmitted.bytes as f64,
        }
    }

    /// All sublinks together in every interval, as a part of what they can carry.
    pub fn load(&self) -> Vec<f64> {
        load(&self.sublinks_bps)
    }

    /// Mean part of the capacity in use.
    pub fn utilisation(&self) -> f64 {
        self.carried_bytes * 8.0 / self.length_s / CAPACITY_BPS
    }

    /// The most that a sublink carried in an interval over what the mean sublink did, on average over the intervals in
    /// which anything was carried. 1 is even.
    pub fn imbalance(&self) -> f64 {
        let share = |i: usize| {
            let carried: Vec<f64> = self.sublinks_bps.iter().map(|bps| bps[i]).collect();
            let most = carried.iter().copied().fold(0.0, f64::max);
            most / mean(&carried)
        };
        let intervals = 0..self.sublinks_bps.first().map_or(0, Vec::len);
        let shares: Vec<f64> = intervals.map(share).filter(|x| x.is_finite()).collect();
        mean(&shares)
    }

    /// Part of all intervals of all sublinks in which one sent all it can, to 1 %.
    pub fn saturated(&self) -> f64 {
        let rate_bps = CAPACITY_BPS / self.sublinks_bps.len() as f64;
        let is_full = |bps: &f64| f64::from(u8::from(*bps >= 0.99 * rate_bps));
        let full: Vec<f64> = self.sublinks_bps.iter().flatten().map(is_full).collect();
        mean(&full)
    }
}

/// All sublinks together in every interval, as a part of what they can carry.
fn load(sublinks_bps: &[Vec<f64>]) -> Vec<f64> {
    let intervals = sublinks_bps.first().map_or(0, Vec::len);
    let total = |i: usize| sublinks_bps.iter().map(|bps| bps[i]).sum::<f64>();
    (0..intervals).map(|i| total(i) / CAPACITY_BPS).collect()
}

/// Files that came down, and the answers to what went up.
fn received_bytes(run: &Run, transfers: &[Transfer]) -> f64 {
    let Load::Arrivals(plan) = run.load() else {
        return f64::NAN;
    };
    let received = |(direction, transfer): (Direction, &Transfer)| match direction {
        Direction::Down => transfer.bytes,
        Direction::Up if transfer.outcome.is_ok() => anabranch_sim::HEAD_BYTES,
        Direction::Up => 0,
    };
    let directions = plan.arrivals().map(|arrival| arrival.direction);
    directions.zip(transfers).map(received).sum::<u64>() as f64
}

/// The runs of `file` under these policies.
pub(super) fn trials(
    file: ScenarioFile,
    policies: &[Policy],
    seeds: &[u64],
) -> Result<Vec<Run>, ExperimentError> {
    let names: Vec<String> = policies.iter().map(Policy::to_string).collect();
    let bad = |bad| ExperimentError::run("the experiment's scenario", bad);
    let file = file.with_policies(&names).map_err(bad)?;
    Ok(file.with_seeds(seeds).map_err(bad)?.runs())
}

/// What came of the runs.
#[derive(Debug)]
pub(super) struct Outcomes(Vec<(Run, Outcome)>);

impl Outcomes {
    /// In the simulator, under every seed that is asked for.
    pub fn of(
        context: &Context,
        file: ScenarioFile,
        policies: &[Policy],
    ) -> Result<Outcomes, ExperimentError> {
        let runs = trials(file, policies, &context.seeds())?;
        let outcomes = simulate(context, &runs, Outcome::of)?;
        Ok(Outcomes::paired(runs, outcomes))
    }

    /// The paper's scenario.
    pub fn of_jo(context: &Context, policies: &[Policy]) -> Result<Outcomes, ExperimentError> {
        Outcomes::of(context, context.files.scenario(JO)?, policies)
    }

    pub fn paired(runs: Vec<Run>, outcomes: Vec<Outcome>) -> Outcomes {
        Outcomes(runs.into_iter().zip(outcomes).collect())
    }

    pub fn under(&self, policy: Policy) -> impl Iterator<Item = (&Run, &Outcome)> {
        let all = self.0.iter().map(|(run, outcome)| (run, outcome));
        all.filter(move |(run, _)| run.policy == policy)
    }

    /// A quantity by seed.
    pub fn sample(&self, policy: Policy, of: impl Fn(&Outcome) -> f64) -> Sample {
        let mine = self.under(policy);
        mine.map(|(run, outcome)| (run.seed, of(outcome))).collect()
    }

    /// A quantity by seed, where the sweep's key has this value.
    pub fn sample_at(&self, policy: Policy, value: &str, of: impl Fn(&Outcome) -> f64) -> Sample {
        let here = self
            .under(policy)
            .filter(|(run, _)| run.point.iter().any(|(_, set)| *set == value));
        here.map(|(run, outcome)| (run.seed, of(outcome))).collect()
    }
}

/// At every point of a sweep: what is written there, and where it is drawn.
pub(super) fn by_point(
    outcomes: &Outcomes,
    policy: Policy,
    points: &[(String, f64)],
    of: impl Fn(&Outcome) -> f64,
) -> Vec<(f64, Estimate)> {
    let at = |(written, x): &(String, f64)| {
        let here = outcomes.sample_at(policy, written, &of);
        (*x, here.plotted())
    };
    points.iter().map(at).collect()
}

/// A mean for reading, with its confidence interval if it has one.
pub(super) fn words(sample: &Sample, decimals: usize) -> String {
    let Estimate { mean, count, .. } = sample.plotted();
    match count {
        0 | 1 => format!("{mean:.decimals$}"),
        _ => format!(
            "{mean:.decimals$} ± {:.decimals$}",
            sample.plotted().half_width()
        ),
    }
}

/// Bytes of every flow in the loaded direction as planned, greatest first: payload, headers and acknowledgements.
pub(super) fn flow_bytes(scenario: &Scenario, run: &Run) -> Vec<u64> {
    let Load::Arrivals(plan) = run.load() else {
        return Vec::new();
    };
    let (mss, header) = (
        u64::from(scenario.tcp.mss_bytes),
        u64::from(scenario.tcp.header_bytes),
    );
    // SYN-ACK and FIN, and an acknowledgement of the request or of every second segment.
    let answer = |bytes: u64| bytes + header * (2 + bytes.div_ceil(mss));
    let mut bytes: Vec<u64> = plan
        .arrivals()
        .map(|arrival| match arrival.direction {
            Direction::Down => answer(arrival.bytes) + header,
            Direction::Up => {
                let segments = (anabranch_sim::HEAD_BYTES + arrival.bytes).div_ceil(mss);
                answer(anabranch_sim::HEAD_BYTES) + header * segments.div_ceil(2)
            }
        })
        .collect();
    bytes.sort_unstable_by(|a, b| b.cmp(a));
    bytes
}
