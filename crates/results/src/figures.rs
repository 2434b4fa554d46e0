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

/// In the order of tables.
pub static FIGURES: [Figure; 16] = [
    Figure {
        key: "goodput_bps",
        name: "goodput",
        meaning: "bytes of files over T_c",
        short: Some("goodput"),
        value: |s| Some(s.goodput_bps),
        quantity: Quantity::Rate,
        plotted: true,
    },
    Figure {
        key: "mean_throughput_bps",
        name: "mean throughput",
        meaning: "mean over successful transfers of each one's own",
        short: Some("per transfer"),
        value: |s| (s.ok > 0).then_some(s.mean_throughput_bps),
        quantity: Quantity::Rate,
        plotted: true,
    },
    Figure {
        key: "ebu",
        name: "EBU",
        meaning: "bits asked for and received / (sum of link rates × T_c)",
        short: None,
        value: |s| Some(s.ebu),
        quantity: Quantity::Ratio,
        plotted: true,
    },
    Figure {
        key: "completion_s",
        name: "T_c",
        meaning: "first start to last end",
        short: None,
        value: |s| Some(s.completion_s),
        quantity: Quantity::Time,
        plotted: false,
    },
    Figure {
        key: "duration_sum_s",
        name: "sum of durations",
        meaning: "successful transfers",
        short: None,
        value: |s| Some(s.duration_sum_s),
        quantity: Quantity::Time,
        plotted: true,
    },
    Figure {
        key: "duration_p50_s",
        name: "median duration",
        meaning: "half of the successful transfers took at most so long, set-up included",
        short: Some("median"),
        value: |s| (s.ok > 0).then_some(s.duration.p50_s),
        quantity: Quantity::Time,
        plotted: true,
    },
    Figure {
        key: "duration_p99_s",
        name: "p99 duration",
        meaning: "99 % of the successful transfers took at most so long, set-up included",
        short: Some("p99"),
        value: |s| (s.ok > 0).then_some(s.duration.p99_s),
        quantity: Quantity::Time,
        plotted: true,
    },
    Figure {
        key: "user_deviation_bps",
        name: "deviation of users",
        meaning: "mean absolute deviation of users' mean throughput",
        short: Some("users differ"),
        value: |s| Some(s.user_deviation_bps),
        quantity: Quantity::Rate,
        plotted: true,
    },
    Figure {
        key: "failed_ratio",
        name: "failed",
        meaning: "of the transfers that ended by themselves",
        short: Some("failed"),
        value: |s| Some(s.failed_ratio),
        quantity: Quantity::Share,
        plotted: true,
    },
    Figure {
        key: "loss_ratio",
        name: "packets lost",
        meaning: "of the packets offered to the links",
        short: Some("lost"),
        value: |s| Some(s.counts?.loss_ratio()),
        quantity: Quantity::Share,
        plotted: true,
    },
    Figure {
        key: "lost_bytes",
        name: "bytes lost",
        meaning: "in packets that did not arrive",
        short: None,
        value: |s| Some(s.counts?.dropped().bytes as f64),
        quantity: Quantity::Bytes,
        plotted: false,
    },
    Figure {
        key: "retransmitted_bytes",
        name: "sent again",
        meaning: "in segments of TCP",
        short: None,
        value: |s| Some(s.counts?.retransmitted.counted_bytes()? as f64),
        quantity: Quantity::Bytes,
        plotted: false,
    },
    Figure {
        key: "reordered",
        name: "reordered",
        meaning: "segments that arrived after a later one",
        short: None,
        value: |s| Some(s.counts?.reordered as f64),
        quantity: Quantity::Count,
        plotted: false,
    },
    Figure {
        key: "reassignments",
        name: "reassigned",
        meaning: "choices that moved a flow or a bin",
        short: None,
        value: |s| Some(s.counts?.reassignments as f64),
        quantity: Quantity::Count,
        plotted: false,
    },
    Figure {
        key: "probe_packets",
        name: "probes",
        meaning: "of the gateway",
        short: None,
        value: |s| Some(s.counts?.probes.packets as f64),
        quantity: Quantity::Count,
        plotted: false,
    },
    Figure {
        key: "measuring_packets",
        name: "measuring",
        meaning: "probes that the algorithm itself asks for",
        short: None,
        value: |s| Some(s.counts?.measuring.packets as f64),
        quantity: Quantity::Count,
        plotted: false,
    },
];
