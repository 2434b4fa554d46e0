//! The configuration: three lines of TOML, and what else may be said.
//!
//! Reading has two steps. `file` holds the keys as written and refuses unknown ones; here they become a [`Config`] whose
//! values make sense together. What depends on the host (do the devices exist?) is asked of [`crate::observe`] and
//! [`crate::preflight`]. Every error is one line with the file, the key, the value as written, and what is allowed.
//!
//! A file has a section for each role that the instance is to have ([`Configuration`]): the keys of a gateway stand at its top, those
//! of services in `[service.NAME]`, those of a trunk in `[trunk]`. Each role reads its own section; what they claim together is looked at here.

mod checks;
mod file;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anabranch_config::{LineRate, Source, Span, dotted, is_name, read_text};
use anabranch_core::checks::{Check, Target};
use anabranch_core::rules::file::{self as classes, DefaultTable, Remark, RuleTable, Site};
use anabranch_core::rules::{Class, Rule, review_packets};
use anabranch_core::{Algorithm, ConfigError, Family, Kind, LinkSpec, Sessions, Typed};
use anabranch_policy::PerFamily;
use anabranch_policy::abi::RESERVED_MAX;
use serde::Deserialize;

pub use anabranch_config::Rate;
pub use anabranch_core::OnReturn;

use crate::error::BadInput;
use crate::neighbours::NAMES;
use crate::observe::Prefix;
use crate::probe::{DEFAULT_TARGETS, portal_pages};
use crate::{services, trunk};
use file::{
    AvailabilityTable, File, HostAddress, HostAddress6, LimitsTable, LinkTable, NatTable,
    OneOrMore, Ports, SessionsTable, SurveyTable,
};

/// What messages call the roles; of all but the gateway, their sections, too.
pub const GATEWAY: &str = "gateway";
/// As above.
pub const SERVICE: &str = "service";
/// As above.
pub const TRUNK: &str = "trunk";

/// Links of one gateway.
pub const LINKS_MAX: usize = anabranch_policy::abi::MAX_LINKS;

const GATEWAY_NEEDS: &str = r#"a gateway's key, and there is no gateway: write lan = ["eth0"] and link.NAME = { device = "eth1" }, or leave it out"#;
const LINK_NAME_CHARS_MAX: usize = 32;
const DEVICE_NAME_CHARS_MAX: usize = libc::IFNAMSIZ - 1;
const TIMEOUT_MIN: Duration = Duration::from_secs(1);
const TIMEOUT_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
const TARGETS_MAX: usize = 16;
/// As far as hosts have a part of their own behind it (RFC 4291 section 2.5.1).
const PREFIX6_BITS: RangeInclusive<u8> = 16..=64;
const FLOWS_MAX: u32 = 16_000_000;
const FLOWS_DEFAULT: u32 = 1 << 18;
/// Below 64 MB of kernel memory.
const PREFIXES_MAX: u32 = 100_000;
/// A site of some thousand hosts goes to fewer in a week (Guo 2004, figure 5).
const PREFIXES_DEFAULT: u32 = 8192;
const FLOWS_PER_HOST_DEFAULT: u32 = 1 << 13;
/// Remote ports whose connections nobody ties together: of the web.
const INDEPENDENT_PORTS: [u16; 2] = [80, 443];

/// How long a session is remembered after its last flow began.
const SESSION_DEFAULT: Duration = Duration::from_secs(600);

/// The roles that a file gives to an instance: one at least, and none that stands in another's way.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// Of several links.
    pub gateway: Option<Box<Config>>,
    /// Of servers.
    pub services: Option<services::Config>,
    /// Of parallel sublinks.
    pub trunk: Option<trunk::Config>,
}

impl Configuration {
    /// Reads the file at `path`. An error is one line that names file, key, value and what is allowed.
    pub fn load(path: &Path) -> Result<Self, BadInput> {
        Self::parse(path, &read_text(path)?)
    }

    /// `path` is for messages only.
    pub fn parse(path: &Path, text: &str) -> Result<Self, BadInput> {
        let source = Source::parse(path, text)?;
        let has_services = source.span(&[SERVICE]).is_some();
        let has_trunk = source.span(&[TRUNK]).is_some();
        // Keys that no role knows are a gateway's, misspelled; so is a file without any.
        let has_gateway = !(has_services || has_trunk) || source.keys().any(is_gateways);
        let gateway = has_gateway
            .then(|| Config::parse(path, text).map(Box::new))
            .transpose()?;
        let configuration = Self {
            services: has_services
                .then(|| services::Config::parse(path, text, gateway.as_deref()))
                .transpose()?,
            gateway,
            trunk: has_trunk
                .then(|| trunk::Config::parse(path, text))
                .transpose()?,
        };
        configuration.check_claims(&source)?;
        Ok(configuration)
    }

    /// What each role has for itself.
    pub fn devices(&self) -> Vec<(&'static str, Vec<&str>)> {
        let gateway = self.gateway.iter();
        let services = self.services.iter();
        let trunk = self.trunk.iter();
        gateway
            .map(|config| (GATEWAY, config.devices()))
            .chain(services.map(|config| (SERVICE, config.device_names())))
            .chain(trunk.map(|config| (TRUNK, config.devices())))
            .collect()
    }

    /// Of the roles, as messages name them.
    pub fn roles(&self) -> Vec<&'static str> {
        self.devices().into_iter().map(|(role, _)| role).collect()
    }

    /// What comes for a trunk arrives on its sublinks. At the trunk's device a gateway would hear nothing, and at a sublink it
    /// would drop what is of no flow of its own, which is what comes for the trunk.
    fn check_claims(&self, source: &Source<'_>) -> Result<(), BadInput> {
        let gateway = self.gateway.iter().flat_map(|config| config.claims());
        let trunk = self.trunk.iter().flat_map(|config| config.claims());
        check_claims(
            source,
            gateway.chain(trunk),
            "what comes for a trunk arrives on its sublinks and nowhere else, so no device is both the gateway's and the trunk's",
        )?;
        // Services may stand at a gateway's devices, before it.
        let services = self.services.iter().flat_map(|config| config.own_claims());
        let trunk = self.trunk.iter().flat_map(|config| config.claims());
        check_claims(
            source,
            trunk.chain(services),
            "what comes for a trunk is the trunk's, so no service stands there",
        )
    }
}

/// A key, and the device that it claims.
pub(crate) type Claim<'a> = (Vec<String>, &'a str);

/// A device's name is one, and no device is claimed twice.
pub(crate) fn check_claims<'a>(
    source: &Source<'_>,
    claims: impl Iterator<Item = Claim<'a>>,
    rule: &str,
) -> Result<(), BadInput> {
    let mut seen: BTreeMap<&str, String> = BTreeMap::new();
    for (key, device) in claims {
        let key: Vec<&str> = key.iter().map(String::as_str).collect();
        if !is_device_name(device) {
            let allowed = format!(
                "not a device name: 1 to {DEVICE_NAME_CHARS_MAX} characters without '/', ':' and spaces"
            );
            return Err(source.bad(&key, allowed));
        }
        if let Some(other) = seen.insert(device, dotted(&key)) {
            return Err(source.bad(&key, format!("this device is {other} already; {rule}")));
        }
    }
    Ok(())
}

/// Whether an address may be somebody's on a network, and is written in its own family.
pub(crate) fn is_of_one_host(address: IpAddr) -> bool {
    let is_nobodys = match address {
        IpAddr::V4(v4) => v4.is_broadcast(),
        IpAddr::V6(v6) => v6.to_ipv4_mapped().is_some(),
    };
    !(is_nobodys || address.is_unspecified() || address.is_loopback() || address.is_multicast())
}

pub(crate) fn claim<'a>(key: &[&str], device: &'a str) -> Claim<'a> {
    (key.iter().map(|part| (*part).to_owned()).collect(), device)
}

/// A gateway's configuration that is right in itself.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file, for messages.
    pub path: PathBuf,
    /// Devices towards the local hosts.
    pub lan: Vec<String>,
    /// In the order written, which is the order of preference for what is not balanced.
    pub links: Vec<Link>,
    /// Which link a flow takes.
    pub policy: Typed<Algorithm>,
    /// What is held together on one link.
    pub sessions: Sessions,
    /// What else becomes of traffic that no rule matches.
    pub default: Class,
    /// In the order written; the first that matches has a flow.
    pub rules: Vec<Rule>,
    /// What people should know of the file.
    pub remarks: Vec<Remark>,
    /// To whom round trips are measured, for policies that do.
    pub node: Option<Target>,
    /// When a link is suspected, given up and trusted again.
    pub availability: anabranch_core::Config,
    /// Timers and manners of the translation.
    pub nat: Nat,
    /// Of flows.
    pub limits: Limits,
    /// Findings that are meant to be so: a name of [`neighbours::NAMES`](crate::neighbours::NAMES), or one and a subject.
    pub survey_ignore: Vec<String>,
}

/// One ISP access line.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Of no other link.
    pub name: String,
    /// The device that leads to the ISP.
    pub device: String,
    /// Towards the LAN.
    pub down: Option<Rate>,
    /// Towards the internet.
    pub up: Option<Rate>,
    /// Bytes cost money: used only while no other link is usable.
    pub metered: bool,
    /// Flows have the link's address beyond it. Without, they keep those of the LAN, which the ISP routes to the link.
    pub nat: bool,
    /// For the algorithms with a fixed weight, instead of one from the rates.
    pub weight: Option<u32>,
    /// Next hop, instead of the one of the host's default route through the device.
    pub gateway: PerFamily<Option<IpAddr>>,
    /// External address, instead of the device's first.
    pub address: PerFamily<Option<IpAddr>>,
    /// Network of IPv6 that the ISP routes to this link, and its length: hosts keep what is behind that (RFC 6296).
    pub prefix6: Option<(Ipv6Addr, u8)>,
    /// What becomes of what begins outside at such a network, written or found.
    pub inbound: Inbound,
    /// Networks that the ISP routes to this link, and their lengths: sources that may leave by it besides its own.
    pub prefixes: Vec<(IpAddr, u8)>,
    /// What is asked whether the link works, if it is written; of a family that has none, the resolvers that all links have,
    /// the gateway, and those of the lease.
    pub probe: Vec<Target>,
    /// Besides, pages by which captive portals are found.
    pub captive: bool,
    /// What has to hold besides.
    pub checks: Vec<Check>,
    /// Whoever watches the gateway is told if it does not work.
    pub alert: bool,
    /// What its flows do when a better link returns.
    pub on_return: OnReturn,
}

/// Timers and manners of the address translation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nat {
    /// RFC 5382 REQ-5: at least 2 h 4 min.
    pub tcp_established: Duration,
    /// RFC 5382 REQ-5: at least 4 min.
    pub tcp_transitory: Duration,
    /// A first SYN that nobody answers: transitory, too.
    pub tcp_unanswered: Duration,
    /// RFC 4787 REQ-5: at least 2 min, 5 min recommended.
    pub udp: Duration,
    /// RFC 5508 REQ-2: at least 60 s.
    pub icmp: Duration,
    /// External ports, both ends included; the host's ephemeral ports are left out of them.
    pub ports: [u16; 2],
    /// Whom a mapping hears.
    pub udp_filter: UdpFilter,
    /// What becomes of a flow that finds no room.
    pub fallback: Fallback,
    /// What becomes of packets that a link brings for no flow.
    pub forwards: Forwards,
    /// By which device a LAN source may come.
    pub lan_sources: LanSources,
    /// Ports of the host's own services that no flow is given; 0: none.
    pub reserved: [u16; RESERVED_MAX],
}

/// What becomes of what begins outside, at a link that translates prefixes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Inbound {
    /// It is dropped, as at any link with NAT.
    #[default]
    Drop,
    /// It reaches the LAN.
    Allow,
}

/// By which LAN device a source may come (RFC 3704).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LanSources {
    /// By the one its route names.
    Strict,
    /// By any, where routes of the LAN are asymmetric.
    Loose,
}

/// From whom a UDP mapping accepts packets (RFC 4787 REQ-8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UdpFilter {
    /// From addresses the host has sent to.
    AddressDependent,
    /// From anybody.
    EndpointIndependent,
}

/// What becomes of new flows of a host over its quota, or when the table is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fallback {
    /// The kernel's own NAT carries them over the first usable link: connectivity without balancing.
    Kernel,
    /// They are refused.
    Refuse,
}

/// What becomes of packets from a link to the LAN that belong to no flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forwards {
    /// They are dropped.
    Drop,
    /// They are the kernel's: the administrator forwards ports, or routes prefixes, by rules of his own.
    Kernel,
}

/// How many flows there may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Flows of all hosts.
    pub flows: u32,
    /// Flows of one LAN address.
    pub flows_per_host: u32,
    /// Prefixes of destinations of which flows tell, where a policy is to learn from them.
    pub prefixes: u32,
}

impl Config {
    /// Reads the file at `path`. An error is one line that names file, key, value and what is allowed.
    pub fn load(path: &Path) -> Result<Self, BadInput> {
        Self::parse(path, &read_text(path)?)
    }

    /// `path` is for messages only.
    pub fn parse(path: &Path, text: &str) -> Result<Self, BadInput> {
        let source = Source::parse(path, text)?;
        let mut file: File = source.read()?;
        if let Some(key) = without_a_gateway(&source) {
            return Err(source.bad(&[key], GATEWAY_NEEDS));
        }
        let former = take_former(&source, &mut file)?;
        let probe = targets(&source, &["probe", "targets"], file.probe.targets)?;
        let on_return = file.default.on_return;
        let asked = (probe.as_deref(), file.probe.captive);
        let mut links = links(&source, file.link, asked, on_return)?;
        checks::read(&source, &file.check, &mut links)?;
        devices(&source, &file.lan, &links)?;
        let node = node(&source, file.probe.node)?;
        let policy = policy(&source, file.policy, &links, node.as_ref())?;
        let specs: Vec<LinkSpec> = links.iter().map(Link::spec).collect();
        let site = Site {
            links: &specs,
            lan: &file.lan,
            node: node.is_some(),
        };
        let classes = Classes::read(&source, &policy, file.default, file.rule, site)?;
        let config = Self {
            path: path.to_owned(),
            lan: file.lan,
            policy,
            links,
            nat: nat(&source, &file.nat)?,
            limits: limits(&source, &file.limits)?,
            sessions: classes.default.sessions(&Sessions {
                stick: true,
                except: INDEPENDENT_PORTS.to_vec(),
                forget: SESSION_DEFAULT,
            }),
            default: classes.default,
            rules: classes.rules,
            remarks: [former, classes.remarks].concat(),
            availability: anabranch_core::Config {
                node: node.as_ref().and_then(Target::address).map(Family::from),
                // Users' traffic says little of how well it is carried.
                measures: true,
                ..availability(&source, &file.availability)?
            },
            node,
            survey_ignore: survey_ignore(&source, file.survey)?,
        };
        Ok(config)
    }

    /// An error about this file found by looking at the host.
    pub fn bad(&self, problem: impl std::fmt::Display) -> BadInput {
        BadInput::new(format!("{}: {problem}", self.path.display()))
    }

    /// Those of the LAN, then those of the links.
    pub fn devices(&self) -> Vec<&str> {
        let lan = self.lan.iter().map(String::as_str);
        lan.chain(self.links.iter().map(|link| link.device.as_str()))
            .collect()
    }

    fn claims(&self) -> impl Iterator<Item = Claim<'_>> {
        claims(&self.lan, &self.links)
    }

    /// Of the links, in the order written.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.links.iter().map(|link| link.name.as_str())
    }

    /// How the class of this name chooses; any that is no rule's does as the default class.
    pub fn algorithm(&self, class: &str) -> Algorithm {
        let default = self.default.algorithm(self.policy.policy);
        let mut rules = self.rules.iter();
        let rule = rules.find(|rule| rule.name() == class);
        rule.map_or(default, |rule| rule.class.algorithm(default))
    }

    /// The link of this name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }
}

impl Link {
    /// What the balancer knows of it.
    pub fn spec(&self) -> LinkSpec {
        LinkSpec {
            name: self.name.clone(),
            rate_up_bps: self.up.map(Rate::bps),
            rate_down_bps: self.down.map(Rate::bps),
            weight: self.weight,
            metered: self.metered,
            routed: !self.nat,
            on_return: self.on_return,
        }
    }

    /// Those of one family that are written.
    pub fn written_targets(&self, family: Family) -> impl Iterator<Item = Target> {
        let written = self.probe.iter();
        written.filter(move |target| target.is_of(family)).cloned()
    }

    /// Whom the link asks of one family, before anything is found out. Never empty.
    pub fn targets(&self, family: Family) -> Vec<Target> {
        let mut all: Vec<Target> = self.written_targets(family).collect();
        if all.is_empty() {
            all = DEFAULT_TARGETS[family.index()].to_vec();
        }
        all.extend(portal_pages().filter(|_| self.captive));
        all
    }

    /// Whether the configuration says anything of how the link has a family.
    pub fn names(&self, family: Family) -> bool {
        let has_prefix = family == Family::V6 && self.prefix6.is_some();
        has_prefix || self.gateway[family].is_some() || self.address[family].is_some()
    }

    /// Bytes of a month of probes of one family on a link without traffic, in both directions together.
    pub fn probe_bytes_a_month(
        &self,
        family: Family,
        availability: &anabranch_core::Config,
    ) -> u64 {
        const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);
        let factor = availability.times_rarer(self.metered);
        let probes = MONTH.as_millis() / (availability.idle_probe * factor).as_millis().max(1);
        let mut targets = self.targets(family);
        // Asked beside the others, and much more rarely.
        targets.retain(|target| target.kind() != Kind::Http);
        let bytes: u64 = targets.iter().map(Target::bytes).sum();
        probes as u64 * bytes / targets.len().max(1) as u64
    }
}

/// Whether a key at the top of a file is no other role's.
fn is_gateways(key: &str) -> bool {
    key != SERVICE && key != TRUNK
}

/// A key of a gateway in a file that says nothing else of one: for another role, or by mistake.
fn without_a_gateway<'s>(source: &'s Source<'_>) -> Option<&'s str> {
    let has_any = ["lan", "link"]
        .iter()
        .any(|key| source.span(&[key]).is_some());
    source.keys().find(|key| !has_any && is_gateways(key))
}

/// Rules, and the class of what they leave.
struct Classes {
    default: Class,
    rules: Vec<Rule>,
    remarks: Vec<Remark>,
}

impl Classes {
    fn read(
        source: &Source<'_>,
        policy: &Typed<Algorithm>,
        default: DefaultTable,
        tables: Vec<RuleTable>,
        site: Site<'_>,
    ) -> Result<Self, BadInput> {
        let source = source.within(&[]).numbered();
        let default = classes::default_class(&source, default, site)?;
        let rules = classes::rules(&source, tables, site)?;
        review_packets(
            &source,
            (policy.policy, &["policy"]),
            &default,
            &rules,
            site.links,
        )?;
        let remarks = [
            classes::review(&source, &rules, site.lan)?,
            classes::review_own(&source, &rules)?,
        ]
        .concat();
        Ok(Self {
            default,
            rules,
            remarks,
        })
    }
}

/// Moves what is spelled as before there were classes to where it is spelled now; a warning for each.
fn take_former(source: &Source<'_>, file: &mut File) -> Result<Vec<Remark>, BadInput> {
    let numbered = source.within(&[]).numbered();
    let warn = |key: &[&str], now: &str| {
        let value = source.text(key).unwrap_or_default();
        let problem = format!("is a key of the default class; write {now} = {value}");
        Remark::Warning(numbered.bad(key, problem).to_string())
    };
    let mut warnings = Vec::new();
    for (name, link) in &file.link {
        if link.on_return.is_some() {
            warnings.push(warn(&["link", name, "on_return"], "default.on_return"));
        }
    }
    let SessionsTable { stick, except } = std::mem::take(&mut file.sessions);
    if stick.is_some() {
        warnings.push(warn(&["sessions", "stick"], "default.stick"));
        former(source, "stick", &mut file.default.stick, stick)?;
    }
    if except.is_some() {
        let ports = except.as_deref().unwrap_or_default();
        classes::check_except(ports)
            .map_err(|problem| source.bad(&["sessions", "except"], problem))?;
        warnings.push(warn(&["sessions", "except"], "default.except"));
        former(source, "except", &mut file.default.except, except)?;
    }
    Ok(warnings)
}

fn survey_ignore(source: &Source<'_>, table: SurveyTable) -> Result<Vec<String>, BadInput> {
    let words = table.ignore.map_or(Vec::new(), |OneOrMore(words)| words);
    let name = |words: &str| words.split(' ').next().unwrap_or_default().to_owned();
    match words.iter().find(|words| !NAMES.contains(&&*name(words))) {
        None => Ok(words),
        Some(unknown) => {
            let problem = format!(
                "no finding is called {:?}; there are: {}; a subject may follow, as `check` shows it",
                name(unknown),
                NAMES.join(", ")
            );
            Err(source.bad(&["survey", "ignore"], problem))
        }
    }
}

fn former<T>(
    source: &Source<'_>,
    key: &str,
    present: &mut Option<T>,
    former: Option<T>,
) -> Result<(), BadInput> {
    if present.is_some() {
        let problem = format!("default.{key} is there, too; leave this out");
        return Err(source.bad(&["sessions", key], problem));
    }
    *present = former;
    Ok(())
}

fn links(
    source: &Source<'_>,
    tables: BTreeMap<String, LinkTable>,
    (probe, captive): (Option<&[Target]>, bool),
    on_return: Option<OnReturn>,
) -> Result<Vec<Link>, BadInput> {
    if tables.is_empty() {
        return Err(source.bad(
            &["link"],
            r#"no link; write link.NAME = { device = "eth1", down = "500mbit", up = "100mbit" }"#,
        ));
    }
    if tables.len() > LINKS_MAX {
        return Err(source.bad(
            &["link"],
            format!("{} links; at most {LINKS_MAX} are allowed", tables.len()),
        ));
    }
    let mut tables: Vec<_> = tables.into_iter().collect();
    tables.sort_by_key(|(name, _)| source.position(&["link", name]));
    let weighted = tables.iter().any(|(_, table)| table.weight.is_some());
    if let Some((name, _)) = tables
        .iter()
        .find(|(_, table)| weighted && table.weight.is_none())
    {
        return Err(source.bad(
            &["link", name],
            "has no weight but others have; give every link a weight, or none",
        ));
    }
    tables
        .into_iter()
        .map(|(name, table)| link(source, name, table, (probe, captive), on_return))
        .collect()
}

fn link(
    source: &Source<'_>,
    name: String,
    table: LinkTable,
    (probe, captive): (Option<&[Target]>, bool),
    on_return: Option<OnReturn>,
) -> Result<Link, BadInput> {
    let bad = |key, problem: &str| Err(source.bad(&["link", &name, key], problem));
    if !is_name(&name, LINK_NAME_CHARS_MAX) {
        let allowed =
            format!("a link's name has 1 to {LINK_NAME_CHARS_MAX} letters, digits, '-' and '_'");
        return Err(source.bad(&["link", &name], allowed));
    }
    if table
        .weight
        .is_some_and(|weight| !(1..=1000).contains(&weight))
    {
        return bad("weight", "a weight is a whole number from 1 to 1000");
    }
    let address_of = |written: Option<HostAddress>| written.map(|HostAddress(address)| address);
    let [gateway, address] = [table.gateway, table.address].map(address_of);
    for (key, address) in [("gateway", gateway), ("address", address)] {
        if address.is_some_and(|address| !is_of_one_host(address.into())) {
            return bad(key, "must be the IPv4 address of one host");
        }
    }
    let address_of = |written: Option<HostAddress6>| written.map(|HostAddress6(address)| address);
    let [gateway6, address6] = [table.gateway6, table.address6].map(address_of);
    for (key, address) in [("gateway6", gateway6), ("address6", address6)] {
        if address.is_some_and(|a| a.is_unspecified() || a.is_loopback() || a.is_multicast()) {
            return bad(key, "must be the IPv6 address of one host");
        }
    }
    if address6.is_some_and(|address| address.is_unicast_link_local()) {
        return bad(
            "address6",
            "is known on the line alone; write one that the internet can answer to",
        );
    }
    let prefix6 = prefix6(source, &name, table.prefix6.as_deref())?;
    if table.inbound == Inbound::Allow && !table.nat {
        return bad(
            "inbound",
            "is for links that translate prefixes; without NAT whoever is outside may begin: leave it out",
        );
    }
    let prefixes = prefixes(source, &name, table.prefixes)?;
    let own_probe = targets(source, &["link", &name, "probe"], table.probe)?;
    let written = own_probe.or(probe.map(<[Target]>::to_vec));
    let default_on_return = if table.metered {
        OnReturn::Idle
    } else {
        OnReturn::Stay
    };
    Ok(Link {
        device: table.device,
        down: table.down.map(|LineRate(rate)| rate),
        up: table.up.map(|LineRate(rate)| rate),
        metered: table.metered,
        nat: table.nat,
        weight: table.weight,
        gateway: per_family(gateway, gateway6),
        address: per_family(address, address6),
        prefix6,
        inbound: table.inbound,
        prefixes,
        probe: written.unwrap_or_default(),
        captive,
        checks: Vec::new(),
        alert: table.alert,
        on_return: table.on_return.or(on_return).unwrap_or(default_on_return),
        name,
    })
}

fn per_family(v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr>) -> PerFamily<Option<IpAddr>> {
    PerFamily::from_fn(|family| match family {
        Family::V4 => v4.map(IpAddr::V4),
        Family::V6 => v6.map(IpAddr::V6),
    })
}

fn prefix6(
    source: &Source<'_>,
    link: &str,
    written: Option<&str>,
) -> Result<Option<(Ipv6Addr, u8)>, BadInput> {
    let Some(text) = written else {
        return Ok(None);
    };
    let allowed = r#"write the network that is routed to this link, of 16 to 64 bits, like "2001:db8:1::/56""#;
    let read = || {
        let (network, length) = text.split_once('/')?;
        let (network, length): (Ipv6Addr, u8) = (network.parse().ok()?, length.parse().ok()?);
        let is_clean = network.to_bits() & u128::MAX >> length.min(127) == 0;
        (is_clean && PREFIX6_BITS.contains(&length)).then_some((network, length))
    };
    match read() {
        Some(prefix) => Ok(Some(prefix)),
        None => Err(source.bad(&["link", link, "prefix6"], allowed)),
    }
}

fn prefixes(
    source: &Source<'_>,
    link: &str,
    written: Vec<String>,
) -> Result<Vec<(IpAddr, u8)>, BadInput> {
    let prefix = |(index, text): (usize, &String)| {
        read_prefix(text).ok_or_else(|| {
            let key = ["link", link, "prefixes", &index.to_string()];
            source.bad(
                &key,
                r#"write the network's address, like "198.51.100.0/28" or "2001:db8:a:100::/56""#,
            )
        })
    };
    written.iter().enumerate().map(prefix).collect()
}

/// A network with nothing set beyond its length.
fn read_prefix(text: &str) -> Option<(IpAddr, u8)> {
    let (network, length) = text.split_once('/')?;
    let network: IpAddr = network.parse().ok()?;
    let length: u8 = length.parse().ok()?;
    let prefix = Prefix::new(network, length);
    let is_one = (1..=Prefix::host(network).length).contains(&length);
    (is_one && prefix.network() == prefix).then_some((network, length))
}

fn targets(
    source: &Source<'_>,
    key: &[&str],
    written: Option<OneOrMore>,
) -> Result<Option<Vec<Target>>, BadInput> {
    let Some(OneOrMore(written)) = written else {
        return Ok(None);
    };
    if !(1..=TARGETS_MAX).contains(&written.len()) {
        return Err(source.bad(key, format!("1 to {TARGETS_MAX} probe targets are allowed")));
    }
    let target = |(index, text): (usize, &String)| {
        let index = index.to_string();
        let within = [key, &[&index]].concat();
        let place = source.span(&within).map_or(key, |_| &within);
        text.parse()
            .map_err(|problem: String| source.bad(place, problem))
    };
    written
        .iter()
        .enumerate()
        .map(target)
        .collect::<Result<_, _>>()
        .map(Some)
}

/// Round trips are measured to an address.
fn node(source: &Source<'_>, written: Option<Target>) -> Result<Option<Target>, BadInput> {
    match written {
        Some(Target::Http(_)) => Err(source.bad(
            &["probe", "node"],
            "a page is no node; write \"icmp:ADDRESS\", \"dns:ADDRESS\" or \"tcp:ADDRESS:PORT\"",
        )),
        node => Ok(node),
    }
}

/// The algorithm, if every link says what it needs to know.
fn policy(
    source: &Source<'_>,
    written: Option<Typed<Algorithm>>,
    links: &[Link],
    node: Option<&Target>,
) -> Result<Typed<Algorithm>, BadInput> {
    let default = if written.is_none() {
        "the default "
    } else {
        ""
    };
    let typed = match written {
        Some(typed) => typed.as_typed(source.text(&["policy"])),
        None => Algorithm::default().into(),
    };
    if typed.policy.needs_node() && node.is_none() {
        let problem = format!(
            "{typed} measures round trips to a fixed node; write probe.node = \"icmp:ADDRESS\", \"dns:ADDRESS\" or \"tcp:ADDRESS:PORT\""
        );
        return Err(source.bad(&["policy"], problem));
    }
    let need = typed.policy.needs_rate();
    match links.iter().find(|link| !need.is_met_by(&link.spec())) {
        Some(link) => Err(source.bad(
            &["policy"],
            format!(
                "{default}{typed} needs {need} of every link, and link.{} has none",
                link.name
            ),
        )),
        None => Ok(typed),
    }
}

/// Every device has one part.
fn devices(source: &Source<'_>, lan: &[String], links: &[Link]) -> Result<(), BadInput> {
    if lan.is_empty() {
        return Err(source.bad(&["lan"], r#"no LAN device; write lan = ["eth0"]"#));
    }
    check_claims(source, claims(lan, links), "a device is LAN or one link")
}

fn claims<'a>(lan: &'a [String], links: &'a [Link]) -> impl Iterator<Item = Claim<'a>> {
    let lan = lan.iter().enumerate();
    let lan = lan.map(|(index, device)| claim(&["lan", &index.to_string()], device));
    let links = links.iter();
    lan.chain(links.map(|link| claim(&["link", &link.name, "device"], &link.device)))
}

fn is_device_name(name: &str) -> bool {
    (1..=DEVICE_NAME_CHARS_MAX).contains(&name.len())
        && name != "."
        && name != ".."
        && name
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"/:\"\\".contains(&byte))
}

/// The defaults of the balancer with what is written; the balancer says what fits together.
fn availability(
    source: &Source<'_>,
    table: &AvailabilityTable,
) -> Result<anabranch_core::Config, BadInput> {
    let default = anabranch_core::Config::default();
    let time = |written: Option<Span>, default| written.map_or(default, |Span(time)| time);
    let config = anabranch_core::Config {
        poll: time(table.poll, default.poll),
        silence: time(table.silence, default.silence),
        one_way: time(table.one_way, default.one_way),
        idle_probe: time(table.idle_probe, default.idle_probe),
        probe_interval: time(table.probe_interval, default.probe_interval),
        down_interval: time(table.down_interval, default.down_interval),
        metered_factor: table.metered_factor.unwrap_or(default.metered_factor),
        far_silence: time(table.far_silence, default.far_silence),
        hold_down: time(table.hold_down, default.hold_down),
        hold_down_max: time(table.hold_down_max, default.hold_down_max),
        hold_forget: time(table.hold_forget, default.hold_forget),
        grace: time(table.grace, default.grace),
        deadline_min: time(table.deadline_min, default.deadline_min),
        deadline_unmeasured: time(table.deadline_unmeasured, default.deadline_unmeasured),
        deadline_max: time(table.deadline_max, default.deadline_max),
        queue_max: time(table.queue_max, default.queue_max),
        window: table.window.unwrap_or(default.window),
        window_age: time(table.window_age, default.window_age),
        down_loss: table.down_loss.unwrap_or(default.down_loss),
        down_consecutive: table.down_consecutive.unwrap_or(default.down_consecutive),
        up_loss: table.up_loss.unwrap_or(default.up_loss),
        up_consecutive: table.up_consecutive.unwrap_or(default.up_consecutive),
        measures: default.measures,
        node: None,
    };
    match config.validate() {
        Ok(()) => Ok(config),
        Err(ConfigError {
            key,
            value,
            allowed,
        }) => Err(source.bad(
            &["availability", key],
            format!("{value} is outside of {allowed}"),
        )),
    }
}

fn nat(source: &Source<'_>, table: &NatTable) -> Result<Nat, BadInput> {
    let time = |key, written: Option<Span>, default_s| match written {
        None => Ok(Duration::from_secs(default_s)),
        Some(Span(time)) if (TIMEOUT_MIN..=TIMEOUT_MAX).contains(&time) => Ok(time),
        Some(_) => Err(source.bad(
            &["nat", key],
            format!(
                "a time from {TIMEOUT_MIN:?} to {}h",
                TIMEOUT_MAX.as_secs() / 3600
            ),
        )),
    };
    let Ports(ports) = table.ports.unwrap_or(Ports([1024, u16::MAX]));
    if ports[0] < 1024 || ports[0] > ports[1] {
        return Err(source.bad(
            &["nat", "ports"],
            "write [first, last], within 1024 to 65535, like [20000, 29999]",
        ));
    }
    Ok(Nat {
        tcp_established: time("tcp_established", table.tcp_established, 7440)?,
        tcp_transitory: time("tcp_transitory", table.tcp_transitory, 240)?,
        tcp_unanswered: time("tcp_unanswered", table.tcp_unanswered, 240)?,
        udp: time("udp", table.udp, 300)?,
        icmp: time("icmp", table.icmp, 60)?,
        ports,
        udp_filter: table.udp_filter.unwrap_or(UdpFilter::AddressDependent),
        fallback: table.fallback.unwrap_or(Fallback::Kernel),
        forwards: table.forwards.unwrap_or(Forwards::Drop),
        lan_sources: table.lan_sources.unwrap_or(LanSources::Strict),
        reserved: reserved(source, table.reserved.clone().unwrap_or_default())?,
    })
}

fn reserved(source: &Source<'_>, ports: Vec<u16>) -> Result<[u16; RESERVED_MAX], BadInput> {
    if ports.len() > RESERVED_MAX || ports.contains(&0) {
        let allowed = format!("at most {RESERVED_MAX} ports from 1 to 65535 are allowed");
        return Err(source.bad(&["nat", "reserved"], allowed));
    }
    let mut ports = ports.into_iter();
    Ok([(); RESERVED_MAX].map(|()| ports.next().unwrap_or(0)))
}

fn limits(source: &Source<'_>, table: &LimitsTable) -> Result<Limits, BadInput> {
    let flows = table.flows.unwrap_or(FLOWS_DEFAULT);
    if !(1..=FLOWS_MAX).contains(&flows) {
        return Err(source.bad(
            &["limits", "flows"],
            format!("1 to {FLOWS_MAX} flows are allowed"),
        ));
    }
    let flows_per_host = table
        .flows_per_host
        .unwrap_or(FLOWS_PER_HOST_DEFAULT.min(flows));
    if !(1..=flows).contains(&flows_per_host) {
        let allowed = format!("1 to limits.flows ({flows}) are allowed");
        return Err(source.bad(&["limits", "flows_per_host"], allowed));
    }
    let prefixes = table.prefixes.unwrap_or(PREFIXES_DEFAULT);
    if !(1..=PREFIXES_MAX).contains(&prefixes) {
        let allowed = format!("1 to {PREFIXES_MAX} prefixes are allowed");
        return Err(source.bad(&["limits", "prefixes"], allowed));
    }
    Ok(Limits {
        flows,
        flows_per_host,
        prefixes,
    })
}

#[cfg(test)]
mod tests;
