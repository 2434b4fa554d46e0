//! Reads addresses and networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use anabranch_config::Source;
use anabranch_core::Family;
use anabranch_policy::PerFamily;

use crate::error::BadInput;
use crate::observe::Prefix;

/// Lengths of a prefix: at most 64 bits, because the rest is the host's own part (RFC 4291 section 2.5.1).
const PREFIX6_BITS: RangeInclusive<u8> = 16..=64;

/// Whether an address can be that of a host, and is written in its own family.
pub(crate) fn is_of_one_host(address: IpAddr) -> bool {
    let is_nobodys = match address {
        IpAddr::V4(v4) => v4.is_broadcast(),
        IpAddr::V6(v6) => v6.to_ipv4_mapped().is_some(),
    };
    !(is_nobodys || address.is_unspecified() || address.is_loopback() || address.is_multicast())
}

pub(super) fn per_family(v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr>) -> PerFamily<Option<IpAddr>> {
    PerFamily::from_fn(|family| match family {
        Family::V4 => v4.map(IpAddr::V4),
        Family::V6 => v6.map(IpAddr::V6),
    })
}

pub(super) fn prefix6(
    source: &Source<'_>,
    link: &str,
    written: Option<&str>,
) -> Result<Option<(Ipv6Addr, u8)>, BadInput> {
    let Some(text) = written else {
        return Ok(None);
    };
    let allowed = r#"write the network that is routed to this link, of 16 to 64 bits, like "2001:db8:1::/56""#;
    let read = || {
        let (network, length) = text.split_once('/')?;
        let (network, length): (Ipv6Addr, u8) = (network.parse().ok()?, length.parse().ok()?);
        let is_clean = network.to_bits() & u128::MAX >> length.min(127) == 0;
        (is_clean && PREFIX6_BITS.contains(&length)).then_some((network, length))
    };
    match read() {
        Some(prefix) => Ok(Some(prefix)),
        None => Err(source.bad(&["link", link, "prefix6"], allowed)),
    }
}

pub(super) fn prefixes(
    source: &Source<'_>,
    link: &str,
    written: Vec<String>,
) -> Result<Vec<(IpAddr, u8)>, BadInput> {
    let prefix = |(index, text): (usize, &String)| {
        read_prefix(text).ok_or_else(|| {
            let key = ["link", link, "prefixes", &index.to_string()];
            source.bad(
                &key,
                r#"write the network's address, like "198.51.100.0/28" or "2001:db8:a:100::/56""#,
            )
        })
    };
    written.iter().enumerate().map(prefix).collect()
}

/// A network without bits beyond its length.
fn read_prefix(text: &str) -> Option<(IpAddr, u8)> {
    let (network, length) = text.split_once('/')?;
    let network: IpAddr = network.parse().ok()?;
    let length: u8 = length.parse().ok()?;
    let prefix = Prefix::new(network, length);
    let is_one = (1..=Prefix::host(network).length).contains(&length);
    (is_one && prefix.network() == prefix).then_some((network, length))
}
