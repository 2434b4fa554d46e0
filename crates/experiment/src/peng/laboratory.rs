//! Cells of figures 5 to 12 on real kernels, beside the simulator: those that `laboratory.toml` declares.

use std::collections::BTreeMap;

use anabranch_config::{BadInput, Source};
use anabranch_report::chart::Chart;
use anabranch_scenario::Run;
use anabranch_scenario::stats::mean;
use serde::Deserialize;

use super::testbed::{Seen, Testbed, Workload, runs, seen};
use crate::findings::Table;
use crate::{Context, ExperimentError, Findings, Observation, carry_out_side_by_side, simulate};

const FILE: &str = "laboratory.toml";
/// By so much the laboratory's mean throughput may differ from the simulator's.
const NEAR: f64 = 0.15;

const TITLE: &str = "Both worlds, cell by cell: means over the seeds; where there are two numbers, the simulator's comes first.";
const HEAD: [&str; 9] = [
    "workload",
    "algorithm",
    "simulated, kbit/s",
    "real kernels, kbit/s",
    "ratio",
    "rank simulated",
    "rank on kernels",
    "T_c, s",
    "sessions on BL2, %",
];

/// As it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Declared {
    group: Vec<Group>,
}

/// Algorithms at several workloads in one scenario, over so many links where that is not the file's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    scenario: String,
    links: Option<usize>,
    loads: Vec<[u32; 2]>,
    algorithms: Vec<String>,
}

/// An algorithm at one workload.
struct Cell {
    /// What it shares with those it is ranked among.
    column: String,
    algorithm: String,
    runs: Vec<Run>,
}

pub(super) fn run(context: &Context) -> Result<Findings, ExperimentError> {
    let cells = cells(context)?;
    let all: Vec<Run> = cells.iter().flat_map(|cell| cell.runs.clone()).collect();
    let simulated = by_cell(&cells, simulate(context, &all, seen)?);
    let real = by_cell(&cells, carry_out_side_by_side(context, &all, seen)?);
    let mut findings = Findings::default();
    let mean_bps =
        |(here, there): (&Vec<Seen>, &Vec<Seen>)| (throughput_bps(here), throughput_bps(there));
    let means: Vec<(f64, f64)> = simulated.iter().zip(&real).map(mean_bps).collect();
    let columns: Vec<&str> = cells.iter().map(|cell| cell.column.as_str()).collect();
    let of_cell = |index: usize| {
        let (here_bps, there_bps) = means[index];
        let both = [&simulated[index], &real[index]];
        let seconds = both.map(|seen| format!("{:.0}", mean_of(seen, |seen| seen.completion_s)));
        let shares = both.map(|seen| format!("{:.0}", 1e2 * mean_of(seen, |seen| seen.on_bl2)));
        vec![
            cells[index].column.clone(),
            cells[index].algorithm.clone(),
            format!("{:.1}", here_bps / 1e3),
            format!("{:.1}", there_bps / 1e3),
            format!("{:.3}", there_bps / here_bps),
            rank(&columns, &means, index, |(here, _)| here).to_string(),
            rank(&columns, &means, index, |(_, there)| there).to_string(),
            seconds.join(" / "),
            shares.join(" / "),
        ]
    };
    findings.table(Table {
        title: TITLE.to_owned(),
        head: HEAD.map(str::to_owned).to_vec(),
        rows: (0..cells.len()).map(of_cell).collect(),
    });
    findings.observe("near", Observation::Exact(share_near(&means)));
    findings.observe(
        "order",
        Observation::Exact(share_in_order(&columns, &means)),
    );
    findings.plot("laboratory", drawn(&columns, &means));
    Ok(findings)
}

/// In the order of the file; of a quick run the first workload of each group.
fn cells(context: &Context) -> Result<Vec<Cell>, ExperimentError> {
    let seeds = context.seeds();
    let declared = Declared::of(context)?;
    let mut cells = Vec::new();
    for group in declared.group {
        let loads = match context.options.quick {
            true => &group.loads[..group.loads.len().min(1)],
            false => &group.loads[..],
        };
        for &[users, files] in loads {
            let load = Workload(users, files);
            let testbed = match group.links {
                Some(links) => Testbed::aggregate(context.files, links, load)?,
                None => Testbed::of(context.files, &group.scenario, load)?,
            };
            for algorithm in &group.algorithms {
                cells.push(Cell {
                    column: testbed.scenario().name.clone(),
                    algorithm: algorithm.clone(),
                    runs: runs(testbed.scenario(), algorithm, &seeds)?,
                });
            }
        }
    }
    Ok(cells)
}

impl Declared {
    fn of(context: &Context) -> Result<Declared, BadInput> {
        let (path, text) = (context.files.path(FILE), context.files.text(FILE));
        Source::parse(&path, text)?.read()
    }
}

fn by_cell(cells: &[Cell], seen: Vec<Seen>) -> Vec<Vec<Seen>> {
    let mut seen = seen.into_iter();
    let of = |cell: &Cell| seen.by_ref().take(cell.runs.len()).collect();
    cells.iter().map(of).collect()
}

fn mean_of(seen: &[Seen], of: fn(&Seen) -> f64) -> f64 {
    mean(&seen.iter().map(of).collect::<Vec<_>>())
}

fn throughput_bps(seen: &[Seen]) -> f64 {
    mean_of(seen, |seen| seen.throughput_bps)
}

/// Share of the cells whose mean throughput in the laboratory is near the simulator's.
fn share_near(means: &[(f64, f64)]) -> f64 {
    let near = means
        .iter()
        .filter(|(here, there)| (there / here - 1.0).abs() <= NEAR);
    near.count() as f64 / means.len() as f64
}

/// Of the pairs of algorithms at the same workload that the simulator tells apart by more than [`NEAR`], those that the laboratory
/// ranks the same way.
fn share_in_order(columns: &[&str], means: &[(f64, f64)]) -> f64 {
    let (mut apart, mut agree) = (0.0, 0.0);
    for (index, (here, there)) in means.iter().enumerate() {
        for (other, (other_here, other_there)) in means.iter().enumerate() {
            let slower = other_here * (1.0 + NEAR) < *here && columns[index] == columns[other];
            if slower {
                apart += 1.0;
                agree += f64::from(u8::from(other_there < there));
            }
        }
    }
    anabranch_scenario::stats::ratio(agree, apart)
}

/// Of the algorithms at the same workload: 1 is the fastest.
fn rank(columns: &[&str], means: &[(f64, f64)], index: usize, of: fn((f64, f64)) -> f64) -> usize {
    let ahead = columns
        .iter()
        .zip(means)
        .filter(|(column, both)| **column == columns[index] && of(**both) > of(means[index]));
    1 + ahead.count()
}

fn drawn(columns: &[&str], means: &[(f64, f64)]) -> Chart {
    let mut by_column: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for (column, (here, there)) in columns.iter().zip(means) {
        let points = by_column.entry(column).or_default();
        points.push((here / 1e3, there / 1e3));
    }
    let ends = means.iter().map(|(here, _)| here / 1e3);
    let most = ends.fold(0.0, f64::max);
    let chart = Chart::new(
        "Mean throughput in both worlds",
        "simulator, kbit/s",
        "real kernels, kbit/s",
    );
    let chart = chart.dashed("equal", [(0.0, 0.0), (most, most)]);
    by_column
        .into_iter()
        .fold(chart, |chart, (column, points)| {
            chart.points(column, points)
        })
}

#[cfg(test)]
mod tests {
    use super::super::EXPERIMENT;
    use super::*;
    use crate::run::tests::context;
    use crate::{Files, Options, World};

    #[test]
    fn near_is_within_15_percent_and_only_what_the_simulator_tells_apart_has_an_order() {
        let means = [(100.0, 116.0), (100.0, 86.0), (50.0, 90.0), (50.0, 1.0)];
        assert_eq!(share_near(&means), 0.25);
        // 100 beats both of 50 in the simulator; (100, 86) does not beat (50, 90) on kernels.
        assert_eq!(share_in_order(&["a"; 4], &means), 0.75);
        assert_eq!(share_in_order(&["a", "b", "b", "b"], &means), 0.5);
        let ranks = |of| [0, 1, 2, 3].map(|index| rank(&["a", "b", "b", "b"], &means, index, of));
        assert_eq!(ranks(|(here, _)| here), [1, 1, 2, 2]);
        assert_eq!(ranks(|(_, there)| there), [1, 2, 1, 3]);
    }

    /// What is declared before it runs: 40 cells at least, each of which the laboratory can run.
    #[test]
    fn the_declared_cells_are_forty_at_least_and_fit_the_laboratory() {
        let files = Files::of(&EXPERIMENT, None).expect("built in");
        let options = Options::default();
        let context = context(&options, &files);
        let cells = cells(&context).expect("reads");
        assert!(cells.len() >= 40, "{}", cells.len());
        let name = |cell: &Cell| (cell.column.clone(), cell.algorithm.clone());
        let mut names: Vec<_> = cells.iter().map(name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), cells.len(), "a cell is there twice");
        for scenario in ["aggregate.toml", "last-mile.toml", "remote.toml"] {
            let file = files.scenario(scenario).expect("reads");
            file.fits(World::Lab).expect("fits");
        }
    }
}
