//! Runs side by side on a terminal: one row per point and policy.

use anabranch_console::table::{self, Columns};
use anabranch_results::{Compared, Comparison, FIGURES, Figure, Quantity};

/// The figure whose 95 % interval is shown.
const WITH_INTERVAL: &str = "goodput_bps";

pub fn columns(comparison: &Comparison) -> Columns {
    let swept = comparison.rows.first().map(|row| row.point.keys());
    let swept: Vec<&str> = swept.into_iter().flatten().map(String::as_str).collect();
    let mut titles = swept.clone();
    titles.extend(["policy", ">runs"]);
    let figures: Vec<String> = shown().map(|(title, _)| format!(">{title}")).collect();
    titles.extend(figures.iter().map(String::as_str));
    titles.extend([">goodput ±", "invalid"]);
    let mut columns = Columns::new(&titles);
    for row in &comparison.rows {
        columns.cells(cells(row, &swept));
    }
    columns
}

/// The figures there is room for, the means over the seeds, with the titles of their columns.
fn shown() -> impl Iterator<Item = (&'static str, &'static Figure)> {
    FIGURES
        .iter()
        .filter_map(|figure| Some((figure.short?, figure)))
}

fn cells(row: &Compared, swept: &[&str]) -> Vec<String> {
    let point = swept.iter().map(|key| row.point.get(*key));
    let mut cells: Vec<String> = point.map(table::optional).collect();
    cells.extend([row.policy.clone(), row.runs.to_string()]);
    cells.extend(shown().map(|(_, figure)| {
        let mean = row.figures.get(figure.key).map(|estimate| estimate.mean);
        table::optional(mean.map(|mean| quantity(figure.quantity, mean)))
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

/// A figure of merit.
fn quantity(quantity: Quantity, value: f64) -> String {
    match quantity {
        Quantity::Time => table::time(value),
        other => table::plain(other.text(value)),
    }
}
