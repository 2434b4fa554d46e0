//! What the gateway is told of destinations, as entries of the longest-prefix table.

use std::{collections::BTreeMap, net::IpAddr};

use anabranch_core::LinkId;
use anabranch_policy::abi;
use aya::maps::lpm_trie::LpmTrie;
use aya::maps::{MapData, lpm_trie};

use crate::Error;

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
    Link(LinkId),
}

/// A prefix known better than "the internet".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Address and prefix length in its own family.
    pub prefix: (IpAddr, u8),
    /// What becomes of packets there.
    pub verdict: Verdict,
}

/// Mapped into 128 bits.
type Prefix = (u32, abi::Addr);

fn mapped(prefix: (IpAddr, u8)) -> Prefix {
    let (address, length) = prefix;
    let shift = if address.is_ipv4() { 96 } else { 0 };
    (u32::from(length) + shift, address.into())
}

fn entry(verdict: Verdict) -> abi::Route {
    match verdict {
        Verdict::Kernel => abi::Route {
            verdict: abi::Verdict::Kernel.into(),
            ..Default::default()
        },
        Verdict::Local => abi::Route {
            verdict: abi::Verdict::Local.into(),
            ..Default::default()
        },
        Verdict::LocalInLan { ifindex } => abi::Route {
            verdict: abi::Verdict::Local.into(),
            ifindex,
            ..Default::default()
        },
        Verdict::Link(link) => abi::Route {
            verdict: abi::Verdict::Link.into(),
            link: link.0,
            ..Default::default()
        },
        Verdict::Lan { ifindex, via } => abi::Route {
            verdict: abi::Verdict::Lan.into(),
            ifindex,
            via: via.map(abi::Addr::from).unwrap_or_default(),
            ..Default::default()
        },
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

/// Makes `map` hold exactly `routes`, less those of IPv6 that IPv4's packets would meet: changed and new prefixes first, so that none is missing meanwhile.
pub fn replace(
    map: &mut LpmTrie<MapData, abi::Addr, abi::Route>,
    routes: &[Route],
) -> Result<(), Error> {
    let failed = |source| Error::map("routes")(source);
    let wanted: BTreeMap<Prefix, abi::Route> = routes
        .iter()
        .filter(|route| is_beside_ipv4(route.prefix))
        .map(|route| (mapped(route.prefix), entry(route.verdict)))
        .collect();
    let mut present = BTreeMap::new();
    for found in map.iter() {
        let (key, value) = found.map_err(failed)?;
        present.insert((key.prefix_len(), key.data()), value);
    }
    for (prefix, value) in &wanted {
        if present.get(prefix) != Some(value) {
            map.insert(&lpm_trie::Key::new(prefix.0, prefix.1), value, 0)
                .map_err(failed)?;
        }
    }
    for prefix in present.keys().filter(|prefix| !wanted.contains_key(prefix)) {
        map.remove(&lpm_trie::Key::new(prefix.0, prefix.1))
            .map_err(failed)?;
    }
    Ok(())
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
    fn a_prefix_keeps_its_length_in_128_bits() {
        let length = |text: &str, length| mapped((text.parse().unwrap(), length)).0;
        assert_eq!(length("10.0.0.0", 8), 104);
        assert_eq!(length("2001:db8::", 32), 32);
    }
}
