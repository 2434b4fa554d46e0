//! What was understood of a configuration, and whether this host is as it says.

mod flows;

use std::path::Path;

use anabranch_console::output::print;
use anabranch_console::table::{self, Columns, optional};
use anabranch_core::rules::{Class, Rule};
use anabranch_core::{Family, Policy};
use anabranch_daemon::config::{Config, Configuration, Link, Rate};
use anabranch_daemon::observe::{
    Desired, LinkView, Netlink, Snapshot, absent_devices, routed_remarks,
};
use anabranch_daemon::plane::LinkPath;
use anabranch_daemon::trunk::{self, View};
use anabranch_daemon::{Slots, member, preflight, services};
use anyhow::bail;

use crate::words;

pub use flows::explain;

pub fn run(path: &Path, offline: bool) -> anyhow::Result<()> {
    let (config, found, host) = if offline {
        (Configuration::load(path)?, Vec::new(), None)
    } else {
        let (config, found) = preflight::check(path)?;
        (config, found, Some(host()?))
    };
    let gateway = config.gateway.as_deref();
    let parts = [
        gateway.map(|config| self::gateway(config, host.as_ref())),
        config.services.as_ref().map(services),
        config
            .trunk
            .as_ref()
            .map(|config| trunk(config, host.as_ref())),
        config.member.as_ref().map(member),
    ];
    let understood = parts.into_iter().flatten().collect::<Vec<_>>().join("\n");
    let (absent, seen) = match (gateway, &host) {
        (Some(config), Some(host)) => (absent_devices(config, host), routed_remarks(config, host)),
        _ => Default::default(),
    };
    let written = gateway.map_or(&[][..], |config| &config.remarks);
    let absent_notes = absent.iter().map(|note| format!("note: {note}\n"));
    let notes: String = written
        .iter()
        .chain(&seen)
        .map(|remark| format!("{remark}\n"))
        .chain(absent_notes)
        .chain(found.iter().map(words::finding))
        .collect();
    let verdict = match host {
        None => "the configuration is right; the host was not looked at",
        Some(_) if absent.is_empty() => "the configuration is right, and this host can run it",
        Some(_) => {
            "the configuration is right; this host runs what is there, and the rest joins when it comes"
        }
    };
    print(format!("{understood}\n{notes}{verdict}\n"))?;
    match words::troubles(&found) {
        0 => Ok(()),
        count => bail!("neighbours that make trouble: {count}, as shown"),
    }
}

fn host() -> anyhow::Result<Snapshot> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async { Netlink::connect()?.snapshot().await })
}

fn gateway(config: &Config, host: Option<&Snapshot>) -> String {
    format!(
        "LAN     {}\npolicy  {}\n\n{}{}",
        config.lan.join(", "),
        policy(config, &config.default),
        links(config, host),
        rules(config)
    )
}

/// Nothing where there is the default class alone.
fn rules(config: &Config) -> String {
    if config.rules.is_empty() {
        return String::new();
    }
    let mut columns = Columns::new(&["rule", "policy", "links", "matches"]);
    for Rule { matches, class } in &config.rules {
        columns.row([
            class.name.clone(),
            policy(config, class),
            class.path(),
            matches.to_string(),
        ]);
    }
    columns.row([
        config.default.name.clone(),
        policy(config, &config.default),
        config.default.path(),
        "the rest".to_owned(),
    ]);
    format!("\n{columns}")
}

fn policy(config: &Config, class: &Class) -> String {
    let policy = class.policy.as_ref().unwrap_or(&config.policy);
    words::policy(
        &policy.name,
        config.algorithm(&class.name).granularity_word(),
    )
}

fn services(config: &services::Config) -> String {
    let mut columns = Columns::new(&["service", "listens at", "policy", "servers"]);
    for service in &config.services {
        columns.row([
            service.name.clone(),
            table::list(&service.listen),
            Policy::Service(service.policy).to_string(),
            table::list(
                &service
                    .written
                    .iter()
                    .map(|one| &one.place)
                    .collect::<Vec<_>>(),
            ),
        ]);
    }
    format!("services at {}\n\n{columns}", config.devices.join(", "))
}

fn member(config: &member::Config) -> String {
    let from = match &config.from[..] {
        [] => "any balancer".to_owned(),
        from => table::list(from),
    };
    let load = match config.load_port {
        None => "told to nobody".to_owned(),
        Some(port) => format!("told at UDP port {port}"),
    };
    format!(
        "member of  {}\nat         {}\nfrom       {from}\nload       {load}\n",
        table::list(&config.addresses),
        config.devices.join(", ")
    )
}

fn trunk(config: &trunk::Config, host: Option<&Snapshot>) -> String {
    let view = host.map(|host| View::derive(config, host));
    let mut columns = Columns::new(&["sublink", "device", "via", ">rate", ">buffer", "remark"]);
    for (i, sublink) in config.sublinks.iter().enumerate() {
        let seen = view.as_ref().and_then(|view| view.sublinks.get(i));
        let path = seen.and_then(|seen| seen.path);
        let written = || sublink.via.values().flatten().copied().collect();
        let via = path.map_or_else(written, |path| path.next_hop.addresses());
        let missing = seen.and_then(|seen| seen.missing.as_ref());
        columns.row([
            sublink.name.clone(),
            sublink.device.clone(),
            table::list(&via),
            rate(sublink.rate),
            optional(sublink.buffer_bytes(None)),
            missing.map_or_else(String::new, |missing| table::doubtful(missing).to_string()),
        ]);
    }
    format!(
        "trunk   {}\nscheme  {}\n\n{columns}",
        config.device,
        config.scheme.row().name
    )
}

fn links(config: &Config, host: Option<&Snapshot>) -> Columns {
    let slots = Slots::default().assign(config.links.iter().map(|link| link.name.as_str()));
    let views = host
        .map(|host| Desired::derive(config, &slots, host).links)
        .unwrap_or_default();
    let has_routed = config.links.iter().any(|link| !link.nat);
    let mut titles = vec![
        "link",
        "device",
        "address",
        "gateway",
        ">MTU",
        ">down",
        ">up",
        ">weight",
        "metered",
        ">probes a month",
    ];
    titles.extend(has_routed.then_some("NAT"));
    titles.push("remark");
    let mut columns = Columns::new(&titles);
    for link in &config.links {
        let view = slots.id(&link.name).and_then(|id| views.get(&id));
        for family in families(link, view) {
            let path = view.and_then(|view| view.path(family));
            let found = path.map(|path| path.external);
            let probes = link.probe_bytes_a_month(family, &config.availability);
            let mut cells = vec![
                link.name.clone(),
                link.device.clone(),
                optional(found.or(link.address[family])),
                optional(path.map_or(link.gateway[family], |path| path.gateway)),
                optional(path.map(|path| path.mtu)),
                rate(link.down),
                rate(link.up),
                optional(link.weight),
                if link.metered { "yes" } else { "no" }.to_owned(),
                format!("{:.0} MB", probes as f64 / 1e6),
            ];
            cells.extend(has_routed.then(|| words::nat(link.nat)));
            cells.push(view.map_or_else(String::new, |view| remark(view, family)));
            columns.cells(cells);
        }
    }
    columns
}

/// Those that a link has or is to have, a line each.
fn families(link: &Link, view: Option<&LinkView>) -> Vec<Family> {
    let is_there = |family: &Family| {
        link.names(*family) || view.is_some_and(|view| view.path(*family).is_some())
    };
    let all: Vec<Family> = Family::ALL.into_iter().filter(is_there).collect();
    if all.is_empty() {
        vec![Family::V4]
    } else {
        all
    }
}

fn rate(rate: Option<Rate>) -> String {
    optional(rate.map(|rate| table::rate(rate.bps() as f64)))
}

/// Why the link could not be used as the host stands.
fn remark(view: &LinkView, family: Family) -> String {
    match &view.paths[family].path {
        Err(missing) => table::doubtful(missing).to_string(),
        Ok(_) if !view.running => {
            table::doubtful("the device is down or has no carrier").to_string()
        }
        Ok(LinkPath {
            prefix: Some((network, length)),
            ..
        }) => format!("hosts are in {network}/{length}"),
        Ok(path) if path.gateway.is_none() => "point to point".to_owned(),
        Ok(_) => String::new(),
    }
}
