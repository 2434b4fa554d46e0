use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::dscp::dscp_name;
use super::schedule::Schedule;

pub(super) const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ICMP6: u8 = 58;

/// The range of IPv4 addresses among addresses of 16 bytes.
pub(super) const ALL_V4: RangeInclusive<u128> = 0xffff_0000_0000..=0xffff_ffff_ffff;

/// What a rule matches: a flow must match every field, by any of its values. An empty field matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matches {
    /// Who opens the flow. Empty: LAN hosts and the host itself.
    pub from: Vec<Origin>,
    /// Remote networks.
    pub to: Vec<Prefix>,
    /// IP protocols.
    pub protocols: Vec<u8>,
    /// Destination ports. They restrict the rule to TCP and UDP.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Source ports, likewise.
    pub source_ports: Vec<RangeInclusive<u16>>,
    /// DSCP of the flow's first packet, below 64.
    pub dscp: Vec<u8>,
    /// LAN devices from which it comes. The host's own traffic comes from none.
    pub devices: Vec<String>,
    /// When the rule is active; none: always.
    pub when: Option<Schedule>,
}

impl Matches {
    /// The keys that are set, with their values on one line each.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let field = |(key, words): (&'static str, Vec<String>)| match (key, &self.when) {
            ("when", Some(when)) => (key, when.to_string()),
            _ => (key, words.join(", ")),
        };
        self.words().into_iter().map(field).collect()
    }

    /// The keys that are set, with each of their values as files write it.
    pub(super) fn words(&self) -> Vec<(&'static str, Vec<String>)> {
        let fields = [
            ("from", words(&self.from)),
            ("to", words(&self.to)),
            (
                "protocol",
                words(self.protocols.iter().map(|p| protocol_name(*p))),
            ),
            ("ports", words(self.ports.iter().map(range))),
            ("source_ports", words(self.source_ports.iter().map(range))),
            ("dscp", words(self.dscp.iter().map(|code| dscp_name(*code)))),
            ("device", words(&self.devices)),
            ("when", self.when.iter().flat_map(Schedule::words).collect()),
        ];
        let said = fields.into_iter().filter(|(_, words)| !words.is_empty());
        said.collect()
    }

    /// Whether it matches the protocol, by `protocols` and by the ports.
    pub(super) fn allows(&self, protocol: u8) -> bool {
        let named = self.protocols.is_empty() || self.protocols.contains(&protocol);
        named && (!self.looks_at_ports() || [TCP, UDP].contains(&protocol))
    }

    pub(super) fn looks_at_ports(&self) -> bool {
        !(self.ports.is_empty() && self.source_ports.is_empty())
    }

    /// Whether it matches only requests to web servers. Most of their bytes go down.
    pub(super) fn is_web(&self) -> bool {
        let is_web = |ports: &RangeInclusive<u16>| [80..=80, 443..=443].contains(ports);
        !self.ports.is_empty() && self.ports.iter().all(is_web)
    }

    /// Whether it may match the host's own traffic.
    pub(super) fn is_of_host(&self) -> bool {
        self.from.is_empty() || self.from.contains(&Origin::Host)
    }

    /// The networks of LAN hosts among the origins; none if the host is the only origin.
    pub(super) fn lan_ranges(&self) -> Vec<RangeInclusive<u128>> {
        if self.from.is_empty() {
            return vec![0..=u128::MAX];
        }
        let prefixes = self.from.iter().filter_map(|origin| match origin {
            Origin::Host => None,
            Origin::Prefix(prefix) => Some(prefix.range()),
        });
        prefixes.collect()
    }

    pub(super) fn remote_ranges(&self) -> Vec<RangeInclusive<u128>> {
        match &self.to[..] {
            [] => vec![0..=u128::MAX],
            to => to.iter().map(|prefix| prefix.range()).collect(),
        }
    }
}

impl fmt::Display for Matches {
    /// On one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: Vec<String> = self
            .fields()
            .into_iter()
            .map(|(key, values)| format!("{key} {values}"))
            .collect();
        match fields.is_empty() {
            true => f.write_str("everything"),
            false => f.write_str(&fields.join("; ")),
        }
    }
}

fn words(values: impl IntoIterator<Item = impl fmt::Display>) -> Vec<String> {
    values.into_iter().map(|value| value.to_string()).collect()
}

fn range(range: &RangeInclusive<u16>) -> String {
    match (range.start(), range.end()) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    }
}

/// The name of a protocol in rules, or its number.
pub fn protocol_name(protocol: u8) -> String {
    match protocol {
        ICMP => "icmp".to_owned(),
        TCP => "tcp".to_owned(),
        UDP => "udp".to_owned(),
        ICMP6 => "icmp6".to_owned(),
        other => other.to_string(),
    }
}

/// Who opens a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The gateway's host itself.
    Host,
    /// LAN hosts of this network.
    Prefix(Prefix),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Host => f.write_str("self"),
            Origin::Prefix(prefix) => prefix.fmt(f),
        }
    }
}

/// A network: the first bits of an address of 16 bytes; IPv4 addresses are mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    network: u128,
    length: u8,
}

impl Prefix {
    /// The network of `address` with a length of up to 32 or 128 bits. Further bits are cleared.
    pub fn new(address: IpAddr, length: u8) -> Self {
        let (address, length) = match address {
            IpAddr::V4(v4) => (v4.to_ipv6_mapped(), length.min(32) + 96),
            IpAddr::V6(v6) => (v6, length.min(128)),
        };
        let host_bits = u128::MAX.checked_shr(length.into()).unwrap_or(0);
        Prefix {
            network: address.to_bits() & !host_bits,
            length,
        }
    }

    /// The fewest networks that contain exactly these addresses.
    pub fn cover(addresses: RangeInclusive<Ipv4Addr>) -> Vec<Prefix> {
        let (first, last) = (addresses.start().to_bits(), addresses.end().to_bits());
        let (mut next, end) = (u64::from(first), u64::from(last) + 1);
        let mut networks = Vec::new();
        while next < end {
            let aligned = next.trailing_zeros().min(32);
            let host_bits = aligned.min((end - next).ilog2());
            let network = Ipv4Addr::from_bits(next as u32);
            networks.push(Prefix::new(network.into(), (32 - host_bits) as u8));
            next += 1 << host_bits;
        }
        networks
    }

    /// Its addresses as numbers.
    pub fn range(self) -> RangeInclusive<u128> {
        let host_bits = u128::MAX.checked_shr(self.length.into()).unwrap_or(0);
        self.network..=self.network | host_bits
    }

    /// The network in each family, with its length there. An IPv6 network that contains the mapped addresses is all of
    /// IPv4, too.
    pub fn networks(self) -> impl Iterator<Item = (IpAddr, u8)> {
        let mapped = self.range().contains(ALL_V4.start());
        let v4 = match Ipv6Addr::from_bits(self.network).to_ipv4_mapped() {
            Some(network) if self.length >= 96 => Some((network.into(), self.length - 96)),
            _ if mapped => Some((Ipv4Addr::UNSPECIFIED.into(), 0)),
            _ => None,
        };
        let v6 = (self.length < 96 || v4.is_none())
            .then(|| (Ipv6Addr::from_bits(self.network).into(), self.length));
        v4.into_iter().chain(v6)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = Ipv6Addr::from_bits(self.network);
        match address.to_ipv4_mapped() {
            Some(v4) if self.length == 128 => write!(f, "{v4}"),
            Some(v4) if self.length >= 96 => write!(f, "{v4}/{}", self.length - 96),
            _ if self.length == 128 => write!(f, "{address}"),
            _ => write!(f, "{address}/{}", self.length),
        }
    }
}

/// A text that is not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPrefix {
    /// Not an address, or not a length.
    #[error(
        r#"write a network or a host, like "192.168.1.0/24", "192.168.1.7" or "2001:db8:1::/48""#
    )]
    Shape,
    /// Bits are set beyond its length.
    #[error("has bits beyond its length; the network is {0}")]
    HostBits(Prefix),
}

impl FromStr for Prefix {
    type Err = BadPrefix;

    fn from_str(text: &str) -> Result<Self, BadPrefix> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| BadPrefix::Shape)?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let length: u8 = match length {
            None => bits,
            Some(length) => length.parse().map_err(|_| BadPrefix::Shape)?,
        };
        if length > bits {
            return Err(BadPrefix::Shape);
        }
        let prefix = Prefix::new(address, length);
        let as_written = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        match prefix.network == as_written {
            true => Ok(prefix),
            false => Err(BadPrefix::HostBits(prefix)),
        }
    }
}

impl From<Ipv4Addr> for Prefix {
    fn from(host: Ipv4Addr) -> Self {
        Prefix::new(host.into(), 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_shown_as_it_is_written() {
        for text in [
            "0.0.0.0/0",
            "192.168.1.0/24",
            "192.168.1.7",
            "2001:db8::/32",
            "::/0",
            "::1",
        ] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_network_is_one_of_its_family_and_one_that_has_all_is_one_of_each() {
        let networks = |text: &str| {
            let networks = text.parse::<Prefix>().unwrap().networks();
            let words: Vec<String> = networks
                .map(|(network, length)| format!("{network}/{length}"))
                .collect();
            words.join(" ")
        };
        assert_eq!(networks("192.168.1.0/24"), "192.168.1.0/24");
        assert_eq!(networks("0.0.0.0/0"), "0.0.0.0/0");
        assert_eq!(networks("2001:db8::/32"), "2001:db8::/32");
        assert_eq!(networks("::1"), "::1/128");
        assert_eq!(networks("::/0"), "0.0.0.0/0 ::/0");
        assert_eq!(networks("::/80"), "0.0.0.0/0 ::/80");
        assert_eq!(networks("::/96"), "::/96");
    }

    #[test]
    fn a_network_with_bits_of_a_host_is_told_what_it_is() {
        let bad = "192.168.1.7/24".parse::<Prefix>().unwrap_err();
        assert_eq!(
            bad.to_string(),
            "has bits beyond its length; the network is 192.168.1.0/24"
        );
        for text in ["192.168.1.0/33", "192.168.1", "lan", "1.2.3.4/", ""] {
            assert_eq!(text.parse::<Prefix>(), Err(BadPrefix::Shape), "{text}");
        }
    }

    #[test]
    fn a_range_of_addresses_is_covered_by_networks_that_have_no_other() {
        let cover = |first: &str, last: &str| {
            let networks = Prefix::cover(first.parse().unwrap()..=last.parse().unwrap());
            let words: Vec<String> = networks.iter().map(Prefix::to_string).collect();
            words.join(" ")
        };
        assert_eq!(cover("10.80.1.1", "10.80.1.1"), "10.80.1.1");
        assert_eq!(
            cover("10.80.1.1", "10.80.1.8"),
            "10.80.1.1 10.80.1.2/31 10.80.1.4/30 10.80.1.8"
        );
        assert_eq!(cover("10.80.1.255", "10.80.2.0"), "10.80.1.255 10.80.2.0");
        assert_eq!(cover("0.0.0.0", "255.255.255.255"), "0.0.0.0/0");
        assert_eq!(cover("10.0.0.2", "10.0.0.1"), "");
    }

    #[test]
    fn the_range_of_a_network_has_its_first_and_last_address() {
        let range = "10.0.0.0/8".parse::<Prefix>().unwrap().range();
        let number = |text: &str| text.parse::<Ipv6Addr>().unwrap().to_bits();
        assert_eq!(
            range,
            number("::ffff:10.0.0.0")..=number("::ffff:10.255.255.255")
        );
        assert_eq!("::/0".parse::<Prefix>().unwrap().range(), 0..=u128::MAX);
    }
}
