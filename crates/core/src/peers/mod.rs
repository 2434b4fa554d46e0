//! What others put in the place of a gateway like ours: what a site is compared with.
//!
//! Scenarios name a [`Peer`] where they name a policy. No configuration does: a peer is another program, or nothing but routes.
//! In the laboratory they are those programs. In the simulator a [`Control`] decides for them whatever is slower than a packet:
//! which link is the way to where ([`Table`]), at the site and, where the internet learns of it, in the internet. It reads no
//! clock and does no IO: it hands out what is to be sent over which link ([`Sent`]), is told what arrives, and which lines fail
//! where somebody who runs them would see that.

mod ron;
mod route_control;
mod router;
mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anabranch_config::Span;
use anabranch_policy::{Choice, Dispatch, Granularity};
use serde::Serialize;

use crate::algorithm::in_s;
use crate::catalogue::{self, Cost, Parameter, Parts, Policy, Row};
use crate::link::LinkId;
use crate::measure::Distance;
use crate::time::Time;
use ron::Overlay;
use route_control::RouteControl;
use router::Router;

pub use anabranch_policy::paths::Prefix;

/// Something else in the gateway's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Peer {
    /// The first link carries all, whatever becomes of it.
    OneLink,
    /// Each source has its link, whatever becomes of it: static sharing.
    Static,
    /// nftables gives each connection a random mark, and the mark a link, whatever becomes of that.
    Nftables,
    /// One route of the Linux kernel with all links as next hops, by a hash of addresses and ports.
    Ecmp,
    /// Connections of hosts take all links at once, where the other end speaks MPTCP, too.
    Mptcp,
    /// Of several default routes the first whose gateway answers.
    DeadGateway {
        /// A gateway that is silent for so long is dead.
        #[serde(rename = "after_s", serialize_with = "seconds")]
        after: Duration,
    },
    /// Providers are told of the site's addresses, and tell the internet.
    Bgp(Bgp),
    /// Latency and loss are measured for each prefix over each link, and the best link is its route.
    RouteControl {
        /// Between two measurements.
        #[serde(rename = "period_s", serialize_with = "seconds")]
        period: Duration,
    },
    /// A resilient overlay network of the site's addresses at its providers and a node at each prefix.
    Ron {
        /// By which ways are compared.
        metric: Metric,
    },
}

/// A multihomed site that speaks BGP with its providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bgp {
    /// Whose the site's addresses are.
    pub addresses: Addresses,
    /// From a change of what is announced until the whole internet has heard of it.
    #[serde(rename = "converge_s", serialize_with = "seconds")]
    pub converge: Duration,
    /// Whether BFD watches the last miles, beside the hold timer.
    pub bfd: bool,
}

/// By what a resilient overlay network compares ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Round trips.
    #[default]
    Latency,
    /// Probes that were lost.
    Loss,
    /// What a TCP connection would get, from both.
    Throughput,
}

/// Whose addresses a site has that speaks BGP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Addresses {
    /// Its own, one prefix, which all providers announce: the first carries all.
    Independent,
    /// Each host's are of one provider; those of a provider that is lost are announced to the whole internet by another (RFC 2260,
    /// auto route injection; Guo's case 1).
    Injected,
    /// The same, but the provider itself sends what is lost of its own through a tunnel by another (RFC 2260; Guo's
    /// case 2): nobody else has to hear of it.
    Tunnelled,
}

/// Of the keepalives of a session; after three of them its hold time is over (RFC 4271 section 4.4).
const KEEPALIVE: Duration = Duration::from_secs(30);
/// From one packet of BFD to the next (RFC 5880); three of them are its detection time, below a second.
const BFD: Duration = Duration::from_millis(300);
/// With the options of MPTCP (RFC 8684 section 3.2).
const SYN_BYTES: u32 = 72;
const TIMES: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(3600);

fn seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

impl Peer {
    /// Whether the laboratory has it.
    pub fn is_real(self) -> bool {
        match self {
            Peer::Bgp(bgp) => bgp.addresses == Addresses::Independent,
            Peer::Ron { .. } => false,
            _ => true,
        }
    }

    /// Whether the simulator has it.
    pub fn is_modelled(self) -> bool {
        self != Peer::Mptcp
    }

    /// Whether the site's addresses have to be reachable over each link.
    pub(crate) fn needs_no_nat(self) -> bool {
        matches!(self, Peer::Bgp(_))
    }

    /// Whatever its parameters.
    pub(crate) fn row(self) -> &'static Row {
        let is = |row: &&Row| matches!(row.policy, Policy::Peer(named) if self.is_alike(named));
        catalogue::rows().find(is).expect("every peer has a row")
    }

    fn is_alike(self, other: Peer) -> bool {
        match (self, other) {
            (Peer::Bgp(one), Peer::Bgp(other)) => one.addresses == other.addresses,
            _ => std::mem::discriminant(&self) == std::mem::discriminant(&other),
        }
    }

    /// With what stands behind its name: [`Peer::parameter`]. `None` if nothing may stand there.
    pub(crate) fn with(self, text: &str) -> Option<Result<Peer, String>> {
        Some(match self {
            Peer::DeadGateway { .. } => time(text).map(|after| Peer::DeadGateway { after }),
            Peer::RouteControl { .. } => time(text).map(|period| Peer::RouteControl { period }),
            Peer::Bgp(bgp) => {
                let (text, bfd) = match text.strip_suffix(" BFD") {
                    Some(text) => (text, true),
                    None => (text, false),
                };
                time(text).map(|converge| {
                    Peer::Bgp(Bgp {
                        converge,
                        bfd,
                        ..bgp
                    })
                })
            }
            Peer::Ron { .. } => {
                let metric = METRICS.iter().find(|(word, _)| *word == text);
                let metric = metric.map(|(_, metric)| Peer::Ron { metric: *metric });
                metric.ok_or_else(|| {
                    format!("{text} is no metric; allowed: latency, loss, throughput")
                })
            }
            Peer::OneLink | Peer::Static | Peer::Nftables | Peer::Ecmp | Peer::Mptcp => {
                return None;
            }
        })
    }

    /// What may stand behind its name, as files write it.
    pub(crate) fn parameter(self) -> Option<Parameter> {
        let (name, default, meaning) = match self {
            Peer::DeadGateway { after } => (
                "after",
                in_s(after),
                "of silence, then a gateway is dead; behind the name",
            ),
            Peer::RouteControl { period } => (
                "period",
                in_s(period),
                "between two measurements; behind the name",
            ),
            Peer::Bgp(Bgp { converge, bfd, .. }) => (
                "converge",
                in_s(converge) + if bfd { " BFD" } else { "" },
                "until all have heard of a change; behind the name, and BFD behind that",
            ),
            Peer::Ron { metric } => {
                let word = METRICS.iter().find(|(_, known)| *known == metric);
                let word = word.map_or("", |(word, _)| word).to_owned();
                (
                    "metric",
                    word,
                    "by which ways are compared; behind the name",
                )
            }
            Peer::OneLink | Peer::Static | Peer::Nftables | Peer::Ecmp | Peer::Mptcp => {
                return None;
            }
        };
        Some(Parameter {
            name,
            default,
            meaning,
        })
    }

    pub(crate) fn parts(self) -> Parts {
        let (measure, dispatch, granularity) = match self {
            Peer::OneLink => ("none", "none", "connection"),
            Peer::Static => ("none", "none", "host"),
            Peer::Nftables => ("none", "random", "connection"),
            Peer::Ecmp => ("none", "hash", "connection"),
            Peer::Mptcp => ("queued / rate", "best", "packet"),
            Peer::DeadGateway { .. } => ("neighbours", "first", "packet"),
            Peer::Bgp(_) => ("routes", "first", "packet"),
            Peer::RouteControl { .. } => ("latency and loss", "best", "prefix"),
            Peer::Ron { metric } => match metric {
                Metric::Latency => ("latency", "best", "prefix"),
                Metric::Loss => ("loss", "best", "prefix"),
                Metric::Throughput => ("throughput", "best", "prefix"),
            },
        };
        Parts {
            measure,
            dispatch,
            granularity,
        }
    }

    /// How far away that looks which it compares links by.
    pub(crate) fn distance(self) -> Distance {
        match self {
            Peer::OneLink | Peer::Static | Peer::Nftables | Peer::Ecmp => Distance::Local,
            // A neighbour tells what others have announced, but is heard no further than he is.
            Peer::DeadGateway { .. } | Peer::Bgp(_) => Distance::LastMile,
            Peer::RouteControl { .. } | Peer::Ron { .. } | Peer::Mptcp => Distance::Destination,
        }
    }

    /// Between two looks, where a timer says when.
    pub(crate) fn period(self) -> Option<Duration> {
        match self {
            Peer::OneLink | Peer::Static | Peer::Nftables | Peer::Ecmp | Peer::Mptcp => None,
            Peer::DeadGateway { .. } | Peer::Bgp(_) => Some(router::question(self).0),
            Peer::RouteControl { period } => Some(period),
            Peer::Ron { .. } => Some(ron::PROBE_INTERVAL),
        }
    }

    /// The bytes of its own packets, and its sockets.
    pub(crate) fn sent(self) -> catalogue::Sent {
        let bytes = match self {
            Peer::OneLink | Peer::Static | Peer::Nftables | Peer::Ecmp => {
                return catalogue::Sent::nothing();
            }
            Peer::Mptcp => SYN_BYTES,
            Peer::DeadGateway { .. } | Peer::Bgp(_) => router::question(self).1,
            Peer::RouteControl { .. } => route_control::PROBE_BYTES,
            Peer::Ron { .. } => ron::PROBE_BYTES,
        };
        let sockets = match self {
            Peer::Bgp(_) => "a TCP connection with each provider",
            Peer::Ron { .. } => "one for all nodes",
            Peer::Mptcp => "one for each link of each connection, at both ends",
            _ => "one, while an answer is out",
        };
        catalogue::Sent::new(format!("{bytes} a packet"), sockets)
    }

    pub(crate) fn cost(self) -> Cost {
        let (state, probes) = match self {
            Peer::OneLink | Peer::Ecmp => ("nothing", "none"),
            Peer::Static => ("a route for each source", "none"),
            Peer::Nftables => ("a mark for each connection", "none"),
            Peer::Mptcp => (
                "a subflow of each connection over each link, at both ends",
                "for each connection a handshake over each other link",
            ),
            Peer::DeadGateway { .. } => (
                "a neighbour of each link",
                "three in its time over the last mile of each link",
            ),
            Peer::Bgp(_) => (
                "what each provider announces",
                "over each last mile a keepalive in 30 s; with BFD a packet in 300 ms",
            ),
            Peer::RouteControl { .. } => (
                "latency and loss of each prefix over each link",
                "one in a period over each link for each prefix",
            ),
            Peer::Ron { .. } => (
                "for each pair of nodes 100 probes and what others tell",
                "between any two nodes three packets of 69 bytes in 13 s, a table of 20 bytes for each node in 14 s",
            ),
        };
        Cost { state, probes }
    }
}

const METRICS: [(&str, Metric); 3] = [
    ("latency", Metric::Latency),
    ("loss", Metric::Loss),
    ("throughput", Metric::Throughput),
];

fn time(text: &str) -> Result<Duration, String> {
    let Span(time) = text.parse()?;
    match TIMES.contains(&time) && time.subsec_nanos() == 0 {
        true => Ok(time),
        false => Err("such a time is 1s to 3600s, in whole seconds".to_owned()),
    }
}

impl fmt::Display for Peer {
    /// As it may be written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = self.row();
        f.write_str(row.name)?;
        match self.parameter() {
            Some(parameter) if row.policy != Policy::Peer(*self) => {
                write!(f, " {}", parameter.default)
            }
            _ => Ok(()),
        }
    }
}

impl From<Peer> for Policy {
    fn from(peer: Peer) -> Self {
        Policy::Peer(peer)
    }
}

/// A packet of a peer's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Whose lines it takes.
    pub link: LinkId,
    /// Which of them.
    pub journey: Journey,
    /// With headers.
    pub bytes: u32,
    /// To be told by when it arrives.
    pub token: u32,
}

/// The way of a peer's own packet over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journey {
    /// Over the last mile and back.
    Neighbour,
    /// Beyond all lines and back.
    Far,
    /// From the site, and not back.
    Up,
    /// To the site, and not back.
    Down,
}

/// Which link is the way to where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Where no prefix is known: hosts have these in turn, by their number. At least one.
    hosts: Vec<LinkId>,
    prefixes: BTreeMap<Prefix, LinkId>,
}

impl Table {
    fn by_host(hosts: Vec<LinkId>) -> Table {
        Table {
            hosts,
            prefixes: BTreeMap::new(),
        }
    }

    /// Of what host number `host` sends to an address of `to`.
    pub fn link(&self, host: u32, to: Prefix) -> LinkId {
        let known = self.prefixes.get(&to).copied();
        known.unwrap_or_else(|| self.hosts[host as usize % self.hosts.len()])
    }
}

/// The way of the internet to a host of the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inward {
    /// By which it comes.
    pub link: LinkId,
    /// The provider that has sent it on through a tunnel.
    pub through: Option<LinkId>,
}

/// A peer at work.
#[derive(Debug)]
pub struct Control {
    links: usize,
    routed: bool,
    peer: Peer,
    mind: Mind,
}

#[derive(Debug)]
enum Mind {
    /// Nothing ever changes.
    Still,
    Router(Router),
    RouteControl(RouteControl),
    Overlay(Overlay),
}

impl Control {
    /// Of a site with `links` links, all without NAT or not (`routed`), whose users ask hosts of `prefixes`.
    pub fn new(
        peer: Peer,
        links: usize,
        routed: bool,
        prefixes: Vec<Prefix>,
        random: &mut dyn FnMut() -> u64,
    ) -> Control {
        let mind = match peer {
            Peer::OneLink | Peer::Static | Peer::Nftables | Peer::Ecmp | Peer::Mptcp => Mind::Still,
            Peer::DeadGateway { .. } | Peer::Bgp(_) => Mind::Router(Router::new(peer, links)),
            Peer::RouteControl { period } => {
                Mind::RouteControl(RouteControl::new(period, links, prefixes))
            }
            Peer::Ron { metric } => Mind::Overlay(Overlay::new(metric, links, prefixes, random)),
        };
        Control {
            links,
            routed,
            peer,
            mind,
        }
    }

    /// What the packet path goes by where no [`Control::table`] says more.
    pub fn choice(&self) -> Choice {
        let dispatch = match self.peer {
            Peer::Nftables => Dispatch::Random,
            _ => Dispatch::Hash,
        };
        // Routes are asked for every packet, but translation binds a connection.
        let granularity = match self.routed && self.peer != Peer::Nftables {
            true => Granularity::Packet,
            false => Granularity::Connection,
        };
        Choice {
            dispatch: dispatch.into(),
            granularity: granularity.into(),
            ..Choice::round_robin(self.links as u32, u64::MAX >> (64 - self.links))
        }
    }

    /// The way from the site, if routes say it.
    pub fn table(&self) -> Option<Table> {
        match &self.mind {
            Mind::Still => match self.peer {
                Peer::OneLink => Some(Table::by_host(vec![LinkId(0)])),
                Peer::Static => {
                    let links = (0..self.links as u16).map(LinkId);
                    Some(Table::by_host(links.collect()))
                }
                _ => None,
            },
            Mind::Router(router) => Some(router.table()),
            Mind::RouteControl(control) => Some(control.table()),
            Mind::Overlay(overlay) => Some(overlay.table()),
        }
    }

    /// The way of the internet to a host, for what comes `from` there; none if the peer has no say in it.
    pub fn inward(&self, host: u32, from: Prefix) -> Option<Inward> {
        match &self.mind {
            Mind::Router(router) => router.inward(host),
            Mind::Overlay(overlay) => overlay.inward(from).map(|link| Inward {
                link,
                through: None,
            }),
            Mind::Still | Mind::RouteControl(_) => None,
        }
    }

    /// Whether it takes a link for alive. Those that never look take all for that.
    pub fn is_alive(&self, link: LinkId) -> bool {
        match &self.mind {
            Mind::Still => true,
            Mind::Router(router) => router.is_alive(link),
            Mind::RouteControl(control) => control.is_alive(link),
            Mind::Overlay(overlay) => overlay.is_alive(link),
        }
    }

    /// When to call [`Control::turn`], if ever.
    pub fn next_turn(&self) -> Option<Time> {
        match &self.mind {
            Mind::Still => None,
            Mind::Router(router) => Some(router.next_turn()),
            Mind::RouteControl(control) => Some(control.next_turn()),
            Mind::Overlay(overlay) => Some(overlay.next_turn()),
        }
    }

    /// Does what is due, and returns what is to be sent. `random` draws uniformly over all values.
    pub fn turn(&mut self, now: Time, random: &mut dyn FnMut() -> u64) -> Vec<Sent> {
        match &mut self.mind {
            Mind::Still => Vec::new(),
            Mind::Router(router) => router.turn(now),
            Mind::RouteControl(control) => control.turn(now),
            Mind::Overlay(overlay) => overlay.turn(now, random),
        }
    }

    /// A packet has come to the end of its journey. Returns what is to be sent for that.
    pub fn arrive(&mut self, now: Time, token: u32, random: &mut dyn FnMut() -> u64) -> Vec<Sent> {
        match &mut self.mind {
            Mind::Still => {}
            Mind::Router(router) => router.arrive(now, token),
            Mind::RouteControl(control) => control.arrive(now, token),
            Mind::Overlay(overlay) => return overlay.arrive(now, token, random),
        }
        Vec::new()
    }

    /// What is beyond the last mile of a link was cut, or is whole again: who runs it sees that.
    pub fn beyond(&mut self, now: Time, link: LinkId, lost: bool) {
        if let Mind::Router(router) = &mut self.mind {
            router.beyond(now, link, lost);
        }
    }
}

#[cfg(test)]
mod tests;
