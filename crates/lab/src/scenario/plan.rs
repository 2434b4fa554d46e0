//! What a scenario means in the lab's terms.

use anabranch_scenario::{Line, Link, LinkPlan, Network, Policy, Run, Site};
use anabranch_workload::client::ClientConfig;

use super::Setup;
use crate::run;
use crate::topology::{IspSpec, Lab, LabError, LabSpec, Result, SERVER, Told};
use anabranch_testbed::emulator::{LinkShape, MTU_MAX_BYTES};

/// The site, if the lab can build it.
pub(super) fn site(run: &Run) -> Result<&Site> {
    match &run.scenario.network {
        Network::Site(site) if site.nat => Ok(site),
        Network::Site(_) => Err(simulator_only(
            "nat",
            "false",
            "links of the laboratory have addresses of their own",
        )),
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

/// Lines of the gateway's configuration beside its devices: the policy, on every port. The lab's internet
/// has one host to probe.
pub(super) fn settings(run: &Run) -> Result<String> {
    let Policy::Gateway(algorithm) = run.policy else {
        let why = "the laboratory has gateways that choose a link per connection or session";
        return Err(simulator_only("policies", run.policy, why));
    };
    Ok(format!(
        "policy = {}\nsessions.stick = false\nprobe.targets = [\"icmp:{SERVER}\"]\n",
        algorithm.written()
    ))
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
