//! Medians, ratios, the table and the JSON file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::Serialize;

use crate::ratios::{Ratios, median, sorted};
use crate::rows::{ROWS, Row, Target, less_redirect};
use crate::testbed::Contender;

/// Every value of every run.
pub struct Samples<C = Contender>(BTreeMap<(&'static str, C), Vec<f64>>);

impl<C> Default for Samples<C> {
    fn default() -> Self {
        Samples(BTreeMap::new())
    }
}

impl<C: Copy + Ord> Samples<C> {
    pub fn add(&mut self, contender: C, values: impl IntoIterator<Item = (&'static str, f64)>) {
        for (row, value) in values {
            self.0.entry((row, contender)).or_default().push(value);
        }
    }

    pub fn median(&self, row: &'static str, contender: C) -> Option<f64> {
        let values = self.0.get(&(row, contender))?;
        Some(median(&sorted(values.iter().copied())))
    }

    /// The runs of two contenders that took turns.
    pub fn pairs(&self, row: &'static str, [a, b]: [C; 2]) -> Vec<[f64; 2]> {
        let of = |contender| self.0.get(&(row, contender)).into_iter().flatten();
        of(a).zip(of(b)).map(|(&a, &b)| [a, b]).collect()
    }

    /// What the median of a row exceeds another contender's by, as a row of its own.
    pub fn subtract(&mut self, from: &'static str, to: &'static str, contender: C, other: C) {
        let medians = (self.median(from, contender), self.median(from, other));
        if let (Some(value), Some(less)) = medians {
            self.add(contender, [(to, value - less)]);
        }
    }
}

impl Samples {
    /// What follows from other rows.
    pub fn derive(&mut self) {
        for (from, to) in [
            ("latency_p50", "added_latency_p50"),
            ("latency_p99", "added_latency_p99"),
        ] {
            for contender in [
                Contender::Anabranch,
                Contender::Nftables,
                Contender::Redirect,
            ] {
                self.subtract(from, to, contender, Contender::Forwarding);
            }
        }
        for (from, to) in less_redirect() {
            self.subtract(from, to, Contender::Anabranch, Contender::Redirect);
        }
    }
}

/// One line of the result.
#[derive(Debug, Serialize)]
pub struct Line {
    name: &'static str,
    unit: &'static str,
    anabranch: f64,
    nftables: Option<f64>,
    forwarding: Option<f64>,
    redirect: Option<f64>,
    vs_nftables: Option<Ratios>,
    vs_forwarding: Option<Ratios>,
    vs_redirect: Option<Ratios>,
}

impl Line {
    fn of(row: &Row, samples: &Samples) -> Option<Self> {
        let anabranch = samples.median(row.name, Contender::Anabranch)?;
        let beside = |other| {
            let turns = samples.pairs(row.name, [other, Contender::Anabranch]);
            Ratios::of(row.better, &turns)
        };
        Some(Line {
            name: row.name,
            unit: row.unit,
            anabranch,
            nftables: samples.median(row.name, Contender::Nftables),
            forwarding: samples.median(row.name, Contender::Forwarding),
            redirect: samples.median(row.name, Contender::Redirect),
            vs_nftables: beside(Contender::Nftables),
            vs_forwarding: beside(Contender::Forwarding),
            vs_redirect: beside(Contender::Redirect),
        })
    }

    fn value(&self, target: Target) -> Option<f64> {
        let of = |ratios: Option<Ratios>| ratios.map(|it| it.median);
        match target {
            Target::Times(_, Contender::Nftables) => of(self.vs_nftables),
            Target::Times(_, Contender::Forwarding) => of(self.vs_forwarding),
            Target::Times(_, Contender::Redirect) => of(self.vs_redirect),
            Target::Times(_, Contender::Anabranch) => Some(1.0),
            Target::AtMost(_) => Some(self.anabranch),
        }
    }
}

/// A demand and what became of it.
#[derive(Debug, Serialize)]
pub struct Judgement {
    name: &'static str,
    target: String,
    reached: bool,
}

impl Judgement {
    fn of(line: &Line, target: Target) -> Option<Self> {
        let value = line.value(target)?;
        let (text, reached) = match target {
            Target::Times(times, contender) => {
                let text = format!("≥ {times} × {}", contender.label());
                (text, value >= times)
            }
            Target::AtMost(most) => (format!("≤ {most} {}", line.unit), value <= most),
        };
        Some(Judgement {
            name: line.name,
            target: text,
            reached,
        })
    }
}

/// How far the runs of one row lie apart.
#[derive(Debug, Serialize)]
struct Spread {
    name: &'static str,
    contender: Contender,
    runs: usize,
    min: f64,
    max: f64,
}

/// All that is written.
#[derive(Serialize)]
pub struct Report<M: Serialize> {
    manifest: M,
    rows: Vec<Line>,
    targets: Vec<Judgement>,
    spread: Vec<Spread>,
}

impl<M: Serialize> Report<M> {
    pub fn new(manifest: M, samples: &Samples) -> Self {
        let lines = ROWS
            .iter()
            .filter_map(|row| Some((row, Line::of(row, samples)?)));
        let (mut rows, mut targets) = (Vec::new(), Vec::new());
        for (row, line) in lines {
            targets.extend(
                row.targets
                    .iter()
                    .filter_map(|&target| Judgement::of(&line, target)),
            );
            rows.push(line);
        }
        Report {
            manifest,
            rows,
            targets,
            spread: spread(samples),
        }
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        write_json(path, self)
    }

    pub fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_FULL_CONDENSED);
        table.set_header([
            "",
            "unit",
            "anabranch",
            "nftables",
            "forwarding",
            "redirect alone",
            "× nftables",
            "× forwarding",
            "× redirect alone",
            "target",
        ]);
        for column in 2..9 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        for line in &self.rows {
            table.add_row(self.cells(line));
        }
        table
    }

    fn cells(&self, line: &Line) -> Vec<Cell> {
        let label = ROWS
            .iter()
            .find(|row| row.name == line.name)
            .map_or(line.name, |row| row.label);
        let targets: Vec<_> = self
            .targets
            .iter()
            .filter(|target| target.name == line.name)
            .map(|target| {
                let outcome = if target.reached { "reached" } else { "missed" };
                format!("{}: {outcome}", target.target)
            })
            .collect();
        let times = |ratios: Option<Ratios>| ratios.map_or(String::new(), |it| it.to_string());
        vec![
            Cell::new(label),
            Cell::new(line.unit),
            Cell::new(shown(Some(line.anabranch))),
            Cell::new(shown(line.nftables)),
            Cell::new(shown(line.forwarding)),
            Cell::new(shown(line.redirect)),
            Cell::new(times(line.vs_nftables)),
            Cell::new(times(line.vs_forwarding)),
            Cell::new(times(line.vs_redirect)),
            Cell::new(targets.join("\n")),
        ]
    }
}

pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let text = serde_json::to_string_pretty(value)?;
    fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))
}

fn spread(samples: &Samples) -> Vec<Spread> {
    let of = |(&(name, contender), values): (&(&'static str, Contender), &Vec<f64>)| Spread {
        name,
        contender,
        runs: values.len(),
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    };
    samples.0.iter().map(of).collect()
}

/// Three digits or more.
pub fn shown(value: Option<f64>) -> String {
    match value {
        None => String::new(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(row: &'static str, values: [&[f64]; 3]) -> Samples {
        let mut samples = Samples::default();
        for (contender, values) in Contender::ALL.into_iter().zip(values) {
            samples.add(contender, values.iter().map(|&value| (row, value)));
        }
        samples
    }

    fn only_line(samples: &Samples) -> (Line, Vec<Judgement>) {
        let mut report = Report::new((), samples);
        (report.rows.remove(0), report.targets)
    }

    fn medians(line: &Line) -> (Option<f64>, Option<f64>) {
        let of = |ratios: Option<Ratios>| ratios.map(|it| it.median);
        (of(line.vs_nftables), of(line.vs_forwarding))
    }

    #[test]
    fn a_row_shows_the_medians_of_its_runs() {
        let (line, _) = only_line(&samples(
            "connections",
            [&[9.0, 1.0, 3.0], &[4.0, 2.0], &[6.0]],
        ));
        assert_eq!(
            (line.anabranch, line.nftables, line.forwarding),
            (3.0, Some(3.0), Some(6.0))
        );
    }

    #[test]
    fn a_ratio_above_one_is_better_whether_more_or_less_is_wanted() {
        let (more, _) = only_line(&samples("connections", [&[30.0], &[20.0], &[60.0]]));
        let (less, _) = only_line(&samples("latency_p50", [&[20.0], &[30.0], &[10.0]]));
        assert_eq!(medians(&more), (Some(1.5), Some(0.5)));
        assert_eq!(medians(&less), (Some(1.5), Some(0.5)));
    }

    #[test]
    fn added_latency_is_what_exceeds_plain_forwarding_and_a_negative_one_has_no_ratio() {
        let mut samples = samples("latency_p50", [&[9.0], &[15.0], &[10.0]]);
        samples.derive();
        let report = Report::new((), &samples);
        let added = report
            .rows
            .iter()
            .find(|row| row.name == "added_latency_p50");
        let added = added.map(|row| (row.anabranch, row.nftables, row.vs_nftables));
        assert_eq!(added, Some((-1.0, Some(5.0), None)));
    }

    #[test]
    fn a_target_is_reached_at_its_bound() {
        let (_, targets) = only_line(&samples("connections", [&[13.0], &[10.0], &[20.0]]));
        let outcomes: Vec<_> = targets
            .iter()
            .map(|t| (t.target.as_str(), t.reached))
            .collect();
        assert_eq!(outcomes, [("≥ 1.3 × nftables", true)]);
    }

    #[test]
    fn ratios_are_of_runs_that_took_turns() {
        let mut samples = Samples::default();
        for (ours, alone) in [(80.0, 100.0), (90.0, 100.0), (170.0, 200.0)].repeat(2) {
            samples.add(Contender::Redirect, [("packets_64_byte", alone)]);
            samples.add(Contender::Anabranch, [("packets_64_byte", ours)]);
        }
        let (line, targets) = only_line(&samples);
        assert_eq!(
            line.vs_redirect.unwrap().to_string(),
            "0.850\n0.800 to 0.900"
        );
        let outcomes: Vec<_> = targets
            .iter()
            .map(|t| (t.target.as_str(), t.reached))
            .collect();
        assert_eq!(outcomes, [("≥ 0.85 × redirect alone", true)]);
    }
}
