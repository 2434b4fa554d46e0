use std::time::Duration;

use anabranch_policy::Granularity;
use serde::Deserialize;

use crate::algorithm::Algorithm;
use crate::link::{Direction, LinkId, LinkSet, OnReturn};
use crate::sessions::Sessions;
use crate::typed::Typed;

/// How the traffic of one class is handled. What is not set is as in the default class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// Unique among classes.
    pub name: String,
    /// How a link is chosen.
    pub policy: Option<Typed<Algorithm>>,
    /// What a choice holds for, in place of the policy's own granularity.
    pub granularity: Option<Granularity>,
    /// Names of links in tiers: a tier is used if no link of the tiers before is left. None: all links, unmetered before metered.
    /// An empty list: no link, so `when_none` applies to all flows.
    pub tiers: Option<Vec<Vec<String>>>,
    /// What happens to new flows if no link of any tier is left.
    pub when_none: WhenNone,
    /// The direction of most bytes.
    pub direction: Option<Direction>,
    /// Live flows that one host may have in this class.
    pub flows_per_host: Option<u32>,
    /// What its flows do when a better link returns.
    pub on_return: Option<OnReturn>,
    /// Whether connections use the link of their session, ...
    pub stick: Option<bool>,
    /// ... except those to these remote ports.
    pub except: Option<Vec<u16>>,
    /// A session is forgotten this long after its last flow began.
    pub forget: Option<Duration>,
}

impl Class {
    /// Its sessions; `default` are those of the default class.
    pub fn sessions(&self, default: &Sessions) -> Sessions {
        Sessions {
            stick: self.stick.unwrap_or(default.stick),
            except: self.except.clone().unwrap_or(default.except.clone()),
            forget: self.forget.unwrap_or(default.forget),
        }
    }

    /// Its algorithm; `inherited` applies if it names none.
    pub fn algorithm(&self, inherited: Algorithm) -> Algorithm {
        let own = self.policy.as_ref().map(|typed| typed.policy);
        let algorithm = own.unwrap_or(inherited);
        Algorithm {
            granularity: self.granularity.unwrap_or(algorithm.granularity),
            ..algorithm
        }
    }

    /// Its tiers and `when_none` on one line.
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

    /// The tiers as sets of links; names that `id` does not know are left out.
    pub fn tiers_of(&self, id: impl Fn(&str) -> Option<LinkId>) -> Option<Vec<LinkSet>> {
        let tiers = self.tiers.as_ref()?;
        let tier = |names: &Vec<String>| names.iter().filter_map(|name| id(name)).collect();
        Some(tiers.iter().map(tier).collect())
    }
}

/// What happens to a new flow if no link of its class is left.
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
