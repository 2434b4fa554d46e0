//! Tables and words for a terminal.
//!
//! Columns are aligned with spaces and nothing else, so that `awk` reads them as people do. Colour says what the words
//! say already, and only on a terminal that wants it (`NO_COLOR`, `CLICOLOR`).

use anabranch_config::format;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use console::{Style, StyledObject};

const NOTHING: &str = "-";

/// A table whose columns are as wide as their widest cell.
pub struct Columns(Table);

impl Columns {
    /// A title that begins with `>` is of a column of numbers, aligned by their last digits.
    pub fn new(titles: &[&str]) -> Self {
        let mut table = Table::new();
        table
            .load_preset(comfy_table::presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled);
        let bold = Style::new().bold();
        table.set_header(titles.iter().map(|title| {
            let title = title.strip_prefix('>').unwrap_or(title);
            bold.apply_to(title).to_string()
        }));
        for (column, title) in table.column_iter_mut().zip(titles) {
            column.set_padding((0, 2));
            if title.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        Self(table)
    }

    /// A line of the table.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.0.add_row(cells);
    }

    /// As many cells as there are titles.
    pub fn cells(&mut self, cells: Vec<String>) {
        self.0.add_row(cells);
    }
}

impl std::fmt::Display for Columns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        lines(&self.0, f)
    }
}

/// Without spaces at their ends.
fn lines(table: &Table, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    for line in table.to_string().lines() {
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}

/// What is known of one thing, a line for each word or more where the terminal is narrow.
pub struct Details(Table);

impl Default for Details {
    fn default() -> Self {
        let mut table = Table::new();
        table.load_preset(comfy_table::presets::NOTHING);
        match console::Term::stdout().size_checked() {
            Some((_, width)) => table
                .set_width(width)
                .set_content_arrangement(ContentArrangement::Dynamic),
            None => table.set_content_arrangement(ContentArrangement::Disabled),
        };
        Self(table)
    }
}

impl Details {
    /// A fact, beside the word for it.
    pub fn add(&mut self, word: &str, fact: impl Into<String>) {
        let word = Style::new().dim().apply_to(word).to_string();
        self.0.add_row([word, fact.into().replace('`', "")]);
    }
}

impl std::fmt::Display for Details {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        lines(&self.0, f)
    }
}

/// The title of what stands under it.
pub fn title(text: &str) -> StyledObject<&str> {
    Style::new().bold().apply_to(text)
}

/// A value, or a dash in its place.
pub fn optional(value: Option<impl ToString>) -> String {
    value.map_or_else(|| NOTHING.to_owned(), |value| value.to_string())
}

/// Separated by commas.
pub fn list(values: &[impl ToString]) -> String {
    let words: Vec<String> = values.iter().map(ToString::to_string).collect();
    optional((!words.is_empty()).then(|| words.join(", ")))
}

/// In bit/s with a prefix: 38.4 Mbit/s.
pub fn rate(rate_bps: f64) -> String {
    plain(format::bps(rate_bps))
}

/// What is used of a declared rate: 38.4 of 40 Mbit/s.
pub fn rate_of(now_bps: f64, declared_bps: Option<u64>) -> String {
    match declared_bps {
        Some(rate_bps) => format!("{:>4.1} of {} Mbit/s", now_bps / 1e6, rate_bps as f64 / 1e6),
        None => rate(now_bps),
    }
}

/// In bytes with a prefix: 60.5 MB.
pub fn amount(bytes: u64) -> String {
    plain(format::bytes(bytes))
}

/// A time with the two units that matter: 12.3 ms, 4 m 10 s, 3 d 2 h.
pub fn time(time_s: f64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    if time_s < 60.0 {
        return plain(format::seconds(time_s));
    }
    let whole_s = time_s.round() as u64;
    let first = UNITS
        .iter()
        .position(|(unit_s, _)| whole_s >= *unit_s)
        .unwrap_or(UNITS.len() - 2);
    let [(large_s, large), (small_s, small)] = [UNITS[first], UNITS[first + 1]];
    format!(
        "{} {large} {} {small}",
        whole_s / large_s,
        whole_s % large_s / small_s
    )
}

/// 0.042 is 4.20 %.
pub fn percent(ratio: f64) -> String {
    plain(format::percent(ratio))
}

/// Without the narrow space that reports set numbers with: not every terminal has a glyph for it.
pub fn plain(text: String) -> String {
    text.replace('\u{202f}', " ")
}

/// As it should be.
pub fn good<D>(text: D) -> StyledObject<D> {
    Style::new().green().apply_to(text)
}

/// To be looked at.
pub fn doubtful<D>(text: D) -> StyledObject<D> {
    Style::new().yellow().apply_to(text)
}

/// Wrong.
pub fn bad<D>(text: D) -> StyledObject<D> {
    Style::new().red().bold().apply_to(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_have_no_trailing_spaces() {
        let mut columns = Columns::new(&["link", ">flows"]);
        for (link, flows) in [("fiber", 7), ("lte", 1200)] {
            columns.row([link.to_owned(), flows.to_string()]);
        }
        assert_eq!(
            columns.to_string(),
            "link   flows\nfiber      7\nlte     1200\n"
        );
    }

    #[test]
    fn times_have_two_units_at_most() {
        for (time_s, words) in [
            (0.0123, "12.3 ms"),
            (59.0, "59.0 s"),
            (250.0, "4 m 10 s"),
            (3_600.0, "1 h 0 m"),
            (266_500.0, "3 d 2 h"),
        ] {
            assert_eq!(time(time_s), words);
        }
    }
}
