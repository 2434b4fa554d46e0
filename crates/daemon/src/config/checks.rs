//! `[[check]]`: additional conditions of the operator for using a link.

use std::sync::Arc;
use std::time::Duration;

use anabranch_config::{Source, Span};
use anabranch_core::checks::{
    Certificate, Check, Expect, Page, ProbeTarget, Schedule, Test, is_plain, is_status,
};

use super::file::{CheckTable, ExpectTable, OneOrMore};
use super::link::Link;
use crate::error::BadInput;
use crate::probe::tls;

/// Maximum number of checks.
const CHECKS_MAX: usize = 64;
/// Maximum number of tests in one check.
const TESTS_MAX: usize = 16;
const INTERVAL: Duration = Duration::from_secs(5);
const INTERVAL_MIN: Duration = Duration::from_millis(200);
const INTERVAL_MAX: Duration = Duration::from_secs(24 * 3600);
const JITTER: u32 = 10;
const JITTER_MAX: u32 = 50;
/// Default timeout of a test; less if the schedule allows less.
const TIMEOUT: Duration = Duration::from_secs(2);
const TIMEOUT_MIN: Duration = Duration::from_millis(10);
const RISE: u32 = 2;
const FALL: u32 = 3;
const ROW_MAX: u32 = 100;
const COMMAND_WORDS_MAX: usize = 64;
const COMMAND_BYTES_MAX: usize = 4096;
const BODY_BYTES_MAX: usize = 1000;
const OF_TLS: &str = r#"is for pages over TLS; write ask = "https:HOST/PATH", or leave it out"#;
const OF_PAGES: &str = r#"is for pages; write ask = "http:HOST/PATH", or leave it out"#;

/// Reads the checks, and gives each link those that name it.
pub(super) fn read(
    source: &Source<'_>,
    tables: &[CheckTable],
    links: &mut [Link],
) -> Result<(), BadInput> {
    if tables.len() > CHECKS_MAX {
        let allowed = format!("at most {CHECKS_MAX} checks are allowed");
        return Err(source.bad(&["check"], allowed));
    }
    for (index, table) in tables.iter().enumerate() {
        let place = Place {
            source,
            key: &["check", &index.to_string()],
        };
        let check = place.check(table)?;
        let OneOrMore(names) = &table.link;
        for name in names {
            match links.iter_mut().find(|link| link.name == *name) {
                Some(link) => link.checks.push(check.clone()),
                None => return Err(place.bad(&["link"], unknown(name, links))),
            }
        }
    }
    Ok(())
}

/// What stands at `key`, without those who have to pass it.
pub(crate) fn check(
    source: &Source<'_>,
    key: &[&str],
    table: &CheckTable,
) -> Result<Check, BadInput> {
    Place { source, key }.check(table)
}

fn unknown(name: &str, links: &[Link]) -> String {
    let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
    format!(
        "no link is called {name:?}; there are: {}",
        names.join(", ")
    )
}

struct Place<'a> {
    source: &'a Source<'a>,
    key: &'a [&'a str],
}

impl Place<'_> {
    /// An error at a key, or at its table if the key is not set.
    fn bad(&self, within: &[&str], problem: impl Into<String>) -> BadInput {
        let key = [self.key, within].concat();
        let is_there = self.source.span(&key).is_some();
        let key = if is_there { &key } else { self.key };
        self.source.bad(key, problem.into())
    }

    fn check(&self, table: &CheckTable) -> Result<Check, BadInput> {
        let tests = self.tests(table)?;
        let quorum = table.quorum.unwrap_or(1);
        if !(1..=tests.len()).contains(&quorum) {
            let allowed = format!("1 to {} are asked", tests.len());
            return Err(self.bad(&["quorum"], allowed));
        }
        Ok(Check {
            schedule: self.schedule(table)?,
            rise: self.row("rise", table.rise.unwrap_or(RISE))?,
            fall: self.row("fall", table.fall.unwrap_or(FALL))?,
            quorum,
            tests,
        })
    }

    fn row(&self, key: &str, count: u32) -> Result<u32, BadInput> {
        match (1..=ROW_MAX).contains(&count) {
            true => Ok(count),
            false => Err(self.bad(&[key], format!("1 to {ROW_MAX} in a row are allowed"))),
        }
    }

    fn schedule(&self, table: &CheckTable) -> Result<Schedule, BadInput> {
        let Span(interval) = table.interval.unwrap_or(Span(INTERVAL));
        if !(INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) {
            let allowed = format!("a time from {INTERVAL_MIN:?} to 24h is allowed");
            return Err(self.bad(&["interval"], allowed));
        }
        let jitter = table.jitter.unwrap_or(JITTER);
        if jitter > JITTER_MAX {
            let allowed = format!("0 to {JITTER_MAX} percent of the interval are allowed");
            return Err(self.bad(&["jitter"], allowed));
        }
        let mut schedule = Schedule {
            interval,
            jitter,
            timeout: TIMEOUT,
        };
        let most = interval - schedule.spread();
        schedule.timeout = table.timeout.map_or(TIMEOUT.min(most), |Span(time)| time);
        if !(TIMEOUT_MIN..=most).contains(&schedule.timeout) {
            let allowed = format!(
                "a time from {TIMEOUT_MIN:?} to {most:?} is allowed: the interval less its jitter"
            );
            return Err(self.bad(&["timeout"], allowed));
        }
        Ok(schedule)
    }

    fn tests(&self, table: &CheckTable) -> Result<Vec<Test>, BadInput> {
        match (&table.ask, &table.command) {
            (Some(OneOrMore(asked)), None) => self.targets(asked, table),
            (None, Some(words)) => {
                self.is_of_pages(table, &[])?;
                self.command(words).map(|test| vec![test])
            }
            (Some(_), Some(_)) => Err(self.bad(
                &["command"],
                "ask is there, too; write a check for each of them",
            )),
            (None, None) => Err(self.bad(
                &["link"],
                r#"the check asks nothing; write ask = "http:HOST/PATH", or command = ["/usr/local/bin/NAME"]"#,
            )),
        }
    }

    fn command(&self, words: &[String]) -> Result<Test, BadInput> {
        let bytes: usize = words.iter().map(String::len).sum();
        let is_right = words.first().is_some_and(|path| path.starts_with('/'))
            && words.len() <= COMMAND_WORDS_MAX
            && bytes <= COMMAND_BYTES_MAX
            && !words.iter().any(|word| word.contains('\0'));
        match is_right {
            true => Ok(Test::Command(words.into())),
            false => Err(self.bad(
                &["command"],
                format!(
                    r#"write the program's whole path and its arguments, like ["/usr/local/bin/modem-ok", "wwan0"]: at most {COMMAND_WORDS_MAX} words of {COMMAND_BYTES_MAX} bytes"#
                ),
            )),
        }
    }

    fn targets(&self, asked: &[String], table: &CheckTable) -> Result<Vec<Test>, BadInput> {
        if !(1..=TESTS_MAX).contains(&asked.len()) {
            let allowed = format!("1 to {TESTS_MAX} targets are allowed");
            return Err(self.bad(&["ask"], allowed));
        }
        let read = |(index, text): (usize, &String)| {
            let index = index.to_string();
            let target = target(text, table);
            target.map_err(|problem| {
                match self.source.span(&[self.key, &["ask", &index]].concat()) {
                    Some(_) => self.bad(&["ask", &index], problem),
                    None => self.bad(&["ask"], problem),
                }
            })
        };
        let targets: Vec<ProbeTarget> = asked
            .iter()
            .enumerate()
            .map(read)
            .collect::<Result<_, _>>()?;
        let pages: Vec<&Page> = targets.iter().filter_map(page_of).collect();
        self.is_of_pages(table, &pages)?;
        self.expectation(table)?;
        if let Some(text) = asked.iter().find(|text| text.contains(" = "))
            && table.expect.is_some()
        {
            let problem = format!("{text:?} says what it expects itself; leave one of them out");
            return Err(self.bad(&["expect"], problem));
        }
        Ok(targets.into_iter().map(Test::Target).collect())
    }

    /// Refuses keys about pages in a check without a page.
    fn is_of_pages(&self, table: &CheckTable, pages: &[&Page]) -> Result<(), BadInput> {
        for (key, is_there) in [
            ("expect", table.expect.is_some()),
            ("host", table.host.is_some()),
        ] {
            if is_there && pages.is_empty() {
                return Err(self.bad(&[key], OF_PAGES));
            }
        }
        if table.certificate.is_some() && pages.iter().all(|page| page.tls.is_none()) {
            return Err(self.bad(&["certificate"], OF_TLS));
        }
        self.certificates(table)
    }

    /// Checks that a file of authorities exists, and has some, when the configuration is read.
    fn certificates(&self, table: &CheckTable) -> Result<(), BadInput> {
        match table.certificate.as_deref().map(certificate) {
            Some(Certificate::By(path)) => tls::authorities_in(&path)
                .map(drop)
                .map_err(|problem| self.bad(&["certificate"], problem)),
            _ => Ok(()),
        }
    }

    fn expectation(&self, table: &CheckTable) -> Result<(), BadInput> {
        let Some(ExpectTable { status, body }) = &table.expect else {
            return Ok(());
        };
        if status
            .as_ref()
            .is_some_and(|codes| codes.is_empty() || !codes.iter().all(is_status))
        {
            return Err(self.bad(
                &["expect", "status"],
                "write one status code or more, like [200, 204]",
            ));
        }
        let is_body = |text: &String| (1..=BODY_BYTES_MAX).contains(&text.len());
        if !body.as_ref().is_none_or(is_body) {
            let allowed = format!("a text of 1 to {BODY_BYTES_MAX} bytes is allowed");
            return Err(self.bad(&["expect", "body"], allowed));
        }
        Ok(())
    }
}

fn page_of(target: &ProbeTarget) -> Option<&Page> {
    match target {
        ProbeTarget::Http(page) => Some(page),
        _ => None,
    }
}

fn certificate(written: &str) -> Certificate {
    match written {
        "trusted" => Certificate::Trusted,
        "any" => Certificate::Any,
        path => Certificate::By(path.into()),
    }
}

/// Reads a target. A page without an expected answer has to return status 200.
fn target(text: &str, table: &CheckTable) -> Result<ProbeTarget, String> {
    let is_page = text.starts_with("http:") || text.starts_with("https:");
    let target = match is_page && !text.contains(" = ") {
        true => format!("{text} = 200").parse()?,
        false => text.parse()?,
    };
    let ProbeTarget::Http(mut page) = target else {
        return Ok(target);
    };
    let changed = Arc::make_mut(&mut page);
    if let Some(name) = &table.host {
        if name.is_empty() || !is_plain(name) || name.contains(['/', ':']) {
            return Err(format!(
                "host {name:?} is no host name; write it like \"www.example.org\""
            ));
        }
        changed.name = Some(name.clone());
    }
    if let (Some(tls), Some(written)) = (&mut changed.tls, &table.certificate) {
        *tls = certificate(written);
    }
    if let Some(ExpectTable { status, body }) = &table.expect {
        changed.expect = Expect {
            status: status.clone().unwrap_or_else(|| vec![200]),
            body: body.clone(),
        };
    }
    Ok(ProbeTarget::Http(page))
}
