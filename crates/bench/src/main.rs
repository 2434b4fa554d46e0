//! Measures the gateway against what the kernel offers: nftables with a random mark per connection, policy routing
//! and masquerade; plain forwarding without translation; and redirect alone, a program that does nothing but send packets on:
//! the limit of the gateway's path.
//!
//! The contenders stand in networks of their own, built alike (`testbed`), and take turns: every run of a measure
//! meets all of them within seconds of each other, in an order that rotates, so that what the machine does meanwhile
//! hits all alike. A row shows the median of its runs. Then the programs are measured by themselves (`program`,
//! `opening`), a choice (`choice`), and the class of a flow (`rules`).

mod against;
mod choice;
mod cpu;
mod crowd;
mod machine;
mod manifest;
mod measure;
mod memory;
mod opening;
mod program;
mod races;
mod ratios;
mod report;
mod rows;
mod rules;
mod service;
mod test_run;
mod testbed;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anabranch_policy::{Family, PerFamily};
use anyhow::{Result, ensure};
use clap::builder::ArgPredicate;
use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

use against::{Build, Pairs, Verdict};
use choice::CHOICES;
use crowd::Crowd;
use manifest::Manifest;
use measure::{Measure, Span};
use program::{FEW_FLOWS, Kind, MANY_FLOWS, Programs, Proto, Way};
use ratios::FEWEST_PAIRS;
use report::{Report, Samples, write_json};
use service::ServiceArgs;
use testbed::{AnabranchBy, Conntrack, Contender, LOOPBACK, Redirect, Testbed, isp};

/// Measures the gateway against nftables and plain forwarding. Needs root; takes about five minutes.
#[derive(Debug, Parser)]
#[command(
    name = "anabranch-bench",
    version,
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  anabranch-bench                          all rows, five runs each
  anabranch-bench --quick --only packets   a first impression of one row
  anabranch-bench service                  services beside nftables, HAProxy and nginx
  anabranch-bench --against old/anabranch-bench
                                           this build and a former one take turns"
)]
struct Args {
    /// The daemon to measure [default: `anabranch` beside this program, if it was built; the programs alone if not]
    #[arg(long, value_name = "PATH", conflicts_with = "programs_alone")]
    anabranch: Option<PathBuf>,
    /// Measure the programs without the daemon
    #[arg(long)]
    programs_alone: bool,
    /// Measure only this
    #[arg(long, value_name = "NAME", value_parser = MEASURES)]
    only: Vec<String>,
    /// Run only this contender, for a profiler
    #[arg(long, value_name = "NAME")]
    contender: Option<Contender>,
    /// Runs per contender and row
    #[arg(long, value_name = "N", default_value_t = 5)]
    runs: usize,
    /// One short run each: for a first impression, not for a claim
    #[arg(long, conflicts_with = "runs")]
    quick: bool,
    /// Measure this build beside another: its `anabranch-bench`, with `anabranch` beside it. Fails if a row is worse
    #[arg(long, value_name = "PATH", conflicts_with_all = ["anabranch", "programs_alone", "contender", "runs", "quick"])]
    against: Option<PathBuf>,
    /// How often both builds run every row; without --against: how often anabranch takes turns with nftables at connections, and
    /// with redirect alone at packets
    #[arg(long, value_name = "N", default_value_t = 15)]
    pairs: usize,
    /// Where the result goes
    #[arg(
        long,
        value_name = "FILE",
        default_value = "target/bench/gateway.json",
        default_value_if("against", ArgPredicate::IsPresent, "target/bench/against.json")
    )]
    output: PathBuf,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Service(ServiceArgs),
}

/// What can be measured by itself.
const MEASURES: [&str; 10] = [
    "goodput",
    "connections",
    "packets",
    "latency",
    "program",
    "opening",
    "choice",
    "rules",
    "crowd",
    "races",
];

impl Args {
    fn runs(&self) -> usize {
        if self.quick { 1 } else { self.runs }
    }

    fn span(&self) -> Span {
        let window_s = if self.quick { 1 } else { 3 };
        Span {
            // Longer than the second after which a UDP stream without answers is confirmed.
            warm_up: Duration::from_millis(1500),
            window: Duration::from_secs(window_s),
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    fn contenders(&self) -> Vec<Contender> {
        self.contender
            .map_or(Contender::ALL.to_vec(), |only| vec![only])
    }

    fn by(&self) -> Result<AnabranchBy> {
        if self.programs_alone {
            return Ok(AnabranchBy::DataPlane);
        }
        if let Some(path) = &self.anabranch {
            ensure!(
                path.is_file(),
                "--anabranch {}: no such file",
                path.display()
            );
            return Ok(AnabranchBy::Daemon(path.clone()));
        }
        let beside = std::env::current_exe()?.with_file_name("anabranch");
        Ok(if beside.is_file() {
            AnabranchBy::Daemon(beside)
        } else {
            AnabranchBy::DataPlane
        })
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    ensure!(args.runs() > 0, "--runs 0: at least one run is needed");
    ensure!(
        nix::unistd::geteuid().is_root(),
        "network namespaces and BPF need root"
    );
    if let Some(Command::Service(args)) = &args.command {
        return service::compare(args);
    }
    if let Some(former) = &args.against {
        return compare(&args, former);
    }
    let (by, span) = (args.by()?, args.span());
    let manifest = Manifest::collect(by.clone(), args.runs(), span, Conntrack::enlarge()?)?;
    match &by {
        AnabranchBy::Daemon(path) => println!("anabranch: the daemon {}", path.display()),
        AnabranchBy::DataPlane => println!("anabranch: the programs without the daemon"),
    }
    if manifest.was_busy() {
        println!("This machine is busy: the figures will scatter.");
    }
    let mut samples = Samples::default();
    race(&args, &by, span, &mut samples)?;
    if args.wants("program") {
        measure_program(args.runs(), &mut samples)?;
    }
    if args.wants("opening") {
        measure_opening(args.runs(), &mut samples)?;
    }
    if args.wants("choice") {
        measure_choice(args.runs(), &mut samples)?;
    }
    if args.wants("rules") {
        for _ in 0..args.runs() {
            samples.add(Contender::Anabranch, [("rules_63", rules::measure()?)]);
        }
    }
    if args.wants("crowd") {
        measure_crowd(&args, &by, span, &mut samples)?;
    }
    if let (true, AnabranchBy::Daemon(daemon)) = (args.wants("races"), &by) {
        for _ in 0..args.runs() {
            samples.add(Contender::Anabranch, races::measure(daemon)?);
        }
    }
    samples.derive();
    let report = Report::new(manifest, &samples);
    println!("{}", report.table());
    report.write(&args.output)?;
    println!("{}", shown(&args.output));
    Ok(())
}

/// This build and a former one take turns.
fn compare(args: &Args, former: &Path) -> Result<()> {
    ensure!(
        args.pairs >= FEWEST_PAIRS,
        "--pairs {}: an interval of 95 % takes {FEWEST_PAIRS} at least",
        args.pairs
    );
    let builds = [Build::at(former)?, Build::at(&std::env::current_exe()?)?];
    let mut measures = Vec::new();
    for measure in MEASURES.into_iter().filter(|name| args.wants(name)) {
        if builds[0].knows(measure)? {
            measures.push(measure);
        } else {
            println!("{measure} is left out: the former build does not measure it.");
        }
    }
    let (mut pairs, bar) = (Pairs::default(), progress(args.pairs * measures.len()));
    for pair in 0..args.pairs {
        for measure in &measures {
            bar.set_message(*measure);
            pairs.run(builds.each_ref(), measure, pair % 2 == 0)?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let rows = pairs.compare();
    println!("{}", against::table(&rows));
    write_json(&args.output, &rows)?;
    println!("{}", shown(&args.output));
    let worse = rows.iter().filter(|row| row.verdict == Verdict::Worse);
    let worse = worse.count();
    ensure!(worse == 0, "{worse} of {} rows became worse", rows.len());
    Ok(())
}

/// The contenders take turns.
fn race(args: &Args, by: &AnabranchBy, span: Span, samples: &mut Samples) -> Result<()> {
    let measures: Vec<_> = Measure::ALL
        .into_iter()
        .filter(|measure| args.wants(measure.name()))
        .collect();
    if measures.is_empty() {
        return Ok(());
    }
    let contenders = args.contenders();
    let bar = progress(measures.len() * args.runs() * contenders.len());
    bar.set_message("building the networks");
    let mut beds = contenders
        .into_iter()
        .map(|contender| Testbed::build(contender, by))
        .collect::<Result<Vec<_>>>()?;
    for measure in measures {
        for _ in 0..args.runs() {
            for bed in &beds {
                bar.set_message(format!("{}: {}", measure.name(), bed.contender.label()));
                samples.add(bed.contender, measure.run(bed, span)?);
                bar.inc(1);
            }
            beds.rotate_left(1);
        }
        if let (Some(other), false) = (measure.paired_with(), args.quick) {
            pair(measure, other, &beds, args.pairs, span, samples, &bar)?;
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Lets the gateway and `other` take more turns, until there are `pairs` of them.
fn pair(
    measure: Measure,
    other: Contender,
    beds: &[Testbed],
    pairs: usize,
    span: Span,
    samples: &mut Samples,
    bar: &ProgressBar,
) -> Result<()> {
    let of = |contender| beds.iter().find(|bed| bed.contender == contender);
    let (Some(ours), Some(theirs)) = (of(Contender::Anabranch), of(other)) else {
        return Ok(());
    };
    let mut turns = [ours, theirs];
    let contenders = turns.map(|bed| bed.contender);
    let had = samples.pairs(measure.row(), contenders).len();
    for _ in had..pairs {
        bar.inc_length(2);
        for bed in turns {
            bar.set_message(format!("{}: {}", measure.name(), bed.contender.label()));
            samples.add(bed.contender, measure.run(bed, span)?);
            bar.inc(1);
        }
        turns.reverse();
    }
    Ok(())
}

/// The programs by themselves, with few and with many flows.
fn measure_program(runs: usize, samples: &mut Samples) -> Result<()> {
    let bar = progress(5 * runs);
    bar.set_message("established path");
    let ipv4 = |proto| Kind {
        family: Family::V4,
        proto,
    };
    let ipv6 = |proto| Kind {
        family: Family::V6,
        proto,
    };
    let tcp = measure_flows(
        FEW_FLOWS,
        ipv4(Proto::Tcp),
        ["established_tcp_out", "established_tcp_in"],
        runs,
        samples,
        &bar,
    )?;
    for (kind, rows) in [
        (
            ipv4(Proto::Udp),
            ["established_udp_out", "established_udp_in"],
        ),
        (
            ipv6(Proto::Tcp),
            ["established_tcp_ipv6_out", "established_tcp_ipv6_in"],
        ),
        (
            ipv6(Proto::Udp),
            ["established_udp_ipv6_out", "established_udp_ipv6_in"],
        ),
    ] {
        measure_flows(FEW_FLOWS, kind, rows, runs, samples, &bar)?;
    }
    bar.set_message("established path, 1 000 000 flows");
    let many = [
        "established_tcp_out_1000000_flows",
        "established_tcp_in_1000000_flows",
    ];
    let crowded = measure_flows(MANY_FLOWS, ipv4(Proto::Tcp), many, runs, samples, &bar)?;
    let slowdown = crowded.nanoseconds / tcp.nanoseconds;
    let more_flows = f64::from(MANY_FLOWS - FEW_FLOWS);
    let bytes_per_flow = (crowded.bytes - tcp.bytes) / more_flows;
    let beside_flows = tcp.bytes - f64::from(FEW_FLOWS) * bytes_per_flow;
    samples.add(
        Contender::Anabranch,
        [
            ("slowdown_1000000_flows", slowdown),
            ("memory_per_flow", bytes_per_flow),
            ("memory_beside_flows", beside_flows / 1e6),
        ],
    );
    bar.finish_and_clear();
    Ok(())
}

struct Cost {
    /// Of a packet out and one in, medians added.
    nanoseconds: f64,
    /// Kernel memory.
    bytes: f64,
}

fn measure_flows(
    flows: u32,
    kind: Kind,
    [out, back]: [&'static str; 2],
    runs: usize,
    samples: &mut Samples,
    bar: &ProgressBar,
) -> Result<Cost> {
    let (mut programs, bytes) = Programs::load(flows, kind)?;
    let mut redirect = Redirect::load(LOOPBACK, PerFamily::from_fn(|family| isp(family, 0)))?;
    for _ in 0..runs {
        for (row, way) in [(out, Way::Out), (back, Way::In)] {
            let ours = programs.measure(kind, way)?;
            samples.add(Contender::Anabranch, [(row, ours)]);
            let alone = program::measure_redirect(&mut redirect, kind, way)?;
            samples.add(Contender::Redirect, [(row, alone)]);
        }
        bar.inc(1);
    }
    let median = |row| {
        samples
            .median(row, Contender::Anabranch)
            .unwrap_or(f64::NAN)
    };
    Ok(Cost {
        nanoseconds: median(out) + median(back),
        bytes,
    })
}

/// The first packets of flows.
fn measure_opening(runs: usize, samples: &mut Samples) -> Result<()> {
    let bar = progress(2 * runs);
    bar.set_message("opening flows");
    for _ in 0..runs {
        for (row, proto) in [("opening_tcp", Proto::Tcp), ("opening_udp", Proto::Udp)] {
            let cost = opening::measure(proto)?;
            samples.add(Contender::Anabranch, [(row, cost.opening)]);
            samples.add(Contender::Redirect, [(row, cost.redirect)]);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// A choice among few and among many targets.
fn measure_choice(runs: usize, samples: &mut Samples) -> Result<()> {
    for _ in 0..runs {
        for (row, dispatch, targets) in CHOICES {
            let nanoseconds = choice::measure(dispatch, targets)?;
            samples.add(Contender::Anabranch, [(row, nanoseconds)]);
        }
    }
    Ok(())
}

/// The whole box with few and with many flows, taking turns.
fn measure_crowd(args: &Args, by: &AnabranchBy, span: Span, samples: &mut Samples) -> Result<()> {
    let contenders: Vec<_> = [Contender::Anabranch, Contender::Redirect]
        .into_iter()
        .filter(|contender| args.contenders().contains(contender))
        .collect();
    let crowds = [
        ("packets_64_byte_1000000_flows", Crowd::new(MANY_FLOWS)),
        ("packets_64_byte_1000_flows", Crowd::new(FEW_FLOWS)),
    ];
    let bar = progress(crowds.len() * contenders.len() * args.runs());
    bar.set_message("packets of 1000 and of 1 000 000 flows");
    let mut beds = Vec::new();
    for contender in contenders {
        let bed = Testbed::build(contender, by)?;
        crowds.iter().try_for_each(|(_, crowd)| crowd.enter(&bed))?;
        beds.push(bed);
    }
    for _ in 0..args.runs() {
        for (row, crowd) in &crowds {
            for bed in &beds {
                samples.add(bed.contender, [(*row, crowd.measure(bed, span)?)]);
                bar.inc(1);
            }
            beds.reverse();
        }
    }
    bar.finish_and_clear();
    Ok(())
}

fn progress(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} ({eta} left)")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(steps as u64).with_style(style)
}

fn shown(path: &Path) -> String {
    format!("written to {}", path.display())
}
