//! Gateways' policies by their names.

use std::fmt;
use std::str::FromStr;

use super::{Policy, Target, default, find, of, row_of};
use crate::algorithm::Algorithm;

impl Algorithm {
    /// As files write it: its name in quotation marks, else its tuple.
    pub fn written(&self) -> String {
        match row_of(&Policy::Gateway(*self)) {
            Some(row) => format!("{:?}", row.name),
            None => self.tuple(),
        }
    }
}

impl Default for Algorithm {
    fn default() -> Self {
        match default(Target::Link).policy {
            Policy::Gateway(algorithm) => algorithm,
            Policy::Packet | Policy::Trunk(_) => {
                unreachable!("a gateway's default")
            }
        }
    }
}

impl fmt::Display for Algorithm {
    /// Its name in the catalogue, else its tuple.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match row_of(&Policy::Gateway(*self)) {
            Some(row) => f.write_str(row.name),
            None => f.write_str(&self.tuple()),
        }
    }
}

/// A name that is no gateway's policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy `{name}`, allowed: {}", names().collect::<Vec<_>>().join(", "))]
pub struct UnknownAlgorithm {
    /// As it was given.
    pub name: String,
}

/// Every name, the default first.
pub fn names() -> impl Iterator<Item = &'static str> {
    let gateways = of(Target::Link).filter(|row| row.policy.is_configurable());
    gateways.map(|row| row.name)
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    /// Case does not matter.
    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        match find(Target::Link, name).map(|row| row.policy) {
            Some(Policy::Gateway(algorithm)) => Ok(algorithm),
            _ => Err(UnknownAlgorithm {
                name: name.to_owned(),
            }),
        }
    }
}
