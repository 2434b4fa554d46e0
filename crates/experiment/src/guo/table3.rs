use anabranch_report::chart::Bars;
use anabranch_scenario::stats::{Estimate, median};
use anabranch_scenario::{Record, Run};

use super::trace::{Row, Trace, duration_sum_s};
use crate::{Context, ExperimentError, Findings, Sample, simulate};

/// Table III from top to bottom: ISPs, and how they are chosen. On one there is nothing to choose. Then what is beside it.
const ROWS: [(usize, Row); 9] = [
    (1, Row::Load),
    (2, Row::Packet),
    (2, Row::Hash),
    (2, Row::Load),
    (3, Row::Packet),
    (3, Row::Hash),
    (3, Row::Load),
    (2, Row::Crc),
    (3, Row::Crc),
];
/// Those of the paper.
const PUBLISHED: usize = 7;

/// One cell under one seed.
#[derive(Clone, Copy, Debug)]
struct Cell {
    sum_s: f64,
    incomplete: f64,
}

/// One trace: by row, the sum of durations and the share of connections that were given up.
#[derive(Debug)]
struct Column {
    trace: Trace,
    sums_s: Vec<Sample>,
    incomplete: Vec<Sample>,
}

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let mut findings = Findings::default();
    let mut columns = Vec::new();
    for trace in Trace::ALL {
        let column = Column::new(context, trace)?;
        column.observe(&mut findings);
        column.observe_order(&mut findings);
        columns.push(column);
    }
    findings.plot("table3", plot(&columns));
    Ok(findings)
}

fn cell(_: &Run, record: &Record) -> Cell {
    let transfers = &record.transfers;
    let incomplete = transfers.iter().filter(|t| !t.outcome.is_ok()).count();
    Cell {
        sum_s: duration_sum_s(record),
        incomplete: incomplete as f64 / transfers.len() as f64,
    }
}

impl Column {
    fn new(context: &Context, trace: Trace) -> Result<Column, ExperimentError> {
        let seeds = context.seeds();
        let mut runs = Vec::new();
        for (isps, row) in ROWS {
            runs.extend(row.runs(&trace.over(context.files, isps)?, &seeds));
        }
        let cells = simulate(context, &runs, cell)?;
        let by_row = |of: fn(&Cell) -> f64| {
            let rows = cells.chunks(seeds.len());
            rows.map(|cells| seeds.iter().copied().zip(cells.iter().map(of)).collect())
                .collect()
        };
        Ok(Column {
            trace,
            sums_s: by_row(|cell| cell.sum_s),
            incomplete: by_row(|cell| cell.incomplete),
        })
    }

    fn sum_s(&self, isps: usize, row: Row) -> &Sample {
        let index = ROWS.iter().position(|&known| known == (isps, row));
        &self.sums_s[index.expect("a row of the table")]
    }

    /// Of row `index`, to the same trace over one ISP.
    fn ratio(&self, index: usize) -> Sample {
        self.sums_s[index].per(&self.sums_s[0])
    }

    fn observe(&self, findings: &mut Findings) {
        let trace = self.trace.name();
        findings.observe(format!("{trace}_1_s"), self.sums_s[0].median());
        for (index, (isps, row)) in ROWS[..PUBLISHED].iter().enumerate().skip(1) {
            let key = format!("{trace}_{isps}_{}", row.name());
            findings.observe(key, self.ratio(index).median());
        }
        let (first, rest) = self.incomplete[..PUBLISHED].split_first().expect("rows");
        let most = rest
            .iter()
            .fold(first.clone(), |most, row| most.with(row, f64::max));
        findings.observe(format!("{trace}_incomplete"), most.mean());
        findings.note(self.spread());
    }

    /// What the paper concludes from the order of its rows, in the same trace under the same seed.
    fn observe_order(&self, findings: &mut Findings) {
        let trace = self.trace.name();
        for isps in [2, 3] {
            let over = |row, other| self.sum_s(isps, row).per(self.sum_s(isps, other));
            for row in [Row::Hash, Row::Load] {
                let name = row.name();
                let over_packet = over(row, Row::Packet).median();
                let key = format!("{trace}_{isps}_{name}_over_packet");
                findings.observe(key, over_packet.clone());
                findings.observe(format!("{trace}_{isps}_{name}_15_percent"), over_packet);
            }
            let key = format!("{trace}_{isps}_hash_over_load");
            findings.observe(key, over(Row::Hash, Row::Load).median());
        }
        for row in Row::PUBLISHED {
            let key = format!("{trace}_{}_3_over_2", row.name());
            findings.observe(key, self.sum_s(3, row).per(self.sum_s(2, row)).median());
        }
        let gap = |isps| self.sum_s(isps, Row::Hash).per(self.sum_s(isps, Row::Load));
        let shrinks = gap(3).per(&gap(2));
        findings.observe(format!("{trace}_gap_shrinks"), shrinks.median());
        findings.note(self.by_crc());
    }

    /// What another hash makes of the same connections.
    fn by_crc(&self) -> String {
        let over_load = [2, 3].map(|isps| {
            let [crc_s, load_s] = [Row::Crc, Row::Load].map(|row| self.sum_s(isps, row));
            let ratio = median(&crc_s.per(load_s).values());
            format!("{ratio:.3} over {isps} ISPs")
        });
        let trace = self.trace.name();
        format!(
            "{trace}, sum by CRC-32 over sum by load: {}",
            over_load.join(", ")
        )
    }

    /// How far the seeds lie apart.
    fn spread(&self) -> String {
        let of = |sample: &Sample, digits: usize| {
            let Estimate { min, max, .. } = sample.plotted();
            format!("{min:.digits$} to {max:.digits$}")
        };
        let one = format!("{} {} s", label(0), of(&self.sums_s[0], 0));
        let others =
            (1..ROWS.len()).map(|row| format!("{} {}", label(row), of(&self.ratio(row), 3)));
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

fn plot(columns: &[Column]) -> Bars {
    let labels = (0..PUBLISHED).map(label);
    let bars = Bars::new(
        "Table III",
        "sum of durations, of that over one ISP",
        labels,
    );
    columns.iter().fold(bars, |bars, column| {
        let published_s = column.trace.published_s();
        let published = published_s.map(|sum_s| Some(sum_s / published_s[0]));
        let ratios = (0..PUBLISHED).map(|row| column.ratio(row).plotted_median());
        bars.series(column.trace.name(), ratios)
            .published(published)
    })
}
