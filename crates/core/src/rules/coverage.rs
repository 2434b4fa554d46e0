//! Finds rules that can never match, and rules that earlier ones hide in part.
//!
//! The values of each field are cut into pieces, as by the compiler, so that no rule distinguishes two values of a piece. A rule is
//! then a box: a set of pieces for each field. It may be several boxes, because the host's own traffic comes from no network and by
//! no device, LAN traffic from a network and by a device, and both ends of a flow are of the same address family. What a rule sees
//! are its boxes less those of the rules before it. This is exact. To subtract a box from another leaves at most as many boxes as
//! there are fields. If there are more than [`BOXES_MAX`] in all, the result is [`Sight::Unknown`].

use std::ops::RangeInclusive;

use anabranch_policy::Family;
use anabranch_policy::abi::FAMILIES;

use super::Rule;
use super::compile::port_ranges;
use super::matches::{ALL_V4, ICMP, ICMP6, Matches, TCP, UDP};
use super::pieces::Pieces;
use super::schedule::WEEK;

/// The part of the traffic that a rule matches and earlier rules leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// All of it.
    Clear,
    /// A part: earlier rules, by their places in the list, take the rest.
    Partly {
        /// Rules that also take other traffic.
        crossed: Vec<usize>,
        /// Rules that take nothing else: exceptions from this rule.
        within: Vec<usize>,
    },
    /// None.
    Never(Finding),
    /// Too many boxes to decide.
    Unknown,
}

/// Why a rule can never match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Its own fields exclude each other.
    Contradiction(&'static str),
    /// Earlier rules, by their places in the list, take all of it together.
    Covered(Vec<usize>),
}

/// Maximum number of boxes for one rule.
const BOXES_MAX: usize = 4096;
const FIELDS: usize = 8;
/// The protocols that the gateway carries, and whether they exist in IPv4 and in IPv6.
const PROTOCOLS: [(u8, [bool; FAMILIES]); 4] = [
    (ICMP, [true, false]),
    (TCP, [true, true]),
    (UDP, [true, true]),
    (ICMP6, [false, true]),
];
const LAST_PORT: u128 = u16::MAX as u128;

/// The coverage of each rule. `lan` lists all LAN devices.
pub fn coverage(rules: &[Rule], lan: &[String]) -> Vec<Sight> {
    let field = Fields::cut(rules, lan);
    let boxes: Vec<Vec<Cells>> = rules
        .iter()
        .map(|rule| field.boxes(&rule.matches))
        .collect();
    (0..rules.len())
        .map(|index| match contradiction(&rules[index].matches) {
            Some(why) => Sight::Never(Finding::Contradiction(why)),
            None => sight(&boxes, index),
        })
        .collect()
}

fn contradiction(matches: &Matches) -> Option<&'static str> {
    let own_only = !matches.from.is_empty() && matches.lan_ranges().is_empty();
    if matches.looks_at_ports() && ![TCP, UDP].iter().any(|p| matches.allows(*p)) {
        return Some("it names ports, which only TCP and UDP have");
    }
    if own_only && !matches.devices.is_empty() {
        return Some("it names a LAN device, by which the gateway's own traffic does not come");
    }
    None
}

fn sight(boxes: &[Vec<Cells>], index: usize) -> Sight {
    let own = &boxes[index];
    if own.is_empty() {
        return Sight::Never(Finding::Contradiction("no traffic has all of its values"));
    }
    let meets = |other: &usize| crosses(&boxes[*other], own);
    let earlier: Vec<usize> = (0..index).filter(meets).collect();
    let mut left = own.clone();
    let mut takers = Vec::new();
    for &other in &earlier {
        let Some(rest) = without(&left, &boxes[other]) else {
            return Sight::Unknown;
        };
        if crosses(&boxes[other], &left) {
            takers.push(other);
        }
        left = rest;
        if left.is_empty() {
            return Sight::Never(Finding::Covered(takers));
        }
    }
    if earlier.is_empty() {
        return Sight::Clear;
    }
    let is_within =
        |other: &usize| without(&boxes[*other], own).is_some_and(|rest| rest.is_empty());
    let (within, crossed) = earlier.into_iter().partition(is_within);
    Sight::Partly { crossed, within }
}

/// The pieces of each field.
struct Fields {
    source: Pieces,
    destination: Pieces,
    source_port: Pieces,
    port: Pieces,
    minute: Pieces,
    lan: Vec<String>,
}

impl Fields {
    fn cut(rules: &[Rule], lan: &[String]) -> Self {
        let pieces = |last, ranges: &dyn Fn(&Matches) -> Vec<RangeInclusive<u128>>| {
            let all: Vec<_> = rules
                .iter()
                .flat_map(|rule| ranges(&rule.matches))
                .collect();
            Pieces::cut(
                last,
                all.iter()
                    .chain([&ALL_V4].into_iter().filter(|_| last == u128::MAX)),
            )
        };
        Fields {
            source: pieces(u128::MAX, &Matches::lan_ranges),
            destination: pieces(u128::MAX, &Matches::remote_ranges),
            source_port: pieces(LAST_PORT, &|m| port_ranges(&m.source_ports)),
            port: pieces(LAST_PORT, &|m| port_ranges(&m.ports)),
            minute: pieces(u128::from(WEEK) - 1, &minutes),
            lan: lan.to_vec(),
        }
    }

    /// The boxes of LAN traffic and of the host's own traffic, for each family, without those that are empty.
    fn boxes(&self, matches: &Matches) -> Vec<Cells> {
        let families = Family::ALL.into_iter();
        families
            .flat_map(|family| self.boxes_of(matches, family))
            .filter(|cells| !cells.is_empty())
            .collect()
    }

    fn boxes_of(&self, matches: &Matches, family: Family) -> [Cells; 2] {
        let names =
            |device: &String| matches.devices.is_empty() || matches.devices.contains(device);
        let no_network = vec![false; self.source.starts().len()];
        let no_device = vec![false; self.lan.len()];
        let from = within(family, &self.source, &matches.lan_ranges());
        let to = within(family, &self.destination, &matches.remote_ranges());
        let lan = (
            [&[false], &from[..]].concat(),
            std::iter::once(false)
                .chain(self.lan.iter().map(names))
                .collect(),
        );
        let own = (
            [&[matches.is_of_host()], &no_network[..]].concat(),
            [&[matches.devices.is_empty()], &no_device[..]].concat(),
        );
        let carried =
            |(number, by): &(u8, [bool; FAMILIES])| by[family.index()] && matches.allows(*number);
        [lan, own].map(|(origin, device)| {
            Cells([
                Bits::of(origin),
                Bits::of(device),
                Bits::of(to.clone()),
                PROTOCOLS.iter().map(carried).collect(),
                Bits::of(self.source_port.within(&port_ranges(&matches.source_ports))),
                Bits::of(self.port.within(&port_ranges(&matches.ports))),
                (0..64)
                    .map(|code| matches.dscp.is_empty() || matches.dscp.contains(&code))
                    .collect(),
                Bits::of(self.minute.within(&minutes(matches))),
            ])
        })
    }
}

/// The pieces that the networks of one family have.
fn within(family: Family, pieces: &Pieces, ranges: &[RangeInclusive<u128>]) -> Vec<bool> {
    let v4 = pieces.within(&[ALL_V4]);
    let within = pieces.within(ranges).into_iter().zip(v4);
    within
        .map(|(within, is_v4)| within && is_v4 == (family == Family::V4))
        .collect()
}

fn minutes(matches: &Matches) -> Vec<RangeInclusive<u128>> {
    match &matches.when {
        Some(when) => when.ranges(),
        None => vec![0..=u128::from(WEEK) - 1],
    }
}

/// A set of pieces.
#[derive(Clone, Debug)]
struct Bits(Vec<u64>);

impl Bits {
    fn of(pieces: Vec<bool>) -> Self {
        pieces.into_iter().collect()
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    fn meets(&self, other: &Bits) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }

    fn and(&self, other: &Bits) -> Bits {
        Bits(self.0.iter().zip(&other.0).map(|(a, b)| a & b).collect())
    }

    fn less(&self, other: &Bits) -> Bits {
        Bits(self.0.iter().zip(&other.0).map(|(a, b)| a & !b).collect())
    }
}

impl FromIterator<bool> for Bits {
    fn from_iter<I: IntoIterator<Item = bool>>(pieces: I) -> Self {
        let mut words = Vec::new();
        for (index, piece) in pieces.into_iter().enumerate() {
            if index % 64 == 0 {
                words.push(0);
            }
            words[index / 64] |= u64::from(piece) << (index % 64);
        }
        Bits(words)
    }
}

/// A box: for each field the pieces that it has.
#[derive(Clone, Debug)]
struct Cells([Bits; FIELDS]);

impl Cells {
    fn is_empty(&self) -> bool {
        self.0.iter().any(Bits::is_empty)
    }

    fn meets(&self, other: &Cells) -> bool {
        self.0
            .iter()
            .zip(&other.0)
            .all(|(one, other)| one.meets(other))
    }

    /// This box less the other, as boxes that do not overlap.
    fn less(&self, other: &Cells) -> Vec<Cells> {
        let mut rest = self.clone();
        let mut parts = Vec::new();
        for field in 0..FIELDS {
            let outside = rest.0[field].less(&other.0[field]);
            if !outside.is_empty() {
                let mut part = rest.clone();
                part.0[field] = outside;
                parts.push(part);
            }
            rest.0[field] = rest.0[field].and(&other.0[field]);
        }
        parts
    }
}

fn crosses(one: &[Cells], other: &[Cells]) -> bool {
    one.iter().any(|a| other.iter().any(|b| a.meets(b)))
}

/// `boxes` less `others`; none if there are too many boxes.
fn without(boxes: &[Cells], others: &[Cells]) -> Option<Vec<Cells>> {
    others.iter().try_fold(boxes.to_vec(), |boxes, other| {
        let mut left = Vec::new();
        for cells in boxes {
            match cells.meets(other) {
                true => left.extend(cells.less(other)),
                false => left.push(cells),
            }
            if left.len() > BOXES_MAX {
                return None;
            }
        }
        Some(left)
    })
}

#[cfg(test)]
mod tests;
