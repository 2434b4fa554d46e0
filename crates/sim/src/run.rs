//! A run of a scenario in virtual time.
//!
//! [`run`] builds the network that the scenario draws, lets its users loose on it under one policy, and hands back the
//! evidence. The hosts of a site stand at its gateway and its servers at the far ends of the links: all that is slow,
//! short of room or lossy is in the lines of the scenario.

mod carriers;
mod homes;
mod scene;
mod trunking;

use std::collections::BTreeSet;
use std::time::Duration;

use anabranch_core::catalogue::Policy as Product;
use anabranch_core::multilink::Counters;
use anabranch_core::rules::{self, DoesNotFit, Moment, Rule, WhenNone};
use anabranch_core::{
    Algorithm, Balancer, BuildError, ClassId, ClassSpec, Classes, Config, Event, LinkId, LinkSpec,
    PathStatus, Time, multilink,
};
use anabranch_policy::paths::Prefix;
use anabranch_scenario::{
    self as scenario, Demand, LinkSeries, Network, Policy, Record, Run, Site, World as Kind,
};

use crate::gateway::{FAMILY, Gateway, Lines, PeerSite, Runs};
use crate::load::{Load, Party};
use crate::tcp::TcpConfig;
use crate::trunk::TooManyClients;
use crate::world::World;

use carriers::{Behind, Stripes};
use homes::Homes;
use scene::{Scene, Shared, Way, Wires};
use trunking::Trunking;

/// Why a scenario cannot be run in virtual time.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum SimError {
    #[error("policy {policy} does not choose among {network}; {allowed}")]
    Policy {
        policy: Policy,
        network: &'static str,
        allowed: &'static str,
    },
    #[error("a fault at {at_s} s names link \"{link}\"; the links are {links}")]
    FaultLink {
        at_s: f64,
        link: String,
        links: String,
    },
    #[error(
        "a fault at {at_s} s is beyond the last mile of link \"{link}\", which has no second hop"
    )]
    FaultBeyond { at_s: f64, link: String },
    #[error("the gateway refuses the scenario: {0}")]
    Gateway(#[from] BuildError),
    #[error("the links cannot be shared: {0}")]
    Stripes(#[from] multilink::TrunkError),
    #[error(transparent)]
    Rules(#[from] DoesNotFit),
    #[error(
        "a class has none = \"kernel\", and there is no kernel beside this gateway; allowed: any, drop"
    )]
    Kernel,
    #[error(transparent)]
    Clients(#[from] TooManyClients),
}

/// Runs a scenario under one policy with one seed. `progress` hears how far virtual time has come. Equal runs give equal
/// records.
pub fn run(run: &Run, progress: &mut dyn FnMut(Time)) -> Result<Record, SimError> {
    match &run.network() {
        Network::Site(site) => run_site(run, site, progress),
        Network::Trunk(trunk) => run_trunk(run, trunk, progress),
    }
}

fn run_site(run: &Run, site: &Site, progress: &mut dyn FnMut(Time)) -> Result<Record, SimError> {
    match run.policy {
        Policy::Product(Product::Gateway(algorithm)) => {
            Ok(play(run, gateway_world(run, site, algorithm)?, progress))
        }
        Policy::Product(Product::Packet) if site.is_routed() => {
            let build = |wires: &[Wires], homes| Stripes::new(site, wires, homes);
            Ok(play(run, site_world(run, site, build)?, progress))
        }
        Policy::Product(Product::Packet) => Err(SimError::Policy {
            policy: run.policy,
            network: "links behind NAT",
            allowed: "packets of one connection would come from several addresses: set nat = false",
        }),
        Policy::Peer(peer) => {
            let prefixes = prefixes(&run.scenario);
            let build = |wires: &[Wires], homes| {
                let lines: Vec<Lines> = wires.iter().map(Wires::lines).collect();
                let site = PeerSite::new(peer, &lines, prefixes, run.seed);
                Ok(Behind::new(site, homes))
            };
            Ok(play(run, site_world(run, site, build)?, progress))
        }
        Policy::Product(_) => Err(SimError::Policy {
            policy: run.policy,
            network: "the links of a site",
            allowed: "name one that chooses among links",
        }),
    }
}

/// Of all servers, each once.
fn prefixes(scenario: &scenario::Scenario) -> Vec<Prefix> {
    let families = scenario.families.list().iter();
    let of_family = |&family| {
        let servers = 0..scenario.load.servers();
        servers.map(move |server| Prefix::of(Site::SERVERS.address(family, server)))
    };
    let prefixes: BTreeSet<_> = families.flat_map(of_family).collect();
    prefixes.into_iter().collect()
}

/// What the balancer is to know of each class; that of a rule has its number, from 1.
fn classes(site: &Site, policy: Algorithm) -> Result<Classes, SimError> {
    let link = |name: &str| {
        let place = site.links.iter().position(|link| link.name == name);
        place.map(|place| LinkId(place as u16))
    };
    let default = ClassSpec::of(&site.default, &policy.into(), link);
    let spec = |rule: &Rule| ClassSpec::of(&rule.class, &default, link);
    let specs = [default.clone()]
        .into_iter()
        .chain(site.rules.iter().map(spec));
    let classes: Classes = (0..).map(ClassId).zip(specs).collect();
    match classes
        .values()
        .any(|class| class.when_none == WhenNone::Kernel)
    {
        true => Err(SimError::Kernel),
        false => Ok(classes),
    }
}

/// Runs a scenario of a site whose gateway is our own. `seen` hears what the gateway shows of each link, in the order of the scenario,
/// after every `step`. What it has told, in the order of time.
///
/// # Errors
/// As of [`run`]; or if another gateway is to be there.
pub fn watch(
    run: &Run,
    step: Duration,
    seen: &mut dyn FnMut(Time, &[PathStatus]),
) -> Result<Vec<(Time, Event)>, SimError> {
    let (Network::Site(site), Some(algorithm)) = (&run.network(), run.policy.algorithm()) else {
        return Err(SimError::Policy {
            policy: run.policy,
            network: "a site whose gateway is watched",
            allowed: "name one of a gateway's",
        });
    };
    let mut world = gateway_world(run, site, algorithm)?;
    drive(&mut world, step, |world| {
        let paths = world.site.way.gateway().paths();
        let shown: Vec<PathStatus> = paths.map(|(_, path)| path).collect();
        seen(world.now(), &shown);
    });
    Ok(world.site.way.gateway().events().to_vec())
}

fn gateway_world(
    run: &Run,
    site: &Site,
    algorithm: Algorithm,
) -> Result<World<Scene<Behind<Gateway>>>, SimError> {
    let spec = |link: &scenario::LinkPlan| LinkSpec {
        on_return: site.default.on_return.unwrap_or_default(),
        ..link.spec()
    };
    let specs = site.links.iter().map(spec).collect();
    let classes = classes(site, algorithm)?;
    let config = Config {
        node: Some(FAMILY),
        // As the daemon has it, if the scenario says whom it asks.
        measures: !site.probes.is_empty(),
        ..Config::default()
    };
    let balancer = Balancer::new(Time::ZERO, classes, specs, config)?;
    let rules = rules::compile(&site.rules, Moment::new(0, 0), |_| None)?;
    let build = |wires: &[Wires], homes| {
        let lines: Vec<Lines> = wires.iter().map(Wires::lines).collect();
        let mut gateway = Gateway::new(balancer, &lines, run.seed);
        gateway.nat_mut().set_rules(rules);
        gateway.set_overhead(nanos(run.scenario.tcp.overhead), run.seed);
        gateway.set_targets(site.probes.iter().map(|probe| probe.spec()).collect());
        Ok(Behind::new(gateway, homes))
    };
    site_world(run, site, build)
}

fn site_world<W: Way>(
    run: &Run,
    site: &Site,
    build: impl FnOnce(&[Wires], Homes) -> Result<W, SimError>,
) -> Result<World<Scene<W>>, SimError> {
    let mut network = World::new(run.seed);
    let mut shared = Shared::new();
    let wires: Vec<Wires> = site
        .links
        .iter()
        .map(|link| Wires::lay(&mut network, link, &mut shared))
        .collect();
    let series = |link: &scenario::LinkPlan| {
        LinkSeries::new(link.name.clone(), link.down.rate_bps, link.up.rate_bps)
    };
    let series = site.links.iter().map(series).collect();
    let homes = Homes::lay(&mut network, &run.scenario.load);
    let way = build(&wires, homes)?;
    let mut world = stage(run, network, wires, series, way)?;
    world.site.load.kill_servers(&site.dead_servers);
    Ok(world)
}

fn run_trunk(
    run: &Run,
    plan: &scenario::Trunk,
    progress: &mut dyn FnMut(Time),
) -> Result<Record, SimError> {
    let world = trunk_world(run, plan)?;
    Ok(play(run, world, progress))
}

/// What every bin of a trunk carried in each `window` of a run, under a policy that keeps bins.
///
/// # Errors
/// As of [`run`]; or if no bins are kept.
pub fn bin_volumes(run: &Run, window: Duration) -> Result<Vec<Box<Counters>>, SimError> {
    let no_bins = || SimError::Policy {
        policy: run.policy,
        network: "the bins of a trunk",
        allowed: "DH and DHFV keep bins",
    };
    let Network::Trunk(plan) = &run.scenario.network else {
        return Err(no_bins());
    };
    let mut world = trunk_world(run, plan)?;
    let mut before = *world.site.way.carried().ok_or_else(no_bins)?;
    let mut volumes = Vec::new();
    drive(&mut world, window, |world| {
        let Some(carried) = world.site.way.carried() else {
            return;
        };
        let mut volume = Box::new(*carried);
        for (bytes, before) in volume.iter_mut().zip(&before) {
            *bytes -= before;
        }
        before = *carried;
        volumes.push(volume);
    });
    Ok(volumes)
}

fn trunk_world(run: &Run, plan: &scenario::Trunk) -> Result<World<Scene<Trunking>>, SimError> {
    let Some(spread) = run.policy.spread() else {
        return Err(SimError::Policy {
            policy: run.policy,
            network: "the sublinks of a trunk",
            allowed: "name one of a trunk's",
        });
    };
    let mut network = World::new(run.seed);
    let load = &run.scenario.load;
    let trunk = Trunking::lay(&mut network, plan, load, spread, run.seed)?;
    let sublinks = trunk.sublinks().iter();
    let wires = sublinks
        .clone()
        .map(|sublink| Wires::one_way(sublink.link))
        .collect();
    let series = sublinks
        .enumerate()
        .map(|(i, sublink)| LinkSeries::new(i.to_string(), sublink.rate_bps, 0))
        .collect();
    stage(run, network, wires, series, trunk)
}

/// The world before anything happens.
fn stage<W: Way>(
    run: &Run,
    network: World,
    wires: Vec<Wires>,
    series: Vec<LinkSeries>,
    way: W,
) -> Result<World<Scene<W>>, SimError> {
    let scenario = &run.scenario;
    let names: Vec<String> = series.iter().map(|series| series.name.clone()).collect();
    let faults = scene::place(&scenario.faults, &names, &wires)?;
    let load = Load::new(
        parties(run),
        scenario.limit,
        scenario.patience,
        names,
        scenario.families,
        run.seed,
        Scene::<W>::LOAD,
    );
    let scene = Scene::new(way, load, wires, faults, series, scenario.sample);
    Ok(network.become_site(scene))
}

fn play<W: Way>(run: &Run, mut world: World<Scene<W>>, progress: &mut dyn FnMut(Time)) -> Record {
    drive(&mut world, run.scenario.sample, |world| {
        progress(world.now());
    });
    evidence(world, run)
}

/// The users of the run: groups, one after the other, or all alike.
fn parties(run: &Run) -> Vec<Party> {
    let alike = |demand| {
        vec![Party {
            group: None,
            first_user: 0,
            demand,
            tcp: tcp(&run.scenario.tcp),
            ports: run.scenario.tcp.ports,
        }]
    };
    let groups = match run.load() {
        scenario::Load::Pages(workload) => return alike(Demand::Pages(workload)),
        scenario::Load::Arrivals(plan) => return alike(Demand::Arrivals(plan)),
        scenario::Load::Groups(groups) => groups,
    };
    let mut users = 0;
    let party = |group: scenario::Group| {
        let first_user = users;
        users += group.users;
        Party {
            group: Some(group.name),
            first_user,
            demand: group.demand,
            tcp: tcp(&group.tcp),
            ports: group.tcp.ports,
        }
    };
    groups.into_iter().map(party).collect()
}

/// Until the load is over, or its time is; `seen` sees the world after every step.
fn drive<W: Way>(
    world: &mut World<Scene<W>>,
    step: Duration,
    mut seen: impl FnMut(&World<Scene<W>>),
) {
    let (scene, net) = world.parts();
    scene.begin(net);
    let end = world.site.load.end();
    while world.now() < end && !world.site.load.is_over() {
        world.run_until((world.now() + step).min(end));
        seen(world);
    }
}

fn evidence<W: Way>(world: World<Scene<W>>, run: &Run) -> Record {
    let (mut scene, mut net) = world.into_parts();
    let problems = scene.problems(&mut net);
    let mut events = scene.events();
    events.sort_by(|a, b| a.t_s.total_cmp(&b.t_s));
    let series = scene.series(&mut net);
    let link = |series: &LinkSeries| scenario::Link {
        name: series.name.clone(),
        down_rate_bps: series.down_rate_bps,
        up_rate_bps: series.up_rate_bps,
    };
    Record {
        world: Kind::Sim,
        links: series.iter().map(link).collect(),
        series,
        events,
        counts: scene.counts(&net),
        conditions: conditions(&net, run),
        problems,
        transfers: scene.load.finish(&mut net),
    }
}

fn conditions(net: &crate::net::Net, run: &Run) -> Vec<(String, String)> {
    let trajectory = net.trajectory();
    [
        ("simulator", env!("CARGO_PKG_VERSION").to_owned()),
        ("policy", run.policy_name.clone()),
        ("seed", run.seed.to_string()),
        (
            "simulated_s",
            net.now().since(Time::ZERO).as_secs_f64().to_string(),
        ),
        ("events", trajectory.events.to_string()),
        ("peak_packets", net.packet_places().to_string()),
        ("peak_sides", net.side_places().to_string()),
        ("trajectory", format!("{:016x}", trajectory.hash)),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .to_vec()
}

fn tcp(plan: &scenario::Tcp) -> TcpConfig {
    TcpConfig {
        recovery: plan.recovery,
        control: plan.control,
        hystart: plan.hystart,
        pacing: plan.pacing,
        growth: plan.growth,
        mss_bytes: plan.mss_bytes,
        header_bytes: plan.header_bytes,
        initial_window: plan.initial_window,
        lost_syns: plan.lost_syns,
        dsack: plan.dsack,
        ecn: plan.ecn,
        receive_window: plan.receive_window,
        min_rto_ns: nanos(plan.min_rto),
        delayed_ack_ns: plan.delayed_ack.map(nanos),
        overhead_ns: nanos(plan.overhead),
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
