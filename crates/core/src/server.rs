//! How a service spreads connections over its servers.

use anabranch_policy::Dispatch;
use serde::{Serialize, Serializer};

use crate::algorithm::{DISPATCHES, word_of};
use crate::catalogue::{Cost, Facts, Parts, TargetKind};

/// What the data path of a service does at each connection; nothing is measured in between. Each policy is a row of the
/// [`catalogue`](crate::catalogue).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerPolicy {
    /// How a server is chosen among those that take new connections.
    pub dispatch: Dispatch,
    /// What the data path keeps for it.
    pub state: &'static str,
    /// Which servers it suits, and which not.
    pub suits: &'static str,
}

impl Facts for ServerPolicy {
    fn target(&self) -> TargetKind {
        TargetKind::Server
    }

    fn parts(&self) -> Parts {
        Parts {
            measure: "none",
            dispatch: word_of(&DISPATCHES, self.dispatch),
            granularity: "connection",
        }
    }

    fn cost(&self) -> Cost {
        Cost {
            state: self.state,
            probes: "none",
        }
    }

    fn suits(&self) -> Vec<&'static str> {
        vec![self.suits]
    }
}

/// As its tuple.
impl Serialize for ServerPolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.parts().serialize(serializer)
    }
}
