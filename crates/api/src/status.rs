//! What `anabranch status` shows.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use anabranch_core::ReasonCount;
use serde::{Deserialize, Serialize};

/// What `anabranch status` shows of an instance. It has the shape of the file: what is the gateway's stands at the top, what is
/// the services' under `services`, what is the trunk's under `trunk`, what is the member's under `member`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub instance: String,
    /// Of the daemon.
    pub version: String,
    /// Process id of the daemon.
    pub pid: u32,
    /// Of the daemon, in seconds.
    pub uptime_s: f64,
    /// All that the file names.
    #[serde(default)]
    pub roles: Vec<RoleStatus>,
    /// None: it has no such role, or that has failed.
    #[serde(flatten)]
    pub gateway: Option<Box<GatewayStatus>>,
    /// None: it has no such role, or that has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<Box<ServicesStatus>>,
    /// None: it has no such role, or that has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trunk: Option<Box<TrunkStatus>>,
    /// None: it has no such role, or that has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<Box<MemberStatus>>,
}

impl Status {
    /// Takes in what another role of the same instance says of itself.
    pub fn join(&mut self, other: Status) {
        let Status {
            gateway,
            services,
            trunk,
            member,
            ..
        } = other;
        self.gateway = self.gateway.take().or(gateway);
        self.services = self.services.take().or(services);
        self.trunk = self.trunk.take().or(trunk);
        self.member = self.member.take().or(member);
    }
}

/// Whether a role does what it is there for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleStatus {
    /// `gateway`, `service`, `trunk` or `member`.
    pub name: String,
    /// The daemon's part of it.
    pub state: RoleState,
    /// It has failed.
    pub why: Option<String>,
}

impl RoleStatus {
    /// The daemon has lost it.
    pub fn fail(&mut self, why: String) {
        (self.state, self.why) = (RoleState::Failed, Some(why));
    }
}

/// How a role fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoleState {
    /// What it has to tell of itself is in its part of the status.
    Works,
    /// The daemon does nothing for it any more. What its programs were told last is what they do.
    Failed,
}

/// What `anabranch status` shows of a gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GatewayStatus {
    /// Name of the algorithm, or its tuple.
    pub policy: String,
    /// The flows of an earlier daemon were taken over.
    pub adopted: bool,
    /// What keeps the gateway from being as it should, a line each: what, where, and what to do.
    #[serde(default)]
    pub troubles: Vec<String>,
    /// What stands beside the gateway on this host and touches its traffic.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// What is wrong with links, the gravest first.
    #[serde(default)]
    pub problems: Vec<Problem>,
    /// In the order of the configuration.
    pub links: Vec<LinkStatus>,
    /// In the order of their rules; then those that left the configuration and have flows; the default class last.
    #[serde(default)]
    pub classes: Vec<ClassStatus>,
    /// Of the whole gateway.
    pub flows: FlowsStatus,
    /// Of the kernel's own connection table; none where it tracks none.
    #[serde(default)]
    pub connections: Option<ConnectionsStatus>,
    /// Places of which flows have told.
    #[serde(default)]
    pub prefixes: PrefixesStatus,
    /// How packets left the programs, most frequent first; those that never happened are left out.
    pub reasons: Vec<ReasonCount>,
}

/// Something else on the host that touches the gateway's traffic: another program, a rule, a device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Its kind, like `ingress-qdisc`: the same words for the same kind.
    pub name: String,
    /// The device, rule, chain or address that it is about.
    pub subject: String,
    /// What it means for packets, in one line.
    pub meaning: String,
    /// What to do about it, in one line.
    pub cure: String,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// The gateway cannot work beside it: `check` refuses the configuration.
    Refused,
    /// Some traffic does not get what somebody meant it to get.
    Trouble,
    /// Good to know.
    Note,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Refused => "refused",
            Severity::Trouble => "trouble",
            Severity::Note => "note",
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding {
            name,
            subject,
            meaning,
            cure,
            ..
        } = self;
        write!(f, "{name}, {subject}: {meaning}; {cure}")
    }
}

/// One thing that is wrong with a link, or with all of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// Its name; none: all of them.
    pub link: Option<String>,
    /// `IPv4` or `IPv6`, where the link has both or is to have both.
    pub family: Option<String>,
    /// `offline`, `absent`, `unconfigured`, `down`, `captive`, `lossy`, `flapping` or `ordered`.
    pub kind: String,
    /// What is wrong, for people.
    pub words: String,
    /// `status --check` fails. It does not for what was ordered, nor for links with `alert = false`.
    pub fails: bool,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.link, &self.family) {
            (None, _) => f.write_str(&self.words),
            (Some(link), None) => write!(f, "{link}: {}", self.words),
            (Some(link), Some(family)) => write!(f, "{link}, {family}: {}", self.words),
        }
    }
}

/// How a class of traffic fares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassStatus {
    /// Of its rule, or `default`.
    pub name: String,
    /// Its number in the data path.
    pub slot: u8,
    /// It left the configuration: its flows go by the default class.
    pub leaving: bool,
    /// Name of the algorithm, or its tuple.
    pub policy: String,
    /// For what its choice holds, as files write it: `connection`, `session`, `host` or `packet`.
    pub granularity: String,
    /// Of this class.
    pub flows: LinkFlows,
    /// Of IP packets, towards the internet.
    pub tx_bytes: u64,
    /// Of IP packets, from the internet.
    pub rx_bytes: u64,
    /// Its links, those to use first before those to use when none of them is left.
    pub tiers: Vec<Vec<ClassLink>>,
    /// Links that it uses as no tier has one left.
    pub beyond: Vec<ClassLink>,
    /// Packets that opened no flow, as no link was left.
    pub without_link: u64,
    /// Packets that opened no flow, as their host had its share.
    pub over_quota: u64,
}

/// What a link is to a class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassLink {
    /// As in the configuration.
    pub link: String,
    /// Takes new flows of the class.
    pub usable: bool,
    /// As it stands in the choice of the class, without a unit.
    pub weight: u32,
}

/// How a link fares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// As in the configuration.
    pub name: String,
    /// As in the configuration.
    pub device: String,
    /// Its number in the data path.
    pub slot: u16,
    /// As the gateway judges it for the first of its families.
    pub state: LinkState,
    /// Since it last came into use, was lost, or was ordered otherwise. A suspicion is no change.
    pub since_s: f64,
    /// What brought it into this state.
    pub why: String,
    /// Takes new flows of some class.
    pub usable: bool,
    /// As in the configuration.
    pub metered: bool,
    /// As in the configuration: what is wrong with it is a problem.
    #[serde(default = "yes")]
    pub alert: bool,
    /// Its flows have its address; otherwise they have those of the LAN.
    pub nat: bool,
    /// The link's own, which its flows have where there is NAT; none if the device has none.
    pub address: Option<IpAddr>,
    /// The next hop; none if there is none or it is not known.
    pub gateway: Option<IpAddr>,
    /// Of the device, in bytes of IP packet; none if there is no device.
    pub mtu: Option<u32>,
    /// As declared.
    pub rate: Option<Rates>,
    /// As estimated from the declared rates and what is in use; absent for algorithms that do not measure it.
    pub available: Option<Rates>,
    /// As it stands in the choice of the default class, without a unit.
    pub weight: u32,
    /// Balanced flows.
    pub flows: LinkFlows,
    /// Theirs.
    pub traffic: Traffic,
    /// What its flows tell of the last minute.
    #[serde(default)]
    pub recent_flows: RecentFlows,
    /// What its probes say.
    pub probe: ProbeStatus,
    /// What the fixed node says of it, if a policy asks it.
    #[serde(default)]
    pub node: Option<NodeStatus>,
    /// How it fares for each address family that it has or is to have; what is said of the link as a whole is said of the first.
    #[serde(default)]
    pub paths: Vec<PathStatus>,
}

fn yes() -> bool {
    true
}

/// What the flows of a link tell of the last minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecentFlows {
    /// Flows of any protocol that were opened.
    pub opened: u64,
    /// SYNs that were sent again: the link lost them or their answers, or a server did not answer.
    pub syn_retries: u64,
}

/// What the probes of a link tell of the last minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct RecentProbes {
    /// Answered or lost. Those whose target, or way of asking, is filtered are left out where they are lost.
    pub judged: usize,
    /// Of those.
    pub lost: usize,
    /// Mean of the answers, queues included.
    pub round_trip_ms: Option<f64>,
    /// Mean difference of a round trip from that before to the same target.
    pub jitter_ms: Option<f64>,
    /// Seconds since the last answer, however old; none before the first.
    pub answered_s_ago: Option<f64>,
}

/// Round trips to the fixed node over one link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Of the node: `IPv4` or `IPv6`.
    pub family: String,
    /// Questions, since the daemon began.
    pub sent: u64,
    /// The last to have ended, with or without an answer; none before the first has.
    pub round_trip_ms: Option<f64>,
}

/// How a link fares for one address family.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathStatus {
    /// `IPv4` or `IPv6`.
    pub family: String,
    /// As the gateway judges it.
    pub state: LinkState,
    /// Since it last came into use, was lost, or was ordered otherwise. A suspicion is no change.
    pub since_s: f64,
    /// What brought it into this state.
    pub why: String,
    /// Takes new flows of some class.
    pub usable: bool,
    /// The link's own, which its flows have where there is NAT; none if the device has none.
    pub address: Option<IpAddr>,
    /// The next hop; none if there is none or it is not known.
    pub gateway: Option<IpAddr>,
    /// IPv6: network whose addresses its flows have instead, each LAN host one of its own.
    pub prefix: Option<String>,
    /// Longer packets do not come through, though its device allows more; none: they do, as far as is known.
    #[serde(default)]
    pub path_mtu: Option<u32>,
    /// Seconds since anything was heard over it.
    #[serde(default)]
    pub heard_s_ago: f64,
    /// How often it went down within the last hour; 20 may be more.
    #[serde(default)]
    pub falls_last_hour: usize,
    /// What its probes say.
    pub probe: ProbeStatus,
    /// What the checks of the configuration say, in its order.
    #[serde(default)]
    pub checks: Vec<CheckStatus>,
}

/// Guo 2004, Fig. 2, and what a person has ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkState {
    /// In use.
    Up,
    /// Suspected: probes are on their way.
    PossiblyDown,
    /// It answers, and carries none of the connections that hosts begin: new flows take others.
    Captive,
    /// Given up.
    Down,
    /// No device, address, gateway or carrier.
    Absent,
    /// Keeps its flows and takes no new ones, by order.
    Drained,
    /// Out of use by order.
    Disabled,
}

/// In bit/s.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// From the internet.
    pub down_bps: Option<u64>,
    /// Towards the internet.
    pub up_bps: Option<u64>,
}

/// The flows of a link, or of a class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkFlows {
    /// Not closed.
    pub live: u64,
    /// Since the data path was loaded.
    pub opened: u64,
}

/// Of balanced flows; `tx` is towards the internet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Towards the internet, since the data path was loaded.
    pub tx_packets: u64,
    /// Of IP packets, towards the internet.
    pub tx_bytes: u64,
    /// From the internet, since the data path was loaded.
    pub rx_packets: u64,
    /// Of IP packets, from the internet.
    pub rx_bytes: u64,
    /// Over the last second.
    pub tx_bps: f64,
    /// Over the last second.
    pub rx_bps: f64,
}

/// How the probes of a link fare.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeStatus {
    /// Since the daemon started.
    pub sent: u64,
    /// Those that never left the host: its connection table was full, its firewall refused them, it ran out of descriptors.
    #[serde(default)]
    pub not_sent: u64,
    /// Of the last ones, those that were judged, ...
    pub judged: usize,
    /// ... and those of them that were lost.
    pub lost: usize,
    /// Smoothed.
    pub round_trip_ms: Option<f64>,
    /// Of the last minute.
    #[serde(default)]
    pub recent: RecentProbes,
    /// Ways of asking that somebody filters, while others are answered: `DNS over UDP`, `ICMP echo`, `TCP`, `HTTP`.
    #[serde(default)]
    pub filtered: Vec<String>,
    /// In the order of the configuration.
    pub targets: Vec<TargetStatus>,
}

/// How one test of a link's checks fares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckStatus {
    /// What is asked.
    pub check: String,
    /// `up`, `down`, or `unknown` before enough was tried.
    pub state: String,
    /// Whether the last that proved anything was a success.
    pub succeeds: bool,
    /// So many like the last, one after the other.
    pub in_a_row: u32,
    /// Why the last one failed, or was not made.
    pub why: Option<String>,
}

/// How one target of a link's probes fares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetStatus {
    /// As in the configuration.
    pub target: String,
    /// It stands in the link's own network, so that its answer proves nothing of the internet.
    pub near: bool,
    /// Since the daemon started.
    pub sent: u64,
    /// Of those.
    pub answered: u64,
    /// Since its last answer.
    pub lost_in_a_row: u32,
    /// Seconds since its last answer; none before the first.
    pub answered_s_ago: Option<f64>,
    /// Of the last answer.
    pub round_trip_ms: Option<f64>,
    /// A page that answers otherwise than it should.
    #[serde(default)]
    pub wrong: bool,
}

/// The flows of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowsStatus {
    /// Not closed.
    pub live: u64,
    /// In the main table: confirmed, closed ones that linger included, ...
    pub confirmed: u64,
    /// ... of at most so many.
    pub limit: u64,
    /// Unanswered ones that have made room for later ones of their host.
    pub evicted: u64,
}

/// The kernel's connection table: of what it forwards and translates itself, and of what this host sends and is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionsStatus {
    /// Connections, ...
    pub known: u64,
    /// ... of at most so many: beyond that their packets are dropped.
    pub limit: u64,
}

/// The places of which flows have told how long they take to answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefixesStatus {
    /// Prefixes, ...
    pub known: u64,
    /// ... of at most so many: another makes that forgotten which was used least recently.
    pub limit: u64,
    /// Destinations that are probed because they are used most, each for its prefix, ...
    #[serde(default)]
    pub listed: u64,
    /// ... and how often one was, over any link, since the daemon started.
    #[serde(default)]
    pub asked: u64,
}

/// What `anabranch status` shows of services.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServicesStatus {
    /// Connections of an earlier daemon were taken over.
    pub adopted: bool,
    /// What keeps the services from being as they should, a line each: what, where, and what to do.
    #[serde(default)]
    pub troubles: Vec<String>,
    /// By which clients and servers are reached.
    pub devices: Vec<String>,
    /// In the order of the configuration.
    pub services: Vec<ServiceStatus>,
    /// How packets left the programs, most frequent first; those that never happened are left out.
    pub reasons: Vec<ReasonCount>,
}

/// How a service fares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// As in the configuration.
    pub name: String,
    /// Where clients find it, as it is written: `203.0.113.10:80`, `udp:203.0.113.10:53`.
    pub listen: Vec<String>,
    /// Its name in the catalogue.
    pub policy: String,
    /// In the order of the configuration.
    pub servers: Vec<ServerStatus>,
    /// What is known of the names of servers.
    #[serde(default)]
    pub names: Vec<NameStatus>,
    /// What asking the servers for their load has cost; none if they are not asked.
    #[serde(default)]
    pub polled: Option<PolledStatus>,
}

/// What asking the servers of a service for their load has cost, since the daemon started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolledStatus {
    /// Questions sent.
    pub questions: u64,
    /// Answers understood.
    pub answers: u64,
    /// Of both, in IP packets.
    pub bytes: u64,
}

/// What a name of servers stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameStatus {
    /// What is asked: `A web.internal`.
    pub question: String,
    /// How many records were answered last.
    pub records: usize,
    /// How long ago that was; none if an earlier daemon heard it, or nobody.
    pub age_s: Option<u64>,
    /// What came since then in the place of an answer.
    pub why: Option<String>,
}

impl fmt::Display for NameStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            question, records, ..
        } = self;
        match (records, self.age_s) {
            (0, _) => write!(f, "{question}: no records")?,
            (_, Some(age_s)) => write!(f, "{question}: {records} records of {age_s} s ago")?,
            (_, None) => write!(f, "{question}: {records} records of an earlier run")?,
        }
        self.why.iter().try_for_each(|why| write!(f, ": {why}"))
    }
}

/// How a server of a service fares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Where it listens; port 0: at the port that the client called.
    pub endpoint: SocketAddr,
    /// How much it takes beside others, where the policy asks.
    pub weight: u32,
    /// Takes connections only where no other server does.
    pub backup: bool,
    /// Somebody has ordered that it takes no new connections, or its weight is 0.
    pub drained: bool,
    /// What it has to pass, and how it fared; none of a service without.
    pub check: Option<CheckStatus>,
    /// Takes new connections.
    pub usable: bool,
    /// Why it does not.
    pub why: Option<String>,
    /// Connections that it was given, since it is a server of the service.
    pub opened: u64,
    /// Of these, those that are not over.
    pub active: u64,
    /// How many may be open.
    #[serde(default)]
    pub limit: Option<u32>,
    /// Connections that it says it has, with all balancers; none if it is not asked, or does not say.
    #[serde(default)]
    pub load: Option<u64>,
}

impl ServerStatus {
    /// Whether it has as many connections as it may.
    pub fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.active >= limit.into())
    }
}

/// What `anabranch status` shows of a trunk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrunkStatus {
    /// Table and counters of an earlier daemon were taken over.
    pub adopted: bool,
    /// What keeps the trunk from being as it should, a line each: what, where, and what to do.
    #[serde(default)]
    pub troubles: Vec<String>,
    /// The trunk device.
    pub device: String,
    /// Its name in the catalogue.
    pub scheme: String,
    /// In the order of the configuration.
    pub sublinks: Vec<SublinkStatus>,
    /// Bins moved to another sublink since the daemon started.
    pub reassignments: u64,
    /// How packets left the program, most frequent first; those that never happened are left out.
    pub reasons: Vec<ReasonCount>,
}

/// What `anabranch status` shows of a member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Programs and addresses of an earlier daemon were taken over.
    pub adopted: bool,
    /// What keeps the member from being as it should, a line each: what, where, and what to do.
    #[serde(default)]
    pub troubles: Vec<String>,
    /// By which balancers reach it.
    pub devices: Vec<String>,
    /// In the order of the configuration.
    pub addresses: Vec<MemberAddress>,
    /// What balancers are told; none if they are not answered.
    #[serde(default)]
    pub load: Option<LoadStatus>,
    /// How packets left the programs, most frequent first; those that never happened are left out.
    pub reasons: Vec<ReasonCount>,
}

/// A virtual address of a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberAddress {
    /// As in the configuration.
    pub address: IpAddr,
    /// Bytes of the longest outer headers that a packet for it had; 0 if none came in a tunnel.
    pub outer_bytes: u32,
}

/// What a member tells balancers of its load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadStatus {
    /// UDP port at which they ask.
    pub port: u16,
    /// Established connections to the virtual addresses, as they were counted last.
    pub connections: u64,
    /// Questions that were answered.
    pub answered: u64,
    /// Datagrams that were not: no question, of nobody who may ask, or too many.
    pub ignored: u64,
}

/// How a sublink fares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SublinkStatus {
    /// As in the configuration.
    pub name: String,
    /// As in the configuration.
    pub device: String,
    /// The other node's addresses on it, of each family that it carries; none on a layer-3 device, which carries both.
    pub via: Vec<IpAddr>,
    /// Takes packets.
    pub usable: bool,
    /// Why it does not.
    pub why: Option<String>,
    /// As declared.
    pub rate_bps: Option<u64>,
    /// Given to it since the program was loaded.
    pub packets: u64,
    /// Likewise, with Ethernet headers.
    pub bytes: u64,
    /// Of the packets, TCP segments with SYN: connections that began on it, repeated SYNs counted again.
    pub opened: u64,
    /// Over the last second.
    pub tx_bps: f64,
    /// Its part of all bytes, 0 to 1.
    pub share: f64,
    /// Bins that have it as their sublink.
    pub bins: usize,
    /// What waits on its device, ...
    pub queue_bytes: u64,
    /// ... of what may wait at most, if that is known.
    pub buffer_bytes: Option<u64>,
    /// What waits, in packets.
    pub queue_packets: u32,
    /// What has left its device's queue since that was made, whoever sent it.
    pub sent_bytes: u64,
    /// Likewise; the kernel counts packets in 32 bits.
    pub sent_packets: u32,
    /// Packets that found no room in the queue.
    pub dropped_packets: u32,
}
