//! The page of one run.

use std::fs;
use std::path::{Path, PathBuf};

use anabranch_results::{
    Figure, Finished, Layout, LinkSummary, Manifest, OutputError, PartSummary, Rows, Summary,
    directions, write_json, write_timeline, write_transfers_csv,
};
use anabranch_scenario::{Counts, Event, EventKind, Link, LinkSeries, Record, Run, Tally, format};
use anabranch_workload::{Direction, Transfer};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::figure::{Drawing, css_colour};
use crate::{plots, words};

/// Keys of the figures that the page lists, in its order.
const LISTED: [&str; 6] = [
    "ebu",
    "completion_s",
    "goodput_bps",
    "mean_throughput_bps",
    "user_deviation_bps",
    "duration_sum_s",
];
/// Failed transfers that the page lists; all of them are in the table of transfers beside it.
const FAILURES_SHOWN: usize = 40;

/// The evidence of a run, ready to be shown to an owner of several links and to a researcher.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The heading of the page.
    pub title: String,
    /// One or two sentences that say what ran and what came of it.
    pub lead: String,
    /// The figures that stand first.
    pub headline: Vec<Headline>,
    /// Everything needed to judge and repeat the run: command, seed, versions, kernel, congestion control…
    pub manifest: Vec<(String, String)>,
    /// Links in the order of their colours.
    pub links: Vec<Link>,
    /// Per-link series in the order of `links`.
    pub series: Vec<LinkSeries>,
    /// Events in the order of time.
    pub events: Vec<Event>,
    /// Every transfer of the run, finished or not.
    pub transfers: Vec<Transfer>,
    /// Why nobody should believe the figures, if so.
    pub problems: Vec<String>,
    /// What no transfer tells, where it was counted.
    pub counts: Option<Counts>,
}

/// A figure that a reader should see first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headline {
    /// What the figure is.
    pub label: String,
    /// The figure with its unit.
    pub value: String,
    /// What the figure is measured against.
    pub note: Option<String>,
}

impl Headline {
    /// A figure that is measured against nothing.
    pub fn new(label: impl Into<String>, value: impl Into<String>) -> Headline {
        Headline {
            label: label.into(),
            value: value.into(),
            note: None,
        }
    }

    /// The same, measured against something.
    pub fn note(self, note: impl Into<String>) -> Headline {
        Headline {
            note: Some(note.into()),
            ..self
        }
    }
}

/// Runs kept with their pages.
pub fn layout(rows: Rows) -> Layout {
    Layout {
        rows,
        page: write_page,
    }
}

/// Writes the page of a run that is kept, and its plots, beside its tables: a [`WritePage`](anabranch_results::WritePage).
pub fn write_page(
    directory: &Path,
    finished: &Finished,
    run: &Run,
    record: Record,
) -> Result<(), OutputError> {
    Report::of(finished, run, record).write_page(directory)?;
    Ok(())
}

impl Report {
    /// Of a run that was kept.
    pub fn of(finished: &Finished, run: &Run, record: Record) -> Report {
        let Manifest {
            scenario,
            policy,
            seed,
            world,
            ..
        } = &finished.manifest;
        Report {
            title: format!("{scenario}: {policy}"),
            lead: format!(
                "{} transfers {}, seed {seed}.",
                finished.summary.transfers,
                world.place()
            ),
            headline: headline(&finished.summary),
            manifest: facts(&finished.manifest, run),
            problems: record.problems,
            links: record.links,
            series: record.series,
            events: record.events,
            transfers: record.transfers,
            counts: Some(record.counts),
        }
    }
}

impl Report {
    /// The page: no scripts, no external resources, readable in light and dark and on paper.
    pub fn render(&self) -> Result<String, OutputError> {
        let summary = self.summary();
        let body = html! {
            p.lead { (self.lead) }
            (self.problem_section())
            (tiles(&self.headline))
            (self.throughput_section()?)
            (self.event_section())
            (part_section(&summary.parts))
            (self.link_section(&summary))
            (self.duration_section()?)
            (self.failure_section(&summary))
            (figures_section(&summary))
            (self.count_section())
            (self.manifest_section())
        };
        Ok(page(&self.title, &body))
    }

    /// What all transfers together came to.
    pub fn summary(&self) -> Summary {
        Summary::of_transfers(&self.transfers, &self.links)
    }

    /// Writes the page, its plots and all tables behind it into `directory`, which is made if it is missing, and
    /// returns the path of the page.
    pub fn write(&self, directory: &Path) -> Result<PathBuf, OutputError> {
        let page = self.write_page(directory)?;
        write_timeline(directory, &self.series, &self.events)?;
        write_transfers_csv(&directory.join("transfers.csv"), &self.transfers)?;
        write_json(&directory.join("summary.json"), &self.summary())?;
        Ok(page)
    }

    /// The page and its plots alone.
    fn write_page(&self, directory: &Path) -> Result<PathBuf, OutputError> {
        let file = |name: &str, text: String| {
            let path = directory.join(name);
            fs::write(&path, text).map_err(OutputError::io(&path))
        };
        fs::create_dir_all(directory).map_err(OutputError::io(directory))?;
        file("report.html", self.render()?)?;
        file("throughput.svg", self.throughput_figure()?.standalone())?;
        file("durations.svg", self.duration_figure()?.standalone())?;
        Ok(directory.join("report.html"))
    }

    fn throughput_figure(&self) -> Result<Drawing, OutputError> {
        plots::throughput(&self.series, &self.events, &self.directions())
    }

    /// In which files went over the links; a trunk's go one way, whatever its clients send back over the other line.
    fn directions(&self) -> Vec<Direction> {
        let mut found = directions(&self.transfers);
        let goes = |direction: &Direction| {
            let mut links = self.links.iter();
            links.any(|link| link.rate_bps(*direction) > 0)
        };
        found.retain(goes);
        if found.is_empty() {
            found.push(Direction::Down);
        }
        found
    }

    fn duration_figure(&self) -> Result<Drawing, OutputError> {
        let links: Vec<String> = self.links.iter().map(|link| link.name.clone()).collect();
        plots::durations(&self.transfers, &links)
    }

    fn problem_section(&self) -> Markup {
        html! {
            @if !self.problems.is_empty() {
                h2.bad { "This run is invalid" }
                ul { @for problem in &self.problems { li { (problem) } } }
            }
        }
    }

    fn count_section(&self) -> Markup {
        let Some(counts) = &self.counts else {
            return html! {};
        };
        let tally = |tally: &Tally| {
            let bytes = tally.counted_bytes().map(format::bytes);
            let bytes = bytes.unwrap_or_else(|| "not counted".to_owned());
            format!("{} / {bytes}", tally.packets)
        };
        html! {
            h2 { "Packets" }
            table {
                tbody {
                    (figure_row("offered", "to the links by all hosts, packets / bytes", tally(&counts.offered)))
                    (figure_row("delivered", "by the links", tally(&counts.delivered)))
                    (figure_row("overflowed", "found no room in a buffer", tally(&counts.overflowed)))
                    (figure_row("dropped early", "by a queue's management", tally(&counts.early)))
                    (figure_row("marked", "instead of dropped, and sent on", tally(&counts.marked)))
                    (figure_row("lost", "by a line", tally(&counts.lost)))
                    (figure_row("swallowed", "by a cut line", tally(&counts.cut)))
                    (figure_row("sent again", "segments of TCP", tally(&counts.retransmitted)))
                    (figure_row("probes", "of the gateway", tally(&counts.probes)))
                    (figure_row("measuring", "of them, what the algorithm itself asks for", tally(&counts.measuring)))
                    (figure_row("reordered", "segments that arrived after a later one", counts.reordered.to_string()))
                    (figure_row("reassigned", "choices that moved a flow or a bin", counts.reassignments.to_string()))
                }
            }
        }
    }

    fn throughput_section(&self) -> Result<Markup, OutputError> {
        if self.series.is_empty() {
            return Ok(html! {});
        }
        Ok(html! {
            h2 { "What the links carried" }
            p.hint {
                "Each band is one link; together they are what the users " (exchanged(&self.directions())) ". The dashed line "
                "is the capacity that existed. The bars below are what the gateway believed: full is up, pale is suspect, an "
                "empty frame is down."
            }
            figure.wide { (PreEscaped(self.throughput_figure()?.inline())) }
        })
    }

    fn event_section(&self) -> Markup {
        html! {
            @if !self.events.is_empty() {
                h2 { "What happened" }
                ol.events {
                    @for event in &self.events {
                        li class=(class(event.kind)) { time { (format!("{:.2} s", event.t_s)) } (event.text) }
                    }
                }
            }
        }
    }

    fn link_section(&self, summary: &Summary) -> Markup {
        if summary.transfers > 0 && summary.without_link == summary.transfers {
            return self.carried_section();
        }
        let directions = self.directions();
        html! {
            h2 { "Links" }
            div.wide {
                table {
                    thead { tr {
                        th { "link" } (rate_titles(&directions)) th.number { "flows" } th.number { "share of flows" }
                        th.number { "bytes" } th.number { "share of bytes" } th.number { "median duration" }
                        th.number { "p99 duration" } th.number { "failed" }
                    } }
                    tbody {
                        @for (index, (link, told)) in self.links.iter().zip(&summary.links).enumerate() {
                            (link_row(index, link, told, summary, &directions))
                        }
                    }
                }
            }
            @if summary.without_link > 0 {
                p.hint { "Transfers that ended before a response could tell their link: " (summary.without_link) "." }
            }
        }
    }

    /// The links where no transfer belongs to one: sublinks of a trunk.
    fn carried_section(&self) -> Markup {
        let directions = self.directions();
        let carried = |series: &LinkSeries| {
            let bytes = directions.iter().map(|direction| series.bytes(*direction));
            let opened = series.samples.last().map_or(0, |last| last.opened);
            (opened, bytes.sum::<u64>())
        };
        let flows: u64 = self.series.iter().map(|series| carried(series).0).sum();
        let bytes: u64 = self.series.iter().map(|series| carried(series).1).sum();
        html! {
            h2 { "Links" }
            p.hint {
                "Packets of one transfer may take several of them: a flow is counted where the first packet of its connection "
                "went (a TCP segment with SYN; again if that is repeated), bytes are those of all packets carried"
                @if directions == [Direction::Up] { " up" } "."
            }
            table {
                thead { tr {
                    th { "link" } (rate_titles(&directions)) th.number { "flows" } th.number { "share of flows" }
                    th.number { "bytes" } th.number { "share of bytes" }
                } }
                tbody {
                    @for (index, (link, series)) in self.links.iter().zip(&self.series).enumerate() {
                        tr {
                            td { span.swatch style={ "background:" (css_colour(index)) } {} (link.name) }
                            (rate_cells(link, &directions))
                            td.number { (carried(series).0) }
                            td.number { (share(carried(series).0, flows)) }
                            td.number { (format::bytes(carried(series).1)) }
                            td.number { (share(carried(series).1, bytes)) }
                        }
                    }
                }
            }
        }
    }

    fn duration_section(&self) -> Result<Markup, OutputError> {
        Ok(html! {
            h2 { "How long transfers took" }
            @if self.transfers.iter().any(|transfer| transfer.outcome.is_ok()) {
                p.hint {
                    "Read: the share of successful transfers (up) that took at most so long (across). A line further to the "
                    "left is faster; a long tail to the right is a user who waited."
                }
                figure.wide { (PreEscaped(self.duration_figure()?.inline())) }
            } @else {
                p { "No transfer succeeded." }
            }
        })
    }

    fn failure_section(&self, summary: &Summary) -> Markup {
        let mut failures: Vec<_> = self
            .transfers
            .iter()
            .filter(|transfer| transfer.outcome.is_failure())
            .collect();
        failures.sort_by(|a, b| a.start_s.total_cmp(&b.start_s));
        html! {
            h2 { "Failures" }
            @if summary.failed == 0 {
                p { "No transfer failed." }
            } @else {
                p { (summary.failed) " of " (summary.ok + summary.failed) " transfers failed ("
                    (format::percent(summary.failed_ratio)) "): " (outcome_counts(summary)) "." }
                div.wide {
                    table {
                        thead { tr {
                            th.number { "start" } th { "user" } th { "link" } th { "outcome" } th.number { "after" }
                            th.number { "bytes" }
                        } }
                        tbody { @for transfer in failures.iter().take(FAILURES_SHOWN) { (failure_row(transfer)) } }
                    }
                }
                @if summary.failed as usize > FAILURES_SHOWN {
                    p.hint { "The first " (FAILURES_SHOWN) " are shown; the table of transfers beside this page has all." }
                }
            }
            @if summary.unfinished > 0 {
                p.hint { "Transfers still running at the end, neither success nor failure: " (summary.unfinished) "." }
            }
        }
    }

    fn manifest_section(&self) -> Markup {
        html! {
            h2 { "What ran" }
            table.manifest {
                tbody { @for (key, value) in &self.manifest { tr { th scope="row" { (key) } td { (value) } } } }
            }
        }
    }
}

/// What to know to judge and repeat a run.
fn facts(manifest: &Manifest, run: &Run) -> Vec<(String, String)> {
    let Manifest {
        version,
        build,
        hash,
        seed,
        point,
        conditions,
        ..
    } = manifest;
    let fact = |key: &str, value: String| (key.to_owned(), value);
    let mut facts = vec![
        fact("anabranch", version.clone()),
        fact("build", build.as_str().to_owned()),
        fact("hash", hash.clone()),
        fact("seed", seed.to_string()),
    ];
    facts.extend(point.clone());
    // A world may tell the seed and the policy too.
    let told = conditions
        .iter()
        .filter(|(key, _)| !["seed", "policy"].contains(&key.as_str()));
    facts.extend(told.map(|(key, value)| fact(key, value.clone())));
    facts.extend(words::plan(run));
    facts
}
fn headline(summary: &Summary) -> Vec<Headline> {
    let ended = summary.ok + summary.failed;
    let goodput = Headline::new("Goodput", format::bps(summary.goodput_bps));
    let mut tiles = vec![
        match summary.ebu > 0.0 {
            true => goodput.note(format!("{} of the links", format::percent(summary.ebu))),
            false => goodput,
        },
        Headline::new("Median duration", format::seconds(summary.duration.p50_s))
            .note(format!("p99 {}", format::seconds(summary.duration.p99_s))),
        Headline::new("Failed", summary.failed.to_string()).note(format!("of {ended} transfers")),
    ];
    if let Some(counts) = &summary.counts {
        let dropped = counts.dropped();
        tiles.push(
            Headline::new("Packets lost", dropped.packets.to_string())
                .note(format::percent(counts.loss_ratio())),
        );
    }
    tiles
}

/// A self-contained page.
pub(crate) fn tiles(headline: &[Headline]) -> Markup {
    html! {
        dl.tiles {
            @for Headline { label, value, note } in headline {
                div {
                    dt { (label) }
                    dd.value { (value) }
                    @if let Some(note) = note { dd.note { (note) } }
                }
            }
        }
    }
}

pub(crate) fn page(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(include_str!("report.css"))) }
            }
            body {
                h1 { (title) }
                (body)
            }
        }
    };
    page.into_string()
}

/// The class of an event in the page's style sheet.
fn class(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Cut => "cut",
        EventKind::Down => "down",
        _ => "other",
    }
}

/// What users did, by the directions of their files.
fn exchanged(directions: &[Direction]) -> &'static str {
    match directions {
        [Direction::Up] => "sent",
        [Direction::Down] => "received",
        _ => "received, and below what they sent",
    }
}

/// Of the columns of rates, one for each direction that files took.
fn rate_titles(directions: &[Direction]) -> Markup {
    html! {
        @if let [_] = directions { th.number { "rate" } } @else {
            @for direction in directions { th.number { "rate " (direction.name()) } }
        }
    }
}

fn rate_cells(link: &Link, directions: &[Direction]) -> Markup {
    html! {
        @for direction in directions { td.number { (format::bps(link.rate_bps(*direction) as f64)) } }
    }
}

/// Transfers by kind, where there is more than one.
fn part_section(parts: &[PartSummary]) -> Markup {
    if parts.len() < 2 {
        return html! {};
    }
    let grouped = parts.iter().any(|part| part.group.is_some());
    let classed = parts.iter().any(|part| part.class.is_some());
    let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "–".to_owned());
    html! {
        h2 { "By kind of transfer" }
        div.wide {
            table {
                thead { tr {
                    @if grouped { th { "group" } }
                    @if classed { th { "class" } }
                    th { "direction" } th.number { "transfers" } th.number { "failed" } th.number { "bytes" }
                    th.number { "goodput" } th.number { "per transfer" } th.number { "median duration" }
                    th.number { "p99 duration" }
                } }
                tbody { @for part in parts {
                    tr {
                        @if grouped { td { (name(&part.group)) } }
                        @if classed { td { (name(&part.class)) } }
                        td { (part.direction.name()) }
                        td.number { (part.transfers) }
                        td.number { @if part.failed > 0 { span.bad { (part.failed) } } @else { "0" } }
                        td.number { (format::bytes(part.bytes)) }
                        td.number { (format::bps(part.goodput_bps)) }
                        td.number { (format::bps(part.mean_throughput_bps)) }
                        td.number { (format::seconds(part.duration.p50_s)) }
                        td.number { (format::seconds(part.duration.p99_s)) }
                    }
                } }
            }
        }
    }
}

fn link_row(
    index: usize,
    link: &Link,
    told: &LinkSummary,
    summary: &Summary,
    directions: &[Direction],
) -> Markup {
    let flows: u64 = summary.links.iter().map(|link| link.flows).sum();
    let bytes: u64 = summary.links.iter().map(|link| link.bytes).sum();
    html! {
        tr {
            td { span.swatch style={ "background:" (css_colour(index)) } {} (link.name) }
            (rate_cells(link, directions))
            td.number { (told.flows) }
            td.number { (share(told.flows, flows)) }
            td.number { (format::bytes(told.bytes)) }
            td.number { (share(told.bytes, bytes)) }
            td.number { (format::seconds(told.duration.p50_s)) }
            td.number { (format::seconds(told.duration.p99_s)) }
            td.number { @if told.failed > 0 { span.bad { (told.failed) } } @else { "0" } }
        }
    }
}

fn share(part: u64, whole: u64) -> String {
    format::percent(part as f64 / whole.max(1) as f64)
}

fn failure_row(transfer: &Transfer) -> Markup {
    html! {
        tr {
            td.number { (format!("{:.2} s", transfer.start_s)) }
            td { (transfer.source) }
            td { (transfer.link.as_deref().unwrap_or("–")) }
            td { (transfer.outcome) }
            td.number { (format::seconds(transfer.duration_s)) }
            td.number { (transfer.bytes) " of " (transfer.bytes_asked) }
        }
    }
}

fn outcome_counts(summary: &Summary) -> String {
    let failures = summary
        .outcomes
        .iter()
        .filter(|(outcome, _)| outcome.is_failure());
    failures
        .map(|(outcome, count)| format!("{count} {outcome}"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn figures_section(summary: &Summary) -> Markup {
    let Summary {
        duration, setup, ..
    } = summary;
    let text = |figure: &Figure| {
        let value = (figure.value)(summary).unwrap_or_default();
        figure.quantity.text(value)
    };
    html! {
        h2 { "Figures" }
        table {
            tbody {
                @for figure in LISTED.into_iter().filter_map(Figure::of) {
                    (figure_row(figure.name, figure.meaning, text(figure)))
                }
                (figure_row("duration", "p50 / p90 / p99 / max, set-up included", quantiles([duration.p50_s, duration.p90_s, duration.p99_s, duration.max_s])))
                (figure_row("set-up", "p50 / p90 / p99 / max of the TCP handshake", quantiles([setup.p50_s, setup.p90_s, setup.p99_s, setup.max_s])))
                (figure_row("SYN sent again", "transfers whose first SYN got no answer", summary.with_syn_retransmits.to_string()))
                (figure_row("transfers", "successful / failed / unfinished", format!("{} / {} / {}", summary.ok, summary.failed, summary.unfinished)))
            }
        }
    }
}

fn figure_row(name: &str, meaning: &str, value: String) -> Markup {
    html! { tr { th scope="row" { (name) } td.hint { (meaning) } td.number { (value) } } }
}

fn quantiles(values_s: [f64; 4]) -> String {
    values_s.map(format::seconds).join(" / ")
}

#[cfg(test)]
mod tests {
    use anabranch_results::BuildId;
    use anabranch_scenario::{LinkReading, LinkState, ScenarioFile, World};
    use anabranch_workload::Outcome;

    use super::*;
    use anabranch_scenario::testing::transfer;

    fn report() -> Report {
        let mut series = LinkSeries::new("fiber", 50_000_000, 10_000_000);
        let mut other = LinkSeries::new("lte", 10_000_000, 5_000_000);
        for tick in 0..100u32 {
            let t_s = f64::from(tick) / 10.0;
            let state = if tick < 55 {
                LinkState::Up
            } else {
                LinkState::Down
            };
            let reading = |down_bytes, opened, flows, state| LinkReading {
                down_bytes,
                opened,
                flows,
                state,
                ..LinkReading::default()
            };
            let down_bytes = u64::from(tick.min(50)) * 600_000;
            series.push(t_s, reading(down_bytes, tick.min(27).into(), 3, state));
            let down_bytes = u64::from(tick) * 120_000;
            other.push(
                t_s,
                reading(down_bytes, tick.min(81).into(), 1, LinkState::Up),
            );
        }
        let event = |t_s, kind, text: &str| Event {
            t_s,
            kind,
            link: Some("fiber".into()),
            text: text.into(),
        };
        let mut transfers: Vec<Transfer> = (1..50)
            .map(|n| transfer(n % 3, 0.1, 0.1 * f64::from(n)))
            .collect();
        transfers[7].outcome = Outcome::Reset;
        Report {
            title: "One cut <&> two links".into(),
            lead: "A link was cut.".into(),
            headline: vec![Headline::new("Goodput", "50 Mbit/s").note("83 % of capacity")],
            manifest: vec![("seed".into(), "1".into())],
            links: ["fiber", "lte"]
                .map(|name| Link {
                    name: name.into(),
                    down_rate_bps: 50_000_000,
                    up_rate_bps: 10_000_000,
                })
                .into(),
            series: vec![series, other],
            events: vec![
                event(5.0, EventKind::Cut, "fiber is cut"),
                event(5.5, EventKind::Down, "fiber is down"),
            ],
            transfers,
            problems: Vec::new(),
            counts: None,
        }
    }

    #[test]
    fn the_page_needs_nothing_but_itself() {
        let page = report()
            .render()
            .unwrap()
            .replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for foreign in [
            "http://", "https://", "<script", "<link", "<img", "@import", "url(",
        ] {
            assert!(!page.contains(foreign), "the page contains {foreign}");
        }
    }

    #[test]
    fn the_page_shows_plots_headline_events_failures_and_manifest_and_escapes_them() {
        let page = report().render().unwrap();
        assert!(page.contains("One cut &lt;&amp;&gt; two links"));
        assert_eq!(page.matches("<svg").count(), 2);
        for text in [
            "83 % of capacity",
            "5.50 s",
            "fiber declared down",
            "1 of 49 transfers failed",
            "reset",
            "seed",
        ] {
            assert!(page.contains(text), "the page lacks {text}");
        }
    }

    /// The same evidence, of files that went up.
    fn uploads() -> Report {
        let mut report = report();
        for transfer in &mut report.transfers {
            transfer.direction = Direction::Up;
        }
        for series in &mut report.series {
            for sample in &mut series.samples {
                std::mem::swap(&mut sample.down_bytes, &mut sample.up_bytes);
            }
        }
        report
    }

    #[test]
    fn uploads_are_drawn_and_counted_in_their_direction() {
        let mut report = uploads();
        let page = report.render().unwrap().replace('\u{202f}', " ");
        let (up, down) = ("from the users (Mbit/s)", "to the users (Mbit/s)");
        assert!(page.contains(up) && !page.contains(down));
        assert!(page.contains("what the users sent") && page.contains("10.0 Mbit/s"));
        assert!(!page.contains("50.0 Mbit/s"), "{page}");
        report.transfers.iter_mut().for_each(|t| t.link = None);
        let page = report.render().unwrap().replace('\u{202f}', " ");
        for text in [">27<", "30.0 MB", "71.6 %", "packets carried up."] {
            assert!(page.contains(text), "the page lacks {text}: {page}");
        }
    }

    #[test]
    fn what_clients_send_back_is_not_what_a_trunk_carried() {
        let mut report = report();
        report
            .links
            .iter_mut()
            .for_each(|link| link.up_rate_bps = 0);
        for transfer in &mut report.transfers {
            (transfer.direction, transfer.link) = (Direction::Up, None);
        }
        let page = report.render().unwrap().replace('\u{202f}', " ");
        for text in ["to the users (Mbit/s)", ">27<", "30.0 MB", "50.0 Mbit/s"] {
            assert!(page.contains(text), "the page lacks {text}: {page}");
        }
    }

    #[test]
    fn both_directions_have_a_plot_and_a_row_each() {
        let mut report = report();
        report.transfers[0].direction = Direction::Up;
        report.transfers[1].class = Some("web".into());
        let page = report.render().unwrap().replace('\u{202f}', " ");
        for text in [
            "from the users (Mbit/s)",
            "to the users (Mbit/s)",
            "rate down",
            "rate up",
            "By kind of transfer",
            "<td>web</td><td>down</td>",
            "<td>–</td><td>up</td>",
        ] {
            assert!(page.contains(text), "the page lacks {text}");
        }
        assert!(
            !self::report()
                .render()
                .unwrap()
                .contains("By kind of transfer")
        );
    }

    #[test]
    fn inline_plots_take_the_colour_of_the_page_and_files_have_their_own() {
        let figure = report().throughput_figure().unwrap();
        assert!(figure.inline().contains("currentColor") && !figure.inline().contains("#010203"));
        assert!(
            !figure.standalone().contains("currentColor")
                && !figure.standalone().contains("#010203")
        );
        assert!(
            figure.standalone().contains("width=\"800\"")
                && !figure.inline().contains("width=\"800\"")
        );
    }

    #[test]
    fn a_run_in_which_nothing_happened_still_has_a_page() {
        let page = Report {
            title: "Nothing".into(),
            ..Report::default()
        }
        .render()
        .unwrap();
        assert!(page.contains("No transfer succeeded.") && page.contains("No transfer failed."));
    }

    #[test]
    fn links_that_no_transfer_belongs_to_are_told_by_what_they_carried() {
        let mut report = report();
        report.transfers.iter_mut().for_each(|t| t.link = None);
        let page = report.render().unwrap().replace('\u{202f}', " ");
        assert!(page.contains("a flow is counted where the first packet of its connection went"));
        assert!(!page.contains("median duration") && !page.contains("could tell their link"));
        // fiber: 27 flows of 108 and 50 times 600 kB, lte: 99 times 120 kB.
        for text in [">27<", "25.0 %", "30.0 MB", "71.6 %"] {
            assert!(page.contains(text), "the page lacks {text}: {page}");
        }
    }

    #[test]
    fn the_same_evidence_renders_to_the_same_bytes() {
        assert_eq!(report().render().unwrap(), report().render().unwrap());
    }

    #[test]
    fn a_written_report_has_its_page_plots_and_tables_side_by_side() {
        let directory = tempfile::tempdir().unwrap();
        let page = report().write(&directory.path().join("run")).unwrap();
        let mut names: Vec<_> = fs::read_dir(page.parent().unwrap())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        names.sort();
        let expected = [
            "durations.svg",
            "events.json",
            "links.csv",
            "report.html",
            "summary.json",
            "throughput.svg",
            "transfers.csv",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_kept_run_has_a_page_that_tells_its_plan_and_its_problems() {
        let text = "seeds = [4]\nlink.fiber = { rate = \"1mbit\" }";
        let file = ScenarioFile::parse(Path::new("house.toml"), text).unwrap();
        let evidence = report();
        let record = Record {
            world: World::Sim,
            transfers: evidence.transfers,
            series: evidence.series,
            events: evidence.events,
            links: evidence.links,
            counts: Counts::default(),
            conditions: vec![("trajectory".into(), "0123".into())],
            problems: vec!["3 packets appeared from nowhere".into()],
        };
        let out = tempfile::tempdir().unwrap();
        let build = BuildId::running().unwrap();
        let (directory, run) = (out.path().join("run"), &file.runs()[0]);
        let finished = Finished::write(&directory, run, record, layout(Rows::Csv), &build);
        let page = fs::read_to_string(finished.unwrap().page()).unwrap();
        for words in [
            "house: WSDM",
            "0123",
            "fiber down",
            "This run is invalid",
            "from nowhere",
        ] {
            assert!(page.contains(words), "the page lacks {words}");
        }
        assert!(!page.contains("{&quot;"), "the plan is told in words");
        assert!(directory.join("durations.svg").exists() && directory.join("links.csv").exists());
    }
}
