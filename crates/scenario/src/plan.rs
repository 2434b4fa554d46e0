//! What a scenario says, resolved: SI units, every default filled in, nothing left to parse.
//!
//! A [`Scenario`] is one world and everything to be tried in it. A [`Run`] is one of those trials: one policy, one seed,
//! one point of the sweep. Worlds (the simulator, the laboratory) take a `Run` and give back a [`Record`](crate::Record).

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use anabranch_core::multilink::{self, Spread};
use anabranch_core::rules::file::DEFAULT_CLASS;
use anabranch_core::rules::{Class, Rule};
use anabranch_core::{Kind, LinkSpec, Reach, TargetSpec, Typed};
use anabranch_line::{Change, Line, seconds};
use anabranch_workload::{ArrivalPlan, Direction, Workload};
use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::{Families, Hosts, LinkSeries, Policy};

/// One world, and the policies and seeds to be tried in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Of the file, unless it says otherwise.
    pub name: String,
    /// What the load crosses.
    pub network: Network,
    /// Of users, links and servers.
    pub families: Families,
    /// In the order of time.
    pub faults: Vec<Fault>,
    /// What the users ask for, and when.
    pub load: Load,
    /// At least one, none twice.
    pub policies: Vec<Typed<Policy>>,
    /// At least one, none twice.
    pub seeds: Vec<u64>,
    /// The run ends here even if the load has not.
    pub limit: Duration,
    /// Between two samples of every link.
    pub sample: Duration,
    /// A user gives a connection up that is silent for so long, from its SYN on.
    pub patience: Duration,
    /// Of all hosts.
    pub tcp: Tcp,
}

/// What stands between the users and the servers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// A gateway with several access links.
    Site(Site),
    /// Parallel sublinks between two nodes.
    Trunk(Box<Trunk>),
}

/// Users behind a gateway with several access links, and servers on the internet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Site {
    /// At least one, each with its own name.
    pub links: Vec<LinkPlan>,
    /// In the order of the file, about [`Site::USERS`] and [`Site::SERVERS`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// Of what no rule matches; its policy is the one that is tried.
    #[serde(skip_serializing_if = "says_nothing")]
    pub default: Box<Class>,
    /// Whom the gateway asks over each link. None: one resolver beyond all lines, and only while users say nothing of the link.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<Probe>,
    /// Servers that answer nothing, by their numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dead_servers: Vec<u32>,
}

/// Whom a gateway asks whether a link works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probe {
    /// A resolver on the internet.
    Dns,
    /// A host there, by a connection.
    Tcp,
    /// The same, by an echo request.
    Icmp,
    /// The link's gateway, by an echo request.
    Gateway,
}

impl Probe {
    /// As a gateway knows it.
    pub fn spec(self) -> TargetSpec {
        let (reach, kind) = match self {
            Probe::Dns => (Reach::Far, Kind::Dns),
            Probe::Tcp => (Reach::Far, Kind::Tcp),
            Probe::Icmp => (Reach::Far, Kind::Icmp),
            Probe::Gateway => (Reach::Near, Kind::Icmp),
        };
        TargetSpec { reach, kind }
    }
}

impl Site {
    /// Each user has the next address.
    pub const USERS: Hosts = Hosts {
        first: Ipv4Addr::new(10, 0, 0, 2),
        network: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0),
    };
    /// Each server has the next address.
    pub const SERVERS: Hosts = Hosts {
        first: Ipv4Addr::new(198, 18, 0, 1),
        network: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0),
    };
    /// Where every server listens, for TCP.
    pub const SERVER_PORT: u16 = 80;

    /// Without rules.
    pub fn new(links: Vec<LinkPlan>) -> Self {
        Site {
            links,
            rules: Vec::new(),
            default: Box::new(default_class()),
            probes: Vec::new(),
            dead_servers: Vec::new(),
        }
    }

    /// Whether anything is said of classes.
    pub fn has_classes(&self) -> bool {
        !(self.rules.is_empty() && says_nothing(&self.default))
    }

    /// Whether nothing stands in the way of a connection that changes its link: none has NAT.
    pub fn is_routed(&self) -> bool {
        self.links.iter().all(|link| !link.nat)
    }
}

/// One that says nothing.
fn default_class() -> Class {
    Class {
        name: DEFAULT_CLASS.to_owned(),
        ..Class::default()
    }
}

fn says_nothing(class: &Class) -> bool {
    *class == default_class()
}

/// An access link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkPlan {
    /// As in the file.
    pub name: String,
    /// The last mile, from the internet to the users.
    pub down: Line,
    /// The last mile, from the users to the internet.
    pub up: Line,
    /// A second hop between the provider and the servers, unseen by whoever watches the last mile.
    pub beyond: Option<Beyond>,
    /// What the gateway is told of the rates of the last mile.
    pub declared: Declared,
    /// As in the gateway's configuration.
    pub metered: bool,
    /// As in the gateway's configuration.
    pub weight: Option<u32>,
    /// Connections have the link's address, and cannot leave it. Without, the site's own addresses are reachable over the
    /// link: the internet sends to them over the first such link of the site, none of whose lines is cut.
    pub nat: bool,
}

/// What a gateway is told of the rates of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Declared {
    /// Those that the lines have, or none.
    Actual(bool),
    /// These, whatever the lines have.
    Rates {
        /// From the internet to the users.
        down_bps: u64,
        /// From the users to the internet.
        up_bps: u64,
    },
}

impl LinkPlan {
    /// The name of the line that a fault beyond this link is about: that of the link, or what links share.
    pub fn beyond_name(&self) -> &str {
        let shared = self.beyond.as_ref().and_then(|hop| hop.shared.as_deref());
        shared.unwrap_or(&self.name)
    }

    /// The rates that the gateway is told, down and up.
    pub fn declared_bps(&self) -> [Option<u64>; 2] {
        match self.declared {
            Declared::Actual(false) => [None; 2],
            Declared::Actual(true) => [&self.down, &self.up].map(|line| Some(line.rate_bps)),
            Declared::Rates { down_bps, up_bps } => [down_bps, up_bps].map(Some),
        }
    }

    /// What the gateway is told of it.
    pub fn spec(&self) -> LinkSpec {
        let [down_bps, up_bps] = self.declared_bps();
        LinkSpec {
            name: self.name.clone(),
            rate_up_bps: up_bps,
            rate_down_bps: down_bps,
            weight: self.weight,
            metered: self.metered,
            routed: !self.nat,
            ..LinkSpec::default()
        }
    }
}

/// The hop behind the provider.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Beyond {
    /// Its name, if links share it: all that have this name have this one hop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<String>,
    /// From the internet to the users.
    pub down: Line,
    /// From the users to the internet.
    pub up: Line,
}

/// Clients on one side, servers on the other, and between them one logical link made of parallel sublinks.
///
/// The servers' side sends over the sublinks. What the clients send takes `back`, a line of its own that is not spread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trunk {
    /// 1 to 16.
    pub sublinks: Vec<Line>,
    /// The undivided link that [`Spread::Single`] uses in place of the sublinks.
    pub single: Line,
    /// What the clients' side sends over.
    pub back: Line,
    /// Between every client and its end of the trunk; the same in both directions.
    pub access: Line,
    /// Between every server and its end of the trunk; the same in both directions.
    pub server_access: Line,
    /// Transfers of user `u` go to client `u mod clients`.
    pub clients: u32,
    /// What is asked of server `s` is served by server `s mod servers`.
    pub servers: u32,
    /// Of DH and DHFV.
    #[serde(with = "Parameters")]
    pub control: multilink::Parameters,
}

/// The keys of [`multilink::Parameters`] in results.
#[derive(Serialize)]
#[serde(remote = "multilink::Parameters")]
struct Parameters {
    #[serde(rename = "check_period_s", serialize_with = "seconds")]
    check_period: Duration,
    overload_percent: u8,
    shrink_percent: u8,
    moved_percent: u8,
    #[serde(rename = "slot_s", serialize_with = "seconds")]
    slot: Duration,
    slots: usize,
    bin: multilink::BinChoice,
    target: multilink::Recipient,
}

fn perhaps_seconds<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

/// Something that happens to a line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fault {
    /// Since the beginning of the run.
    #[serde(rename = "at_s", serialize_with = "seconds")]
    pub at: Duration,
    /// A link of the site by its name, or a sublink of the trunk by its number from 0.
    pub link: String,
    /// Which hop of the link.
    pub place: Place,
    /// `None` for both.
    pub direction: Option<Direction>,
    /// What becomes of the line.
    pub change: Change,
}

/// Which hop of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Between gateway and provider.
    LastMile,
    /// Behind the provider.
    Beyond,
}

/// What the users ask for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// Rounds of files, each round after the last: closed loop. Its seed is that of the run, see [`Run::load`].
    Pages(Workload),
    /// Transfers that begin when they begin: open loop. Its seed is that of the run as well.
    Arrivals(ArrivalPlan),
    /// Users of several kinds, numbered one group after the other.
    Groups(Vec<Group>),
}

impl Load {
    /// All of them.
    pub fn users(&self) -> u32 {
        match self {
            Load::Pages(workload) => workload.users,
            Load::Arrivals(plan) => plan.pattern.users(),
            Load::Groups(groups) => groups.iter().map(|group| group.users).sum(),
        }
    }

    /// One more than the highest server.
    pub fn servers(&self) -> u32 {
        match self {
            Load::Pages(_) => 1,
            Load::Arrivals(plan) => plan.pattern.servers(),
            Load::Groups(groups) => {
                let servers = groups.iter().map(|group| group.demand.servers());
                servers.max().unwrap_or(1)
            }
        }
    }
}

/// Users who have an access line, a TCP and what they ask for in common.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// As in the file.
    pub name: String,
    /// At least one.
    pub users: u32,
    /// Of each user; none if they stand at their site. Users of a trunk always have one.
    pub access: Option<Access>,
    /// Of these users, and of the servers' ends of their connections.
    pub tcp: Tcp,
    /// Of its users, numbered from 0. Its seed is the run's and the name's: groups beside it change nothing.
    pub demand: Demand,
}

/// What a group asks for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Demand {
    /// As [`Load::Pages`].
    Pages(Workload),
    /// As [`Load::Arrivals`].
    Arrivals(ArrivalPlan),
}

impl Demand {
    fn servers(&self) -> u32 {
        match self {
            Demand::Pages(_) => 1,
            Demand::Arrivals(plan) => plan.pattern.servers(),
        }
    }

    fn seeded(&self, seed: u64) -> Demand {
        match self {
            Demand::Pages(workload) => Demand::Pages(Workload {
                seed,
                ..workload.clone()
            }),
            Demand::Arrivals(plan) => Demand::Arrivals(ArrivalPlan {
                seed,
                ..plan.clone()
            }),
        }
    }
}

impl From<Demand> for Load {
    fn from(demand: Demand) -> Load {
        match demand {
            Demand::Pages(workload) => Load::Pages(workload),
            Demand::Arrivals(plan) => Load::Arrivals(plan),
        }
    }
}

/// The line between a user and the site or the trunk.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Access {
    /// To the user.
    pub down: Line,
    /// From the user.
    pub up: Line,
}

/// The TCP of all hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tcp {
    /// How the window grows and shrinks.
    pub control: Control,
    /// Whether the first slow start is that of HyStart++ (RFC 9406), or of HyStart as Linux has it; of CUBIC only.
    pub hystart: bool,
    /// Whether segments leave as Linux paces them, not as soon as the window lets them; of BBR always.
    pub pacing: bool,
    /// How losses are found.
    pub recovery: Recovery,
    /// Whether the receiver reports what arrives twice (RFC 2883), and the sender takes back what it did in vain.
    pub dsack: bool,
    /// Whether data may be marked where it would be dropped (RFC 3168).
    pub ecn: bool,
    /// What the window grows by.
    pub growth: Growth,
    /// How long an acknowledgement may wait for a second segment; `None` acknowledges each.
    #[serde(rename = "delayed_ack_s", serialize_with = "perhaps_seconds")]
    pub delayed_ack: Option<Duration>,
    /// In segments.
    pub initial_window: u32,
    /// After so many lost SYNs or SYN-ACKs the first window is one segment.
    pub lost_syns: u32,
    /// In segments.
    pub receive_window: u32,
    /// Payload of a full segment.
    pub mss_bytes: u32,
    /// Of IP and TCP with its options, on every packet.
    pub header_bytes: u32,
    /// The least retransmission timeout.
    #[serde(rename = "min_rto_s", serialize_with = "seconds")]
    pub min_rto: Duration,
    /// By so much a host may send a packet later than TCP would, which is drawn for each; none overtakes another of its connection.
    #[serde(
        rename = "overhead_s",
        serialize_with = "seconds",
        skip_serializing_if = "Duration::is_zero"
    )]
    pub overhead: Duration,
    /// Whence a connection has its port.
    pub ports: Ports,
}

/// How a host chooses the port of a connection that it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all(serialize = "snake_case", deserialize = "kebab-case"))]
pub enum Ports {
    /// Drawn from all ephemeral ports (RFC 6056, algorithm 1).
    Random,
    /// Each the next after that of the host's last connection, beginning at random (RFC 6056, section 2.2), as Linux 2.2 did.
    Consecutive,
}

/// How the window grows in congestion avoidance and shrinks on loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all(serialize = "snake_case", deserialize = "kebab-case"))]
pub enum Control {
    /// RFC 5681.
    Reno,
    /// RFC 9438, with HyStart++ (RFC 9406).
    Cubic,
    /// As Linux 6 has it, which grows more slowly beside Reno and has the older HyStart.
    CubicLinux,
    /// Version 1 (draft-cardwell-iccrg-bbr-congestion-control-00), as in Linux 6.
    Bbr,
}

impl Control {
    /// Whether it is one of the two.
    #[inline]
    pub fn is_cubic(self) -> bool {
        matches!(self, Control::Cubic | Control::CubicLinux)
    }
}

/// How losses are repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all(serialize = "snake_case", deserialize = "kebab-case"))]
pub enum Recovery {
    /// RFC 5681.
    Reno,
    /// RFC 6582, impatient: the retransmission timer restarts with the first partial acknowledgement of a recovery alone.
    #[serde(rename(deserialize = "newreno"))]
    NewReno,
    /// RFC 6582, slow but steady: it restarts with every one.
    #[serde(rename(deserialize = "newreno-slow-but-steady"))]
    NewRenoSlowButSteady,
    /// RFC 6675.
    Sack,
    /// RFC 8985.
    Rack,
}

impl Recovery {
    /// Whether the receiver tells what arrived beyond a hole (RFC 2018).
    pub fn sacks(self) -> bool {
        matches!(self, Recovery::Sack | Recovery::Rack)
    }
}

/// What the window counts as it grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all(serialize = "snake_case", deserialize = "kebab-case"))]
pub enum Growth {
    /// Acknowledgements, RFC 5681.
    PerAck,
    /// Acknowledged segments, as Linux does.
    PerSegment,
}

impl Default for Tcp {
    /// Linux: CUBIC with a HyStart and SACK, acknowledgements delayed by 40 ms at most, RFC 6928's window, a minimum RTO
    /// of 200 ms, 1500-byte packets with timestamps.
    fn default() -> Self {
        Tcp {
            control: Control::Cubic,
            hystart: true,
            pacing: false,
            recovery: Recovery::Sack,
            dsack: false,
            ecn: false,
            growth: Growth::PerSegment,
            delayed_ack: Some(Duration::from_millis(40)),
            initial_window: 10,
            lost_syns: 2,
            receive_window: 1 << 16,
            mss_bytes: 1448,
            header_bytes: 52,
            min_rto: Duration::from_millis(200),
            overhead: Duration::ZERO,
            ports: Ports::Random,
        }
    }
}

/// The values that a point of a sweep sets: dotted keys of the scenario file and what stands there, as written.
pub type Point = Vec<(String, String)>;

/// One trial: what a world runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its `policies` and `seeds` are those of the whole scenario, of which this run is one.
    pub scenario: Arc<Scenario>,
    /// Who chooses, and how.
    pub policy: Policy,
    /// What people are shown of the policy; decides nothing.
    pub policy_name: String,
    /// Of all that is drawn.
    pub seed: u64,
    /// Empty without a sweep.
    pub point: Point,
    /// Of all that decides the result, in hexadecimal. Equal runs have equal hashes on every machine.
    pub hash: String,
}

/// Of what decides a result; a change of meaning without a change of text changes this number.
const HASH_FORMAT: u32 = 1;
/// Hexadecimal digits of a run's hash: 64 bits.
const HASH_DIGITS: usize = 16;

/// What a run's hash is of. Names and trials beside this one decide nothing.
#[derive(Serialize)]
struct Deciding<'a> {
    format: u32,
    network: &'a Network,
    #[serde(rename = "family", skip_serializing_if = "Families::is_default")]
    families: Families,
    faults: &'a [Fault],
    load: &'a Load,
    policy: &'a Policy,
    seed: u64,
    #[serde(serialize_with = "seconds")]
    limit: Duration,
    #[serde(serialize_with = "seconds")]
    sample: Duration,
    #[serde(serialize_with = "seconds")]
    patience: Duration,
    tcp: &'a Tcp,
}

impl fmt::Display for Run {
    /// Scenario, policy, seed, and the point of the sweep.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.scenario.name;
        write!(f, "{name}, {}, seed {}", self.policy_name, self.seed)?;
        let mut point = self.point.iter();
        point.try_for_each(|(key, value)| write!(f, ", {key} = {value}"))
    }
}

impl Run {
    /// One run of `scenario`, of one of its policies and seeds, at a point of the sweep.
    pub fn new(
        scenario: Arc<Scenario>,
        policy: impl Into<Typed<Policy>>,
        seed: u64,
        point: Point,
    ) -> Run {
        let Typed { policy, name } = policy.into();
        let deciding = Deciding {
            format: HASH_FORMAT,
            network: &scenario.network,
            families: scenario.families,
            faults: &scenario.faults,
            load: &scenario.load,
            policy: &policy,
            seed,
            limit: scenario.limit,
            sample: scenario.sample,
            patience: scenario.patience,
            tcp: &scenario.tcp,
        };
        let text = serde_json::to_vec(&deciding).expect("plans are plain data");
        let digest = Sha256::digest(&text);
        let hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Run {
            hash: hash[..HASH_DIGITS].to_owned(),
            scenario,
            policy,
            policy_name: name,
            seed,
            point,
        }
    }

    /// The links, or the sublinks that the policy uses, before the first sample.
    pub fn series(&self) -> Vec<LinkSeries> {
        match &self.scenario.network {
            Network::Site(site) => {
                let of = |link: &LinkPlan| {
                    LinkSeries::new(&link.name, link.down.rate_bps, link.up.rate_bps)
                };
                site.links.iter().map(of).collect()
            }
            Network::Trunk(trunk) => {
                let lines = match self.policy.spread() {
                    Some(Spread::Single) => std::slice::from_ref(&trunk.single),
                    _ => &trunk.sublinks,
                };
                let numbered = lines.iter().enumerate();
                numbered
                    .map(|(i, line)| LinkSeries::new(i.to_string(), line.rate_bps, 0))
                    .collect()
            }
        }
    }

    /// The load with the run's seed.
    pub fn load(&self) -> Load {
        match &self.scenario.load {
            Load::Pages(workload) => Demand::Pages(workload.clone()).seeded(self.seed).into(),
            Load::Arrivals(plan) => Demand::Arrivals(plan.clone()).seeded(self.seed).into(),
            Load::Groups(groups) => {
                let seeded = |group: &Group| Group {
                    demand: group.demand.seeded(self.seed_of(&group.name)),
                    ..group.clone()
                };
                Load::Groups(groups.iter().map(seeded).collect())
            }
        }
    }

    /// The network with the run's traces, in either world: each direction of a line draws from a seed of its own.
    pub fn network(&self) -> Network {
        let mut network = self.scenario.network.clone();
        let Network::Site(site) = &mut network else {
            return network;
        };
        let seed = |place: String, down: &mut Line, up: &mut Line| {
            for (direction, line) in [(Direction::Down, down), (Direction::Up, up)] {
                if let Some(trace) = &mut line.trace {
                    trace.seed(self.seed_of(&format!("{place} {}", direction.name())));
                }
            }
        };
        for link in &mut site.links {
            seed(format!("link {}", link.name), &mut link.down, &mut link.up);
            if let Some(beyond) = &mut link.beyond {
                let place = match &beyond.shared {
                    Some(name) => format!("shared {name}"),
                    None => format!("beyond {}", link.name),
                };
                seed(place, &mut beyond.down, &mut beyond.up);
            }
        }
        network
    }

    fn seed_of(&self, what: &str) -> u64 {
        let digest = Sha256::digest(format!("{} {what}", self.seed));
        digest[..8]
            .iter()
            .fold(0, |seed, byte| seed << 8 | u64::from(*byte))
    }
}
