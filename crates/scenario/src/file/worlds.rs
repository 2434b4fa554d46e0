//! What a world can do: mostly the laboratory less than the simulator.

use std::collections::BTreeSet;

use anabranch_config::{BadInput, Source};
use anabranch_core::rules::{Class, WhenNone};

use super::{At, ScenarioFile};
use crate::{
    Change, Fault, Line, LinkPlan, Load, Loss, Network, Peer, Policy, Queue, Scenario, Site, Trunk,
    World,
};

/// What the laboratory's emulator promises to carry, all lines and directions together.
const LAB_RATE_MAX_BPS: u64 = 500_000_000;
const DROP_TAIL: &str = "the laboratory has drop-tail queues; leave queue out";

impl ScenarioFile {
    /// Whether `world` can run every point of the file.
    pub fn fits(&self, world: World) -> Result<(), BadInput> {
        match world {
            World::Sim => self.points.iter().try_for_each(|at| self.fits_sim(at)),
            World::Lab => self.points.iter().try_for_each(|at| self.fits_lab(at)),
        }
    }

    /// Whether neither a class nor all is left to a kernel.
    fn fits_sim(&self, at: &At) -> Result<(), BadInput> {
        let Network::Site(site) = &at.scenario.network else {
            return Ok(());
        };
        let source = Source::parse(&self.path, &at.text)?.numbered();
        refuse_peer(
            &source,
            &at.scenario,
            "is real; run it in the laboratory",
            |peer| !peer.is_modelled(),
        )?;
        let problem = "the simulator's gateway has no kernel beside it; run it in the laboratory";
        refuse_class(&source, site, "none", problem, |class| {
            class.when_none == WhenNone::Kernel
        })
    }

    fn fits_lab(&self, at: &At) -> Result<(), BadInput> {
        let source = Source::parse(&self.path, &at.text)?.numbered();
        if let Load::Groups(_) = at.scenario.load {
            let problem =
                "the laboratory's users are all alike; leave group out, or run it in the simulator";
            return Err(source.bad(&["group"], problem));
        }
        match &at.scenario.network {
            Network::Site(site) => site_fits_lab(&source, &at.scenario, site)?,
            Network::Trunk(trunk) => trunk_fits_lab(&source, trunk)?,
        }
        faults_fit_lab(&source, &at.scenario)
    }
}

/// Whether no line is ever faster than the emulator.
fn faults_fit_lab(source: &Source<'_>, scenario: &Scenario) -> Result<(), BadInput> {
    let rate = |fault: &Fault| match fault.change {
        Change::Rate(rate_bps) => rate_bps,
        _ => 0,
    };
    match scenario.faults.iter().map(rate).max() {
        Some(rate_bps) if rate_bps > LAB_RATE_MAX_BPS => {
            Err(source.bad(&["fault"], too_fast(rate_bps, "a line after a fault")))
        }
        _ => Ok(()),
    }
}

fn too_fast(rate_bps: u64, what: &str) -> String {
    format!(
        "{} Mbit/s over {what}; the laboratory carries {} at most",
        rate_bps / 1_000_000,
        LAB_RATE_MAX_BPS / 1_000_000
    )
}

/// A class that a world cannot have for what it says of `key`.
fn refuse_class(
    source: &Source<'_>,
    site: &Site,
    key: &str,
    problem: &str,
    is_refused: impl Fn(&Class) -> bool,
) -> Result<(), BadInput> {
    if let Some(index) = site.rules.iter().position(|rule| is_refused(&rule.class)) {
        return Err(source.bad(&["rule", &index.to_string(), key], problem));
    }
    match is_refused(&site.default) {
        true => Err(source.bad(&["default", key], problem)),
        false => Ok(()),
    }
}

/// A peer that a world cannot have.
fn refuse_peer(
    source: &Source<'_>,
    scenario: &Scenario,
    problem: &str,
    is_refused: impl Fn(Peer) -> bool,
) -> Result<(), BadInput> {
    let is_refused = |policy| matches!(policy, Policy::Peer(peer) if is_refused(peer));
    let mut policies = scenario.policies.iter();
    match policies.find(|typed| is_refused(typed.policy)) {
        Some(typed) => Err(source.bad(&["policies"], format!("{typed} {problem}"))),
        None => Ok(()),
    }
}

fn site_fits_lab(source: &Source<'_>, scenario: &Scenario, site: &Site) -> Result<(), BadInput> {
    refuse_peer(
        source,
        scenario,
        "is a model; run it in the simulator",
        |peer| !peer.is_real(),
    )?;
    if scenario
        .policies
        .iter()
        .any(|typed| typed.policy == Policy::PACKET)
    {
        let problem =
            "the laboratory's gateway chooses per connection or session; leave packet out";
        return Err(source.bad(&["policies"], problem));
    }
    if !site.probes.is_empty() {
        let problem =
            "the laboratory's gateway asks whom its configuration names; run it in the simulator";
        return Err(source.bad(&["probes"], problem));
    }
    if !site.dead_servers.is_empty() {
        let problem = "the laboratory's servers are all alive; run it in the simulator";
        return Err(source.bad(&["dead_servers"], problem));
    }
    let problem = "to its gateway the laboratory's users are one host; run it in the simulator";
    refuse_class(source, site, "flows_per_host", problem, |class| {
        class.flows_per_host.is_some()
    })?;
    let rates = lines_of(site).into_iter().map(|line| line.rate_bps);
    let rate_bps: u64 = rates.sum();
    if rate_bps > LAB_RATE_MAX_BPS {
        let problem = too_fast(rate_bps, "all lines and directions");
        return Err(source.bad(&["link"], problem));
    }
    match site
        .links
        .iter()
        .find(|link| lines(link).any(|line| line.queue != Queue::DropTail))
    {
        Some(link) => Err(source.bad(&["link", &link.name], DROP_TAIL)),
        None => Ok(()),
    }
}

fn trunk_fits_lab(source: &Source<'_>, trunk: &Trunk) -> Result<(), BadInput> {
    let sublinks = || trunk.sublinks.iter().chain([&trunk.back]);
    if sublinks().any(|line| line.queue != Queue::DropTail) {
        return Err(source.bad(&["trunk"], DROP_TAIL));
    }
    for (key, line) in [("rate", &trunk.single), ("back", &trunk.back)] {
        if line.rate_bps > LAB_RATE_MAX_BPS {
            return Err(source.bad(&["trunk", key], too_fast(line.rate_bps, "one direction")));
        }
    }
    let access = [
        ("access", &trunk.access),
        ("server_access", &trunk.server_access),
    ];
    match access
        .into_iter()
        .find(|(_, line)| line.loss != Loss::None || line.queue != Queue::DropTail)
    {
        Some((key, _)) => {
            let problem =
                "the laboratory's access lines lose by overflow only; leave loss and queue out";
            Err(source.bad(&["trunk", key], problem))
        }
        None => Ok(()),
    }
}

/// Those that links share once.
fn lines_of(site: &Site) -> Vec<&Line> {
    let mut shared = BTreeSet::new();
    let mut all = Vec::new();
    for link in &site.links {
        let name = link.beyond.as_ref().and_then(|hop| hop.shared.as_ref());
        let is_first = name.is_none_or(|name| shared.insert(name));
        all.extend(lines(link).take(if is_first { 4 } else { 2 }));
    }
    all
}

fn lines(link: &LinkPlan) -> impl Iterator<Item = &Line> {
    let beyond = link
        .beyond
        .iter()
        .flat_map(|beyond| [&beyond.down, &beyond.up]);
    [&link.down, &link.up].into_iter().chain(beyond)
}
