//! The facts about a policy: its parts, its parameters, what it needs and costs, how far it looks and how often, what it
//! sends, and which sites it suits.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::TargetKind;
use crate::link::RateNeed;
use crate::measure::Distance;

/// The facts about a policy, whatever runs it. The defaults are what most policies have.
pub trait Facts {
    /// The kind of targets that it chooses among.
    fn target(&self) -> TargetKind;

    /// The parts of its tuple, in words.
    fn parts(&self) -> Parts;

    /// What it costs.
    fn cost(&self) -> Cost;

    /// Which sites it suits, and which not.
    fn suits(&self) -> Vec<&'static str>;

    /// Whether a configuration may name it. Others are only for scenarios.
    fn is_configurable(&self) -> bool {
        true
    }

    /// Whether it distinguishes classes of traffic.
    fn asks_rules(&self) -> bool {
        false
    }

    /// The tuple as files may write it; none if it has none.
    fn tuple(&self) -> Option<String> {
        None
    }

    /// What the measure is divided by before targets are compared, if anything: their rate (or weight in its place), or their weight.
    fn divided_by(&self) -> Option<&'static str> {
        None
    }

    /// What targets are compared by, for people.
    fn measured(&self) -> &'static str {
        self.parts().measure
    }

    /// How far away its measure looks.
    fn distance(&self) -> Distance {
        Distance::Local
    }

    /// Time between two measurements, if they are periodic.
    fn period(&self) -> Option<Duration> {
        None
    }

    /// Its parameters, with their defaults.
    fn parameters(&self) -> Vec<Parameter> {
        Vec::new()
    }

    /// What must be declared or configured for it.
    fn needs(&self) -> Needs {
        Needs::NOTHING
    }

    /// What it sends in order to measure.
    fn sent(&self) -> Sent {
        Sent::nothing()
    }
}

/// The parts of a policy: what is measured, how that becomes a choice, and what the choice holds for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Parts {
    /// Its name in files.
    pub measure: &'static str,
    /// Its name in files.
    pub dispatch: &'static str,
    /// Its name in files.
    pub granularity: &'static str,
}

/// A parameter of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Parameter {
    /// The key in files.
    pub name: &'static str,
    /// As files write it.
    pub default: String,
    /// In a few words, for people.
    pub meaning: &'static str,
}

/// What must be declared or configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Rates of each of its targets.
    pub rates: RateNeed,
    /// Whether a fixed node must be configured.
    pub node: bool,
    /// Whether packets of one connection take several links, so that the site's addresses must be reachable over each.
    pub no_nat: bool,
    /// Whether faults are excluded, because there are no sublinks.
    pub no_faults: bool,
}

/// What it costs beside the choice itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// The state that it needs, and for what.
    pub state: &'static str,
    /// Packets that are sent for its measure. Probes of a suspected link are sent under every policy.
    pub probes: &'static str,
}

/// What is sent to measure, and from what (Peng 2005 table 5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// Bytes, with IP headers if it sends packets.
    pub bytes: String,
    /// Sockets of the host.
    pub sockets: &'static str,
}

impl Sent {
    /// Nothing, from no socket.
    pub fn nothing() -> Sent {
        Sent::new("none", "none")
    }

    /// This number of bytes from these sockets.
    pub fn new(bytes: impl Into<String>, sockets: &'static str) -> Sent {
        Sent {
            bytes: bytes.into(),
            sockets,
        }
    }
}

impl Needs {
    /// No needs.
    pub const NOTHING: Needs = Needs {
        rates: RateNeed::None,
        node: false,
        no_nat: false,
        no_faults: false,
    };

    /// A list of the needs; keys of files are in backquotes.
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
