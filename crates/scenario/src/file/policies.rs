//! `policies`: what can work on which network.

use std::path::Path;

use anabranch_config::{BadInput, Source, did_you_mean};
use anabranch_core::catalogue::{self, Needs, TARGETS, TargetKind};
use anabranch_core::rules::review_packets;
use anabranch_core::{Algorithm, TupleError, Typed};
use anabranch_peers::catalogue as peers;
use serde::Deserialize;

use super::written::PolicyText;
use crate::{Fault, Network, Policy};

/// Where a policy is to work.
#[derive(Clone, Copy)]
pub(super) struct Ground<'a> {
    pub network: &'a Network,
    pub faults: &'a [Fault],
}

impl Ground<'_> {
    fn target(self) -> TargetKind {
        match self.network {
            Network::Site(_) => TargetKind::Link,
            Network::Trunk(_) => TargetKind::Sublink,
        }
    }
}

pub(super) fn policies(
    source: &Source<'_>,
    written: Option<Vec<PolicyText>>,
    ground: Ground<'_>,
) -> Result<Vec<Typed<Policy>>, BadInput> {
    let Some(written) = written else {
        let default = Policy::Product(catalogue::default(ground.target()).policy);
        return fits(&default.into(), ground)
            .map(|()| vec![default.into()])
            .map_err(|problem| source.bad(&["policies"], problem));
    };
    if written.is_empty() {
        return Err(source.bad(&["policies"], "name one policy at least"));
    }
    let mut policies = Vec::new();
    for (index, text) in written.into_iter().enumerate() {
        let key = ["policies", &index.to_string()];
        let policy = match text {
            PolicyText::Name(name) => named(&name, ground),
            PolicyText::Tuple(typed) => tuple(typed.as_typed(source.text(&key)), ground),
        };
        policy
            .and_then(|policy| add(&mut policies, policy))
            .map_err(|problem| source.bad(&key, problem))?;
    }
    Ok(policies)
}

/// The policies of `--policy`; what is there twice is tried once.
pub(super) fn on_command_line(
    texts: &[String],
    ground: Ground<'_>,
) -> Result<Vec<Typed<Policy>>, BadInput> {
    let bad = |problem| BadInput::new(format!("--policy: {problem}"));
    let mut policies: Vec<Typed<Policy>> = Vec::new();
    for text in texts {
        let policy = match inline(text)? {
            Some(typed) => tuple(typed, ground),
            None => named(text, ground),
        };
        let policy = policy.map_err(bad)?;
        if !policies.contains(&policy) {
            add(&mut policies, policy).map_err(bad)?;
        }
    }
    Ok(policies)
}

/// The tuple that stands for a policy on a command line; `None` if `text` is a name.
pub fn inline(text: &str) -> Result<Option<Typed<Algorithm>>, BadInput> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Line {
        policy: Typed<Algorithm>,
    }

    if !text.trim_start().starts_with('{') {
        return Ok(None);
    }
    let line = format!("policy = {text}");
    let Line { policy } = Source::parse(Path::new("--policy"), &line)?.read()?;
    Ok(Some(policy.as_typed(Some(text))))
}

/// Whether packets of one connection have one source, where each has a choice of its own. The policy stands at `key`.
pub(super) fn fits_classes(
    source: &Source<'_>,
    key: &[&str],
    typed: &Typed<Policy>,
    network: &Network,
) -> Result<(), BadInput> {
    let (Network::Site(site), Some(algorithm)) = (network, typed.policy.algorithm()) else {
        return Ok(());
    };
    let links: Vec<_> = site.links.iter().map(|link| link.spec()).collect();
    review_packets(source, (algorithm, key), &site.default, &site.rules, &links)
}

/// Results tell policies apart by their names, and runs by what the policies are.
fn add(policies: &mut Vec<Typed<Policy>>, policy: Typed<Policy>) -> Result<(), String> {
    let same = |other: &&Typed<Policy>| other.policy == policy.policy || other.name == policy.name;
    match policies.iter().find(same) {
        None => {
            policies.push(policy);
            Ok(())
        }
        Some(other) if other.name == policy.name => Err(format!("{policy} is there already")),
        Some(other) => Err(format!("is {other}, which is there already")),
    }
}

/// The policy of this name on this network, or why there is none.
pub(super) fn named(name: &str, ground: Ground<'_>) -> Result<Typed<Policy>, String> {
    let target = ground.target();
    let policy = match Policy::parse(target, name) {
        Some(policy) => policy?.into(),
        None => return Err(unknown(name, target)),
    };
    fits(&policy, ground).map(|()| policy)
}

fn unknown(name: &str, target: TargetKind) -> String {
    let elsewhere = TARGETS.iter().find_map(|other| {
        let policy = Policy::parse(other.target, name)?.ok()?;
        Some(misplaced(&policy.to_string(), other.target, target))
    });
    elsewhere.unwrap_or_else(|| {
        let allowed = names(target);
        let meant = did_you_mean(name, allowed.split(", "));
        format!("unknown policy {name}; allowed: {allowed}{meant}")
    })
}

/// Of a policy of `of` where there are targets of another kind.
fn misplaced(policy: &str, of: TargetKind, here: TargetKind) -> String {
    let (of, here, allowed) = (of.row().plural, here.row().plural, names(here));
    format!("{policy} chooses among {of} and this network has {here}; allowed: {allowed}")
}

fn names(target: TargetKind) -> String {
    Policy::spellings(target).collect::<Vec<_>>().join(", ")
}

fn tuple(typed: Typed<Algorithm>, ground: Ground<'_>) -> Result<Typed<Policy>, String> {
    if let Some(peer) = peers::find(&typed.name) {
        return Err(TupleError::NameTaken(peer.name).to_string());
    }
    let policy = typed.map(Policy::gateway);
    let (of, here) = (policy.policy.facts().target(), ground.target());
    if of != here {
        return Err(misplaced("a tuple", of, here));
    }
    fits(&policy, ground).map(|()| policy)
}

/// Whether the network has what the policy needs.
fn fits(policy: &Typed<Policy>, ground: Ground<'_>) -> Result<(), String> {
    let Needs {
        rates,
        // Every scenario has one.
        node: _,
        no_nat,
        no_faults,
    } = policy.policy.facts().needs();
    if no_faults && !ground.faults.is_empty() {
        return Err(
            "is the undivided link, which has no sublinks for faults to happen to; leave it or the faults out"
                .to_owned(),
        );
    }
    let Network::Site(site) = ground.network else {
        return Ok(());
    };
    if no_nat && !site.is_routed() {
        return Err(
            "sends the packets of one connection over several links, which have different addresses behind NAT; \
             choose per connection, or write nat = false for a site whose addresses are reachable over every link"
                .to_owned(),
        );
    }
    if !policy.policy.facts().asks_rules() && site.has_classes() {
        return Err("asks no rules; leave it or the classes out".to_owned());
    }
    match site
        .links
        .iter()
        .find(|link| !rates.is_met_by(&link.spec()))
    {
        Some(link) => Err(format!(
            "{policy} needs {rates} of every link, and link.{} is not declared to the gateway; leave out declared = false",
            link.name
        )),
        None => Ok(()),
    }
}
