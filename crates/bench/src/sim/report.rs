//! Medians, ratios, the tables and the JSON file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::contender::{Contenders, Name, Outcome};
use crate::machine;

const TIMES_NS2: f64 = 10.;
const TIMES_NS3: f64 = 300.;
/// Cost of an event with [`SLOWDOWN_FLOWS`] flows against 50.
const SLOWDOWN: f64 = 1.5;
const SLOWDOWN_FLOWS: u64 = 5_000;
/// Memory for so many flows at once.
const PEAK_BYTES: u64 = 8 << 30;
const CROWD_FLOWS: u64 = 1_000_000;

/// A run, and what it had come to after a fifth of its time.
struct Pair {
    whole: Outcome,
    start: Outcome,
}

/// Outcomes of one number of flows.
pub struct Row {
    flows: u64,
    outcomes: BTreeMap<Name, Vec<Pair>>,
}

impl Row {
    pub fn new(flows: u64) -> Self {
        Row {
            flows,
            outcomes: BTreeMap::new(),
        }
    }

    pub fn add(&mut self, name: Name, whole: Outcome, start: Outcome) {
        let pair = Pair { whole, start };
        self.outcomes.entry(name).or_default().push(pair);
    }

    fn median(&self, name: Name, of: impl Fn(&Pair) -> f64) -> Option<f64> {
        self.outcomes.get(&name).map(|all| median(all, of))
    }

    fn whole_per_s(&self, name: Name) -> Option<f64> {
        self.median(name, |pair| pair.whole.segments_per_s())
    }

    /// After the start; nothing if the start took no less than the whole, as noise may have it.
    fn steady_per_s(&self, name: Name) -> Option<f64> {
        let of = |of: fn(&Outcome) -> f64| {
            let whole = self.median(name, |pair| of(&pair.whole))?;
            Some(whole - self.median(name, |pair| of(&pair.start))?)
        };
        let (segments, cpu_s) = (of(|run| run.segments as f64)?, of(|run| run.cpu_s)?);
        (cpu_s > 0.).then_some(segments / cpu_s)
    }

    fn line(&self) -> Option<Line> {
        let peak = |name| {
            let bytes = self.median(name, |pair| pair.whole.peak_bytes as f64);
            bytes.map(|bytes| bytes as u64)
        };
        Some(Line {
            flows: self.flows,
            speeds: Speeds::of(|name| self.whole_per_s(name))?,
            steady: Speeds::of(|name| self.steady_per_s(name)),
            peak_bytes: peak(Name::Anabranch)?,
            ns2_peak_bytes: peak(Name::Ns2),
            ns3_peak_bytes: peak(Name::Ns3),
        })
    }
}

fn median<T>(outcomes: &[T], of: impl Fn(&T) -> f64) -> f64 {
    let mut values: Vec<f64> = outcomes.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) {
        (values[middle - 1] + values[middle]) / 2.
    } else {
        values[middle]
    }
}

/// Delivered data segments per second of processor time.
#[derive(Debug, Serialize)]
struct Speeds {
    anabranch: f64,
    /// As a user writes it.
    ns2: Option<f64>,
    /// With headers left out and routes set by hand.
    ns2_tuned: Option<f64>,
    ns3: Option<f64>,
    vs_ns2: Option<f64>,
    vs_ns2_tuned: Option<f64>,
    vs_ns3: Option<f64>,
}

impl Speeds {
    fn of(per_s: impl Fn(Name) -> Option<f64>) -> Option<Self> {
        let anabranch = per_s(Name::Anabranch)?;
        let [ns2, ns2_tuned, ns3] = [Name::Ns2, Name::Ns2Tuned, Name::Ns3].map(per_s);
        let over = |other: Option<f64>| Some(anabranch / other?);
        Some(Speeds {
            anabranch,
            ns2,
            ns2_tuned,
            ns3,
            vs_ns2: over(ns2),
            vs_ns2_tuned: over(ns2_tuned),
            vs_ns3: over(ns3),
        })
    }

    fn cells(&self) -> [String; 7] {
        [
            thousands(Some(self.anabranch)),
            thousands(self.ns2),
            thousands(self.ns2_tuned),
            thousands(self.ns3),
            times(self.vs_ns2),
            times(self.vs_ns2_tuned),
            times(self.vs_ns3),
        ]
    }
}

#[derive(Debug, Serialize)]
struct Line {
    flows: u64,
    #[serde(flatten)]
    speeds: Speeds,
    /// Without set-up.
    steady: Option<Speeds>,
    peak_bytes: u64,
    ns2_peak_bytes: Option<u64>,
    ns3_peak_bytes: Option<u64>,
}

/// What the simulator runs by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scene {
    Dumbbell,
    Gateway,
}

/// The simulator by itself.
#[derive(Clone, Debug, Serialize)]
pub struct ScaleRow {
    scene: Scene,
    flows: u64,
    /// Per second of processor time, set-up included.
    events_per_s: f64,
    event_ns: f64,
    peak_bytes: u64,
    /// Over four times the simulated time.
    peak_bytes_longer: u64,
}

impl ScaleRow {
    pub fn new(scene: Scene, flows: u64, outcomes: &[Outcome], longer: &Outcome) -> Self {
        let event_ns = |outcome: &Outcome| {
            let events = outcome.events.unwrap_or_default().max(1);
            1e9 * outcome.cpu_s / events as f64
        };
        ScaleRow {
            scene,
            flows,
            events_per_s: 1e9 / median(outcomes, event_ns),
            event_ns: median(outcomes, event_ns),
            peak_bytes: median(outcomes, |outcome| outcome.peak_bytes as f64) as u64,
            peak_bytes_longer: longer.peak_bytes,
        }
    }
}

/// A demand and what became of it.
#[derive(Debug, Serialize)]
struct Judgement {
    target: String,
    observed: f64,
    reached: bool,
}

/// What a reader needs to know to measure the same again.
#[derive(Debug, Serialize)]
pub struct Manifest {
    anabranch: &'static str,
    kernel: String,
    cpu: String,
    contenders: Vec<String>,
    runs: usize,
    simulated_s: u64,
    /// Over the last minute of the measurement: above 1, others used the machine too.
    load_average: f64,
}

impl Manifest {
    pub fn collect(contenders: &Contenders, runs: usize, simulated_s: u64) -> Result<Self> {
        Ok(Manifest {
            anabranch: env!("CARGO_PKG_VERSION"),
            kernel: nix::sys::utsname::uname()?
                .release()
                .to_string_lossy()
                .into_owned(),
            cpu: machine::cpu_model(),
            contenders: contenders.names().iter().map(Name::to_string).collect(),
            runs,
            simulated_s,
            load_average: machine::load_average(),
        })
    }
}

/// All that is written.
#[derive(Serialize)]
pub struct Report {
    manifest: Manifest,
    rows: Vec<Line>,
    scale: Vec<ScaleRow>,
    targets: Vec<Judgement>,
}

impl Report {
    pub fn new(manifest: Manifest, rows: Vec<Row>, scale: Vec<ScaleRow>) -> Self {
        let rows: Vec<Line> = rows.iter().filter_map(Row::line).collect();
        let targets = judge(&rows, &scale);
        Report {
            manifest,
            rows,
            scale,
            targets,
        }
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let text = serde_json::to_string_pretty(self)?;
        fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))
    }

    /// Side by side.
    pub fn table(&self) -> Table {
        let mut table = empty([
            "flows",
            "anabranch",
            "ns-2",
            "ns-2 tuned",
            "ns-3",
            "× ns-2",
            "× tuned",
            "× ns-3",
            "peak MB",
            "ns-2 MB",
            "ns-3 MB",
        ]);
        for line in &self.rows {
            let peaks = [
                Some(line.peak_bytes),
                line.ns2_peak_bytes,
                line.ns3_peak_bytes,
            ];
            let flows = [line.flows.to_string()];
            let peaks = peaks.map(megabytes);
            table.add_row(flows.iter().chain(&line.speeds.cells()).chain(&peaks));
            if let Some(steady) = &line.steady {
                let flows = [format!("{}, without set-up", line.flows)];
                table.add_row(flows.iter().chain(&steady.cells()));
            }
        }
        table
    }

    /// By itself, and what was demanded.
    pub fn scale_table(&self) -> String {
        let mut table = empty([
            "",
            "flows",
            "events/s",
            "ns per event",
            "peak MB",
            "peak MB, 4 × as long",
        ]);
        for row in &self.scale {
            table.add_row([
                format!("{:?}", row.scene).to_lowercase(),
                row.flows.to_string(),
                thousands(Some(row.events_per_s)),
                format!("{:.1}", row.event_ns),
                megabytes(Some(row.peak_bytes)),
                megabytes(Some(row.peak_bytes_longer)),
            ]);
        }
        let verdicts = self.targets.iter().map(|judgement| {
            let verdict = if judgement.reached {
                "reached"
            } else {
                "missed"
            };
            format!(
                "\n{}: {:.2}, {verdict}",
                judgement.target, judgement.observed
            )
        });
        verdicts.fold(table.to_string(), |text, line| text + &line)
    }
}

fn judge(rows: &[Line], scale: &[ScaleRow]) -> Vec<Judgement> {
    let at_least = |target: f64, observed: Option<f64>, other| {
        observed.map(|observed| Judgement {
            target: format!("segments per CPU second with 50 flows ≥ {target} × {other}"),
            observed,
            reached: observed >= target,
        })
    };
    let fifty = rows.iter().find(|line| line.flows == 50);
    let event_ns = |flows| {
        let mut dumbbells = scale.iter().filter(|row| row.scene == Scene::Dumbbell);
        let row = dumbbells.find(|row| row.flows == flows);
        row.map(|row| row.event_ns)
    };
    let slowdown = event_ns(SLOWDOWN_FLOWS)
        .zip(event_ns(50))
        .map(|(many, few)| many / few);
    let crowd = scale.iter().find(|row| row.flows == CROWD_FLOWS);
    let peak = crowd.map(|row| row.peak_bytes_longer);
    let judgements = [
        fifty.and_then(|line| at_least(TIMES_NS2, line.speeds.vs_ns2, "ns-2")),
        fifty.and_then(|line| at_least(TIMES_NS3, line.speeds.vs_ns3, "ns-3")),
        slowdown.map(|observed| Judgement {
            target: format!("an event with {SLOWDOWN_FLOWS} flows ≤ {SLOWDOWN} × one with 50"),
            observed,
            reached: observed <= SLOWDOWN,
        }),
        peak.map(|bytes| Judgement {
            target: format!("GiB with {CROWD_FLOWS} flows ≤ 8"),
            observed: bytes as f64 / f64::from(1 << 30),
            reached: bytes <= PEAK_BYTES,
        }),
    ];
    judgements.into_iter().flatten().collect()
}

fn empty<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_header(header);
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn thousands(per_s: Option<f64>) -> String {
    per_s.map_or("–".to_owned(), |per_s| format!("{:.0} k/s", per_s / 1e3))
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.1}"))
}

fn megabytes(bytes: Option<u64>) -> String {
    bytes.map_or("–".to_owned(), |bytes| {
        format!("{:.1}", bytes as f64 / 1e6)
    })
}
