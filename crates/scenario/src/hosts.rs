//! Which addresses a scenario's hosts have.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::str::FromStr;

use anabranch_core::Family;
use anabranch_core::rules::Prefix;
use anabranch_line::NEAREST;
use anabranch_workload::{TransferId, alternative};
use serde::{Serialize, Serializer};

/// The address families that hosts and links have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Families {
    /// IPv4 alone.
    #[default]
    V4,
    /// IPv6 alone.
    V6,
    /// Both; each connection is of one of them.
    Both,
}

impl Families {
    const ALL: [Families; 3] = [Families::V4, Families::V6, Families::Both];

    /// In the order of their numbers.
    pub fn list(self) -> &'static [Family] {
        match self {
            Families::V4 => &[Family::V4],
            Families::V6 => &[Family::V6],
            Families::Both => &Family::ALL,
        }
    }

    /// Whether `family` is among them.
    pub fn has(self, family: Family) -> bool {
        self.list().contains(&family)
    }

    /// That of the connection of a transfer, drawn from the seed of the run.
    pub fn of_transfer(self, seed: u64, id: TransferId) -> Family {
        self.list()[alternative(seed, id, self.list().len())]
    }

    pub(crate) fn is_default(&self) -> bool {
        *self == Families::default()
    }
}

/// As in scenario files and on the command line.
impl fmt::Display for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Families::V4 => "4",
            Families::V6 => "6",
            Families::Both => "both",
        })
    }
}

impl FromStr for Families {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Families::ALL.into_iter();
        all.find(|families| families.to_string() == text)
            .ok_or_else(|| "address families are 4, 6 or both".to_owned())
    }
}

impl Serialize for Families {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Hosts with numbers from 0. An IPv6 address ends in the IPv4 address of the same host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// Of the host with number 0.
    pub first: Ipv4Addr,
    /// The first 96 bits of IPv6 addresses.
    pub network: Ipv6Addr,
}

impl Hosts {
    /// Of one host.
    pub fn address(&self, family: Family, number: u32) -> IpAddr {
        let v4 = Ipv4Addr::from_bits(self.first.to_bits().wrapping_add(number));
        match family {
            Family::V4 => v4.into(),
            Family::V6 => self.embed(v4).into(),
        }
    }

    /// The number of the host with this address; those before the first have none.
    pub fn number(&self, address: IpAddr) -> Option<u32> {
        let v4 = match address {
            IpAddr::V4(v4) => v4,
            IpAddr::V6(v6) => {
                let v4 = Ipv4Addr::from_bits(v6.to_bits() as u32);
                (self.embed(v4) == v6).then_some(v4)?
            }
        };
        v4.to_bits().checked_sub(self.first.to_bits())
    }

    fn embed(&self, v4: Ipv4Addr) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.network.to_bits() | u128::from(v4.to_bits()))
    }

    /// The numbers of those whose addresses are of a network, where there are `count`.
    pub fn numbers_in(&self, network: Prefix, family: Family, count: u32) -> Range<u32> {
        let first = *Prefix::new(self.address(family, 0), 128).range().start();
        let number = |address: u128| address.saturating_sub(first).min(count.into()) as u32;
        let addresses = network.range();
        number(*addresses.start())..number(addresses.end().saturating_add(1))
    }

    /// The fewest networks that have the addresses of these hosts, and no others.
    pub fn networks(&self, family: Family, numbers: Range<u32>) -> Vec<Prefix> {
        if numbers.is_empty() {
            return Vec::new();
        }
        let v4 = |number: u32| Ipv4Addr::from_bits(self.first.to_bits() + number);
        let networks = Prefix::cover(v4(numbers.start)..=v4(numbers.end - 1));
        match family {
            Family::V4 => networks,
            Family::V6 => networks.into_iter().map(|v4| self.embedded(v4)).collect(),
        }
    }

    fn embedded(&self, v4: Prefix) -> Prefix {
        let addresses = v4.range();
        let host_bits = (addresses.end() - addresses.start()).count_ones() as u8;
        let low = Ipv4Addr::from_bits(*addresses.start() as u32);
        Prefix::new(self.embed(low).into(), 128 - host_bits)
    }

    /// The first and the last of `count`, in words.
    pub fn in_words(&self, family: Family, count: u32) -> String {
        let [first, last] = [0, count.saturating_sub(1)].map(|number| self.address(family, number));
        match first == last {
            true => first.to_string(),
            false => format!("{first} to {last}"),
        }
    }
}

/// How many hops away the server of this number is: the first is the nearest, and each is one farther than that before.
pub fn hops_to(server: u32) -> u16 {
    let beyond = u16::try_from(server).unwrap_or(u16::MAX);
    NEAREST.saturating_add(beyond)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTS: Hosts = Hosts {
        first: Ipv4Addr::new(10, 80, 1, 1),
        network: Ipv6Addr::new(0xfd00, 0x80, 0, 0, 0, 0, 0, 0),
    };

    #[test]
    fn hosts_are_numbered_alike_in_both_families() {
        assert_eq!(HOSTS.address(Family::V4, 255).to_string(), "10.80.2.0");
        let v6: IpAddr = "fd00:80::10.80.2.0".parse().unwrap();
        assert_eq!(HOSTS.address(Family::V6, 255), v6);
        for address in [HOSTS.address(Family::V4, 255), v6] {
            assert_eq!(HOSTS.number(address), Some(255));
        }
        for stranger in ["10.80.1.0", "fd00:81::10.80.2.0", "fd00:80::10.80.1.0"] {
            let stranger = stranger.parse().unwrap();
            assert_eq!(HOSTS.number(stranger), None, "{stranger}");
        }
        assert_eq!([0, 11, u32::MAX].map(hops_to), [1, 12, u16::MAX]);
        for (family, network, numbers) in [
            (Family::V4, "10.80.1.4/30", 3..7),
            (Family::V6, "fd00:80::10.80.1.4/126", 3..7),
            (Family::V4, "0.0.0.0/0", 0..8),
            (Family::V6, "fd00:80::/64", 0..8),
            (Family::V4, "::/0", 0..8),
            (Family::V6, "::/0", 0..8),
        ] {
            let network = network.parse().unwrap();
            assert_eq!(HOSTS.numbers_in(network, family, 8), numbers, "{network}");
        }
        let v4 = "10.0.0.0/8".parse().unwrap();
        assert!(HOSTS.numbers_in(v4, Family::V6, 8).is_empty());
    }

    #[test]
    fn the_networks_of_hosts_have_these_hosts_and_no_others() {
        for family in Family::ALL {
            let networks = HOSTS.networks(family, 1..8);
            let covered = networks
                .iter()
                .map(|network| HOSTS.numbers_in(*network, family, 20));
            let covered: Vec<u32> = covered.flatten().collect();
            assert_eq!(covered, (1..8).collect::<Vec<_>>(), "{networks:?}");
            assert_eq!(networks.len(), 3, "{networks:?}");
        }
        assert!(HOSTS.networks(Family::V6, 3..3).is_empty());
    }

    #[test]
    fn the_connections_of_hosts_with_both_are_drawn_half_and_half() {
        let drawn =
            |seed| (0..1000).map(move |id| Families::Both.of_transfer(seed, TransferId(id)));
        let of_v6 = drawn(1).filter(|family| *family == Family::V6).count();
        assert!((400..600).contains(&of_v6), "{of_v6} of 1000");
        assert!(drawn(1).eq(drawn(1)) && !drawn(1).eq(drawn(2)));
        assert_eq!(Families::V6.of_transfer(1, TransferId(7)), Family::V6);
    }
}
