//! What the programs choose among: the servers of a service, by their places.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anabranch_core::served::Served;
use anabranch_core::slow_start::WHOLE;
use anabranch_core::{self as core, Family};
use anabranch_dataplane::services::ServerId;
use anabranch_policy::abi::Gauges;

use super::config::Service;
use super::slow::parts_of;
use super::{Placed, PlacedServer};

/// The servers for clients of a family that have a weight, at the index of their places; `served` says what each did in the last window.
pub(super) fn members(
    service: &Service,
    servers: &BTreeMap<SocketAddr, PlacedServer>,
    family: Family,
    served: impl Fn(SocketAddr) -> Served,
) -> Vec<Option<core::Member>> {
    let count = servers.values().map(|server| server.id.index() + 1).max();
    let mut members = vec![None; count.unwrap_or(0)];
    let is_rising = servers
        .values()
        .any(|server| parts_of(service, server) < WHOLE);
    let serving = service.servers.iter().filter(|one| one.weight > 0);
    for member in serving.filter(|member| service.serves(member, family)) {
        if let Some(server) = servers.get(&member.endpoint) {
            members[server.id.index()] = Some(core::Member {
                weight: match is_rising {
                    true => member.weight * parts_of(service, server),
                    false => member.weight,
                },
                is_usable: server.is_used,
                is_backup: member.backup,
                base: 0,
                endpoint: member.endpoint,
                served: served(member.endpoint),
            });
        }
    }
    members
}

/// The limits of servers that have one.
pub(super) fn limits(service: &Service, placed: &Placed) -> BTreeMap<ServerId, u32> {
    let members = service.servers.iter();
    let limits = members.filter_map(|member| {
        let server = placed.servers.get(&member.endpoint)?;
        Some((server.id, member.limit?.get()))
    });
    limits.collect()
}

/// Whether both are the same, but for the connections from which shares are counted.
pub(super) fn is_same(before: &[Option<core::Member>], now: &[Option<core::Member>]) -> bool {
    are_alike(before, now, |member| core::Member { base: 0, ..member })
}

/// Whether rows of hashes are the same among both: what servers have done, and whether they are in use, is nothing to rows.
pub(super) fn has_same_rows(before: &[Option<core::Member>], now: &[Option<core::Member>]) -> bool {
    are_alike(before, now, |member| core::Member {
        base: 0,
        is_usable: true,
        served: Served::default(),
        ..member
    })
}

fn are_alike(
    before: &[Option<core::Member>],
    now: &[Option<core::Member>],
    matters: impl Fn(core::Member) -> core::Member,
) -> bool {
    let of = |member: &Option<core::Member>| member.map(&matters);
    before.len() == now.len() && before.iter().map(of).eq(now.iter().map(of))
}

/// Counts shares from now on. Otherwise a server that joins would get all connections until it has had as many as the others.
pub(super) fn counted_from_now(
    members: Vec<Option<core::Member>>,
    gauges: &Gauges,
) -> Vec<Option<core::Member>> {
    let counted = members.into_iter().zip(&gauges.target);
    let counted = counted.map(|(member, gauge)| {
        let base = gauge.dispatched as u32;
        member.map(|member| core::Member { base, ..member })
    });
    counted.collect()
}
