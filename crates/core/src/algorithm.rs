//! How a gateway chooses links: measure × dispatch × granularity, and the period of the measurement.
//!
//! Combinations that have names are rows of the [`catalogue`](crate::catalogue). A user may write the tuple instead, and so use
//! combinations that nobody has published.

use std::time::Duration;

use anabranch_policy::{Dispatch, Granularity, Load};
use serde::{Serialize, Serializer};

use crate::catalogue::in_s;
use crate::link::{Direction, LinkSpec, RateNeed};
use crate::measure::{self, Distance, Measure, Taken};

/// One algorithm, as a tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Algorithm {
    /// What is known of each link.
    pub measure: &'static Measure,
    /// How the measure becomes a choice.
    pub dispatch: Dispatch,
    /// What a choice holds for.
    pub granularity: Granularity,
    /// Measuring period T; none if the measure is taken at each choice, or never.
    pub period: Option<Duration>,
    /// What the measure is divided by before links are compared.
    pub weighting: Weighting,
    /// How a retransmitted SYN is handled.
    pub retry: Retry,
    /// How connections race over the links.
    pub racing: Racing,
    /// Who measures how fast destinations answer over each link. A new flow takes the fastest link of those with a valid response
    /// time for its destination; if there is none, the rest of the tuple chooses.
    pub learning: Learning,
    /// Number of response times that a flow waits for, whatever its link carries. Only [`Dispatch::Soonest`] uses it.
    pub rounds: u32,
}

/// How a connection finds the link over which its destination answers first. Connections above the limit per second, and all other
/// flows, use the rest of the tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Racing {
    /// No connection races.
    None,
    /// The SYN takes all usable links at once; the first answer binds the connection.
    Syns {
        /// Maximum of connections per second.
        per_s: u32,
    },
    /// The SYN waits at the gateway while a probe to its destination takes each usable link. The SYN then takes the link whose probe
    /// is answered first.
    Probes {
        /// Maximum of connections per second.
        per_s: u32,
    },
}

impl Racing {
    /// Maximum of connections per second that race.
    pub fn per_s(self) -> u32 {
        match self {
            Racing::None => 0,
            Racing::Syns { per_s } | Racing::Probes { per_s } => per_s,
        }
    }
}

/// Who measures the response time of a link for a destination prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learning {
    /// Nobody.
    None,
    /// Flows, by their handshakes.
    Passive {
        /// How long a response time is valid.
        lifetime: Duration,
        /// Retransmitted SYNs count as losses, and not as long responses, as long as the link is known for the prefix. A new flow
        /// takes the link with the least response time · √loss, unless the dispatch compares something else.
        by_loss: bool,
    },
    /// Probes of the most popular destinations, and nothing else.
    Active(Active),
}

impl Learning {
    /// How long a response time is valid.
    pub fn lifetime(self) -> Option<Duration> {
        match self {
            Learning::None => None,
            Learning::Passive { lifetime, .. } => Some(lifetime),
            Learning::Active(active) => Some(active.lifetime()),
        }
    }

    /// The probes, if it is they that measure.
    pub fn active(self) -> Option<Active> {
        match self {
            Learning::Active(active) => Some(active),
            Learning::None | Learning::Passive { .. } => None,
        }
    }

    /// Whether losses count, too.
    pub fn is_by_loss(self) -> bool {
        matches!(self, Learning::Passive { by_loss: true, .. })
    }
}

/// Which destinations are probed, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Active {
    /// Seconds between two probes of a destination over a link.
    pub period_s: u32,
    /// Maximum number of destinations, each in a prefix of its own.
    pub listed: u32,
}

impl Active {
    /// How long an answer is valid.
    pub fn lifetime(&self) -> Duration {
        self.period() * KNOWN
    }

    /// Time between two probes of a destination over a link.
    pub fn period(&self) -> Duration {
        Duration::from_secs(self.period_s.into())
    }
}

/// What the measure is divided by before links are compared, if it counts what links were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weighting {
    /// All links count the same.
    Equal,
    /// The link's declared weight; without one, its rate in the direction of the flows, or else in the other direction.
    Rate,
}

impl Weighting {
    /// The link's divisor. If the direction is unknown, most bytes are assumed to go down.
    pub fn of(self, link: &LinkSpec, direction: Option<Direction>) -> u64 {
        let (up, down) = (link.rate_up_bps, link.rate_down_bps);
        let rate = match direction {
            Some(Direction::Up) => up.or(down),
            Some(Direction::Down) | None => down.or(up),
        };
        let declared = || link.weight.map(u64::from).or(rate);
        match self {
            Weighting::Equal => 1,
            Weighting::Rate => declared().unwrap_or(1),
        }
    }
}

/// How a retransmitted SYN is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It takes the same link as the first.
    None,
    /// The path counts as failed for this flow, and another link is chosen.
    Elsewhere,
}

/// T = 0.1 s, which is better than 1 s in Peng's figure 6.
pub(crate) const PERIOD: Duration = Duration::from_millis(100);
/// Default number of listed destinations.
pub(crate) const LISTED: u32 = 100;
/// Default number of response times: the handshake and the request.
pub(crate) const ROUNDS: u32 = 2;

/// An answer is valid for this many periods, so that one probe may be lost.
const KNOWN: u32 = 3;

/// The dispatches that files may name. Maglev tables are missing, because they are not built for links.
pub(crate) const DISPATCHES: [(&str, Dispatch); 8] = [
    ("weighted", Dispatch::Weighted),
    ("best", Dispatch::Best),
    ("random", Dispatch::Random),
    ("hash", Dispatch::Hash),
    ("hash-sum", Dispatch::HashSum),
    ("random-two", Dispatch::RandomTwo),
    ("turns", Dispatch::Turns),
    ("soonest", Dispatch::Soonest),
];

pub(crate) const GRANULARITIES: [(&str, Granularity); 4] = [
    ("connection", Granularity::Connection),
    ("session", Granularity::Session),
    ("host", Granularity::Host),
    ("packet", Granularity::Packet),
];

pub(crate) fn word_of<T: PartialEq>(words: &[(&'static str, T)], value: T) -> &'static str {
    let found = words.iter().find(|(_, known)| *known == value);
    found.map_or("unnamed", |(word, _)| word)
}

pub(crate) fn word_of_granularity(granularity: Granularity) -> &'static str {
    word_of(&GRANULARITIES, granularity)
}

impl Algorithm {
    /// With an own policy ([`Measure::own`]): weighted, per connection, every 100 ms. For another dispatch, granularity or period
    /// write `Algorithm { dispatch, ..Algorithm::own(measure) }`.
    pub const fn own(measure: &'static Measure) -> Algorithm {
        Algorithm {
            measure,
            dispatch: Dispatch::Weighted,
            granularity: Granularity::Connection,
            period: Some(PERIOD),
            weighting: Weighting::Equal,
            retry: Retry::None,
            racing: Racing::None,
            learning: Learning::None,
            rounds: ROUNDS,
        }
    }

    /// The counter that the data path compares.
    pub fn load(&self) -> Load {
        match self.measure.taken {
            _ if self.dispatch == Dispatch::Soonest => Load::Active,
            Taken::AtChoice(load) => load,
            Taken::Never
            | Taken::EveryPeriod(_)
            | Taken::EveryWindow(_)
            | Taken::ByCheck(_)
            | Taken::BackToBack(_)
            | Taken::ByPolicy(_) => Load::Dispatched,
        }
    }

    /// Whether each packet is assigned on its own, without state.
    pub fn is_per_packet(&self) -> bool {
        self.granularity == Granularity::Packet
    }

    /// The rates that links must declare.
    pub fn needs_rate(&self) -> RateNeed {
        match (self.measure.rates, self.weighting) {
            (RateNeed::None, Weighting::Rate) => RateNeed::EitherOrWeight,
            (rates, _) => rates,
        }
    }

    /// Whether it needs the fixed node.
    pub fn needs_node(&self) -> bool {
        self.measure.distance == Distance::Node
    }

    /// Its name in files.
    pub fn dispatch_word(&self) -> &'static str {
        word_of(&DISPATCHES, self.dispatch)
    }

    /// Its name in files.
    pub fn granularity_word(&self) -> &'static str {
        word_of_granularity(self.granularity)
    }

    /// The parts as files write them, without defaults.
    pub fn tuple(&self) -> String {
        let mut parts = Vec::new();
        if *self.measure != measure::NONE {
            parts.push(format!("measure = {:?}", self.measure.name));
        }
        parts.push(format!("dispatch = {:?}", self.dispatch_word()));
        if self.granularity != Granularity::Connection {
            parts.push(format!("granularity = {:?}", self.granularity_word()));
        }
        if let Some(period) = self.period.filter(|period| *period != PERIOD) {
            parts.push(format!("period = \"{}ms\"", period.as_millis()));
        }
        if self.weighting == Weighting::Rate {
            parts.push("by_rate = true".to_owned());
        }
        if self.retry == Retry::Elsewhere {
            parts.push("syn_retry = true".to_owned());
        }
        match self.racing {
            Racing::None => {}
            Racing::Syns { per_s } => parts.push(format!("race = \"{per_s}/s\"")),
            Racing::Probes { per_s } => parts.push(format!("probe = \"{per_s}/s\"")),
        }
        if let Learning::Passive { lifetime, by_loss } = self.learning {
            parts.push(format!("passive = {:?}", in_s(lifetime)));
            parts.extend(by_loss.then(|| "by_loss = true".to_owned()));
        }
        if self.rounds != ROUNDS {
            parts.push(format!("rounds = {}", self.rounds));
        }
        if let Learning::Active(active) = self.learning {
            parts.push(format!("active = {:?}", in_s(active.period())));
            parts.push(format!("listed = {}", active.listed));
        }
        format!("{{ {} }}", parts.join(", "))
    }
}

/// The form that is written into results and hashed: every part, in SI units or milliseconds.
#[derive(Serialize)]
struct Resolved {
    measure: &'static str,
    dispatch: &'static str,
    granularity: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    period_ms: Option<u64>,
    by_rate: bool,
    syn_retry: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    races_per_s: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    probes_per_s: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    passive_ms: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    by_loss: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    rounds: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    active_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    listed: Option<u32>,
}

/// Always as a tuple with every part, even if the algorithm has a name.
impl Serialize for Algorithm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let active = self.learning.active();
        let (races_per_s, probes_per_s) = match self.racing {
            Racing::None => (None, None),
            Racing::Syns { per_s } => (Some(per_s), None),
            Racing::Probes { per_s } => (None, Some(per_s)),
        };
        let passive = match self.learning {
            Learning::Passive { lifetime, .. } => Some(lifetime),
            Learning::None | Learning::Active(_) => None,
        };
        Resolved {
            measure: self.measure.name,
            dispatch: self.dispatch_word(),
            granularity: self.granularity_word(),
            period_ms: self.period.map(|period| period.as_millis() as u64),
            by_rate: self.weighting == Weighting::Rate,
            syn_retry: self.retry == Retry::Elsewhere,
            races_per_s,
            probes_per_s,
            passive_ms: passive.map(|lifetime| lifetime.as_millis() as u64),
            by_loss: self.learning.is_by_loss(),
            rounds: (self.dispatch == Dispatch::Soonest).then_some(self.rounds),
            active_ms: active.map(|active| active.period().as_millis() as u64),
            listed: active.map(|active| active.listed),
        }
        .serialize(serializer)
    }
}
