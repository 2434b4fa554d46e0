//! How a gateway chooses links: measure × dispatch × granularity, with a period for what is measured.
//!
//! The combinations that have names are rows of the [`catalogue`]. A user may write the tuple instead, and so gets
//! combinations nobody has published.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anabranch_config::{Frequency, Span};
use anabranch_policy::{Dispatch, Granularity, Load};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::catalogue::{self, Policy, Target};
use crate::link::{LinkSpec, RateNeed};
use crate::measure::{self, Distance, Measure, Taken};
use crate::rules::Direction;
use crate::survey::Active;

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
const PERIOD_MIN: Duration = Duration::from_millis(20);
const PERIOD_MAX: Duration = Duration::from_secs(60);
const RACES_PER_S_MAX: u32 = 100_000;
const PASSIVE_MIN: Duration = Duration::from_secs(1);
const PASSIVE_MAX: Duration = Duration::from_secs(3600);
/// Destinations that are listed unless it is said.
pub(crate) const LISTED: u32 = 100;
const LISTED_MAX: u32 = 1000;
/// Its handshake and its question.
pub(crate) const ROUNDS: u32 = 2;
const ROUNDS_MAX: u32 = 16;

/// Of links nobody keeps a consistent table.
const DISPATCHES: [(&str, Dispatch); 8] = [
    ("weighted", Dispatch::Weighted),
    ("best", Dispatch::Best),
    ("random", Dispatch::Random),
    ("hash", Dispatch::Hash),
    ("hash-sum", Dispatch::HashSum),
    ("random-two", Dispatch::RandomTwo),
    ("turns", Dispatch::Turns),
    ("soonest", Dispatch::Soonest),
];

const GRANULARITIES: [(&str, Granularity); 4] = [
    ("connection", Granularity::Connection),
    ("session", Granularity::Session),
    ("host", Granularity::Host),
    ("packet", Granularity::Packet),
];

fn word_of<T: PartialEq>(words: &[(&'static str, T)], value: T) -> &'static str {
    let found = words.iter().find(|(_, known)| *known == value);
    found.map_or("unnamed", |(word, _)| word)
}

pub(crate) fn word_of_granularity(granularity: Granularity) -> &'static str {
    word_of(&GRANULARITIES, granularity)
}

/// As files write a time of whole seconds.
pub(crate) fn in_s(time: Duration) -> String {
    format!("{}s", time.as_secs())
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

    /// How far away that looks which it chooses by.
    pub fn distance(&self) -> Distance {
        let looks_far = [self.races_per_s, self.probes_per_s]
            .iter()
            .any(Option::is_some);
        match looks_far || self.lifetime().is_some() {
            true => Distance::Destination,
            false => self.measure.distance,
        }
    }

    /// What links are compared by, for people.
    pub fn measured(&self) -> &'static str {
        match self.distance() {
            _ if self.dispatch == Dispatch::Soonest => {
                "what links were seen to carry, and how long SYNs wait for their answers"
            }
            Distance::Destination if self.by_loss => {
                "how long SYNs wait for their answers, and how many have none"
            }
            Distance::Destination if self.races_per_s.is_some() => {
                "which link's SYN is answered first"
            }
            Distance::Destination if self.probes_per_s.is_some() => {
                "which link's probe is answered first"
            }
            Distance::Destination if self.active.is_some() => {
                "how long probes wait for their answers"
            }
            Distance::Destination => "how long SYNs wait for their answers",
            Distance::Local | Distance::LastMile | Distance::Node => self.measure.meaning,
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

    /// As files write it: its name in quotation marks, else its tuple.
    pub fn written(&self) -> String {
        match catalogue::row_of(&Policy::Gateway(*self)) {
            Some(row) => format!("{:?}", row.name),
            None => self.tuple(),
        }
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

impl Default for Algorithm {
    fn default() -> Self {
        match catalogue::default(Target::Link).policy {
            Policy::Gateway(algorithm) => algorithm,
            Policy::Packet | Policy::Peer(_) | Policy::Trunk(_) => {
                unreachable!("a gateway's default")
            }
        }
    }
}

impl fmt::Display for Algorithm {
    /// Its name in the catalogue, else its tuple.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match catalogue::row_of(&Policy::Gateway(*self)) {
            Some(row) => f.write_str(row.name),
            None => f.write_str(&self.tuple()),
        }
    }
}

/// A name that is no gateway's policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy `{name}`, allowed: {}", names().collect::<Vec<_>>().join(", "))]
pub struct UnknownAlgorithm {
    /// As it was given.
    pub name: String,
}

/// Every name, the default first.
pub fn names() -> impl Iterator<Item = &'static str> {
    let gateways = catalogue::of(Target::Link).filter(|row| row.policy.is_configurable());
    gateways.map(|row| row.name)
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    /// Case does not matter.
    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        match catalogue::find(Target::Link, name).map(|row| row.policy) {
            Some(Policy::Gateway(algorithm)) => Ok(algorithm),
            _ => Err(UnknownAlgorithm {
                name: name.to_owned(),
            }),
        }
    }
}

/// Why a tuple makes no algorithm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum TupleError {
    #[error("dispatch `{0}` looks at no measure: leave `measure` out or \"none\"")]
    MeasureUnused(&'static str),
    #[error("dispatch `{0}` needs a measure other than \"none\"")]
    MeasureMissing(&'static str),
    #[error(
        "dispatch `best` needs a measure that ranks links: {}",
        measure::names_of(Measure::ranks)
    )]
    MeasureDoesNotRank,
    #[error("dispatch `soonest` needs bit/s that links can carry: measure \"capacity\"")]
    MeasureOfNoRate,
    #[error(
        "`period` is for measures taken every period: {}",
        measure::names_of(Measure::is_periodic)
    )]
    PeriodUnused,
    #[error("`period` is {0:?}, allowed: 20ms to 60s, in whole milliseconds")]
    PeriodRange(Duration),
    #[error("`by_rate` is for what links are given: {}", measure::names_of(|measure| measure.by_rate))]
    ByRateUnused,
    #[error("`syn_retry` moves single flows to other links: granularity `host` allows none")]
    SynRetryOfHost,
    #[error("`syn_retry` moves flows to other links: granularity `packet` keeps none")]
    SynRetryOfPacket,
    #[error(
        "measure `{0}` counts live flows: granularity `packet` keeps none; \"dispatched\" counts packets there"
    )]
    MeasureOfFlows(&'static str),
    #[error("`{key}` is {0}, allowed: 1/s to {RACES_PER_S_MAX}/s, in whole numbers", key = .1)]
    RaceRange(String, &'static str),
    #[error("`{0}` binds connections: granularity `packet` keeps none")]
    RaceOfPacket(&'static str),
    #[error(
        "`race` sends a SYN over all links at once, and with `probe` it waits: choose one of them"
    )]
    RaceAndProbe,
    #[error("`passive` is {0:?}, allowed: {min} to {max}, in whole seconds", min = in_s(PASSIVE_MIN), max = in_s(PASSIVE_MAX))]
    PassiveRange(Duration),
    #[error("`by_loss` is for what flows tell: it needs `passive`")]
    ByLossUnused,
    #[error("`rounds` is for dispatch `soonest`: how many response times a flow waits for")]
    RoundsUnused,
    #[error("`rounds` is {0}, allowed: 0 to {ROUNDS_MAX}")]
    RoundsRange(u32),
    #[error("`passive` learns from connections: granularity `packet` keeps none")]
    PassiveOfPacket,
    #[error("`active` is {0:?}, allowed: {min} to {max}, in whole seconds", min = in_s(PASSIVE_MIN), max = in_s(PASSIVE_MAX))]
    ActiveRange(Duration),
    #[error("`active` asks about connections: granularity `packet` keeps none")]
    ActiveOfPacket,
    #[error("what `passive` has flows tell, `active` has probes tell: choose one of them")]
    ActiveAndPassive,
    #[error("`listed` is {0}, allowed: 1 to {LISTED_MAX} destinations")]
    ListedRange(u32),
    #[error("`listed` is for `active`: how many destinations that probes")]
    ListedUnused,
    #[error("`name` has 1 to {max} letters, digits, '-' and '_'", max = NAME_CHARS_MAX)]
    Name,
    #[error("`name` is that of a policy of the catalogue, {0}: choose another")]
    NameTaken(&'static str),
}

pub(crate) const NAME_CHARS_MAX: usize = 32;

/// As users write it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tuple {
    pub(crate) name: Option<String>,
    #[serde(default = "no_measure", deserialize_with = "measure_of")]
    measure: &'static Measure,
    #[serde(deserialize_with = "dispatch_of")]
    dispatch: Dispatch,
    #[serde(default = "per_connection", deserialize_with = "granularity_of")]
    granularity: Granularity,
    period: Option<Span>,
    #[serde(default)]
    by_rate: bool,
    #[serde(default)]
    syn_retry: bool,
    race: Option<Frequency>,
    probe: Option<Frequency>,
    passive: Option<Span>,
    #[serde(default)]
    by_loss: bool,
    rounds: Option<u32>,
    active: Option<Span>,
    listed: Option<u32>,
}

fn no_measure() -> &'static Measure {
    &measure::NONE
}

fn per_connection() -> Granularity {
    Granularity::Connection
}

fn measure_of<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static Measure, D::Error> {
    let words: Vec<_> = measure::all()
        .map(|measure| (measure.name, measure))
        .collect();
    one_of(deserializer, &words)
}

fn dispatch_of<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Dispatch, D::Error> {
    one_of(deserializer, &DISPATCHES)
}

pub(crate) fn granularity_of<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Granularity, D::Error> {
    one_of(deserializer, &GRANULARITIES)
}

fn one_of<'de, D: Deserializer<'de>, T: Copy>(
    deserializer: D,
    words: &[(&'static str, T)],
) -> Result<T, D::Error> {
    let written = String::deserialize(deserializer)?;
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == written) {
        return Ok(*value);
    }
    let allowed: Vec<_> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
    Err(D::Error::custom(format!(
        "unknown variant `{written}`, expected one of {}",
        allowed.join(", ")
    )))
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

impl TryFrom<&Tuple> for Algorithm {
    type Error = TupleError;

    fn try_from(tuple: &Tuple) -> Result<Self, TupleError> {
        tuple.check_name()?;
        tuple.check_parts()?;
        Ok(Algorithm {
            measure: tuple.measure,
            dispatch: tuple.dispatch,
            granularity: tuple.granularity,
            period: tuple.period()?,
            weighting: match tuple.by_rate {
                true => Weighting::Rate,
                false => Weighting::Equal,
            },
            retry: match tuple.syn_retry {
                true => Retry::Elsewhere,
                false => Retry::None,
            },
            races_per_s: per_s(tuple.race, "race")?,
            probes_per_s: per_s(tuple.probe, "probe")?,
            passive: tuple.passive()?,
            by_loss: tuple.by_loss,
            rounds: tuple.rounds()?,
            active: tuple.active()?,
        })
    }
}

impl Tuple {
    fn check_name(&self) -> Result<(), TupleError> {
        let Some(name) = &self.name else {
            return Ok(());
        };
        if !anabranch_config::is_name(name, NAME_CHARS_MAX) {
            return Err(TupleError::Name);
        }
        let taken = [Target::Link, Target::Sublink]
            .into_iter()
            .find_map(|target| catalogue::find(target, name));
        taken.map_or(Ok(()), |row| Err(TupleError::NameTaken(row.name)))
    }

    fn check_parts(&self) -> Result<(), TupleError> {
        let is_measured = *self.measure != measure::NONE;
        let dispatch = word_of(&DISPATCHES, self.dispatch);
        match self.dispatch {
            Dispatch::Random | Dispatch::Hash | Dispatch::HashSum | Dispatch::Turns
                if is_measured =>
            {
                return Err(TupleError::MeasureUnused(dispatch));
            }
            Dispatch::Weighted | Dispatch::RandomTwo if !is_measured => {
                return Err(TupleError::MeasureMissing(dispatch));
            }
            Dispatch::Best if !self.measure.ranks() => {
                return Err(TupleError::MeasureDoesNotRank);
            }
            Dispatch::Soonest if !self.measure.is_own() => {
                return Err(TupleError::MeasureOfNoRate);
            }
            _ => {}
        }
        if self.by_rate && !self.measure.by_rate {
            return Err(TupleError::ByRateUnused);
        }
        match self.granularity {
            Granularity::Host if self.syn_retry => Err(TupleError::SynRetryOfHost),
            Granularity::Packet if self.syn_retry => Err(TupleError::SynRetryOfPacket),
            Granularity::Packet if self.race.is_some() => Err(TupleError::RaceOfPacket("race")),
            Granularity::Packet if self.probe.is_some() => Err(TupleError::RaceOfPacket("probe")),
            _ if self.race.is_some() && self.probe.is_some() => Err(TupleError::RaceAndProbe),
            Granularity::Packet if self.passive.is_some() => Err(TupleError::PassiveOfPacket),
            Granularity::Packet if self.active.is_some() => Err(TupleError::ActiveOfPacket),
            _ if self.active.is_some() && self.passive.is_some() => {
                Err(TupleError::ActiveAndPassive)
            }
            _ if self.active.is_none() && self.listed.is_some() => Err(TupleError::ListedUnused),
            _ if self.by_loss && self.passive.is_none() => Err(TupleError::ByLossUnused),
            Granularity::Packet
                if self.measure.counts_live_flows() || self.dispatch == Dispatch::Soonest =>
            {
                Err(TupleError::MeasureOfFlows(self.measure.name))
            }
            _ => Ok(()),
        }
    }

    fn rounds(&self) -> Result<u32, TupleError> {
        match self.rounds {
            None => Ok(ROUNDS),
            Some(_) if self.dispatch != Dispatch::Soonest => Err(TupleError::RoundsUnused),
            Some(rounds) if rounds > ROUNDS_MAX => Err(TupleError::RoundsRange(rounds)),
            Some(rounds) => Ok(rounds),
        }
    }

    fn passive(&self) -> Result<Option<Duration>, TupleError> {
        let passive = self.passive.map(|Span(lifetime)| lifetime);
        passive
            .map(|lifetime| whole_seconds(lifetime, TupleError::PassiveRange))
            .transpose()
    }

    fn active(&self) -> Result<Option<Active>, TupleError> {
        let Some(Span(period)) = self.active else {
            return Ok(None);
        };
        let listed = self.listed.unwrap_or(LISTED);
        if !(1..=LISTED_MAX).contains(&listed) {
            return Err(TupleError::ListedRange(listed));
        }
        let period = whole_seconds(period, TupleError::ActiveRange)?;
        Ok(Some(Active {
            period_s: period.as_secs() as u32,
            listed,
        }))
    }

    fn period(&self) -> Result<Option<Duration>, TupleError> {
        match (self.measure.is_periodic(), self.period) {
            (false, Some(_)) => Err(TupleError::PeriodUnused),
            (false, None) => Ok(None),
            (true, None) => Ok(Some(PERIOD)),
            (true, Some(Span(period))) => {
                let is_whole = period.subsec_nanos().is_multiple_of(1_000_000);
                match (PERIOD_MIN..=PERIOD_MAX).contains(&period) && is_whole {
                    true => Ok(Some(period)),
                    false => Err(TupleError::PeriodRange(period)),
                }
            }
        }
    }
}

fn whole_seconds(
    time: Duration,
    error: fn(Duration) -> TupleError,
) -> Result<Duration, TupleError> {
    let is_whole = time.subsec_nanos() == 0;
    match (PASSIVE_MIN..=PASSIVE_MAX).contains(&time) && is_whole {
        true => Ok(time),
        false => Err(error(time)),
    }
}

/// Connections a second that `key` is given.
fn per_s(written: Option<Frequency>, key: &'static str) -> Result<Option<u32>, TupleError> {
    let Some(Frequency(times)) = written else {
        return Ok(None);
    };
    let is_allowed = times.fract() == 0. && (1. ..=RACES_PER_S_MAX.into()).contains(&times);
    match is_allowed {
        true => Ok(Some(times as u32)),
        false => Err(TupleError::RaceRange(format!("{times}/s"), key)),
    }
}
