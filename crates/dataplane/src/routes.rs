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

/// Makes `map` hold exactly `routes`: changed and new prefixes first, so that none is missing meanwhile.
pub fn replace(
    map: &mut LpmTrie<MapData, abi::Addr, abi::Route>,
    routes: &[Route],
) -> Result<(), Error> {
    let failed = |source| Error::map("routes")(source);
    let wanted: BTreeMap<Prefix, abi::Route> = routes
        .iter()
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
