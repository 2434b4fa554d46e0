//! Every flag, defined once.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use anabranch_api::paths::DEFAULT_INSTANCE;
use anabranch_console::args::hinted;
use anabranch_core::{ServerAt, catalogue};
use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::PROGRAM;
use crate::log::Verbosity;

/// Sends each flow by one of several internet links and measures which links deserve it
#[derive(Debug, Parser)]
#[command(name = PROGRAM, version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Args {
    /// Which daemon, where a machine runs several
    #[arg(long, global = true, value_name = "NAME", default_value = DEFAULT_INSTANCE)]
    pub instance: String,
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "Examples:
  anabranch check --config /etc/anabranch.toml   is it right, and this host as it says?
  anabranch run --config /etc/anabranch.toml     run the gateway
  anabranch reload                               after a change of its configuration
  anabranch status                               links, rates, flows, dropped packets

Exit codes: 0 done, 1 failed, 2 the input has to change; nothing was done then.
The demo, scenarios and experiments are commands of `anabranch-lab`.";

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
    /// Ask the loaded program which link a new flow would take, or which server a client would get, and why
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
    /// Show services and their servers, and take a server out of use, or back in
    #[command(subcommand)]
    Service(ServiceCommand),
    /// Look after a server that answers the clients of services itself
    #[command(subcommand)]
    Member(MemberCommand),
    /// List the policies of gateways, trunks and services, what they need and what they cost
    ///
    /// Of one policy a page: what it measures, where and how often, what that costs, which sites it suits, and what the experiments
    /// have observed of it.
    #[command(after_help = "Examples:
  anabranch policies
  anabranch policies WSDM                        all that is known of one
  anabranch policies --json | jq '.[] | select(.cost.probes == \"none\").name'
  anabranch policies --json | jq -r '.[].name'

Those of links are for `policy` of a gateway, those of sublinks for `scheme` of a trunk; scenarios name either, and peers
in the gateway's place, which `anabranch-lab policies` has, too.
In place of a link's policy the tuple itself may be written, and be given a name:
  policy = { name = \"mine\", measure = \"st-in\", dispatch = \"weighted\", granularity = \"session\", period = \"500ms\" }")]
    Policies {
        /// Policy whose page is printed
        #[arg(value_name = "NAME", value_parser = hinted(names), hide_possible_values = true)]
        name: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a completion script for a shell
    #[command(after_help = "Examples:
  anabranch completions bash > /usr/share/bash-completion/completions/anabranch
  anabranch completions zsh > /usr/share/zsh/site-functions/_anabranch")]
    Completions { shell: Shell },
}

#[derive(Debug, Subcommand)]
pub enum MemberCommand {
    /// Tell what keeps this server from being a member, a line each with what to do about it
    ///
    /// Looks at addresses, ARP, filters, routes and listening programs, with or without a daemon, and changes nothing. Exit code 1
    /// if anything is wrong.
    #[command(after_help = "Examples:
  anabranch member doctor
  anabranch member doctor --config new.toml --json")]
    Doctor {
        /// TOML file with `[member]`
        #[arg(long, value_name = "FILE", default_value = "/etc/anabranch.toml")]
        config: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
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
  anabranch explain --from fd00::20 --to [2001:db8::7]:443
  anabranch explain --service web 198.51.100.7:40000")]
pub struct ExplainArgs {
    /// LAN host; without a port, one of those that clients take
    #[arg(long, value_name = "A[:P]", value_parser = source, required_unless_present = "service")]
    pub from: Option<SocketAddr>,
    /// Destination; of a client of a service, which of its endpoints, or the first
    #[arg(long, value_name = "B:P", value_parser = destination, required_unless_present = "service")]
    pub to: Option<SocketAddr>,
    /// The service that a client calls
    #[arg(
        long,
        value_name = "NAME",
        requires = "client",
        conflicts_with = "from"
    )]
    pub service: Option<String>,
    /// The client of a service; without a port, one of those that clients take
    #[arg(value_name = "CLIENT[:P]", value_parser = source, requires = "service")]
    pub client: Option<SocketAddr>,
    /// Transport
    #[arg(long, default_value = "tcp")]
    pub proto: ExplainProto,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum ServiceCommand {
    /// All services, a line each
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// The servers of a service, and what their checks say
    #[command(after_help = "Examples:
  anabranch service show web
  anabranch service show web --json | jq '.servers[] | select(.usable | not)'")]
    Show {
        /// The service's name in the configuration
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Give a server no new connections; it keeps those that it has
    ///
    /// It stays so until `up`, whatever becomes of the daemon, until the next boot.
    #[command(after_help = "Examples:
  anabranch service drain web/10.0.0.11:80       before it is restarted
  anabranch service show web                     until its connections are over
  anabranch service up web/10.0.0.11:80")]
    Drain {
        /// Service, and where the server listens
        #[arg(value_name = "SERVICE/ADDRESS:PORT")]
        server: ServerName,
    },
    /// Put a drained server back in use
    Up {
        /// Service, and where the server listens
        #[arg(value_name = "SERVICE/ADDRESS:PORT")]
        server: ServerName,
    },
}

/// A server of a service: `SERVICE/ADDRESS:PORT`.
#[derive(Debug, Clone)]
pub struct ServerName {
    pub service: String,
    pub server: SocketAddr,
}

impl FromStr for ServerName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || -> Option<Self> {
            let (service, server) = text.split_once('/')?;
            Some(Self {
                service: service.to_owned(),
                server: server.parse::<ServerAt>().ok()?.0,
            })
        };
        read().ok_or(r#"write SERVICE/ADDRESS:PORT, like "web/10.0.0.11:80""#)
    }
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

fn names() -> Vec<String> {
    catalogue::rows().map(|row| row.name.to_owned()).collect()
}

/// Stands for the port that a client would take: the first of the range that IANA set aside for that (RFC 6335 §6).
pub const CLIENT_PORT: u16 = 49152;

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
    fn explain_is_about_a_flow_or_about_a_client_of_a_service() {
        for line in [
            "--service web 198.51.100.7",
            "--service web 198.51.100.7:5 --to 203.0.113.10:80",
        ] {
            assert!(
                parse(&format!("anabranch explain {line}")).is_ok(),
                "{line}"
            );
        }
        for line in [
            "",
            "198.51.100.7",
            "--service web",
            "--from 10.0.0.2 --service web 198.51.100.7",
            "--to 1.1.1.1:53 198.51.100.7",
        ] {
            assert!(
                parse(&format!("anabranch explain {line}")).is_err(),
                "{line}"
            );
        }
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
        let ports = [args.from, args.to].map(|end| end.map(|end| end.port()));
        assert_eq!(ports, [Some(CLIENT_PORT), Some(53)]);
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
