use std::fs;
use std::path::{Path, PathBuf};

use anabranch_workload::Transfer;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::{Deserialize, Serialize};

use crate::figure::{Figure, css_colour};
use crate::output::{OutputError, write_json, write_series_csv, write_transfers_csv};
use crate::plots;
use crate::{
    Change, Counts, Direction, Fault, Link, LinkSeries, LinkSummary, Place, Summary, Tally, format,
    words,
};

/// The links over time.
pub(crate) const SERIES: &str = "links.csv";
pub(crate) const EVENTS: &str = "events.json";
/// Failed transfers that the page lists; all of them are in the table of transfers beside it.
const FAILURES_SHOWN: usize = 40;

/// The evidence of a run, ready to be shown to an owner of several links and to a researcher.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub title: String,
    /// One or two sentences that say what ran and what came of it.
    pub lead: String,
    pub headline: Vec<Headline>,
    /// Everything needed to judge and repeat the run: command, seed, versions, kernel, congestion control…
    pub manifest: Vec<(String, String)>,
    /// Links in the order of their colours.
    pub links: Vec<Link>,
    /// Per-link series in the order of `links`.
    pub series: Vec<LinkSeries>,
    /// Events in the order of time.
    pub events: Vec<Event>,
    pub transfers: Vec<Transfer>,
    /// Why nobody should believe the figures, if so.
    pub problems: Vec<String>,
    /// What no transfer tells, where it was counted.
    pub counts: Option<Counts>,
}

/// A figure that a reader should see first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headline {
    pub label: String,
    pub value: String,
    /// What the figure is measured against.
    pub note: Option<String>,
}

impl Headline {
    pub fn new(label: impl Into<String>, value: impl Into<String>) -> Headline {
        Headline {
            label: label.into(),
            value: value.into(),
            note: None,
        }
    }

    pub fn note(self, note: impl Into<String>) -> Headline {
        Headline {
            note: Some(note.into()),
            ..self
        }
    }
}

/// A moment that the reader wants marked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Since the epoch of the run.
    pub t_s: f64,
    pub kind: EventKind,
    pub link: Option<String>,
    /// A sentence for the time-line.
    pub text: String,
}

/// What happened to a link, in the world or in the gateway's belief.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The link was cut by the run.
    Cut,
    /// The run made the link whole again.
    Restored,
    /// The gateway doubts the link.
    Suspect,
    /// The gateway declared the link down.
    Down,
    /// The gateway declared the link usable.
    Up,
    /// Anything else.
    Note,
}

impl EventKind {
    fn word(self) -> &'static str {
        match self {
            EventKind::Cut => "cut",
            EventKind::Restored => "restored",
            EventKind::Suspect => "suspected",
            EventKind::Down => "declared down",
            EventKind::Up => "declared up",
            EventKind::Note => "note",
        }
    }

    fn class(self) -> &'static str {
        match self {
            EventKind::Cut => "cut",
            EventKind::Down => "down",
            _ => "other",
        }
    }
}

impl Event {
    /// A fault in words, at its time.
    pub fn of(fault: &Fault) -> Event {
        let link = &fault.link;
        let place = match fault.place {
            Place::LastMile => "",
            Place::Beyond => " beyond the last mile",
        };
        let way = match fault.direction {
            None => "",
            Some(Direction::Down) => " downwards",
            Some(Direction::Up) => " upwards",
        };
        let (kind, change) = match fault.change {
            Change::Cut => (EventKind::Cut, "is cut".to_owned()),
            Change::Restore => (EventKind::Restored, "is whole again".to_owned()),
            Change::Rate(rate_bps) => {
                let rate = format::bps(rate_bps as f64);
                (EventKind::Note, format!("has {rate}"))
            }
            Change::Loss(loss) => (EventKind::Note, words::loss(loss)),
            Change::Delay(delay) => {
                let delay = format::seconds(delay.as_secs_f64());
                (EventKind::Note, format!("has a delay of {delay}"))
            }
        };
        let what = match fault.change {
            Change::Cut => ": its packets vanish, its carrier stays",
            _ => "",
        };
        Event {
            t_s: fault.at.as_secs_f64(),
            kind,
            link: Some(link.clone()),
            text: format!("{link} {change}{way}{place}{what}"),
        }
    }

    /// The same of a sublink, whose line ends at the trunk's own devices: cut, it loses its carrier.
    pub fn of_sublink(fault: &Fault) -> Event {
        let event = Event::of(fault);
        let text = match fault.change {
            Change::Cut => format!("sublink {} loses its carrier", fault.link),
            Change::Restore => format!("sublink {} has its carrier again", fault.link),
            Change::Rate(_) | Change::Loss(_) | Change::Delay(_) => {
                format!("sublink {}", event.text)
            }
        };
        Event { text, ..event }
    }

    /// A few words for the mark in a plot.
    pub(crate) fn label(&self) -> String {
        match &self.link {
            Some(link) => format!("{link} {}", self.kind.word()),
            None => self.text.chars().take(32).collect(),
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
            (self.tiles())
            (self.throughput_section()?)
            (self.event_section())
            (self.link_section(&summary))
            (self.duration_section()?)
            (self.failure_section(&summary))
            (figures_section(&summary))
            (self.count_section())
            (self.manifest_section())
        };
        Ok(page(&self.title, &body))
    }

    pub fn summary(&self) -> Summary {
        Summary::of(&self.transfers, &self.links)
    }

    /// Writes the page, its plots and all tables behind it into `directory`, which is made if it is missing, and
    /// returns the path of the page.
    pub fn write(&self, directory: &Path) -> Result<PathBuf, OutputError> {
        let page = self.write_page(directory)?;
        write_transfers_csv(&directory.join("transfers.csv"), &self.transfers)?;
        write_json(&directory.join("summary.json"), &self.summary())?;
        Ok(page)
    }

    /// The same without transfers and summary.
    pub(crate) fn write_page(&self, directory: &Path) -> Result<PathBuf, OutputError> {
        let file = |name: &str, text: String| {
            let path = directory.join(name);
            fs::write(&path, text).map_err(|error| OutputError::Io { path, error })
        };
        fs::create_dir_all(directory).map_err(|error| OutputError::Io {
            path: directory.into(),
            error,
        })?;
        file("report.html", self.render()?)?;
        file("throughput.svg", self.throughput_figure()?.standalone())?;
        file("durations.svg", self.duration_figure()?.standalone())?;
        write_series_csv(&directory.join(SERIES), &self.series)?;
        write_json(&directory.join(EVENTS), &self.events)?;
        Ok(directory.join("report.html"))
    }

    fn throughput_figure(&self) -> Result<Figure, OutputError> {
        plots::throughput(&self.series, &self.events)
    }

    fn duration_figure(&self) -> Result<Figure, OutputError> {
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
                    (figure_row("dropped early", "by random early detection", tally(&counts.red)))
                    (figure_row("lost", "by a line", tally(&counts.lost)))
                    (figure_row("swallowed", "by a cut line", tally(&counts.cut)))
                    (figure_row("sent again", "segments of TCP", tally(&counts.retransmitted)))
                    (figure_row("probes", "of the gateway", tally(&counts.probes)))
                    (figure_row("reordered", "segments that arrived after a later one", counts.reordered.to_string()))
                    (figure_row("reassigned", "choices that moved a flow or a bin", counts.reassignments.to_string()))
                }
            }
        }
    }

    fn tiles(&self) -> Markup {
        html! {
            dl.tiles {
                @for Headline { label, value, note } in &self.headline {
                    div {
                        dt { (label) }
                        dd.value { (value) }
                        @if let Some(note) = note { dd.note { (note) } }
                    }
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
                "Each band is one link; together they are what the users received. The dashed line is the capacity that "
                "existed. The bars below are what the gateway believed: full is up, pale is suspect, an empty frame is down."
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
                        li class=(event.kind.class()) { time { (format!("{:.2} s", event.t_s)) } (event.text) }
                    }
                }
            }
        }
    }

    fn link_section(&self, summary: &Summary) -> Markup {
        if summary.transfers > 0 && summary.without_link == summary.transfers {
            return self.carried_section();
        }
        html! {
            h2 { "Links" }
            div.wide {
                table {
                    thead { tr {
                        th { "link" } th.number { "rate" } th.number { "flows" } th.number { "share of flows" }
                        th.number { "bytes" } th.number { "share of bytes" } th.number { "median duration" }
                        th.number { "p99 duration" } th.number { "failed" }
                    } }
                    tbody { @for (index, link) in summary.links.iter().enumerate() { (link_row(index, link, summary)) } }
                }
            }
            @if summary.without_link > 0 {
                p.hint { "Transfers that ended before a response could tell their link: " (summary.without_link) "." }
            }
        }
    }

    /// The links where no transfer belongs to one: sublinks of a trunk.
    fn carried_section(&self) -> Markup {
        let carried = |series: &LinkSeries| {
            let last = series.samples.last();
            last.map_or((0, 0), |last| (last.opened, last.down_bytes))
        };
        let flows: u64 = self.series.iter().map(|series| carried(series).0).sum();
        let bytes: u64 = self.series.iter().map(|series| carried(series).1).sum();
        html! {
            h2 { "Links" }
            p.hint {
                "Packets of one transfer may take several of them: a flow is counted where the first packet of its connection "
                "went (a TCP segment with SYN; again if that is repeated), bytes are those of all packets carried."
            }
            table {
                thead { tr {
                    th { "link" } th.number { "rate" } th.number { "flows" } th.number { "share of flows" }
                    th.number { "bytes" } th.number { "share of bytes" }
                } }
                tbody {
                    @for (index, (link, series)) in self.links.iter().zip(&self.series).enumerate() {
                        tr {
                            td { span.swatch style={ "background:" (css_colour(index)) } {} (link.name) }
                            td.number { (format::bps(link.rate_bps as f64)) }
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

/// A self-contained page.
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

fn link_row(index: usize, link: &LinkSummary, summary: &Summary) -> Markup {
    let flows: u64 = summary.links.iter().map(|link| link.flows).sum();
    let bytes: u64 = summary.links.iter().map(|link| link.bytes).sum();
    html! {
        tr {
            td { span.swatch style={ "background:" (css_colour(index)) } {} (link.name) }
            td.number { (format::bps(link.rate_bps as f64)) }
            td.number { (link.flows) }
            td.number { (share(link.flows, flows)) }
            td.number { (format::bytes(link.bytes)) }
            td.number { (share(link.bytes, bytes)) }
            td.number { (format::seconds(link.duration.p50_s)) }
            td.number { (format::seconds(link.duration.p99_s)) }
            td.number { @if link.failed > 0 { span.bad { (link.failed) } } @else { "0" } }
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
    html! {
        h2 { "Figures" }
        table {
            tbody {
                (figure_row("EBU", "bits asked for and received / (sum of link rates × T_c)", format!("{:.3}", summary.ebu)))
                (figure_row("T_c", "first start to last end", format::seconds(summary.completion_s)))
                (figure_row("goodput", "bytes of files over T_c", format::bps(summary.goodput_bps)))
                (figure_row("mean throughput", "mean over successful transfers of each one's own", format::bps(summary.mean_throughput_bps)))
                (figure_row("deviation of users", "mean absolute deviation of users' mean throughput", format::bps(summary.user_deviation_bps)))
                (figure_row("sum of durations", "successful transfers", format::seconds(summary.duration_sum_s)))
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
    use super::*;
    use crate::metrics::tests::transfer;
    use crate::{LinkReading, LinkState, Loss};
    use anabranch_workload::Outcome;

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
                    rate_bps: 50_000_000,
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
    fn every_fault_has_words() {
        let said = |place, direction, change| {
            let fault = Fault {
                at: std::time::Duration::from_millis(1500),
                link: "lte".into(),
                place,
                direction,
                change,
            };
            let event = Event::of(&fault);
            assert_eq!((event.t_s, event.link.as_deref()), (1.5, Some("lte")));
            event.text
        };
        let near = Place::LastMile;
        assert_eq!(
            said(near, None, Change::Cut),
            "lte is cut: its packets vanish, its carrier stays"
        );
        let cut = Fault {
            at: std::time::Duration::ZERO,
            link: "3".into(),
            place: near,
            direction: None,
            change: Change::Cut,
        };
        let of_sublink = |change| {
            Event::of_sublink(&Fault {
                change,
                ..cut.clone()
            })
            .text
        };
        assert_eq!(of_sublink(Change::Cut), "sublink 3 loses its carrier");
        assert_eq!(
            of_sublink(Change::Rate(5_000)),
            "sublink 3 has 5.00\u{202f}kbit/s"
        );
        assert_eq!(
            said(Place::Beyond, Some(Direction::Up), Change::Restore),
            "lte is whole again upwards beyond the last mile"
        );
        assert_eq!(
            said(near, Some(Direction::Down), Change::Rate(5_000)),
            "lte has 5.00\u{202f}kbit/s downwards"
        );
        let bursts = Loss::Bursty {
            good_to_bad: 0.01,
            bad_to_good: 0.25,
            loss_good: 0.0,
            loss_bad: 1.0,
        };
        assert_eq!(
            said(near, None, Change::Loss(bursts)),
            "lte loses 3.85\u{202f}% of packets in bursts"
        );
    }
}
