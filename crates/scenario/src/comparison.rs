//! Many runs side by side: what the policies did at each point of a sweep, over all seeds.
//!
//! Runs that are not valid are counted and left out.

use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use maud::{Markup, PreEscaped, html};
use serde::Serialize;

use crate::chart::{Bars, Chart};
use crate::drawings::{Drawings, Drawn};
use crate::metrics::{Distribution, succeeded};
use crate::output::{write_json, write_records};
use crate::report::page;
use crate::stats::{Estimate, NOT_NEGATIVE, SHARE};
use crate::{Finished, OutputError, ResultsDir, Summary, World, format};

/// Points whose distributions of durations are drawn; all of them are in the tables.
const DISTRIBUTIONS_MAX: usize = 6;

/// A figure of a run.
struct Figure {
    key: &'static str,
    name: &'static str,
    value: fn(&Summary) -> Option<f64>,
    quantity: Quantity,
    /// Whether it is drawn; all are in the tables.
    plotted: bool,
}

/// What a figure is of: how people read it, and what it can be.
#[derive(Clone, Copy)]
enum Quantity {
    /// Of the links' rates over T_c.
    Ratio,
    Rate,
    Time,
    Share,
    Bytes,
    Count,
}

impl Quantity {
    fn text(self, value: f64) -> String {
        match self {
            Quantity::Ratio => format!("{value:.3}"),
            Quantity::Rate => format::bps(value),
            Quantity::Time => format::seconds(value),
            Quantity::Share => format::percent(value),
            Quantity::Bytes => format::bytes(value.round() as u64),
            Quantity::Count => {
                let text = format!("{value:.1}");
                text.strip_suffix(".0").unwrap_or(&text).to_owned()
            }
        }
    }

    /// The unit of its plots, and how many base units that is; amounts have none.
    fn unit(self) -> Option<(&'static str, f64)> {
        match self {
            Quantity::Ratio => Some(("share of the links' rate × T_c", 1.0)),
            Quantity::Rate => Some(("Mbit/s", 1e6)),
            Quantity::Time => Some(("s", 1.0)),
            Quantity::Share => Some(("%", 0.01)),
            Quantity::Bytes | Quantity::Count => None,
        }
    }

    /// What it cannot be outside of.
    fn range(self) -> RangeInclusive<f64> {
        match self {
            Quantity::Share => SHARE,
            _ => NOT_NEGATIVE,
        }
    }
}

static FIGURES: [Figure; 15] = [
    Figure {
        key: "goodput_bps",
        name: "goodput",
        value: |s| Some(s.goodput_bps),
        quantity: Quantity::Rate,
        plotted: true,
    },
    Figure {
        key: "mean_throughput_bps",
        name: "mean throughput",
        value: |s| (s.ok > 0).then_some(s.mean_throughput_bps),
        quantity: Quantity::Rate,
        plotted: true,
    },
    Figure {
        key: "ebu",
        name: "EBU",
        value: |s| Some(s.ebu),
        quantity: Quantity::Ratio,
        plotted: true,
    },
    Figure {
        key: "completion_s",
        name: "T_c",
        value: |s| Some(s.completion_s),
        quantity: Quantity::Time,
        plotted: false,
    },
    Figure {
        key: "duration_sum_s",
        name: "sum of durations",
        value: |s| Some(s.duration_sum_s),
        quantity: Quantity::Time,
        plotted: true,
    },
    Figure {
        key: "duration_p50_s",
        name: "median duration",
        value: |s| (s.ok > 0).then_some(s.duration.p50_s),
        quantity: Quantity::Time,
        plotted: true,
    },
    Figure {
        key: "duration_p99_s",
        name: "p99 duration",
        value: |s| (s.ok > 0).then_some(s.duration.p99_s),
        quantity: Quantity::Time,
        plotted: true,
    },
    Figure {
        key: "user_deviation_bps",
        name: "deviation of users",
        value: |s| Some(s.user_deviation_bps),
        quantity: Quantity::Rate,
        plotted: true,
    },
    Figure {
        key: "failed_ratio",
        name: "failed",
        value: |s| Some(s.failed_ratio),
        quantity: Quantity::Share,
        plotted: true,
    },
    Figure {
        key: "loss_ratio",
        name: "packets lost",
        value: |s| Some(s.counts?.loss_ratio()),
        quantity: Quantity::Share,
        plotted: true,
    },
    Figure {
        key: "lost_bytes",
        name: "bytes lost",
        value: |s| Some(s.counts?.dropped().bytes as f64),
        quantity: Quantity::Bytes,
        plotted: false,
    },
    Figure {
        key: "retransmitted_bytes",
        name: "sent again",
        value: |s| Some(s.counts?.retransmitted.counted_bytes()? as f64),
        quantity: Quantity::Bytes,
        plotted: false,
    },
    Figure {
        key: "reordered",
        name: "reordered",
        value: |s| Some(s.counts?.reordered as f64),
        quantity: Quantity::Count,
        plotted: false,
    },
    Figure {
        key: "reassignments",
        name: "reassigned",
        value: |s| Some(s.counts?.reassignments as f64),
        quantity: Quantity::Count,
        plotted: false,
    },
    Figure {
        key: "probe_packets",
        name: "probes",
        value: |s| Some(s.counts?.probes.packets as f64),
        quantity: Quantity::Count,
        plotted: false,
    },
];

/// What several runs say about the policies of a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub scenario: String,
    pub world: World,
    /// Points in the order of the sweep, in each the policies in the order of the scenario.
    pub rows: Vec<Compared>,
}

/// `comparison.json`.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    comparison: &'a Comparison,
    plots: Drawn,
}

/// One policy at one point of the sweep.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    pub point: BTreeMap<String, String>,
    pub policy: String,
    /// Valid runs, one per seed.
    pub runs: u64,
    pub invalid: u64,
    /// By the key of the figure, over the valid runs.
    pub figures: BTreeMap<&'static str, Estimate>,
    /// Of the successful transfers of all valid runs.
    #[serde(skip)]
    durations: Distribution,
}

impl Comparison {
    /// `finished` are runs of one scenario in one world, in their order.
    pub fn of(world: World, finished: &[Finished]) -> Result<Comparison, OutputError> {
        let mut groups: Vec<Vec<&Finished>> = Vec::new();
        for run in finished {
            let same = |group: &&mut Vec<&Finished>| is_beside(group[0], run);
            match groups.iter_mut().find(same) {
                Some(group) => group.push(run),
                None => groups.push(vec![run]),
            }
        }
        let rows = groups.into_iter().map(|group| Compared::of(&group));
        let scenario = finished.first().map(|run| run.manifest.scenario.clone());
        Ok(Comparison {
            scenario: scenario.unwrap_or_default(),
            world,
            rows: rows.collect::<Result<_, _>>()?,
        })
    }

    /// Writes `comparison.json`, `comparison.csv`, `comparison.html` and the plots of that page, with `png` in both
    /// formats, in place of an earlier comparison in the same world, whose plots go away. The names of the laboratory's end
    /// with `-lab`. Returns the path of the page.
    pub fn write(&self, results: &ResultsDir, png: bool) -> Result<PathBuf, OutputError> {
        let directory = results.path();
        let suffix = self.world.suffix();
        let [json, csv, html] =
            ["json", "csv", "html"].map(|end| directory.join(format!("comparison{suffix}.{end}")));
        let svg = |(name, plot): (String, Plot)| Ok((format!("{name}{suffix}"), plot.svg()?));
        let svgs = self.plots().into_iter().map(svg);
        let drawings = Drawings::new(svgs.collect::<Result<Vec<_>, OutputError>>()?, png)?;
        let page = self.render()?;
        Drawn::of(&json).remove_from(directory)?;
        let written = Written {
            comparison: self,
            plots: drawings.drawn(),
        };
        write_json(&json, &written)?;
        write_records(&csv, self.records())?;
        drawings.write(directory)?;
        match fs::write(&html, page) {
            Ok(()) => Ok(html),
            Err(error) => Err(OutputError::Io { path: html, error }),
        }
    }

    /// The page: no scripts, no external resources.
    pub fn render(&self) -> Result<String, OutputError> {
        let invalid: u64 = self.rows.iter().map(|row| row.invalid).sum();
        let runs: u64 = self.rows.iter().map(|row| row.runs).sum();
        let plots = self.plots().into_iter().map(|(_, plot)| plot.inline());
        let plots: Vec<String> = plots.collect::<Result<_, _>>()?;
        let body = html! {
            p.lead { (runs) " valid runs " (self.world.place()) "." }
            @if invalid > 0 { p.bad { "Invalid and left out: " (invalid) "; the manifests say why." } }
            p.hint { "The median over the seeds, and below it the 95 % confidence interval of the mean, if they differ: "
                "Student's, cut off where a figure cannot be." }
            @for point in self.points() { (self.table(&point)) }
            h2 { "Plots" }
            p.hint { "Bars are means over the seeds, with the 95 % confidence interval of the mean." }
            @for plot in &plots { figure.wide { (PreEscaped(plot)) } }
        };
        Ok(page(
            &format!("{}: policies compared", self.scenario),
            &body,
        ))
    }

    fn points(&self) -> Vec<BTreeMap<String, String>> {
        let mut points = Vec::new();
        for row in &self.rows {
            if !points.contains(&row.point) {
                points.push(row.point.clone());
            }
        }
        points
    }

    fn policies(&self) -> Vec<&str> {
        let mut policies = Vec::new();
        for row in &self.rows {
            if !policies.contains(&row.policy.as_str()) {
                policies.push(row.policy.as_str());
            }
        }
        policies
    }

    fn at<'a>(&'a self, point: &'a BTreeMap<String, String>) -> impl Iterator<Item = &'a Compared> {
        self.rows.iter().filter(move |row| row.point == *point)
    }

    fn table(&self, point: &BTreeMap<String, String>) -> Markup {
        let rows: Vec<&Compared> = self.at(point).collect();
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
        let points = self.points();
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
        if !self.rows.iter().any(|row| some(of(row))) {
            return None;
        }
        let title = figure.name;
        let missing = Estimate::exact(f64::NAN);
        let policies = self.policies();
        if let [point] = points {
            let values = self.at(point).map(|row| of(row).unwrap_or(missing));
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
                self.at(point)
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
        self.at(point).fold(chart, |chart, row| {
            chart.line(&row.policy, row.durations.curve())
        })
    }

    /// The rows of the CSV, its header first.
    fn records(&self) -> Vec<Vec<String>> {
        let keys: Vec<&String> = self
            .rows
            .iter()
            .take(1)
            .flat_map(|row| row.point.keys())
            .collect();
        let mut header: Vec<String> = keys.iter().map(|key| (*key).clone()).collect();
        header.extend(["policy", "runs", "invalid"].map(str::to_owned));
        for figure in &FIGURES {
            let columns = ["median", "mean", "low", "high"];
            header.extend(columns.map(|column| format!("{}_{column}", figure.key)));
        }
        let mut records = vec![header];
        for row in &self.rows {
            let mut record: Vec<String> = row.point.values().cloned().collect();
            record.extend([
                row.policy.clone(),
                row.runs.to_string(),
                row.invalid.to_string(),
            ]);
            for figure in &FIGURES {
                let found = row.figures.get(figure.key);
                let values =
                    found.map(|e| [e.median, e.mean, e.low, e.high].map(|v| v.to_string()));
                record.extend(values.unwrap_or_default());
            }
            records.push(record);
        }
        records
    }
}

enum Plot {
    Bars(Bars),
    Chart(Chart),
}

impl Plot {
    fn svg(&self) -> Result<String, OutputError> {
        match self {
            Plot::Bars(bars) => bars.svg(),
            Plot::Chart(chart) => chart.svg(),
        }
    }

    fn inline(&self) -> Result<String, OutputError> {
        match self {
            Plot::Bars(bars) => bars.inline(),
            Plot::Chart(chart) => chart.inline(),
        }
    }
}

fn is_beside(a: &Finished, b: &Finished) -> bool {
    a.manifest.policy == b.manifest.policy && a.manifest.point == b.manifest.point
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

impl Compared {
    /// Runs of one policy at one point; at least one.
    fn of(group: &[&Finished]) -> Result<Compared, OutputError> {
        let valid: Vec<&&Finished> = group.iter().filter(|run| run.manifest.valid).collect();
        let mut durations = Distribution::default();
        for run in &valid {
            let transfers = run.transfers()?;
            succeeded(&transfers).for_each(|transfer| durations.record(transfer.duration_s));
        }
        let figures = FIGURES.iter().filter_map(|figure| {
            let values = valid.iter().filter_map(|run| (figure.value)(&run.summary));
            let estimate = Estimate::of(values)?.within(figure.quantity.range());
            Some((figure.key, estimate))
        });
        let manifest = &group[0].manifest;
        Ok(Compared {
            point: manifest.point.clone(),
            policy: manifest.policy.clone(),
            runs: valid.len() as u64,
            invalid: (group.len() - valid.len()) as u64,
            figures: figures.collect(),
            durations,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::metrics::tests::transfer;
    use crate::{BuildId, Counts, Link, Record, Rows, Run, ScenarioFile, Sweep, World};

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
                rate_bps: 1_000_000,
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
        let sweep = Sweep::plan(&out, World::Sim, BuildId::named("a"), file.runs());
        let finished = sweep.run(None, Rows::Parquet, world, |_| {}).unwrap();
        let comparison = Comparison::of(World::Sim, &finished).unwrap();
        comparison.write(&out, png).unwrap();
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
        let page = lab.write(&ResultsDir::open(out.path()).unwrap(), false);
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
        assert!(comparison.rows.is_empty() && comparison.render().is_ok());
    }
}
