//! What the gateway is told of destinations, as entries of the longest-prefix table.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

use anabranch_core::LinkId;
use anabranch_policy::abi;
use aya::maps::lpm_trie::LpmTrie;
use aya::maps::{Map, MapData, lpm_trie};

use crate::Error;
use crate::error::absent;
use crate::next_hops::NextHops;
use crate::object::{max_entries, pinned};

const NAME: &str = "routes";
/// So often, and for so long, a write waits for memory.
const REFILLS_AWAITED: u32 = 100;
const REFILL: Duration = Duration::from_micros(200);

/// What becomes of packets to a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The kernel's own routing: VPNs, learned routes.
    Kernel,
    /// An address of this host: its sockets hear what a link brings there.
    Local,
    /// The same in the LAN of a device: what a link brings there is dropped as what is for the LAN.
    LocalInLan {
        /// Of the LAN's device.
        ifindex: u32,
    },
    /// A LAN prefix: its sources are valid, and the kernel routes to it. `via` is the LAN's router before it, if any.
    Lan {
        /// Of the LAN's device.
        ifindex: u32,
        /// The router's address.
        via: Option<IpAddr>,
    },
    /// A specific route over one link: balanced flows, but always there.
    Link {
        /// The link.
        link: LinkId,
        /// The router on that link; none where destinations are neighbours on it.
        via: Option<IpAddr>,
    },
    /// What a network of the LAN is beyond a link that translates prefixes.
    Prefix {
        /// The link.
        link: LinkId,
        /// An address of the network in the LAN.
        lan: Ipv6Addr,
    },
}

/// A prefix known better than "the internet".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Address and prefix length in its own family.
    pub prefix: (IpAddr, u8),
    /// What becomes of packets there.
    pub verdict: Verdict,
}

/// Bits up to which a network's own change with the prefix before them (RFC 6296 section 3.4); behind longer ones it is those of hosts.
const SITE_BITS: u8 = 48;
/// Behind them are hosts.
const NETWORK_BITS: u8 = 64;

/// Where the addresses of a `network` of the LAN are beyond a link that translates its prefix to `prefix`, each with its length: no
/// more than they where that is one network, or all of `prefix`. None where no address of it is translated.
pub fn beyond(prefix: (Ipv6Addr, u8), network: (Ipv6Addr, u8)) -> Option<(Ipv6Addr, u8)> {
    if prefix.1 > SITE_BITS {
        let length = network.1.min(NETWORK_BITS).max(prefix.1);
        let kept =
            network.0.to_bits() & !(u128::MAX << (128 - prefix.1)) & u128::MAX << (128 - length);
        return Some((Ipv6Addr::from_bits(prefix.0.to_bits() | kept), length));
    }
    if network.1 < NETWORK_BITS {
        return Some(prefix);
    }
    let translated = anabranch_policy::translate_prefix(network.0, prefix.0, prefix.1)?;
    Some((translated, network.1))
}

/// Mapped into 128 bits.
type Prefix = (u32, abi::Addr);

fn mapped(prefix: (IpAddr, u8)) -> Prefix {
    let (address, length) = prefix;
    let shift = if address.is_ipv4() { 96 } else { 0 };
    (u32::from(length) + shift, address.into())
}

fn unmapped((length, address): Prefix) -> (IpAddr, u8) {
    let address = Ipv6Addr::from(address.0);
    match (address.to_ipv4_mapped(), length.checked_sub(96)) {
        (Some(v4), Some(length)) => (v4.into(), length as u8),
        _ => (address.into(), length as u8),
    }
}

/// But for the number of its next hop, which stands beside it; for what a link translates, of the network in the LAN.
fn entry(verdict: Verdict) -> (abi::Route, abi::Addr) {
    let of = |kind: abi::Verdict, link: LinkId, ifindex| abi::Route {
        verdict: kind.into(),
        link: link.0,
        ifindex,
        ..Default::default()
    };
    let (none, router) = (LinkId(0), |via: Option<IpAddr>| {
        via.map(abi::Addr::from).unwrap_or_default()
    });
    match verdict {
        Verdict::Kernel => (of(abi::Verdict::Kernel, none, 0), router(None)),
        Verdict::Local => (of(abi::Verdict::Local, none, 0), router(None)),
        Verdict::LocalInLan { ifindex } => (of(abi::Verdict::Local, none, ifindex), router(None)),
        Verdict::Lan { ifindex, via } => (of(abi::Verdict::Lan, none, ifindex), router(via)),
        Verdict::Link { link, via } => (of(abi::Verdict::Link, link, 0), router(via)),
        Verdict::Prefix { link, lan } => (of(abi::Verdict::Prefix, link, 0), lan.into()),
    }
}

/// Where the table has IPv4: `::ffff:0:0/96`.
const MAPPED: (u128, u8) = (0xffff << 32, 96);

/// Not a prefix of IPv6 that holds mapped addresses, which IPv4's packets would meet. Of these `::/0` is the default, which is no
/// entry; some systems have `unreachable ::ffff:0.0.0.0/96`.
fn is_beside_ipv4(prefix: (IpAddr, u8)) -> bool {
    let (IpAddr::V6(network), length) = prefix else {
        return true;
    };
    let host_bits = u128::MAX
        .checked_shr(length.min(MAPPED.1).into())
        .unwrap_or(0);
    network.to_bits() & !host_bits != MAPPED.0 & !host_bits
}

/// The table of destinations, for the one who writes it. A write takes about a microsecond, however many there are.
pub struct RouteTable {
    map: LpmTrie<MapData, abi::Addr, abi::Route>,
    next_hops: NextHops,
    room: u32,
}

impl RouteTable {
    /// That of the instance whose maps are pinned in `pins`.
    pub(crate) fn open(pins: &Path) -> Result<Self, Error> {
        let map = Map::LpmTrie(pinned(pins, NAME)?);
        Ok(Self {
            map: map.try_into().map_err(Error::map(NAME))?,
            next_hops: NextHops::open(pins)?,
            room: max_entries(pins, NAME)?,
        })
    }

    /// How many prefixes there may be.
    pub fn room(&self) -> usize {
        self.room as usize
    }

    /// Adds or changes one. Those of IPv6 that IPv4's packets would meet are left out.
    ///
    /// # Errors
    /// There is no room, or the kernel refuses.
    pub fn set(&mut self, route: &Route) -> Result<(), Error> {
        if !is_beside_ipv4(route.prefix) {
            return Ok(());
        }
        let (way, next_hop) = entry(route.verdict);
        self.put(mapped(route.prefix), way, next_hop)
    }

    fn put(&mut self, prefix: Prefix, way: abi::Route, next_hop: abi::Addr) -> Result<(), Error> {
        let via = self.number(next_hop)?;
        let (key, route) = (key(prefix), abi::Route { via, ..way });
        let mut put = || self.map.insert(&key, route, 0).map_err(Error::map(NAME));
        // The kernel takes nodes from a reserve that it fills between times (linux/kernel/bpf/memalloc.c): who writes many may find it
        // empty.
        for _ in 0..REFILLS_AWAITED {
            match put() {
                Err(error) if error.map_code() == Some(libc::ENOMEM) => {
                    std::thread::sleep(REFILL);
                }
                put => return put,
            }
        }
        put()
    }

    /// Nobody counts how many routes name a next hop: which are named is looked up when all numbers are taken.
    fn number(&mut self, next_hop: abi::Addr) -> Result<u32, Error> {
        if let Some(number) = self.next_hops.number(next_hop)? {
            return Ok(number);
        }
        let named: Result<BTreeSet<u32>, _> =
            self.map.iter().map(|found| Ok(found?.1.via)).collect();
        self.next_hops.keep_only(&named.map_err(Error::map(NAME))?);
        self.next_hops.number(next_hop)?.ok_or(Error::NextHops)
    }

    /// Takes one out, if it is there.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn remove(&mut self, prefix: (IpAddr, u8)) -> Result<(), Error> {
        if !is_beside_ipv4(prefix) {
            return Ok(());
        }
        remove(&mut self.map, mapped(prefix))
    }

    /// Takes out all that are not `wanted`: what an earlier process of this instance has set.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn keep_only(&mut self, wanted: impl Fn((IpAddr, u8)) -> bool) -> Result<(), Error> {
        let mut stale = Vec::new();
        for found in self.map.keys() {
            let found = found.map_err(Error::map(NAME))?;
            let prefix = (found.prefix_len(), found.data());
            if !wanted(unmapped(prefix)) {
                stale.push(prefix);
            }
        }
        for prefix in stale {
            remove(&mut self.map, prefix)?;
        }
        Ok(())
    }

    /// Makes the table hold exactly `routes`, less those of IPv6 that IPv4's packets would meet: changed and new prefixes first, so that
    /// none is missing meanwhile.
    pub(crate) fn replace(&mut self, routes: &[Route]) -> Result<(), Error> {
        let wanted: BTreeMap<Prefix, &Route> = routes
            .iter()
            .filter(|route| is_beside_ipv4(route.prefix))
            .map(|route| (mapped(route.prefix), route))
            .collect();
        let mut present = BTreeMap::new();
        for found in self.map.iter() {
            let (key, route) = found.map_err(Error::map(NAME))?;
            present.insert((key.prefix_len(), key.data()), route);
        }
        for (prefix, route) in &wanted {
            let (way, next_hop) = entry(route.verdict);
            let via = self.number(next_hop)?;
            if present.get(prefix) != Some(&abi::Route { via, ..way }) {
                self.put(*prefix, way, next_hop)?;
            }
        }
        for prefix in present.keys().filter(|prefix| !wanted.contains_key(prefix)) {
            remove(&mut self.map, *prefix)?;
        }
        Ok(())
    }
}

fn key((length, address): Prefix) -> lpm_trie::Key<abi::Addr> {
    lpm_trie::Key::new(length, address)
}

fn remove(map: &mut LpmTrie<MapData, abi::Addr, abi::Route>, prefix: Prefix) -> Result<(), Error> {
    absent(map.remove(&key(prefix))).map_err(Error::map(NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_of_ipv6_take_no_packets_of_ipv4() {
        let beside = |text: &str, length| is_beside_ipv4((text.parse().unwrap(), length));
        for (network, length) in [
            ("::", 0),
            ("::", 8),
            ("::ffff:0:0", 96),
            ("::ffff:a00:0", 104),
        ] {
            assert!(!beside(network, length), "{network}/{length}");
        }
        for (network, length) in [
            ("0.0.0.0", 0),
            ("10.0.0.0", 8),
            ("::", 96),
            ("::1", 128),
            ("2000::", 3),
            ("fe80::", 10),
        ] {
            assert!(beside(network, length), "{network}/{length}");
        }
    }

    #[test]
    fn all_hosts_of_a_network_are_in_its_image_beyond_a_link() {
        let read = |text: &str| {
            let (network, length) = text.split_once('/').unwrap();
            (network.parse().unwrap(), length.parse().unwrap())
        };
        for (prefix, network, image) in [
            (
                "2001:db8:1::/48",
                "fd00:1:2:3::/64",
                Some("2001:db8:1:cf4c::/64"),
            ),
            ("2001:db8:1::/48", "fd00:1:2:ffff::/64", None),
            (
                "2001:db8:1::/48",
                "fd00:1:2:3400::/56",
                Some("2001:db8:1::/48"),
            ),
            (
                "2001:db8:1:200::/56",
                "fd00:1:2:303::/64",
                Some("2001:db8:1:203::/64"),
            ),
            (
                "2001:db8:1:200::/56",
                "fd00:1:2:330::/60",
                Some("2001:db8:1:230::/60"),
            ),
            (
                "2001:db8:1:200::/56",
                "fd00:1:2:303:7::/80",
                Some("2001:db8:1:203::/64"),
            ),
        ] {
            let (prefix, network): ((Ipv6Addr, u8), (Ipv6Addr, u8)) = (read(prefix), read(network));
            assert_eq!(beyond(prefix, network), image.map(read), "{network:?}");
            for host in [1u128, 0x1234_5678_9abc] {
                let host = Ipv6Addr::from_bits(network.0.to_bits() | host);
                let seen = anabranch_policy::translate_prefix(host, prefix.0, prefix.1);
                let (Some(seen), Some(image)) = (seen, image.map(read)) else {
                    assert_eq!((seen, image), (None, None));
                    continue;
                };
                let above: (Ipv6Addr, u8) = image;
                assert_eq!(
                    (seen.to_bits() ^ above.0.to_bits()) >> (128 - above.1),
                    0,
                    "{seen}"
                );
            }
        }
    }

    #[test]
    fn a_prefix_keeps_its_length_in_128_bits() {
        let length = |text: &str, length| mapped((text.parse().unwrap(), length)).0;
        assert_eq!(length("10.0.0.0", 8), 104);
        assert_eq!(length("2001:db8::", 32), 32);
    }
}
