//! What came of a run: figures, the report, and a few lines for the terminal.

use anabranch_lab::topology::LabReport;
use anabranch_scenario::{
    Cut, CutSeen, DemoLink, DemoResult, DemoRun, Event, Headline, Link, LinkSeries, Report,
};
use anabranch_workload::Transfer;

use crate::table::{self, Columns};

/// Everything a run left behind.
pub struct Evidence {
    pub policy: String,
    pub workload: String,
    pub duration_s: f64,
    pub links: Vec<DemoLink>,
    pub cut: Option<CutSeen>,
    pub events: Vec<Event>,
    pub series: Vec<LinkSeries>,
    pub transfers: Vec<Transfer>,
    pub lab: LabReport,
}

impl Evidence {
    pub fn result(&self) -> DemoResult {
        let began_s = self
            .transfers
            .iter()
            .map(|transfer| transfer.start_s)
            .fold(f64::INFINITY, f64::min);
        let began_s = if began_s.is_finite() { began_s } else { 0.0 };
        DemoRun {
            policy: self.policy.clone(),
            began_s,
            ended_s: began_s + self.duration_s,
            links: self.links.clone(),
            cut: self.cut.clone(),
            transfers: &self.transfers,
        }
        .result()
    }

    pub fn report(&self, result: &DemoResult) -> Report {
        let links = self.links.iter().map(|link| Link {
            name: link.name.clone(),
            rate_bps: link.rate_bps,
        });
        Report {
            title: "A link dies".into(),
            lead: lead(result),
            headline: headline(result),
            manifest: self.manifest(),
            links: links.collect(),
            series: self.series.clone(),
            events: self.events.clone(),
            transfers: self.transfers.clone(),
        }
    }

    fn manifest(&self) -> Vec<(String, String)> {
        let lab = &self.lab;
        let mut manifest = vec![
            (
                "command".to_owned(),
                std::env::args().collect::<Vec<_>>().join(" "),
            ),
            ("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
            ("policy".to_owned(), self.policy.clone()),
            ("workload".to_owned(), self.workload.clone()),
            ("seed".to_owned(), lab.spec.seed.to_string()),
            ("kernel".to_owned(), lab.kernel.clone()),
            ("cores".to_owned(), lab.cores.to_string()),
        ];
        for (namespace, algorithm) in &lab.congestion_control {
            manifest.push((
                format!("congestion control of {namespace}"),
                algorithm.clone(),
            ));
        }
        for link in &lab.links {
            let lateness = link.down.lateness;
            let words = format!(
                "p50 {:.0} µs, p99 {:.0} µs",
                lateness.p50_us, lateness.p99_us
            );
            manifest.push((format!("lateness of {} down", link.name), words));
        }
        manifest.extend(
            lab.problems
                .iter()
                .map(|problem| ("not to be trusted".to_owned(), problem.clone())),
        );
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
            .lab
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
    fn a_cut_that_nobody_noticed_is_told_as_such() {
        assert!(facts(&result(None))[2].ends_with("not detected"));
        assert_eq!(headline(&result(None))[2].value, "never");
    }
}
