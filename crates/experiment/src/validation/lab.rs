//! The same scenario in both worlds: the simulator beside real kernels.

use std::collections::BTreeMap;

use anabranch_report::chart::Chart;
use anabranch_results::Summary;
use anabranch_scenario::{Buffer, Control, Loss, Network, Record, Run};
use anabranch_workload::Transfer;

use crate::{Context, ExperimentError, Findings, Sample, carry_out, simulate};

const SCENARIOS: [&str; 2] = ["arrivals", "downloads"];
/// What every scenario sweeps over.
const CONTROLS: [(&str, Control); 2] = [("reno", Control::Reno), ("cubic", Control::Cubic)];

pub(super) fn lab(context: &Context) -> Result<Findings, ExperimentError> {
    let mut findings = Findings::default();
    for name in SCENARIOS {
        let file = context.files.scenario(&format!("lab-{name}.toml"))?;
        let all = file.with_seeds(&context.seeds())?.runs();
        for (word, control) in CONTROLS {
            let runs = all.iter().filter(|run| run.scenario.tcp.control == control);
            let runs: Vec<Run> = runs.cloned().collect();
            let simulated = by_seed(&runs, simulate(context, &runs, Seen::of)?);
            let real = by_seed(&runs, carry_out(context, &runs, Seen::of)?);
            compare(&format!("{name}-{word}"), &simulated, &real, &mut findings);
        }
    }
    Ok(findings)
}

/// One download for each TCP, buffer and rate of loss.
pub(super) fn bulk(context: &Context) -> Result<Findings, ExperimentError> {
    let file = context.files.scenario("lab-bulk.toml")?;
    let runs = file.with_seeds(&context.seeds())?.runs();
    let simulated = by_cell(&runs, simulate(context, &runs, Fetched::of)?);
    let real = by_cell(&runs, carry_out(context, &runs, Fetched::of)?);
    let mut findings = Findings::default();
    for (name, here) in &simulated {
        let there = &real[name];
        let goodput = goodput_of(here).per(&goodput_of(there));
        findings.observe(format!("{name}_goodput"), goodput.mean());
        let drops = drops_of(here).per(&drops_of(there));
        findings.observe(format!("{name}_drops"), drops.mean());
        findings.note(format!("{name}: {}, {}", told(here), told(there)));
    }
    Ok(findings)
}

/// What came of one download.
#[derive(Clone)]
struct Fetched {
    goodput_bps: f64,
    /// By queue and line.
    dropped: u64,
}

impl Fetched {
    fn of(_: &Run, record: &Record) -> Self {
        let counts = record.counts;
        Self {
            goodput_bps: record.transfers.iter().map(Transfer::throughput_bps).sum(),
            dropped: counts.overflowed.packets + counts.lost.packets,
        }
    }
}

type ByCell = BTreeMap<String, BTreeMap<u64, Fetched>>;

fn by_cell(runs: &[Run], fetched: Vec<Fetched>) -> ByCell {
    let mut cells = ByCell::new();
    for (run, fetched) in runs.iter().zip(fetched) {
        let cell = cells.entry(cell(run)).or_default();
        cell.insert(run.seed, fetched);
    }
    cells
}

/// As in `expected.toml`: TCP, kilobytes of buffer, losses in a thousand packets.
fn cell(run: &Run) -> String {
    let tcp = match run.scenario.tcp.control {
        Control::Reno => "sack",
        Control::Cubic | Control::CubicLinux => "cubic",
        Control::Bbr => "bbr",
    };
    let Network::Site(site) = &run.scenario.network else {
        panic!("lab-bulk.toml has a link")
    };
    let line = &site.links[0].down;
    let Buffer::Bytes(bytes) = line.buffer else {
        panic!("lab-bulk.toml has buffers in bytes")
    };
    let loss = match line.loss {
        Loss::Independent { probability } => probability,
        _ => 0.0,
    };
    format!("{tcp}_{}_{}", bytes / 1000, loss * 1000.0)
}

fn goodput_of(cell: &BTreeMap<u64, Fetched>) -> Sample {
    let each = cell.iter();
    each.map(|(seed, fetched)| (*seed, fetched.goodput_bps))
        .collect()
}

/// With ten more in either world: where next to nothing is dropped, twice as much is nothing, too.
fn drops_of(cell: &BTreeMap<u64, Fetched>) -> Sample {
    let each = cell.iter();
    each.map(|(seed, fetched)| (*seed, fetched.dropped as f64 + 10.0))
        .collect()
}

fn told(cell: &BTreeMap<u64, Fetched>) -> String {
    let each = cell.values();
    let each = each.map(|one| format!("{:.2} Mbit/s {}", one.goodput_bps / 1e6, one.dropped));
    each.collect::<Vec<_>>().join(" ")
}

/// What users saw in one world under one seed.
#[derive(Clone)]
struct Seen {
    goodput_bps: f64,
    /// Of successful transfers.
    durations_s: Vec<f64>,
    /// Packets that found no room in a queue.
    overflowed: u64,
}

impl Seen {
    fn of(_: &Run, record: &Record) -> Self {
        let succeeded = record.transfers.iter().filter(|each| each.outcome.is_ok());
        Self {
            goodput_bps: Summary::of(record).goodput_bps,
            durations_s: succeeded.map(|each| each.duration_s).collect(),
            overflowed: record.counts.overflowed.packets,
        }
    }
}

type BySeed = BTreeMap<u64, Seen>;

fn by_seed(runs: &[Run], seen: Vec<Seen>) -> BySeed {
    runs.iter().map(|run| run.seed).zip(seen).collect()
}

fn goodput_bps(seen: &BySeed) -> Sample {
    let seen = seen.iter();
    seen.map(|(seed, seen)| (*seed, seen.goodput_bps)).collect()
}

/// Of all seeds.
fn durations_s(seen: &BySeed) -> impl Iterator<Item = f64> {
    seen.values()
        .flat_map(|seen| seen.durations_s.iter().copied())
}

fn compare(name: &str, simulated: &BySeed, real: &BySeed, findings: &mut Findings) {
    let goodput = goodput_bps(simulated).over(&goodput_bps(real));
    findings.observe(format!("{name}_goodput"), goodput);
    let pairs = simulated.iter().zip(real.values());
    let distances =
        pairs.map(|((seed, here), there)| (*seed, distance(&here.durations_s, &there.durations_s)));
    let distances: Sample = distances.collect();
    findings.observe(format!("{name}_distance"), distances.mean());
    let [here, there] = [simulated, real].map(|seen| {
        let drops: u64 = seen.values().map(|seen| seen.overflowed).sum();
        format!("{} transfers and {drops} drops", durations_s(seen).count())
    });
    findings.note(format!("{name}: {here} simulated, {there} on real kernels"));
    let title = format!("The same {name} in both worlds");
    let chart = Chart::new(title, "duration of a transfer", "share of transfers")
        .log_x()
        .seconds_x()
        .cdf("simulator", durations_s(simulated))
        .cdf("real kernels", durations_s(real));
    findings.plot(format!("lab-{name}"), chart);
}

/// The largest difference of two empirical distribution functions.
fn distance(one: &[f64], other: &[f64]) -> f64 {
    let [one, other] = [one, other].map(|values| {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted
    });
    let share = |sorted: &[f64], value: f64| {
        let below = sorted.partition_point(|each| *each <= value);
        below as f64 / sorted.len().max(1) as f64
    };
    let steps = one.iter().chain(&other);
    let differences = steps.map(|&value| (share(&one, value) - share(&other, value)).abs());
    differences.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Files;

    #[test]
    fn the_distance_is_the_largest_gap_between_two_distributions() {
        let halves = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(distance(&halves, &halves), 0.0);
        assert_eq!(distance(&halves, &[5.0, 6.0]), 1.0);
        assert_eq!(distance(&halves, &[3.0, 4.0, 3.5, 9.0]), 0.5);
    }

    #[test]
    fn both_worlds_can_run_every_scenario() {
        let files = Files::of(&super::super::EXPERIMENT, None).unwrap();
        for name in SCENARIOS {
            let file = files.scenario(&format!("lab-{name}.toml")).unwrap();
            file.fits(anabranch_scenario::World::Lab).unwrap();
            for (_, control) in CONTROLS {
                let runs = file.runs();
                let mine = runs
                    .iter()
                    .filter(|run| run.scenario.tcp.control == control);
                assert_eq!(mine.count(), 3);
            }
        }
    }
}
