//! How a gateway chooses links: measure × dispatch × granularity, with a period for what is measured.
//!
//! The combinations that have names are rows of the [`catalogue`](crate::catalogue). A user may write the tuple instead, and so gets
//! combinations nobody has published.

use std::time::Duration;

use anabranch_policy::{Dispatch, Granularity, Load};
use serde::{Serialize, Serializer};

use crate::catalogue::in_s;
use crate::link::{Direction, LinkSpec, RateNeed};
use crate::measure::{self, Distance, Measure, Taken};

/// One algorithm as its tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Algorithm {
    /// What is known of a link when a path is chosen.
    pub measure: &'static Measure,
    /// How that becomes a choice.
    pub dispatch: Dispatch,
    /// For what the choice holds.
    pub granularity: Granularity,
    /// Measuring period T; none where a measure is taken at each choice, or never.
    pub period: Option<Duration>,
    /// What the measure is divided by before links are compared.
    pub weighting: Weighting,
    /// What a retransmitted SYN means.
    pub retry: Retry,
    /// Connections a second at most whose SYN takes all usable links at once; the first answer binds them. All other flows go by
    /// the rest of the tuple.
    pub races_per_s: Option<u32>,
    /// Connections a second at most whose SYN waits at the gateway while a probe to their destination takes each usable link, and
    /// then takes that whose probe is answered first. All other flows go by the rest of the tuple.
    pub probes_per_s: Option<u32>,
    /// For so long it is known what a flow has told of the response time of its link for its destination's prefix. The fastest of
    /// the links that are known for a flow's destination takes it; where none is, the rest of the tuple says.
    pub passive: Option<Duration>,
    /// A repeated SYN tells of loss, and of no long response as long as the link is known. Of the links that flows have told of, that
    /// of the least response time times the root of loss takes the flow, if the dispatch compares none.
    pub by_loss: bool,
    /// Round trips that a flow waits for whatever else its link carries: what response times count for in
    /// [`Dispatch::Soonest`], and in no other.
    pub rounds: u32,
    /// The same is told by probes of the destinations that are used most, and by nothing else.
    pub active: Option<Active>,
}

/// What is probed, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Active {
    /// Of each destination over each link, in seconds.
    pub period_s: u32,
    /// Destinations at most, each for its prefix.
    pub listed: u32,
}

impl Active {
    /// For which an answer is known.
    pub fn lifetime(&self) -> Duration {
        self.period() * KNOWN
    }

    /// Of each destination over each link.
    pub fn period(&self) -> Duration {
        Duration::from_secs(self.period_s.into())
    }
}

/// What the measure is divided by before links are compared, where it says what links were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weighting {
    /// By the same of every link.
    Equal,
    /// By the link's declared weight, else its rate in the direction of the flows, else the other.
    Rate,
}

impl Weighting {
    /// The number that stands for the link. Where the direction is unknown, most comes down.
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

/// What a retransmitted SYN means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Nothing: it goes where the first went.
    None,
    /// Its path has failed for this flow, which chooses again among the others.
    Elsewhere,
}

/// T = 0.1 s: better than 1 s in Peng's figure 6.
pub(crate) const PERIOD: Duration = Duration::from_millis(100);
/// Destinations that are listed unless it is said.
pub(crate) const LISTED: u32 = 100;
/// Its handshake and its question.
pub(crate) const ROUNDS: u32 = 2;

/// What was answered is known for so many periods: one answer may be lost.
const KNOWN: u32 = 3;

/// Of links nobody keeps a consistent table.
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
    /// By a policy of one's own ([`Measure::own`]), which is asked every 100 ms: in proportion to its weights, for each
    /// connection. Another dispatch, granularity or period goes as `Algorithm { dispatch, ..Algorithm::own(measure) }`.
    pub const fn own(measure: &'static Measure) -> Algorithm {
        Algorithm {
            measure,
            dispatch: Dispatch::Weighted,
            granularity: Granularity::Connection,
            period: Some(PERIOD),
            weighting: Weighting::Equal,
            retry: Retry::None,
            races_per_s: None,
            probes_per_s: None,
            passive: None,
            by_loss: false,
            rounds: ROUNDS,
            active: None,
        }
    }

    /// For so long it is known what was told of the response time of a link for a prefix.
    pub fn lifetime(&self) -> Option<Duration> {
        self.passive.or(self.active.map(|active| active.lifetime()))
    }

    /// What the data path counts for it.
    pub fn load(&self) -> Load {
        match self.measure.taken {
            _ if self.dispatch == Dispatch::Soonest => Load::Active,
            Taken::AtChoice(load) => load,
            Taken::Never | Taken::EveryPeriod(_) | Taken::BackToBack(_) | Taken::ByPolicy(_) => {
                Load::Dispatched
            }
        }
    }

    /// Whether every packet has a choice of its own, and nothing is remembered.
    pub fn is_per_packet(&self) -> bool {
        self.granularity == Granularity::Packet
    }

    /// The rates without which it cannot choose.
    pub fn needs_rate(&self) -> RateNeed {
        match (self.measure.rates, self.weighting) {
            (RateNeed::None, Weighting::Rate) => RateNeed::EitherOrWeight,
            (rates, _) => rates,
        }
    }

    /// Whether it asks a fixed node.
    pub fn needs_node(&self) -> bool {
        self.measure.distance == Distance::Node
    }

    /// As files name it.
    pub fn dispatch_word(&self) -> &'static str {
        word_of(&DISPATCHES, self.dispatch)
    }

    /// As files name it.
    pub fn granularity_word(&self) -> &'static str {
        word_of_granularity(self.granularity)
    }

    /// As files write its parts, without what is so by default.
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
        if let Some(races) = self.races_per_s {
            parts.push(format!("race = \"{races}/s\""));
        }
        if let Some(probes) = self.probes_per_s {
            parts.push(format!("probe = \"{probes}/s\""));
        }
        if let Some(lifetime) = self.passive {
            parts.push(format!("passive = {:?}", in_s(lifetime)));
        }
        if self.by_loss {
            parts.push("by_loss = true".to_owned());
        }
        if self.rounds != ROUNDS {
            parts.push(format!("rounds = {}", self.rounds));
        }
        if let Some(active) = self.active {
            parts.push(format!("active = {:?}", in_s(active.period())));
            parts.push(format!("listed = {}", active.listed));
        }
        format!("{{ {} }}", parts.join(", "))
    }
}

/// What results are written with, and hashed by: every part, in SI units or milliseconds.
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

/// As a tuple, every part of it, whether it has a name or not.
impl Serialize for Algorithm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Resolved {
            measure: self.measure.name,
            dispatch: self.dispatch_word(),
            granularity: self.granularity_word(),
            period_ms: self.period.map(|period| period.as_millis() as u64),
            by_rate: self.weighting == Weighting::Rate,
            syn_retry: self.retry == Retry::Elsewhere,
            races_per_s: self.races_per_s,
            probes_per_s: self.probes_per_s,
            passive_ms: self.passive.map(|lifetime| lifetime.as_millis() as u64),
            by_loss: self.by_loss,
            rounds: (self.dispatch == Dispatch::Soonest).then_some(self.rounds),
            active_ms: self.active.map(|active| active.period().as_millis() as u64),
            listed: self.active.map(|active| active.listed),
        }
        .serialize(serializer)
    }
}
