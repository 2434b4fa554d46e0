//! Services against what else spreads connections over servers: nftables' `dnat` to a random one, HAProxy and nginx, which end the
//! connections and make others; beside plain forwarding to servers that have the virtual address, and redirect alone.
//!
//! The contenders stand in networks of their own, built alike (`site`), and take turns, as those of the gateway do. Proxies take turns
//! where they can: they carry no packet of somebody else's connection.

mod crowd;
mod report;
mod runs;
mod site;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::measure::{Span, packets};
use crate::memory;
use crate::ratios::FEWEST_PAIRS;
use crate::report::Samples;
use crate::testbed::Conntrack;
use report::Report;
use site::{Contender, Site};

/// Compares services with nftables, HAProxy, nginx and plain forwarding. Takes ten minutes.
#[derive(Args, Debug)]
pub struct ServiceArgs {
    /// How often each contender takes its turn at each row
    #[arg(long, value_name = "N", default_value_t = 15)]
    pairs: usize,
    /// One short run each: for a first impression, not for a claim
    #[arg(long, conflicts_with = "pairs")]
    quick: bool,
    /// Measure only this
    #[arg(long, value_name = "NAME", value_parser = MEASURES.map(Measure::name))]
    only: Vec<String>,
    /// Run only these contenders
    #[arg(long, value_name = "NAME")]
    contender: Vec<Contender>,
    /// Where the result goes
    #[arg(long, value_name = "FILE", default_value = "target/bench/service.json")]
    output: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Measure {
    Connections,
    Packets,
    Latency,
    Memory,
}

const MEASURES: [Measure; 4] = [
    Measure::Connections,
    Measure::Packets,
    Measure::Latency,
    Measure::Memory,
];

impl Measure {
    const fn name(self) -> &'static str {
        match self {
            Measure::Connections => "connections",
            Measure::Packets => "packets",
            Measure::Latency => "latency",
            Measure::Memory => "memory",
        }
    }

    /// Proxies end connections of TCP. What servers answer themselves goes elsewhere, and has no part in the speed.
    fn concerns(self, contender: Contender) -> bool {
        match self {
            Measure::Connections | Measure::Latency => !contender.is_direct(),
            Measure::Packets => !contender.is_proxy(),
            Measure::Memory => contender != Contender::Redirect,
        }
    }

    fn run(self, site: &Site, span: Span) -> Result<Vec<(&'static str, f64)>> {
        Ok(match self {
            Measure::Connections => {
                let [rate, processor_us] = runs::connections(site, span)?;
                vec![("connections", rate), (report::PROCESSOR, processor_us)]
            }
            Measure::Packets => vec![("packets", packets(&site.network, span)?)],
            Measure::Latency => {
                let [p50, p99] = runs::latency(site, span)?;
                vec![("latency p50", p50), ("latency p99", p99)]
            }
            Measure::Memory => vec![],
        })
    }
}

impl ServiceArgs {
    fn pairs(&self) -> usize {
        if self.quick { 1 } else { self.pairs }
    }

    fn span(&self) -> Span {
        let milliseconds = if self.quick { 300 } else { 1000 };
        Span {
            warm_up: Duration::from_millis(300),
            window: Duration::from_millis(milliseconds),
        }
    }

    fn wants(&self, measure: Measure) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == measure.name())
    }

    fn contenders(&self) -> impl Iterator<Item = Contender> {
        let all = Contender::ALL.into_iter();
        all.filter(|one| self.contender.is_empty() || self.contender.contains(one))
    }
}

/// The whole comparison.
pub fn compare(args: &ServiceArgs) -> Result<()> {
    ensure!(args.pairs() > 0, "--pairs 0: at least one is needed");
    let (daemon, span) = (site::daemon()?, args.span());
    let conntrack = Conntrack::enlarge()?;
    raise_files()?;
    let mut samples = Samples::default();
    if args.wants(Measure::Memory) {
        let level = memory::settled()?;
        for contender in args
            .contenders()
            .filter(|&one| Measure::Memory.concerns(one))
        {
            eprintln!("memory: {}", contender.label());
            samples.add(contender, runs::memory(contender, &daemon, span)?);
            memory::wait_for_return_to(level)?;
        }
    }
    let sites: Result<Vec<_>> = args
        .contenders()
        .map(|one| Site::build(one, &daemon))
        .collect();
    let mut sites = sites?;
    for turn in 0..args.pairs() {
        for measure in MEASURES.into_iter().filter(|&measure| args.wants(measure)) {
            for site in sites.iter().filter(|site| measure.concerns(site.contender)) {
                eprint!(
                    "\r{}/{} {}: {:<20}",
                    turn + 1,
                    args.pairs(),
                    measure.name(),
                    site.contender.label()
                );
                samples.add(site.contender, measure.run(site, span)?);
            }
        }
        sites.rotate_left(1);
    }
    eprintln!();
    drop(sites);
    let report = Report::new(samples, args.pairs(), span, conntrack);
    println!("{}", report.table());
    if args.pairs() < FEWEST_PAIRS {
        println!("An interval of 95 % takes {FEWEST_PAIRS} pairs.");
    }
    crate::report::write_json(&args.output, &report)?;
    println!("written to {}", args.output.display());
    Ok(())
}

/// Connections that are held need two files each, here and in a proxy.
fn raise_files() -> Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).context("opening as many files as are allowed")
}
