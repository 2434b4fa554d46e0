//! The family of algorithms: measure × dispatch × granularity, with a period for what is measured.
//!
//! The names of the field are rows of one table. A user may write a name or a tuple, and so gets combinations nobody
//! has published.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anabranch_policy::{Dispatch, Granularity, Load};
use serde::de::{Deserializer, Error as _, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Serialize, Serializer};

use crate::link::LinkSpec;

/// What is known of a link when a path is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Nothing.
    None,
    /// CSN: flows dispatched.
    Dispatched,
    /// CSN: flows still incomplete.
    Active,
    /// Bytes carried in the last period.
    Carried,
    /// ST: available bandwidth towards the internet.
    StOut,
    /// ST: available bandwidth towards the LAN.
    StIn,
    /// ST: how much of the site's own mixture of directions the link can still take.
    ///
    /// If of the site's traffic a part f goes down and 1−f up, that is `min(AB_down / f, AB_up / (1−f))`, over the
    /// declared directions. Neither direction alone will do: downloads hardly use the way up until their
    /// acknowledgements do not get through, and taking the lesser of the two outright would let a small but idle
    /// uplink hide a large downlink.
    StMix,
}

/// How far away a measure looks (Peng 2005, measuring distance).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// Own counters: D = 0.
    Local,
    /// The access line: D = 1.
    LastMile,
}

impl Measure {
    pub fn distance(self) -> Distance {
        match self {
            Measure::None | Measure::Dispatched | Measure::Active => Distance::Local,
            Measure::Carried | Measure::StOut | Measure::StIn | Measure::StMix => {
                Distance::LastMile
            }
        }
    }

    /// Taken anew every period, and so ranks links by itself.
    pub fn is_periodic(self) -> bool {
        self.distance() == Distance::LastMile
    }
}

/// One algorithm as its tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Algorithm {
    pub measure: Measure,
    pub dispatch: Dispatch,
    pub granularity: Granularity,
    /// Measuring period T; none where a measure is taken at each choice, or never.
    pub period: Option<Duration>,
    /// Session counts are divided by the link's declared weight or rate.
    pub by_rate: bool,
    /// A retransmitted SYN fails its path for this flow, which chooses again among the others.
    pub syn_retry: bool,
}

/// A name of the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    pub name: &'static str,
    pub algorithm: Algorithm,
    pub meaning: &'static str,
    pub source: &'static str,
}

/// T = 0.1 s: better than 1 s in Peng's figure 6.
const PERIOD: Duration = Duration::from_millis(100);

const SESSIONS: Algorithm = Algorithm {
    measure: Measure::Dispatched,
    dispatch: Dispatch::Weighted,
    granularity: Granularity::Connection,
    period: None,
    by_rate: false,
    syn_retry: false,
};
const PERIODIC: Algorithm = Algorithm {
    measure: Measure::StOut,
    period: Some(PERIOD),
    ..SESSIONS
};
const BLIND: Algorithm = Algorithm {
    measure: Measure::None,
    ..SESSIONS
};

/// Every name, the default first.
pub static TABLE: [Named; 12] = [
    Named {
        name: "WSDM",
        algorithm: Algorithm {
            measure: Measure::StMix,
            syn_retry: true,
            ..PERIODIC
        },
        meaning: "by available bandwidth; a retransmitted SYN tries another link",
        source: "Peng 2005 §4.2",
    },
    Named {
        name: "RR",
        algorithm: SESSIONS,
        meaning: "each link in turn",
        source: "Peng 2005 table 1",
    },
    Named {
        name: "WRR",
        algorithm: Algorithm {
            by_rate: true,
            ..SESSIONS
        },
        meaning: "each link in turn, as often as its rate",
        source: "Peng 2005 §3.1.4, static weights",
    },
    Named {
        name: "random",
        algorithm: Algorithm {
            dispatch: Dispatch::Random,
            ..BLIND
        },
        meaning: "any usable link",
        source: "common practice: a random mark per connection",
    },
    Named {
        name: "hash",
        algorithm: Algorithm {
            dispatch: Dispatch::Hash,
            ..BLIND
        },
        meaning: "CRC-32 of addresses and ports modulo the number of usable links",
        source: "Guo 2004 §III.C, table III",
    },
    Named {
        name: "LCF",
        algorithm: Algorithm {
            measure: Measure::Active,
            ..SESSIONS
        },
        meaning: "fewest flows still open",
        source: "Peng 2005 table 1; LLF in RFC 2391",
    },
    Named {
        name: "WLC",
        algorithm: Algorithm {
            measure: Measure::Active,
            by_rate: true,
            ..SESSIONS
        },
        meaning: "fewest flows still open for its rate",
        source: "WLLF in RFC 2391",
    },
    Named {
        name: "LTF",
        algorithm: Algorithm {
            measure: Measure::Carried,
            dispatch: Dispatch::Best,
            ..PERIODIC
        },
        meaning: "fewest bytes in the last period",
        source: "Peng 2005 table 1; RFC 2391",
    },
    Named {
        name: "MORBF",
        algorithm: Algorithm {
            measure: Measure::StOut,
            dispatch: Dispatch::Best,
            ..PERIODIC
        },
        meaning: "most available bandwidth towards the internet",
        source: "Peng 2005 table 1",
    },
    Named {
        name: "MIRBF",
        algorithm: Algorithm {
            measure: Measure::StIn,
            dispatch: Dispatch::Best,
            ..PERIODIC
        },
        meaning: "most available bandwidth towards the LAN",
        source: "Peng 2005 table 1",
    },
    Named {
        name: "WMORBF",
        algorithm: Algorithm {
            measure: Measure::StOut,
            ..PERIODIC
        },
        meaning: "in proportion to available bandwidth towards the internet",
        source: "Peng 2005 table 1",
    },
    Named {
        name: "WMIRBF",
        algorithm: Algorithm {
            measure: Measure::StIn,
            ..PERIODIC
        },
        meaning: "in proportion to available bandwidth towards the LAN",
        source: "Peng 2005 table 1",
    },
];

/// Rates an algorithm cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateNeed {
    None,
    Up,
    Down,
    /// At least one direction of every link.
    Either,
    /// At least one direction of every link, or a weight.
    EitherOrWeight,
}

impl RateNeed {
    pub fn is_met_by(self, spec: &LinkSpec) -> bool {
        let either = spec.rate_up_bps.is_some() || spec.rate_down_bps.is_some();
        match self {
            RateNeed::None => true,
            RateNeed::Up => spec.rate_up_bps.is_some(),
            RateNeed::Down => spec.rate_down_bps.is_some(),
            RateNeed::Either => either,
            RateNeed::EitherOrWeight => either || spec.weight.is_some(),
        }
    }
}

impl fmt::Display for RateNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RateNeed::None => "nothing",
            RateNeed::Up => "`up`",
            RateNeed::Down => "`down`",
            RateNeed::Either => "`down` or `up`",
            RateNeed::EitherOrWeight => "`weight`, `down` or `up`",
        })
    }
}

impl Algorithm {
    pub fn load(&self) -> Load {
        if self.measure == Measure::Active {
            Load::Active
        } else {
            Load::Dispatched
        }
    }

    pub fn needs_rate(&self) -> RateNeed {
        match self.measure {
            Measure::StOut => RateNeed::Up,
            Measure::StIn => RateNeed::Down,
            Measure::StMix => RateNeed::Either,
            _ if self.by_rate => RateNeed::EitherOrWeight,
            _ => RateNeed::None,
        }
    }

    /// The row of [`TABLE`] with this tuple.
    pub fn named(&self) -> Option<&'static Named> {
        TABLE.iter().find(|named| named.algorithm == *self)
    }
}

impl Default for Algorithm {
    fn default() -> Self {
        TABLE[0].algorithm
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(named) = self.named() {
            return f.write_str(named.name);
        }
        write!(
            f,
            "{:?} × {:?} × {:?}",
            self.measure, self.dispatch, self.granularity
        )?;
        if let Some(period) = self.period {
            write!(f, " every {} ms", period.as_millis())?;
        }
        if self.by_rate {
            f.write_str(", by rate")?;
        }
        if self.syn_retry {
            f.write_str(", SYN retry")?;
        }
        Ok(())
    }
}

/// A name that is in no row of [`TABLE`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy `{name}`, allowed: {}", names().collect::<Vec<_>>().join(", "))]
pub struct UnknownAlgorithm {
    pub name: String,
}

/// Every name, the default first.
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|named| named.name)
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    /// Case does not matter.
    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        let named = TABLE
            .iter()
            .find(|named| named.name.eq_ignore_ascii_case(name));
        named
            .map(|named| named.algorithm)
            .ok_or_else(|| UnknownAlgorithm {
                name: name.to_owned(),
            })
    }
}

/// Why a tuple makes no algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TupleError {
    #[error("dispatch `{0}` looks at no measure: leave `measure` out or \"none\"")]
    MeasureUnused(&'static str),
    #[error("dispatch `weighted` needs a measure other than \"none\"")]
    MeasureMissing,
    #[error(
        "dispatch `best` needs a measure that ranks links: \"carried\", \"st-out\", \"st-in\", \"st-mix\""
    )]
    MeasureDoesNotRank,
    #[error(
        "`period_ms` is for measures taken every period: \"carried\", \"st-out\", \"st-in\", \"st-mix\""
    )]
    PeriodUnused,
    #[error("`period_ms` is {0}, allowed: 20 to 60000")]
    PeriodRange(u64),
    #[error("`by_rate` is for session counts: \"dispatched\", \"active\"")]
    ByRateUnused,
    #[error("`syn_retry` moves single flows to other links: granularity `host` allows none")]
    SynRetryOfHost,
}

/// As users write it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tuple {
    #[serde(default = "no_measure")]
    measure: Measure,
    #[serde(with = "DispatchName")]
    dispatch: Dispatch,
    #[serde(with = "GranularityName", default = "per_connection")]
    granularity: Granularity,
    #[serde(skip_serializing_if = "Option::is_none")]
    period_ms: Option<u64>,
    #[serde(default)]
    by_rate: bool,
    #[serde(default)]
    syn_retry: bool,
}

fn no_measure() -> Measure {
    Measure::None
}

fn per_connection() -> Granularity {
    Granularity::Connection
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Dispatch", rename_all = "kebab-case")]
enum DispatchName {
    Weighted,
    Best,
    Random,
    Hash,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Granularity", rename_all = "kebab-case")]
enum GranularityName {
    Connection,
    Session,
    Host,
}

impl From<Algorithm> for Tuple {
    fn from(algorithm: Algorithm) -> Self {
        Tuple {
            measure: algorithm.measure,
            dispatch: algorithm.dispatch,
            granularity: algorithm.granularity,
            period_ms: algorithm.period.map(|period| period.as_millis() as u64),
            by_rate: algorithm.by_rate,
            syn_retry: algorithm.syn_retry,
        }
    }
}

/// As a tuple, every part of it, whether it has a name or not.
impl Serialize for Algorithm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Tuple::from(*self).serialize(serializer)
    }
}

impl TryFrom<Tuple> for Algorithm {
    type Error = TupleError;

    fn try_from(tuple: Tuple) -> Result<Self, TupleError> {
        let Tuple {
            measure,
            dispatch,
            granularity,
            period_ms,
            by_rate,
            syn_retry,
        } = tuple;
        match dispatch {
            Dispatch::Random if measure != Measure::None => {
                return Err(TupleError::MeasureUnused("random"));
            }
            Dispatch::Hash if measure != Measure::None => {
                return Err(TupleError::MeasureUnused("hash"));
            }
            Dispatch::Weighted if measure == Measure::None => {
                return Err(TupleError::MeasureMissing);
            }
            Dispatch::Best if !measure.is_periodic() => return Err(TupleError::MeasureDoesNotRank),
            _ => {}
        }
        if by_rate && !matches!(measure, Measure::Dispatched | Measure::Active) {
            return Err(TupleError::ByRateUnused);
        }
        if syn_retry && granularity == Granularity::Host {
            return Err(TupleError::SynRetryOfHost);
        }
        let period = match (measure.is_periodic(), period_ms) {
            (false, Some(_)) => return Err(TupleError::PeriodUnused),
            (true, Some(ms)) if !(20..=60_000).contains(&ms) => {
                return Err(TupleError::PeriodRange(ms));
            }
            (true, Some(ms)) => Some(Duration::from_millis(ms)),
            (true, None) => Some(PERIOD),
            (false, None) => None,
        };
        Ok(Algorithm {
            measure,
            dispatch,
            granularity,
            period,
            by_rate,
            syn_retry,
        })
    }
}

impl<'de> Deserialize<'de> for Algorithm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrTuple;

        impl<'de> Visitor<'de> for NameOrTuple {
            type Value = Algorithm;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a policy, or a table of measure, dispatch, granularity and period_ms")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Algorithm, E> {
                name.parse().map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Algorithm, A::Error> {
                let tuple = Tuple::deserialize(MapAccessDeserializer::new(map))?;
                Algorithm::try_from(tuple).map_err(A::Error::custom)
            }
        }

        deserializer.deserialize_any(NameOrTuple)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct File {
        policy: Algorithm,
    }

    fn parse(text: &str) -> Result<Algorithm, String> {
        toml::from_str::<File>(&format!("policy = {text}"))
            .map(|file| file.policy)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_name_is_found_whatever_its_case() {
        for named in &TABLE {
            assert_eq!(
                parse(&format!("{:?}", named.name.to_lowercase())),
                Ok(named.algorithm)
            );
            assert_eq!(named.name.to_uppercase().parse(), Ok(named.algorithm));
        }
    }

    #[test]
    fn every_algorithm_reads_back_from_the_tuple_it_writes() {
        for named in &TABLE {
            let tuple = toml::Value::try_from(named.algorithm).unwrap();
            assert_eq!(tuple.try_into(), Ok(named.algorithm), "{}", named.name);
        }
    }

    #[test]
    fn a_host_keeps_one_link_unless_repeated_syns_may_move_its_flows() {
        let written = |retry| {
            parse(&format!(
                "{{ measure = \"dispatched\", dispatch = \"weighted\", granularity = \"host\", syn_retry = {retry} }}"
            ))
        };
        assert_eq!(written(false).unwrap().granularity, Granularity::Host);
        let problem = written(true).unwrap_err();
        assert!(
            problem.contains("granularity `host` allows none"),
            "{problem}"
        );
    }

    #[test]
    fn no_two_names_mean_the_same_tuple() {
        for (i, a) in TABLE.iter().enumerate() {
            assert_eq!(
                a.algorithm.to_string(),
                a.name,
                "{} is hidden by an earlier row",
                TABLE[i].name
            );
        }
    }

    #[test]
    fn the_default_is_wsdm() {
        assert_eq!(Algorithm::default().to_string(), "WSDM");
    }

    #[test]
    fn an_unknown_name_is_told_what_is_allowed() {
        let error = parse("\"fastest\"").unwrap_err();
        assert!(
            error.contains("unknown policy `fastest`, allowed: WSDM, RR, WRR, random, hash"),
            "{error}"
        );
    }

    #[test]
    fn a_tuple_that_has_a_name_is_that_algorithm() {
        let written = r#"{ measure = "st-out", dispatch = "weighted", granularity = "connection", period_ms = 100 }"#;
        assert_eq!(parse(written).unwrap().to_string(), "WMORBF");
    }

    #[test]
    fn a_tuple_without_a_name_is_an_algorithm_too() {
        let written = r#"{ measure = "active", dispatch = "weighted", granularity = "session", syn_retry = true }"#;
        let algorithm = parse(written).unwrap();
        assert_eq!((algorithm.load(), algorithm.named()), (Load::Active, None));
    }

    #[test]
    fn a_tuple_with_an_unknown_key_or_value_is_refused_with_what_is_allowed() {
        assert!(
            parse(r#"{ dispatch = "hash", speed = 1 }"#)
                .unwrap_err()
                .contains("unknown field `speed`, expected")
        );
        assert!(
            parse(r#"{ dispatch = "luck" }"#)
                .unwrap_err()
                .contains("unknown variant `luck`, expected")
        );
    }

    #[test]
    fn a_tuple_whose_parts_do_not_fit_is_refused() {
        let refused = [
            (r#"{ dispatch = "weighted" }"#, TupleError::MeasureMissing),
            (
                r#"{ dispatch = "hash", measure = "st-in" }"#,
                TupleError::MeasureUnused("hash"),
            ),
            (
                r#"{ dispatch = "best", measure = "active" }"#,
                TupleError::MeasureDoesNotRank,
            ),
            (
                r#"{ dispatch = "weighted", measure = "active", period_ms = 100 }"#,
                TupleError::PeriodUnused,
            ),
            (
                r#"{ dispatch = "best", measure = "st-in", period_ms = 1 }"#,
                TupleError::PeriodRange(1),
            ),
            (
                r#"{ dispatch = "best", measure = "st-in", by_rate = true }"#,
                TupleError::ByRateUnused,
            ),
        ];
        for (text, error) in refused {
            let message = parse(text).unwrap_err();
            assert!(message.contains(&error.to_string()), "{text}: {message}");
        }
    }
}
