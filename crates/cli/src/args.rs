//! Every flag, defined once.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

use anabranch_api::paths::DEFAULT_INSTANCE;
use anabranch_config::did_you_mean;
use anabranch_core::algorithm::{self, UnknownAlgorithm};
use anabranch_core::catalogue::{self, Target};
use anabranch_core::{Algorithm, Typed};
use anabranch_experiment::Seeds;
use anabranch_scenario::{Families, World};
use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;

use crate::log::Verbosity;

/// Sends each flow by one of several internet links and measures which links deserve it
#[derive(Debug, Parser)]
#[command(name = "anabranch", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Args {
    /// Which daemon, where a machine runs several
    #[arg(long, global = true, value_name = "NAME", default_value = DEFAULT_INSTANCE)]
    pub instance: String,
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "Examples:
  anabranch demo                                 three links, real traffic, and one is cut
  anabranch check --config /etc/anabranch.toml   is it right, and this host as it says?
  anabranch run --config /etc/anabranch.toml     run the gateway
  anabranch reload                               after a change of its configuration
  anabranch status                               links, rates, flows, dropped packets
  anabranch sim run scenarios/demo.toml          a scenario in virtual time
  anabranch lab neighbours                       beside DHCP clients, VPN, containers: is a flow lost?
  anabranch experiment list                      published claims that can be run

Exit codes: 0 done, 1 failed, 2 the input has to change; nothing was done then, 130 interrupted.";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the gateway in the foreground
    ///
    /// SIGHUP reads the configuration again without losing a packet. SIGTERM and SIGINT restore the host as it was. A
    /// daemon that is killed leaves the packets flowing; the next one takes the flows over.
    #[command(after_help = "Examples:
  anabranch run --config /etc/anabranch.toml
  anabranch run --config /etc/anabranch.toml --log info,anabranch_daemon::probe=debug
  kill -HUP $(pidof anabranch)                   read the configuration again, as `anabranch reload` does")]
    Run {
        /// TOML file with the LAN devices and the links
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// How much is told: off, error, warn, info, debug or trace, or PART=LEVEL with commas between
        ///
        /// Left out, ANABRANCH_LOG says so, then RUST_LOG; else it is info. Under systemd each line has its priority
        /// and no time of its own.
        #[arg(long, value_name = "LEVEL", value_parser = Verbosity::parse)]
        log: Option<Verbosity>,
    },
    /// Have the daemon read its configuration again, without losing a packet
    ///
    /// Fails with exit code 2 if the file is refused: then nothing has changed.
    Reload,
    /// Stop the daemon and put the host back as it was
    #[command(after_help = "Examples:
  anabranch stop
  anabranch stop --config /etc/anabranch.toml    but stay online if that file would be refused")]
    Stop {
        /// Leave the programs forwarding, without a daemon, if `check` refuses this file
        ///
        /// So a restart with a mistake takes nobody offline: the next start takes the flows over. Without a daemon that
        /// is done already.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Unit of systemd that is being stopped: the file matters if it is restarted, not if it is stopped for good
        #[arg(long, value_name = "NAME", requires = "config")]
        unit: Option<String>,
    },
    /// Check a configuration, and the host against it; change nothing
    #[command(after_help = "Examples:
  anabranch check --config /etc/anabranch.toml
  anabranch check --config new.toml --offline    on another machine than the gateway
  anabranch check --config new.toml --explain flows.txt

A line of flows.txt is a flow, and may say which rule is to take it; # begins a comment:
  tcp 192.168.1.20 > 203.0.113.7:443 = video
  udp 192.168.1.20:5060 > 203.0.113.9:5060 dscp ef device eth0 at \"mon 09:00\" = voice
  icmp self > 192.0.2.1 = default")]
    Check {
        /// TOML file with the LAN devices and the links
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Do not look at this host: kernel, privilege, devices, addresses
        #[arg(long)]
        offline: bool,
        /// Tell of each flow in this file which rule takes it, and why not those before; looks at no host
        ///
        /// Fails if one is taken by another rule than the line says.
        #[arg(long, value_name = "FILE")]
        explain: Option<PathBuf>,
    },
    /// Show links, rates, flows and what became of packets
    #[command(after_help = "Examples:
  anabranch status
  anabranch status --json | jq '.links[] | {name, state, flows}'
  anabranch status --check --quiet               for monitoring: exit code 1, and a line per problem
  anabranch status --check --json | jq '.[] | select(.fails)'")]
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Tell what is wrong, a line each, and fail if there is anything
        ///
        /// A link is wrong that is down, absent or has no address or gateway; that lost 3 probes and one of 20 (5 %) in the
        /// last minute; or that went down 3 times in the last hour. Standby links count, too. What was ordered, and links
        /// with `alert = false`, are noted and no failure.
        #[arg(long)]
        check: bool,
        /// With --check: print nothing but what is wrong
        #[arg(long, requires = "check")]
        quiet: bool,
    },
    /// Show the flows and the links that carry them
    Flows(FlowsArgs),
    /// Show the places that flows go to, and how fast each link's flows were answered there
    ///
    /// Known where a policy learns it from flows: `passive`, or that key of a tuple.
    Prefixes(PrefixesArgs),
    /// Ask the loaded program which link a new flow would take, and why
    ///
    /// The program in the kernel answers, from its present state. Nothing is bound, counted or sent.
    Explain(ExplainArgs),
    /// Take a link out of use, or back in
    ///
    /// Orders outlive the daemon, until the next boot.
    #[command(after_help = "Examples:
  anabranch link drain lte                       before its data plan runs out
  anabranch link down lte                        before its modem is unplugged
  anabranch link up lte")]
    Link {
        action: LinkAction,
        /// The link's name in the configuration
        name: String,
        /// Even if no other link works: new flows are refused then
        #[arg(long)]
        force: bool,
    },
    /// List the policies of gateways and trunks, what they need and what they cost
    ///
    /// Of one policy a page: what it measures, where and how often, what that costs, which sites it suits, and what the experiments
    /// have observed of it.
    #[command(after_help = "Examples:
  anabranch policies
  anabranch policies WSDM                        all that is known of one
  anabranch policies --json | jq '.[] | select(.cost.probes == \"none\").name'
  anabranch policies --json | jq -r '.[].name'

Those of links are for `policy` of a gateway, those of sublinks for `scheme` of a trunk; scenarios name either.
In place of a link's policy the tuple itself may be written, and be given a name:
  policy = { name = \"mine\", measure = \"st-in\", dispatch = \"weighted\", granularity = \"session\", period = \"500ms\" }")]
    Policies {
        /// Policy whose page is printed
        #[arg(value_name = "NAME", value_parser = hinted(policies), hide_possible_values = true)]
        name: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run the gateway between real clients and a real web server, and cut a link in the middle
    ///
    /// Everything happens in network namespaces and goes away afterwards; the host itself is not touched.
    Demo(DemoArgs),
    /// Run scenarios in the simulator, in virtual time
    Sim {
        #[command(subcommand)]
        command: SimCommand,
    },
    /// Run scenarios in the laboratory, on this machine's kernel
    ///
    /// Everything happens in network namespaces and goes away afterwards; the host itself is not touched.
    Lab {
        #[command(subcommand)]
        command: LabCommand,
    },
    /// Run what a paper measured, and hold it against what the paper says
    Experiment {
        #[command(subcommand)]
        command: ExperimentCommand,
    },
    /// Print a completion script for a shell
    #[command(after_help = "Examples:
  anabranch completions bash > /usr/share/bash-completion/completions/anabranch
  anabranch completions zsh > /usr/share/zsh/site-functions/_anabranch")]
    Completions { shell: Shell },
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  anabranch flows
  anabranch flows --link lte --proto udp
  anabranch flows --json | jq '.flows | group_by(.link)[] | {link: .[0].link, flows: length}'")]
pub struct FlowsArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Only flows on this link
    #[arg(long, value_name = "NAME")]
    pub link: Option<String>,
    /// Only flows of this class: the name of a rule, or default
    #[arg(long, value_name = "NAME")]
    pub class: Option<String>,
    /// Only flows of this protocol
    #[arg(long)]
    pub proto: Option<FlowProto>,
    /// Show at most so many
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub limit: usize,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  anabranch prefixes
  anabranch prefixes --json | jq '.prefixes[] | {prefix, fastest: (.paths | min_by(.response_ms).link)}'")]
pub struct PrefixesArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Show at most so many prefixes
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub limit: usize,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  anabranch explain --from 192.168.1.20 --to 93.184.216.34:443
  anabranch explain --from 192.168.1.20:5060 --to 203.0.113.7:5060 --proto udp --json
  anabranch explain --from fd00::20 --to [2001:db8::7]:443")]
pub struct ExplainArgs {
    /// LAN host; without a port, one of those that clients take
    #[arg(long, value_name = "A[:P]", value_parser = source)]
    pub from: SocketAddr,
    /// Destination
    #[arg(long, value_name = "B:P", value_parser = destination)]
    pub to: SocketAddr,
    /// Transport
    #[arg(long, default_value = "tcp")]
    pub proto: ExplainProto,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Run a scenario file: every policy, seed and point of its sweep
    ///
    /// The same file gives the same bytes of result. What is complete under --out is not run again.
    #[command(after_help = "Examples:
  anabranch sim run scenarios/demo.toml
  anabranch sim run house.toml --policy WSDM --policy RR --seed 1 --seed 2 --out results")]
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

#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Run a scenario file: every policy, seed and point of its sweep, one after the other
    ///
    /// The gateway is this executable, the links are emulated, TCP is the kernel's. What is complete under --out is not
    /// run again. A run that the machine was too slow for is invalid.
    #[command(after_help = "Examples:
  sudo anabranch lab run scenarios/demo.toml
  sudo anabranch lab run house.toml --policy WSDM --policy RR --out results")]
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
  sudo anabranch lab attack                              every attack, both gateways, all round trips
  sudo anabranch lab attack syn --quick
  sudo anabranch lab attack fragments --family 6 --subject anabranch
  sudo anabranch lab attack udp --subject anabranch --rtt 100 --rate 50000 --verbose
  sudo anabranch lab attack --json attacks.json && jq '.rows[] | select(.flows_lost > 0)' attacks.json")]
    Attack(AttackArgs),
    /// Run the gateway beside DHCP clients and other programs while links fail and leases change
    ///
    /// One box in namespaces, with real programs. Things happen in an order drawn from the seed; flows of everybody are kept
    /// open and new ones opened all the time. Exits with 1 if a flow ends whose link did not fail, or a new one fails later
    /// than two seconds after a failure. docs/lab-neighbours.md tells more.
    #[command(after_help = "Examples:
  sudo anabranch lab neighbours
  sudo anabranch lab neighbours --seconds 120 --seed 7
  sudo anabranch lab neighbours --seconds 60 --only 'default route' --only carrier
  sudo anabranch lab neighbours --json soak.json; jq '.losses' soak.json")]
    Neighbours(NeighboursArgs),
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
    #[arg(long, default_value = "both")]
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
    /// Masquerading by nftables
    Nftables,
    Both,
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
  anabranch experiment list
  anabranch experiment list --json | jq -r '.[].name'")]
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
  anabranch experiment run 2002-jo-multilink --quick
  anabranch experiment run 2002-jo-multilink/fig9 --seeds 2001..2240 --windows 12
  anabranch experiment run 2004-guo-multihoming/fig9 --out fig9
  sudo anabranch experiment run validation/lab")]
    Run(ExperimentArgs),
    /// Judge the claims in deliberately broken worlds, where they must fail
    ///
    /// Prints which claim fails (x) under which mutation, in the simulator. Exits with 1 if a claim that expected.toml calls
    /// reproduced or partly so holds under a mutation that it names in fails_under, or under all of them.
    #[command(after_help = "Examples:
  anabranch experiment mutate 2002-jo-multilink/fig9
  anabranch experiment mutate 2004-guo-multihoming --json | jq '.rows[] | select(.fails | any | not)'")]
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
  anabranch experiment run validation --out once
  anabranch experiment run validation --seeds 2001..2240 --windows 12 --out windows
  anabranch experiment readme validation once windows")]
    Readme {
        /// Experiment of `anabranch experiment list`
        #[arg(value_name = "NAME", value_parser = hinted(experiments), hide_possible_values = true)]
        name: String,
        /// Directories of results of `anabranch experiment run`; without them the table is that of summary.json
        #[arg(value_name = "RESULTS", value_hint = ValueHint::DirPath)]
        results: Vec<PathBuf>,
        /// The experiment's folder; experiments/NAME if left out
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        files: Option<PathBuf>,
    },
    /// Write docs/choosing-a-policy.md of the checkout that this is called in
    ///
    /// From experiments/guide.toml there and the READMEs of the experiments, which are built in.
    #[command(after_help = "Examples:
  cargo run --locked --bin anabranch -- experiment guide")]
    Guide,
    /// Write an experiment's files, to be changed and run with --files
    #[command(after_help = "Examples:
  anabranch experiment export 2002-jo-multilink
  anabranch experiment export 2002-jo-multilink jo && anabranch experiment run 2002-jo-multilink --files jo")]
    Export {
        /// Experiment of `anabranch experiment list`
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
    /// Experiment, or experiment/figure, of `anabranch experiment list`
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

/// Any word, of which completions offer these. Whether it is right is judged where it is used.
fn hinted(names: fn() -> Vec<String>) -> impl TypedValueParser<Value = String> {
    Hinted(names)
}

#[derive(Clone)]
struct Hinted(fn() -> Vec<String>);

impl TypedValueParser for Hinted {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.0)().into_iter().map(PossibleValue::new)))
    }
}

/// What a scenario may name.
fn policies() -> Vec<String> {
    catalogue::rows().map(|row| row.name.to_owned()).collect()
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
  sudo anabranch demo
  sudo anabranch demo --family 6
  sudo anabranch demo --policy RR --json rr.json")]
pub struct DemoArgs {
    /// How long traffic flows
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u16).range(10..=3600))]
    pub seconds: u16,
    /// One of `anabranch policies`, or a tuple: '{ measure = "active", dispatch = "weighted" }'
    #[arg(long, value_name = "NAME", default_value = catalogue::default(Target::Link).name, value_parser = gateway_policy)]
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

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LinkAction {
    /// No new flows; the present ones live on
    Drain,
    /// Back in use
    Up,
    /// No flows at all: its flows end as soon as another link can take them
    Down,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FlowProto {
    Tcp,
    Udp,
    Icmp,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ExplainProto {
    Tcp,
    Udp,
}

/// Stands for the port that a client would take: the first of the range that IANA set aside for that (RFC 6335 §6).
pub const CLIENT_PORT: u16 = 49152;

fn gateway_policy(text: &str) -> Result<Typed<Algorithm>, String> {
    if let Some(tuple) =
        anabranch_scenario::inline_policy(text).map_err(|error| error.to_string())?
    {
        return Ok(tuple);
    }
    let named: Result<Algorithm, UnknownAlgorithm> = text.parse();
    named
        .map(Typed::from)
        .map_err(|error| format!("{error}{}", did_you_mean(text, algorithm::names())))
}

fn jobs(text: &str) -> Result<NonZeroUsize, String> {
    text.parse()
        .map_err(|_| "a number of runs at a time, 1 or more".to_owned())
}

fn source(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(SocketAddr::from((address, CLIENT_PORT))),
        Err(_) => endpoint(text, "192.168.1.20, 192.168.1.20:50000 or [fd00::20]:50000"),
    }
}

fn destination(text: &str) -> Result<SocketAddr, String> {
    endpoint(text, "203.0.113.7:443 or [2001:db8::7]:443")
}

fn endpoint(text: &str, like: &str) -> Result<SocketAddr, String> {
    match SocketAddr::from_str(text) {
        Ok(endpoint) if endpoint.port() > 0 => Ok(endpoint),
        _ => Err(format!("write an address and a port, like {like}")),
    }
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
    fn a_source_may_leave_the_port_out_and_a_destination_may_not() {
        let Command::Explain(args) =
            parse("anabranch explain --from 10.0.0.2 --to 1.1.1.1:53 --proto udp")
                .unwrap()
                .command
        else {
            panic!("not explain")
        };
        assert_eq!((args.from.port(), args.to.port()), (CLIENT_PORT, 53));
        for line in [
            "anabranch explain --from fd00::2 --to [2001:db8::1]:53",
            "anabranch explain --from [fd00::2]:5060 --to [2001:db8::1]:53",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
        for line in [
            "anabranch explain --from 10.0.0.2 --to 1.1.1.1",
            "anabranch explain --from 10.0.0.2:0 --to 1.1.1.1:53",
            "anabranch explain --from fd00::2 --to 2001:db8::1",
            "anabranch explain --from localhost --to 1.1.1.1:53",
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(
                error.contains("write an address and a port, like "),
                "{line}: {error}"
            );
        }
    }

    #[test]
    fn an_unknown_policy_is_told_what_is_allowed() {
        let error = parse("anabranch demo --policy fastest")
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
            let parsed = Args::try_parse_from(["anabranch", "demo", "--policy", tuple]);
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
    fn an_instance_may_be_named_before_and_after_the_subcommand() {
        for line in [
            "anabranch --instance b status",
            "anabranch status --instance b",
        ] {
            assert_eq!(parse(line).unwrap().instance, "b");
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
