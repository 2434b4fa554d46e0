//! `[[rule]]` and `[default]`: the gateway's own, about users and servers of the scenario.

use std::ops::RangeInclusive;

use anabranch_config::{BadInput, Source};
use anabranch_core::rules::file::{self, DefaultTable, RuleTable};
use anabranch_core::rules::{Matches, Origin, Prefix};
use anabranch_core::{LinkSpec, Typed};

use crate::{Families, Hosts, Load, Network, Policy, Site};

const TCP: u8 = 6;
/// Ephemeral ports, as Linux has them by default.
const SOURCE_PORTS: RangeInclusive<u16> = 32_768..=60_999;
/// By which users come.
const LAN: &str = "lan";

/// Who there is for rules to match.
#[derive(Clone, Copy)]
pub(super) struct Ground<'a> {
    pub families: Families,
    pub load: &'a Load,
}

impl Ground<'_> {
    fn has_user(&self, network: Prefix) -> bool {
        self.has(&Site::USERS, network, self.load.users())
    }

    fn has_server(&self, network: Prefix) -> bool {
        self.has(&Site::SERVERS, network, self.load.servers())
    }

    fn has(&self, hosts: &Hosts, network: Prefix, count: u32) -> bool {
        let mut numbers = self.families.list().iter();
        numbers.any(|&family| !hosts.numbers_in(network, family, count).is_empty())
    }

    fn addresses(&self, hosts: &Hosts, count: u32) -> String {
        let families = self.families.list().iter();
        let words = families.map(|&family| hosts.in_words(family, count));
        words.collect::<Vec<_>>().join(" and ")
    }
}

/// The network with what is said of classes. What could match nothing in any world is refused.
pub(super) fn with_classes(
    source: &Source<'_>,
    rules: Vec<RuleTable>,
    default: Option<DefaultTable>,
    network: Network,
    policies: &[Typed<Policy>],
    ground: Ground<'_>,
) -> Result<Network, BadInput> {
    let key = match (rules.is_empty(), &default) {
        (true, None) => return Ok(network),
        (true, Some(_)) => "default",
        (false, _) => "rule",
    };
    let mut site = match network {
        Network::Site(site) => match policies
            .iter()
            .find(|typed| !typed.policy.facts().asks_rules())
        {
            Some(typed) => {
                let problem =
                    format!("the policy {typed} asks no rules; leave it or the classes out");
                return Err(source.bad(&[key], problem));
            }
            None => site,
        },
        Network::Trunk(_) => return Err(source.bad(&[key], "a trunk has no classes; leave it out")),
    };
    for (index, table) in rules.iter().enumerate() {
        refuse_places_and_hours(source, &index.to_string(), table)?;
    }
    let lan = [LAN.to_owned()];
    let links: Vec<LinkSpec> = site.links.iter().map(|link| link.spec()).collect();
    let may_name = file::Site {
        links: &links,
        lan: &lan,
        node: true,
    };
    site.rules = file::rules(source, rules, may_name)?;
    *site.default = file::default_class(source, default.unwrap_or_default(), may_name)?;
    for (index, rule) in site.rules.iter().enumerate() {
        refuse_what_matches_nothing(source, &index.to_string(), &rule.matches, ground)?;
    }
    file::review(source, &site.rules, &lan)?;
    Ok(Network::Site(site))
}

fn refuse_places_and_hours(
    source: &Source<'_>,
    index: &str,
    table: &RuleTable,
) -> Result<(), BadInput> {
    let bad = |key: &str, problem: &str| Err(source.bad(&["rule", index, key], problem));
    if table.device.is_some() {
        return bad("device", "users come by one device; leave it out");
    }
    if table.when.is_some() {
        return bad("when", "a run has no time of day; leave it out");
    }
    Ok(())
}

fn refuse_what_matches_nothing(
    source: &Source<'_>,
    index: &str,
    matches: &Matches,
    ground: Ground<'_>,
) -> Result<(), BadInput> {
    let bad = |key: &str, problem: String| Err(source.bad(&["rule", index, key], problem));
    let has_user = |origin: &Origin| match origin {
        Origin::Host => false,
        Origin::Prefix(network) => ground.has_user(*network),
    };
    if matches.from.contains(&Origin::Host) {
        return bad("from", "the gateway opens no connections".to_owned());
    }
    if !is_met(&matches.from, has_user) {
        let addresses = ground.addresses(&Site::USERS, ground.load.users());
        return bad("from", format!("none of the users, who have {addresses}"));
    }
    if !is_met(&matches.to, |network| ground.has_server(*network)) {
        let addresses = ground.addresses(&Site::SERVERS, ground.load.servers());
        return bad("to", format!("none of the servers, which have {addresses}"));
    }
    if !is_met(&matches.protocols, |protocol| *protocol == TCP) {
        return bad("protocol", "all connections are TCP".to_owned());
    }
    let port = Site::SERVER_PORT;
    if !is_met(&matches.ports, |ports| ports.contains(&port)) {
        return bad("ports", format!("servers listen on port {port}"));
    }
    let is_ephemeral = |ports: &RangeInclusive<u16>| {
        ports.start() <= SOURCE_PORTS.end() && SOURCE_PORTS.start() <= ports.end()
    };
    if !is_met(&matches.source_ports, is_ephemeral) {
        let (first, last) = (SOURCE_PORTS.start(), SOURCE_PORTS.end());
        return bad(
            "source_ports",
            format!("users have ports {first} to {last}"),
        );
    }
    if !is_met(&matches.dscp, |code| *code == 0) {
        return bad("dscp", "all packets have the code point 0".to_owned());
    }
    Ok(())
}

/// Whether a key is left out, or any of its values fits.
fn is_met<T>(values: &[T], fits: impl Fn(&T) -> bool) -> bool {
    values.is_empty() || values.iter().any(fits)
}
