//! What several subcommands show alike.

use anabranch_api::{Finding, Severity};
use anabranch_console::table::bad;

/// The granularity of a class that keeps no flows.
pub const PACKET: &str = "packet";

/// What stands beside a gateway, on a line of its own.
pub fn finding(finding: &Finding) -> String {
    let severity = match finding.severity {
        Severity::Note => "note".to_owned(),
        Severity::Refused | Severity::Trouble => bad("TROUBLE").to_string(),
    };
    format!("{severity}  {finding}\n")
}

/// How many of the findings are not merely good to know.
pub fn troubles(findings: &[Finding]) -> usize {
    let is_trouble = |finding: &&Finding| finding.severity != Severity::Note;
    findings.iter().filter(is_trouble).count()
}

/// A policy of a class, and that it chooses for each packet if it does.
pub fn policy(name: &str, granularity: &str) -> String {
    match granularity {
        PACKET => format!("{name}, per packet"),
        _ => name.to_owned(),
    }
}

/// Whether a link translates.
pub fn nat(translates: bool) -> String {
    if translates { "yes" } else { "routed" }.to_owned()
}
