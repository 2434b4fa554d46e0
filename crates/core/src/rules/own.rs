//! Rules for the host's own traffic. It passes none of the programs; the kernel's routing rules handle it, so this is what they can
//! match.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use anabranch_policy::Family;
use anabranch_policy::abi::FAMILIES;

use super::matches::{Matches, Origin, TCP, UDP};

/// Maximum number of routing rules for one rule.
pub const OWN_MAX: usize = 64;

/// The greatest port that routing rules can match (linux/include/net/fib_rules.h).
const LAST_PORT: u16 = 65_534;

/// What one routing rule matches; a field that is none matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnTraffic {
    /// A network and its length; none: all of both families.
    pub to: Option<(IpAddr, u8)>,
    /// IP protocol.
    pub protocol: Option<u8>,
    /// First and last destination port.
    pub ports: Option<(u16, u16)>,
    /// First and last source port.
    pub source_ports: Option<(u16, u16)>,
}

impl OwnTraffic {
    /// Whether it matches UDP from this port to this endpoint.
    pub fn takes_udp(&self, from_port: u16, to: SocketAddr) -> bool {
        let is_in = |ports: Option<(u16, u16)>, port| {
            ports.is_none_or(|(first, last)| (first..=last).contains(&port))
        };
        self.to.is_none_or(|network| contains(network, to.ip()))
            && self.protocol.is_none_or(|protocol| protocol == UDP)
            && is_in(self.ports, to.port())
            && is_in(self.source_ports, from_port)
    }
}

fn contains((network, length): (IpAddr, u8), address: IpAddr) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    };
    let differing = (bits(network) ^ bits(address)).leading_zeros();
    Family::from(network) == Family::from(address) && differing >= u32::from(length)
}

/// A field that routing rules cannot match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beyond {
    pub(super) key: &'static str,
    pub(super) what: &'static str,
    pub(super) instead: &'static str,
}

impl Matches {
    /// The routing rules for it, as far as they can match; none if it matches LAN hosts only.
    pub fn own_traffic(&self) -> Vec<OwnTraffic> {
        if !self.takes_own() || !self.dscp.is_empty() {
            return Vec::new();
        }
        let (networks, protocols) = (self.own_networks(), self.own_protocols());
        let (ports, source_ports) = (own_ports(&self.ports), own_ports(&self.source_ports));
        let mut all = Vec::new();
        for to in &networks {
            for protocol in &protocols {
                for ports in &ports {
                    all.extend(source_ports.iter().map(|source_ports| OwnTraffic {
                        to: *to,
                        protocol: *protocol,
                        ports: *ports,
                        source_ports: *source_ports,
                    }));
                }
            }
        }
        all
    }

    /// The fields that routing rules cannot match.
    pub(super) fn beyond_routing(&self) -> Vec<Beyond> {
        let past_last = |ports: &[RangeInclusive<u16>]| {
            let within = ports.iter().filter(|range| !is_all(range));
            within.into_iter().any(|range| *range.end() > LAST_PORT)
        };
        let last_port = |key| Beyond {
            key,
            what: "port 65535",
            instead: "end at 65534",
        };
        let code_point = Beyond {
            key: "dscp",
            what: "a code point",
            instead: "leave it out, or name networks in from",
        };
        let source_port = Beyond {
            key: "source_ports",
            what: "the source port of a TCP connection, which is chosen behind its route",
            instead: r#"write protocol = "udp""#,
        };
        let asked = [
            (!self.dscp.is_empty(), code_point),
            (
                !self.source_ports.is_empty() && self.allows(TCP),
                source_port,
            ),
            (past_last(&self.ports), last_port("ports")),
            (past_last(&self.source_ports), last_port("source_ports")),
        ];
        let asked = asked.into_iter().filter(|(is_asked, _)| *is_asked);
        asked
            .filter(|_| self.takes_own())
            .map(|(_, beyond)| beyond)
            .collect()
    }

    /// Whether it names the host as an origin.
    pub(super) fn names_host(&self) -> bool {
        self.from.contains(&Origin::Host)
    }

    fn takes_own(&self) -> bool {
        self.is_of_host() && self.devices.is_empty()
    }

    /// The networks. If one is all of a family, the others of that family are left out.
    fn own_networks(&self) -> Vec<Option<(IpAddr, u8)>> {
        let networks: Vec<_> = self.to.iter().flat_map(|to| to.networks()).collect();
        let all = networks.iter().filter(|(_, length)| *length == 0);
        let all: BTreeSet<_> = all.map(|(network, _)| Family::from(*network)).collect();
        if self.to.is_empty() || all.len() == FAMILIES {
            return vec![None];
        }
        let needed = networks
            .into_iter()
            .filter(|(network, length)| *length == 0 || !all.contains(&Family::from(*network)));
        needed.map(Some).collect()
    }

    /// One for each protocol if ports are matched, because without a protocol routing rules would match the types of ICMP as ports.
    fn own_protocols(&self) -> Vec<Option<u8>> {
        let with_ports = [TCP, UDP].into_iter().filter(|protocol| {
            let is_known = *protocol == UDP || self.source_ports.is_empty();
            self.allows(*protocol) && is_known
        });
        match &self.protocols[..] {
            _ if self.looks_at_ports() => with_ports.map(Some).collect(),
            [] => vec![None],
            protocols => protocols.iter().copied().map(Some).collect(),
        }
    }
}

fn is_all(range: &RangeInclusive<u16>) -> bool {
    *range.start() <= 1 && *range.end() == u16::MAX
}

fn own_ports(ports: &[RangeInclusive<u16>]) -> Vec<Option<(u16, u16)>> {
    if ports.is_empty() || ports.iter().any(is_all) {
        return vec![None];
    }
    let matched = ports.iter().filter(|range| *range.start() <= LAST_PORT);
    matched
        .map(|range| Some((*range.start(), (*range.end()).min(LAST_PORT))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Prefix;

    fn shown(matches: &Matches) -> Vec<String> {
        let ports = |name: &str, ports: Option<(u16, u16)>| {
            ports.map(|(first, last)| format!("{name} {first}-{last}"))
        };
        let one = |own: OwnTraffic| {
            let words = [
                own.to
                    .map(|(network, length)| format!("to {network}/{length}")),
                own.protocol.map(|protocol| format!("protocol {protocol}")),
                ports("port", own.ports),
                ports("source", own.source_ports),
            ];
            words.into_iter().flatten().collect::<Vec<_>>().join(" ")
        };
        matches.own_traffic().into_iter().map(one).collect()
    }

    #[test]
    fn udp_is_taken_by_network_protocol_and_both_ports() {
        let to = |text: &str| text.parse::<SocketAddr>().unwrap();
        let vpn = OwnTraffic {
            to: Some(("192.0.2.0".parse().unwrap(), 24)),
            protocol: Some(UDP),
            ports: Some((51820, 51821)),
            source_ports: Some((4000, 4000)),
        };
        assert!(vpn.takes_udp(4000, to("192.0.2.7:51821")));
        for (port, other) in [
            (4000, "192.0.3.7:51821"),
            (4000, "192.0.2.7:51822"),
            (4001, "192.0.2.7:51821"),
            (4000, "[::ffff:192.0.2.7]:51821"),
        ] {
            assert!(!vpn.takes_udp(port, to(other)), "{port} {other}");
        }
        let tcp = OwnTraffic {
            protocol: Some(TCP),
            ..OwnTraffic::default()
        };
        assert!(!tcp.takes_udp(1, to("192.0.2.7:1")));
        assert!(OwnTraffic::default().takes_udp(1, to("[2001:db8::1]:1")));
    }

    fn beyond(matches: &Matches) -> Vec<&'static str> {
        let beyond = matches.beyond_routing().into_iter();
        beyond.map(|beyond| beyond.key).collect()
    }

    #[test]
    fn every_network_is_crossed_with_every_protocol_and_port_range() {
        let matches = Matches {
            to: vec![
                "203.0.113.0/24".parse().unwrap(),
                "192.0.2.1".parse().unwrap(),
            ],
            ports: vec![873..=873, 5000..=5010],
            ..Matches::default()
        };
        assert_eq!(
            shown(&matches),
            [
                "to 203.0.113.0/24 protocol 6 port 873-873",
                "to 203.0.113.0/24 protocol 6 port 5000-5010",
                "to 203.0.113.0/24 protocol 17 port 873-873",
                "to 203.0.113.0/24 protocol 17 port 5000-5010",
                "to 192.0.2.1/32 protocol 6 port 873-873",
                "to 192.0.2.1/32 protocol 6 port 5000-5010",
                "to 192.0.2.1/32 protocol 17 port 873-873",
                "to 192.0.2.1/32 protocol 17 port 5000-5010",
            ]
        );
    }

    #[test]
    fn what_fits_all_is_one_rule_without_it() {
        assert_eq!(shown(&Matches::default()), [""]);
        let matches = Matches {
            to: vec!["::/0".parse().unwrap(), "192.0.2.1".parse().unwrap()],
            protocols: vec![UDP],
            ports: vec![1..=u16::MAX],
            ..Matches::default()
        };
        assert_eq!(shown(&matches), ["protocol 17"]);
        assert!(beyond(&matches).is_empty());
    }

    #[test]
    fn networks_of_either_family_are_each_a_rule_of_their_own() {
        let to = |networks: &[&str]| {
            let to = networks.iter().map(|text| text.parse().unwrap()).collect();
            shown(&Matches {
                to,
                ..Matches::default()
            })
        };
        assert_eq!(
            to(&["192.0.2.0/24", "2001:db8::/32", "2001:db8:f::1"]),
            [
                "to 192.0.2.0/24",
                "to 2001:db8::/32",
                "to 2001:db8:f::1/128"
            ]
        );
        assert_eq!(
            to(&["0.0.0.0/0", "192.0.2.1", "2001:db8::/32"]),
            ["to 0.0.0.0/0", "to 2001:db8::/32"]
        );
        assert_eq!(to(&["::/64", "::/0"]), [""]);
        assert_eq!(to(&["::/80"]), ["to 0.0.0.0/0", "to ::/80"]);
    }

    #[test]
    fn rules_of_lan_hosts_alone_take_nothing() {
        let network: Prefix = "192.168.1.0/24".parse().unwrap();
        let of = |from, devices| Matches {
            from,
            devices,
            dscp: vec![46],
            ..Matches::default()
        };
        for matches in [
            of(vec![Origin::Prefix(network)], vec![]),
            of(vec![], vec!["eth0".to_owned()]),
        ] {
            assert!(shown(&matches).is_empty());
            assert!(beyond(&matches).is_empty());
        }
        let both = Matches {
            from: vec![Origin::Prefix(network), Origin::Host],
            ..Matches::default()
        };
        assert_eq!(shown(&both), [""]);
    }

    #[test]
    fn what_routing_rules_cannot_match_is_known_and_left_out() {
        let code = Matches {
            dscp: vec![46],
            ..Matches::default()
        };
        assert_eq!((shown(&code), beyond(&code)), (vec![], vec!["dscp"]));
        let source = |protocols| Matches {
            protocols,
            source_ports: vec![5060..=5060],
            ..Matches::default()
        };
        assert_eq!(shown(&source(vec![])), ["protocol 17 source 5060-5060"]);
        assert_eq!(beyond(&source(vec![])), ["source_ports"]);
        assert!(beyond(&source(vec![UDP])).is_empty());
        assert!(shown(&source(vec![TCP])).is_empty());
        let last = Matches {
            protocols: vec![TCP],
            ports: vec![1024..=65_535, 65_535..=65_535],
            ..Matches::default()
        };
        assert_eq!(shown(&last), ["protocol 6 port 1024-65534"]);
        assert_eq!(beyond(&last), ["ports"]);
    }
}
