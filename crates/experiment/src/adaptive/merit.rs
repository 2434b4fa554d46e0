//! What a policy is judged by.

use std::cmp::Ordering;

use anabranch_core::measure::Better;
use anabranch_scenario::stats::Estimate;

use super::cells::{Group, Seen};
use crate::findings::Table;
use crate::sample;
use crate::{Context, ExperimentError, Sample};

/// A number of a run, and which of two is the better one.
pub(super) struct Merit {
    pub title: &'static str,
    pub better: Better,
    pub of: fn(&Seen) -> f64,
    /// That is shown as 1.
    unit: f64,
    digits: usize,
}

pub(super) const EBU: Merit = Merit {
    title: "EBU",
    better: Better::More,
    of: |seen| seen.ebu,
    unit: 1.0,
    digits: 3,
};
pub(super) const THROUGHPUT: Merit = Merit {
    title: "throughput of a session, kbit/s",
    better: Better::More,
    of: |seen| seen.throughput_bps,
    unit: 1e3,
    digits: 0,
};
pub(super) const SHORT: Merit = Merit {
    title: "p95 of short transfers, s",
    better: Better::Less,
    of: |seen| seen.short_p95_s,
    unit: 1.0,
    digits: 3,
};
pub(super) const FAILED: Merit = Merit {
    title: "failed, %",
    better: Better::Less,
    of: |seen| seen.failed,
    unit: 1e-2,
    digits: 2,
};
pub(super) const GOODPUT: Merit = Merit {
    title: "goodput, Mbit/s",
    better: Better::More,
    of: |seen| seen.goodput_bps,
    unit: 1e6,
    digits: 3,
};
pub(super) const MERITS: [&Merit; 5] = [&EBU, &THROUGHPUT, &GOODPUT, &SHORT, &FAILED];

impl Merit {
    pub fn shown(&self, sample: &Sample) -> String {
        match Estimate::of(sample.values()).filter(|estimate| estimate.mean.is_finite()) {
            Some(estimate) => with_half_width(&estimate.scaled(self.unit), self.digits),
            None => "–".to_owned(),
        }
    }

    /// The ranks of all, seed by seed, from 1 for the best; those that are equal share theirs. None where a value is missing.
    pub fn ranks(&self, all: &[Sample]) -> Option<Vec<Sample>> {
        let is_known = |sample: &Sample| sample.values().iter().all(|value| !value.is_nan());
        all.iter().all(is_known).then(|| {
            let rank = |own: &Sample| {
                let places = all
                    .iter()
                    .map(|other| own.with(other, |a, b| self.behind(a, b)));
                places
                    .reduce(|a, b| a.with(&b, |a, b| a + b))
                    .map_or_else(Sample::default, |sum| sum.map(|places| places + 0.5))
            };
            all.iter().map(rank).collect()
        })
    }

    /// How many places `other` puts `own` back; itself as well.
    fn behind(&self, own: f64, other: f64) -> f64 {
        let (more, less) = match self.better {
            Better::More => (own, other),
            Better::Less => (other, own),
        };
        match more.total_cmp(&less) {
            Ordering::Less => 1.0,
            Ordering::Equal => 0.5,
            Ordering::Greater => 0.0,
        }
    }
}

pub(super) fn with_half_width(estimate: &Estimate, digits: usize) -> String {
    format!(
        "{:.digits$} ± {:.digits$}",
        estimate.mean,
        estimate.half_width()
    )
}

/// A ratio with its interval.
pub(super) fn with_ends(ratio: &sample::Estimate) -> String {
    match ratio.interval() {
        Some((low, high)) if ratio.observed.is_finite() => {
            format!("{:.3} [{low:.3}, {high:.3}]", ratio.observed)
        }
        _ => "–".to_owned(),
    }
}

/// The head of a table of policies: of each its place first, under a word of its own, then one column for each title.
pub(super) fn head(place: &str, titles: &[&str]) -> Vec<String> {
    let head = ["policy", place].into_iter();
    head.chain(titles.iter().copied())
        .map(str::to_owned)
        .collect()
}

/// The indices of so many, the one with the least place first.
pub(super) fn in_order(count: usize, place: impl Fn(usize) -> f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|a, b| place(*a).total_cmp(&place(*b)));
    order
}

/// Every policy of the catalogue with all merits, the one with the least mean of mean ranks first.
pub(super) fn table(context: &Context, group: &Group) -> Result<Table, ExperimentError> {
    let names = group.ranked();
    let columns = MERITS.map(|merit| column(context, group, &names, merit));
    let columns: Vec<Vec<Sample>> = columns.into_iter().collect::<Result<_, _>>()?;
    let ranks: Vec<_> = MERITS
        .iter()
        .zip(&columns)
        .filter_map(|(merit, all)| merit.ranks(all))
        .collect();
    let place = |index: usize| {
        let sum: f64 = ranks.iter().map(|ranks| mean(&ranks[index])).sum();
        sum / ranks.len() as f64
    };
    let row = |index: usize| {
        let merits = MERITS.iter().zip(&columns);
        let merits = merits.map(|(merit, all)| merit.shown(&all[index]));
        [names[index].to_owned(), format!("{:.1}", place(index))]
            .into_iter()
            .chain(merits)
            .collect()
    };
    Ok(Table {
        title: format!(
            "`{}`: all policies, by the mean of their places in the columns.",
            group.name
        ),
        head: head("place", &MERITS.map(|merit| merit.title)),
        rows: in_order(names.len(), place).into_iter().map(row).collect(),
    })
}

pub(super) fn column(
    context: &Context,
    group: &Group,
    names: &[&str],
    merit: &Merit,
) -> Result<Vec<Sample>, ExperimentError> {
    let samples = names.iter().map(|name| group.mean(context, name, merit.of));
    samples.collect()
}

pub(super) fn mean(sample: &Sample) -> f64 {
    anabranch_scenario::stats::mean(&sample.values())
}
