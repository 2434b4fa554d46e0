//! Runs side by side on a terminal: one row per point and policy.

use anabranch_scenario::{Compared, Comparison};

use crate::table::{self, Columns};

/// A column: its title, the key of the figure it shows, and how it writes the mean over the seeds.
type Column = (&'static str, &'static str, fn(f64) -> String);

const COLUMNS: [Column; 7] = [
    (">goodput", "goodput_bps", table::rate),
    (">per transfer", "mean_throughput_bps", table::rate),
    (">median", "duration_p50_s", table::time),
    (">p99", "duration_p99_s", table::time),
    (">users differ", "user_deviation_bps", table::rate),
    (">failed", "failed_ratio", table::percent),
    (">lost", "loss_ratio", table::percent),
];
/// The figure whose 95 % interval is shown.
const WITH_INTERVAL: &str = "goodput_bps";

pub fn columns(comparison: &Comparison) -> Columns {
    let swept = comparison.rows.first().map(|row| row.point.keys());
    let swept: Vec<&str> = swept.into_iter().flatten().map(String::as_str).collect();
    let mut titles = swept.clone();
    titles.extend(["policy", ">runs"]);
    titles.extend(COLUMNS.iter().map(|(title, ..)| *title));
    titles.extend([">goodput ±", "invalid"]);
    let mut columns = Columns::new(&titles);
    for row in &comparison.rows {
        columns.cells(cells(row, &swept));
    }
    columns
}

fn cells(row: &Compared, swept: &[&str]) -> Vec<String> {
    let point = swept.iter().map(|key| row.point.get(*key));
    let mut cells: Vec<String> = point.map(table::optional).collect();
    cells.extend([row.policy.clone(), row.runs.to_string()]);
    cells.extend(COLUMNS.iter().map(|(_, key, write)| {
        let mean = row.figures.get(key).map(|estimate| estimate.mean);
        table::optional(mean.map(write))
    }));
    let interval = row.figures.get(WITH_INTERVAL);
    let interval = interval.filter(|estimate| estimate.count > 1);
    let half = interval.map(|estimate| table::rate(estimate.half_width()));
    cells.push(table::optional(half));
    cells.push(match row.invalid {
        0 => String::new(),
        invalid => table::bad(invalid).to_string(),
    });
    cells
}
