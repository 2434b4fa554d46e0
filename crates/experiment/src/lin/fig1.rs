//! Figure 1: what is seen of the nearest hop, and how stable round trips are.

use std::time::Duration;

use anabranch_report::chart::{Bars, Chart};
use anabranch_scenario::stats::{Estimate, mean};
use anabranch_scenario::{Network, Record, Run, Scenario};

use super::place::{PLACES, Place, RACE, Round, first_chosen, mean_bps, of_policy, truth};
use crate::{Context, ExperimentError, Findings, Sample, simulate};

/// Time enough for one question.
const ASKED: Duration = Duration::from_secs(60);
/// Of (b).
const WATCHED: Duration = Duration::from_secs(4000);
const EVERY: Duration = Duration::from_secs(10);
/// In samples.
const INTERVALS: [usize; 6] = [2, 5, 10, 20, 30, 50];

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let mut findings = Findings::default();
    nearest(context, &mut findings)?;
    stable(context, &mut findings)?;
    Ok(findings)
}

/// (a): whoever looks no further than the next hop takes the link that is slowest to the other end.
fn nearest(context: &Context, findings: &mut Findings) -> Result<(), ExperimentError> {
    let file = context.files.scenario("hops.toml")?;
    let whole = &Scenario {
        sample: file.first().limit,
        ..Scenario::clone(file.first())
    };
    let seeds = context.seeds();
    let runs = |scenario: &Scenario, policy: &str| -> Result<Vec<Run>, ExperimentError> {
        let each = seeds
            .iter()
            .map(|&seed| of_policy(scenario.clone(), policy, seed));
        each.collect()
    };
    let near = simulate(
        context,
        &runs(&next_hop_alone(whole), "FRRTFNF")?,
        first_chosen,
    )?;
    let runs = runs(whole, RACE)?;
    let race = simulate(context, &runs, first_chosen)?;
    let truth = simulate(context, &runs, truth)?;
    let share = |chosen: &[usize], is: &dyn Fn(&Round) -> usize| -> Sample {
        let of = chosen.iter().zip(&truth);
        let hits = of.map(|(link, rounds)| f64::from(u8::from(*link == is(&rounds[0]))));
        seeds.iter().copied().zip(hits).collect()
    };
    let slowest = |round: &Round| by_setup(round, f64::max);
    let fastest = |round: &Round| by_setup(round, f64::min);
    findings.observe("nearest_is_slowest", share(&near, &slowest).mean());
    findings.observe("race_is_fastest", share(&race, &fastest).mean());
    let throughput = |chosen: &[usize]| -> Sample {
        let of = chosen.iter().zip(&truth);
        let of = of.map(|(link, rounds)| mean_bps(rounds, [*link].into_iter()));
        seeds.iter().copied().zip(of).collect()
    };
    findings.observe(
        "nearest_over_race",
        throughput(&near).over(&throughput(&race)),
    );
    findings.plot("fig1a", hops(whole));
    Ok(())
}

/// All that whoever asks the next hop sees.
fn next_hop_alone(scenario: &Scenario) -> Scenario {
    let mut scenario = scenario.clone();
    (scenario.limit, scenario.sample) = (ASKED, ASKED);
    if let Network::Site(site) = &mut scenario.network {
        for link in &mut site.links {
            link.beyond = None;
        }
    }
    scenario
}

/// The link whose handshake took longest, or shortest. One whose SYN was lost is neither.
fn by_setup(round: &Round, pick: fn(f64, f64) -> f64) -> usize {
    let known = round.setup_s.iter().flatten().copied();
    let picked = known.reduce(pick);
    let is = |setup_s: &Option<f64>| setup_s.is_some() && *setup_s == picked;
    round.setup_s.iter().position(is).unwrap_or(usize::MAX)
}

fn hops(scenario: &Scenario) -> Bars {
    let Network::Site(site) = &scenario.network else {
        return Bars::new("Figure 1 (a)", "round trip, ms", [""; 0]);
    };
    let names = site.links.iter().map(|link| link.name.clone());
    let near = site
        .links
        .iter()
        .map(|link| 2e3 * link.down.delay.as_secs_f64());
    let far = site.links.iter().map(|link| {
        let beyond = link
            .beyond
            .as_ref()
            .map_or(Duration::ZERO, |hop| hop.down.delay);
        2e3 * (link.down.delay + beyond).as_secs_f64()
    });
    Bars::new("Figure 1 (a)", "round trip, ms", names)
        .series("next hop", near.map(Estimate::exact))
        .series("destination", far.map(Estimate::exact))
}

/// (b): the greatest coefficient of variation of round trips, of any link to any destination, within so many seconds.
fn stable(context: &Context, findings: &mut Findings) -> Result<(), ExperimentError> {
    let seeds = context.seeds();
    let mut greatest = vec![vec![0.0_f64; INTERVALS.len()]; seeds.len()];
    for name in PLACES {
        let place = Place::new(context, name)?;
        let runs = seeds
            .iter()
            .map(|&seed| place.watched(EVERY, WATCHED, seed));
        let runs: Vec<Run> = runs.collect::<Result<_, _>>()?;
        let seen = simulate(context, &runs, variation)?;
        for (greatest, seen) in greatest.iter_mut().zip(seen) {
            for (greatest, seen) in greatest.iter_mut().zip(seen) {
                *greatest = greatest.max(seen);
            }
        }
    }
    let of = |interval: usize| -> Sample {
        let values = greatest.iter().map(|each| each[interval]);
        seeds.iter().copied().zip(values).collect()
    };
    findings.observe("variation_500_s", of(INTERVALS.len() - 1).mean());
    let chart = Chart::new(
        "Figure 1 (b)",
        "interval, s",
        "greatest coefficient of variation",
    );
    let points = INTERVALS.into_iter().enumerate().map(|(index, samples)| {
        let seconds = samples as f64 * EVERY.as_secs_f64();
        (seconds, of(index).plotted())
    });
    findings.plot("fig1b", chart.estimates("round trips", points));
    Ok(())
}

/// By [`INTERVALS`], over all links.
fn variation(_: &Run, record: &Record) -> Vec<f64> {
    let links = (1..=record.links.len()).map(|link| {
        let of_link = record
            .transfers
            .iter()
            .filter(|it| it.server.0 as usize == link);
        let whole = of_link.filter(|it| it.syn_retransmits == 0);
        whole.filter_map(|it| it.setup_s).collect::<Vec<f64>>()
    });
    let links: Vec<Vec<f64>> = links.collect();
    let greatest = |samples: usize| {
        let windows = links
            .iter()
            .flat_map(|round_trips| round_trips.chunks(samples));
        windows.map(coefficient).fold(0.0, f64::max)
    };
    INTERVALS.map(greatest).to_vec()
}

fn coefficient(values: &[f64]) -> f64 {
    let middle = mean(values);
    let squares = values.iter().map(|value| (value - middle).powi(2));
    (squares.sum::<f64>() / values.len() as f64).sqrt() / middle
}
