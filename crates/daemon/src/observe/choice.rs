//! Chooses the IPv6 address and router of a link whose device has several.
//!
//! Any host on the segment of a link can advertise itself, and each advertisement may add an address and a default route. So a new
//! one is no reason to leave one that works:
//!
//! - **Router**: the one in use stays as long as a default route uses it, whatever the metric or preference (RFC 4191) of another.
//!   A default route of an administrator is followed.
//! - **Address**: the one in use stays as long as it is preferred. Otherwise addresses that the link's router has advertised
//!   come before those of other routers (RFC 6724 section 5, rule 5.5), and global before unique local ones.
//! - **Renumbering**: if the same router has begun to advertise another prefix, and has not advertised that of the address in use
//!   since, the new one is used (RFC 8978).
//! - **Failure**: a link that has been dead for some seconds tries those that were not tried yet ([`Uses`]).
//!
//! IPv4 needs none of this: its address and router come from a client, which has asked for them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use anabranch_core::{Family, LinkId, LinkSet, LinkState, Time};

use super::{
    Advertised, Desired, Device, Hop, HostRoute, LinkPath, LinkView, Prefix, Snapshot, TABLE_MAIN,
};
use crate::config::Config;
use crate::slots::Slots;

/// Another address or router is tried when a link has been dead for this long; ...
const DEAD_BEGINS: Duration = Duration::from_secs(3);
/// ... twice as long each time, up to this.
const DEAD_MAX: Duration = Duration::from_secs(60);

/// What a link uses of its device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InUse {
    /// The last.
    pub path: Option<LinkPath>,
    /// Addresses and routers with which the link was dead.
    pub failed: BTreeSet<IpAddr>,
}

impl InUse {
    fn is_gateway(&self, via: Option<IpAddr>) -> bool {
        let path = self.path.as_ref();
        path.is_some_and(|path| path.gateway == via)
    }

    fn is_external(&self, address: IpAddr) -> bool {
        let path = self.path.as_ref();
        path.is_some_and(|path| path.external == address)
    }

    fn has_failed(&self, address: Option<IpAddr>) -> bool {
        address.is_some_and(|address| self.failed.contains(&address))
    }
}

type Default<'a> = (&'a HostRoute, Hop);

/// Of default routes through a device, in the order of their metric, the one to use.
pub(super) fn router<'a>(
    device: &Device,
    family: Family,
    all: &[Default<'a>],
) -> Option<Default<'a>> {
    let best = *all.first()?;
    if family == Family::V4 || !best.0.of_lease {
        return Some(best);
    }
    let used = &device.in_use;
    let rank = |(_, hop): &&Default<'a>| (used.has_failed(hop.via), !used.is_gateway(hop.via));
    alike(best, all).min_by_key(rank).copied()
}

/// Those of the main table, or those of others.
fn alike<'a, 'b>(
    best: Default<'a>,
    all: &'b [Default<'a>],
) -> impl Iterator<Item = &'b Default<'a>> {
    let is_main = |(route, _): &Default<'_>| route.table == TABLE_MAIN;
    all.iter().filter(move |one| is_main(one) == is_main(&best))
}

/// The router that has advertised the address, where the other has not.
pub(super) fn router_of<'a>(
    device: &Device,
    external: IpAddr,
    chosen: Default<'a>,
    all: &[Default<'a>],
) -> Default<'a> {
    let has = |via: Option<IpAddr>| {
        let mut advertised = device.advertised_for(external);
        advertised.any(|one| Some(one.router) == via)
    };
    if !chosen.0.of_lease || has(chosen.1.via) {
        return chosen;
    }
    let other = alike(chosen, all).find(|(_, hop)| has(hop.via));
    *other.unwrap_or(&chosen)
}

impl Device {
    fn advertised_for(&self, address: IpAddr) -> impl Iterator<Item = &Advertised> {
        let is_in = move |one: &&Advertised| one.prefix.overlaps(Prefix::host(address));
        self.advertised.iter().filter(is_in)
    }

    /// Of IPv6, for a link with this router; `is_lans` are addresses that cannot be told from the LAN's.
    pub(super) fn best_v6(
        &self,
        router: Option<IpAddr>,
        is_lans: impl Fn(Prefix) -> bool,
    ) -> Option<IpAddr> {
        let own = self.addresses.iter();
        let own: Vec<Prefix> = own
            .filter(|own| own.family() == Family::V6)
            .copied()
            .collect();
        let is_deprecated = |own: Prefix| self.deprecated.contains(&own.address);
        let by_router = |own: Prefix| {
            let advertised = self.advertised_for(own.address);
            advertised.filter(|one| Some(one.router) == router)
        };
        let is_site = |own: Prefix| matches!(own.address, IpAddr::V6(v6) if v6.is_unique_local());
        let is_foreign = |own: Prefix| {
            self.advertised_for(own.address).next().is_some() && by_router(own).next().is_none()
        };
        let is_superseded = |former: Prefix| {
            let last = by_router(former).map(|one| one.last).max();
            let rivals = own
                .iter()
                .filter(|own| !is_deprecated(**own) && is_site(**own) == is_site(former));
            let begun = rivals.flat_map(|own| by_router(*own)).map(|one| one.first);
            last.zip(begun.max())
                .is_some_and(|(last, begun)| begun > last)
        };
        let rank = |own: &&Prefix| {
            (
                is_lans(**own),
                is_deprecated(**own),
                self.in_use.has_failed(Some(own.address)),
                is_foreign(**own),
                is_site(**own),
                is_superseded(**own),
                !self.in_use.is_external(own.address),
            )
        };
        own.iter().min_by_key(rank).map(|own| own.address)
    }

    fn preferred_v6(&self) -> impl Iterator<Item = IpAddr> {
        let own = self.addresses.iter().map(|own| own.address);
        own.filter(|own| own.is_ipv6() && !self.deprecated.contains(own))
    }
}

/// What the links use, kept between inspections of the host.
#[derive(Debug, Default)]
pub struct Uses(BTreeMap<LinkId, Use>);

#[derive(Debug, Default)]
struct Use {
    used: InUse,
    /// Preferred addresses of the device, and the routers of its default routes.
    all: BTreeSet<IpAddr>,
    dead_since: Option<Time>,
    /// Zero at first.
    patience: Duration,
}

impl Uses {
    /// Adds what links use to a snapshot, before it is evaluated.
    pub fn tell(&self, config: &Config, slots: &Slots, host: &mut Snapshot) {
        for link in &config.links {
            let known = slots.id(&link.name).and_then(|id| self.0.get(&id));
            if let Some((known, device)) = known.zip(host.devices.get_mut(&link.device)) {
                device.in_use.clone_from(&known.used);
            }
        }
    }

    /// Records what links use, after the evaluation.
    pub fn note(&mut self, host: &Snapshot, wanted: &Desired) {
        self.0.retain(|id, _| wanted.links.contains_key(id));
        for (id, view) in &wanted.links {
            let Some(path) = view.path(Family::V6) else {
                continue;
            };
            let mut devices = host.devices.values();
            let device = devices.find(|device| device.ifindex == path.ifindex);
            let routers = host.default_routes(path.ifindex, Family::V6).into_iter();
            let routers = routers.filter_map(|(_, hop)| hop.via);
            let entry = self.0.entry(*id).or_default();
            let own = device.into_iter().flat_map(Device::preferred_v6);
            entry.all = routers.chain(own).collect();
            entry.used.path = Some(path.clone());
        }
    }

    /// Whether a link has been dead for so long that it should try something else. Then the host has to be inspected.
    pub fn turn(&mut self, now: Time, links: &BTreeMap<LinkId, LinkView>, alive: LinkSet) -> bool {
        let mut has_turned = false;
        for (id, known) in &mut self.0 {
            let state = links.get(id).map(|view| view.state(Family::V6));
            let is_dead = state == Some(LinkState::Present) && !alive.contains(*id);
            has_turned |= known.turn(now, is_dead);
        }
        has_turned
    }
}

impl Use {
    fn turn(&mut self, now: Time, is_dead: bool) -> bool {
        let path = self.used.path.as_ref().filter(|_| is_dead);
        let in_use = path.map(|path| [Some(path.external), path.gateway]);
        let is_other = |one: &&IpAddr| in_use.is_some_and(|own| !own.contains(&Some(**one)));
        let Some(own) = in_use.filter(|_| self.all.iter().any(|one| is_other(&one))) else {
            self.dead_since = None;
            self.patience = Duration::ZERO;
            self.used.failed.clear();
            return false;
        };
        let since = *self.dead_since.get_or_insert(now);
        let patience = self.patience.max(DEAD_BEGINS);
        if now.since(since) < patience {
            return false;
        }
        self.dead_since = Some(now);
        self.patience = (patience * 2).min(DEAD_MAX);
        let own = own.into_iter().flatten();
        self.used.failed.extend(own.clone());
        // When all were tried, it starts again, but not with the last one.
        if self.all.is_subset(&self.used.failed) {
            self.used.failed = own.collect();
        }
        true
    }
}
