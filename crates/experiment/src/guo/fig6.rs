//! Latencies to a day's prefixes by the company's ISP, by the university's, and by the faster of both.

use std::cmp::Reverse;

use anabranch_report::chart::Chart;
use anabranch_scenario::stats::mean;

use super::prefixes::{ISPS, Told};
use crate::{Context, ExperimentError, Findings, Sample};

/// The company's own ISP comes first.
const SITES: [&str; ISPS] = ["company", "university"];

/// A prefix that was visited on the day.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Prefix {
    visits_before: u32,
    visits: u32,
    /// By each ISP, and by the faster in every run.
    latency_s: [f64; ISPS],
    best_s: f64,
    /// In some run this ISP alone reaches it.
    alone: [bool; ISPS],
}

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let (mut findings, mut days) = (Findings::default(), Vec::new());
    for seed in context.seeds() {
        let run = format!("a day's prefixes, seed {seed}");
        let day = context.numbers(&run, seed, || Ok(day(context, seed)))?;
        days.push((seed, day));
    }
    let each = |of: fn(&[Prefix]) -> f64| -> Sample {
        days.iter().map(|(seed, day)| (*seed, of(day))).collect()
    };
    let over_10: [fn(&[Prefix]) -> f64; ISPS] = [|day| over_10(day, 0), |day| over_10(day, 1)];
    for (site, over_10) in SITES.into_iter().zip(over_10) {
        findings.observe(format!("{site}_over_10"), each(over_10).mean());
    }
    findings.observe("split", each(split).mean());
    findings.observe("top_tenth_saves", each(top_tenth_saves).mean());
    findings.plot("fig6", plot(&days[0].1));
    Ok(findings)
}

/// The last day of the week.
fn day(context: &Context, seed: u64) -> Vec<Prefix> {
    let prefixes = context.prefixes();
    let week = prefixes.week(seed).into_iter();
    let visits = week.map(|[before @ .., last]| (before.iter().sum(), last));
    let visited: Vec<(u32, u32)> = visits.filter(|(_, last)| *last > 0).collect();
    let told = prefixes.probed(seed, visited.len());
    let both = visited.into_iter().zip(&told);
    both.filter_map(|((before, last), told)| Prefix::new(before, last, told))
        .collect()
}

impl Prefix {
    /// None if no run reached it by both.
    fn new(visits_before: u32, visits: u32, told: &[Vec<Told>; ISPS]) -> Option<Prefix> {
        let runs = || told[0].iter().zip(&told[1]);
        let both: Vec<[f64; ISPS]> = runs().filter_map(|(a, b)| Some([(*a)?, (*b)?])).collect();
        let of = |latency_s: fn(&[f64; ISPS]) -> f64| {
            mean(&both.iter().map(latency_s).collect::<Vec<_>>())
        };
        (!both.is_empty()).then(|| Prefix {
            visits_before,
            visits,
            latency_s: [of(|by| by[0]), of(|by| by[1])],
            best_s: of(|by| by[0].min(by[1])),
            alone: [
                runs().any(|(a, b)| a.is_some() && b.is_none()),
                runs().any(|(a, b)| a.is_none() && b.is_some()),
            ],
        })
    }

    /// The paper's improvement ratio of a site with this ISP alone.
    fn gain(&self, isp: usize) -> f64 {
        (self.latency_s[isp] - self.best_s) / self.best_s
    }

    /// What the company's connections of the day would be spared.
    fn saves_s(&self) -> f64 {
        f64::from(self.visits) * (self.latency_s[0] - self.best_s)
    }
}

/// Prefixes to which an ISP takes more than an order of magnitude longer.
fn over_10(day: &[Prefix], isp: usize) -> f64 {
    day.iter().filter(|prefix| prefix.gain(isp) > 10.0).count() as f64
}

/// Prefixes that now one ISP alone reached, now the other.
fn split(day: &[Prefix]) -> f64 {
    day.iter()
        .filter(|prefix| prefix.alone == [true; ISPS])
        .count() as f64
}

/// The share of all that is saved on the tenth of the prefixes that was visited most on the days before.
fn top_tenth_saves(day: &[Prefix]) -> f64 {
    let mut known: Vec<&Prefix> = day.iter().collect();
    known.sort_by_key(|prefix| Reverse(prefix.visits_before));
    let sum_s = |of: &[&Prefix]| of.iter().map(|prefix| prefix.saves_s()).sum::<f64>();
    sum_s(&known[..known.len() / 10]) / sum_s(&known)
}

fn plot(day: &[Prefix]) -> Chart {
    let chart = Chart::new(
        "Figure 6",
        "share of the prefixes",
        "gain over one ISP, of the better one's latency",
    )
    .log_y();
    SITES
        .into_iter()
        .enumerate()
        .fold(chart, |chart, (isp, site)| {
            let mut gains: Vec<f64> = day.iter().map(|prefix| prefix.gain(isp)).collect();
            gains.sort_by(f64::total_cmp);
            let count = gains.len() as f64;
            let points = gains.into_iter().enumerate();
            chart.line(site, points.map(|(i, gain)| ((i + 1) as f64 / count, gain)))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(visits_before: u32, company_s: f64) -> Prefix {
        Prefix {
            visits_before,
            visits: 1,
            latency_s: [company_s, 0.1],
            best_s: 0.1,
            alone: [false; ISPS],
        }
    }

    #[test]
    fn gains_are_of_the_better_latency_and_savings_of_those_visited_before() {
        let mut day = vec![prefix(1, 0.2); 9];
        day.push(prefix(2, 1.9));
        assert_eq!((over_10(&day, 0), over_10(&day, 1)), (1.0, 0.0));
        assert!((top_tenth_saves(&day) - 1.8 / 2.7).abs() < 1e-9);
    }

    #[test]
    fn a_prefix_is_split_if_either_isp_alone_reaches_it_at_times() {
        let both = |told: [[Told; 3]; ISPS]| Prefix::new(1, 1, &told.map(Vec::from));
        let split_day = both([[Some(0.2), None, Some(0.2)], [Some(0.1), Some(0.1), None]]);
        let split_day = split_day.expect("both reached it");
        assert_eq!((split(&[split_day]), split_day.best_s), (1.0, 0.1));
        let cut = both([[Some(0.2), None, None], [Some(0.1), Some(0.1), None]]);
        assert_eq!(split(&[cut.expect("both reached it")]), 0.0);
        assert_eq!(both([[None; 3], [Some(0.1); 3]]), None);
    }
}
