use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use anabranch_policy::abi::FAMILIES;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const DNS_PORT: u16 = 53;
/// A header of IPv6 has so many bytes more.
const LONGER_HEADER: u64 = 20;
const ALLOWED: &str = r#"write it as "dns:ADDRESS", "dns:ADDRESS:PORT", "icmp:ADDRESS" or "tcp:ADDRESS:PORT"; IPv6 with a port as [ADDRESS]:PORT"#;

/// Something on the internet whose answer proves that a link works in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// A DNS server: any answer to a query counts, whatever it says.
    Dns(SocketAddr),
    /// A host that answers ICMP echo requests.
    Icmp(IpAddr),
    /// A TCP port: accepting and refusing a connection both count.
    Tcp(SocketAddr),
}

/// Resolvers of four operators, so that no single operator's failure looks like a link's; by family.
pub const DEFAULT_TARGETS: [[Target; 4]; FAMILIES] = [
    [
        v4([1, 1, 1, 1]),
        v4([8, 8, 8, 8]),
        v4([9, 9, 9, 9]),
        v4([208, 67, 222, 222]),
    ],
    [
        v6([0x2606, 0x4700, 0x4700, 0, 0, 0, 0, 0x1111]),
        v6([0x2001, 0x4860, 0x4860, 0, 0, 0, 0, 0x8888]),
        v6([0x2620, 0xfe, 0, 0, 0, 0, 0, 0xfe]),
        v6([0x2620, 0x119, 0x35, 0, 0, 0, 0, 0x35]),
    ],
];

const fn v4([a, b, c, d]: [u8; 4]) -> Target {
    Target::resolver(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
}

const fn v6([a, b, c, d, e, f, g, h]: [u16; 8]) -> Target {
    Target::resolver(IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h)))
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || -> Option<Self> {
            let (kind, place) = text.split_once(':')?;
            match kind {
                "dns" => Some(Self::Dns(
                    place
                        .parse()
                        .ok()
                        .or_else(|| Some((address(place)?, DNS_PORT).into()))?,
                )),
                "icmp" => Some(Self::Icmp(address(place)?)),
                "tcp" => Some(Self::Tcp(place.parse().ok()?)),
                _ => None,
            }
        };
        parse().ok_or_else(|| format!("not a probe target: {ALLOWED}"))
    }
}

fn address(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}

impl Target {
    /// A DNS server at its usual port.
    pub const fn resolver(address: IpAddr) -> Self {
        Self::Dns(SocketAddr::new(address, DNS_PORT))
    }

    /// Whom it is sent to.
    pub fn address(&self) -> IpAddr {
        match self {
            Self::Dns(at) | Self::Tcp(at) => at.ip(),
            Self::Icmp(at) => *at,
        }
    }

    /// Of a question and its answer, with their IP headers.
    pub fn bytes(&self) -> u64 {
        let (with_v4, packets) = match self {
            Self::Dns(_) => (64 + 80, 2),
            Self::Icmp(_) => (28 + 28, 2),
            // SYN, SYN/ACK, ACK with timestamps, RST.
            Self::Tcp(_) => (60 + 60 + 52 + 40, 4),
        };
        match self.address() {
            IpAddr::V4(_) => with_v4,
            IpAddr::V6(_) => with_v4 + packets * LONGER_HEADER,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(at) if at.port() == DNS_PORT => write!(f, "dns:{}", at.ip()),
            Self::Dns(at) => write!(f, "dns:{at}"),
            Self::Icmp(at) => write!(f, "icmp:{at}"),
            Self::Tcp(at) => write!(f, "tcp:{at}"),
        }
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_and_written_alike() {
        for text in [
            "dns:1.1.1.1",
            "dns:1.1.1.1:5353",
            "icmp:192.0.2.1",
            "tcp:192.0.2.1:443",
            "dns:2001:db8::53",
            "dns:[2001:db8::53]:5353",
            "icmp:2001:db8::1",
            "tcp:[2001:db8::1]:443",
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_target_is_refused() {
        for text in [
            "",
            "dns:",
            "dns:example.org",
            "http:1.1.1.1",
            "tcp:1.1.1.1",
            "icmp:1.1.1.1:7",
            "icmp:[2001:db8::1]",
            "tcp:2001:db8::1",
            "1.1.1.1",
        ] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
