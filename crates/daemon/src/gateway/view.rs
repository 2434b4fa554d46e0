//! The daemon's state as `anabranch status` shows it.

use std::time::Duration;

use anabranch_core::{
    Admin, Alarm, CAPTIVE, ClassCounters, ClassId, ClassStatus as Choosing, DownCause, Family,
    Kind, LinkCounters, LinkId, LinkStatus as Balanced, PathStatus as Fares, ProbeQuality, Reach,
    State, Time, is_dark, lengths,
};

use super::{GatewayRole, Surroundings, all_links};
use crate::config::{Link, Rate};
use crate::observe::{Lack, PathView};
use crate::plane::{Error, Plane};
use crate::shell::Role;
use anabranch_api::ReasonCount;
use anabranch_api::{
    ClassLink, ClassStatus, ConnectionsStatus, FlowsStatus, GatewayStatus, LinkFlows, LinkState,
    LinkStatus, NodeStatus, PathStatus, PrefixesStatus, ProbeStatus, Problem, Rates, RecentFlows,
    RecentProbes, TargetStatus, Traffic,
};

/// `counters` are those of the classes, in the order of their ids.
pub fn status<P: Plane, S: Surroundings>(
    gateway: &GatewayRole<P, S>,
    counters: &[ClassCounters],
) -> Result<GatewayStatus, Error> {
    let config = &gateway.config;
    Ok(GatewayStatus {
        policy: config.policy.name.clone(),
        adopted: gateway.shell.adopted,
        troubles: gateway.troubles(),
        findings: gateway.survey.found().to_vec(),
        problems: problems(gateway),
        links: config
            .links
            .iter()
            .filter_map(|link| link_status(gateway, link))
            .collect(),
        classes: classes(gateway, counters),
        flows: flows(gateway),
        connections: connections(gateway),
        // Filled in by the task that reads the table.
        prefixes: PrefixesStatus::default(),
        reasons: reasons(gateway)?,
    })
}

fn connections<P: Plane, S: Surroundings>(
    gateway: &GatewayRole<P, S>,
) -> Option<ConnectionsStatus> {
    let (known, limit) = gateway.surroundings.connection_table()?;
    Some(ConnectionsStatus { known, limit })
}

fn link_status<P: Plane, S: Surroundings>(
    gateway: &GatewayRole<P, S>,
    link: &Link,
) -> Option<LinkStatus> {
    let id = gateway.slots.id(&link.name)?;
    let balanced = gateway.driver.status(gateway.shell.now(), id)?;
    let (counters, traffic) = (balanced.counters, balanced.counters.carried());
    let rate = gateway.meter.rate(id.index());
    let families = Family::ALL.into_iter();
    let paths: Vec<PathStatus> = families
        .filter(|family| gateway.is_of(id, *family, gateway.told.links.get(&id)))
        .map(|family| path_status(gateway, &balanced, family))
        .collect();
    let first = paths.first()?.clone();
    let mut told = Family::ALL.into_iter();
    Some(LinkStatus {
        name: link.name.clone(),
        device: link.device.clone(),
        slot: id.0,
        state: first.state,
        since_s: first.since_s,
        why: first.why,
        usable: first.usable,
        metered: link.metered,
        alert: link.alert,
        nat: link.nat,
        address: first.address,
        gateway: first.gateway,
        mtu: told.find_map(|family| Some(gateway.path_of(id, family)?.mtu)),
        rate: rates(link.down.map(Rate::bps), link.up.map(Rate::bps)),
        available: rates(balanced.available_down_bps, balanced.available_up_bps),
        weight: balanced.weight,
        flows: LinkFlows {
            live: live_flows(&counters),
            opened: counters.flows.opened,
        },
        traffic: Traffic {
            tx_packets: traffic.tx_packets,
            tx_bytes: traffic.tx_bytes,
            rx_packets: traffic.rx_packets,
            rx_bytes: traffic.rx_bytes,
            tx_bps: rate.tx_bps,
            rx_bps: rate.rx_bps,
        },
        recent_flows: RecentFlows {
            opened: balanced.recent.opened,
            syn_retries: balanced.recent.syn_retries,
        },
        probe: first.probe,
        node: balanced.node.map(|node| NodeStatus {
            family: node.family.to_string(),
            sent: node.sent,
            round_trip_ms: node.round_trip.map(in_ms),
        }),
        paths,
    })
}

fn path_status<P: Plane, S: Surroundings>(
    gateway: &GatewayRole<P, S>,
    balanced: &Balanced,
    family: Family,
) -> PathStatus {
    let now = gateway.shell.now();
    let (admin, fares) = (balanced.admin, &balanced.paths[family]);
    let view = gateway.told.links.get(&balanced.link);
    let view = view.map(|view| &view.paths[family]);
    let path = gateway.path_of(balanced.link, family);
    let prefix = path.and_then(|path| path.prefix);
    let barred = barred(gateway, balanced.link, family, fares.state);
    let name = gateway.slots.name(balanced.link).unwrap_or_default();
    PathStatus {
        family: family.to_string(),
        state: state(admin, fares),
        since_s: now.since(fares.since).as_secs_f64(),
        why: why(now, admin, fares, view, barred),
        usable: fares.usable,
        address: path.map(|path| path.external),
        gateway: path.and_then(|path| path.gateway),
        prefix: prefix.map(|(network, length)| format!("{network}/{length}")),
        path_mtu: fares.mtu.map(|found| found.bytes),
        heard_s_ago: now.since(fares.heard).as_secs_f64(),
        falls_last_hour: fares.falls_within_an_hour,
        probe: ProbeStatus {
            sent: fares.probes_sent - fares.probes_not_sent,
            not_sent: fares.probes_not_sent,
            judged: fares.probes_judged,
            lost: fares.probes_lost,
            round_trip_ms: fares.round_trip.map(in_ms),
            recent: recent_probes(now, &fares.recent),
            filtered: fares.filtered.iter().map(Kind::to_string).collect(),
            targets: targets(now, fares, view),
        },
        checks: gateway.checks.status(&(name.to_owned(), family)),
    }
}

fn classes<P: Plane, S: Surroundings>(
    gateway: &GatewayRole<P, S>,
    counters: &[ClassCounters],
) -> Vec<ClassStatus> {
    let slots = &gateway.classes;
    let choosing = gateway.driver.class_status();
    let ordered = slots.of_rules(&gateway.config).into_iter();
    let ordered = ordered.chain(slots.leaving()).chain([ClassId::DEFAULT]);
    let of = |id: ClassId| choosing.iter().find(move |class| class.class == id);
    ordered
        .filter_map(of)
        .map(|class| class_status(gateway, class, counters))
        .collect()
}

fn class_status<P: Plane, S: Surroundings>(
    gateway: &GatewayRole<P, S>,
    choosing: &Choosing,
    counters: &[ClassCounters],
) -> ClassStatus {
    let id = choosing.class;
    let name = gateway.classes.name(id).unwrap_or_default();
    let mut rules = gateway.config.rules.iter();
    let rule = rules.find(|rule| rule.name() == name);
    let own = rule.and_then(|rule| rule.class.policy.as_ref());
    let counted = counters.get(id.index()).copied().unwrap_or_default();
    let (tiers, beyond) = tiers(gateway, choosing);
    ClassStatus {
        name: name.to_owned(),
        slot: id.0,
        leaving: gateway.classes.leaving().any(|leaving| leaving == id),
        policy: own.unwrap_or(&gateway.config.policy).name.clone(),
        granularity: gateway.config.algorithm(name).granularity_word().to_owned(),
        flows: LinkFlows {
            live: counted.live(),
            opened: counted.counts.opened,
        },
        tx_bytes: counted.traffic.tx_bytes,
        rx_bytes: counted.traffic.rx_bytes,
        tiers,
        beyond,
        without_link: counted.counts.dropped,
        over_quota: counted.counts.refused,
    }
}

/// The links of each tier, and then those in use that are in no tier. Without tiers, metered links come after the others.
fn tiers<P: Plane, S: Surroundings>(
    gateway: &GatewayRole<P, S>,
    choosing: &Choosing,
) -> (Vec<Vec<ClassLink>>, Vec<ClassLink>) {
    let links = gateway.config.links.iter();
    let links: Vec<(LinkId, &Link)> = links
        .filter_map(|link| Some((gateway.slots.id(&link.name)?, link)))
        .collect();
    let those = |is: &dyn Fn(LinkId, &Link) -> bool| -> Vec<ClassLink> {
        let fit = links.iter().filter(|(id, link)| is(*id, link));
        fit.map(|(id, link)| class_link(choosing, *id, link))
            .collect()
    };
    let Some(tiers) = &choosing.tiers else {
        let tiers = [false, true].map(|metered| those(&|_, link| link.metered == metered));
        return (
            tiers.into_iter().filter(|tier| !tier.is_empty()).collect(),
            Vec::new(),
        );
    };
    let beyond = those(&|id, _| takes(choosing, id) && !tiers.iter().any(|tier| tier.contains(id)));
    let tiers = tiers.iter().map(|tier| those(&|id, _| tier.contains(id)));
    (tiers.collect(), beyond)
}

fn class_link(choosing: &Choosing, id: LinkId, link: &Link) -> ClassLink {
    ClassLink {
        link: link.name.clone(),
        usable: takes(choosing, id),
        weight: choosing.weights.get(id.index()).copied().unwrap_or(0),
    }
}

/// Whether it takes new flows of some family.
fn takes(choosing: &Choosing, id: LinkId) -> bool {
    let mut usable = choosing.usable.values();
    usable.any(|usable| usable.contains(id))
}

fn in_ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn targets(now: Time, fares: &Fares, view: Option<&PathView>) -> Vec<TargetStatus> {
    let named = view.map_or(&[][..], |view| &view.targets);
    named
        .iter()
        .zip(&fares.targets)
        .map(|((target, reach), record)| TargetStatus {
            target: target.to_string(),
            near: *reach == Reach::Near,
            sent: record.sent,
            answered: record.answered,
            lost_in_a_row: record.lost_in_a_row,
            answered_s_ago: record.last_answer.map(|at| now.since(at).as_secs_f64()),
            round_trip_ms: record.round_trip.map(in_ms),
            wrong: record.wrong_since.is_some(),
        })
        .collect()
}

fn recent_probes(now: Time, recent: &ProbeQuality) -> RecentProbes {
    let answered = recent.last_answer;
    RecentProbes {
        judged: recent.judged,
        lost: recent.lost,
        round_trip_ms: recent.round_trip.map(in_ms),
        jitter_ms: recent.jitter.map(in_ms),
        answered_s_ago: answered.map(|at| now.since(at).as_secs_f64()),
    }
}

/// What is wrong with links, for monitoring: the failure of all links before that of single ones.
pub fn problems<P: Plane, S: Surroundings>(gateway: &GatewayRole<P, S>) -> Vec<Problem> {
    let now = gateway.shell.now();
    let offline = gateway.driver.is_dark(now).then(|| Problem {
        link: None,
        family: None,
        kind: "offline".to_owned(),
        words: "no link works: nothing is forwarded to the internet".to_owned(),
        fails: true,
    });
    let links = gateway.config.links.iter();
    let of_links = links.flat_map(|link| link_problems(gateway, link));
    let mut problems: Vec<Problem> = offline.into_iter().chain(of_links).collect();
    problems.sort_by_key(|problem| !problem.fails);
    problems
}

fn link_problems<P: Plane, S: Surroundings>(
    gateway: &GatewayRole<P, S>,
    link: &Link,
) -> Vec<Problem> {
    let now = gateway.shell.now();
    let id = gateway.slots.id(&link.name);
    let Some(balanced) = id.and_then(|id| gateway.driver.status(now, id)) else {
        return Vec::new();
    };
    let problem = |family: Option<Family>, kind: &str, words: String, fails: bool| Problem {
        link: Some(link.name.clone()),
        family: family.map(|family| family.to_string()),
        kind: kind.to_owned(),
        words,
        fails,
    };
    let order = match balanced.admin {
        Admin::Up => None,
        Admin::Drain => Some("drained by order: it takes no new flows"),
        Admin::Down => Some("out of use by order"),
    };
    let order = order.map(|words| problem(None, "ordered", words.to_owned(), false));
    let view = gateway.told.links.get(&balanced.link);
    let families = Family::ALL.into_iter();
    let families: Vec<Family> = families
        .filter(|family| gateway.is_of(balanced.link, *family, view))
        .collect();
    let alarms = families.iter().flat_map(|family| {
        let fares = &balanced.paths[*family];
        let named = (families.len() > 1).then_some(*family);
        let alarms = Alarm::of(balanced.admin, fares).into_iter();
        alarms.map(move |alarm| (*family, named, fares, alarm))
    });
    let alarms = alarms.map(|(family, named, fares, alarm)| {
        let words = match alarm {
            Alarm::Lossy { .. } | Alarm::Flapping(_) | Alarm::Captive => alarm.to_string(),
            Alarm::Absent(_) | Alarm::Unconfigured(_) | Alarm::Down(_) => {
                let barred = barred(gateway, balanced.link, family, fares.state);
                let view = view.map(|view| &view.paths[family]);
                let why = why(now, Admin::Up, fares, view, barred);
                format!("down for {}: {why}", roughly(now.since(fares.since)))
            }
        };
        problem(named, alarm.word(), words, link.alert)
    });
    order.into_iter().chain(alarms).collect()
}

/// A time that is rounded so much that the service manager needs an update only rarely.
fn roughly(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{} s", seconds / 10 * 10),
        seconds @ 60..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// A line that says over how many links the gateway forwards.
pub fn work<P: Plane, S: Surroundings>(gateway: &GatewayRole<P, S>) -> String {
    let links = &gateway.config.links;
    let works = |link: &&Link| {
        let id = gateway.slots.id(&link.name);
        let status = id.and_then(|id| gateway.driver.status(gateway.shell.now(), id));
        status.is_some_and(|status| status.admin == Admin::Up && !is_dark([&status]))
    };
    let working = links.iter().filter(works).count();
    format!("forwarding over {working} of {} links", links.len())
}

fn flows<P: Plane, S: Surroundings>(gateway: &GatewayRole<P, S>) -> FlowsStatus {
    let live = |id| live_flows(&gateway.driver.counters(id));
    FlowsStatus {
        live: all_links().map(live).sum(),
        confirmed: gateway.swept.confirmed,
        limit: gateway.plane.flows_max(),
        evicted: gateway.swept.evicted,
    }
}

fn live_flows(counters: &LinkCounters) -> u64 {
    counters.flows.opened.saturating_sub(counters.flows.closed)
}

fn rates(down_bps: Option<u64>, up_bps: Option<u64>) -> Option<Rates> {
    (down_bps.is_some() || up_bps.is_some()).then_some(Rates { down_bps, up_bps })
}

/// The state for display. The operator's order overrides what was found.
fn state(admin: Admin, fares: &Fares) -> LinkState {
    match (admin, fares.state) {
        (Admin::Down, _) => LinkState::Disabled,
        (_, State::Down(anabranch_core::DownCause::Absent(_))) => LinkState::Absent,
        (_, State::Down(_)) => LinkState::Down,
        (Admin::Drain, _) => LinkState::Drained,
        (Admin::Up, State::Up) => LinkState::Up,
        (Admin::Up, State::PossiblyDown(_)) => LinkState::PossiblyDown,
        (Admin::Up, State::Captive) => LinkState::Captive,
    }
}

/// Why a link that answers is not used, in words.
fn barred<P: Plane, S: Surroundings>(
    gateway: &GatewayRole<P, S>,
    link: LinkId,
    family: Family,
    state: State,
) -> Option<String> {
    match state {
        State::Down(DownCause::Portal) => {
            let answer = gateway.wrong_answers.get(&(link, family))?;
            Some(format!("captive portal: {answer}"))
        }
        State::Down(DownCause::Check) => {
            let name = gateway.slots.name(link)?.to_owned();
            gateway.checks.why(&(name, family))
        }
        _ => None,
    }
}

fn why(
    now: Time,
    admin: Admin,
    fares: &Fares,
    view: Option<&PathView>,
    barred: Option<String>,
) -> String {
    let missing = view.and_then(|view| view.path.as_ref().err());
    let lacks = view.and_then(|view| view.lacks);
    match (admin, fares.state, missing) {
        (Admin::Down | Admin::Drain, _, _) => "by order".to_owned(),
        (_, _, Some(missing)) => missing.to_string(),
        (_, State::Up | State::PossiblyDown(_), _) if lacks == Some(Lack::Address) => {
            "its address is away: its flows wait some seconds for it".to_owned()
        }
        (_, State::Up, _) if lacks == Some(Lack::Route) => {
            "its default route is away: it goes on some seconds without".to_owned()
        }
        (_, State::Up, _) if fares.near_only => {
            "its gateway answers, and no target beyond it".to_owned()
        }
        (_, State::Up, _) if !fares.filtered.is_empty() => filtered(&fares.filtered),
        (_, State::Up, _) if fares.mtu.is_some() => format!("answers; {}", lengths(fares.mtu)),
        (_, State::Up, _) => "answers".to_owned(),
        (_, State::PossiblyDown(suspicion), _) => suspicion.to_string(),
        (_, State::Captive, _) => captive(now, fares),
        (_, State::Down(DownCause::HeldDown), _) => held_down(now, fares),
        (_, State::Down(cause), _) => barred.unwrap_or_else(|| cause.to_string()),
    }
}

/// Kinds of probes that are filtered while others are answered, in words.
fn filtered(kinds: &[Kind]) -> String {
    let kinds: Vec<String> = kinds.iter().map(Kind::to_string).collect();
    format!(
        "answers; {} is not answered over this link: filtered",
        kinds.join(" and ")
    )
}

fn captive(now: Time, fares: &Fares) -> String {
    let left = fares
        .held_until
        .map_or(Duration::ZERO, |until| until.since(now));
    format!("{CAPTIVE}; tried again in {} s", left.as_secs_f64().ceil())
}

fn held_down(now: Time, fares: &Fares) -> String {
    let seconds = |time: Duration| time.as_secs_f64().ceil();
    let left = fares
        .held_until
        .map_or(Duration::ZERO, |until| until.since(now));
    let within = fares
        .first_fall
        .map_or(Duration::ZERO, |first| now.since(first));
    format!(
        "held down for {} s more: {} falls in {} s",
        seconds(left),
        fares.falls,
        seconds(within)
    )
}

fn reasons<P: Plane, S: Surroundings>(
    gateway: &GatewayRole<P, S>,
) -> Result<Vec<ReasonCount>, Error> {
    let mut reasons = gateway.plane.reasons()?;
    match gateway.surroundings.drops() {
        Ok(drops) => reasons.extend(drops),
        Err(error) => tracing::warn!("{error:#}"),
    }
    Ok(ReasonCount::by_frequency(reasons))
}
