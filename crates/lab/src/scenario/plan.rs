//! What a scenario means in the lab's terms.

use anabranch_core::rules::{Class, Origin, Prefix, Rule};
use anabranch_scenario::{Families, Hosts, Line, Link, LinkPlan, Load, Network, Run, Site};
use anabranch_workload::client::ClientConfig;

use super::Setup;
use crate::run;
use crate::topology::{CLIENTS, IspSpec, Lab, LabError, LabSpec, Result, SERVERS, Told};
use anabranch_testbed::emulator::{LinkShape, MTU_MAX_BYTES};

/// The site, if the lab can build it.
pub(super) fn site(network: &Network) -> Result<&Site> {
    match network {
        Network::Site(site) => Ok(site),
        Network::Trunk(_) => Err(simulator_only("trunk", "{ … }", "a gateway has links")),
    }
}

fn simulator_only(key: &'static str, value: impl ToString, why: &str) -> LabError {
    LabError::Spec {
        key,
        value: value.to_string(),
        allowed: format!("{why}; run it in the simulator"),
    }
}

/// # Errors
/// If there are more users than the lab has addresses for.
pub(super) fn lab(run: &Run, site: &Site) -> Result<LabSpec> {
    let isps = (0..).zip(&site.links).map(|(index, link)| isp(index, link));
    let load = &run.scenario.load;
    let (users, servers) = (load.users(), load.servers());
    let clients = users.try_into();
    Ok(LabSpec {
        families: run.scenario.families,
        clients: clients.map_err(|_| too_many(users))?,
        servers: servers.clamp(1, LabSpec::SERVERS_MAX.into()) as u8,
        tcp: run.scenario.tcp.clone(),
        file_bytes: Vec::new(),
        seed: run.seed,
        ..LabSpec::new(isps.collect())
    })
}

fn too_many(users: u32) -> LabError {
    simulator_only("users", users, "the laboratory has 10000 addresses")
}

fn isp(index: u8, link: &LinkPlan) -> IspSpec {
    let beyond = link.beyond.as_ref();
    IspSpec {
        beyond: beyond.map(|hop| shape(&hop.down, &hop.up)),
        shares: beyond.and_then(|hop| hop.shared.clone()),
        routed: !link.nat,
        told: Told {
            rates: link.declared,
            metered: link.metered,
            weight: link.weight,
        },
        ..IspSpec::new(index, &link.name, shape(&link.down, &link.up))
    }
}

fn shape(down: &Line, up: &Line) -> LinkShape {
    LinkShape {
        up: up.clone(),
        down: down.clone(),
        mtu_bytes: MTU_MAX_BYTES,
    }
}

/// Lines of the gateway's configuration beside its devices: the policy, on every port, and the classes. The lab's
/// internet has one host to probe.
pub(super) fn settings(run: &Run, site: &Site) -> Result<String> {
    let Some(algorithm) = run.policy.algorithm() else {
        let why = "the laboratory has gateways that choose a link per connection or session";
        return Err(simulator_only("policies", run.policy, why));
    };
    let scenario = &run.scenario;
    let rules: String = rules(scenario.families, &scenario.load, site)?
        .iter()
        .map(Rule::written)
        .collect();
    // What chooses for each packet has no sessions to say anything of.
    let of_default = site.default.algorithm(algorithm);
    let of_rules = site
        .rules
        .iter()
        .map(|rule| rule.class.algorithm(of_default));
    let mut all = of_rules.chain([of_default]);
    let has_sessions = !all.all(|algorithm| algorithm.is_per_packet());
    let default = Class {
        stick: site.default.stick.or(has_sessions.then_some(false)),
        ..Class::clone(&site.default)
    };
    let families = scenario.families.list().iter();
    let targets = families.map(|&family| format!("\"icmp:{}\"", SERVERS.address(family, 0)));
    let targets: Vec<_> = targets.collect();
    Ok(format!(
        "policy = {}\nprobe = {{ targets = [{}], node = {} }}\n{rules}{}",
        algorithm.written(),
        targets.join(", "),
        targets[0],
        default.written()
    ))
}

/// Those of the site, about the lab's users and servers in place of the scenario's. Ports are the same.
fn rules(families: Families, load: &Load, site: &Site) -> Result<Vec<Rule>> {
    let (users, servers) = (load.users(), load.servers());
    if !site.rules.is_empty() && servers > LabSpec::SERVERS_MAX.into() {
        let why = format!("the laboratory has {} servers", LabSpec::SERVERS_MAX);
        return Err(simulator_only("servers", servers, &why));
    }
    let translated = |network: Prefix, [there, here]: [&Hosts; 2], count| {
        let families = families.list().iter();
        let networks = families
            .flat_map(|&family| here.networks(family, there.numbers_in(network, family, count)));
        networks.collect::<Vec<_>>()
    };
    let of_lab = |rule: &Rule| {
        let mut rule = rule.clone();
        let from = rule.matches.from.iter().flat_map(|origin| match origin {
            Origin::Host => vec![Origin::Host],
            Origin::Prefix(network) => {
                let networks = translated(*network, [&Site::USERS, &CLIENTS], users);
                networks.into_iter().map(Origin::Prefix).collect()
            }
        });
        rule.matches.from = from.collect();
        let to = rule.matches.to.iter();
        let to = to.flat_map(|network| translated(*network, [&Site::SERVERS, &SERVERS], servers));
        rule.matches.to = to.collect();
        rule
    };
    Ok(site.rules.iter().map(of_lab).collect())
}

/// Time begins when this is called.
pub(super) fn orders(run: &Run, lab: &Lab, setup: &Setup) -> run::Run {
    run::Run {
        load: run.load(),
        client: ClientConfig {
            connect_timeout: run.scenario.patience,
            idle_timeout: run.scenario.patience,
            deadline: run.scenario.limit,
            stop: setup.stop.clone(),
            ..lab.client_config()
        },
        faults: run.scenario.faults.clone(),
    }
}

pub(super) fn capacities(site: &Site) -> Vec<Link> {
    let links = site.links.iter().map(|link| Link {
        name: link.name.clone(),
        down_rate_bps: link.down.rate_bps,
        up_rate_bps: link.up.rate_bps,
    });
    links.collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use anabranch_scenario::ScenarioFile;

    use super::*;

    /// What the lab's gateway is told of the only run of a scenario.
    fn told(text: &str) -> Result<String> {
        let file = ScenarioFile::parse(Path::new("office.toml"), text).unwrap();
        let run = file.runs().remove(0);
        let network = run.network();
        let site = site(&network)?;
        settings(&run, site)
    }

    #[test]
    fn without_rules_a_gateway_is_told_the_policy_on_every_port() {
        assert_eq!(
            told("link.a.rate = \"1mbit\"\npolicies = [\"RR\"]").unwrap(),
            "policy = \"RR\"\nprobe = { targets = [\"icmp:198.51.100.10\"], node = \"icmp:198.51.100.10\" }\n[default]\nstick = false\n"
        );
    }

    const OFFICE: &str = r#"
        link.fiber.rate = "10mbit"
        link.cable.rate = "5mbit"
        [workload]
        kind = "mix"
        users = 8
        servers = 4
        class.web = { per_user = "1/s", size = "10kB" }
        [[rule]]
        name = "video"
        from = ["10.0.0.2", "10.0.0.4/30"]
        to = "198.18.0.2/31"
        ports = 80
        links = ["fiber"]
        then = ["cable"]
        none = "drop"
        [[rule]]
        name = "bulk"
        from = "10.0.0.0/8"
        to = ["198.18.0.1", "203.0.113.0/24"]
        policy = { dispatch = "random", syn_retry = true }
        links = ["cable"]
        [default]
        stick = true
        except = [80]
    "#;

    #[test]
    fn rules_are_about_just_the_lab_s_hosts_that_stand_for_the_scenario_s() {
        let told = told(OFFICE).unwrap();
        let (_, classes) = told.split_once("[[rule]]\n").unwrap();
        assert_eq!(
            classes,
            r#"name = "video"
from = ["10.80.1.1", "10.80.1.3", "10.80.1.4/31", "10.80.1.6"]
to = ["198.51.100.11", "198.51.100.12"]
ports = ["80"]
links = ["fiber"]
then = [["cable"]]
none = "drop"
direction = "down"
[[rule]]
name = "bulk"
from = ["10.80.1.1", "10.80.1.2/31", "10.80.1.4/30", "10.80.1.8"]
to = ["198.51.100.10"]
policy = { dispatch = "random", syn_retry = true }
links = ["cable"]
[default]
stick = true
except = [80]
"#
        );
    }

    #[test]
    fn rules_about_more_servers_than_the_lab_has_are_refused() {
        let many = OFFICE.replace("servers = 4", "servers = 201");
        assert_eq!(
            told(&many).unwrap_err().to_string(),
            "servers = 201: the laboratory has 200 servers; run it in the simulator"
        );
    }
}
