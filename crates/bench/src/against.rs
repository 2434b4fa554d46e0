//! Two builds of this program take turns, so that what the machine does meanwhile hits both alike.
//!
//! A pair is a run of one measure by each build, seconds apart, in an order that changes from pair to pair. A row is
//! judged by the ratios of its pairs: their median, and its exact interval by order statistics (David & Nagaraja,
//! Order Statistics, section 7.1), which supposes no distribution.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};

use crate::memory;
use crate::report::{median, ratio, shown};
use crate::rows::{ROWS, Row};

/// Fewer pairs have no interval of 95 %.
pub const FEWEST_PAIRS: usize = 6;
/// A row whose whole interval is below has become worse.
const WORSE_BELOW: f64 = 0.97;
/// An interval that reaches farther to both sides, in the mean, shows nothing.
const WIDEST: f64 = 0.03;

/// A build: this program and the daemon beside it.
pub struct Build {
    bench: PathBuf,
}

impl Build {
    pub fn at(bench: &Path) -> Result<Self> {
        ensure!(bench.is_file(), "{}: no such file", bench.display());
        let daemon = bench.with_file_name("anabranch");
        ensure!(
            daemon.is_file(),
            "{}: no such file; a build is compared with its daemon beside it",
            daemon.display()
        );
        Ok(Build {
            bench: bench.canonicalize()?,
        })
    }

    /// One run of a measure: its rows and their values. The next begins when the kernel has taken back what it gave.
    fn run(&self, measure: &str, result: &Path) -> Result<BTreeMap<String, f64>> {
        let level = memory::used()?;
        let output = Command::new(&self.bench)
            .args(["--contender", "anabranch", "--runs", "1", "--only", measure])
            .arg("--output")
            .arg(result)
            .output()
            .with_context(|| format!("starting {}", self.bench.display()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{} --only {measure}: {said}", self.bench.display());
        }
        let file =
            File::open(result).with_context(|| format!("what {measure} wrote is missing"))?;
        let written: Written = serde_json::from_reader(BufReader::new(file))?;
        fs::remove_file(result)?;
        memory::wait_for_return_to(level)?;
        Ok(written.rows.into_iter().map(Value::into_pair).collect())
    }
}

/// What a build writes, as far as it is read here.
#[derive(Deserialize)]
struct Written {
    rows: Vec<Value>,
}

#[derive(Deserialize)]
struct Value {
    name: String,
    anabranch: f64,
}

impl Value {
    fn into_pair(self) -> (String, f64) {
        (self.name, self.anabranch)
    }
}

/// Runs of both builds, pair by pair.
#[derive(Default)]
pub struct Pairs(BTreeMap<String, Vec<[f64; 2]>>);

impl Pairs {
    /// One more pair of `measure`, the former build first or last.
    pub fn run(
        &mut self,
        [former, new]: [&Build; 2],
        measure: &str,
        former_first: bool,
    ) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let result = folder.path().join("run.json");
        let (before, after) = if former_first {
            let before = former.run(measure, &result)?;
            (before, new.run(measure, &result)?)
        } else {
            let after = new.run(measure, &result)?;
            (former.run(measure, &result)?, after)
        };
        for (row, value) in after {
            if let Some(&old) = before.get(&row) {
                self.0.entry(row).or_default().push([old, value]);
            }
        }
        Ok(())
    }

    /// Of the rows that have a ratio, in the order of the table.
    pub fn compare(&self) -> Vec<Comparison> {
        let of = |row: &'static Row| Comparison::of(row, self.0.get(row.name)?);
        ROWS.iter().filter_map(of).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Worse,
    /// The interval is too wide to tell.
    NotShown,
    Held,
    Better,
}

impl Verdict {
    fn of((low, high): (f64, f64)) -> Self {
        if high < WORSE_BELOW {
            Verdict::Worse
        } else if (high - low) / 2.0 > WIDEST {
            Verdict::NotShown
        } else if low > 1.0 {
            Verdict::Better
        } else {
            Verdict::Held
        }
    }

    fn word(self) -> &'static str {
        match self {
            Verdict::Worse => "WORSE",
            Verdict::NotShown => "not shown",
            Verdict::Held => "held",
            Verdict::Better => "better",
        }
    }
}

/// A row of both builds. Ratios are above 1 where the new build is better.
#[derive(Debug, Serialize)]
pub struct Comparison {
    name: &'static str,
    unit: &'static str,
    pairs: usize,
    former: f64,
    new: f64,
    ratio: f64,
    interval: (f64, f64),
    pub verdict: Verdict,
}

impl Comparison {
    fn of(row: &Row, pairs: &[[f64; 2]]) -> Option<Self> {
        let of = |pair: &[f64; 2]| ratio(row.better, pair[1], pair[0]);
        let ratios = sorted(pairs.iter().filter_map(of));
        let interval = interval(&ratios)?;
        Some(Comparison {
            name: row.name,
            unit: row.unit,
            pairs: ratios.len(),
            former: median(&sorted(pairs.iter().map(|pair| pair[0]))),
            new: median(&sorted(pairs.iter().map(|pair| pair[1]))),
            ratio: median(&ratios),
            interval,
            verdict: Verdict::of(interval),
        })
    }

    fn cells(&self) -> [Cell; 7] {
        let label = ROWS
            .iter()
            .find(|row| row.name == self.name)
            .map_or(self.name, |row| row.label);
        let (low, high) = self.interval;
        [
            label.to_owned(),
            self.unit.to_owned(),
            shown(Some(self.former)),
            shown(Some(self.new)),
            format!("{:.3}", self.ratio),
            format!("{low:.3} to {high:.3}"),
            self.verdict.word().to_owned(),
        ]
        .map(Cell::new)
    }
}

pub fn table(comparisons: &[Comparison]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_header(["", "unit", "former", "new", "× former", "95 %", ""]);
    table.add_rows(comparisons.iter().map(Comparison::cells));
    for column in 2..6 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Holds the median of what the values were drawn from, in 95 % of cases at least: how many values lie below that
/// median is a binomial variate of chance ½.
fn interval(sorted: &[f64]) -> Option<(f64, f64)> {
    let n = sorted.len();
    let (mut below, mut chance) = (0, 0.5_f64.powi(i32::try_from(n).ok()?));
    let mut tail = chance;
    while tail <= 0.025 {
        below += 1;
        chance *= (n + 1 - below) as f64 / below as f64;
        tail += chance;
    }
    (below > 0).then(|| (sorted[below - 1], sorted[n - below]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str) -> &'static Row {
        ROWS.iter().find(|row| row.name == name).unwrap()
    }

    #[test]
    fn the_interval_is_that_of_the_sign_test() {
        let values: Vec<_> = (1..=15).map(f64::from).collect();
        assert_eq!(interval(&values), Some((4.0, 12.0)));
        let fewest = values.iter().take(FEWEST_PAIRS);
        assert_eq!(interval(&sorted(fewest.copied())), Some((1.0, 6.0)));
        let fewer = values.iter().take(FEWEST_PAIRS - 1);
        assert_eq!(interval(&sorted(fewer.copied())), None);
    }

    #[test]
    fn a_row_is_worse_only_if_its_whole_interval_is() {
        let verdict = |low, high| Verdict::of((low, high));
        assert_eq!(verdict(0.90, 0.969), Verdict::Worse);
        assert_eq!(verdict(0.94, 0.97), Verdict::Held);
        assert_eq!(verdict(0.90, 0.99), Verdict::NotShown);
        assert_eq!(verdict(1.01, 1.05), Verdict::Better);
    }

    #[test]
    fn a_longer_latency_is_worse_and_more_connections_are_better() {
        let pairs = [[10.0, 20.0]; FEWEST_PAIRS];
        let ratio_of = |name| Comparison::of(row(name), &pairs).unwrap().ratio;
        assert_eq!(ratio_of("latency_p50"), 0.5);
        assert_eq!(ratio_of("connections"), 2.0);
    }
}
