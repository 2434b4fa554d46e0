//! `policies`: what can work on which network.

use std::time::Duration;

use anabranch_config::{BadInput, Source, Span, did_you_mean};
use anabranch_core::{Algorithm, algorithm};

use super::written::PolicyText;
use crate::{Fault, Network, Policy, Site, Spread};

/// Longer than sublinks of one trunk differ in delay.
const FLOWLET_GAP: Duration = Duration::from_millis(50);
const SPREADS: &str = "SH, DH, DHFV, DRR, flowlet, \"flowlet 50ms\", rendezvous, single";

/// Where a policy is to work.
#[derive(Clone, Copy)]
pub(super) struct Ground<'a> {
    pub network: &'a Network,
    pub faults: &'a [Fault],
}

pub(super) fn policies(
    source: &Source<'_>,
    written: Option<Vec<PolicyText>>,
    ground: Ground<'_>,
) -> Result<Vec<Policy>, BadInput> {
    let Some(written) = written else {
        let default = default(ground.network);
        return fits(&default, ground)
            .map(|()| vec![default])
            .map_err(|problem| source.bad(&["policies"], problem));
    };
    if written.is_empty() {
        return Err(source.bad(&["policies"], "name one policy at least"));
    }
    let mut policies = Vec::new();
    for (index, text) in written.iter().enumerate() {
        let bad = |problem| source.bad(&["policies", &index.to_string()], problem);
        let policy = match text {
            PolicyText::Name(name) => named(name, ground),
            PolicyText::Tuple(algorithm) => tuple(*algorithm, ground),
        };
        let policy = policy.map_err(bad)?;
        if policies.contains(&policy) {
            return Err(bad(format!("{policy} is there already")));
        }
        policies.push(policy);
    }
    Ok(policies)
}

fn default(network: &Network) -> Policy {
    match network {
        Network::Site(_) => Policy::Gateway(Algorithm::default()),
        Network::Trunk(_) => Policy::Trunk(Spread::Dhfv),
    }
}

/// The policy of this name on this network, or why there is none.
pub(super) fn named(name: &str, ground: Ground<'_>) -> Result<Policy, String> {
    let spread = spread(name);
    let policy = match ground.network {
        Network::Trunk(_) => match (spread, name.parse::<Algorithm>()) {
            (Some(spread), _) => Policy::Trunk(spread?),
            (None, Ok(gateway)) => {
                return Err(format!(
                    "{gateway} is a gateway's policy and this is a trunk; allowed: {SPREADS}"
                ));
            }
            (None, Err(_)) => return Err(unknown(name, SPREADS)),
        },
        Network::Site(_) if is_packet(name) => Policy::Packet,
        Network::Site(_) => match (name.parse(), spread) {
            (Ok(algorithm), _) => Policy::Gateway(algorithm),
            (Err(_), Some(_)) => {
                return Err(format!(
                    "{name} shares a trunk and this is a site with links; allowed: {}",
                    gateways()
                ));
            }
            (Err(_), None) => {
                return Err(unknown(name, &gateways()));
            }
        },
    };
    fits(&policy, ground).map(|()| policy)
}

fn unknown(name: &str, allowed: &str) -> String {
    let meant = did_you_mean(name, allowed.split(", "));
    format!("unknown policy {name}; allowed: {allowed}{meant}")
}

fn is_packet(name: &str) -> bool {
    ["packet", "drr"].contains(&name.to_ascii_lowercase().as_str())
}

fn gateways() -> String {
    let names: Vec<_> = algorithm::names().chain(["packet"]).collect();
    names.join(", ")
}

/// `None` if the name is no spread's.
fn spread(name: &str) -> Option<Result<Spread, String>> {
    let lower = name.to_ascii_lowercase();
    if let Some(gap) = lower.strip_prefix("flowlet ") {
        let gap = gap.parse::<Span>();
        return Some(gap.and_then(|Span(gap)| match gap.as_millis() {
            0 => Err("a gap is 1 ms at least".to_owned()),
            _ => Ok(Spread::Flowlet { gap }),
        }));
    }
    Some(Ok(match lower.as_str() {
        "sh" => Spread::Hash,
        "dh" => Spread::Dh,
        "dhfv" => Spread::Dhfv,
        "drr" | "packet" => Spread::Drr,
        "flowlet" => Spread::Flowlet { gap: FLOWLET_GAP },
        "rendezvous" => Spread::Rendezvous,
        "single" => Spread::Single,
        _ => return None,
    }))
}

fn tuple(algorithm: Algorithm, ground: Ground<'_>) -> Result<Policy, String> {
    let policy = Policy::Gateway(algorithm);
    match ground.network {
        Network::Site(_) => fits(&policy, ground).map(|()| policy),
        Network::Trunk(_) => Err(format!(
            "a tuple is a gateway's policy and this is a trunk; allowed: {SPREADS}"
        )),
    }
}

/// Whether the network has what the policy needs.
fn fits(policy: &Policy, ground: Ground<'_>) -> Result<(), String> {
    match (policy, ground.network) {
        (Policy::Trunk(Spread::Single), _) if !ground.faults.is_empty() => Err(
            "is the undivided link, which has no sublinks for faults to happen to; leave it or the faults out"
                .to_owned(),
        ),
        (Policy::Packet, Network::Site(Site { nat: true, .. })) => Err(
            "sends the packets of one connection over several links, which have different addresses behind NAT; \
             choose per connection, or write nat = false for a site whose addresses are reachable over every link"
                .to_owned(),
        ),
        (Policy::Gateway(algorithm), Network::Site(site)) => {
            let need = algorithm.needs_rate();
            match site.links.iter().find(|link| !need.is_met_by(&link.spec())) {
                Some(link) => Err(format!(
                    "{algorithm} needs {need} of every link, and link.{} is not declared to the gateway; leave out \
                     declared = false",
                    link.name
                )),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}
