//! Errors of configurations from which no balancer can be built.

use anabranch_policy::abi::{self, MAX_CLASSES, TIERS_MAX};

use crate::catalogue::TargetKind;
use crate::class::{ClassId, ClassSpec, Classes};
use crate::config::{Config, ConfigError};
use crate::link::{LinkId, LinkSpec, RateNeed};

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum BuildError {
    #[error("there are {0} links, allowed: 1 to {max}", max = TargetKind::Link.row().max)]
    LinkCount(usize),
    #[error(
        "policy `{algorithm}` needs {need} of link `{link}`: declare it, or choose a policy that needs no rate"
    )]
    RateMissing {
        algorithm: String,
        link: String,
        need: RateNeed,
    },
    #[error("policy `{0}` measures round trips to a fixed node: name one in `probe.node`")]
    NodeMissing(String),
    #[error("link `{link}` has a rate of 0, allowed: 1 bit/s and more, or none")]
    RateZero { link: String },
    #[error("link `{link}` has weight {weight}, allowed: {min} to {max}", min = abi::WEIGHT_MIN, max = abi::WEIGHT_MAX)]
    WeightRange { link: String, weight: u32 },
    #[error("link `{link}` has no weight but others have: give every link a weight, or none")]
    WeightsMixed { link: String },
    #[error("there is no default class")]
    DefaultMissing,
    #[error("{0} is beyond the last, which is {max}", max = MAX_CLASSES - 1)]
    ClassRange(ClassId),
    #[error("{class} has {tiers} tiers, allowed: at most {TIERS_MAX}")]
    TierCount { class: ClassId, tiers: usize },
    #[error(transparent)]
    Config(#[from] ConfigError),
}

pub(super) fn check_links(links: &[LinkSpec]) -> Result<(), BuildError> {
    if links.is_empty() || links.len() > TargetKind::Link.row().max {
        return Err(BuildError::LinkCount(links.len()));
    }
    let weighted = links.iter().any(|spec| spec.weight.is_some());
    for spec in links {
        let link = spec.name.clone();
        if spec.rate_up_bps == Some(0) || spec.rate_down_bps == Some(0) {
            return Err(BuildError::RateZero { link });
        }
        match spec.weight {
            Some(weight) if !(abi::WEIGHT_MIN..=abi::WEIGHT_MAX).contains(&weight) => {
                return Err(BuildError::WeightRange { link, weight });
            }
            None if weighted => return Err(BuildError::WeightsMixed { link }),
            _ => {}
        }
    }
    Ok(())
}

pub(super) fn check_classes(
    classes: &Classes,
    links: &[LinkSpec],
    config: &Config,
) -> Result<(), BuildError> {
    if !classes.contains_key(&ClassId::DEFAULT) {
        return Err(BuildError::DefaultMissing);
    }
    for (&class, spec) in classes {
        if class.index() >= MAX_CLASSES {
            return Err(BuildError::ClassRange(class));
        }
        let tiers = spec.tiers.as_ref().map_or(0, Vec::len);
        if tiers > TIERS_MAX {
            return Err(BuildError::TierCount { class, tiers });
        }
        if spec.algorithm.needs_node() && config.node.is_none() {
            return Err(BuildError::NodeMissing(spec.algorithm.to_string()));
        }
        check_rates(spec, links)?;
    }
    Ok(())
}

/// Checks that the links of a class declare the rates that its policy needs.
fn check_rates(spec: &ClassSpec, links: &[LinkSpec]) -> Result<(), BuildError> {
    let need = spec.algorithm.needs_rate();
    let mut named = (0..)
        .map(LinkId)
        .zip(links)
        .filter(|(id, _)| spec.names(*id));
    match named.find(|(_, link)| !need.is_met_by(link)) {
        None => Ok(()),
        Some((_, link)) => Err(BuildError::RateMissing {
            algorithm: spec.algorithm.to_string(),
            link: link.name.clone(),
            need,
        }),
    }
}
