//! The attacks by name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anabranch_scenario::Family;

use super::frame::{Ends, Payload, Plan, Range, Recipe, random};
use super::site::{ATTACKER, Cable, Site, VICTIM};
use crate::topology::{self, CLIENTS, Result, SERVERS};

/// What the attack sends goes to these addresses, or comes from them: set apart for benchmarks (RFC 2544, RFC 5180), and nobody
/// else's here. The ISPs' devices count and drop what goes there.
fn foreign(family: Family) -> (IpAddr, u32) {
    match family {
        Family::V4 => (Ipv4Addr::new(198, 18, 0, 0).into(), 15),
        Family::V6 => (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0).into(), 48),
    }
}

/// One of them.
fn one_remote(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(198, 18, 0, 1).into(),
        Family::V6 => Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1).into(),
    }
}

const TTL: u8 = 64;

/// Where an attack comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// A host on the LAN.
    Lan,
    /// Beyond the first ISP.
    Internet,
}

/// A flood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attack {
    /// As it is asked for and reported.
    pub name: &'static str,
    /// What is sent, in a few words.
    pub words: &'static str,
    /// Who sends it.
    pub from: From,
    pub(super) recipe: Recipe,
    /// It pretends to be the innocent host.
    as_victim: bool,
    /// It pretends to be the servers that the innocents call.
    as_server: bool,
    /// The gateway has routing rules of others, which may speak of every flow.
    pub(super) beside_rules: bool,
}

const fn attack(name: &'static str, words: &'static str, payload: Payload, random: u32) -> Attack {
    Attack {
        name,
        words,
        from: From::Lan,
        recipe: Recipe {
            payload,
            random,
            ttl: TTL,
            answered: false,
        },
        as_victim: false,
        as_server: false,
        beside_rules: false,
    }
}

impl Attack {
    const fn outside(mut self) -> Self {
        self.from = From::Internet;
        self.recipe.random |= random::SOURCE;
        self
    }

    const fn as_victim(mut self) -> Self {
        self.as_victim = true;
        self
    }

    const fn as_server(mut self) -> Self {
        self.as_server = true;
        self
    }

    const fn beside_rules(mut self) -> Self {
        self.beside_rules = true;
        self
    }

    const fn answered(mut self) -> Self {
        self.recipe.answered = true;
        self
    }

    const fn of_ttl(mut self, ttl: u8) -> Self {
        self.recipe.ttl = ttl;
        self
    }

    /// The attack of a name.
    pub fn named(name: &str) -> Option<&'static Attack> {
        ATTACKS.iter().find(|attack| attack.name == name)
    }

    /// It is about fragments: the innocent host's queries are fragmented too.
    pub(super) fn fragments(&self) -> bool {
        matches!(
            self.recipe.payload,
            Payload::FirstFragment | Payload::LaterFragment
        )
    }

    pub(super) fn plan(&self, site: &Site, cable: &Cable) -> Result<Plan> {
        let (macs, family) = (cable.macs()?, site.family());
        Ok(self.plan_between(macs, family, site.external()))
    }

    /// Between these MACs; from outside for `external`.
    pub(super) fn plan_between(
        &self,
        macs: [[u8; 6]; 2],
        family: Family,
        external: IpAddr,
    ) -> Plan {
        let (first, length) = foreign(family);
        let foreign = Range::prefix(first, length);
        let sender = if self.as_victim { VICTIM } else { ATTACKER };
        self.recipe.plan(&match self.from {
            From::Lan => Ends {
                macs,
                source: CLIENTS.address(family, sender),
                destination: one_remote(family),
                sources: lan(family),
                destinations: foreign,
            },
            From::Internet => Ends {
                macs,
                source: one_remote(family),
                destination: external,
                sources: if self.as_server {
                    servers(family)
                } else {
                    foreign
                },
                destinations: foreign,
            },
        })
    }
}

/// The LAN's prefix: of IPv6 a /64, all of whose addresses a host may take for its own.
pub(super) fn lan(family: Family) -> Range {
    let (address, length) = topology::lan(family);
    range_of(address, length)
}

/// The servers that the innocents call, and some addresses beside them.
fn servers(family: Family) -> Range {
    let length = if family == Family::V6 { 125 } else { 29 };
    range_of(SERVERS.address(family, 0), length)
}

/// The network of this length that an address is in.
fn range_of(address: IpAddr, length: u8) -> Range {
    let whole = if address.is_ipv6() { 128 } else { 32 };
    let mask = u128::MAX >> (128 - (whole - length));
    let network = match address {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & !(mask as u32)).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !mask).into(),
    };
    Range::prefix(network, length.into())
}

const FLOW: u32 = random::PORTS | random::DESTINATION;
const SYN: u32 = FLOW | random::FIRST_WORD;
const DATAGRAM: u32 = FLOW | random::IP_ID;

/// In the order in which they are run.
pub static ATTACKS: [Attack; 22] = [
    attack(
        "syn",
        "SYNs to random ports and destinations",
        Payload::Syn,
        SYN,
    ),
    attack(
        "syn-spoofed-mac",
        "the same, each from another MAC",
        Payload::Syn,
        SYN | random::MAC,
    ),
    attack(
        "syn-spoofed-source",
        "the same, from random addresses of the LAN's prefix",
        Payload::Syn,
        SYN | random::SOURCE,
    ),
    attack(
        "syn-as-neighbour",
        "the same, from the innocent host's address",
        Payload::Syn,
        SYN,
    )
    .as_victim(),
    attack(
        "syn-beside-rules",
        "the same, while the kernel's routing rules are asked about each",
        Payload::Syn,
        SYN,
    )
    .beside_rules(),
    attack(
        "connections",
        "connections, opened in full by the help of their servers",
        Payload::Syn,
        SYN,
    )
    .answered(),
    attack(
        "ack",
        "segments of unknown TCP connections",
        Payload::Ack,
        SYN,
    ),
    attack(
        "udp",
        "datagrams to random ports and destinations",
        Payload::Udp,
        FLOW,
    ),
    attack(
        "udp-answered",
        "the same, each answered",
        Payload::Udp,
        FLOW,
    )
    .answered(),
    attack(
        "udp-one-remote",
        "datagrams from random ports to one endpoint",
        Payload::Udp,
        random::SOURCE_PORT,
    ),
    attack(
        "icmp",
        "echo requests with random identifiers",
        Payload::Echo,
        random::DESTINATION | random::FIRST_WORD,
    ),
    attack(
        "ttl",
        "datagrams whose hop limit ends at the gateway",
        Payload::Udp,
        FLOW,
    )
    .of_ttl(1),
    attack(
        "header-chain",
        "datagrams behind as many options or extension headers as may be",
        Payload::Chain,
        FLOW,
    ),
    attack(
        "fragments",
        "first fragments of UDP datagrams",
        Payload::FirstFragment,
        DATAGRAM,
    ),
    attack(
        "later-fragments",
        "last fragments of datagrams never begun",
        Payload::LaterFragment,
        random::DESTINATION | random::IP_ID,
    ),
    attack(
        "wan-syn",
        "from outside: SYNs to random ports of an external address",
        Payload::Syn,
        random::PORTS | random::FIRST_WORD,
    )
    .outside(),
    attack(
        "bare-syn",
        "from outside: SYNs in the names of the servers that the innocents call, to random ports",
        Payload::SynOfServer,
        random::DESTINATION_PORT,
    )
    .outside()
    .as_server(),
    attack(
        "wan-udp",
        "from outside: datagrams to random ports",
        Payload::Udp,
        random::PORTS,
    )
    .outside(),
    attack(
        "wan-transit",
        "from outside: datagrams for networks that are neither the gateway's nor its LAN's",
        Payload::Udp,
        FLOW,
    )
    .outside(),
    attack(
        "wan-fragments",
        "from outside: first fragments to random ports",
        Payload::FirstFragment,
        random::PORTS | random::IP_ID,
    )
    .outside(),
    attack(
        "wan-later-fragments",
        "from outside: last fragments of datagrams never begun",
        Payload::LaterFragment,
        random::IP_ID,
    )
    .outside(),
    attack(
        "wan-errors",
        "from outside: ICMP errors about segments that nobody sent",
        Payload::Error,
        random::PORTS,
    )
    .outside(),
];
