//! The contract of `bpf/include`: values of BPF maps, arguments of programs, inputs of a choice.
//!
//! All of it is generated from the C headers, with their comments; what stands here is what C has no words for: addresses and
//! ports in network order, and enumerations that refuse numbers they have no member for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytemuck::{Pod, Zeroable};

/// What C says of a field stands beside it there, where not every field needs words.
#[allow(missing_docs)]
mod contract {
    use super::{Addr, BePort, Pod, UnknownValue, Zeroable};

    include!(concat!(env!("OUT_DIR"), "/contract.rs"));
}

pub use contract::*;

/// [`FlowKey::side`] of link `link`, below [`MAX_LINKS`].
pub const fn side_of_link(link: u16) -> u8 {
    link as u8 + 1
}

/// [`FlowKey::side`] of the link entry of a flow.
pub const fn side_of(flow: &Flow) -> u8 {
    match flow.state & STATE_ROUTED {
        0 => side_of_link(flow.link as u16),
        _ => SIDE_ROUTED as u8,
    }
}

/// Where link `link`, below [`MAX_LINKS`], stands among the links, and its bit in [`Settings::routed`].
pub const fn link_place(link: u16, family: Family) -> u32 {
    family as u32 * MAX_LINKS as u32 + link as u32
}

/// Where the choice of class `class`, below [`MAX_CLASSES`], stands.
pub const fn choice_place(class: u8, family: Family) -> u32 {
    family as u32 * MAX_CLASSES as u32 + class as u32
}

/// Where the choice of service `service`, below [`MAX_SERVICES`], for clients of a family stands.
pub const fn service_choice_place(service: u16, family: Family) -> u32 {
    family as u32 * MAX_SERVICES as u32 + service as u32
}

/// Where the rows of a service's hashes for clients of a family stand, or those before they changed last.
pub const fn service_rows_place(service: u16, family: Family, is_former: bool) -> u32 {
    service_choice_place(service, family) + is_former as u32 * (MAX_SERVICES * FAMILIES) as u32
}

/// Where the traffic of class `class` on link `link` stands: that of the first classes lies together.
pub const fn traffic_place(class: u8, link: u16, family: Family) -> u32 {
    (class as u32 * FAMILIES as u32 + family as u32) * MAX_LINKS as u32 + link as u32
}

impl Set {
    /// No targets.
    pub const EMPTY: Set = Set {
        word: [0; SET_WORDS],
    };

    /// The targets below 64 whose bits are set.
    pub const fn of_word(word: u64) -> Set {
        let mut set = Set::EMPTY;
        set.word[0] = word;
        set
    }

    /// Whether `target` is in the set.
    pub const fn contains(&self, target: u16) -> bool {
        let (word, bit) = (target as usize / 64, target % 64);
        word < SET_WORDS && self.word[word] >> bit & 1 == 1
    }
}

impl FromIterator<u16> for Set {
    /// Targets beyond [`MAX_TARGETS`] are left out.
    fn from_iter<I: IntoIterator<Item = u16>>(targets: I) -> Self {
        let mut set = Set::EMPTY;
        for target in targets {
            if let Some(word) = set.word.get_mut(usize::from(target) / 64) {
                *word |= 1 << (target % 64);
            }
        }
        set
    }
}

impl ClassName {
    /// What is longer than [`CLASS_NAME_MAX`] bytes is cut.
    pub fn of(name: &str) -> Self {
        let mut value = ClassName::default();
        let places = value.text.iter_mut();
        places.zip(name.bytes()).for_each(|(to, byte)| *to = byte);
        value
    }

    /// None: nobody has been given the place.
    pub fn name(&self) -> Option<String> {
        let end = self.text.iter().position(|byte| *byte == 0);
        let text = &self.text[..end.unwrap_or(self.text.len())];
        (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
    }
}

impl Gauge {
    /// What was opened and is not over.
    pub const fn active(&self) -> u64 {
        self.opened.saturating_sub(self.closed)
    }
}

impl Target {
    /// `weight` is clamped to [`WEIGHT_MIN`]..=[`WEIGHT_MAX`], within which the programs can compare it.
    pub fn new(weight: u32, dispatched_base: u32) -> Target {
        Target {
            weight: weight.clamp(WEIGHT_MIN, WEIGHT_MAX),
            dispatched_base,
        }
    }

    /// Dimensionless; 0 only of the default, which is for targets that a choice does not count.
    pub const fn weight(&self) -> u32 {
        self.weight
    }
}

/// An address of 16 bytes in network order, IPv4 mapped (::ffff:a.b.c.d).
#[repr(C, align(4))]
#[derive(Pod, Zeroable, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Addr(pub [u8; 16]);

impl Addr {
    /// The address as people know it: an IPv4 address if mapped.
    pub fn ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }

    /// That of the address as people know it.
    pub fn family(self) -> Family {
        self.ip().into()
    }

    /// All zero: no address.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }
}

impl From<Ipv4Addr> for Addr {
    fn from(ip: Ipv4Addr) -> Self {
        Addr(ip.to_ipv6_mapped().octets())
    }
}

impl From<Ipv6Addr> for Addr {
    fn from(ip: Ipv6Addr) -> Self {
        Addr(ip.octets())
    }
}

impl From<IpAddr> for Addr {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => ip.into(),
            IpAddr::V6(ip) => ip.into(),
        }
    }
}

impl From<Addr> for IpAddr {
    fn from(addr: Addr) -> Self {
        addr.ip()
    }
}

/// A port or ICMP query id in network order.
#[repr(transparent)]
#[derive(Pod, Zeroable, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BePort(pub u16);

impl BePort {
    /// From host order.
    pub const fn new(port: u16) -> Self {
        BePort(port.to_be())
    }

    /// In host order.
    pub const fn get(self) -> u16 {
        u16::from_be(self.0)
    }
}

/// A number that is no member of the enumeration it should be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no member of its enumeration: program and library are of different versions")]
pub struct UnknownValue(u32);

/// Numbers of enumerations, as the fields of structures have them.
macro_rules! numbers {
    ($($enumeration:ident)*) => {
        $(
            impl From<$enumeration> for u32 {
                fn from(value: $enumeration) -> u32 {
                    value as u32
                }
            }

            impl From<$enumeration> for u8 {
                fn from(value: $enumeration) -> u8 {
                    value as u8
                }
            }
        )*
    };
}

numbers!(Answer Dispatch Family Fate Granularity Load Role Spread Syn Ties Unknown Verdict Why Without);

/// What is a key or value of a map, or an argument of a program.
#[cfg(feature = "aya")]
mod plain {
    use super::*;

    macro_rules! plain {
        ($($structure:ident)*) => {
            $(
                // SAFETY: of integers without padding, as bytemuck has found.
                unsafe impl aya::Pod for $structure where $structure: Pod {}
            )*
        };
    }

    plain! {
        Addr Alias Answering BePort Carried Choice Class ClassName Client Connection Consistent Device Direct Drr Ended Ending Evidences Explanation Flow FlowKey Flowlet
        FormerFlow Gauges Host HostKey Link Member MemberAddress Meter Opened OwnMac Paths Prefix Question QuestionKey Route RouteKey Rules Secret Server ServiceGauges ServiceSettings ServiceSweep Set Settings Spreading Sublink Sweep Table Traffic Upgrade Virtual Witnesses
    }
}

impl Flow {
    /// UDP and ICMP echo: the remote address that needs no permission of its own.
    pub fn first_remote(&self) -> Addr {
        let FlowTcp {
            isn,
            ack,
            end,
            tries,
        } = self.tcp;
        let mut bytes = [0; 16];
        for (chunk, word) in bytes.chunks_exact_mut(4).zip([isn, ack, end, tries]) {
            chunk.copy_from_slice(&word.to_ne_bytes());
        }
        Addr(bytes)
    }
}

impl std::ops::AddAssign for Traffic {
    /// Adds up the CPUs of one link.
    fn add_assign(&mut self, cpu: Traffic) {
        self.tx_packets += cpu.tx_packets;
        self.tx_bytes += cpu.tx_bytes;
        self.rx_packets += cpu.rx_packets;
        self.rx_bytes += cpu.rx_bytes;
        self.rx_progress += cpu.rx_progress;
        self.syn_retries += cpu.syn_retries;
        self.retrying_hosts += cpu.retrying_hosts;
        self.retried_ends += cpu.retried_ends;
    }
}

impl std::iter::Sum for Traffic {
    fn sum<I: Iterator<Item = Traffic>>(all: I) -> Traffic {
        all.fold(Traffic::default(), |mut sum, one| {
            sum += one;
            sum
        })
    }
}

impl std::ops::AddAssign for Carried {
    /// Adds up the CPUs of one sublink.
    fn add_assign(&mut self, cpu: Carried) {
        self.packets += cpu.packets;
        self.bytes += cpu.bytes;
        self.opened += cpu.opened;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two entries a flow, a million flows: every cache line of one is 128 MB.
    #[test]
    fn an_entry_of_a_flow_is_no_longer_than_96_bytes() {
        assert!(size_of::<Flow>() <= 96, "{}", size_of::<Flow>());
    }

    #[test]
    fn an_ipv4_address_is_mapped_and_comes_back_as_ipv4() {
        let addr = Addr::from(Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(
            addr.0,
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]
        );
        assert_eq!(IpAddr::from(addr), IpAddr::from([192, 0, 2, 1]));
    }

    #[test]
    fn an_ipv6_address_keeps_its_bytes() {
        let ip: Ipv6Addr = "2001:db8::1".parse().unwrap();
        assert_eq!(Addr::from(IpAddr::V6(ip)).ip(), IpAddr::V6(ip));
    }

    #[test]
    fn a_port_is_stored_in_network_order() {
        assert_eq!(BePort::new(0x1234).0.to_ne_bytes(), [0x12, 0x34]);
        assert_eq!(BePort::new(443).get(), 443);
    }

    #[test]
    fn the_first_remote_of_a_udp_mapping_stands_where_tcp_keeps_sequence_numbers() {
        let word = |bytes| u32::from_ne_bytes(bytes);
        let tcp = FlowTcp {
            isn: 0,
            ack: 0,
            end: word([0, 0, 0xff, 0xff]),
            tries: word([192, 0, 2, 7]),
        };
        let flow = Flow {
            tcp,
            ..Flow::default()
        };
        assert_eq!(flow.first_remote().ip(), IpAddr::from([192, 0, 2, 7]));
    }
}
