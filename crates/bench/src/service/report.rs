//! Rows, ratios and targets of services, and the JSON file.

use std::collections::BTreeMap;

use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::Serialize;

use super::site::Contender;
use crate::machine;
use crate::measure::Span;
use crate::ratios::Ratios;
use crate::report::{Samples, shown};
use crate::rows::Better;
use crate::testbed::Conntrack;

pub const PROCESSOR: &str = "connections processor";

/// What is compared with whom.
struct Row {
    name: &'static str,
    /// As the runs call it.
    samples: &'static str,
    unit: &'static str,
    better: Better,
    ours: Contender,
    targets: &'static [Target],
}

/// A demand.
#[derive(Clone, Copy)]
enum Target {
    /// All of the interval of the ratio to another; its median where there is no interval.
    Times(f64, Contender),
    AtMost(f64),
}

macro_rules! rows {
    ($($name:literal of $samples:expr, $unit:literal, $better:ident, $ours:ident, $targets:expr;)+) => {
        &[$(Row {
            name: $name,
            samples: $samples,
            unit: $unit,
            better: Better::$better,
            ours: Contender::$ours,
            targets: $targets,
        }),+]
    };
}

const CONNECTIONS: &[Target] = &[
    Target::Times(1.2, Contender::Nftables),
    Target::Times(0.95, Contender::Forwarding),
    Target::Times(2.0, Contender::Haproxy),
];

const ROWS: &[Row] = rows! {
    "connections" of "connections", "1/s", More, Nat, CONNECTIONS;
    "connections processor time" of PROCESSOR, "µs", Less, Nat, &[];
    "connections processor time more than forwarding" of MORE[0].1, "µs", Less, Nat, &[];
    "packets nat" of "packets", "1/s", More, Nat, &[];
    "packets direct" of "packets", "1/s", More, Direct, &[Target::Times(0.9, Contender::Redirect)];
    "packets tunnel" of "packets", "1/s", More, Tunnel, &[Target::Times(0.8, Contender::Redirect)];
    "packets nat of 1000000 connections" of "packets of many", "1/s", More, Nat, &[];
    "packets direct of 1000000 connections" of "packets of many", "1/s", More, Direct, &[];
    "latency p50" of "latency p50", "µs", Less, Nat, &[];
    "latency p99" of "latency p99", "µs", Less, Nat, &[];
    "latency p50 more than forwarding" of MORE[1].1, "µs", Less, Nat, &[];
    "latency p99 more than forwarding" of MORE[2].1, "µs", Less, Nat, &[];
    "memory nat" of "own memory", "bytes", Less, Nat, &[Target::AtMost(450.0)];
    "memory direct" of "own memory", "bytes", Less, Direct, &[Target::AtMost(170.0)];
    "memory tunnel" of "own memory", "bytes", Less, Tunnel, &[Target::AtMost(170.0)];
};

/// Medians less that of plain forwarding.
const MORE: [(&str, &str); 3] = [
    (PROCESSOR, "more processor"),
    ("latency p50", "more p50"),
    ("latency p99", "more p99"),
];

const OTHERS: [Contender; 5] = [
    Contender::Nftables,
    Contender::Haproxy,
    Contender::Nginx,
    Contender::Forwarding,
    Contender::Redirect,
];

/// One line: medians, ratios of runs that took turns (above 1: ours is better), and their intervals.
#[derive(Serialize)]
struct Line {
    name: &'static str,
    unit: &'static str,
    anabranch: f64,
    nftables: Option<f64>,
    haproxy: Option<f64>,
    nginx: Option<f64>,
    forwarding: Option<f64>,
    redirect: Option<f64>,
    vs_nftables: Option<f64>,
    vs_haproxy: Option<f64>,
    vs_nginx: Option<f64>,
    vs_forwarding: Option<f64>,
    vs_redirect: Option<f64>,
    /// Of 95 %, by contender; none with fewer pairs than that takes.
    interval: BTreeMap<Contender, (f64, f64)>,
    targets: Vec<Judgement>,
}

#[derive(Serialize)]
struct Judgement {
    target: String,
    reached: bool,
}

#[derive(Serialize)]
struct Manifest {
    anabranch: &'static str,
    cpu: String,
    pairs: usize,
    warm_up_s: f64,
    window_s: f64,
    conntrack: Conntrack,
    /// Over the last minute.
    load_average: f64,
}

#[derive(Serialize)]
pub struct Report {
    manifest: Manifest,
    rows: Vec<Line>,
}

impl Row {
    fn line(&self, samples: &Samples<Contender>) -> Option<Line> {
        let anabranch = samples.median(self.samples, self.ours)?;
        let median = |other| samples.median(self.samples, other);
        let ratios = |other| {
            let pairs = samples.pairs(self.samples, [other, self.ours]);
            Ratios::of(self.better, &pairs)
        };
        let times = |other| ratios(other).map(|ratios| ratios.median);
        let interval = |other| Some((other, ratios(other)?.interval?));
        Some(Line {
            name: self.name,
            unit: self.unit,
            anabranch,
            nftables: median(Contender::Nftables),
            haproxy: median(Contender::Haproxy),
            nginx: median(Contender::Nginx),
            forwarding: median(Contender::Forwarding),
            redirect: median(Contender::Redirect),
            vs_nftables: times(Contender::Nftables),
            vs_haproxy: times(Contender::Haproxy),
            vs_nginx: times(Contender::Nginx),
            vs_forwarding: times(Contender::Forwarding),
            vs_redirect: times(Contender::Redirect),
            interval: OTHERS.into_iter().filter_map(interval).collect(),
            targets: self
                .targets
                .iter()
                .filter_map(|target| target.judge(anabranch, self.unit, ratios))
                .collect(),
        })
    }
}

impl Target {
    fn judge(
        self,
        ours: f64,
        unit: &str,
        ratios: impl Fn(Contender) -> Option<Ratios>,
    ) -> Option<Judgement> {
        Some(match self {
            Target::Times(times, other) => {
                let ratios = ratios(other)?;
                let least = ratios.interval.map_or(ratios.median, |(low, _)| low);
                Judgement {
                    target: format!("≥ {times} × {}", other.label()),
                    reached: least >= times,
                }
            }
            Target::AtMost(most) => Judgement {
                target: format!("≤ {most} {unit}"),
                reached: ours <= most,
            },
        })
    }
}

impl Report {
    pub fn new(
        mut samples: Samples<Contender>,
        pairs: usize,
        span: Span,
        conntrack: Conntrack,
    ) -> Self {
        for contender in Contender::ALL {
            for (from, to) in MORE {
                samples.subtract(from, to, contender, Contender::Forwarding);
            }
            // The ends of connections are sockets in all of these.
            if contender.is_proxy() {
                samples.subtract("memory", "own memory", contender, Contender::Forwarding);
            } else if let Some(bytes) = samples.median("memory", contender)
                && contender != Contender::Forwarding
            {
                samples.add(contender, [("own memory", bytes)]);
            }
        }
        Report {
            manifest: Manifest {
                anabranch: env!("CARGO_PKG_VERSION"),
                cpu: machine::cpu_model(),
                pairs,
                warm_up_s: span.warm_up.as_secs_f64(),
                window_s: span.window.as_secs_f64(),
                conntrack,
                load_average: machine::load_average(),
            },
            rows: ROWS.iter().filter_map(|row| row.line(&samples)).collect(),
        }
    }

    pub fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_FULL_CONDENSED);
        let names = OTHERS.map(Contender::label);
        let header = ["", "unit", "anabranch"].into_iter().chain(names);
        table.set_header(header.chain(["target"]));
        for column in 2..8 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        for line in &self.rows {
            table.add_row(line.cells());
        }
        table
    }
}

impl Line {
    /// Each other's median, and what ours is of it.
    fn cells(&self) -> Vec<Cell> {
        let others = [
            (self.nftables, self.vs_nftables),
            (self.haproxy, self.vs_haproxy),
            (self.nginx, self.vs_nginx),
            (self.forwarding, self.vs_forwarding),
            (self.redirect, self.vs_redirect),
        ];
        let others = OTHERS
            .into_iter()
            .zip(others)
            .map(|(other, (median, times))| {
                let times = times.map_or(String::new(), |times| format!("\n× {times:.3}"));
                let interval = self.interval.get(&other);
                let interval = interval.map_or(String::new(), |(low, high)| {
                    format!("\n{low:.3} to {high:.3}")
                });
                shown(median) + &times + &interval
            });
        let targets = self.targets.iter().map(|judged| {
            let outcome = if judged.reached { "reached" } else { "missed" };
            format!("{}: {outcome}", judged.target)
        });
        let targets = targets.collect::<Vec<_>>().join("\n");
        let ours = [
            self.name.into(),
            self.unit.into(),
            shown(Some(self.anabranch)),
        ];
        let cells = ours.into_iter().chain(others).chain([targets]);
        cells.map(Cell::new).collect()
    }
}
