//! The file as written: every key once, nothing judged beyond its own value.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anabranch_config::{Bytes, Frequency, Rate, Share, Span};
use anabranch_core::multilink;
use anabranch_core::{Algorithm, Typed};
use anabranch_workload::Direction;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::{Control, Growth, Recovery};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub name: Option<String>,
    pub length: Option<Span>,
    pub sample: Option<Span>,
    pub patience: Option<Span>,
    pub seeds: Option<Seeds>,
    pub policies: Option<Vec<PolicyText>>,
    pub nat: Option<bool>,
    #[serde(default)]
    pub link: BTreeMap<String, LinkTable>,
    pub trunk: Option<TrunkTable>,
    #[serde(default)]
    pub fault: Vec<FaultTable>,
    pub workload: Option<WorkloadTable>,
    #[serde(default)]
    pub tcp: TcpTable,
    /// Taken out before the points of the sweep are read; kept here so that it is no unknown key.
    #[serde(rename = "sweep")]
    pub _sweep: Option<toml::Table>,
}

/// `seeds = 20` or `seeds = [3, 5]`.
#[derive(Debug, Clone)]
pub(super) enum Seeds {
    Count(u64),
    List(Vec<u64>),
}

/// A name, whose meaning depends on the network, or the tuple of a gateway's algorithm.
#[derive(Debug, Clone)]
pub(super) enum PolicyText {
    Name(String),
    Tuple(Typed<Algorithm>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LinkTable {
    pub rate: Option<Rate>,
    pub down: Option<LineText>,
    pub up: Option<LineText>,
    pub delay: Option<Span>,
    pub loss: Option<LossText>,
    pub buffer: Option<BufferText>,
    pub red: Option<RedTable>,
    pub beyond: Option<HopTable>,
    pub declared: Option<bool>,
    #[serde(default)]
    pub metered: bool,
    pub weight: Option<u32>,
}

/// A hop with two directions.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HopTable {
    pub rate: Option<Rate>,
    pub down: Option<LineText>,
    pub up: Option<LineText>,
    pub delay: Option<Span>,
    pub loss: Option<LossText>,
    pub buffer: Option<BufferText>,
    pub red: Option<RedTable>,
}

/// One direction: its rate, or all of it.
#[derive(Debug, Clone)]
pub(super) struct LineText(pub LineTable);

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LineTable {
    pub rate: Option<Rate>,
    pub delay: Option<Span>,
    pub loss: Option<LossText>,
    pub buffer: Option<BufferText>,
    pub red: Option<RedTable>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RedTable {
    pub min: Bytes,
    pub max: Bytes,
    pub probability: Option<Share>,
    pub gentle: Option<bool>,
    pub weight: Option<Share>,
}

/// `"1%"` for independent losses, or the chain of bursts.
#[derive(Debug, Clone, Copy)]
pub(super) enum LossText {
    Independent(Share),
    Bursty(BurstTable),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BurstTable {
    pub good_to_bad: Share,
    pub bad_to_good: Share,
    pub loss_good: Option<Share>,
    pub loss_bad: Option<Share>,
}

/// `"64kB"`, `"100 packets"`, `"100ms"` or `"unlimited"`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum BufferText {
    Bytes(u64),
    Packets(u64),
    Time(Duration),
    Unlimited,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrunkTable {
    pub sublinks: u32,
    pub rate: Rate,
    pub delay: Option<Span>,
    pub loss: Option<LossText>,
    pub buffer: Option<BufferText>,
    pub red: Option<RedTable>,
    #[serde(default)]
    pub sublink: BTreeMap<String, LineTable>,
    pub back: Option<LineTable>,
    pub access: Option<LineTable>,
    pub server_access: Option<LineTable>,
    pub clients: Option<u32>,
    pub servers: Option<u32>,
    pub check: Option<Span>,
    pub overload: Option<Share>,
    pub moved: Option<Share>,
    pub slot: Option<Span>,
    pub slots: Option<usize>,
    pub target: Option<multilink::Target>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FaultTable {
    pub at: Span,
    pub link: String,
    pub place: Option<PlaceText>,
    pub direction: Option<Direction>,
    pub change: Option<ChangeText>,
    pub rate: Option<Rate>,
    pub loss: Option<LossText>,
    pub delay: Option<Span>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PlaceText {
    LastMile,
    Beyond,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ChangeText {
    Cut,
    Restore,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    Pages,
    Continuous,
    Mix,
    Trace,
    Rows,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkloadTable {
    pub kind: Kind,
    pub users: Option<u32>,
    pub servers: Option<u32>,
    pub files: Option<u32>,
    pub rounds: Option<u32>,
    pub think: Option<Span>,
    pub period: Option<Span>,
    pub downloads: Option<u32>,
    pub size: Option<SizeText>,
    pub duration: Option<Span>,
    /// Of a mix: every class has exactly its expected transfers and bytes.
    pub exact: Option<bool>,
    pub class: Option<BTreeMap<String, ClassTable>>,
    pub connections: Option<u32>,
    pub bytes: Option<Bytes>,
    pub direction: Option<Direction>,
    pub bursts: Option<BurstsTable>,
    pub rows: Option<Vec<RowTable>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClassTable {
    /// Transfers that a user begins.
    pub per_user: Frequency,
    pub size: SizeText,
    pub direction: Option<Direction>,
    pub bursts: Option<BurstsTable>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BurstsTable {
    pub burst: Span,
    pub quiet: Span,
    pub share: Share,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RowTable {
    pub at: Span,
    pub size: Bytes,
    #[serde(default)]
    pub user: u32,
    #[serde(default)]
    pub server: u32,
    pub direction: Option<Direction>,
}

/// `"50250B"`, or one of the distributions.
#[derive(Debug, Clone, Copy)]
pub(super) enum SizeText {
    Fixed(Bytes),
    Drawn(SizeTable),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SizeTable {
    pub exponential: Option<Bytes>,
    pub lognormal: Option<Bytes>,
    pub sigma: Option<f64>,
    pub pareto: Option<f64>,
    pub min: Option<Bytes>,
    pub max: Option<Bytes>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TcpTable {
    #[serde(default, with = "control")]
    pub control: Option<Control>,
    pub hystart: Option<bool>,
    #[serde(default, with = "recovery")]
    pub recovery: Option<Recovery>,
    #[serde(default, with = "growth")]
    pub growth: Option<Growth>,
    pub delayed_ack: Option<Delayed>,
    pub initial_window: Option<u32>,
    pub receive_window: Option<u32>,
    pub mss: Option<Bytes>,
    pub header: Option<Bytes>,
    pub min_rto: Option<Span>,
}

/// `"40ms"` or `false`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delayed(pub Option<Duration>);

/// Reads one of a few words.
macro_rules! words {
    ($name:ident, $kind:ty, { $($word:literal => $value:expr),+ $(,)? }) => {
        mod $name {
            use super::*;

            const WORDS: &[&str] = &[$($word),+];

            pub(super) fn deserialize<'de, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Option<$kind>, D::Error> {
                let word = String::deserialize(deserializer)?;
                match word.as_str() {
                    $($word => Ok(Some($value)),)+
                    _ => Err(D::Error::unknown_variant(&word, WORDS)),
                }
            }
        }
    };
}

words!(control, Control, { "reno" => Control::Reno, "cubic" => Control::Cubic });
words!(recovery, Recovery, {
    "reno" => Recovery::Reno,
    "newreno" => Recovery::NewReno,
    "sack" => Recovery::Sack,
});
words!(growth, Growth, {
    "per-ack" => Growth::PerAck,
    "per-segment" => Growth::PerSegment,
});

/// A value that is text or a table.
trait TextOrTable: Sized {
    type Table: for<'de> Deserialize<'de>;
    const EXPECTED: &'static str;
    fn of_text(text: &str) -> Result<Self, String>;
    fn of_table(table: Self::Table) -> Self;
    fn of_number(_: f64) -> Result<Self, String> {
        Err(format!("expected {}", Self::EXPECTED))
    }
}

fn text_or_table<'de, T: TextOrTable, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    struct Either<T>(std::marker::PhantomData<T>);
    impl<'de, T: TextOrTable> Visitor<'de> for Either<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(T::EXPECTED)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            T::of_text(text).map_err(E::custom)
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
            T::of_number(number as f64).map_err(E::custom)
        }

        fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
            T::of_number(number).map_err(E::custom)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::Table::deserialize(MapAccessDeserializer::new(map)).map(T::of_table)
        }
    }
    deserializer.deserialize_any(Either(std::marker::PhantomData))
}

impl TextOrTable for LineText {
    type Table = LineTable;
    const EXPECTED: &'static str =
        r#"a rate such as "40mbit", or a table of rate, delay, loss, buffer, red"#;

    fn of_text(text: &str) -> Result<Self, String> {
        Ok(LineText(LineTable {
            rate: Some(text.parse()?),
            ..LineTable::default()
        }))
    }

    fn of_number(rate_bps: f64) -> Result<Self, String> {
        LineText::of_text(&rate_bps.to_string())
    }

    fn of_table(table: LineTable) -> Self {
        LineText(table)
    }
}

impl TextOrTable for LossText {
    type Table = BurstTable;
    const EXPECTED: &'static str =
        r#"a loss such as "1%", or a table of good_to_bad, bad_to_good, loss_good, loss_bad"#;

    fn of_text(text: &str) -> Result<Self, String> {
        text.parse().map(LossText::Independent)
    }

    fn of_number(share: f64) -> Result<Self, String> {
        LossText::of_text(&format!("{}%", share * 100.0))
    }

    fn of_table(table: BurstTable) -> Self {
        LossText::Bursty(table)
    }
}

impl TextOrTable for SizeText {
    type Table = SizeTable;
    const EXPECTED: &'static str = r#"a size such as "64kB", or one of { exponential = "64kB" }, { lognormal = "10kB", sigma = 1.5 }, { pareto = 1.2, min = "4kB", max = "1MB" }"#;

    fn of_text(text: &str) -> Result<Self, String> {
        text.parse().map(SizeText::Fixed)
    }

    fn of_number(bytes: f64) -> Result<Self, String> {
        SizeText::of_text(&format!("{bytes}B"))
    }

    fn of_table(table: SizeTable) -> Self {
        SizeText::Drawn(table)
    }
}

macro_rules! read_text_or_table {
    ($($kind:ty),+) => {$(
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                text_or_table(deserializer)
            }
        }
    )+};
}
read_text_or_table!(LineText, LossText, SizeText);

impl FromStr for BufferText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text == "unlimited" {
            return Ok(BufferText::Unlimited);
        }
        let packets = text
            .strip_suffix("packets")
            .or_else(|| text.strip_suffix("packet"));
        if let Some(Ok(packets)) = packets.map(|number| number.trim().parse()) {
            return Ok(BufferText::Packets(packets));
        }
        let bytes = text
            .parse::<Bytes>()
            .map(|Bytes(bytes)| BufferText::Bytes(bytes));
        let time = || {
            text.parse::<Span>()
                .map(|Span(time)| BufferText::Time(time))
        };
        bytes
            .or_else(|_| time())
            .map_err(|_| format!("not a buffer: {BUFFER_ALLOWED}"))
    }
}

const BUFFER_ALLOWED: &str =
    r#"write it like "64kB", "100 packets", "100ms" (of the line's rate) or "unlimited""#;

impl<'de> Deserialize<'de> for BufferText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = BufferText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a buffer: {BUFFER_ALLOWED}")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<BufferText, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Text)
    }
}

impl<'de> Deserialize<'de> for Seeds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CountOrList;
        impl<'de> Visitor<'de> for CountOrList {
            type Value = Seeds;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of seeds, or a list of seeds")
            }

            fn visit_i64<E: Error>(self, count: i64) -> Result<Seeds, E> {
                let count = u64::try_from(count);
                count
                    .map(Seeds::Count)
                    .map_err(|_| E::custom("a number of seeds is at least 1"))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Seeds, A::Error> {
                let mut seeds = Vec::new();
                while let Some(seed) = list.next_element()? {
                    seeds.push(seed);
                }
                Ok(Seeds::List(seeds))
            }
        }
        deserializer.deserialize_any(CountOrList)
    }
}

impl<'de> Deserialize<'de> for PolicyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrTuple;
        impl<'de> Visitor<'de> for NameOrTuple {
            type Value = PolicyText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "the name of a policy, or a table of measure, dispatch, granularity and period",
                )
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<PolicyText, E> {
                Ok(PolicyText::Name(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PolicyText, A::Error> {
                Typed::deserialize(MapAccessDeserializer::new(map)).map(PolicyText::Tuple)
            }
        }
        deserializer.deserialize_any(NameOrTuple)
    }
}

impl<'de> Deserialize<'de> for Delayed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SpanOrFalse;
        impl Visitor<'_> for SpanOrFalse {
            type Value = Delayed;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#"a time such as "40ms", or false"#)
            }

            fn visit_bool<E: Error>(self, delayed: bool) -> Result<Delayed, E> {
                match delayed {
                    false => Ok(Delayed(None)),
                    true => Err(E::custom(r#"say how long: "40ms""#)),
                }
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Delayed, E> {
                let Span(time) = text.parse().map_err(E::custom)?;
                Ok(Delayed(Some(time)))
            }
        }
        deserializer.deserialize_any(SpanOrFalse)
    }
}
