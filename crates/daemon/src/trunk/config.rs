//! Reads `[trunk]` of the configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anabranch_config::{BadInput, Bytes, LineRate, Rate, Share, Source, Span, is_name};
use anabranch_core::catalogue::{self, TargetKind};
use anabranch_core::multilink::{self, BinChoice, FLOWLET_GAP, Parameters, Recipient, Spread};
use anabranch_core::{Family, PerFamily, Policy};
use anabranch_policy::abi::MAX_LINKS;
use serde::Deserialize;

use crate::config::{Claim, check_claims, claim, is_of_one_host};

const SUBLINK_NAME_CHARS_MAX: usize = 32;
const SPAN_MIN: Duration = Duration::from_millis(1);
const SPAN_MAX: Duration = Duration::from_secs(60);
const SLOTS_MAX: usize = 1000;
/// Assumed capacity of a sublink's queue if neither configuration nor queue says it (Jo 2002, section IV.A).
const BUFFER_TIME: Duration = Duration::from_millis(100);

/// A valid configuration of a trunk.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The file, for messages.
    pub path: PathBuf,
    /// The logical link: it has the addresses, the routes and the MTU.
    pub device: String,
    /// How packets are distributed.
    pub scheme: Spread,
    /// The sublinks in the order of the file, which is that of their numbers.
    pub sublinks: Vec<Sublink>,
    /// Parameters of DH and DHFV.
    pub parameters: Parameters,
    /// For flowlets: the pause after which a new choice is made.
    pub flowlet_gap: Duration,
}

/// One line of the trunk.
#[derive(Debug, Clone, PartialEq)]
pub struct Sublink {
    /// Unique among sublinks.
    pub name: String,
    /// The device of the line.
    pub device: String,
    /// The other node's address of each family on this sublink.
    pub via: PerFamily<Option<IpAddr>>,
    /// Rate of the line.
    pub rate: Option<Rate>,
    /// Capacity of its queue, in place of what the queue says.
    pub buffer: Option<Bytes>,
}

/// Other keys belong to other roles.
#[derive(Debug, Deserialize)]
struct File {
    trunk: TrunkTable,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrunkTable {
    device: String,
    sublink: BTreeMap<String, SublinkTable>,
    scheme: Option<String>,
    check: Option<Span>,
    overload: Option<Share>,
    shrink: Option<Share>,
    moved: Option<Share>,
    slot: Option<Span>,
    slots: Option<usize>,
    bin: Option<BinChoice>,
    target: Option<Recipient>,
    flowlet_gap: Option<Span>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SublinkTable {
    device: String,
    via: Option<Ipv4Addr>,
    via6: Option<Ipv6Addr>,
    rate: Option<LineRate>,
    buffer: Option<Bytes>,
}

impl Config {
    /// The trunk and its sublinks.
    pub fn devices(&self) -> Vec<&str> {
        let sublinks = self.sublinks.iter().map(|sublink| sublink.device.as_str());
        std::iter::once(self.device.as_str())
            .chain(sublinks)
            .collect()
    }

    pub(crate) fn claims(&self) -> impl Iterator<Item = Claim<'_>> {
        let trunk = claim(&["trunk", "device"], &self.device);
        let sublinks = self.sublinks.iter().map(|sublink| {
            let key = ["trunk", "sublink", &sublink.name, "device"];
            claim(&key, &sublink.device)
        });
        std::iter::once(trunk).chain(sublinks)
    }

    /// `path` is for messages only.
    pub fn parse(path: &Path, text: &str) -> Result<Self, BadInput> {
        let source = Source::parse(path, text)?;
        let File { trunk } = source.read()?;
        let scheme = scheme(&source, trunk.scheme.as_deref())?;
        let config = Self {
            path: path.to_owned(),
            parameters: parameters(&source, &trunk)?,
            flowlet_gap: span(&source, "flowlet_gap", trunk.flowlet_gap, gap(scheme))?,
            scheme,
            sublinks: sublinks(&source, trunk.sublink)?,
            device: trunk.device,
        };
        check_claims(
            &source,
            config.claims(),
            "a device is the trunk or one sublink",
        )?;
        Ok(config)
    }

    /// An error about this file found by looking at the host.
    pub fn bad(&self, problem: impl fmt::Display) -> BadInput {
        BadInput::new(format!("{}: {problem}", self.path.display()))
    }

    /// Weights in the ratio of the sublinks' rates; equal if none is known.
    pub fn weights(&self) -> [u32; MAX_LINKS] {
        slots(&multilink::weights(&self.rates_bps()))
    }

    /// Quanta in the ratio of the sublinks' rates: a full frame for the slowest.
    pub fn quanta(&self) -> [u32; MAX_LINKS] {
        slots(&multilink::quanta(&self.rates_bps()))
    }

    /// The rates; equal if none is known.
    fn rates_bps(&self) -> Vec<u64> {
        let rate_bps = |sublink: &Sublink| sublink.rate.map_or(1, Rate::bps);
        self.sublinks.iter().map(rate_bps).collect()
    }
}

/// The policy of this name, or the default.
fn scheme(source: &Source<'_>, written: Option<&str>) -> Result<Spread, BadInput> {
    let bad = |problem| source.bad(&["trunk", "scheme"], problem);
    match catalogue::configured(TargetKind::Sublink, written) {
        Ok(Policy::Trunk(spread)) => Ok(spread),
        Ok(_) => unreachable!("a policy of sublinks is a trunk's"),
        Err(problem) => Err(bad(problem)),
    }
}

fn gap(scheme: Spread) -> Duration {
    match scheme {
        Spread::Flowlet { gap } => gap,
        _ => FLOWLET_GAP,
    }
}

fn slots(numbers: &[u32]) -> [u32; MAX_LINKS] {
    std::array::from_fn(|i| numbers.get(i).copied().unwrap_or(0))
}

impl Sublink {
    /// The capacity of its queue: as configured, else as the queue says, else 100 ms of its rate.
    pub fn buffer_bytes(&self, limit_bytes: Option<u64>) -> Option<u64> {
        let by_rate = |rate: Rate| (rate.bps() as f64 * BUFFER_TIME.as_secs_f64() / 8.0) as u64;
        self.buffer
            .map(|bytes| bytes.0)
            .or(limit_bytes)
            .or(self.rate.map(by_rate))
    }
}

fn sublinks(
    source: &Source<'_>,
    tables: BTreeMap<String, SublinkTable>,
) -> Result<Vec<Sublink>, BadInput> {
    let key = ["trunk", "sublink"];
    if tables.is_empty() {
        let problem = r#"no sublink; write trunk.sublink.NAME = { device = "eth1", via = "10.0.0.2", rate = "100mbit" }"#;
        return Err(source.bad(&key, problem));
    }
    let rate = ("rate", |table: &SublinkTable| table.rate.is_some());
    TargetKind::Sublink
        .tables(source, &key, tables, rate)?
        .into_iter()
        .map(|(name, table)| sublink(source, name, table))
        .collect()
}

fn sublink(source: &Source<'_>, name: String, table: SublinkTable) -> Result<Sublink, BadInput> {
    let bad = |key: &[&str], problem: &str| {
        Err(source.bad(&[&["trunk", "sublink", &name], key].concat(), problem))
    };
    if !is_name(&name, SUBLINK_NAME_CHARS_MAX) {
        let allowed = format!(
            "a sublink's name has 1 to {SUBLINK_NAME_CHARS_MAX} letters, digits, '-' and '_'"
        );
        return bad(&[], &allowed);
    }
    let is_wrong = |address: IpAddr| !is_of_one_host(address);
    if table.via.map(IpAddr::from).is_some_and(is_wrong) {
        return bad(&["via"], "must be the IPv4 address of one host");
    }
    if table.via6.map(IpAddr::from).is_some_and(is_wrong) {
        return bad(&["via6"], "must be the IPv6 address of one host");
    }
    if table.buffer == Some(Bytes(0)) {
        return bad(&["buffer"], "a buffer holds at least one byte");
    }
    Ok(Sublink {
        device: table.device,
        via: PerFamily::from_fn(|family| match family {
            Family::V4 => table.via.map(IpAddr::from),
            Family::V6 => table.via6.map(IpAddr::from),
        }),
        rate: table.rate.map(|LineRate(rate)| rate),
        buffer: table.buffer,
        name,
    })
}

fn parameters(source: &Source<'_>, table: &TrunkTable) -> Result<Parameters, BadInput> {
    let default = Parameters::default();
    let percent = |key, written: Option<Share>, default, least| {
        let written = written.map(|Share(share)| (share * 100.0).round() as u8);
        match written.unwrap_or(default) {
            percent if percent >= least => Ok(percent),
            _ => Err(source.bad(&["trunk", key], format!("from {least}% to 100%"))),
        }
    };
    let slots = table.slots.unwrap_or(default.slots);
    if !(1..=SLOTS_MAX).contains(&slots) {
        return Err(source.bad(&["trunk", "slots"], format!("1 to {SLOTS_MAX} are allowed")));
    }
    Ok(Parameters {
        check_period: span(source, "check", table.check, default.check_period)?,
        overload_percent: percent("overload", table.overload, default.overload_percent, 0)?,
        shrink_percent: percent("shrink", table.shrink, default.shrink_percent, 0)?,
        moved_percent: percent("moved", table.moved, default.moved_percent, 1)?,
        slot: span(source, "slot", table.slot, default.slot)?,
        slots,
        bin: table.bin.unwrap_or(default.bin),
        target: table.target.unwrap_or(default.target),
    })
}

/// From a millisecond to a minute.
fn span(
    source: &Source<'_>,
    key: &str,
    written: Option<Span>,
    default: Duration,
) -> Result<Duration, BadInput> {
    match written {
        None => Ok(default),
        Some(Span(time)) if (SPAN_MIN..=SPAN_MAX).contains(&time) => Ok(time),
        Some(_) => Err(source.bad(&["trunk", key], "a time from 1ms to 60s")),
    }
}
