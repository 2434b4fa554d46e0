//! The attacks by name.

use std::net::IpAddr;

use anabranch_scenario::Family;

use super::Subject;
use super::frame::{Ends, PORT, Payload, Plan, Range, Recipe, TRACKED, random};
use super::innocent::{TCP_PORT, UDP_PORT};
use super::ranges::{
    ALL_NODES, ALL_NODES_MAC, ROGUE, beside_servers, container, few, invented, lan, one_remote,
    prefixes, range_of, whole,
};
use super::scene::Scene;
use super::service::virtual_address;
use super::site::{ATTACKER, Cable, From, Site, VICTIM, foreign};
use crate::topology::{self, CLIENTS, Result, SERVERS};

const TTL: u8 = 64;

/// Whose addresses the frames bear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sender {
    /// The attacker itself; from outside, and on the LAN where it makes up addresses, anybody.
    Attacker,
    /// The innocent host.
    Victim,
    /// The servers that the innocents call.
    Servers,
    /// One of sixteen.
    Few,
    /// On the LAN, anybody beyond it.
    Anybody,
    /// Of the LAN's prefix, and no host's.
    Invented,
    /// Hosts on a link's segment that say that they are routers.
    Rogues,
}

/// Whom the frames are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// Anybody beyond the links; from outside, the first link's address.
    Far,
    /// The gateway's own address on the LAN.
    Gateway,
    /// A server in a container of the gateway; from outside, by the first link's address.
    Container,
    /// Addresses beside those of the servers, in the same /24 or /48, at which nobody is.
    BesideServers,
    /// Places in many prefixes.
    Prefixes,
    /// Whoever is on the segment.
    AllNodes,
    /// A virtual address.
    Service,
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
    /// Frames per second at most; 0 where the site itself is the attack.
    pub rate_max_pps: u32,
    families: &'static [Family],
    pub(super) recipe: Recipe,
    sender: Sender,
    target: Target,
    pub(super) scene: Scene,
}

const fn attack(name: &'static str, words: &'static str, payload: Payload, random: u32) -> Attack {
    Attack {
        name,
        words,
        from: From::Lan,
        rate_max_pps: u32::MAX,
        families: &Family::ALL,
        recipe: Recipe {
            payload,
            random,
            ttl: TTL,
            answered: false,
            claims_sources: false,
            known_by_sources: false,
            port: PORT,
            turns: TRACKED,
        },
        sender: Sender::Attacker,
        target: Target::Far,
        scene: Scene::Plain,
    }
}

impl Attack {
    /// From random sources.
    const fn outside(mut self) -> Self {
        self.recipe.random |= random::SOURCE;
        self.arriving_by_link()
    }

    const fn arriving_by_link(mut self) -> Self {
        self.from = From::Internet;
        self
    }

    const fn sent_by(mut self, sender: Sender) -> Self {
        self.sender = sender;
        self
    }

    const fn to(mut self, target: Target) -> Self {
        self.target = target;
        self
    }

    const fn at_port(mut self, port: u16) -> Self {
        self.recipe.port = port;
        self
    }

    /// To this port of a service.
    const fn of_service(mut self, port: u16) -> Self {
        self.recipe.known_by_sources = true;
        self.target = Target::Service;
        self.scene = Scene::Service;
        self.at_port(port)
    }

    const fn at(mut self, scene: Scene) -> Self {
        self.scene = scene;
        self
    }

    const fn answered(mut self) -> Self {
        self.recipe.answered = true;
        self
    }

    const fn claiming(mut self) -> Self {
        self.recipe.claims_sources = true;
        self
    }

    const fn in_turn(mut self, turns: u32) -> Self {
        self.recipe.random |= random::SOURCES_IN_TURN;
        self.recipe.turns = turns;
        self
    }

    const fn of_ttl(mut self, ttl: u8) -> Self {
        self.recipe.ttl = ttl;
        self
    }

    const fn no_faster(mut self, rate_max_pps: u32) -> Self {
        self.rate_max_pps = rate_max_pps;
        self
    }

    const fn of_ipv6(mut self) -> Self {
        self.families = &[Family::V6];
        self
    }

    /// The attack of a name.
    pub fn named(name: &str) -> Option<&'static Attack> {
        ATTACKS.iter().find(|attack| attack.name == name)
    }

    /// Whether there is something to attack: a family may know no such frames, nftables
    /// neither judges links nor learns of them, and HAProxy is no gateway.
    pub fn concerns(&self, subject: Subject, family: Family) -> bool {
        let is_judge = matches!(self.scene, Scene::Learning | Scene::Captive);
        self.families.contains(&family)
            && match subject {
                Subject::Anabranch => true,
                Subject::Nftables => !is_judge,
                Subject::Haproxy => self.scene == Scene::Service,
            }
    }

    /// It is about fragments: the innocent host's queries are fragmented too.
    pub(super) fn fragments(&self) -> bool {
        matches!(
            self.recipe.payload,
            Payload::FirstFragment | Payload::LaterFragment
        )
    }

    /// Its frames have VLAN tags.
    pub(super) fn is_tagged(&self) -> bool {
        self.recipe.random & random::TAG != 0
    }

    pub(super) fn plan(&self, site: &Site, cable: &Cable) -> Result<Plan> {
        let (macs, family) = (cable.macs()?, site.family());
        Ok(self.plan_between(macs, family, site.external()))
    }

    /// Between these MACs; from outside for `external`.
    pub(super) fn plan_between(
        &self,
        [from, to]: [[u8; 6]; 2],
        family: Family,
        external: IpAddr,
    ) -> Plan {
        let source = match (self.sender, self.from) {
            (Sender::Victim, _) => CLIENTS.address(family, VICTIM),
            (_, From::Lan) => CLIENTS.address(family, ATTACKER),
            (_, From::Internet) => one_remote(family),
        };
        let (first, length) = match self.target {
            Target::BesideServers => beside_servers(family),
            Target::Prefixes => prefixes(family),
            Target::Container => container(family),
            Target::Service => whole(virtual_address(family)),
            Target::Far | Target::Gateway | Target::AllNodes => foreign(family),
        };
        let to = match self.target {
            Target::AllNodes => ALL_NODES_MAC,
            _ => to,
        };
        self.recipe.plan(&Ends {
            macs: [from, to],
            source,
            destination: self.destination(family, external),
            sources: self.sources(family),
            destinations: Range::prefix(first, length),
        })
    }

    fn destination(&self, family: Family, external: IpAddr) -> IpAddr {
        match (self.target, self.from) {
            (Target::AllNodes, _) => ALL_NODES.into(),
            (Target::Service, _) => virtual_address(family),
            (_, From::Internet) => external,
            (Target::Gateway, From::Lan) => topology::lan(family).0,
            (Target::Container, From::Lan) => container(family).0,
            (_, From::Lan) => one_remote(family),
        }
    }

    /// Where the source is random.
    fn sources(&self, family: Family) -> Range {
        let (is_ipv6, (foreign, length)) = (family == Family::V6, foreign(family));
        match (self.sender, self.from) {
            (Sender::Servers, _) => {
                range_of(SERVERS.address(family, 0), if is_ipv6 { 125 } else { 29 })
            }
            (Sender::Few, From::Lan) => few(CLIENTS.address(family, ATTACKER)),
            (Sender::Few, From::Internet) => few(foreign),
            (Sender::Invented, _) => invented(family),
            (Sender::Rogues, _) => few(ROGUE.into()),
            (Sender::Attacker, _) if self.recipe.known_by_sources => {
                let (attacker, length) = whole(CLIENTS.address(family, ATTACKER));
                Range::prefix(attacker, length)
            }
            (Sender::Victim, _) if self.recipe.known_by_sources => Range::prefix(foreign, length),
            (Sender::Attacker | Sender::Victim, From::Lan) => lan(family),
            (Sender::Anybody, _) | (Sender::Attacker | Sender::Victim, From::Internet) => {
                Range::prefix(foreign, length)
            }
        }
    }
}

/// To a server that answers nothing, each repeated once a second.
const DEAD_CALLS: u32 = 256;
const BESIDE_SERVERS: u32 = 128;

const FLOW: u32 = random::PORTS | random::DESTINATION;
const SYN: u32 = FLOW | random::FIRST_WORD;
const DATAGRAM: u32 = FLOW | random::IP_ID;
const CALL: u32 = random::SOURCE_PORT | random::FIRST_WORD;
/// More than a client needs.
const HELD_CALLS: u32 = 100_000;

/// `NAME: WORDS => PAYLOAD, RANDOM, METHOD(…), …;` each.
macro_rules! attacks {
    ($($name:literal: $words:literal => $payload:ident, $random:expr $(, $method:ident($($argument:expr)?))*;)+) => {
        [$(attack($name, $words, Payload::$payload, $random)$(.$method($($argument)?))*),+]
    };
}

/// In the order in which they are run.
pub static ATTACKS: [Attack; 40] = attacks! {
    "syn": "SYNs to random ports and destinations" => Syn, SYN;
    "syn-spoofed-mac": "the same, each from another MAC" => Syn, SYN | random::MAC;
    "syn-spoofed-source": "the same, from random addresses of the LAN's prefix" => Syn, SYN | random::SOURCE;
    "syn-as-neighbour": "the same, from the innocent host's address" => Syn, SYN, sent_by(Sender::Victim);
    "syn-beside-rules": "the same, while the kernel's routing rules are asked about each"
        => Syn, SYN, at(Scene::BesideRules);
    "connections": "connections, opened in full by the help of their servers" => Syn, SYN, answered();
    "ack": "segments of unknown TCP connections" => Ack, SYN;
    "udp": "datagrams to random ports and destinations" => Udp, FLOW;
    "udp-answered": "the same, each answered" => Udp, FLOW, answered();
    "udp-one-remote": "datagrams from random ports to one endpoint" => Udp, random::SOURCE_PORT;
    "icmp": "echo requests with random identifiers" => Echo, random::DESTINATION | random::FIRST_WORD;
    "ttl": "datagrams whose hop limit ends at the gateway" => Udp, FLOW, of_ttl(1);
    "header-chain": "datagrams behind as many options or extension headers as may be" => Chain, FLOW;
    "fragments": "first fragments of UDP datagrams" => FirstFragment, DATAGRAM;
    "later-fragments": "last fragments of datagrams never begun" => LaterFragment, random::DESTINATION | random::IP_ID;
    "wan-syn": "from outside: SYNs to random ports of an external address"
        => Syn, random::PORTS | random::FIRST_WORD, outside();
    "bare-syn": "from outside: SYNs in the names of the servers that the innocents call, to random ports"
        => SynOfServer, random::DESTINATION_PORT, outside(), sent_by(Sender::Servers);
    "wan-udp": "from outside: datagrams to random ports" => Udp, random::PORTS, outside();
    "wan-transit": "from outside: datagrams for networks that are neither the gateway's nor its LAN's"
        => Udp, FLOW, outside();
    "wan-fragments": "from outside: first fragments to random ports"
        => FirstFragment, random::PORTS | random::IP_ID, outside();
    "wan-later-fragments": "from outside: last fragments of datagrams never begun"
        => LaterFragment, random::IP_ID, outside();
    "wan-errors": "from outside: ICMP errors about segments that nobody sent" => Error, random::PORTS, outside();
    "conntrack-lan": "questions to a server in a container of the gateway, as many as its connection table holds, each answered"
        => Udp, 0, at_port(UDP_PORT), in_turn(TRACKED), sent_by(Sender::Few), claiming(), answered(), to(Target::Container), at(Scene::Container);
    "conntrack-wan": "from outside: the same, to a link's address, whose port is the server's"
        => Udp, 0, at_port(UDP_PORT), in_turn(TRACKED), arriving_by_link(), sent_by(Sender::Few), answered(), to(Target::Container), at(Scene::Container);
    "dead-server": "SYNs to one server that answers nothing, from 256 ports, each repeated as hosts do"
        => Syn, 0, in_turn(DEAD_CALLS), sent_by(Sender::Few), no_faster(DEAD_CALLS);
    "dead-server-all": "SYNs to one server that answers nothing, by eight hosts, each repeated as hosts do"
        => Syn, random::HOST, sent_by(Sender::Few), no_faster(8);
    "captive": "nothing, but one link carries pings and questions to resolvers alone"
        => Syn, SYN, no_faster(0), at(Scene::Captive);
    "neighbours-answered": "echo requests from invented addresses of the LAN, for all of which the attacker answers"
        => Echo, random::SOURCE | random::FIRST_WORD, sent_by(Sender::Invented), to(Target::Gateway), claiming(), at(Scene::KnownNeighbours);
    "prefix-poison": "SYNs to dead addresses beside the servers that the innocents call, each repeated as hosts do"
        => Syn, random::DESTINATION, no_faster(BESIDE_SERVERS), to(Target::BesideServers), at(Scene::Learning);
    "prefix-evict": "connections, opened in full, to more prefixes than are remembered"
        => Syn, SYN, answered(), to(Target::Prefixes), at(Scene::Learning);
    "vlan-double": "datagrams behind a priority tag, or another, and a second one" => Udp, FLOW | random::TAG;
    "rogue-ra": "on a link's segment: advertisements of eight hosts that are no routers"
        => Advertisement, random::HOST, arriving_by_link(), sent_by(Sender::Rogues), to(Target::AllNodes), of_ttl(255), no_faster(2000), of_ipv6(), at(Scene::Advertised);
    "service-syn": "from one host: SYNs to a service" => Syn, CALL, of_service(TCP_PORT);
    "service-syn-spoofed": "from random addresses: SYNs to a service"
        => Syn, CALL | random::SOURCE, sent_by(Sender::Anybody), of_service(TCP_PORT);
    "service-ack": "from random addresses: segments of no connection to a service"
        => Ack, CALL | random::SOURCE, sent_by(Sender::Anybody), of_service(TCP_PORT);
    "service-udp": "from random addresses: datagrams to a service"
        => Udp, random::SOURCE_PORT | random::SOURCE, sent_by(Sender::Anybody), of_service(UDP_PORT);
    "service-fragments": "from random addresses: first fragments of datagrams to a service"
        => FirstFragment, random::SOURCE_PORT | random::SOURCE | random::IP_ID, sent_by(Sender::Anybody), of_service(UDP_PORT);
    "service-later-fragments": "from random addresses: last fragments, to a service, of datagrams never begun"
        => LaterFragment, random::SOURCE | random::IP_ID, sent_by(Sender::Anybody), of_service(UDP_PORT);
    "service-errors": "from random addresses: ICMP errors about what a service sent to the innocents"
        => Error, random::DESTINATION_PORT | random::SOURCE, sent_by(Sender::Victim), of_service(TCP_PORT);
    "service-connections": "from one host: 100 000 connections to a service, opened in full by the help of its servers, and again"
        => Syn, random::FIRST_WORD, in_turn(HELD_CALLS), sent_by(Sender::Few), claiming(), answered(), of_service(TCP_PORT);
};
