//! Keeps the next hops of links in the kernel's neighbour table.
//!
//! A LAN host that answers for invented addresses can fill that table, which all devices share. The kernel then removes entries
//! that were not used lately, and resolves no new ones. An entry that is `extern_learn` is neither counted nor removed
//! (`neigh_alloc` and `neigh_forced_gc` of linux/net/core/neighbour.c), and a `managed` one is kept resolved (since Linux 5.16).
//! Our entries have our protocol number. Entries that others keep, permanent or learned externally, are not changed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

use anabranch_core::Family;
use nix::net::if_::if_nametoindex;
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use serde::{Deserialize, Serialize};

use super::ids::PROTOCOL;
use super::netlink::{Netlink, attribute, find, number_of};
use crate::config::Config;
use crate::observe::{Desired, LinkView, NearRoute, Own};
use crate::slots::Slots;

// linux/neighbour.h, where a message begins with `struct ndmsg`
const NEW: u16 = libc::RTM_NEWNEIGH;
const DELETE: u16 = libc::RTM_DELNEIGH;
const GET: u16 = libc::RTM_GETNEIGH;
const HEADER: usize = 12;
const DESTINATION: u16 = 1;
const NOTED_PROTOCOL: u16 = 12;
const FLAGS_EXT: u16 = 15;
const STATE_AT: usize = 8;
const FLAGS_AT: usize = 10;
const PERMANENT: u16 = 0x80;
const EXT_LEARNED: u8 = 1 << 4;
const EXT_MANAGED: u32 = 1;
// linux/if_link.h, where a message begins with `struct ifinfomsg`
const GET_LINK: u16 = libc::RTM_GETLINK;
const LINK_HEADER: usize = 16;
const EXT_MASK: u16 = 29;
const CARRIER_CHANGES: u16 = 35;
// linux/rtnetlink.h
const SKIP_STATS: u32 = 1 << 3;
/// Maximum per link: its gateways and the routers of its specific routes.
const PER_LINK_MAX: usize = 32;

/// A next hop of a link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NextHop {
    device: String,
    address: IpAddr,
}

/// The entries that are kept, with the number of carrier changes of the device at that time. When a carrier is lost, the kernel
/// drops ordinary entries, because another host may answer afterwards, but it does not drop these.
#[derive(Debug, Default)]
pub struct Kept(BTreeMap<NextHop, u32>);

/// The next hops of links whose devices have neighbours.
pub fn of_links(config: &Config, slots: &Slots, desired: &Desired) -> BTreeSet<NextHop> {
    let links = config.links.iter().filter_map(|link| {
        let id = slots.id(&link.name)?;
        let hops = of_link(desired.links.get(&id)?, desired.beside.links.get(&id));
        let hops = hops.into_iter().take(PER_LINK_MAX);
        Some(hops.map(|address| NextHop {
            device: link.device.clone(),
            address,
        }))
    });
    links.flatten().collect()
}

/// The link's gateways, then the routers of its specific routes.
fn of_link(view: &LinkView, own: Option<&Own>) -> Vec<IpAddr> {
    let paths = Family::ALL.map(|family| view.usable(family));
    let mut with_neighbours = paths.iter().flatten().filter(|path| !path.point_to_point);
    if with_neighbours.clone().next().is_none() {
        return Vec::new();
    }
    let gateways = with_neighbours.by_ref().filter_map(|path| path.gateway);
    let near = own.into_iter().flat_map(|own| own.near.iter());
    let routers = near.flat_map(|(_, near)| near.routes.values());
    let routers = routers.filter_map(|route| match route {
        NearRoute::Through { hop, .. } => hop.via,
        NearRoute::Elsewhere => None,
    });
    gateways.chain(routers).collect()
}

impl Kept {
    /// Keeps the wanted entries, and releases the others of `former`.
    pub fn keep(
        &mut self,
        wanted: &BTreeSet<NextHop>,
        former: &BTreeSet<NextHop>,
    ) -> io::Result<()> {
        self.0.retain(|hop, _| wanted.contains(hop));
        if wanted.is_empty() && former.is_empty() {
            return Ok(());
        }
        let netlink = Netlink::connect(NETLINK_ROUTE)?;
        for gone in former.difference(wanted) {
            gone.release(&netlink)?;
        }
        for hop in wanted {
            let changes = carrier_changes(&netlink, hop.device());
            if self
                .0
                .insert(hop.clone(), changes)
                .is_some_and(|then| then != changes)
            {
                hop.release(&netlink)?;
            }
            hop.hold(&netlink)?;
        }
        Ok(())
    }

    /// Whether another program removed an entry, or a carrier was lost since; called often.
    pub fn differs(&self) -> bool {
        let Ok(netlink) = Netlink::connect(NETLINK_ROUTE) else {
            return false;
        };
        let mut kept = self.0.iter();
        kept.any(|(hop, changes)| {
            let device = hop.device();
            let is_lost = || hop.entry(&netlink, device).is_ok_and(|it| it.is_none());
            carrier_changes(&netlink, device) != *changes || is_lost()
        })
    }
}

/// Who keeps an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keeper {
    Us,
    Others,
    /// Only the kernel, as long as it likes.
    Nobody,
}

impl NextHop {
    /// Keeps it. An existing entry keeps its state; a new one is resolved at once.
    fn hold(&self, netlink: &Netlink) -> io::Result<()> {
        let device = self.device();
        match self.entry(netlink, device)? {
            Some(Keeper::Us | Keeper::Others) => Ok(()),
            Some(Keeper::Nobody) | None => {
                let Some(mut body) = device.map(|device| self.message(device, EXT_LEARNED)) else {
                    return Ok(());
                };
                attribute(&mut body, NOTED_PROTOCOL, &[PROTOCOL]);
                attribute(&mut body, FLAGS_EXT, &EXT_MANAGED.to_ne_bytes());
                netlink.replace(NEW, &body)
            }
        }
    }

    /// Makes it an ordinary entry, which the next packet resolves again.
    fn release(&self, netlink: &Netlink) -> io::Result<()> {
        let device = self.device();
        match (self.entry(netlink, device)?, device) {
            (Some(Keeper::Us), Some(device)) => netlink.order(DELETE, &self.message(device, 0)),
            _ => Ok(()),
        }
    }

    /// The index of its device, if there is one.
    fn device(&self) -> Option<u32> {
        if_nametoindex(self.device.as_str()).ok()
    }

    /// Who keeps the entry; none if there is no entry or no device.
    fn entry(&self, netlink: &Netlink, device: Option<u32>) -> io::Result<Option<Keeper>> {
        let Some(device) = device else {
            return Ok(None);
        };
        match netlink.get(GET, &self.message(device, 0)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            answer => answer.map(|entry| Some(keeper(&entry))),
        }
    }

    fn message(&self, device: u32, flags: u8) -> Vec<u8> {
        let octets = match self.address {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        let mut body = vec![0; HEADER];
        body[0] = number_of(self.address.into());
        body[4..8].copy_from_slice(&device.to_ne_bytes());
        body[FLAGS_AT] = flags;
        attribute(&mut body, DESTINATION, &octets);
        body
    }
}

/// How often a device has lost or found its carrier; 0 without a device.
fn carrier_changes(netlink: &Netlink, device: Option<u32>) -> u32 {
    let Some(device) = device else { return 0 };
    let mut body = vec![0; LINK_HEADER];
    body[4..8].copy_from_slice(&device.to_ne_bytes());
    attribute(&mut body, EXT_MASK, &SKIP_STATS.to_ne_bytes());
    let link = netlink.get(GET_LINK, &body).unwrap_or_default();
    let count = find(link.get(LINK_HEADER..).unwrap_or_default(), CARRIER_CHANGES);
    let count = count.and_then(|octets| octets.try_into().ok());
    count.map_or(0, u32::from_ne_bytes)
}

fn keeper(entry: &[u8]) -> Keeper {
    let (header, attributes) = entry.split_at(HEADER.min(entry.len()));
    let state = header
        .get(STATE_AT..FLAGS_AT)
        .map_or(0, |state| u16::from_ne_bytes([state[0], state[1]]));
    let is_learned = header
        .get(FLAGS_AT)
        .is_some_and(|flags| flags & EXT_LEARNED != 0);
    match find(attributes, NOTED_PROTOCOL) {
        Some([PROTOCOL]) if is_learned => Keeper::Us,
        _ if is_learned || state & PERMANENT != 0 => Keeper::Others,
        _ => Keeper::Nobody,
    }
}
