//! `fault`: what happens to the lines, and whether it can.

use std::collections::BTreeSet;
use std::time::Duration;

use anabranch_config::{BadInput, Source, Span, did_you_mean};

use super::link_names;
use super::network::{DELAY_MAX, jitter, loss, mtu_bytes, passage};
use super::written::{ChangeText, FaultTable, PlaceText};
use crate::{Change, Direction, Fault, Line, LinkPlan, Network, Place};

pub(super) fn faults(
    source: &Source<'_>,
    written: &[FaultTable],
    network: &Network,
    limit: Duration,
) -> Result<Vec<Fault>, BadInput> {
    let mut faults = Vec::new();
    for (index, table) in written.iter().enumerate() {
        faults.push((index, fault(source, index, table, network, limit)?));
    }
    faults.sort_by_key(|(_, fault)| fault.at);
    follow(source, &faults, network)?;
    Ok(faults.into_iter().map(|(_, fault)| fault).collect())
}

fn fault(
    source: &Source<'_>,
    index: usize,
    table: &FaultTable,
    network: &Network,
    limit: Duration,
) -> Result<Fault, BadInput> {
    let number = index.to_string();
    let bad = |key: &str, problem: String| Err(source.bad(&["fault", &number, key], problem));
    let names = link_names(network);
    if !names.contains(&table.link) {
        let meant = did_you_mean(&table.link, names.iter().map(String::as_str));
        let allowed = names.join(", ");
        return bad("link", format!("no such link; allowed: {allowed}{meant}"));
    }
    let Span(at) = table.at;
    if at >= limit {
        let problem = format!(
            "is not before the end of the run, {} s",
            limit.as_secs_f64()
        );
        return bad("at", problem);
    }
    let place = match table.place {
        Some(PlaceText::Beyond) => Place::Beyond,
        Some(PlaceText::LastMile) | None => Place::LastMile,
    };
    let change = change(source, &number, table)?;
    has_line(table, place, network)
        .map_err(|(key, problem)| source.bad(&["fault", &number, key], problem))?;
    if table.delay.is_some_and(|Span(delay)| delay > DELAY_MAX) {
        return bad("delay", "a delay is at most 10 s".to_owned());
    }
    Ok(Fault {
        at,
        link: table.link.clone(),
        place,
        direction: table.direction,
        change,
    })
}

/// Whether the link has the line that the fault is of; otherwise the key that is wrong, and why.
fn has_line(
    table: &FaultTable,
    place: Place,
    network: &Network,
) -> Result<(), (&'static str, String)> {
    let beyond = place == Place::Beyond;
    match network {
        Network::Trunk(_) if beyond => Err((
            "place",
            "a trunk has nothing beyond its sublinks".to_owned(),
        )),
        Network::Trunk(_) if table.direction == Some(Direction::Up) => {
            Err(("direction", "sublinks carry traffic down only".to_owned()))
        }
        Network::Site(site) if beyond => {
            let link = site.links.iter().find(|link| link.name == table.link);
            let hop = link.and_then(|link| link.beyond.as_ref());
            match hop.map(|hop| (&hop.down, &hop.up)) {
                Some(lines) => has_rate(table, lines),
                None => Err(("place", format!("link.{} has no beyond", table.link))),
            }
        }
        Network::Site(site) => {
            let mut links = site.links.iter().filter(|link| link.name == table.link);
            links.try_for_each(|link| has_rate(table, (&link.down, &link.up)))
        }
        Network::Trunk(_) => match impairment(table) {
            Some(key) => Err((key, "only links and what is beyond them have it".to_owned())),
            None => Ok(()),
        },
    }
}

/// Whether the lines have a rate that the fault can change, if it changes one.
fn has_rate(table: &FaultTable, (down, up): (&Line, &Line)) -> Result<(), (&'static str, String)> {
    let is_meant = |direction| table.direction.is_none_or(|one| one == direction);
    let mut lines = [(Direction::Down, down), (Direction::Up, up)].into_iter();
    match lines.find(|(direction, line)| is_meant(*direction) && line.trace.is_some()) {
        Some((direction, _)) if table.rate.is_some() => Err((
            "rate",
            format!(
                "link.{} follows a trace {}, which is all the rate it has",
                table.link,
                direction.name()
            ),
        )),
        _ => Ok(()),
    }
}

/// The key of one that is changed.
fn impairment(table: &FaultTable) -> Option<&'static str> {
    let all = [
        ("jitter", table.jitter.is_some()),
        ("mtu", table.mtu.is_some()),
        ("captive", table.captive.is_some()),
        ("filter", table.filter.is_some()),
    ];
    all.into_iter().find_map(|(key, is)| is.then_some(key))
}

fn change(source: &Source<'_>, number: &str, table: &FaultTable) -> Result<Change, BadInput> {
    let bad = |key: &str, problem: &str| source.bad(&["fault", number, key], problem);
    let state = table.change.map(|change| match change {
        ChangeText::Cut => Change::Cut,
        ChangeText::Restore => Change::Restore,
    });
    let rate = table.rate.map(|rate| Change::Rate(rate.bps()));
    let loss = table.loss.map(|written| Change::Loss(loss(written)));
    let delay = table.delay.map(|Span(delay)| Change::Delay(delay));
    let jitter = table.jitter.map(jitter).transpose();
    let jitter = jitter.map_err(|problem| bad("jitter", &problem))?;
    let mtu = table.mtu.map(mtu_bytes).transpose();
    let mtu = mtu.map_err(|problem| bad("mtu", &problem))?;
    let passage = passage(table.captive, table.filter);
    let passage = passage.map_err(|problem| bad("captive", problem))?;
    let changes = [
        state,
        rate,
        loss,
        delay,
        jitter.map(Change::Jitter),
        mtu.map(Change::Mtu),
        passage.map(Change::Passage),
    ];
    let mut changes = changes.into_iter().flatten();
    let problem = match (changes.next(), changes.next()) {
        (Some(change), None) => return Ok(change),
        (None, _) => {
            r#"changes nothing; write one of change = "cut", change = "restore", rate, loss, delay, jitter, mtu, captive, filter"#
        }
        (Some(_), Some(_)) => "changes several things; write one fault for each",
    };
    Err(source.bad(&["fault", number], problem))
}

/// Links that share a line share what happens to it.
fn line_name<'a>(fault: &'a Fault, network: &'a Network) -> &'a str {
    match (network, fault.place) {
        (Network::Site(site), Place::Beyond) => {
            let link = site.links.iter().find(|link| link.name == fault.link);
            link.map_or(&fault.link, LinkPlan::beyond_name)
        }
        _ => &fault.link,
    }
}

/// Plays the faults through: nothing whole is restored, nothing cut is cut.
fn follow(
    source: &Source<'_>,
    faults: &[(usize, Fault)],
    network: &Network,
) -> Result<(), BadInput> {
    let mut cut: BTreeSet<(&str, Place, Direction)> = BTreeSet::new();
    for (index, fault) in faults {
        let directions = fault
            .direction
            .map_or(Direction::BOTH.to_vec(), |one| vec![one]);
        let name = line_name(fault, network);
        let lines = directions.into_iter().map(|d| (name, fault.place, d));
        let lines: Vec<_> = lines.collect();
        let possible = match fault.change {
            Change::Cut => lines.into_iter().all(|line| cut.insert(line)),
            Change::Restore => lines.iter().filter(|line| cut.remove(line)).count() > 0,
            _ => true,
        };
        if !possible {
            let key = ["fault", &index.to_string(), "change"];
            let state = match fault.change {
                Change::Cut => "is cut already",
                _ => "is not cut",
            };
            let at = fault.at.as_secs_f64();
            let problem = format!("at {at} s, {} {state}", fault.link);
            return Err(source.bad(&key, problem));
        }
    }
    Ok(())
}
