//! Finds policies by their names in configurations.

use std::fmt;
use std::str::FromStr;

use anabranch_config::did_you_mean;

use super::{Policy, TargetKind, default, find, of, parse, row_of};
use crate::algorithm::Algorithm;

impl Algorithm {
    /// As files write it: its name in quotation marks, or else its tuple.
    pub fn written(&self) -> String {
        match row_of(&Policy::Gateway(*self)) {
            Some(row) => format!("{:?}", row.name),
            None => self.tuple(),
        }
    }
}

impl Default for Algorithm {
    fn default() -> Self {
        let Policy::Gateway(algorithm) = default(TargetKind::Link).policy else {
            unreachable!("a gateway's default")
        };
        algorithm
    }
}

impl fmt::Display for Algorithm {
    /// Its name in the catalogue, or else its tuple.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Policy::Gateway(*self).fmt(f)
    }
}

/// A name that is not that of a gateway's policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy `{name}`, allowed: {}", names(TargetKind::Link).collect::<Vec<_>>().join(", "))]
pub struct UnknownAlgorithm {
    /// The name as it was given.
    pub name: String,
}

/// Every name that a configuration may use for a policy of these targets. For links, the default comes first.
pub fn names(target: TargetKind) -> impl Iterator<Item = &'static str> {
    let configurable = of(target).filter(|row| row.policy.facts().is_configurable());
    configurable.map(|row| row.name)
}

/// The policy that a configuration names for these targets, or the default.
///
/// # Errors
/// If a configuration may not name it. The error lists the allowed names.
pub fn configured(target: TargetKind, written: Option<&str>) -> Result<Policy, String> {
    let Some(text) = written else {
        return Ok(default(target).policy);
    };
    match parse(target, text) {
        Some(Ok(policy)) if policy.facts().is_configurable() => Ok(policy),
        Some(Err(problem)) => Err(problem),
        _ => {
            let allowed: Vec<_> = names(target).collect();
            let meant = did_you_mean(text, allowed.iter().copied());
            Err(format!("allowed: {}{meant}", allowed.join(", ")))
        }
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    /// Case does not matter.
    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        match find(TargetKind::Link, name).map(|row| row.policy) {
            Some(Policy::Gateway(algorithm)) => Ok(algorithm),
            _ => Err(UnknownAlgorithm {
                name: name.to_owned(),
            }),
        }
    }
}
