use std::time::Duration;

use anabranch_policy::Granularity;
use serde::Deserialize;

use crate::algorithm::Algorithm;
use crate::link::{Direction, LinkId, LinkSet, OnReturn};
use crate::sessions::Sessions;
use crate::typed::Typed;

/// What becomes of the traffic of one class. What is not said is as in the default class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// Of no other class.
    pub name: String,
    /// How a link is chosen.
    pub policy: Option<Typed<Algorithm>>,
    /// For what the choice holds, in place of the policy's own.
    pub granularity: Option<Granularity>,
    /// The links by name, those to use first before those to use when none of them is left. None: all links, as their
    /// `metered` says. An empty list: no link, so that `when_none` decides.
    pub tiers: Option<Vec<Vec<String>>>,
    /// What happens when no link of any tier is left.
    pub when_none: WhenNone,
    /// Where most bytes go.
    pub direction: Option<Direction>,
    /// Live flows that one host may have in this class.
    pub flows_per_host: Option<u32>,
    /// What its flows do when a better link returns.
    pub on_return: Option<OnReturn>,
    /// Whether connections stick to the link of their session, ...
    pub stick: Option<bool>,
    /// ... but those to these remote ports.
    pub except: Option<Vec<u16>>,
    /// A session is forgotten so long after its last flow began.
    pub forget: Option<Duration>,
}

impl Class {
    /// Its sessions, where those of the default class are `default`.
    pub fn sessions(&self, default: &Sessions) -> Sessions {
        Sessions {
            stick: self.stick.unwrap_or(default.stick),
            except: self.except.clone().unwrap_or(default.except.clone()),
            forget: self.forget.unwrap_or(default.forget),
        }
    }

    /// How it chooses, where one that says nothing does as `inherited`.
    pub fn algorithm(&self, inherited: Algorithm) -> Algorithm {
        let own = self.policy.as_ref().map(|typed| typed.policy);
        let algorithm = own.unwrap_or(inherited);
        Algorithm {
            granularity: self.granularity.unwrap_or(algorithm.granularity),
            ..algorithm
        }
    }

    /// Its links in tiers and what follows, on one line.
    pub fn path(&self) -> String {
        let tiers = match &self.tiers {
            None => vec!["all links".to_owned()],
            Some(tiers) => tiers.iter().map(|tier| tier.join(", ")).collect(),
        };
        let last = match self.when_none {
            WhenNone::Drop => "dropped",
            WhenNone::Any => "any link",
            WhenNone::Kernel => "the kernel",
        };
        let is_all = self.tiers.is_none() && self.when_none == WhenNone::Any;
        let steps = tiers.into_iter().chain((!is_all).then(|| last.to_owned()));
        steps.collect::<Vec<_>>().join(", then ")
    }

    /// The tiers by the links' numbers; a link that has none is left out.
    pub fn tiers_of(&self, id: impl Fn(&str) -> Option<LinkId>) -> Option<Vec<LinkSet>> {
        let tiers = self.tiers.as_ref()?;
        let tier = |names: &Vec<String>| names.iter().filter_map(|name| id(name)).collect();
        Some(tiers.iter().map(tier).collect())
    }
}

/// What happens to a new flow when no link of its class is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenNone {
    /// It is refused.
    Drop,
    /// It takes a link of the default class.
    #[default]
    Any,
    /// The kernel's own routing and NAT carry it.
    Kernel,
}
