//! Two builds of this program take turns, so that what the machine does meanwhile hits both alike.
//!
//! A pair is a run of one measure by each build, seconds apart, in an order that changes from pair to pair. A row is
//! judged by the ratios of its pairs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};

use crate::memory;
use crate::ratios::{Ratios, median, sorted};
use crate::report::shown;
use crate::rows::{ROWS, Row, less_redirect};

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
    fn run(&self, measure: &str, result: &Path) -> Result<Values> {
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
        let named = |value: Value| (value.name.clone(), value);
        Ok(written.rows.into_iter().map(named).collect())
    }

    /// Whether `measure` is one of those this build knows.
    pub fn knows(&self, measure: &str) -> Result<bool> {
        let mut command = Command::new(&self.bench);
        let asked = command.args(["--only", measure, "--version"]).output();
        let answer = asked.with_context(|| format!("starting {}", self.bench.display()))?;
        Ok(answer.status.success())
    }
}

/// By row.
type Values = BTreeMap<String, Value>;

/// What a build writes, as far as it is read here.
#[derive(Deserialize)]
struct Written {
    rows: Vec<Value>,
}

#[derive(Clone, Deserialize)]
struct Value {
    name: String,
    anabranch: f64,
    /// Redirect alone, of builds that have it.
    #[serde(default)]
    redirect: Option<f64>,
}

/// What remains of both builds' rows without redirect alone, which is the same whichever build measures it: the new one does.
fn add_less_redirect(former: &mut Values, new: &mut Values) {
    for (from, to) in less_redirect() {
        let alone = new.get(from).and_then(|value| value.redirect);
        let (Some(alone), Some(_)) = (alone, former.get(from)) else {
            continue;
        };
        for values in [&mut *former, &mut *new] {
            let less = Value {
                name: to.to_owned(),
                anabranch: values[from].anabranch - alone,
                redirect: None,
            };
            values.insert(to.to_owned(), less);
        }
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
        let (mut before, mut after) = if former_first {
            let before = former.run(measure, &result)?;
            (before, new.run(measure, &result)?)
        } else {
            let after = new.run(measure, &result)?;
            (former.run(measure, &result)?, after)
        };
        add_less_redirect(&mut before, &mut after);
        for (row, new) in after {
            if let Some(old) = before.get(&row) {
                let pair = [old.anabranch, new.anabranch];
                self.0.entry(row).or_default().push(pair);
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
        let ratios = Ratios::of(row.better, pairs)?;
        let interval = ratios.interval?;
        Some(Comparison {
            name: row.name,
            unit: row.unit,
            pairs: ratios.pairs,
            former: median(&sorted(pairs.iter().map(|pair| pair[0]))),
            new: median(&sorted(pairs.iter().map(|pair| pair[1]))),
            ratio: ratios.median,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ratios::FEWEST_PAIRS;

    fn row(name: &str) -> &'static Row {
        ROWS.iter().find(|row| row.name == name).unwrap()
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

    #[test]
    fn what_remains_without_redirect_alone_is_compared_though_the_former_build_did_not_measure_it()
    {
        let values = |anabranch, redirect| {
            let name = "established_tcp_out".to_owned();
            let value = Value {
                name: name.clone(),
                anabranch,
                redirect,
            };
            Values::from([(name, value)])
        };
        let (mut former, mut new) = (values(150.0, None), values(140.0, Some(60.0)));
        add_less_redirect(&mut former, &mut new);
        let less = "established_tcp_out_less_redirect";
        assert_eq!([former[less].anabranch, new[less].anabranch], [90.0, 80.0]);
    }
}
