//! The file as written: every key once, nothing judged beyond its own value.

use std::collections::BTreeMap;
use std::iter;
use std::str::FromStr;
use std::time::Duration;

use anabranch_config::either::{list, table};
use anabranch_config::{Bytes, Either, Frequency, Rate, Share, Span, read_either};
use anabranch_core::multilink;
use anabranch_core::rules::file::{DefaultTable, RuleTable};
use anabranch_core::{Algorithm, Typed};
use anabranch_workload::Direction;
use serde::Deserialize;
use serde::de::value::MapDeserializer;
use serde::de::{Error, IntoDeserializer, MapAccess, SeqAccess};

use crate::{Control, Families, Growth, Ports, Probe, Recovery, Service};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub name: Option<String>,
    pub length: Option<Span>,
    pub sample: Option<Span>,
    pub patience: Option<Span>,
    pub seeds: Option<Seeds>,
    pub policies: Option<Vec<PolicyText>>,
    pub family: Option<Families>,
    pub nat: Option<bool>,
    #[serde(default)]
    pub probes: Vec<Probe>,
    #[serde(default)]
    pub dead_servers: Vec<u32>,
    #[serde(default)]
    pub link: BTreeMap<String, LinkTable>,
    /// Lines that several links have beyond.
    #[serde(default)]
    pub shared: BTreeMap<String, HopTable>,
    pub trunk: Option<TrunkTable>,
    #[serde(default)]
    pub fault: Vec<FaultTable>,
    pub workload: Option<WorkloadTable>,
    #[serde(default)]
    pub tcp: TcpTable,
    #[serde(default)]
    pub group: BTreeMap<String, GroupTable>,
    #[serde(default)]
    pub rule: Vec<RuleTable>,
    pub default: Option<DefaultTable>,
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
    pub queue: Option<QueueText>,
    pub trace: Option<TraceText>,
    pub jitter: Option<Span>,
    pub mtu: Option<MtuText>,
    pub captive: Option<ServiceText>,
    pub filter: Option<ServiceText>,
    pub beyond: Option<BeyondText>,
    pub declared: Option<DeclaredText>,
    #[serde(default)]
    pub metered: bool,
    pub weight: Option<u32>,
    pub nat: Option<bool>,
}

/// Users, their access line, and what is theirs alone.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupTable {
    pub users: u32,
    pub rate: Option<Rate>,
    pub down: Option<LineText>,
    pub up: Option<LineText>,
    pub delay: Option<Span>,
    pub loss: Option<LossText>,
    pub buffer: Option<BufferText>,
    pub queue: Option<QueueText>,
    /// As written: what it does not say stands in `[tcp]`.
    pub tcp: Option<toml::Table>,
    pub workload: Option<WorkloadTable>,
}

/// A hop with two directions.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HopTable {
    pub rate: Option<Rate>,
    pub down: Option<LineText>,
    pub up: Option<LineText>,
    pub delay: Option<Span>,
    pub loss: Option<LossText>,
    pub buffer: Option<BufferText>,
    pub queue: Option<QueueText>,
    pub trace: Option<TraceText>,
    pub jitter: Option<Span>,
    pub mtu: Option<MtuText>,
    pub captive: Option<ServiceText>,
    pub filter: Option<ServiceText>,
}

/// The hop, without a trace or impairments, of which a table speaks among other things: serde flattens no table that refuses unknown keys.
macro_rules! hop_of {
    ($table:expr) => {
        $crate::file::written::HopTable {
            rate: $table.rate,
            down: $table.down.clone(),
            up: $table.up.clone(),
            delay: $table.delay,
            loss: $table.loss,
            buffer: $table.buffer,
            queue: $table.queue,
            ..Default::default()
        }
    };
}
pub(super) use hop_of;

impl HopTable {
    /// Whether each direction has a rate or a trace of its own.
    pub fn has_rates(&self) -> bool {
        let has = |direction: &Option<LineText>| {
            let line = direction.as_ref().map(|LineText(line)| line);
            line.is_some_and(|line| line.rate.is_some() || line.trace.is_some())
        };
        has(&self.down) && has(&self.up)
    }
}

/// One direction: its rate, or all of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LineText(pub LineTable);

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LineTable {
    pub rate: Option<Rate>,
    pub delay: Option<Span>,
    pub loss: Option<LossText>,
    pub buffer: Option<BufferText>,
    pub queue: Option<QueueText>,
    pub trace: Option<TraceText>,
    pub jitter: Option<Span>,
    pub mtu: Option<MtuText>,
    pub captive: Option<ServiceText>,
    pub filter: Option<ServiceText>,
}

/// A hop of the link's own, or the name of one in `[shared]`.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum BeyondText {
    Own(Box<HopTable>),
    Shared(String),
}

/// `true`, `false`, a rate for both directions, or one for each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum DeclaredText {
    Actual(bool),
    Rates(RatesTable),
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RatesTable {
    pub down: Rate,
    pub up: Rate,
}

/// `"downtown.down"`, a file, or the model that draws it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TraceText {
    File(String),
    Drawn(DrawnTable),
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(super) enum DrawnTable {
    Lte(LteTable),
    Cable(CableTable),
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LteTable {
    pub mean: Rate,
    pub variation: Option<Share>,
    pub outage: Option<Span>,
    pub between: Option<Span>,
    pub length: Option<Span>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CableTable {
    pub steady: Rate,
    pub boost: Option<Rate>,
    pub burst: Option<Bytes>,
    pub dip: Option<Share>,
    pub day: Option<Span>,
    pub length: Option<Span>,
}

/// `"codel"`, or the same with parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct QueueText(pub QueueTable);

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(super) enum QueueTable {
    DropTail(Nothing),
    Red(RedTable),
    Codel(CodelTable),
    FqCodel(FqCodelTable),
}

/// A table that has no keys.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RedTable {
    pub min: Option<Bytes>,
    pub max: Option<Bytes>,
    pub probability: Option<Share>,
    #[serde(default)]
    pub gentle: bool,
    pub weight: Option<Share>,
    #[serde(default)]
    pub ecn: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CodelTable {
    pub target: Option<Span>,
    pub interval: Option<Span>,
    #[serde(default)]
    pub ecn: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FqCodelTable {
    pub target: Option<Span>,
    pub interval: Option<Span>,
    #[serde(default)]
    pub ecn: bool,
    pub quantum: Option<Bytes>,
    pub flows: Option<u32>,
}

/// `"1%"` for independent losses, the chain of bursts, or losses by distance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum LossText {
    Independent(Share),
    Bursty(BurstTable),
    PerHop(Share),
}

/// The tables that may stand in the place of a share.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct LossTable {
    good_to_bad: Option<Share>,
    bad_to_good: Option<Share>,
    loss_good: Option<Share>,
    loss_bad: Option<Share>,
    per_hop: Option<Share>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
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
    pub queue: Option<QueueText>,
    #[serde(default)]
    pub sublink: BTreeMap<String, LineTable>,
    pub back: Option<LineTable>,
    pub access: Option<LineTable>,
    pub server_access: Option<LineTable>,
    pub clients: Option<u32>,
    pub servers: Option<u32>,
    pub check: Option<Span>,
    pub overload: Option<Share>,
    pub shrink: Option<Share>,
    pub moved: Option<Share>,
    pub slot: Option<Span>,
    pub slots: Option<usize>,
    pub bin: Option<multilink::BinChoice>,
    pub target: Option<multilink::Recipient>,
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
    pub jitter: Option<Span>,
    pub mtu: Option<MtuText>,
    pub captive: Option<ServiceText>,
    pub filter: Option<ServiceText>,
}

/// A size, or `false` for any.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MtuText(pub Option<Bytes>);

/// `"dns"`, `"icmp"`, or `false` for none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ServiceText(pub Option<Service>);

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

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkloadTable {
    pub kind: Kind,
    pub users: Option<u32>,
    pub servers: Option<u32>,
    pub files: Option<u32>,
    pub rounds: Option<u32>,
    pub think: Option<Span>,
    pub period: Option<Span>,
    pub jitter: Option<Span>,
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

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClassTable {
    /// Transfers that a user begins.
    pub per_user: Frequency,
    pub size: SizeText,
    pub server: Option<ServersText>,
    pub direction: Option<Direction>,
    pub bursts: Option<BurstsTable>,
}

/// `3` or `[0, 3]`.
#[derive(Debug, Clone)]
pub(super) struct ServersText(pub Vec<u32>);

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
    pub control: Option<Control>,
    pub hystart: Option<bool>,
    pub pacing: Option<bool>,
    pub recovery: Option<Recovery>,
    pub growth: Option<Growth>,
    pub dsack: Option<bool>,
    pub ecn: Option<bool>,
    pub delayed_ack: Option<Delayed>,
    pub initial_window: Option<u32>,
    pub lost_syns: Option<u32>,
    pub receive_window: Option<u32>,
    pub mss: Option<Bytes>,
    pub header: Option<Bytes>,
    pub min_rto: Option<Span>,
    pub overhead: Option<Span>,
    pub ports: Option<Ports>,
}

/// `"40ms"` or `false`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delayed(pub Option<Duration>);

read_either!(
    LineText,
    LossText,
    SizeText,
    BufferText,
    QueueText,
    TraceText,
    BeyondText,
    DeclaredText,
    Seeds,
    PolicyText,
    Delayed,
    MtuText,
    ServiceText,
    ServersText,
    Families
);

impl Either for LineText {
    const EXPECTED: &'static str = r#"a rate such as "40mbit", or a table of rate, delay, loss, buffer, queue, trace, jitter, mtu, captive, filter"#;

    fn of_text<E: Error>(text: &str) -> Result<Self, E> {
        Ok(LineText(LineTable {
            rate: Some(text.parse().map_err(E::custom)?),
            ..LineTable::default()
        }))
    }

    fn of_whole<E: Error>(rate_bps: i64) -> Result<Self, E> {
        LineText::of_decimal(rate_bps as f64)
    }

    fn of_decimal<E: Error>(rate_bps: f64) -> Result<Self, E> {
        LineText::of_text(&rate_bps.to_string())
    }

    fn of_table<'de, A: MapAccess<'de>>(written: A) -> Result<Self, A::Error> {
        table(written).map(LineText)
    }
}

impl Either for LossText {
    const EXPECTED: &'static str = r#"a loss such as "1%", or a table of good_to_bad, bad_to_good, loss_good, loss_bad, or of per_hop"#;

    fn of_text<E: Error>(text: &str) -> Result<Self, E> {
        text.parse().map(LossText::Independent).map_err(E::custom)
    }

    fn of_whole<E: Error>(share: i64) -> Result<Self, E> {
        LossText::of_decimal(share as f64)
    }

    fn of_decimal<E: Error>(share: f64) -> Result<Self, E> {
        LossText::of_text(&format!("{}%", share * 100.0))
    }

    fn of_table<'de, A: MapAccess<'de>>(written: A) -> Result<Self, A::Error> {
        let missing = |key| move || A::Error::missing_field(key);
        match table(written)? {
            LossTable {
                per_hop: Some(share),
                good_to_bad: None,
                bad_to_good: None,
                loss_good: None,
                loss_bad: None,
            } => Ok(LossText::PerHop(share)),
            LossTable {
                per_hop: Some(_), ..
            } => Err(A::Error::custom(
                "per_hop stands alone: by distance nothing is lost in bursts",
            )),
            bursts => Ok(LossText::Bursty(BurstTable {
                good_to_bad: bursts.good_to_bad.ok_or_else(missing("good_to_bad"))?,
                bad_to_good: bursts.bad_to_good.ok_or_else(missing("bad_to_good"))?,
                loss_good: bursts.loss_good,
                loss_bad: bursts.loss_bad,
            })),
        }
    }
}

impl Either for SizeText {
    const EXPECTED: &'static str = r#"a size such as "64kB", or one of { exponential = "64kB" }, { lognormal = "10kB", sigma = 1.5 }, { pareto = 1.2, min = "4kB", max = "1MB" }"#;

    fn of_text<E: Error>(text: &str) -> Result<Self, E> {
        text.parse().map(SizeText::Fixed).map_err(E::custom)
    }

    fn of_whole<E: Error>(bytes: i64) -> Result<Self, E> {
        SizeText::of_decimal(bytes as f64)
    }

    fn of_decimal<E: Error>(bytes: f64) -> Result<Self, E> {
        SizeText::of_text(&format!("{bytes}B"))
    }

    fn of_table<'de, A: MapAccess<'de>>(written: A) -> Result<Self, A::Error> {
        table(written).map(SizeText::Drawn)
    }
}

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
            .map_err(|_| format!("not {}", Self::EXPECTED))
    }
}

impl Either for BufferText {
    const EXPECTED: &'static str = r#"a buffer: write it like "64kB", "100 packets", "100ms" (of the line's rate) or "unlimited""#;

    fn of_text<E: Error>(text: &str) -> Result<Self, E> {
        text.parse().map_err(E::custom)
    }
}

impl Either for QueueText {
    const EXPECTED: &'static str =
        r#"a queue: "drop-tail", "codel", "fq-codel", or a table of kind and its parameters"#;

    fn of_text<E: Error>(kind: &str) -> Result<Self, E> {
        let table = MapDeserializer::new(iter::once(("kind", kind)));
        QueueTable::deserialize(table).map(QueueText)
    }

    fn of_table<'de, A: MapAccess<'de>>(written: A) -> Result<Self, A::Error> {
        table(written).map(QueueText)
    }
}

impl Either for TraceText {
    const EXPECTED: &'static str =
        r#"a trace: the name of its file, or a table of kind ("lte", "cable") and its parameters"#;

    fn of_text<E: Error>(path: &str) -> Result<Self, E> {
        Ok(TraceText::File(path.to_owned()))
    }

    fn of_table<'de, A: MapAccess<'de>>(written: A) -> Result<Self, A::Error> {
        table(written).map(TraceText::Drawn)
    }
}

impl Either for BeyondText {
    const EXPECTED: &'static str =
        "the hop behind the provider: a table, or the name of one in [shared]";

    fn of_text<E: Error>(name: &str) -> Result<Self, E> {
        Ok(BeyondText::Shared(name.to_owned()))
    }

    fn of_table<'de, A: MapAccess<'de>>(written: A) -> Result<Self, A::Error> {
        table(written).map(|hop| BeyondText::Own(Box::new(hop)))
    }
}

impl Either for DeclaredText {
    const EXPECTED: &'static str =
        r#"what the gateway is told: true, false, a rate, or { down = "40mbit", up = "20mbit" }"#;

    fn of_bool<E: Error>(told: bool) -> Result<Self, E> {
        Ok(DeclaredText::Actual(told))
    }

    fn of_text<E: Error>(rate: &str) -> Result<Self, E> {
        let rate: Rate = rate.parse().map_err(E::custom)?;
        Ok(DeclaredText::Rates(RatesTable {
            down: rate,
            up: rate,
        }))
    }

    fn of_table<'de, A: MapAccess<'de>>(written: A) -> Result<Self, A::Error> {
        table(written).map(DeclaredText::Rates)
    }
}

impl Either for Seeds {
    const EXPECTED: &'static str = "a number of seeds, or a list of seeds";

    fn of_whole<E: Error>(count: i64) -> Result<Self, E> {
        let count = u64::try_from(count);
        count
            .map(Seeds::Count)
            .map_err(|_| E::custom("a number of seeds is at least 1"))
    }

    fn of_list<'de, A: SeqAccess<'de>>(seeds: A) -> Result<Self, A::Error> {
        list(seeds).map(Seeds::List)
    }
}

impl Either for Families {
    const EXPECTED: &'static str = r#"address families: 4, 6 or "both""#;

    fn of_whole<E: Error>(number: i64) -> Result<Self, E> {
        Self::of_text(&number.to_string())
    }

    fn of_text<E: Error>(text: &str) -> Result<Self, E> {
        text.parse().map_err(E::custom)
    }
}

impl Either for ServersText {
    const EXPECTED: &'static str = "the number of a server, or a list of them";

    fn of_whole<E: Error>(number: i64) -> Result<Self, E> {
        let number = u32::try_from(number);
        number
            .map(|number| ServersText(vec![number]))
            .map_err(|_| E::custom("servers are numbered from 0"))
    }

    fn of_list<'de, A: SeqAccess<'de>>(numbers: A) -> Result<Self, A::Error> {
        list(numbers).map(ServersText)
    }
}

impl Either for PolicyText {
    const EXPECTED: &'static str =
        "the name of a policy, or a table of measure, dispatch, granularity and period";

    fn of_text<E: Error>(name: &str) -> Result<Self, E> {
        Ok(PolicyText::Name(name.to_owned()))
    }

    fn of_table<'de, A: MapAccess<'de>>(tuple: A) -> Result<Self, A::Error> {
        table(tuple).map(PolicyText::Tuple)
    }
}

impl Either for MtuText {
    const EXPECTED: &'static str = r#"a size such as "1400B", or false"#;

    fn of_bool<E: Error>(limited: bool) -> Result<Self, E> {
        match limited {
            false => Ok(MtuText(None)),
            true => Err(E::custom(r#"say how long packets may be: "1400B""#)),
        }
    }

    fn of_text<E: Error>(text: &str) -> Result<Self, E> {
        Ok(MtuText(Some(text.parse().map_err(E::custom)?)))
    }

    fn of_whole<E: Error>(bytes: i64) -> Result<Self, E> {
        Self::of_text(&format!("{bytes}B"))
    }
}

impl Either for ServiceText {
    const EXPECTED: &'static str = r#"a service: "dns", "icmp", or false"#;

    fn of_bool<E: Error>(any: bool) -> Result<Self, E> {
        match any {
            false => Ok(ServiceText(None)),
            true => Err(E::custom(r#"say which service: "dns" or "icmp""#)),
        }
    }

    fn of_text<E: Error>(text: &str) -> Result<Self, E> {
        let service = Service::deserialize(text.into_deserializer())?;
        Ok(ServiceText(Some(service)))
    }
}

impl Either for Delayed {
    const EXPECTED: &'static str = r#"a time such as "40ms", or false"#;

    fn of_bool<E: Error>(delayed: bool) -> Result<Self, E> {
        match delayed {
            false => Ok(Delayed(None)),
            true => Err(E::custom(r#"say how long: "40ms""#)),
        }
    }

    fn of_text<E: Error>(text: &str) -> Result<Self, E> {
        let Span(time) = text.parse().map_err(E::custom)?;
        Ok(Delayed(Some(time)))
    }
}
