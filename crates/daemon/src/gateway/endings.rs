//! Ends the flows of links that are lost, and the flows of former addresses of links.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use anabranch_api::FlowRow;
use anabranch_core::{ClassSet, Family, LinkId};

use super::{GatewayRole, Surroundings};
use crate::driver::Ending;
use crate::observe::{Desired, Prefix};
use crate::plane::{self, Ended, LinkPath, Plane, Walk, Which};

/// The external addresses of a link's flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct External {
    pub(super) address: IpAddr,
    prefix: Option<(Ipv6Addr, u8)>,
}

impl From<&LinkPath> for External {
    fn from(path: &LinkPath) -> Self {
        Self {
            address: path.external,
            prefix: path.prefix,
        }
    }
}

/// A former external address of a link that some flows still use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lingering {
    link: LinkId,
    family: Family,
    address: IpAddr,
    /// Time on the programs' clock. Flows that began later have another address.
    opened_before: Duration,
}

impl<P: Plane, S: Surroundings> GatewayRole<P, S> {
    /// Ends the flows that are open at this time. Flows that are opened later are kept, however late the table is read.
    pub(super) fn end_flows(&mut self, ending: Ending) {
        let ordered = self.plane.walker().now();
        self.end_flows_before(ending, ordered);
    }

    fn end_flows_before(&mut self, ending: Ending, opened_before: Duration) {
        let walker = self.plane.walker();
        let left = self.left(ending.link, ending.family);
        self.endings
            .spawn_blocking(move || (left, end(&*walker, ending, opened_before)));
    }

    fn left(&self, id: LinkId, family: Family) -> Left {
        Left {
            link: self.slots.name(id).unwrap_or("of before").to_owned(),
            routed: self.is_routed(id, family),
        }
    }

    pub(super) fn ended(
        &mut self,
        (left, ended): (Left, Result<Ended, plane::Error>),
    ) -> anyhow::Result<()> {
        left.tell(ended?);
        if self.endings.is_empty() {
            self.shell.tell_rest_soon();
            for (reply, response) in self.unanswered.drain(..) {
                // The client may have disconnected.
                let _ = reply.send(response);
            }
        }
        Ok(())
    }

    /// Records a link's external address. Flows of its former address are ended, because answers cannot arrive any more. As long as
    /// the device has the former address, flows keep it (RFC 4862 section 5.5.4). Flows of a link without NAT do not use the link's
    /// address.
    pub(super) fn take_external(
        &mut self,
        id: LinkId,
        family: Family,
        external: External,
        others: &[IpAddr],
    ) {
        let former = self.externals.insert((id, family), external);
        let Some(former) = former.filter(|former| *former != external) else {
            return;
        };
        let is_kept = others.contains(&former.address) && former.prefix == external.prefix;
        if is_kept && !self.is_routed(id, family) {
            let switched = self.plane.walker().now();
            self.linger(id, family, former.address, switched);
            return;
        }
        if former.address != external.address {
            self.abandoned.push((id, former.address));
        }
        if !self.is_routed(id, family) {
            self.end_flows(all_flows(id, family));
        }
    }

    fn linger(&mut self, link: LinkId, family: Family, address: IpAddr, opened_before: Duration) {
        self.lingering.push(Lingering {
            link,
            family,
            address,
            opened_before,
        });
    }

    /// Ends the flows of addresses that are no longer on their devices.
    pub(super) fn end_lingering(&mut self, wanted: &Desired) {
        let stays = |lingering: &Lingering| {
            let view = wanted.links.get(&lingering.link);
            let path = view.map(|view| &view.paths[lingering.family]);
            path.is_some_and(|path| path.others.contains(&lingering.address))
        };
        let external = |lingering: &Lingering| {
            let key = (lingering.link, lingering.family);
            self.externals.get(&key).map(|external| external.address)
        };
        let all = std::mem::take(&mut self.lingering).into_iter();
        let former = all.filter(|lingering| external(lingering) != Some(lingering.address));
        let (stay, leave): (Vec<_>, Vec<_>) = former.partition(stays);
        self.lingering = stay;
        for lingering in leave {
            self.abandoned.push((lingering.link, lingering.address));
            let ending = all_flows(lingering.link, lingering.family);
            self.end_flows_before(ending, lingering.opened_before);
        }
    }

    /// Ends flows after a restart. While no daemon ran, links may have left the configuration, NAT may have changed, and addresses
    /// too.
    pub(super) fn end_stale_flows(&mut self) -> anyhow::Result<()> {
        if !self.shell.adopted {
            return Ok(());
        }
        let walker = self.plane.walker();
        let rows = walker.flows()?;
        let now = walker.now();
        let kept = rows.iter().filter(|row| self.is_kept(row));
        for ((link, family, address), opened_before) in last_opened(kept, now, address_of) {
            self.linger(link, family, address, opened_before);
        }
        let stale = rows.iter().filter(|row| self.is_stale(row));
        for ((id, family), opened_before) in last_opened(stale, now, path_of) {
            let ended = end(&*walker, all_flows(id, family), opened_before)?;
            self.left(id, family).tell(ended);
        }
        Ok(())
    }

    /// Whether a flow has a former external address that is still on its device.
    fn is_kept(&self, row: &FlowRow) -> bool {
        let (id, family, external) = address_of(row);
        self.others(id, family).contains(&external)
    }

    fn others(&self, id: LinkId, family: Family) -> &[IpAddr] {
        let view = self.told.links.get(&id);
        view.map_or(&[], |view| &view.paths[family].others)
    }

    fn is_stale(&self, row: &FlowRow) -> bool {
        let (id, family, external) = address_of(row);
        let moved = match (self.is_routed(id, family), self.path_of(id, family)) {
            (true, _) => row.external != row.local,
            (false, Some(path)) => {
                let is_kept = self.others(id, family).contains(&external);
                path.external != external && !is_in_prefix(path, external) && !is_kept
            }
            (false, None) => false,
        };
        moved || self.slots.name(id).is_none()
    }
}

/// Whether `address` may be that of a host under the link's prefix.
fn is_in_prefix(path: &LinkPath, address: IpAddr) -> bool {
    path.prefix.is_some_and(|(network, length)| {
        Prefix::new(network.into(), length).overlaps(Prefix::host(address))
    })
}

/// The link and the external address of a flow.
fn address_of(row: &FlowRow) -> (LinkId, Family, IpAddr) {
    let external = row.external.ip();
    (LinkId(row.link), Family::from(external), external)
}

/// The link and family of a flow.
fn path_of(row: &FlowRow) -> (LinkId, Family) {
    let (link, family, _) = address_of(row);
    (link, family)
}

/// For each key, a time just after the youngest of its flows was opened, by the programs' clock. Flows that a link opens later have
/// another address.
fn last_opened<'a, K: Ord>(
    rows: impl Iterator<Item = &'a FlowRow>,
    now: Duration,
    key: impl Fn(&FlowRow) -> K,
) -> BTreeMap<K, Duration> {
    let mut last = BTreeMap::new();
    for row in rows {
        // Ages are rounded down to milliseconds, and were read before `now`.
        let opened =
            now.saturating_sub(Duration::from_millis(row.age_ms)) + Duration::from_millis(1);
        let latest = last.entry(key(row)).or_insert(opened);
        *latest = opened.max(*latest);
    }
    last
}

fn all_flows(link: LinkId, family: Family) -> Ending {
    Ending {
        link,
        family,
        classes: ClassSet::ALL,
        which: Which::All,
    }
}

fn end(walker: &impl Walk, ending: Ending, opened_before: Duration) -> Result<Ended, plane::Error> {
    let Ending {
        link,
        family,
        classes,
        which,
    } = ending;
    walker.end_flows(link, family, classes, which, opened_before)
}

/// A link whose flows end.
pub(super) struct Left {
    link: String,
    /// Without NAT, so that its flows can continue over another link.
    routed: bool,
}

impl Left {
    /// Logs how many flows ended, if any.
    fn tell(&self, Ended { tcp, udp }: Ended) {
        let link = &self.link;
        match (tcp + udp, self.routed) {
            (0, _) => {}
            (flows, true) => tracing::info!(
                "link {link}: let go of {flows} flows, for other links without NAT to take"
            ),
            (_, false) => {
                tracing::info!("link {link}: ended {tcp} TCP flows, rebinding {udp} UDP flows");
            }
        }
    }
}
