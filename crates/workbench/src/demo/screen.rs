//! The run as it goes on: bars on a terminal, a line every other second elsewhere.

use std::time::{Duration, Instant};

use anabranch_console::output::print;
use anabranch_console::table;
use anabranch_lab::scenario::{LinkNow, Moment};
use anabranch_scenario::{Event, EventKind, LinkState};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::plan::Plan;

const LINE: Duration = Duration::from_secs(2);
const BAR: &str = "{prefix:<8} {bar:32} {msg}";

pub struct Screen {
    all: MultiProgress,
    links: Vec<ProgressBar>,
    progress: ProgressBar,
    /// When the last line was written, where there are no bars.
    lined: Option<Instant>,
}

impl Screen {
    pub fn new(plan: &Plan) -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stdout());
        let bar = |prefix: &str, length: u64| {
            let style =
                ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = all.add(ProgressBar::new(length).with_prefix(prefix.to_owned()));
            bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
            bar
        };
        let links = plan.links.iter();
        let links = links
            .map(|link| bar(&link.name, link.down.rate_bps))
            .collect();
        let progress = bar("run", u64::from(plan.seconds) * 1000);
        Self {
            links,
            progress,
            lined: None,
            all,
        }
    }

    /// Something happened.
    pub fn tell(&self, event: &Event) -> anyhow::Result<()> {
        let line = format!("{:5.2} s  {}", event.t_s, coloured(event));
        if self.all.is_hidden() {
            return print(
                line + "
",
            );
        }
        Ok(self.all.println(line)?)
    }

    pub fn draw(&mut self, moment: &Moment) -> anyhow::Result<()> {
        if self.all.is_hidden() {
            return self.draw_line(moment);
        }
        for (bar, link) in self.links.iter().zip(&moment.links) {
            bar.set_position((link.now_bps as u64).min(link.rate_bps));
            bar.set_message(words(link));
        }
        self.progress
            .set_position(moment.elapsed.as_millis() as u64);
        self.progress.set_message(totals(moment));
        Ok(())
    }

    fn draw_line(&mut self, moment: &Moment) -> anyhow::Result<()> {
        if self.lined.is_some_and(|at| at.elapsed() < LINE) {
            return Ok(());
        }
        self.lined = Some(Instant::now());
        let links = moment
            .links
            .iter()
            .map(|link| format!("{} {}", link.name, words(link)));
        print(format!(
            "{:5.1} s  {} | {}\n",
            moment.elapsed.as_secs_f64(),
            links.collect::<Vec<_>>().join(" | "),
            totals(moment)
        ))
    }

    /// Leaves the last picture where it is.
    pub fn finish(&self) -> anyhow::Result<()> {
        for bar in self.links.iter().chain([&self.progress]) {
            bar.abandon();
        }
        print("\n")
    }
}

fn coloured(event: &Event) -> String {
    match event.kind {
        EventKind::Cut | EventKind::Down => table::bad(&event.text).to_string(),
        EventKind::Suspect => table::doubtful(&event.text).to_string(),
        _ => event.text.clone(),
    }
}

fn words(link: &LinkNow) -> String {
    let rate = table::rate_of(link.now_bps, Some(link.rate_bps));
    format!("{rate}  {}  {:>3} flows", states(link), link.flows)
}

/// One state, if that is all families'.
fn states(link: &LinkNow) -> String {
    let first = link.paths.first().map_or(LinkState::Up, |path| path.state);
    if link.paths.iter().all(|path| path.state == first) {
        return state_word(first, STATE_WIDTH);
    }
    let paths = link.paths.iter();
    let paths = paths.map(|path| format!("{} {}", path.family, state_word(path.state, 0)));
    paths.collect::<Vec<_>>().join(", ")
}

/// Of the longest of their words.
const STATE_WIDTH: usize = 7;

fn state_word(state: LinkState, width: usize) -> String {
    match state {
        LinkState::Up => table::good(format!("{:width$}", "up")).to_string(),
        LinkState::Suspect => table::doubtful(format!("{:width$}", "suspect")).to_string(),
        LinkState::Captive => table::doubtful(format!("{:width$}", "captive")).to_string(),
        LinkState::Down => table::bad(format!("{:width$}", "DOWN")).to_string(),
    }
}

fn totals(moment: &Moment) -> String {
    let now_bps: f64 = moment.links.iter().map(|link| link.now_bps).sum();
    let transfers = moment.transfers;
    format!(
        "{:>4.1} Mbit/s in all, {} downloads done, {} running, {} failed",
        now_bps / 1e6,
        transfers.done,
        transfers.running,
        transfers.failed
    )
}

#[cfg(test)]
mod tests {
    use anabranch_lab::scenario::PathNow;

    use super::*;

    #[test]
    fn a_link_is_drawn_with_its_rate_state_and_flows() {
        let path = |family: &str| PathNow {
            family: family.to_owned(),
            state: LinkState::Up,
        };
        let mut link = LinkNow {
            name: "lte".into(),
            rate_bps: 15_000_000,
            paths: vec![path("IPv4"), path("IPv6")],
            now_bps: 14_320_000.0,
            bytes: 0,
            flows: 12,
            opened: 30,
        };
        let plain = |link: &LinkNow| console::strip_ansi_codes(&words(link)).into_owned();
        assert_eq!(plain(&link), "14.3 of 15 Mbit/s  up        12 flows");
        link.paths[1].state = LinkState::Down;
        assert_eq!(
            plain(&link),
            "14.3 of 15 Mbit/s  IPv4 up, IPv6 DOWN   12 flows"
        );
        link.paths[0].state = LinkState::Down;
        link.now_bps = 0.0;
        link.flows = 0;
        assert_eq!(plain(&link), " 0.0 of 15 Mbit/s  DOWN       0 flows");
    }
}
