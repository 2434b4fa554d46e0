//! The configuration of a gateway, from the keys at the top of the file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anabranch_config::{Source, read_text};
use anabranch_core::checks::ProbeTarget;
use anabranch_core::rules::file::{Remark, Site};
use anabranch_core::rules::{Class, Rule};
use anabranch_core::{Algorithm, ConfigError, Family, LinkSpec, Sessions, Typed};

use super::claims::{Claim, check_claims, claim};
use super::classes::{Classes, take_former};
use super::file::{File, OneOrMore, SurveyTable};
use super::link::{Link, links};
use super::nat::{Limits, Nat, limits, nat};
use super::targets::{node, targets};
use super::{checks, is_gateways};
use crate::error::BadInput;
use crate::neighbours::NAMES;

const GATEWAY_NEEDS: &str = r#"a gateway's key, and there is no gateway: write lan = ["eth0"] and link.NAME = { device = "eth1" }, or leave it out"#;
/// Remote ports whose connections are balanced one by one: those of the web.
const INDEPENDENT_PORTS: [u16; 2] = [80, 443];
/// How long a session is remembered after its last flow began.
const SESSION_DEFAULT: Duration = Duration::from_secs(600);

/// A valid configuration of a gateway.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file, for messages.
    pub path: PathBuf,
    /// Devices of the LAN.
    pub lan: Vec<String>,
    /// The links in the order of the file, which is the order of preference for traffic that is not balanced.
    pub links: Vec<Link>,
    /// The policy of the default class.
    pub policy: Typed<Algorithm>,
    /// Which connections stay on one link.
    pub sessions: Sessions,
    /// The other settings of the default class.
    pub default: Class,
    /// Rules in the order of the file; a flow belongs to the first that matches.
    pub rules: Vec<Rule>,
    /// Remarks about the file, for people.
    pub remarks: Vec<Remark>,
    /// The fixed node, for policies that measure round trips to it.
    pub node: Option<ProbeTarget>,
    /// When a link is suspected, declared down, and used again.
    pub availability: anabranch_core::Config,
    /// Settings of address translation.
    pub nat: Nat,
    /// Limits of flows.
    pub limits: Limits,
    /// Findings of the survey that are accepted: a name of [`neighbours::NAMES`](crate::neighbours::NAMES), or a name and a
    /// subject.
    pub survey_ignore: Vec<String>,
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
                node: node
                    .as_ref()
                    .and_then(ProbeTarget::address)
                    .map(Family::from),
                // Traffic of users says little about loss and delay.
                measures: true,
                ..availability(&source, file.availability)?
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

    /// The devices of the LAN, then those of the links.
    pub fn devices(&self) -> Vec<&str> {
        let lan = self.lan.iter().map(String::as_str);
        lan.chain(self.links.iter().map(|link| link.device.as_str()))
            .collect()
    }

    pub(super) fn claims(&self) -> impl Iterator<Item = Claim<'_>> {
        claims(&self.lan, &self.links)
    }

    /// The names of the links, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.links.iter().map(|link| link.name.as_str())
    }

    /// The algorithm of the class of this name; that of the default class if no rule has the name.
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

/// A key of a gateway in a file without a gateway: meant for another role, or a mistake.
fn without_a_gateway<'s>(source: &'s Source<'_>) -> Option<&'s str> {
    let has_any = ["lan", "link"]
        .iter()
        .any(|key| source.span(&[key]).is_some());
    source.keys().find(|key| !has_any && is_gateways(key))
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

/// The algorithm, after checking that every link declares what it needs.
fn policy(
    source: &Source<'_>,
    written: Option<Typed<Algorithm>>,
    links: &[Link],
    node: Option<&ProbeTarget>,
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

/// Checks that every device has one role.
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

/// Reads the availability settings; the balancer checks that they fit together.
fn availability(
    source: &Source<'_>,
    config: anabranch_core::Config,
) -> Result<anabranch_core::Config, BadInput> {
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
