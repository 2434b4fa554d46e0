//! A policy as its tuple, as users write it.

use std::time::Duration;

use anabranch_config::{Frequency, Span};
use anabranch_policy::{Dispatch, Granularity};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::algorithm::{
    Active, Algorithm, DISPATCHES, GRANULARITIES, LISTED, Learning, PERIOD, ROUNDS, Racing, Retry,
    Weighting, word_of,
};
use crate::catalogue::{self, NAME_CHARS_MAX, in_s};
use crate::measure::{self, Measure};

const PERIOD_MIN: Duration = Duration::from_millis(20);
const PERIOD_MAX: Duration = Duration::from_secs(60);
const RACES_PER_S_MAX: u32 = 100_000;
const PASSIVE_MIN: Duration = Duration::from_secs(1);
const PASSIVE_MAX: Duration = Duration::from_secs(3600);
const LISTED_MAX: u32 = 1000;
const ROUNDS_MAX: u32 = 16;

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
            racing: tuple.racing()?,
            learning: tuple.learning()?,
            rounds: tuple.rounds()?,
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
        let taken = catalogue::find_any(name);
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

    fn racing(&self) -> Result<Racing, TupleError> {
        Ok(match (self.race, self.probe) {
            (None, None) => Racing::None,
            (Some(race), _) => Racing::Syns {
                per_s: per_s(race, "race")?,
            },
            (None, Some(probe)) => Racing::Probes {
                per_s: per_s(probe, "probe")?,
            },
        })
    }

    fn learning(&self) -> Result<Learning, TupleError> {
        Ok(match (self.passive, self.active) {
            (None, None) => Learning::None,
            (Some(Span(lifetime)), _) => Learning::Passive {
                lifetime: whole_seconds(lifetime, TupleError::PassiveRange)?,
                by_loss: self.by_loss,
            },
            (None, Some(Span(period))) => Learning::Active(self.active(period)?),
        })
    }

    fn active(&self, period: Duration) -> Result<Active, TupleError> {
        let listed = self.listed.unwrap_or(LISTED);
        if !(1..=LISTED_MAX).contains(&listed) {
            return Err(TupleError::ListedRange(listed));
        }
        let period = whole_seconds(period, TupleError::ActiveRange)?;
        Ok(Active {
            period_s: period.as_secs() as u32,
            listed,
        })
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
fn per_s(Frequency(times): Frequency, key: &'static str) -> Result<u32, TupleError> {
    let is_allowed = times.fract() == 0. && (1. ..=RACES_PER_S_MAX.into()).contains(&times);
    match is_allowed {
        true => Ok(times as u32),
        false => Err(TupleError::RaceRange(format!("{times}/s"), key)),
    }
}
