//! Every flag, defined once.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anabranch_config::did_you_mean;
use anabranch_console::args::hinted;
use anabranch_core::catalogue::{self, TargetKind, UnknownAlgorithm};
use anabranch_core::{Algorithm, Typed};
use anabranch_experiment::Seeds;
use anabranch_scenario::{Families, World};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;

use crate::PROGRAM;

/// Tries out what `anabranch` does: demo, simulator, laboratory, experiments
#[derive(Debug, Parser)]
#[command(name = PROGRAM, version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "Examples:
  sudo anabranch-lab demo                      three links, real traffic, and one is cut
  anabranch-lab sim run scenarios/demo.toml    a scenario in virtual time
  sudo anabranch-lab run scenarios/demo.toml   the same on this machine's kernel
  sudo anabranch-lab neighbours                beside DHCP clients, VPN, containers: is a flow lost?
  anabranch-lab experiment list                published claims that can be run

The gateway under test is the executable `anabranch` beside this one, or else on PATH.
Exit codes: 0 done, 1 failed, 2 the input has to change; nothing was done then, 130 interrupted.";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the gateway between real clients and a real web server, and cut a link in the middle
    ///
    /// Everything happens in network namespaces and goes away afterwards; the host itself is not touched.
    Demo(DemoArgs),
    /// Run scenarios in the simulator, in virtual time
    Sim {
        #[command(subcommand)]
        command: SimCommand,
    },
    /// Run a scenario file in the laboratory, on this machine's kernel: every policy, seed and point of its sweep
    ///
    /// Everything happens in network namespaces and goes away afterwards; the host itself is not touched. One run after the other:
    /// the gateway is the executable `anabranch`, the links are emulated, TCP is the kernel's. What is complete under --out is not
    /// run again. A run that the machine was too slow for is invalid.
    #[command(after_help = "Examples:
  sudo anabranch-lab run scenarios/demo.toml
  sudo anabranch-lab run house.toml --policy WSDM --policy RR --out results")]
    Run {
        #[command(flatten)]
        trials: TrialArgs,
    },
    /// Flood a gateway, and tell what innocent hosts beside the attacker lose
    ///
    /// Each attack is a flood of small frames made in the kernel, from a host on the LAN or from outside. Beside it an
    /// innocent host keeps 1000 connections, opens 80 more, asks 100 questions over UDP, and the gateway pings the
    /// internet. Exits with 1 if Anabranch loses any of that; rows in which this machine's own queues lost packets are
    /// called invalid and do not count. docs/attacks.md tells more.
    #[command(after_help = "Examples:
  sudo anabranch-lab attack                              every attack, all gateways, all round trips
  sudo anabranch-lab attack syn --quick
  sudo anabranch-lab attack fragments --family 6 --subject anabranch
  sudo anabranch-lab attack udp --subject anabranch --rtt 100 --rate 50000 --verbose
  sudo anabranch-lab attack --json attacks.json && jq '.rows[] | select(.flows_lost > 0)' attacks.json")]
    Attack(AttackArgs),
    /// Run the gateway beside DHCP clients and other programs while links fail and leases change
    ///
    /// One box in namespaces, with real programs. Things happen in an order drawn from the seed; flows of everybody are kept
    /// open and new ones opened all the time. Exits with 1 if a flow ends whose link did not fail, or a new one fails later
    /// than two seconds after a failure. docs/lab-neighbours.md tells more.
    #[command(after_help = "Examples:
  sudo anabranch-lab neighbours
  sudo anabranch-lab neighbours --seconds 120 --seed 7
  sudo anabranch-lab neighbours --seconds 60 --only 'default route' --only carrier
  sudo anabranch-lab neighbours --json soak.json; jq '.losses' soak.json")]
    Neighbours(NeighboursArgs),
    /// Run what a paper measured, and hold it against what the paper says
    Experiment {
        #[command(subcommand)]
        command: ExperimentCommand,
    },
    /// List all policies and peers, what they need and what they cost
    ///
    /// As `anabranch policies` does, with the peers that scenarios put in the gateway's place.
    #[command(after_help = "Examples:
  anabranch-lab policies
  anabranch-lab policies ECMP                    all that is known of one")]
    Policies {
        /// Policy whose page is printed
        #[arg(value_name = "NAME", value_parser = hinted(policies), hide_possible_values = true)]
        name: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a completion script for a shell
    #[command(after_help = "Examples:
  anabranch-lab completions bash > /usr/share/bash-completion/completions/anabranch-lab
  anabranch-lab completions zsh > /usr/share/zsh/site-functions/_anabranch-lab")]
    Completions { shell: Shell },
}

#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Run a scenario file: every policy, seed and point of its sweep
    ///
    /// The same file gives the same bytes of result. What is complete under --out is not run again.
    #[command(after_help = "Examples:
  anabranch-lab sim run scenarios/demo.toml
  anabranch-lab sim run house.toml --policy WSDM --policy RR --seed 1 --seed 2 --out results")]
    Run {
        #[command(flatten)]
        trials: TrialArgs,
        /// Runs at a time; as many as there are processors if left out
        #[arg(long, value_name = "N", value_parser = jobs)]
        jobs: Option<NonZeroUsize>,
        /// Run twice whatever is run, not only the first, and call invalid what differs
        #[arg(long)]
        twice: bool,
    },
}

#[derive(Debug, clap::Args)]
pub struct NeighboursArgs {
    /// How long things happen
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u32).range(10..=86_400))]
    pub seconds: u32,
    /// Draws the order of events; printed if left out
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Only events with these words; may be given several times
    #[arg(long, value_name = "WORDS")]
    pub only: Vec<String>,
    /// Also write events, table and losses to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct AttackArgs {
    /// Only this attack; all of them if left out
    #[arg(value_name = "NAME", value_parser = hinted(attacks))]
    pub name: Option<String>,
    /// Whom to attack
    #[arg(long, default_value = "all")]
    pub subject: AttackSubject,
    /// Address family of everybody; of both, each attack is made twice
    #[arg(long, value_name = "4|6|both", default_value_t)]
    pub family: Families,
    /// Round trip of the innocents' packets in ms; may be given several times [default: 0, 100 and 800]
    #[arg(long = "rtt", value_name = "MS", value_parser = clap::value_parser!(u16).range(0..=5000))]
    pub rtts_ms: Vec<u16>,
    /// Packets per second to send, as far as this machine can
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    pub rate: u32,
    /// Length of each attack at least; it goes on until the last connection is made or given up [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=600))]
    pub seconds: Option<u16>,
    /// One round trip (100 ms) and 5 seconds each, where nothing else is asked for
    #[arg(long)]
    pub quick: bool,
    /// Also write the rows to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Print under each row how packets left the gateway's programs
    #[arg(long)]
    pub verbose: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AttackSubject {
    Anabranch,
    /// Masquerading by nftables, or DNAT to servers
    Nftables,
    /// In front of a service
    Haproxy,
    All,
}

/// What to run of a scenario file, and where its results go.
#[derive(Debug, clap::Args)]
pub struct TrialArgs {
    /// TOML file with links, faults, workload, policies and seeds
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// This policy or tuple in place of the file's; may be given several times
    #[arg(long = "policy", value_name = "NAME", value_parser = hinted(policies), hide_possible_values = true)]
    pub policies: Vec<String>,
    /// This seed in place of the file's; may be given several times
    #[arg(long = "seed", value_name = "N")]
    pub seeds: Vec<u64>,
    /// Directory of the results, one directory per run
    #[arg(long, value_name = "DIR", default_value = "anabranch-results", value_hint = ValueHint::DirPath)]
    pub out: PathBuf,
    /// Write transfers as CSV in place of Parquet
    #[arg(long)]
    pub csv: bool,
    /// Write every plot as PNG too, beside the SVG
    #[arg(long)]
    pub png: bool,
}

#[derive(Debug, Subcommand)]
pub enum ExperimentCommand {
    /// List the experiments and their figures
    #[command(after_help = "Examples:
  anabranch-lab experiment list
  anabranch-lab experiment list --json | jq -r '.[].name'")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run an experiment, or one figure of it, and judge its claims
    ///
    /// Writes plots, summary.json and report.html, in place of those of an earlier experiment there. Exits with 1 if a claim turns out
    /// otherwise than the experiment's expected.toml states. What is simulated with the first seed is simulated twice: if
    /// it is another the second time, summary.json says so and the exit code is 1 too. Runs in the laboratory are kept
    /// under --out and not run again by the same build.
    #[command(after_help = "Examples:
  anabranch-lab experiment run 2002-jo-multilink --quick
  anabranch-lab experiment run 2002-jo-multilink/fig9 --seeds 2001..2240 --windows 12
  anabranch-lab experiment run 2004-guo-multihoming/fig9 --out fig9
  sudo anabranch-lab experiment run validation/lab")]
    Run(ExperimentArgs),
    /// Judge the claims in deliberately broken worlds, where they must fail
    ///
    /// Prints which claim fails (x) under which mutation, in the simulator. Exits with 1 if a claim that expected.toml calls
    /// reproduced or partly so holds under a mutation that it names in fails_under, or under all of them.
    #[command(after_help = "Examples:
  anabranch-lab experiment mutate 2002-jo-multilink/fig9
  anabranch-lab experiment mutate 2004-guo-multihoming --json | jq '.rows[] | select(.fails | any | not)'")]
    Mutate {
        #[command(flatten)]
        claims: ClaimArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write what runs came to into the README of an experiment's folder
    ///
    /// The table between two comments of the README, and summary.json beside it, which has what the table shows. Of each
    /// claim the first run shows what was observed, a run with --windows in how many it held.
    #[command(after_help = "Examples:
  anabranch-lab experiment run validation --out once
  anabranch-lab experiment run validation --seeds 2001..2240 --windows 12 --out windows
  anabranch-lab experiment readme validation once windows")]
    Readme {
        /// Experiment of `anabranch-lab experiment list`
        #[arg(value_name = "NAME", value_parser = hinted(experiments), hide_possible_values = true)]
        name: String,
        /// Directories of results of `anabranch-lab experiment run`; without them the table is that of summary.json
        #[arg(value_name = "RESULTS", value_hint = ValueHint::DirPath)]
        results: Vec<PathBuf>,
        /// The experiment's folder; experiments/NAME if left out
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        files: Option<PathBuf>,
    },
    /// Write docs/choosing-a-policy.md and experiments/observed.tsv of the checkout that this is called in
    ///
    /// From experiments/guide.toml there and the READMEs of the experiments, which are built in.
    #[command(after_help = "Examples:
  cargo run --locked --bin anabranch-lab -- experiment guide")]
    Guide,
    /// Write an experiment's files, to be changed and run with --files
    #[command(after_help = "Examples:
  anabranch-lab experiment export 2002-jo-multilink
  anabranch-lab experiment export 2002-jo-multilink jo && anabranch-lab experiment run 2002-jo-multilink --files jo")]
    Export {
        /// Experiment of `anabranch-lab experiment list`
        #[arg(value_name = "NAME", value_parser = hinted(experiments), hide_possible_values = true)]
        name: String,
        /// New folder; the experiment's name if left out
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        directory: Option<PathBuf>,
    },
}

/// Which claims are judged, and on what.
#[derive(Debug, clap::Args)]
pub struct ClaimArgs {
    /// Experiment, or experiment/figure, of `anabranch-lab experiment list`
    #[arg(value_name = "NAME[/FIGURE]", value_parser = hinted(figures), hide_possible_values = true)]
    pub name: String,
    /// These seeds, the last included, in place of those that expected.toml judges
    #[arg(long, value_name = "FIRST..LAST")]
    pub seeds: Option<Seeds>,
    /// Runs at a time in the simulator; as many as there are processors if left out
    #[arg(long, value_name = "N", value_parser = jobs)]
    pub jobs: Option<NonZeroUsize>,
    /// Fewer seeds or shorter runs; a claim whose interval crosses its border is left open
    #[arg(long)]
    pub quick: bool,
    /// Folder whose scenario files and expected.toml stand in for the built-in ones
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub files: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct ExperimentArgs {
    #[command(flatten)]
    pub claims: ClaimArgs,
    /// Where to run it; in the simulator if left out, or where it can be run
    #[arg(long, value_parser = world())]
    pub world: Option<World>,
    /// Cut the seeds into so many windows of equal size, judge every claim in each, and tell in how many it held
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true)]
    pub windows: u64,
    /// Directory of plots, summary.json and report.html
    #[arg(long, value_name = "DIR", default_value = "anabranch-experiment", value_hint = ValueHint::DirPath)]
    pub out: PathBuf,
    /// Write the plots of the figures as PNG too, beside the SVG
    #[arg(long)]
    pub png: bool,
}

fn world() -> impl TypedValueParser<Value = World> {
    let value = |world: World| {
        PossibleValue::new(world.name()).help(match world {
            World::Sim => "The simulator",
            World::Lab => "Network namespaces on this machine's kernel",
        })
    };
    let named = |name: String| World::ALL.into_iter().find(|world| world.name() == name);
    PossibleValuesParser::new(World::ALL.map(value))
        .map(move |name| named(name).expect("a possible value is a world's name"))
}

fn attacks() -> Vec<String> {
    let attacks = anabranch_lab::attack::ATTACKS.iter();
    attacks.map(|attack| attack.name.to_owned()).collect()
}

fn experiments() -> Vec<String> {
    let all = anabranch_experiment::all().iter();
    all.map(|experiment| experiment.name.to_owned()).collect()
}

fn figures() -> Vec<String> {
    let mut names = Vec::new();
    for experiment in anabranch_experiment::all() {
        names.push(experiment.name.to_owned());
        let figures = experiment.figures.iter();
        names.extend(figures.map(|figure| format!("{}/{}", experiment.name, figure.id)));
    }
    names
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sudo anabranch-lab demo
  sudo anabranch-lab demo --family 6
  sudo anabranch-lab demo --policy RR --json rr.json")]
pub struct DemoArgs {
    /// How long traffic flows
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u16).range(10..=3600))]
    pub seconds: u16,
    /// One of `anabranch policies`, or a tuple: '{ measure = "active", dispatch = "weighted" }'
    #[arg(long, value_name = "NAME", default_value = catalogue::default(TargetKind::Link).name, value_parser = gateway_policy)]
    pub policy: Typed<Algorithm>,
    /// Address families of users, links and server; of both, each download takes one
    #[arg(long, value_name = "4|6|both", default_value_t)]
    pub family: Families,
    /// Also write the result to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Directory of the report, its plots and tables
    #[arg(long, value_name = "DIR", default_value = "anabranch-demo")]
    pub out: PathBuf,
}

/// Those that scenarios may name.
fn policies() -> Vec<String> {
    let pages = anabranch_scenario::pages().filter(|page| page.target.row().has_scenarios);
    pages.map(|page| page.name.to_owned()).collect()
}

fn gateway_policy(text: &str) -> Result<Typed<Algorithm>, String> {
    if let Some(tuple) =
        anabranch_scenario::inline_policy(text).map_err(|error| error.to_string())?
    {
        return Ok(tuple);
    }
    let named: Result<Algorithm, UnknownAlgorithm> = text.parse();
    named.map(Typed::from).map_err(|error| {
        format!(
            "{error}{}",
            did_you_mean(text, catalogue::names(TargetKind::Link))
        )
    })
}

fn jobs(text: &str) -> Result<NonZeroUsize, String> {
    text.parse()
        .map_err(|_| "a number of runs at a time, 1 or more".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_definitions_are_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn an_unknown_policy_is_told_what_is_allowed() {
        let error = parse("anabranch-lab demo --policy fastest")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("unknown policy `fastest`, allowed: WSDM, RR,"),
            "{error}"
        );
    }

    #[test]
    fn a_tuple_is_a_policy_however_it_is_spelled() {
        for tuple in [
            r#"{ measure = "active", dispatch = "weighted" }"#,
            r#"{dispatch='weighted',measure='active'}"#,
            "  {  measure=\"active\" , dispatch = 'weighted',period_ms=1 } ",
            r#"{ name = "mine", measure = "active", dispatch = "weighted" }"#,
        ] {
            let parsed = Args::try_parse_from(["anabranch-lab", "demo", "--policy", tuple]);
            let Ok(args) = parsed else {
                let error = parsed.unwrap_err().to_string();
                assert!(tuple.contains("period_ms"), "{error}");
                assert!(error.contains("write period = \"1ms\""), "{error}");
                continue;
            };
            let Command::Demo(args) = args.command else {
                panic!("not the demo")
            };
            assert_eq!(args.policy.policy, "LCF".parse().unwrap());
            let shown = if tuple.contains("mine") {
                "mine"
            } else {
                tuple
            };
            assert_eq!(args.policy.name, shown);
        }
    }

    #[test]
    fn every_subcommand_has_a_description_and_every_flag_a_help() {
        fn check(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for flag in command.get_opts() {
                assert!(flag.get_help().is_some(), "{} {flag}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        Args::command().get_subcommands().for_each(check);
    }
}
