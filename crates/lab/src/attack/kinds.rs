//! The attacks by name.

use std::net::Ipv4Addr;

use super::frame::{Ends, Payload, Plan, Range, Recipe, random};
use super::site::{ATTACKER, Cable, Site, VICTIM};
use crate::topology::Result;

/// What the attack sends goes to these addresses, or comes from them: set apart for benchmarks (RFC 2544), and nobody
/// else's here. The ISPs' devices count and drop what goes there.
pub(super) const FOREIGN: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
pub(super) const FOREIGN_PREFIX_LEN: u32 = 15;
const ONE_REMOTE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const LAN: Ipv4Addr = Ipv4Addr::new(10, 80, 0, 0);
const LAN_PREFIX_LEN: u32 = 16;
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
        let macs = cable.macs()?;
        let foreign = Range::prefix(FOREIGN, FOREIGN_PREFIX_LEN);
        let ends = match self.from {
            From::Lan => Ends {
                macs,
                source: if self.as_victim { VICTIM } else { ATTACKER },
                destination: ONE_REMOTE,
                sources: lan(),
                destinations: foreign,
            },
            From::Internet => Ends {
                macs,
                source: ONE_REMOTE,
                destination: site.external(),
                sources: foreign,
                destinations: foreign,
            },
        };
        Ok(self.recipe.plan(&ends))
    }
}

pub(super) fn lan() -> Range {
    Range::prefix(LAN, LAN_PREFIX_LEN)
}

const FLOW: u32 = random::PORTS | random::DESTINATION;
const SYN: u32 = FLOW | random::FIRST_WORD;
const DATAGRAM: u32 = FLOW | random::IP_ID;

/// In the order in which they are run.
pub static ATTACKS: [Attack; 17] = [
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
        "wan-udp",
        "from outside: datagrams to random ports",
        Payload::Udp,
        random::PORTS,
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
];
