//! The peers that have a name, and all that people are told of them.

use std::fmt;
use std::time::Duration;

use anabranch_config::Span;
use anabranch_core::catalogue::{
    Cost, Facts, Needs, Page, Parameter, Parts, Sent, TargetKind, in_s,
};
use anabranch_core::measure::Distance;

use crate::peer::{Addresses, Bgp, Metric, Peer};
use crate::{ron, route_control, router};

/// A name of the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// As scenarios, commands and reports write it.
    pub name: &'static str,
    /// What it stands for.
    pub peer: Peer,
    /// In a few words, for people.
    pub meaning: &'static str,
    /// Where it is defined.
    pub source: &'static str,
}

/// `NAME: MEANING (SOURCE) => PEER;` each.
macro_rules! rows {
    ($($name:literal: $meaning:literal ($source:literal) => $peer:expr;)+) => {
        [$(Row {
            name: $name,
            peer: $peer,
            meaning: $meaning,
            source: $source,
        }),+]
    };
}

/// Three minutes are the mean of Labovitz et al., SIGCOMM 2000.
const fn bgp(addresses: Addresses) -> Peer {
    Peer::Bgp(Bgp {
        addresses,
        converge: Duration::from_secs(180),
        bfd: false,
    })
}

/// Every name.
pub static ROWS: [Row; 11] = rows! {
    "one-link": "the first link, whatever becomes of it" ("a site that is not multihomed") =>
        Peer::OneLink;
    "nftables": "any link, by a random mark for each connection; dead links, too" ("nft(8), numgen random") =>
        Peer::Nftables;
    "ECMP": "a multipath route of the kernel, by the hash of addresses and ports; dead links, too" ("Linux, fib_multipath_hash_policy = 1; RFC 2992") =>
        Peer::Ecmp;
    "MPTCP": "connections take all links at once, where both ends will: more than a gateway alone can do; in the laboratory" ("RFC 8684; Linux") =>
        Peer::Mptcp;
    "static": "a fixed link for each source, in turn by its number; dead links, too" ("Guo 2004 §II, static load sharing") =>
        Peer::Static;
    "dead-gateway": "of several default routes the first whose gateway answers; what is beyond is not seen" ("Microsoft Q171564 in Guo 2004; RFC 1122 §3.3.1.4") =>
        Peer::DeadGateway { after: Duration::from_secs(30) };
    "BGP": "addresses of the site's own, announced by all providers: the first that is there, for all" ("RFC 1518; Peng 2005 §2.1; Guo 2004 §II") =>
        bgp(Addresses::Independent);
    "BGP-injected": "a provider's addresses for each source; those of one that is lost are announced by another" ("RFC 2260; Guo 2004 §II, case 1") =>
        bgp(Addresses::Injected);
    "BGP-tunnelled": "a provider's addresses for each source; a provider whose link is lost sends on by another" ("RFC 2260; Guo 2004 §II, case 2") =>
        bgp(Addresses::Tunnelled);
    "route-control": "least latency · √loss that probes have met for the destination's prefix" ("RouteScience, netVmg in Guo 2004 §II") =>
        Peer::RouteControl { period: Duration::from_secs(10) };
    "RON": "the path itself, or one relay of an overlay between the site's addresses and a node at each prefix" ("Andersen et al. 2001 in Peng 2005 §2.2") =>
        Peer::Ron { metric: Metric::Latency };
};

/// The row of this name. Case does not matter.
pub fn find(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.name.eq_ignore_ascii_case(name))
}

/// The peer that `text` names, with its parameter after it if it takes one: `dead-gateway 30s`. `None` if the name is nobody's.
pub fn parse(text: &str) -> Option<Result<Peer, String>> {
    match text.split_once(' ') {
        None => find(text).map(|row| Ok(row.peer)),
        Some((name, parameter)) => find(name)?.peer.with(parameter),
    }
}

impl Row {
    /// Its name, and with its parameter after it where it takes one.
    pub fn spellings(&self) -> Vec<String> {
        let with = self.peer.parameter();
        let with = with.map(|parameter| format!("\"{} {}\"", self.name, parameter.default));
        [Some(self.name.to_owned()), with]
            .into_iter()
            .flatten()
            .collect()
    }

    /// What people are told of it.
    pub fn page(&self) -> Page {
        Page::new(self.name, self.meaning, self.source, &self.peer)
    }
}

/// With the options of MPTCP (RFC 8684 section 3.2).
const SYN_BYTES: u32 = 72;
const TIMES: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(3600);

impl Peer {
    /// Whatever its parameters.
    fn row(self) -> &'static Row {
        let is = |row: &&Row| self.is_alike(row.peer);
        ROWS.iter().find(is).expect("every peer has a row")
    }

    fn is_alike(self, other: Peer) -> bool {
        match (self, other) {
            (Peer::Bgp(one), Peer::Bgp(other)) => one.addresses == other.addresses,
            _ => std::mem::discriminant(&self) == std::mem::discriminant(&other),
        }
    }

    /// With this parameter, which stands behind its name. `None` if it takes none.
    fn with(self, text: &str) -> Option<Result<Peer, String>> {
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
    fn parameter(self) -> Option<Parameter> {
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
}

impl Facts for Peer {
    fn target(&self) -> TargetKind {
        TargetKind::Link
    }

    fn parts(&self) -> Parts {
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

    fn distance(&self) -> Distance {
        match self {
            Peer::OneLink | Peer::Static | Peer::Nftables | Peer::Ecmp => Distance::Local,
            // A neighbour tells what others have announced, but is heard no further than he is.
            Peer::DeadGateway { .. } | Peer::Bgp(_) => Distance::LastMile,
            Peer::RouteControl { .. } | Peer::Ron { .. } | Peer::Mptcp => Distance::Destination,
        }
    }

    fn period(&self) -> Option<Duration> {
        match self {
            Peer::OneLink | Peer::Static | Peer::Nftables | Peer::Ecmp | Peer::Mptcp => None,
            Peer::DeadGateway { .. } | Peer::Bgp(_) => Some(router::question(*self).0),
            Peer::RouteControl { period } => Some(*period),
            Peer::Ron { .. } => Some(ron::PROBE_INTERVAL),
        }
    }

    fn sent(&self) -> Sent {
        let bytes = match self {
            Peer::OneLink | Peer::Static | Peer::Nftables | Peer::Ecmp => {
                return Sent::nothing();
            }
            Peer::Mptcp => SYN_BYTES,
            Peer::DeadGateway { .. } | Peer::Bgp(_) => router::question(*self).1,
            Peer::RouteControl { .. } => route_control::PROBE_BYTES,
            Peer::Ron { .. } => ron::PROBE_BYTES,
        };
        let sockets = match self {
            Peer::Bgp(_) => "a TCP connection with each provider",
            Peer::Ron { .. } => "one for all nodes",
            Peer::Mptcp => "one for each link of each connection, at both ends",
            _ => "one, while an answer is out",
        };
        Sent::new(format!("{bytes} a packet"), sockets)
    }

    fn cost(&self) -> Cost {
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

    fn suits(&self) -> Vec<&'static str> {
        vec!["comparisons: it stands in the gateway's place"]
    }

    fn is_configurable(&self) -> bool {
        false
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.parameter().into_iter().collect()
    }

    /// The site's own addresses reachable over each link, if providers are told of them.
    fn needs(&self) -> Needs {
        Needs {
            no_nat: matches!(self, Peer::Bgp(_)),
            ..Needs::NOTHING
        }
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
            Some(parameter) if row.peer != *self => {
                write!(f, " {}", parameter.default)
            }
            _ => Ok(()),
        }
    }
}
