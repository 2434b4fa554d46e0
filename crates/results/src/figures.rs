//! The figures of merit of this field, one table: names, meanings, units, bounds. Tables, plots and pages take them from
//! here.

use std::ops::RangeInclusive;

use anabranch_scenario::format;
use anabranch_scenario::stats::{NOT_NEGATIVE, SHARE};

use crate::Summary;

/// A figure of merit of a run.
#[derive(Debug)]
pub struct Figure {
    /// In tables for machines, and as the name of its plot.
    pub key: &'static str,
    /// For people.
    pub name: &'static str,
    /// What it is of, as an apposition to its name.
    pub meaning: &'static str,
    /// The title of its column where there is little room; where it has none, it is left out there.
    pub short: Option<&'static str>,
    /// None if the run has no such figure.
    pub value: fn(&Summary) -> Option<f64>,
    /// What its values are.
    pub quantity: Quantity,
    /// Whether it is drawn; all are in the tables.
    pub plotted: bool,
}

impl Figure {
    /// The figure whose key is `key`.
    pub fn of(key: &str) -> Option<&'static Figure> {
        FIGURES.iter().find(|figure| figure.key == key)
    }
}

/// What a figure is of: how people read it, and what it can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Of the links' rates over T_c.
    Ratio,
    /// Bit/s.
    Rate,
    /// Seconds.
    Time,
    /// Of a whole, 0 to 1.
    Share,
    /// Bytes.
    Bytes,
    /// A number of things.
    Count,
}

impl Quantity {
    /// For a reader, with its unit.
    pub fn text(self, value: f64) -> String {
        match self {
            Quantity::Ratio => format!("{value:.3}"),
            Quantity::Rate => format::bps(value),
            Quantity::Time => format::seconds(value),
            Quantity::Share => format::percent(value),
            Quantity::Bytes => format::bytes(value.round() as u64),
            Quantity::Count => {
                let text = format!("{value:.1}");
                text.strip_suffix(".0").unwrap_or(&text).to_owned()
            }
        }
    }

    /// The unit of its plots, and how many base units that is; amounts have none.
    pub fn unit(self) -> Option<(&'static str, f64)> {
        match self {
            Quantity::Ratio => Some(("share of the links' rate × T_c", 1.0)),
            Quantity::Rate => Some(("Mbit/s", 1e6)),
            Quantity::Time => Some(("s", 1.0)),
            Quantity::Share => Some(("%", 0.01)),
            Quantity::Bytes | Quantity::Count => None,
        }
    }

    /// What it cannot be outside of.
    pub fn range(self) -> RangeInclusive<f64> {
        match self {
            Quantity::Share => SHARE,
            _ => NOT_NEGATIVE,
        }
    }
}

/// `KEY: NAME (SHORT), MEANING, QUANTITY, plotted => VALUE;` each, some without a short name, some not plotted.
macro_rules! figures {
    (@is) => { false };
    (@is plotted) => { true };
    (@short) => { None };
    (@short $short:literal) => { Some($short) };
    ($($key:literal: $name:literal $(($short:literal))?, $meaning:literal, $quantity:ident $(, $plotted:ident)? => $value:expr;)+) => {
        [$(Figure {
            key: $key,
            name: $name,
            meaning: $meaning,
            short: figures!(@short $($short)?),
            value: $value,
            quantity: Quantity::$quantity,
            plotted: figures!(@is $($plotted)?),
        }),+]
    };
}

/// In the order of tables.
pub static FIGURES: [Figure; 16] = figures! {
    "goodput_bps": "goodput" ("goodput"), "bytes of files over T_c",
        Rate, plotted => |s| Some(s.goodput_bps);
    "mean_throughput_bps": "mean throughput" ("per transfer"), "mean over successful transfers of each one's own",
        Rate, plotted => |s| (s.ok > 0).then_some(s.mean_throughput_bps);
    "ebu": "EBU", "bits asked for and received / (sum of link rates × T_c)",
        Ratio, plotted => |s| Some(s.ebu);
    "completion_s": "T_c", "first start to last end",
        Time => |s| Some(s.completion_s);
    "duration_sum_s": "sum of durations", "successful transfers",
        Time, plotted => |s| Some(s.duration_sum_s);
    "duration_p50_s": "median duration" ("median"), "half of the successful transfers took at most so long, set-up included",
        Time, plotted => |s| (s.ok > 0).then_some(s.duration.p50_s);
    "duration_p99_s": "p99 duration" ("p99"), "99 % of the successful transfers took at most so long, set-up included",
        Time, plotted => |s| (s.ok > 0).then_some(s.duration.p99_s);
    "user_deviation_bps": "deviation of users" ("users differ"), "mean absolute deviation of users' mean throughput",
        Rate, plotted => |s| Some(s.user_deviation_bps);
    "failed_ratio": "failed" ("failed"), "of the transfers that ended by themselves",
        Share, plotted => |s| Some(s.failed_ratio);
    "loss_ratio": "packets lost" ("lost"), "of the packets offered to the links",
        Share, plotted => |s| Some(s.counts?.loss_ratio());
    "lost_bytes": "bytes lost", "in packets that did not arrive",
        Bytes => |s| Some(s.counts?.dropped().bytes as f64);
    "retransmitted_bytes": "sent again", "in segments of TCP",
        Bytes => |s| Some(s.counts?.retransmitted.counted_bytes()? as f64);
    "reordered": "reordered", "segments that arrived after a later one",
        Count => |s| Some(s.counts?.reordered as f64);
    "reassignments": "reassigned", "choices that moved a flow or a bin",
        Count => |s| Some(s.counts?.reassignments as f64);
    "probe_packets": "probes", "of the gateway",
        Count => |s| Some(s.counts?.probes.packets as f64);
    "measuring_packets": "measuring", "probes that the algorithm itself asks for",
        Count => |s| Some(s.counts?.measuring.packets as f64);
};
