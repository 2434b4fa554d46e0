//! The catalogue: every policy with a name, for links, sublinks and servers, in one table. Names are listed nowhere else.
//!
//! Configurations, scenario files, `anabranch policies`, completions and documentation read it. A policy that uses known measures
//! is added by a row of [`ROWS`]; a measure by a file under `measure/` and a row of [`MEASURES`](crate::measure::MEASURES). A
//! program with policies of its own adds their rows before it reads anything: [`extend`]. The kinds of targets are rows of
//! [`TARGETS`]. All other facts about a policy come from the code that runs it, by [`Facts`].

mod facts;
mod gateway;
mod named;
mod own;
mod page;
mod target;

use std::fmt;
use std::time::Duration;

use anabranch_config::Span;
use anabranch_policy::abi::{BOUND_ONE, Ties};
use anabranch_policy::{Dispatch, Granularity};
use serde::Serialize;

use crate::algorithm::{
    Active, Algorithm, LISTED, Learning, PERIOD, ROUNDS, Racing, Retry, Weighting,
};
use crate::measure;
use crate::multilink::{FLOWLET_GAP, Spread};
use crate::server::ServerPolicy;

pub use facts::{Cost, Facts, Needs, Parameter, Parts, Sent, in_ms, in_s};
use gateway::PacketByPacket;
pub use named::{UnknownAlgorithm, configured, names};
use own::own;
pub use own::{ExtendError, extend};
pub use page::Page;
pub use target::{TARGETS, TargetKind, TargetRow};

/// Of a name.
pub(crate) const NAME_CHARS_MAX: usize = 32;

/// How a path is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The gateway's, over the links of a site.
    Gateway(Algorithm),
    /// Packet by packet in proportion to rates (deficit round robin), over the links of a site without NAT.
    Packet,
    /// Over the sublinks of a trunk.
    Trunk(Spread),
    /// Over the servers of a service.
    Service(ServerPolicy),
}

/// A name of the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// As files, commands and reports write it.
    pub name: &'static str,
    /// Understood as well: the same idea has another name among the other kind of target.
    pub alias: Option<&'static str>,
    /// What it stands for.
    pub policy: Policy,
    /// In a few words, for people.
    pub meaning: &'static str,
    /// Where it is defined.
    pub source: &'static str,
}

const SESSIONS: Algorithm = Algorithm {
    measure: &measure::DISPATCHED,
    dispatch: Dispatch::Weighted,
    granularity: Granularity::Connection,
    period: None,
    weighting: Weighting::Equal,
    retry: Retry::None,
    racing: Racing::None,
    learning: Learning::None,
    rounds: ROUNDS,
};
const PERIODIC: Algorithm = Algorithm {
    measure: &measure::ST_OUT,
    period: Some(PERIOD),
    ..SESSIONS
};
const BLIND: Algorithm = Algorithm {
    measure: &measure::NONE,
    ..SESSIONS
};

const SERVERS: ServerPolicy = ServerPolicy {
    measure: &measure::NONE,
    dispatch: Dispatch::Turns,
    granularity: Granularity::Connection,
    by_weight: false,
    ties: Ties::Random,
    bound: 0,
    suits: "servers that are alike, and connections that are, too",
};

/// Servers are loaded alike, and few connections go elsewhere than their hash leads: HAProxy advises 125 to 200 %.
const LOAD_BOUND: u32 = BOUND_ONE * 5 / 4;

/// Far above what a site opens, and far below what a link notices.
const RACES_PER_S: u32 = 1000;
const RACES: Racing = Racing::Syns { per_s: RACES_PER_S };
/// There is one for a prefix in a lifetime: that many new prefixes a second.
const ADAPTIVE_RACES_PER_S: u32 = 100;
/// Round trips hardly change within minutes (Lin, Tsao and Leong 2007 figure 1b); what stands in front of a link does.
const LIFETIME: Duration = Duration::from_secs(60);
const PASSIVE: Learning = Learning::Passive {
    lifetime: LIFETIME,
    by_loss: false,
};
/// A third of what passes before two answers are missed.
const ACTIVE: Active = Active {
    period_s: 10,
    listed: LISTED,
};

/// `NAME or ALIAS: MEANING (SOURCE) => POLICY;` each, most without an alias.
macro_rules! rows {
    (@alias) => { None };
    (@alias $alias:literal) => { Some($alias) };
    ($($name:literal $(or $alias:literal)?: $meaning:literal ($source:literal) => $policy:expr;)+) => {
        [$(Row {
            name: $name,
            alias: rows!(@alias $($alias)?),
            policy: $policy,
            meaning: $meaning,
            source: $source,
        }),+]
    };
}

/// Every name, links first, and of these the default first.
pub static ROWS: [Row; 53] = rows! {
    "WSDM": "by available bandwidth; a retransmitted SYN tries another link" ("Peng 2005 §4.2") =>
        Policy::Gateway(Algorithm { measure: &measure::ST_MIX, retry: Retry::Elsewhere, ..PERIODIC });
    "RR": "each link in turn" ("Peng 2005 table 1") =>
        Policy::Gateway(SESSIONS);
    "WRR": "each link in turn, as often as its rate" ("Peng 2005 §3.1.4, static weights") =>
        Policy::Gateway(Algorithm { weighting: Weighting::Rate, ..SESSIONS });
    "cyclic": "each usable link in turn, by a counter alone" ("RFC 2391, round robin") =>
        Policy::Gateway(Algorithm { dispatch: Dispatch::Turns, ..BLIND });
    "random": "any usable link" ("common practice: a random mark per connection") =>
        Policy::Gateway(Algorithm { dispatch: Dispatch::Random, ..BLIND });
    "hash": "CRC-32 of addresses and ports modulo the number of usable links" ("Cao, Wang and Zegura 2000") =>
        Policy::Gateway(Algorithm { dispatch: Dispatch::Hash, ..BLIND });
    "hash-sum": "sum of addresses and ports modulo the number of usable links" ("Guo 2004 §IV.B.2, table III") =>
        Policy::Gateway(Algorithm { dispatch: Dispatch::HashSum, ..BLIND });
    "LCF": "fewest flows still open" ("Peng 2005 table 1; LLF in RFC 2391") =>
        Policy::Gateway(Algorithm { measure: &measure::ACTIVE, ..SESSIONS });
    "WLC" or "WLLF": "fewest flows still open for its rate" ("RFC 2391, weighted least load first") =>
        Policy::Gateway(Algorithm { measure: &measure::ACTIVE, weighting: Weighting::Rate, ..SESSIONS });
    "P2C": "of two random links that with fewer flows still open" ("Mitzenmacher 2001, power of two choices") =>
        Policy::Gateway(Algorithm { measure: &measure::ACTIVE, dispatch: Dispatch::RandomTwo, ..SESSIONS });
    "LTF": "fewest bytes in the last period" ("Peng 2005 table 1; RFC 2391") =>
        Policy::Gateway(Algorithm { measure: &measure::CARRIED, dispatch: Dispatch::Best, ..PERIODIC });
    "WLTF": "fewest bytes in the last period for its rate" ("RFC 2391, weighted least traffic first") =>
        Policy::Gateway(Algorithm {
            measure: &measure::CARRIED,
            dispatch: Dispatch::Best,
            weighting: Weighting::Rate,
            ..PERIODIC
        });
    "directional": "fewest bytes in the last period for its rate, in the direction of the flow (`direction` of a rule), else in the bottleneck's"
        ("Guo 2004 §III.C") =>
        Policy::Gateway(Algorithm {
            measure: &measure::CARRIED_WAY,
            dispatch: Dispatch::Best,
            weighting: Weighting::Rate,
            ..PERIODIC
        });
    "MORBF": "most available bandwidth towards the internet" ("Peng 2005 table 1") =>
        Policy::Gateway(Algorithm { measure: &measure::ST_OUT, dispatch: Dispatch::Best, ..PERIODIC });
    "MIRBF": "most available bandwidth towards the LAN" ("Peng 2005 table 1") =>
        Policy::Gateway(Algorithm { measure: &measure::ST_IN, dispatch: Dispatch::Best, ..PERIODIC });
    "WMORBF": "in proportion to available bandwidth towards the internet" ("Peng 2005 table 1") =>
        Policy::Gateway(Algorithm { measure: &measure::ST_OUT, ..PERIODIC });
    "WMIRBF": "in proportion to available bandwidth towards the LAN" ("Peng 2005 table 1") =>
        Policy::Gateway(Algorithm { measure: &measure::ST_IN, ..PERIODIC });
    "FRRTFNF" or "PMR": "fastest round trip to a fixed node" ("Peng 2005 table 1; RFC 2391, ping for the most responsive") =>
        Policy::Gateway(Algorithm { measure: &measure::RESPONSE, dispatch: Dispatch::Best, ..SESSIONS });
    "WFRRTFNF": "in inverse proportion to the round trip to a fixed node" ("Peng 2005 table 1") =>
        Policy::Gateway(Algorithm { measure: &measure::RESPONSE, ..SESSIONS });
    "FRRTDF" or "OFRP": "the SYN takes all links, the first answer wins; where that may not be, as RR"
        ("Peng 2005 table 1; Lin, Tsao and Leong 2007") =>
        Policy::Gateway(Algorithm { racing: RACES, ..SESSIONS });
    "FRRTDF-loss": "least response time · √loss that flows have met for the destination's prefix; the SYN takes all links where a link is not known for it"
        ("Lin, Tsao and Leong 2007, future work; Mathis et al. 1997") =>
        Policy::Gateway(Algorithm {
            racing: RACES,
            learning: Learning::Passive { lifetime: LIFETIME, by_loss: true },
            ..SESSIONS
        });
    "PCM": "the SYN waits while its destination is probed over all links, and takes that of the first answer; where it may not wait, or no answer comes, as RR"
        ("Peng 2005 ch. 4, per-connection measurement") =>
        Policy::Gateway(Algorithm { racing: Racing::Probes { per_s: RACES_PER_S }, ..SESSIONS });
    "passive": "least response time that flows have met for the destination's prefix; a link not known for it is tried by one; where nothing is, as RR"
        ("Akella et al. in Peng 2005 §2.3, §4.1.1") =>
        Policy::Gateway(Algorithm { learning: PASSIVE, ..SESSIONS });
    "active": "least response time of probes to the destination's prefix, where that is one of those used most; for others, as RR"
        ("Akella et al. in Peng 2005 §2.3, §4.1.1") =>
        Policy::Gateway(Algorithm { learning: Learning::Active(ACTIVE), ..SESSIONS });
    "adaptive": "where the flow is expected to be done first, by what links deliver and how fast their destinations answer; a race where nothing is known"
        ("docs/adaptive.md") =>
        Policy::Gateway(Algorithm {
            measure: &measure::CAPACITY,
            dispatch: Dispatch::Soonest,
            retry: Retry::Elsewhere,
            racing: Racing::Syns { per_s: ADAPTIVE_RACES_PER_S },
            learning: PASSIVE,
            ..PERIODIC
        });
    "packet" or "DRR": "packet by packet in proportion to rates, in the simulator" ("Guo 2004 §III; Shreedhar and Varghese 1996") =>
        Policy::Packet;
    "SH": "hash of the flow modulo the number of sublinks" ("Jo 2002, static hashing") =>
        Policy::Trunk(Spread::Hash);
    "DH": "by a table of bins; a part of an overloaded sublink's bins moves" ("Jo 2002 §II.A, dynamic hashing") =>
        Policy::Trunk(Spread::Dh);
    "DHFV": "by a table of bins; an overloaded sublink's largest bin moves" ("Jo 2002 §II.A, dynamic hashing with flow volume") =>
        Policy::Trunk(Spread::Dhfv);
    "DRR" or "packet": "packet by packet in proportion to rates, in no order" ("Shreedhar and Varghese 1996") =>
        Policy::Trunk(Spread::Drr);
    "flowlet": "by rates, at random, anew after every gap of a bin" ("Sinha, Kandula and Katabi 2004") =>
        Policy::Trunk(Spread::Flowlet { gap: FLOWLET_GAP });
    "rendezvous": "weighted rendezvous hashing, rates as weights" ("Schindelhauer and Schomaker 2005") =>
        Policy::Trunk(Spread::Rendezvous);
    "bonding": "hash layer3+4 of the Linux bonding driver, in the simulator" ("Linux, Documentation/networking/bonding.rst") =>
        Policy::Trunk(Spread::Bonding);
    "MLPPP": "packet by packet, put in order again at the far end, in the simulator" ("RFC 1990") =>
        Policy::Trunk(Spread::Mlppp);
    "single": "the undivided link that others are measured against, in scenarios" ("Jo 2002 §III.B") =>
        Policy::Trunk(Spread::Single);
    "RR" or "cyclic": "each usable server in turn" ("RFC 2391, round robin; Zhang 2002 §2.3") =>
        Policy::Service(ServerPolicy {
            dispatch: Dispatch::Turns,
            ..SERVERS
        });
    "WRR": "each server in turn, in as many rounds as its weight says" ("Zhang 2002 §2.3, weighted round robin") =>
        Policy::Service(ServerPolicy {
            dispatch: Dispatch::Rounds,
            by_weight: true,
            suits: "servers of unlike strength by small weights, and connections that are alike",
            ..SERVERS
        });
    "SWRR": "each server as often as its weight says, evenly spread: those with more to come first" ("Peng 2005 eq. 4, of connections given") =>
        Policy::Service(ServerPolicy {
            measure: &measure::DISPATCHED,
            dispatch: Dispatch::Weighted,
            by_weight: true,
            suits: "servers of unlike strength, and connections that are alike",
            ..SERVERS
        });
    "random": "any usable server" ("Zhang 2002 §2.3, random") =>
        Policy::Service(ServerPolicy {
            dispatch: Dispatch::Random,
            suits: "many balancers before the same servers: none needs to know of the others",
            ..SERVERS
        });
    "weighted random": "any usable server, as likely as its weight says" ("Zhang 2002 §2.3, random, by weights") =>
        Policy::Service(ServerPolicy {
            dispatch: Dispatch::Lots,
            by_weight: true,
            suits: "many balancers before the same servers of unlike strength",
            ..SERVERS
        });
    "probabilistic": "any usable server, the likelier the fewer connections it had open as the last window ended" ("Zhang 2002 §2.3, probabilistic, p ∝ 1/load") =>
        Policy::Service(ServerPolicy {
            measure: &measure::OPEN_THEN,
            dispatch: Dispatch::Lots,
            by_weight: true,
            suits: "many balancers before the same servers, and connections of unlike length",
            ..SERVERS
        });
    "CONN": "fewest connections open as the last window ended" ("Zhang 2002 §2.3, least connections, polled; Bryhni 2000") =>
        Policy::Service(ServerPolicy {
            measure: &measure::OPEN_THEN,
            dispatch: Dispatch::Best,
            suits: "comparisons with the literature: LC knows the same at once",
            ..SERVERS
        });
    "RT": "least mean time from request to answer in the last window, then fewest connections" ("Zhang 2002 §2.3, least round trip") =>
        Policy::Service(ServerPolicy {
            measure: &measure::ANSWER_TIME,
            dispatch: Dispatch::Best,
            ties: Ties::ByLoad,
            suits: "servers whose speed changes, a short window, and far more requests than servers in each",
            ..SERVERS
        });
    "XSIZE": "fewest bytes sent in the last window, then fewest connections" ("Zhang 2002 §2.3, least transmitted size") =>
        Policy::Service(ServerPolicy {
            measure: &measure::SENT,
            dispatch: Dispatch::Best,
            by_weight: true,
            ties: Ties::ByLoad,
            suits: "large answers of unlike size, and a short window",
            ..SERVERS
        });
    "EWMA": "least product of open connections and time from request to answer; that rises at once and falls slowly" ("Finagle, peak EWMA") =>
        Policy::Service(ServerPolicy {
            measure: &measure::PEAK,
            dispatch: Dispatch::Weighted,
            suits: "servers whose speed changes or that are at unlike distances",
            ..SERVERS
        });
    "Prequal": "least time from request to answer among the servers with few open connections, else the fewest connections" ("Wydrowski et al. 2024, hot–cold rule") =>
        Policy::Service(ServerPolicy {
            measure: &measure::PEAK,
            dispatch: Dispatch::Cold,
            suits: "servers whose speed changes while others use them, and no more load than they can bear",
            ..SERVERS
        });
    "probing": "the server that answered its last check in the least time" ("Zhang 2002 §2.3, dynamic probing") =>
        Policy::Service(ServerPolicy {
            measure: &measure::CHECK_TIME,
            dispatch: Dispatch::Best,
            suits: "comparisons with the literature, and servers at unlike distances: all connections between two checks go to one",
            ..SERVERS
        });
    "LC": "fewest connections still open" ("Zhang 2002 §2.3, least connections, by live count") =>
        Policy::Service(ServerPolicy {
            measure: &measure::ACTIVE,
            dispatch: Dispatch::Weighted,
            suits: "connections of unlike length",
            ..SERVERS
        });
    "WLC": "fewest connections still open for its weight" ("Zhang 2002 §2.3, weighted least connections") =>
        Policy::Service(ServerPolicy {
            measure: &measure::ACTIVE,
            dispatch: Dispatch::Weighted,
            by_weight: true,
            suits: "servers of unlike strength, and connections of unlike length",
            ..SERVERS
        });
    "P2C": "of two random servers that with fewer connections still open for its weight" ("Mitzenmacher 2001, power of two choices") =>
        Policy::Service(ServerPolicy {
            measure: &measure::ACTIVE,
            dispatch: Dispatch::RandomTwo,
            by_weight: true,
            suits: "several balancers before the same servers, each of which sees a part of the connections",
            ..SERVERS
        });
    "Maglev": "by a keyed hash of the connection and a table in which every server has its share" ("Eisenbud et al. 2016, Maglev") =>
        Policy::Service(ServerPolicy {
            dispatch: Dispatch::Table,
            by_weight: true,
            suits: "several balancers before the same servers: each knows by itself where a connection belongs",
            ..SERVERS
        });
    "Maglev-bounded": "as Maglev, but a server that has `load_bound` times its share of the open connections is passed over" ("Mirrokni, Thorup and Zadimoghaddam 2018, consistent hashing with bounded loads") =>
        Policy::Service(ServerPolicy {
            measure: &measure::ACTIVE,
            dispatch: Dispatch::Table,
            by_weight: true,
            bound: LOAD_BOUND,
            suits: "servers that keep something of what they were asked, and connections of unlike length",
            ..SERVERS
        });
    "source": "all connections of a client to one server, by a keyed hash of its address and a table in which every server has its share" ("common practice, source hashing; Eisenbud et al. 2016 for the table") =>
        Policy::Service(ServerPolicy {
            dispatch: Dispatch::Table,
            granularity: Granularity::Host,
            by_weight: true,
            suits: "servers that keep something of their clients, and many clients, none of which is a large one",
            ..SERVERS
        });
};

/// A policy that nobody needs, as the example of how one is added.
#[cfg(any(test, feature = "toys"))]
static TOYS: &[Row] = &rows! {
    "toy": "fewest packets in the last period" ("none") =>
        Policy::Gateway(Algorithm { measure: &measure::toy::PACKETS, dispatch: Dispatch::Best, ..PERIODIC });
};
#[cfg(not(any(test, feature = "toys")))]
static TOYS: &[Row] = &[];

/// Every row, those of this program's own last.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    ROWS.iter().chain(own())
}

/// The rows of one kind of target.
pub fn of(target: TargetKind) -> impl Iterator<Item = &'static Row> {
    of_target(rows(), target)
}

fn of_target(
    rows: impl Iterator<Item = &'static Row>,
    target: TargetKind,
) -> impl Iterator<Item = &'static Row> {
    rows.filter(move |row| row.policy.facts().target() == target)
}

/// What is used where nothing is named.
pub fn default(target: TargetKind) -> &'static Row {
    find(target, target.row().default).expect("a row of the table")
}

/// The first row of this name or alias, whatever it chooses among.
pub(crate) fn find_any(name: &str) -> Option<&'static Row> {
    TARGETS.iter().find_map(|row| find(row.target, name))
}

/// The row of this name or alias. Case does not matter.
pub fn find(target: TargetKind, name: &str) -> Option<&'static Row> {
    let rows = || of_target(all(), target);
    let is = |known: &str| known.eq_ignore_ascii_case(name);
    rows()
        .find(|row| is(row.name))
        .or_else(|| rows().find(|row| row.alias.is_some_and(is)))
}

/// The policy that `text` names, with its parameter after it if it takes one there: `flowlet 50ms`. `None` if the name is
/// nobody's.
pub fn parse(target: TargetKind, text: &str) -> Option<Result<Policy, String>> {
    let Some((name, parameter)) = text.split_once(' ') else {
        return find(target, text).map(|row| Ok(row.policy));
    };
    match find(target, name)?.policy {
        Policy::Trunk(Spread::Flowlet { .. }) => Some(flowlet(parameter)),
        _ => None,
    }
}

fn flowlet(gap: &str) -> Result<Policy, String> {
    let Span(gap) = gap.parse()?;
    match gap.as_millis() {
        0 => Err("a gap is 1 ms at least".to_owned()),
        _ => Ok(Policy::Trunk(Spread::Flowlet { gap })),
    }
}

/// The row with these parts and parameters.
pub fn row_of(policy: &Policy) -> Option<&'static Row> {
    all().find(|row| row.policy == *policy)
}

fn all() -> impl Iterator<Item = &'static Row> {
    rows().chain(TOYS)
}

impl Row {
    /// Its name, and with its parameter after it where it takes one there.
    pub fn spellings(&self) -> Vec<String> {
        let mut spellings = vec![self.name.to_owned()];
        if let Policy::Trunk(Spread::Flowlet { gap }) = self.policy {
            spellings.push(format!("\"{} {}\"", self.name, in_ms(gap)));
        }
        spellings
    }
}

impl Policy {
    /// What it says of itself.
    pub fn facts(&self) -> &dyn Facts {
        match self {
            Policy::Gateway(algorithm) => algorithm,
            Policy::Packet => &PacketByPacket,
            Policy::Trunk(spread) => spread,
            Policy::Service(policy) => policy,
        }
    }
}

impl fmt::Display for Policy {
    /// As it may be written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Policy::Trunk(Spread::Flowlet { gap }) = self {
            return write!(f, "flowlet {} ms", gap.as_secs_f64() * 1e3);
        }
        match (row_of(self), self.facts().tuple()) {
            (Some(row), _) => f.write_str(row.name),
            (None, tuple) => f.write_str(&tuple.unwrap_or_else(|| "unnamed".to_owned())),
        }
    }
}

impl Spread {
    /// Whatever its parameters.
    pub fn row(self) -> &'static Row {
        let alike = std::mem::discriminant(&self);
        let is = |row: &&Row| matches!(row.policy, Policy::Trunk(named) if std::mem::discriminant(&named) == alike);
        all().find(is).expect("every spread has a row")
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Policy::Trunk(*self).fmt(f)
    }
}

#[cfg(test)]
mod tests;
