//! Links, rates, flows, and what became of packets.

use anabranch_api::ReasonCount;
use anabranch_api::{
    ClassLink, ClassStatus, Finding, GatewayStatus, LinkState, LinkStatus, MemberStatus,
    PathStatus, Rates, RecentProbes, RoleState, RoleStatus, ServicesStatus, Severity, Status,
    TargetStatus, TrunkStatus,
};
use anabranch_console::output::{print, print_json};
use anabranch_console::table::{self, Columns, optional};
use anabranch_core::ServerAt;
use anyhow::bail;
use serde::Serialize;

use super::service;
use crate::control::Daemon;
use crate::words;

/// What is wrong is not asked for: the whole status is.
pub fn run(instance: &str, json: bool) -> anyhow::Result<()> {
    let status = Daemon::of(instance)?.status()?;
    if json {
        print_json(&status)
    } else {
        print(whole(&status))
    }
}

/// A line for each thing that is wrong, and a failure if there is any. `quiet`: nothing else.
pub fn check(instance: &str, json: bool, quiet: bool) -> anyhow::Result<()> {
    let status = Daemon::of(instance)?.status()?;
    let (work, checks) = (work(&status), checks(&status));
    let failing = checks.iter().filter(|check| check.fails).count();
    if json {
        print_json(&checks)?;
    } else {
        let told = checks.iter().filter(|check| check.fails || !quiet);
        print(told.map(|check| format!("{check}\n")).collect::<String>())?;
    }
    match failing {
        0 if quiet || json => Ok(()),
        0 => print(format!("ok: {work}\n")),
        1 => bail!("one problem: {work}"),
        count => bail!("{count} problems: {work}"),
    }
}

/// One thing that is, or may be, wrong.
#[derive(Serialize)]
struct Check {
    fails: bool,
    kind: String,
    /// What it is about; none: all.
    link: Option<String>,
    words: String,
}

impl std::fmt::Display for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let note = if self.fails { "" } else { "note: " };
        write!(f, "{note}{}", self.words)
    }
}

fn checks(status: &Status) -> Vec<Check> {
    let gateway = status.gateway.iter();
    let problems = gateway.clone().flat_map(|gateway| &gateway.problems);
    let problems = problems.map(|problem| Check {
        fails: problem.fails,
        kind: problem.kind.clone(),
        link: problem.link.clone(),
        words: problem.to_string(),
    });
    let trouble = |words: String| Check {
        fails: true,
        kind: "trouble".to_owned(),
        link: None,
        words,
    };
    let failed = failed(&status.roles).map(trouble);
    let of_trunk = status.trunk.iter().flat_map(|trunk| &trunk.troubles);
    let of_services = status.services.iter();
    let of_services = of_services.flat_map(|services| &services.troubles);
    let troubles = gateway.clone().flat_map(|gateway| &gateway.troubles);
    let of_member = status.member.iter().flat_map(|member| &member.troubles);
    let troubles = troubles.chain(of_services).chain(of_trunk);
    let troubles = troubles.chain(of_member);
    let troubles = troubles.cloned().map(trouble);
    let findings = gateway.flat_map(|gateway| &gateway.findings);
    let findings = findings.map(|finding| Check {
        fails: finding.severity != Severity::Note,
        kind: finding.name.clone(),
        link: None,
        words: finding.to_string(),
    });
    let mut all: Vec<Check> = failed
        .chain(problems)
        .chain(troubles)
        .chain(findings)
        .collect();
    all.sort_by_key(|check| !check.fails);
    all
}

fn failed(roles: &[RoleStatus]) -> impl Iterator<Item = String> {
    let failed = roles.iter().filter(|role| role.state == RoleState::Failed);
    failed.map(|role| {
        let why = role.why.as_deref().unwrap_or_default();
        format!(
            "the {} has failed: {why}; what it did with packets stays as it is until the daemon is started again",
            role.name
        )
    })
}

/// How much of each role does what it should.
fn work(status: &Status) -> String {
    let gateway = status.gateway.iter().map(|gateway| {
        let working = gateway.links.iter().filter(|link| works(link)).count();
        format!("{working} of {} links work", gateway.links.len())
    });
    let trunk = status.trunk.iter().map(|trunk| {
        let usable = trunk.sublinks.iter().filter(|sublink| sublink.usable);
        format!("{} of {} sublinks", usable.count(), trunk.sublinks.len())
    });
    let services = status.services.iter().map(|status| {
        let servers = status.services.iter().flat_map(|service| &service.servers);
        let usable = servers.clone().filter(|server| server.usable);
        format!("{} of {} servers", usable.count(), servers.count())
    });
    let member = status.member.iter();
    let member = member.map(|member| format!("a member of {} addresses", member.addresses.len()));
    let roles = gateway.chain(services).chain(trunk).chain(member);
    roles.collect::<Vec<_>>().join(", ")
}

fn works(link: &LinkStatus) -> bool {
    let is_up = |path: &PathStatus| matches!(path.state, LinkState::Up | LinkState::PossiblyDown);
    link.paths.iter().any(is_up)
}

/// What all roles have in common, then each.
fn whole(status: &Status) -> String {
    let Status { version, pid, .. } = status;
    let up = table::time(status.uptime_s);
    let taken = [
        (status.gateway.iter().any(|one| one.adopted), "the flows"),
        (
            status.services.iter().any(|one| one.adopted),
            "the connections",
        ),
        (status.trunk.iter().any(|one| one.adopted), "the trunk"),
        (status.member.iter().any(|one| one.adopted), "the member"),
    ];
    let taken: Vec<_> = taken
        .iter()
        .filter(|(is_taken, _)| *is_taken)
        .map(|(_, what)| *what)
        .collect();
    let adopted = match taken[..] {
        [] => String::new(),
        _ => format!(", took over {} of an earlier daemon", taken.join(" and ")),
    };
    let failed = failed(&status.roles).map(|failed| trouble(&failed));
    let gateway = status.gateway.as_deref().map(gateway);
    let parts: Vec<String> = gateway
        .into_iter()
        .chain(status.services.as_deref().map(services))
        .chain(status.trunk.as_deref().map(trunk))
        .chain(status.member.as_deref().map(member))
        .collect();
    format!(
        "anabranch {version}, pid {pid}, up {up}{adopted}\n{}{}",
        failed.collect::<String>(),
        parts.join("\n")
    )
}

fn gateway(status: &GatewayStatus) -> String {
    format!(
        "{}\n{}{}\n{}\n{}\n{}{}\n{}{}",
        head(status),
        troubles(&status.troubles),
        findings(&status.findings),
        links(&status.links),
        addresses(&status.links),
        classes(&status.classes),
        targets(&status.links),
        tested(&status.links),
        reasons(&status.reasons)
    )
}

/// Nothing, if there is none but the default class.
fn classes(classes: &[ClassStatus]) -> String {
    if classes.len() < 2 {
        return String::new();
    }
    let mut columns = Columns::new(&[
        "class", "policy", ">flows", ">opened", ">down", ">up", "links", "dropped",
    ]);
    for class in classes {
        columns.row([
            class_name(class),
            words::policy(&class.policy, &class.granularity),
            class.flows.live.to_string(),
            class.flows.opened.to_string(),
            table::amount(class.rx_bytes),
            table::amount(class.tx_bytes),
            class_links(class),
            drops(class),
        ]);
    }
    format!("{columns}\n")
}

fn class_name(class: &ClassStatus) -> String {
    match class.leaving {
        true => format!("{} (leaving)", class.name),
        false => class.name.clone(),
    }
}

/// Tier after tier; a star marks what is in use.
fn class_links(class: &ClassStatus) -> String {
    let link = |link: &ClassLink| format!("{}{}", link.link, if link.usable { "*" } else { "" });
    let tier = |tier: &Vec<ClassLink>| tier.iter().map(link).collect::<Vec<_>>().join(" ");
    let beyond = Some(&class.beyond).filter(|beyond| !beyond.is_empty());
    let tiers: Vec<String> = class.tiers.iter().chain(beyond).map(tier).collect();
    match tiers.is_empty() {
        true => "none".to_owned(),
        false => tiers.join(", then "),
    }
}

fn drops(class: &ClassStatus) -> String {
    let reasons = [(class.without_link, "no link"), (class.over_quota, "quota")];
    let counted = reasons.iter().filter(|(packets, _)| *packets > 0);
    let each = counted.map(|(packets, words)| format!("{packets} {words}"));
    each.collect::<Vec<_>>().join(", ")
}

/// Nothing, if nothing is wrong.
fn troubles(troubles: &[String]) -> String {
    troubles.iter().map(|words| trouble(words)).collect()
}

fn trouble(words: &str) -> String {
    format!("{}  {words}\n", table::bad("TROUBLE"))
}

fn findings(findings: &[Finding]) -> String {
    findings.iter().map(words::finding).collect()
}

/// How the targets of the links' probes fare.
fn targets(links: &[LinkStatus]) -> Columns {
    let mut columns = Columns::new(&["link", "asked", ">answers", ">last", ">RTT", "remark"]);
    for (link, target) in links.iter().flat_map(asked) {
        columns.row([
            link.name.clone(),
            target.target.clone(),
            format!("{} of {}", target.answered, target.sent),
            optional(
                target
                    .answered_s_ago
                    .map(|ago_s| format!("{} ago", table::time(ago_s))),
            ),
            optional(target.round_trip_ms.map(|ms| table::time(ms / 1e3))),
            remark(target).to_owned(),
        ]);
    }
    columns
}

/// What checks say of links. Nothing, if there are none.
fn tested(links: &[LinkStatus]) -> String {
    let paths = links.iter().flat_map(|link| {
        let paths = link.paths.iter();
        paths.map(move |path| (link, path))
    });
    let mut columns = Columns::new(&["link", "family", "check", "state", ">in a row", "why"]);
    let mut is_empty = true;
    for (link, path) in paths {
        for check in &path.checks {
            is_empty = false;
            let row = if check.succeeds { "right" } else { "wrong" };
            columns.row([
                link.name.clone(),
                path.family.clone(),
                check.check.clone(),
                match check.state.as_str() {
                    "up" => table::good("up").to_string(),
                    "down" => table::bad("DOWN").to_string(),
                    other => other.to_owned(),
                },
                format!("{} {row}", check.in_a_row),
                check.why.clone().unwrap_or_default(),
            ]);
        }
    }
    match is_empty {
        true => String::new(),
        false => format!("{columns}\n"),
    }
}

fn remark(target: &TargetStatus) -> &'static str {
    match (target.near, target.wrong) {
        (_, true) => "another answer than it should be",
        (true, false) => "near",
        (false, false) => "",
    }
}

/// Of all families.
fn asked(link: &LinkStatus) -> impl Iterator<Item = (&LinkStatus, &TargetStatus)> {
    let targets = link.paths.iter().flat_map(|path| &path.probe.targets);
    targets.map(move |target| (link, target))
}

fn services(status: &ServicesStatus) -> String {
    let mut columns = Columns::new(&[
        "service",
        "listens at",
        "policy",
        "server",
        "state",
        ">opened",
        ">active",
        "why",
    ]);
    for service in &status.services {
        for (i, server) in service.servers.iter().enumerate() {
            let once = |words: String| if i == 0 { words } else { String::new() };
            columns.row([
                once(service.name.clone()),
                once(table::list(&service.listen)),
                once(service.policy.clone()),
                ServerAt(server.endpoint).to_string(),
                service::state(server),
                server.opened.to_string(),
                server.active.to_string(),
                server.why.clone().unwrap_or_default(),
            ]);
        }
    }
    format!(
        "services at {}\n{}\n{columns}\n{}",
        status.devices.join(", "),
        troubles(&status.troubles),
        reasons(&status.reasons)
    )
}

fn trunk(status: &TrunkStatus) -> String {
    let TrunkStatus {
        device,
        scheme,
        reassignments,
        ..
    } = status;
    let mut columns = Columns::new(&[
        "sublink", "device", "via", "state", ">sends", ">share", ">opened", ">bins", ">queue",
        ">dropped", "why",
    ]);
    for sublink in &status.sublinks {
        let state = if sublink.usable {
            table::good("up")
        } else {
            table::bad("DOWN")
        };
        columns.row([
            sublink.name.clone(),
            sublink.device.clone(),
            table::list(&sublink.via),
            state.to_string(),
            table::rate_of(sublink.tx_bps, sublink.rate_bps),
            format!("{:.1} %", sublink.share * 100.0),
            sublink.opened.to_string(),
            sublink.bins.to_string(),
            format!(
                "{} of {} B",
                sublink.queue_bytes,
                optional(sublink.buffer_bytes)
            ),
            sublink.dropped_packets.to_string(),
            sublink.why.clone().unwrap_or_default(),
        ]);
    }
    format!(
        "trunk {device}, {scheme}, {reassignments} reassignments\n{}\n{columns}\n{}",
        troubles(&status.troubles),
        reasons(&status.reasons)
    )
}

fn member(status: &MemberStatus) -> String {
    let mut columns = Columns::new(&["address", ">bytes of tunnel"]);
    for address in &status.addresses {
        let tunnel = match address.outer_bytes {
            0 => "none".to_owned(),
            bytes => bytes.to_string(),
        };
        columns.row([address.address.to_string(), tunnel]);
    }
    let load = status.load.map(|load| {
        format!(
            "\ntold balancers {} times of {} connections at UDP port {}; {} datagrams ignored\n",
            load.answered, load.connections, load.port, load.ignored
        )
    });
    format!(
        "member at {}\n{}\n{columns}{}\n{}",
        status.devices.join(", "),
        troubles(&status.troubles),
        load.unwrap_or_default(),
        reasons(&status.reasons)
    )
}

fn head(status: &GatewayStatus) -> String {
    let GatewayStatus {
        policy,
        flows,
        prefixes,
        ..
    } = status;
    let default = status.classes.last();
    let told = match prefixes.known {
        0 => String::new(),
        known => format!(", {known} of {} prefixes known", prefixes.limit),
    };
    let probed = match prefixes.listed {
        0 => String::new(),
        listed => format!(", {listed} probed {} times", prefixes.asked),
    };
    let kernels = status.connections.map_or(String::new(), |table| {
        format!(", {} of {} in the kernel", table.known, table.limit)
    });
    format!(
        "policy {}, {} flows live, {} of {} places taken{kernels}{told}{probed}",
        default.map_or(policy.clone(), |class| words::policy(
            policy,
            &class.granularity
        )),
        flows.live,
        flows.confirmed,
        flows.limit
    )
}

/// How the links fare.
fn links(links: &[LinkStatus]) -> Columns {
    let mut columns = Columns::new(&[
        "link", "state", ">for", ">down", ">up", ">flows", ">RTT", ">jitter", ">loss", "why",
    ]);
    for link in links {
        for (place, path) in link.paths.iter().enumerate() {
            let mut cells = vec![link.name.clone(), state(path), table::time(path.since_s)];
            cells.extend(load(link).map(|cell| if place == 0 { cell } else { String::new() }));
            let recent = &path.probe.recent;
            let time = |ms: Option<f64>| optional(ms.map(|ms| table::time(ms / 1e3)));
            cells.extend([
                time(path.probe.round_trip_ms),
                time(recent.jitter_ms),
                optional(loss(recent)),
                why(path, link.paths.len() > 1),
            ]);
            columns.cells(cells);
        }
    }
    columns
}

/// Of the probes of the last minute.
fn loss(recent: &RecentProbes) -> Option<String> {
    let percent = 100.0 * recent.lost as f64 / recent.judged as f64;
    (recent.judged > 0).then(|| format!("{percent:.0} %"))
}

/// Where the links lead, their part in the choice, and what flows tell of them.
fn addresses(links: &[LinkStatus]) -> Columns {
    let has_routed = links.iter().any(|link| !link.nat);
    let mut titles = vec!["link", "device", "address", "gateway"];
    titles.extend(has_routed.then_some("NAT"));
    titles.extend([">weight", ">heard", ">opened", ">SYNs repeated"]);
    let mut columns = Columns::new(&titles);
    for link in links {
        for (place, path) in link.paths.iter().enumerate() {
            let mut cells = vec![
                link.name.clone(),
                link.device.clone(),
                optional(path.address),
                optional(path.gateway),
            ];
            cells.extend(has_routed.then(|| words::nat(link.nat)));
            let of_link = |cell: String| if place == 0 { cell } else { String::new() };
            cells.push(of_link(link.weight.to_string()));
            cells.push(format!("{} ago", table::time(path.heard_s_ago)));
            let recent = [link.recent_flows.opened, link.recent_flows.syn_retries];
            cells.extend(recent.map(|count| of_link(format!("{count} in 60 s"))));
            columns.cells(cells);
        }
    }
    columns
}

/// What is a link's in all of its families.
fn load(link: &LinkStatus) -> [String; 3] {
    let declared = |direction: fn(Rates) -> Option<u64>| link.rate.and_then(direction);
    [
        table::rate_of(link.traffic.rx_bps, declared(|rates| rates.down_bps)),
        table::rate_of(link.traffic.tx_bps, declared(|rates| rates.up_bps)),
        link.flows.live.to_string(),
    ]
}

fn why(path: &PathStatus, is_one_of_several: bool) -> String {
    let family = is_one_of_several.then(|| format!("{}: ", path.family));
    let prefix = path.prefix.as_ref();
    let prefix = prefix.map(|prefix| format!("; hosts are in {prefix}"));
    format!(
        "{}{}{}",
        family.unwrap_or_default(),
        path.why,
        prefix.unwrap_or_default()
    )
}

fn state(path: &PathStatus) -> String {
    match path.state {
        LinkState::Up if path.usable => table::good("up").to_string(),
        // Metered, and another link is usable; or its policy leaves it out.
        LinkState::Up => "standby".to_owned(),
        LinkState::PossiblyDown => table::doubtful("possibly down").to_string(),
        LinkState::Captive => table::bad("CAPTIVE").to_string(),
        LinkState::Down => table::bad("DOWN").to_string(),
        LinkState::Absent => table::bad("absent").to_string(),
        LinkState::Drained => table::doubtful("drained").to_string(),
        LinkState::Disabled => table::doubtful("disabled").to_string(),
    }
}

fn reasons(reasons: &[ReasonCount]) -> Columns {
    let mut columns = Columns::new(&[">packets", "fate", "because"]);
    for reason in reasons {
        columns.row([
            reason.packets.to_string(),
            reason.fate.clone(),
            reason.words.clone(),
        ]);
    }
    columns
}

#[cfg(test)]
mod tests {
    use anabranch_api::SublinkStatus;

    use super::*;

    fn sublink(name: &str, opened: u64) -> SublinkStatus {
        SublinkStatus {
            name: name.into(),
            device: format!("dev-{name}"),
            via: Vec::new(),
            usable: true,
            why: None,
            rate_bps: Some(10_000_000),
            packets: 900,
            bytes: 80_000,
            opened,
            tx_bps: 0.0,
            share: 0.5,
            bins: 512,
            queue_bytes: 3028,
            buffer_bytes: Some(12_288),
            queue_packets: 2,
            sent_bytes: 76_972,
            sent_packets: 898,
            dropped_packets: 0,
        }
    }

    fn class(name: &str, tiers: &[&[(&str, bool)]]) -> ClassStatus {
        let link = |(link, usable): &(&str, bool)| ClassLink {
            link: (*link).into(),
            usable: *usable,
            weight: 1,
        };
        let tiers = tiers.iter().map(|tier| tier.iter().map(link).collect());
        ClassStatus {
            name: name.into(),
            slot: 1,
            leaving: false,
            policy: "RR".into(),
            granularity: "connection".into(),
            flows: anabranch_api::LinkFlows {
                live: 3,
                opened: 40,
            },
            tx_bytes: 2_000,
            rx_bytes: 5_000_000,
            tiers: tiers.collect(),
            beyond: Vec::new(),
            without_link: 0,
            over_quota: 0,
        }
    }

    #[test]
    fn classes_show_their_links_by_tier_with_those_in_use_marked() {
        let bulk = class(
            "bulk",
            &[&[("lte", false)], &[("cable", true), ("radio", false)]],
        );
        assert_eq!(class_links(&bulk), "lte, then cable* radio");
        let beyond = ClassStatus {
            beyond: bulk.tiers[1].clone(),
            tiers: vec![bulk.tiers[0].clone()],
            ..bulk.clone()
        };
        assert_eq!(class_links(&beyond), "lte, then cable* radio");
        assert_eq!(class_links(&class("none", &[])), "none");
        assert_eq!(classes(&[class("default", &[])]), "", "nobody wrote rules");
        let last = ClassStatus {
            leaving: true,
            without_link: 7,
            ..class("video", &[&[("lte", true)]])
        };
        let text = classes(&[bulk, last]);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[1][..4], ["bulk", "RR", "3", "40"], "{text}");
        assert!(!text.contains("per packet"), "{text}");
        assert_eq!(rows[2][..2], ["video", "(leaving)"], "{text}");
        assert_eq!(rows[2][rows[2].len() - 3..], ["7", "no", "link"], "{text}");
    }

    #[test]
    fn a_class_that_chooses_for_each_packet_says_so() {
        let spread = ClassStatus {
            granularity: "packet".into(),
            ..class("spread", &[&[("fiber", true)]])
        };
        let text = classes(&[spread, class("default", &[])]);
        assert!(text.contains("RR, per packet"), "{text}");
    }

    fn trunk_status() -> TrunkStatus {
        TrunkStatus {
            adopted: false,
            troubles: vec!["queues: no answer".into()],
            device: "trunk0".into(),
            scheme: "DHFV".into(),
            sublinks: vec![sublink("fiber", 31), sublink("radio", 77)],
            reassignments: 0,
            reasons: Vec::new(),
        }
    }

    /// Of an instance whose gateway has failed.
    fn half() -> Status {
        let role = |name: &str, state, why: Option<&str>| RoleStatus {
            name: name.into(),
            state,
            why: why.map(str::to_owned),
        };
        Status {
            instance: "test".into(),
            version: "1".into(),
            pid: 7,
            uptime_s: 1.0,
            roles: vec![
                role("gateway", RoleState::Failed, Some("data path: no room")),
                role("trunk", RoleState::Works, None),
            ],
            gateway: None,
            services: None,
            trunk: Some(Box::new(trunk_status())),
            member: None,
        }
    }

    #[test]
    fn a_role_that_has_failed_is_told_of_beside_the_others() {
        let text = whole(&half());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "anabranch 1, pid 7, up 1.00 s");
        let says = "the gateway has failed: data path: no room; ";
        assert!(lines[1].contains(says), "{text}");
        assert_eq!(lines[2], "trunk trunk0, DHFV, 0 reassignments");
        let checks = checks(&half());
        let failing: Vec<&str> = checks.iter().map(|check| &check.words[..]).collect();
        assert!(failing[0].starts_with(says), "{failing:?}");
        assert_eq!(failing[1..], ["queues: no answer"]);
        assert_eq!(work(&half()), "2 of 2 sublinks");
    }

    #[test]
    fn an_instance_is_read_as_it_was_written() {
        let written = serde_json::to_string(&half()).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&written).unwrap(), half());
    }

    #[test]
    fn a_trunk_shows_the_connections_that_began_on_each_sublink() {
        let text = trunk(&trunk_status());
        let row = |begin: &str| {
            let line = text
                .lines()
                .find(|line| line.trim_start().starts_with(begin));
            let words = line
                .unwrap_or_else(|| panic!("no {begin} in {text}"))
                .split_whitespace();
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(row("TROUBLE"), ["TROUBLE", "queues:", "no", "answer"]);
        assert!(row("sublink").contains(&"opened".to_owned()), "{text}");
        assert!(row("fiber").contains(&"31".to_owned()), "{text}");
        assert!(row("radio").contains(&"77".to_owned()), "{text}");
    }
}
