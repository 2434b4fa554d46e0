//! `adaptive` without each of its ingredients, of the whole of it.

use super::cells::{Group, OURS, Seen};
use super::merit::{EBU, FAILED, GOODPUT, Merit, SHORT, THROUGHPUT, with_ends, with_half_width};
use crate::findings::Table;
use crate::{Context, ExperimentError, Findings, Observation, Sample};

const RATIOS: [&Merit; 4] = [&EBU, &THROUGHPUT, &GOODPUT, &SHORT];

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let groups = Group::all(context)?;
    let mut findings = Findings::default();
    for (key, group, without, of) in CLAIMED {
        let group = groups.iter().find(|each| each.name == group);
        let group = group.expect("is one of them");
        findings.observe(key, over(context, group, without, of)?);
    }
    let mut rows = Vec::new();
    for without in groups[0].ablated() {
        for group in &groups {
            rows.push(row(context, group, without)?);
        }
    }
    findings.table(Table {
        title: "adaptive without an ingredient, of the whole of it: ratios of the means, and more failed in percentage points.".to_owned(),
        head: ["without", "cells", "EBU", "throughput", "goodput", "p95 of short", "failed"].map(str::to_owned).to_vec(),
        rows,
    });
    Ok(findings)
}

type Of = fn(&Seen) -> f64;

/// Claim, cells, what is left out, and of which number the ratio is.
const CLAIMED: [(&str, &str, &str, Of); 4] = [
    ("response_ebu_far", "far", "no-response", EBU.of),
    ("race_ebu_far", "far", "no-race", EBU.of),
    (
        "capacity_throughput_unequal",
        "unequal",
        "no-capacity",
        THROUGHPUT.of,
    ),
    (
        "capacity_p95_brown_out",
        "brown-out",
        "no-capacity",
        SHORT.of,
    ),
];

fn over(
    context: &Context,
    group: &Group,
    without: &str,
    of: Of,
) -> Result<Observation, ExperimentError> {
    let [without, whole] = both(context, group, without, of)?;
    Ok(without.over(&whole))
}

fn both(
    context: &Context,
    group: &Group,
    without: &str,
    of: Of,
) -> Result<[Sample; 2], ExperimentError> {
    Ok([
        group.mean(context, without, of)?,
        group.mean(context, OURS, of)?,
    ])
}

fn row(context: &Context, group: &Group, without: &str) -> Result<Vec<String>, ExperimentError> {
    let mut row = vec![without.to_owned(), group.name.to_owned()];
    for merit in RATIOS {
        let ratio = over(context, group, without, merit.of)?;
        row.push(with_ends(&ratio.estimate(context.range())));
    }
    let [failed, whole] = both(context, group, without, FAILED.of)?;
    let more = failed.minus(&whole);
    let more = anabranch_scenario::stats::Estimate::of(more.values());
    row.push(more.map_or("–".to_owned(), |more| {
        with_half_width(&more.scaled(1e-2), 2)
    }));
    Ok(row)
}
