//! Compiles rules into the sets that the programs use: `bpf/include/rules.h`.

use std::ops::RangeInclusive;

use anabranch_policy::Rules;
use anabranch_policy::abi::{PIECES_MAX, RULE_DEVICES_MAX, RuleAddr, RulesByAddr, RulesByPort};

use super::matches::Matches;
use super::pieces::Pieces;
use super::schedule::Moment;
use super::{RULES_MAX, Rule};

/// The rules exceed a limit of the programs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DoesNotFit {
    /// More than [`RULES_MAX`].
    #[error("{0} rules; at most {RULES_MAX} are allowed: let one rule list several values")]
    Rules(usize),
    /// Too many pieces for the values of one key.
    #[error(
        "the `{key}` of all rules together cut its values into {pieces} pieces, of which {PIECES_MAX} are allowed: use wider or \
         adjacent ones, or fewer"
    )]
    Pieces {
        /// The key as in rules.
        key: &'static str,
        /// The number of pieces that would be needed.
        pieces: usize,
    },
    /// More devices than the programs can distinguish.
    #[error(
        "rules name {0} devices; at most {RULE_DEVICES_MAX} are allowed: use `from` with the networks of the others"
    )]
    Devices(usize),
}

/// Compiles the rules. The class of a rule is its number; the caller may replace it, to keep classes of a former configuration.
/// `ifindex` finds devices; a device that does not exist matches no flow.
pub fn compile(
    rules: &[Rule],
    at: Moment,
    ifindex: impl Fn(&str) -> Option<u32>,
) -> Result<Box<Rules>, DoesNotFit> {
    if rules.len() > RULES_MAX {
        return Err(DoesNotFit::Rules(rules.len()));
    }
    let all: Vec<(u64, &Matches)> = bits().zip(rules.iter().map(|rule| &rule.matches)).collect();
    let mut compiled = Rules::none();
    for (number, class) in (0..).zip(&mut compiled.class).take(rules.len() + 1) {
        *class = number;
    }
    compiled.active = active(rules, at);
    compiled.own = set_of(&all, Matches::is_of_host);
    for (protocol, set) in (0..=u8::MAX).zip(&mut compiled.proto) {
        *set = set_of(&all, |matches| matches.allows(protocol));
    }
    for (code, set) in (0..).zip(&mut compiled.dscp) {
        *set = set_of(&all, |matches| {
            matches.dscp.is_empty() || matches.dscp.contains(&code)
        });
    }
    devices(&all, ifindex, &mut compiled)?;
    by_port("ports", &all, |m| &m.ports, &mut compiled.dport)?;
    by_port(
        "source_ports",
        &all,
        |m| &m.source_ports,
        &mut compiled.sport,
    )?;
    by_addr("from", &all, Matches::lan_ranges, &mut compiled.src)?;
    by_addr("to", &all, Matches::remote_ranges, &mut compiled.dst)?;
    Ok(compiled)
}

/// The rules whose schedule is active at this time, as bits of their numbers.
pub fn active(rules: &[Rule], at: Moment) -> u64 {
    let holds = |rule: &Rule| rule.matches.when.as_ref().is_none_or(|when| when.holds(at));
    let held = bits().zip(rules).filter(|(_, rule)| holds(rule));
    held.fold(0, |set, (bit, _)| set | bit)
}

/// The bits of the rules: that of rule i, from 1, is bit i.
fn bits() -> impl Iterator<Item = u64> {
    (1..=RULES_MAX).map(|number| 1 << number)
}

fn set_of(all: &[(u64, &Matches)], fits: impl Fn(&Matches) -> bool) -> u64 {
    let fitting = all.iter().filter(|(_, matches)| fits(matches));
    fitting.fold(0, |set, (bit, _)| set | bit)
}

fn devices(
    all: &[(u64, &Matches)],
    ifindex: impl Fn(&str) -> Option<u32>,
    compiled: &mut Rules,
) -> Result<(), DoesNotFit> {
    let mut named: Vec<&str> = all
        .iter()
        .flat_map(|(_, matches)| matches.devices.iter().map(String::as_str))
        .collect();
    named.sort_unstable();
    named.dedup();
    if named.len() > RULE_DEVICES_MAX {
        return Err(DoesNotFit::Devices(named.len()));
    }
    compiled.any_device = set_of(all, |matches| matches.devices.is_empty());
    let present = named
        .into_iter()
        .filter_map(|name| Some((name, ifindex(name)?)));
    for ((name, ifindex), place) in present.zip(&mut compiled.device) {
        place.ifindex = ifindex;
        place.set = set_of(all, |matches| matches.devices.iter().any(|d| d == name));
    }
    Ok(())
}

fn by_addr(
    key: &'static str,
    all: &[(u64, &Matches)],
    ranges: impl Fn(&Matches) -> Vec<RangeInclusive<u128>>,
    by: &mut RulesByAddr,
) -> Result<(), DoesNotFit> {
    let sets = sets_of_pieces(key, all, u128::MAX, ranges)?;
    fill(&mut by.set, &mut by.start, &sets, |start| RuleAddr {
        high: (start >> 64) as u64,
        low: start as u64,
    });
    Ok(())
}

fn by_port(
    key: &'static str,
    all: &[(u64, &Matches)],
    ports: impl Fn(&Matches) -> &Vec<RangeInclusive<u16>>,
    by: &mut RulesByPort,
) -> Result<(), DoesNotFit> {
    let sets = sets_of_pieces(key, all, u16::MAX.into(), |matches| {
        port_ranges(ports(matches))
    })?;
    fill(&mut by.set, &mut by.start, &sets, |start| start as u16);
    Ok(())
}

/// The ranges of ports; all ports if there are none.
pub(super) fn port_ranges(ports: &[RangeInclusive<u16>]) -> Vec<RangeInclusive<u128>> {
    let numbers = |range: &RangeInclusive<u16>| (*range.start()).into()..=(*range.end()).into();
    match ports {
        [] => vec![0..=u16::MAX.into()],
        ports => ports.iter().map(numbers).collect(),
    }
}

/// The begin of each piece, and the rules that match its values. Neighbouring pieces with the same rules are merged.
fn sets_of_pieces(
    key: &'static str,
    all: &[(u64, &Matches)],
    last: u128,
    ranges: impl Fn(&Matches) -> Vec<RangeInclusive<u128>>,
) -> Result<Vec<(u128, u64)>, DoesNotFit> {
    let ranges: Vec<_> = all.iter().map(|(bit, m)| (*bit, ranges(m))).collect();
    let pieces = Pieces::cut(last, ranges.iter().flat_map(|(_, ranges)| ranges));
    let mut sets: Vec<(u128, u64)> = pieces.starts().iter().map(|start| (*start, 0)).collect();
    for (bit, ranges) in &ranges {
        for ((_, set), is_within) in sets.iter_mut().zip(pieces.within(ranges)) {
            *set |= bit * u64::from(is_within);
        }
    }
    sets.dedup_by_key(|(_, set)| *set);
    match sets.len() {
        pieces if pieces > PIECES_MAX => Err(DoesNotFit::Pieces { key, pieces }),
        _ => Ok(sets),
    }
}

/// Unused places after the last piece begin at the greatest value and have the set of the last piece.
fn fill<T>(set: &mut [u64], start: &mut [T], sets: &[(u128, u64)], value: impl Fn(u128) -> T) {
    let last = sets.last().map_or(0, |(_, set)| *set);
    let beyond = std::iter::repeat((u128::MAX, last));
    let rows = sets.iter().copied().chain(beyond);
    for ((set, start), row) in set.iter_mut().zip(start).zip(rows) {
        (*start, *set) = (value(row.0), row.1);
    }
}
