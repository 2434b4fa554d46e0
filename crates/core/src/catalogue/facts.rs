//! What may be said of any policy: its parts, what may be set, what it needs and costs.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::link::RateNeed;

/// What is measured, how that becomes a choice, and for what the choice holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// As files name it.
    pub measure: &'static str,
    /// As files name it.
    pub dispatch: &'static str,
    /// As files name it.
    pub granularity: &'static str,
}

/// A number that may be set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Parameter {
    /// The key in files.
    pub name: &'static str,
    /// As files write it.
    pub default: String,
    /// In a few words, for people.
    pub meaning: &'static str,
}

/// What has to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Of each of its targets.
    pub rates: RateNeed,
    /// A fixed node that measures ask.
    pub node: bool,
    /// Packets of one connection take several links: the site's addresses are reachable over each.
    pub no_nat: bool,
    /// There are no sublinks for faults to happen to.
    pub no_faults: bool,
}

/// What it costs beside the choice itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// What has to be kept, and of what.
    pub state: &'static str,
    /// Packets sent for its measure alone. Probes of a suspected link are sent under every policy.
    pub probes: &'static str,
}

impl Needs {
    /// One by one; keys of files in backquotes.
    pub fn list(&self) -> Vec<String> {
        let rates = (self.rates != RateNeed::None).then(|| self.rates.to_string());
        let others = [
            (self.node, "`probe.node`"),
            (self.no_nat, "a site without NAT"),
            (self.no_faults, "no faults"),
        ];
        let others = others.iter().filter(|(needed, _)| *needed);
        let others = others.map(|(_, words)| (*words).to_owned());
        rates.into_iter().chain(others).collect()
    }
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.list()[..] {
            [] => f.write_str("nothing"),
            needs => f.write_str(&needs.join(", ")),
        }
    }
}

/// As files write a time.
pub fn in_ms(time: Duration) -> String {
    format!("{}ms", time.as_secs_f64() * 1e3)
}

/// As files write a time of whole seconds.
pub fn in_s(time: Duration) -> String {
    format!("{}s", time.as_secs())
}
