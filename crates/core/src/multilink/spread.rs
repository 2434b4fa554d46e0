//! The schemes that distribute packets over the sublinks of a trunk.

use std::time::Duration;

use anabranch_policy::abi;
use serde::{Serialize, Serializer};

use super::Parameters;
use crate::catalogue::{Cost, Facts, Needs, Parameter, Parts, TargetKind, in_ms};

/// Default gap of flowlets. It is longer than the delays of a trunk's sublinks differ, with half-full buffers of 100 ms each (Jo
/// 2002).
pub const FLOWLET_GAP: Duration = Duration::from_millis(50);

/// Serialized with every default filled in, in SI units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// SH: flow hash modulo the number of sublinks.
    Hash,
    /// DH: bins, a part of which move from an overloaded sublink.
    Dh,
    /// DHFV: bins, the largest of which moves from an overloaded sublink.
    Dhfv,
    /// Packet by packet, deficit round robin.
    Drr,
    /// A flow chooses anew, at random, after every gap of so long.
    Flowlet {
        /// Time without a packet of the flow.
        #[serde(rename = "gap_s", serialize_with = "seconds")]
        gap: Duration,
    },
    /// Weighted rendezvous hashing, rates as weights.
    Rendezvous,
    /// The Linux bonding driver's hash of addresses and ports modulo the number of sublinks. For comparisons.
    Bonding,
    /// Packet by packet as DRR, with sequence numbers by which the far end restores the order (RFC 1990). For comparisons.
    Mlppp,
    /// One undivided link, the reference for all others.
    Single,
}

impl Spread {
    /// The scheme for the program at the trunk's device. A scheme that only scenarios have is replaced by the most similar one.
    pub fn program(self) -> abi::Spread {
        match self {
            Spread::Hash | Spread::Bonding | Spread::Single => abi::Spread::Hash,
            Spread::Dh | Spread::Dhfv => abi::Spread::Bins,
            Spread::Flowlet { .. } => abi::Spread::Flowlet,
            Spread::Rendezvous => abi::Spread::Rendezvous,
            Spread::Drr | Spread::Mlppp => abi::Spread::Packet,
        }
    }

    /// Whether the controller watches the queues and moves bins.
    pub fn is_dynamic(self) -> bool {
        matches!(self, Spread::Dh | Spread::Dhfv)
    }

    /// What the data path stores for it, in words.
    fn state(self) -> &'static str {
        match self {
            Spread::Hash | Spread::Rendezvous | Spread::Bonding | Spread::Single => "nothing",
            Spread::Dh => "a place for each of 1024 bins",
            Spread::Dhfv => "a place and a counter for each of 1024 bins",
            Spread::Drr => "a deficit",
            Spread::Mlppp => "a deficit, and at the far end what waits for its turn",
            Spread::Flowlet { .. } => "a place and a time for each of 1024 bins",
        }
    }
}

impl Facts for Spread {
    fn target(&self) -> TargetKind {
        TargetKind::Sublink
    }

    fn parts(&self) -> Parts {
        let (measure, dispatch, granularity) = match self {
            Spread::Hash => ("none", "hash", "connection"),
            Spread::Dh => ("queue", "bins", "connection"),
            Spread::Dhfv => ("queue and volume", "bins", "connection"),
            Spread::Drr => ("transmitted", "weighted", "packet"),
            Spread::Flowlet { .. } => ("none", "random", "flowlet"),
            Spread::Rendezvous => ("none", "rendezvous", "connection"),
            Spread::Bonding => ("none", "hash", "connection"),
            Spread::Mlppp => ("transmitted", "weighted", "packet"),
            Spread::Single => ("none", "none", "connection"),
        };
        Parts {
            measure,
            dispatch,
            granularity,
        }
    }

    fn cost(&self) -> Cost {
        Cost {
            state: self.state(),
            probes: "none",
        }
    }

    fn suits(&self) -> Vec<&'static str> {
        vec![match self {
            Spread::Hash => {
                "many small flows: nothing is kept, and a large one has its sublink to the end"
            }
            Spread::Dh => "flows of about equal rate: it moves many bins at once",
            Spread::Dhfv => "flows of which few carry most: it moves the one that matters",
            Spread::Drr => "traffic that bears packets out of order: as even as can be",
            Spread::Flowlet { .. } => "flows that pause for longer than sublinks differ in delay",
            Spread::Rendezvous => "sublinks that come and go: only what was on them moves",
            Spread::Bonding | Spread::Mlppp | Spread::Single => "comparisons, in scenarios alone",
        }]
    }

    fn is_configurable(&self) -> bool {
        !matches!(self, Spread::Bonding | Spread::Mlppp | Spread::Single)
    }

    fn period(&self) -> Option<Duration> {
        let check_period = Parameters::default().check_period;
        self.is_dynamic().then_some(check_period)
    }

    fn needs(&self) -> Needs {
        Needs {
            no_faults: *self == Spread::Single,
            ..Needs::NOTHING
        }
    }

    fn parameters(&self) -> Vec<Parameter> {
        let default = Parameters::default();
        let of = |name, default, meaning| Parameter {
            name,
            default,
            meaning,
        };
        let check = || {
            of(
                "check",
                in_ms(default.check_period),
                "between two looks at the queues",
            )
        };
        let overload = || {
            of(
                "overload",
                format!("{}%", default.overload_percent),
                "a queue above this part of its buffer is overloaded",
            )
        };
        let shrink = || {
            of(
                "shrink",
                format!("{}%", default.shrink_percent),
                "a queue that is shorter than at the last look, by this part of its buffer at least, is not",
            )
        };
        match self {
            Spread::Dh => {
                let moved = of(
                    "moved",
                    format!("{}%", default.moved_percent),
                    "the part of an overloaded sublink's bins that moves",
                );
                let target = of(
                    "target",
                    default.target.to_string(),
                    "the sublink that takes bins: the lightest, or any lighter one",
                );
                vec![check(), overload(), shrink(), moved, target]
            }
            Spread::Dhfv => {
                let slot = of(
                    "slot",
                    in_ms(default.slot),
                    "a bin's bytes are counted so long",
                );
                let slots = of(
                    "slots",
                    default.slots.to_string(),
                    "a bin is judged by so many of them",
                );
                let bin = of(
                    "bin",
                    default.bin.to_string(),
                    "which bin of an overloaded sublink moves, by what it carried",
                );
                vec![check(), overload(), shrink(), slot, slots, bin]
            }
            Spread::Flowlet { gap } => vec![of(
                "flowlet_gap",
                in_ms(*gap),
                "the pause after which a bin may take another sublink",
            )],
            Spread::Hash
            | Spread::Drr
            | Spread::Rendezvous
            | Spread::Bonding
            | Spread::Mlppp
            | Spread::Single => Vec::new(),
        }
    }
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}
