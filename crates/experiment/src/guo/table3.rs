use anabranch_report::chart::Bars;
use anabranch_scenario::stats::{Estimate, NOT_NEGATIVE, median};
use anabranch_scenario::{Record, Run};

use super::SEEDS;
use super::trace::{Row, Trace, duration_sum_s};
use crate::{Context, ExperimentError, Findings, simulate};

/// Table III from top to bottom: ISPs, and how they are chosen. On one there is nothing to choose.
const ROWS: [(usize, Row); 7] = [
    (1, Row::Load),
    (2, Row::Packet),
    (2, Row::Hash),
    (2, Row::Load),
    (3, Row::Packet),
    (3, Row::Hash),
    (3, Row::Load),
];

/// One cell under one seed.
#[derive(Clone, Copy, Debug)]
struct Cell {
    sum_s: f64,
    connections: usize,
    incomplete: usize,
}

/// One trace: cells by row, then seed.
#[derive(Debug)]
struct Column {
    trace: Trace,
    cells: Vec<Vec<Cell>>,
}

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let seeds = context.seeds(SEEDS.0, SEEDS.1);
    let mut runs = Vec::new();
    for trace in Trace::ALL {
        for (isps, row) in ROWS {
            runs.extend(row.runs(&trace.over(isps)?, &seeds));
        }
    }
    let cells = simulate(context, &runs, cell)?;
    let by_trace = cells.chunks(ROWS.len() * seeds.len());
    let columns: Vec<Column> = Trace::ALL
        .into_iter()
        .zip(by_trace)
        .map(|(trace, cells)| Column {
            trace,
            cells: cells.chunks(seeds.len()).map(<[Cell]>::to_vec).collect(),
        })
        .collect();
    let mut findings = Findings::default();
    for column in &columns {
        column.observe(&mut findings);
    }
    observe_order(&columns, &mut findings);
    findings.plot("table3", plot(&columns)?);
    Ok(findings)
}

fn cell(_: &Run, record: &Record) -> Cell {
    let transfers = &record.transfers;
    Cell {
        sum_s: duration_sum_s(record),
        connections: transfers.len(),
        incomplete: transfers.iter().filter(|t| !t.outcome.is_ok()).count(),
    }
}

impl Column {
    fn sums_s(&self, row: usize) -> Vec<f64> {
        self.cells[row].iter().map(|cell| cell.sum_s).collect()
    }

    /// Per seed, to the same trace on one link.
    fn ratios(&self, row: usize) -> Vec<f64> {
        let pairs = self.cells[row].iter().zip(&self.cells[0]);
        pairs.map(|(cell, one)| cell.sum_s / one.sum_s).collect()
    }

    /// The median ratio of a row.
    fn ratio(&self, isps: usize, row: Row) -> f64 {
        let index = ROWS.iter().position(|&known| known == (isps, row));
        median(&self.ratios(index.expect("a row of the table")))
    }

    fn observe(&self, findings: &mut Findings) {
        let trace = self.trace.name();
        findings.observe(format!("{trace}_1_s"), median(&self.sums_s(0)));
        for (index, (isps, row)) in ROWS.iter().enumerate().skip(1) {
            let key = format!("{trace}_{isps}_{}", row.name());
            findings.observe(key, median(&self.ratios(index)));
        }
        let all = || self.cells.iter().flatten();
        let incomplete: usize = all().map(|cell| cell.incomplete).sum();
        let connections: usize = all().map(|cell| cell.connections).sum();
        let share = incomplete as f64 / connections as f64;
        findings.observe(format!("{trace}_incomplete"), share);
        findings.note(self.spread());
    }

    /// How far the seeds lie apart.
    fn spread(&self) -> String {
        let of = |values: Vec<f64>, digits: usize| {
            let Estimate { min, max, .. } = Estimate::of(values).expect("a seed at least");
            format!("{min:.digits$} to {max:.digits$}")
        };
        let one = format!("{} {} s", label(0), of(self.sums_s(0), 0));
        let others =
            (1..ROWS.len()).map(|row| format!("{} {}", label(row), of(self.ratios(row), 3)));
        let all: Vec<String> = std::iter::once(one).chain(others).collect();
        let trace = self.trace.name();
        format!("{trace}, least and most of all seeds: {}", all.join("; "))
    }
}

/// A row for reading.
fn label(row: usize) -> String {
    match ROWS[row] {
        (1, _) => "1 ISP".to_owned(),
        (isps, row) => format!("{isps} {}", row.name()),
    }
}

/// What the paper concludes from the order of its rows.
fn observe_order(columns: &[Column], findings: &mut Findings) {
    let flows = [Row::Hash, Row::Load];
    let over = |pick: fn(f64, f64) -> f64, values: Vec<f64>| values.into_iter().reduce(pick);
    let mut packet_first = Vec::new();
    let mut more_links = Vec::new();
    for column in columns {
        for isps in [2, 3] {
            let packet = column.ratio(isps, Row::Packet);
            packet_first.extend(flows.map(|row| column.ratio(isps, row) / packet));
        }
        more_links.extend(Row::ALL.map(|row| column.ratio(3, row) / column.ratio(2, row)));
    }
    findings.observe(
        "packet_first",
        over(f64::min, packet_first).unwrap_or(f64::NAN),
    );
    findings.observe("more_links", over(f64::max, more_links).unwrap_or(f64::NAN));
    for column in columns {
        let hash_over_load = |isps| column.ratio(isps, Row::Hash) / column.ratio(isps, Row::Load);
        let key = format!("{}_2_hash_over_load", column.trace.name());
        findings.observe(key, hash_over_load(2));
        if column.trace == Trace::Two {
            let gap = |isps| column.ratio(isps, Row::Hash) - column.ratio(isps, Row::Load);
            findings.observe("trace2_3_hash_over_load", hash_over_load(3));
            findings.observe("trace2_gap_shrinks", gap(3) / gap(2));
        }
    }
}

fn plot(columns: &[Column]) -> Result<String, ExperimentError> {
    let labels = (0..ROWS.len()).map(label);
    let bars = Bars::new(
        "Table III",
        "sum of durations, of that over one ISP",
        labels,
    );
    let bars = columns.iter().fold(bars, |bars, column| {
        let estimate = |row| Some(Estimate::of(column.ratios(row))?.within(NOT_NEGATIVE));
        let estimates = (0..ROWS.len()).filter_map(estimate);
        bars.series(column.trace.name(), estimates)
    });
    bars.svg()
        .map_err(|error| ExperimentError::run("table3.svg", error))
}
