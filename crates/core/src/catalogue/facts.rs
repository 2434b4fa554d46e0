//! What may be said of any policy: its parts, what may be set, what it needs and costs, how far it looks and how often, what is
//! sent for it, and which sites it suits.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::TargetKind;
use crate::link::RateNeed;
use crate::measure::Distance;

/// What a policy says of itself, whatever runs it. What most say is the default.
pub trait Facts {
    /// What it chooses among.
    fn target(&self) -> TargetKind;

    /// Its tuple in words.
    fn parts(&self) -> Parts;

    /// What it costs.
    fn cost(&self) -> Cost;

    /// Which sites it suits, and which not.
    fn suits(&self) -> Vec<&'static str>;

    /// A configuration may name it, too; others are for scenarios.
    fn is_configurable(&self) -> bool {
        true
    }

    /// Whether it knows classes of traffic.
    fn asks_rules(&self) -> bool {
        false
    }

    /// As files write it without a name, if they can.
    fn tuple(&self) -> Option<String> {
        None
    }

    /// The measure is divided by what links were given.
    fn is_by_rate(&self) -> bool {
        false
    }

    /// What targets are compared by, for people.
    fn measured(&self) -> &'static str {
        self.parts().measure
    }

    /// How far away that looks which targets are compared by.
    fn distance(&self) -> Distance {
        Distance::Local
    }

    /// Between two measurements, where a timer says when.
    fn period(&self) -> Option<Duration> {
        None
    }

    /// What may be set, with its defaults.
    fn parameters(&self) -> Vec<Parameter> {
        Vec::new()
    }

    /// What has to be there.
    fn needs(&self) -> Needs {
        Needs::NOTHING
    }

    /// What is sent for it.
    fn sent(&self) -> Sent {
        Sent::nothing()
    }
}

/// What is measured, how that becomes a choice, and for what the choice holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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

/// What is sent to measure, and from what (Peng 2005 table 5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// With IP headers, where it has any.
    pub bytes: String,
    /// Of the host.
    pub sockets: &'static str,
}

impl Sent {
    /// Nothing, from no socket.
    pub fn nothing() -> Sent {
        Sent::new("none", "none")
    }

    /// So many bytes from these sockets.
    pub fn new(bytes: impl Into<String>, sockets: &'static str) -> Sent {
        Sent {
            bytes: bytes.into(),
            sockets,
        }
    }
}

impl Needs {
    /// It works anywhere.
    pub const NOTHING: Needs = Needs {
        rates: RateNeed::None,
        node: false,
        no_nat: false,
        no_faults: false,
    };

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
