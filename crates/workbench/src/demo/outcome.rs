//! What came of a run: figures, the report, and a few lines for the terminal.

use anabranch_console::table::{self, Columns};
use anabranch_lab::scenario::LinkNow;
use anabranch_report::{Headline, Report};
use anabranch_results::{Cut, CutSeen, DemoLink, DemoResult, DemoRun};
use anabranch_scenario::{Event, EventKind, Record};

use super::plan::Plan;

/// Everything a run left behind.
pub struct Evidence {
    pub plan: Plan,
    /// As the gateway saw them at the end.
    pub links: Vec<LinkNow>,
    pub record: Record,
}

impl Evidence {
    pub fn result(&self) -> DemoResult {
        let transfers = &self.record.transfers;
        let starts = transfers.iter().map(|transfer| transfer.start_s);
        let began_s = starts.fold(f64::INFINITY, f64::min);
        let began_s = if began_s.is_finite() { began_s } else { 0.0 };
        let links = self.links.iter().map(|link| DemoLink {
            name: link.name.clone(),
            rate_bps: link.rate_bps,
            bytes: link.bytes,
            flows: link.opened,
        });
        DemoRun {
            policy: self.plan.run.policy_name.clone(),
            began_s,
            ended_s: began_s + f64::from(self.plan.seconds),
            links: links.collect(),
            cut: cut_seen(&self.record.events),
            transfers,
        }
        .result()
    }

    pub fn report(&self, result: &DemoResult) -> Report {
        Report {
            title: "A link dies".into(),
            lead: lead(result),
            headline: headline(result),
            manifest: self.manifest(),
            links: self.record.links.clone(),
            series: self.record.series.clone(),
            events: self.record.events.clone(),
            transfers: self.record.transfers.clone(),
            problems: self.record.problems.clone(),
            counts: Some(self.record.counts),
        }
    }

    fn manifest(&self) -> Vec<(String, String)> {
        let run = &self.plan.run;
        let entry = |key: &str, value: String| (key.to_owned(), value);
        let mut manifest = vec![
            entry("command", std::env::args().collect::<Vec<_>>().join(" ")),
            entry("version", env!("CARGO_PKG_VERSION").to_owned()),
            entry("policy", run.policy_name.clone()),
            entry("address families", self.plan.families()),
            entry("workload", self.plan.workload.to_string()),
            entry("seed", run.seed.to_string()),
        ];
        manifest.extend(self.record.conditions.iter().cloned());
        manifest
    }

    /// For the terminal.
    pub fn summary(&self, result: &DemoResult) -> String {
        let mut columns = Columns::new(&["link", ">rate", ">flows", ">bytes", ">share of bytes"]);
        let all: u64 = result.links.iter().map(|link| link.bytes).sum();
        for link in &result.links {
            columns.row([
                link.name.clone(),
                table::rate(link.rate_bps as f64),
                link.flows.to_string(),
                table::amount(link.bytes),
                table::percent(link.bytes as f64 / all.max(1) as f64),
            ]);
        }
        let problems = self
            .record
            .problems
            .iter()
            .map(|problem| format!("not to be trusted: {problem}\n"));
        format!(
            "{columns}\n{}\n{}",
            facts(result).join("\n"),
            problems.collect::<String>()
        )
    }
}

/// The first cut, and what became of its link.
fn cut_seen(events: &[Event]) -> Option<CutSeen> {
    let cut = events.iter().find(|event| event.kind == EventKind::Cut)?;
    let later = |kind| {
        let mut after = events.iter().filter(|event| event.t_s >= cut.t_s);
        let found = after.find(|event| event.kind == kind && event.link == cut.link);
        found.map(|event| event.t_s)
    };
    Some(CutSeen {
        link: cut.link.clone().unwrap_or_default(),
        cut_s: cut.t_s,
        declared_down_s: later(EventKind::Down),
        restored_s: later(EventKind::Restored),
    })
}

fn facts(result: &DemoResult) -> Vec<String> {
    let mut facts = vec![
        format!(
            "goodput      {} of {} ({})",
            table::rate(result.goodput_bps),
            table::rate(result.capacity_bps),
            table::percent(result.utilisation)
        ),
        format!(
            "downloads    {}, {} failed",
            result.transfers, result.failed
        ),
    ];
    if let Some(cut) = &result.cut {
        facts.push(format!(
            "cut          {} at {}, {}",
            cut.link,
            table::time(cut.at_s),
            detection(cut)
        ));
        facts.push(format!(
            "failures     {} of downloads begun up to 2 s after the cut, {} later",
            cut.failed_before_2s, cut.failed_after_2s
        ));
    }
    facts
}

fn detection(cut: &Cut) -> String {
    match cut.detected_s {
        Some(detected_s) => format!("declared down {} later", table::time(detected_s)),
        None => "not detected".to_owned(),
    }
}

fn lead(result: &DemoResult) -> String {
    let DemoResult {
        policy,
        transfers,
        failed,
        ..
    } = result;
    let links = result.links.len();
    let cut = result.cut.as_ref().map_or_else(String::new, |cut| {
        format!(
            " {} became a blackhole at {} and was {}.",
            cut.link,
            table::time(cut.at_s),
            detection(cut)
        )
    });
    format!("{transfers} downloads over {links} links under {policy}, {failed} failed.{cut}")
}

fn headline(result: &DemoResult) -> Vec<Headline> {
    let mut headline = vec![
        Headline::new("Goodput", table::rate(result.goodput_bps)).note(format!(
            "{} of the capacity that was there",
            table::percent(result.utilisation)
        )),
        Headline::new("Downloads", result.transfers.to_string())
            .note(format!("{} failed", result.failed)),
    ];
    if let Some(cut) = &result.cut {
        let detected = cut
            .detected_s
            .map_or_else(|| "never".to_owned(), table::time);
        headline.push(
            Headline::new("Detection", detected)
                .note(format!("after {} was cut silently", cut.link)),
        );
        headline.push(
            Headline::new("Failed after 2 s", cut.failed_after_2s.to_string())
                .note(format!("{} of those begun earlier", cut.failed_before_2s)),
        );
    }
    headline
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(detected_s: Option<f64>) -> DemoResult {
        DemoResult {
            policy: "WSDM".into(),
            capacity_bps: 60e6,
            goodput_bps: 56e6,
            utilisation: 56.0 / 60.0,
            transfers: 600,
            failed: 20,
            links: vec![],
            cut: Some(Cut {
                link: "fiber".into(),
                at_s: 12.0,
                detected_s,
                failed_before_2s: 20,
                failed_after_2s: 0,
            }),
        }
    }

    #[test]
    fn the_facts_are_goodput_failures_and_detection() {
        let expected = "goodput      56.0 Mbit/s of 60.0 Mbit/s (93.3 %)
downloads    600, 20 failed
cut          fiber at 12.0 s, declared down 700 ms later
failures     20 of downloads begun up to 2 s after the cut, 0 later";
        assert_eq!(facts(&result(Some(0.7))).join("\n"), expected);
    }

    #[test]
    fn a_cut_is_seen_when_its_own_link_is_declared_down_after_it() {
        let event = |t_s, kind, link: &str| Event {
            t_s,
            kind,
            link: Some(link.into()),
            text: String::new(),
        };
        let events = [
            event(3.0, EventKind::Down, "fiber"),
            event(12.0, EventKind::Cut, "fiber"),
            event(12.1, EventKind::Down, "lte"),
            event(12.7, EventKind::Down, "fiber"),
        ];
        let seen = cut_seen(&events).unwrap();
        assert_eq!((seen.link.as_str(), seen.cut_s), ("fiber", 12.0));
        assert_eq!((seen.declared_down_s, seen.restored_s), (Some(12.7), None));
        assert!(cut_seen(&events[..1]).is_none());
    }

    #[test]
    fn a_cut_that_nobody_noticed_is_told_as_such() {
        assert!(facts(&result(None))[2].ends_with("not detected"));
        assert_eq!(headline(&result(None))[2].value, "never");
    }
}
