//! Many runs side by side: what the policies did at each point of a sweep, over all seeds.
//!
//! Runs that are not valid are counted and left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anabranch_results::{
    Compared, Comparison, FIGURES, Figure, OutputError, ResultsDir, write_json, write_records,
};
use anabranch_scenario::stats::Estimate;
use maud::{Markup, PreEscaped, html};
use serde::Serialize;

use crate::chart::{Bars, Chart, Plot};
use crate::drawings::{Drawings, Drawn};
use crate::report::page;

/// Points whose distributions of durations are drawn; all of them are in the tables.
const DISTRIBUTIONS_MAX: usize = 6;

/// `comparison.json`.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    comparison: &'a Comparison,
    plots: Drawn,
}

/// A comparison for readers.
#[derive(Clone, Copy, Debug)]
pub struct ComparisonPage<'a>(pub &'a Comparison);

impl ComparisonPage<'_> {
    /// Writes `comparison.json`, `comparison.csv`, `comparison.html` and the plots of that page, with `png` in both
    /// formats, in place of an earlier comparison in the same world, whose plots go away. The names of the laboratory's end
    /// with `-lab`. Returns the path of the page.
    pub fn write(&self, results: &ResultsDir, png: bool) -> Result<PathBuf, OutputError> {
        let directory = results.path();
        let suffix = self.0.world.suffix();
        let [json, csv, html] =
            ["json", "csv", "html"].map(|end| directory.join(format!("comparison{suffix}.{end}")));
        let svg = |(name, plot): (String, Plot)| Ok((format!("{name}{suffix}"), plot.svg()?));
        let svgs = self.plots().into_iter().map(svg);
        let drawings = Drawings::new(svgs.collect::<Result<Vec<_>, OutputError>>()?, png)?;
        let page = self.render()?;
        Drawn::of(&json).remove_from(directory)?;
        let written = Written {
            comparison: self.0,
            plots: drawings.drawn(),
        };
        write_json(&json, &written)?;
        write_records(&csv, self.0.records())?;
        drawings.write(directory)?;
        match fs::write(&html, page) {
            Ok(()) => Ok(html),
            Err(error) => Err(OutputError::Io { path: html, error }),
        }
    }

    /// The page: no scripts, no external resources.
    pub fn render(&self) -> Result<String, OutputError> {
        let invalid: u64 = self.0.rows.iter().map(|row| row.invalid).sum();
        let runs: u64 = self.0.rows.iter().map(|row| row.runs).sum();
        let plots = self.plots().into_iter().map(|(_, plot)| plot.inline());
        let plots: Vec<String> = plots.collect::<Result<_, _>>()?;
        let body = html! {
            p.lead { (runs) " valid runs " (self.0.world.place()) "." }
            @if invalid > 0 { p.bad { "Invalid and left out: " (invalid) "; the manifests say why." } }
            p.hint { "The median over the seeds, and below it the 95 % confidence interval of the mean, if they differ: "
                "Student's, cut off where a figure cannot be." }
            @for point in self.0.points() { (self.table(&point)) }
            h2 { "Plots" }
            p.hint { "Bars are means over the seeds, with the 95 % confidence interval of the mean." }
            @for plot in &plots { figure.wide { (PreEscaped(plot)) } }
        };
        Ok(page(
            &format!("{}: policies compared", self.0.scenario),
            &body,
        ))
    }

    fn table(&self, point: &BTreeMap<String, String>) -> Markup {
        let rows: Vec<&Compared> = self.0.at(point).collect();
        let known = |figure: &&Figure| rows.iter().any(|row| row.figures.contains_key(figure.key));
        html! {
            @if !point.is_empty() { h2 { (label(point)) } }
            div.wide {
                table {
                    thead { tr {
                        th { "figure" }
                        @for row in &rows { th.number { (row.policy) } }
                    } }
                    tbody {
                        tr {
                            th scope="row" { "runs" }
                            @for row in &rows { (runs_cell(row)) }
                        }
                        @for figure in FIGURES.iter().filter(known) {
                            tr {
                                th scope="row" { (figure.name) }
                                @for row in &rows { (figure_cell(figure, row)) }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Every plot and the name of its file.
    fn plots(&self) -> Vec<(String, Plot)> {
        let points = self.0.points();
        let bars = FIGURES.iter().filter_map(|figure| {
            let (unit, scale) = figure.quantity.unit().filter(|_| figure.plotted)?;
            let plot = self.bars(figure, unit, scale, &points)?;
            Some((figure.key.to_owned(), Plot::Bars(plot)))
        });
        let shown = points.iter().take(DISTRIBUTIONS_MAX).enumerate();
        let curves = shown.map(|(index, point)| {
            let name = match points.len() {
                1 => "durations".to_owned(),
                _ => format!("durations-{}", index + 1),
            };
            (name, Plot::Chart(self.durations(point)))
        });
        bars.chain(curves).collect()
    }

    /// `None` if no run has the figure, or all have none of it.
    fn bars(
        &self,
        figure: &Figure,
        unit: &str,
        scale: f64,
        points: &[BTreeMap<String, String>],
    ) -> Option<Bars> {
        let of = |row: &Compared| row.figures.get(figure.key).map(|found| found.scaled(scale));
        let some = |estimate: Option<Estimate>| estimate.is_some_and(|found| found.max > 0.0);
        if !self.0.rows.iter().any(|row| some(of(row))) {
            return None;
        }
        let title = figure.name;
        let missing = Estimate::exact(f64::NAN);
        let policies = self.0.policies();
        if let [point] = points {
            let values = self.0.at(point).map(|row| of(row).unwrap_or(missing));
            return Some(Bars::new(title, unit, policies).series("", values));
        }
        // Below a group is room for the values; what they are of is the same for all.
        let keys: Vec<String> = points
            .iter()
            .take(1)
            .flat_map(BTreeMap::keys)
            .map(|key| short(key))
            .collect();
        let title = format!("{title} by {}", keys.join(", "));
        let values = |point: &BTreeMap<String, String>| {
            let values: Vec<&str> = point.values().map(String::as_str).collect();
            values.join(", ")
        };
        let bars = Bars::new(title, unit, points.iter().map(values));
        Some(policies.iter().fold(bars, |bars, policy| {
            let found = |point| {
                self.0
                    .at(point)
                    .find(|row| row.policy == *policy)
                    .and_then(of)
            };
            let values = points.iter().map(|point| found(point).unwrap_or(missing));
            bars.series(*policy, values.collect::<Vec<_>>())
        }))
    }

    fn durations(&self, point: &BTreeMap<String, String>) -> Chart {
        let chart = Chart::new(
            label(point),
            "duration of a transfer (logarithmic)",
            "share of transfers",
        );
        let chart = chart.log_x().seconds_x().range_y(0.0..1.0);
        self.0.at(point).fold(chart, |chart, row| {
            chart.line(&row.policy, row.durations.curve())
        })
    }
}

/// A point in words.
fn label(point: &BTreeMap<String, String>) -> String {
    let value = |(key, value): (&String, &String)| format!("{} = {value}", short(key));
    point.iter().map(value).collect::<Vec<_>>().join(", ")
}

/// The last two parts of a dotted key, which are enough to tell it.
fn short(key: &str) -> String {
    let mut parts = key.rsplit('.');
    let (last, before) = (parts.next().unwrap_or(key), parts.next());
    before.map_or(last.to_owned(), |before| format!("{before}.{last}"))
}

fn runs_cell(row: &Compared) -> Markup {
    html! {
        td.number {
            (row.runs)
            @if row.invalid > 0 { " " span.bad { "+ " (row.invalid) " invalid" } }
        }
    }
}

fn figure_cell(figure: &Figure, row: &Compared) -> Markup {
    let text = |value| figure.quantity.text(value);
    html! {
        td.number {
            @if let Some(found) = row.figures.get(figure.key) {
                (text(found.median))
                @if found.low < found.high { br; span.hint { (text(found.low)) " … " (text(found.high)) } }
            } @else { "–" }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use anabranch_results::{BuildId, Rows, Sweep};
    use anabranch_scenario::{Counts, Link, Record, Run, ScenarioFile, World};

    use super::*;
    use crate::layout;
    use anabranch_scenario::testing::transfer;

    /// Transfers take as long as the seed says, ten times as long by RR; seed 3 of RR is invalid.
    fn world(run: &Run, _: &mut dyn FnMut(Duration)) -> Result<Record, String> {
        let rr = run.policy.to_string() == "RR";
        let duration_s = run.seed as f64 * if rr { 10.0 } else { 1.0 };
        let broken = rr && run.seed == 3;
        Ok(Record {
            world: World::Sim,
            transfers: vec![transfer(0, 0.0, duration_s)],
            series: Vec::new(),
            events: Vec::new(),
            links: vec![Link {
                name: "fiber".into(),
                down_rate_bps: 1_000_000,
                up_rate_bps: 500_000,
            }],
            counts: Counts {
                reassignments: run.seed,
                ..Counts::default()
            },
            conditions: Vec::new(),
            problems: Vec::from_iter(broken.then(|| "broken".to_owned())),
        })
    }

    fn compared(text: &str) -> (tempfile::TempDir, Comparison) {
        let out = tempfile::tempdir().unwrap();
        let comparison = compared_in(out.path(), text, false);
        (out, comparison)
    }

    fn compared_in(out: &Path, text: &str, png: bool) -> Comparison {
        let text = format!(
            "policies = [\"WSDM\", \"RR\"]\nseeds = 3\nlink.fiber = {{ rate = \"1mbit\" }}\n{text}"
        );
        let file = ScenarioFile::parse(Path::new("house.toml"), &text).unwrap();
        let out = ResultsDir::open(out).unwrap();
        let sweep = Sweep::plan(&out, World::Sim, BuildId::running().unwrap(), file.runs());
        let finished = sweep
            .run(None, layout(Rows::Parquet), world, |_| {})
            .unwrap();
        let comparison = Comparison::of(World::Sim, &finished).unwrap();
        ComparisonPage(&comparison).write(&out, png).unwrap();
        comparison
    }

    #[test]
    fn policies_are_compared_over_their_seeds_and_invalid_runs_left_out() {
        let (out, comparison) = compared("");
        let [wsdm, rr] = &comparison.rows[..] else {
            panic!("{:?}", comparison.rows)
        };
        assert_eq!(
            (wsdm.policy.as_str(), wsdm.runs, wsdm.invalid),
            ("WSDM", 3, 0)
        );
        assert_eq!((rr.policy.as_str(), rr.runs, rr.invalid), ("RR", 2, 1));
        let median_s = |row: &Compared| row.figures["duration_sum_s"].median;
        assert_eq!((median_s(wsdm), median_s(rr)), (2.0, 15.0));
        assert_eq!(wsdm.figures["reassignments"].max, 3.0);
        // Two runs of 10 and 20 s: Student's interval alone would begin at -48 s.
        let wide = rr.figures["duration_sum_s"];
        assert_eq!((wide.low, wide.mean), (0.0, 15.0));
        assert!(wide.high > 70.0);
        let page = fs::read_to_string(out.path().join("comparison.html")).unwrap();
        assert!(
            page.contains("+ 1 invalid")
                && page.contains("Invalid and left out: 1;")
                && page.contains("house: policies compared")
        );
        for plot in ["goodput_bps.svg", "ebu.svg", "durations.svg"] {
            assert!(out.path().join(plot).exists(), "{plot}");
        }
        assert!(
            !out.path().join("failed_ratio.svg").exists(),
            "nothing failed"
        );
    }

    #[test]
    fn the_table_has_one_row_per_point_and_policy() {
        let (out, comparison) = compared("[sweep]\nlink.fiber.rate = [\"1mbit\", \"2mbit\"]");
        assert_eq!(comparison.rows.len(), 4);
        let csv = fs::read_to_string(out.path().join("comparison.csv")).unwrap();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 5);
        assert!(lines[0].starts_with(
            "link.fiber.rate,policy,runs,invalid,goodput_bps_median,goodput_bps_mean,"
        ));
        assert!(lines[4].starts_with("2mbit,RR,2,1,"), "{}", lines[4]);
        assert!(out.path().join("durations-2.svg").exists());
        let page = fs::read_to_string(out.path().join("comparison.html")).unwrap();
        assert!(page.contains("fiber.rate = 2mbit"));
        let plot = fs::read_to_string(out.path().join("goodput_bps.svg")).unwrap();
        for words in ["goodput by fiber.rate", "1mbit", "2mbit"] {
            assert!(plot.contains(words), "{words}");
        }
    }

    #[test]
    fn a_comparison_takes_the_plots_of_the_former_away_and_no_file_of_a_user() {
        let out = tempfile::tempdir().unwrap();
        let exists = |name: &str| out.path().join(name).exists();
        compared_in(
            out.path(),
            "[sweep]\nlink.fiber.rate = [\"1mbit\", \"2mbit\"]",
            true,
        );
        assert!(exists("durations-2.svg") && exists("durations-2.png") && exists("ebu.png"));
        for mine in ["mine.svg", "durations-3.svg", "durations-1.png"] {
            fs::write(out.path().join(mine), "mine").unwrap();
        }
        compared_in(out.path(), "", false);
        for gone in [
            "durations-1.svg",
            "durations-2.svg",
            "durations-2.png",
            "ebu.png",
        ] {
            assert!(!exists(gone), "{gone}");
        }
        for there in [
            "durations.svg",
            "ebu.svg",
            "mine.svg",
            "durations-3.svg",
            "durations-1.png",
        ] {
            assert!(exists(there), "{there}");
        }
    }

    #[test]
    fn the_comparison_of_a_world_stands_beside_that_of_the_other() {
        let (out, sim) = compared("");
        let lab = Comparison {
            world: World::Lab,
            ..sim
        };
        let page = ComparisonPage(&lab).write(&ResultsDir::open(out.path()).unwrap(), false);
        assert_eq!(page.unwrap(), out.path().join("comparison-lab.html"));
        for (page, place) in [
            ("comparison.html", "simulator"),
            ("comparison-lab.html", "laboratory"),
        ] {
            let page = fs::read_to_string(out.path().join(page)).unwrap();
            assert!(page.contains(&format!("5 valid runs in the {place}.")));
        }
        for plot in ["ebu.svg", "ebu-lab.svg"] {
            assert!(out.path().join(plot).exists(), "{plot}");
        }
    }

    #[test]
    fn no_runs_make_an_empty_comparison() {
        let comparison = Comparison::of(World::Lab, &[]).unwrap();
        assert!(comparison.rows.is_empty() && ComparisonPage(&comparison).render().is_ok());
    }
}
