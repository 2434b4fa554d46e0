//! Reads how full the kernel's neighbour tables are. There is one for ARP and one for neighbour discovery, and all devices share
//! them.

use std::collections::BTreeMap;
use std::ffi::CString;

use anabranch_core::Family;
use anyhow::Context;
use nix::net::if_::if_indextoname;
use rtnetlink::sys::protocols::NETLINK_ROUTE;

use super::netlink::{Netlink, find, number_of};

// linux/neighbour.h
const GET_TABLE: u16 = libc::RTM_GETNEIGHTBL;
const GET_ENTRIES: u16 = libc::RTM_GETNEIGH;
const TABLE_HEADER: usize = 4;
const ENTRY_HEADER: usize = 12;
const IFINDEX_AT: std::ops::Range<usize> = 4..8;
const THRESHOLD_3: u16 = 4;
const CONFIG: u16 = 5;
const STATISTICS: u16 = 7;
/// Offsets in `struct ndt_config` and `struct ndt_stats`.
const ENTRIES_AT: std::ops::Range<usize> = 4..8;
const FULLS_AT: std::ops::Range<usize> = 80..88;

/// The table of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    /// Number of entries, ...
    pub entries: u64,
    /// ... and the maximum.
    pub places: u64,
    /// How often a neighbour was not resolved because there was no room.
    pub refused: u64,
}

/// Reads the kernel's counters.
pub fn fill(family: Family) -> anyhow::Result<Fill> {
    let mut found = None;
    let take = |_, body: &[u8]| {
        found = found.or(body.get(TABLE_HEADER..).and_then(read));
    };
    let netlink = Netlink::connect(NETLINK_ROUTE).context("open a netlink socket")?;
    let mut body = vec![0; TABLE_HEADER];
    body[0] = number_of(family);
    netlink
        .dump(GET_TABLE, &body, take)
        .context("ask for neighbour tables")?;
    found.context("the kernel tells of no neighbour table")
}

/// The defaults of the table come first. The parameters of devices have no threshold.
fn read(attributes: &[u8]) -> Option<Fill> {
    let places = find(attributes, THRESHOLD_3)?.first_chunk()?;
    let entries = find(attributes, CONFIG)?.get(ENTRIES_AT)?.try_into().ok()?;
    let refused = find(attributes, STATISTICS)?
        .get(FULLS_AT)?
        .try_into()
        .ok()?;
    Some(Fill {
        entries: u32::from_ne_bytes(entries).into(),
        places: u32::from_ne_bytes(*places).into(),
        refused: u64::from_ne_bytes(refused),
    })
}

/// Number of entries of each device.
pub fn by_device(family: Family) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut counted: BTreeMap<u32, u64> = BTreeMap::new();
    let take = |_, body: &[u8]| {
        let ifindex = body
            .get(IFINDEX_AT)
            .and_then(|octets| octets.try_into().ok());
        if let Some(ifindex) = ifindex {
            *counted.entry(u32::from_ne_bytes(ifindex)).or_default() += 1;
        }
    };
    let netlink = Netlink::connect(NETLINK_ROUTE).context("open a netlink socket")?;
    let mut body = vec![0; ENTRY_HEADER];
    body[0] = number_of(family);
    netlink
        .dump(GET_ENTRIES, &body, take)
        .context("list neighbours")?;
    let name = |ifindex| if_indextoname(ifindex).map_or_else(|_| ifindex.to_string(), text);
    Ok(counted
        .into_iter()
        .map(|(ifindex, count)| (name(ifindex), count))
        .collect())
}

fn text(name: CString) -> String {
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use anabranch_testbed::netns::Namespace;

    use super::*;

    #[test]
    fn neighbours_are_counted_by_device() {
        let host = Namespace::create("neigh").unwrap();
        host.ip("link add d0 type veth peer name d1").unwrap();
        host.ip("link set d0 up").unwrap();
        for (family, addresses) in [
            (Family::V4, ["10.7.0.1", "10.7.0.2", "10.7.0.3"]),
            (Family::V6, ["fd07::1", "fd07::2", "fd07::3"]),
        ] {
            for address in addresses {
                let entry = format!("neigh add {address} dev d0 lladdr 02:00:00:00:00:01");
                host.ip(&entry).unwrap();
            }
            let (counted, fill) = host
                .run(|| (by_device(family).unwrap(), fill(family).unwrap()))
                .unwrap();
            assert!(counted["d0"] >= 3, "{counted:?}");
            assert!(fill.entries >= 3 && fill.places > 0, "{fill:?}");
        }
    }
}
