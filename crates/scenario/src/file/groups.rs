//! `[group.NAME]`: users who differ from others in their access line, their TCP, or in what they ask for.

use std::time::Duration;

use anabranch_config::{BadInput, Rate, Source, is_name};

use super::network::{ACCESS_DELAY, ACCESS_RATE_BPS, Lines};
use super::written::{
    File, GroupTable, HopTable, LineTable, LineText, TcpTable, WorkloadTable, hop_of,
};
use super::{load, tcp};
use crate::{Access, Group, Tcp};

const GROUPS_MAX: usize = 100;
const NAME_CHARS_MAX: usize = 32;
const USERS_MAX: u32 = 1_000_000;
/// Of an access line of a site of which only a delay, a loss or a buffer is said.
const SITE_RATE_BPS: u64 = 1_000_000_000;

/// The tables of the groups, in the order of the file.
pub(super) fn tables<'a>(
    source: &Source<'_>,
    file: &'a File,
) -> Result<Vec<(&'a str, &'a GroupTable)>, BadInput> {
    let mut tables: Vec<_> = file.group.iter().collect();
    tables.sort_by_key(|(name, _)| source.position(&["group", name]));
    if tables.len() > GROUPS_MAX {
        let problem = format!("{} groups; at most {GROUPS_MAX} are allowed", tables.len());
        return Err(source.bad(&["group"], problem));
    }
    for (name, table) in &tables {
        if !is_name(name, NAME_CHARS_MAX) {
            let allowed =
                format!("a group's name has 1 to {NAME_CHARS_MAX} letters, digits, '-' and '_'");
            return Err(source.bad(&["group", name], allowed));
        }
        if !(1..=USERS_MAX).contains(&table.users) {
            let problem = format!("1 to {USERS_MAX} users are allowed");
            return Err(source.bad(&["group", name, "users"], problem));
        }
    }
    let users: u64 = tables.iter().map(|(_, table)| u64::from(table.users)).sum();
    if users > u64::from(USERS_MAX) {
        let problem = format!("{users} users in all groups; at most {USERS_MAX}");
        return Err(source.bad(&["group"], problem));
    }
    Ok(tables
        .into_iter()
        .map(|(name, table)| (name.as_str(), table))
        .collect())
}

/// The TCP of a group: what its own table says, then `[tcp]`.
pub(super) fn tcp_of(
    source: &Source<'_>,
    name: &str,
    group: &GroupTable,
) -> Result<Option<Tcp>, BadInput> {
    let Some(own) = &group.tcp else {
        return Ok(None);
    };
    let file: toml::Table = source.read()?;
    let mut all = match file.get("tcp") {
        Some(toml::Value::Table(common)) => common.clone(),
        _ => toml::Table::new(),
    };
    // Of CUBIC alone, and so not for groups that have another control.
    if own.contains_key("control") {
        all.remove("hystart");
    }
    all.extend(own.clone());
    let source = source.within(&["group", name]);
    let written: Result<TcpTable, _> = all.try_into();
    let written = written.map_err(|error| source.bad(&["tcp"], error.message()))?;
    tcp::tcp(&source, &written).map(Some)
}

/// Everything else of the groups; `tcps` are theirs.
pub(super) fn groups(
    lines: &Lines<'_>,
    file: &File,
    tables: &[(&str, &GroupTable)],
    tcps: Vec<Tcp>,
    limit: Duration,
) -> Result<Vec<Group>, BadInput> {
    refuse_what_no_group_takes(lines.source, file, tables)?;
    let group = |((name, table), tcp): (&(&str, &GroupTable), Tcp)| {
        Ok(Group {
            name: (*name).to_owned(),
            users: table.users,
            access: access(lines, file, name, table)?,
            tcp,
            demand: demand(lines.source, file, name, table, limit)?,
        })
    };
    tables.iter().zip(tcps).map(group).collect()
}

fn refuse_what_no_group_takes(
    source: &Source<'_>,
    file: &File,
    tables: &[(&str, &GroupTable)],
) -> Result<(), BadInput> {
    let trunk = file.trunk.as_ref();
    if trunk.is_some_and(|trunk| trunk.clients.is_some()) {
        let problem = "every user of a group is a client; leave clients out";
        return Err(source.bad(&["trunk", "clients"], problem));
    }
    let own = tables.iter().all(|(_, table)| table.workload.is_some());
    match &file.workload {
        Some(_) if own => {
            let problem = "every group has a workload of its own; leave this one out";
            Err(source.bad(&["workload"], problem))
        }
        _ => Ok(()),
    }
}

/// Between each user of the group and the site or the trunk.
fn access(
    lines: &Lines<'_>,
    file: &File,
    name: &str,
    table: &GroupTable,
) -> Result<Option<Access>, BadInput> {
    let own = hop_of!(table);
    let (common, rate_bps, delay) = match &file.trunk {
        None if own == HopTable::default() => return Ok(None),
        None => (LineTable::default(), SITE_RATE_BPS, Duration::ZERO),
        Some(trunk) => {
            let common = trunk.access.clone().unwrap_or_default();
            (common, ACCESS_RATE_BPS, ACCESS_DELAY)
        }
    };
    let rate = || common.rate.unwrap_or(Rate::of_bps(rate_bps));
    for (direction, line) in [("down", &own.down), ("up", &own.up)] {
        if let Some(LineText(line)) = line {
            lines.refuse_what_links_have(&["group", name, direction], line)?;
        }
    }
    let hop = HopTable {
        rate: own.rate.or((!own.has_rates()).then(rate)),
        delay: own.delay.or(common.delay),
        loss: own.loss.or(common.loss),
        buffer: own.buffer.or(common.buffer),
        queue: own.queue.or(common.queue),
        ..own
    };
    let (down, up) = lines.hop(&["group", name], &hop, delay)?;
    Ok(Some(Access { down, up }))
}

fn demand(
    source: &Source<'_>,
    file: &File,
    name: &str,
    table: &GroupTable,
    limit: Duration,
) -> Result<crate::Demand, BadInput> {
    let users = Some(table.users);
    let of = |source: &Source<'_>, workload: Option<&WorkloadTable>| {
        load::demand(source, workload.cloned(), users, limit)
    };
    match &table.workload {
        Some(own) => of(&source.within(&["group", name]), Some(own)),
        None => of(source, file.workload.as_ref()),
    }
}
