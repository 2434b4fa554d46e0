//! Rules in files, of a gateway's configuration and of scenarios: `[[rule]]`, and `[default]` for traffic that no rule
//! matches.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use anabranch_config::either::list;
use anabranch_config::{BadInput, Either, Source, Span, did_you_mean, is_name, read_either};
use anabranch_policy::Granularity;
use anabranch_policy::abi::{EXCEPT_MAX, TIERS_MAX};
use serde::de::{Error, SeqAccess};
use serde::{Deserialize, Deserializer};

use super::class::{Class, WhenNone};
use super::compile::compile;
use super::coverage::{Finding, Sight, coverage};
use super::dscp::{DSCPS, dscp_of, value_of};
use super::matches::{BadPrefix, ICMP, ICMP6, Matches, Origin, Prefix, TCP, UDP};
use super::own::OWN_MAX;
use super::schedule::{Moment, Schedule};
use super::{RULES_MAX, Rule};
use crate::algorithm::Algorithm;
use crate::link::{Direction, LinkSpec, OnReturn};
use crate::sessions::SESSION_MAX;
use crate::tuple::granularity_of;
use crate::typed::Typed;

/// The name of the class of traffic that no rule matches.
pub const DEFAULT_CLASS: &str = "default";

const NAME_CHARS_MAX: usize = 32;
const SESSION_MIN: Duration = Duration::from_secs(10);
const PROTOCOLS: [(&str, u8); 4] = [("tcp", TCP), ("udp", UDP), ("icmp", ICMP), ("icmp6", ICMP6)];

/// The IP protocol of this name.
pub fn protocol_of(name: &str) -> Option<u8> {
    value_of(&PROTOCOLS, name)
}

/// A `[[rule]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "keys of a file, which docs/rules.md explains")]
pub struct RuleTable {
    pub name: String,
    pub from: Option<Words>,
    pub to: Option<Words>,
    pub protocol: Option<Words>,
    pub ports: Option<Words>,
    pub source_ports: Option<Words>,
    pub dscp: Option<Words>,
    pub device: Option<Words>,
    pub when: Option<Words>,
    pub policy: Option<Typed<Algorithm>>,
    #[serde(default, deserialize_with = "some_granularity")]
    pub granularity: Option<Granularity>,
    pub links: Option<Words>,
    pub then: Option<Tiers>,
    pub none: Option<WhenNone>,
    pub direction: Option<Direction>,
    pub flows_per_host: Option<u32>,
    pub on_return: Option<OnReturn>,
    pub stick: Option<bool>,
    pub except: Option<Vec<u16>>,
    pub forget: Option<Span>,
}

/// `[default]`. Its policy is that of the whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "keys of a file, which docs/rules.md explains")]
pub struct DefaultTable {
    #[serde(default, deserialize_with = "some_granularity")]
    pub granularity: Option<Granularity>,
    pub links: Option<Words>,
    pub then: Option<Tiers>,
    pub none: Option<WhenNone>,
    pub direction: Option<Direction>,
    pub flows_per_host: Option<u32>,
    pub on_return: Option<OnReturn>,
    pub stick: Option<bool>,
    pub except: Option<Vec<u16>>,
    pub forget: Option<Span>,
}

/// A text or number, or a list of these.
#[derive(Debug, Clone, Default)]
pub struct Words(Vec<String>);

/// `["lte"]`, or `[["lte"], ["satellite"]]`.
#[derive(Debug, Clone, Default)]
pub struct Tiers(Vec<Vec<String>>);

fn some_granularity<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Granularity>, D::Error> {
    granularity_of(deserializer).map(Some)
}

/// A remark about a file without errors, on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remark {
    /// Something that should be changed.
    Warning(String),
    /// Something worth knowing.
    Note(String),
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remark::Warning(text) => write!(f, "warning: {text}"),
            Remark::Note(text) => write!(f, "note: {text}"),
        }
    }
}

/// The names that rules may use.
#[derive(Debug, Clone, Copy)]
pub struct Site<'a> {
    /// All links, in any order.
    pub links: &'a [LinkSpec],
    /// LAN devices.
    pub lan: &'a [String],
    /// Whether a fixed node is configured.
    pub node: bool,
}

/// Reads the rules of a file, and checks each by itself.
pub fn rules(
    source: &Source<'_>,
    tables: Vec<RuleTable>,
    site: Site<'_>,
) -> Result<Vec<Rule>, BadInput> {
    if tables.len() > RULES_MAX {
        let problem = format!("{} rules; at most {RULES_MAX} are allowed", tables.len());
        return Err(source.bad(&["rule"], problem));
    }
    let mut rules: Vec<Rule> = Vec::new();
    for (index, table) in tables.into_iter().enumerate() {
        let index = index.to_string();
        let at = Place {
            source,
            table: &["rule", &index],
            site,
        };
        at.check_name(&table.name, &rules)?;
        rules.push(at.rule(table)?);
    }
    Ok(rules)
}

/// The class of traffic that no rule matches. The caller sets its policy.
pub fn default_class(
    source: &Source<'_>,
    table: DefaultTable,
    site: Site<'_>,
) -> Result<Class, BadInput> {
    let at = Place {
        source,
        table: &["default"],
        site,
    };
    Ok(Class {
        name: DEFAULT_CLASS.to_owned(),
        policy: None,
        granularity: table.granularity,
        tiers: at.tiers(table.links, table.then, table.none)?,
        when_none: table.none.unwrap_or_default(),
        direction: table.direction,
        flows_per_host: at.quota(table.flows_per_host)?,
        on_return: table.on_return,
        stick: table.stick,
        except: at.except(table.except)?,
        forget: at.forget(table.forget)?,
    })
}

/// Refuses rules that exceed the programs' limits, and rules that can never match. Returns remarks about the others.
pub fn review(
    source: &Source<'_>,
    rules: &[Rule],
    lan: &[String],
) -> Result<Vec<Remark>, BadInput> {
    compile(rules, Moment::new(0, 0), |_| Some(1)).map_err(|error| source.bad(&["rule"], error))?;
    let place = |index: usize| {
        let key = ["rule", &index.to_string(), "name"];
        let line = source.line(&key).unwrap_or_default();
        format!("{} (line {line})", rules[index].name())
    };
    let listed = |rules: &[usize]| {
        let places: Vec<String> = rules.iter().map(|rule| place(*rule)).collect();
        places.join(", ")
    };
    let about =
        |index: usize, problem: String| source.bad(&["rule", &index.to_string(), "name"], problem);
    let mut remarks = Vec::new();
    for (index, sight) in coverage(rules, lan).into_iter().enumerate() {
        match sight {
            Sight::Clear => {}
            Sight::Never(Finding::Contradiction(why)) => {
                return Err(about(index, format!("can never match: {why}")));
            }
            Sight::Never(Finding::Covered(by)) => {
                let problem = format!(
                    "can never match: all of its traffic is taken before by {}",
                    listed(&by)
                );
                return Err(about(index, problem));
            }
            Sight::Partly { crossed, within } => {
                if !crossed.is_empty() {
                    let problem = format!(
                        "shadowed: part of its traffic is taken before by {}",
                        listed(&crossed)
                    );
                    remarks.push(Remark::Warning(about(index, problem).to_string()));
                }
                if !within.is_empty() {
                    let problem = format!("except what is taken before by {}", listed(&within));
                    remarks.push(Remark::Note(about(index, problem).to_string()));
                }
            }
            Sight::Unknown => {
                let problem = "whether earlier rules leave it anything was too much to find out";
                remarks.push(Remark::Note(about(index, problem.to_owned()).to_string()));
            }
        }
    }
    Ok(remarks)
}

/// Checks rules for the gateway's own traffic, which the kernel's routing rules handle: refuses what these cannot match, and what
/// would become too many of them. If a rule does not name that traffic, a field that they cannot match is a warning.
pub fn review_own(source: &Source<'_>, rules: &[Rule]) -> Result<Vec<Remark>, BadInput> {
    let mut remarks = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        let index = index.to_string();
        let about = |key: &str, problem: String| source.bad(&["rule", &index, key], problem);
        for beyond in rule.matches.beyond_routing() {
            let problem = format!(
                "routing rules, which lead the gateway's own traffic, cannot match {}",
                beyond.what
            );
            if rule.matches.names_host() {
                let problem = format!("{problem}: {}", beyond.instead);
                return Err(about(beyond.key, problem));
            }
            let problem =
                format!(r#"{problem}; this is for LAN hosts alone, as from = "0.0.0.0/0" says"#);
            remarks.push(Remark::Warning(about(beyond.key, problem).to_string()));
        }
        let count = rule.matches.own_traffic().len();
        if count > OWN_MAX {
            let problem = format!(
                "the gateway's own traffic would take {count} routing rules, of which {OWN_MAX} are allowed: name fewer or \
                 wider networks and port ranges, or networks in from if it is for LAN hosts alone"
            );
            return Err(about("name", problem));
        }
    }
    Ok(remarks)
}

/// The position of a class in the file, and the names that it may use.
struct Place<'a> {
    source: &'a Source<'a>,
    table: &'a [&'a str],
    site: Site<'a>,
}

impl Place<'_> {
    fn bad(&self, key: &[&str], problem: impl fmt::Display) -> BadInput {
        self.source.bad(&[self.table, key].concat(), problem)
    }

    fn check_name(&self, name: &str, others: &[Rule]) -> Result<(), BadInput> {
        if !is_name(name, NAME_CHARS_MAX) {
            let allowed =
                format!("a rule's name has 1 to {NAME_CHARS_MAX} letters, digits, '-' and '_'");
            return Err(self.bad(&["name"], allowed));
        }
        if name == DEFAULT_CLASS {
            return Err(self.bad(&["name"], "this is what no rule matches; choose another"));
        }
        match others.iter().position(|other| other.name() == name) {
            Some(other) => Err(self.bad(&["name"], format!("rule[{other}] has this name"))),
            None => Ok(()),
        }
    }

    fn rule(&self, table: RuleTable) -> Result<Rule, BadInput> {
        let matches = Matches {
            from: self.each("from", table.from, origin)?,
            to: self.each("to", table.to, prefix)?,
            protocols: self.each("protocol", table.protocol, protocol)?,
            ports: self.each("ports", table.ports, ports)?,
            source_ports: self.each("source_ports", table.source_ports, ports)?,
            dscp: self.each("dscp", table.dscp, dscp)?,
            devices: self.each("device", table.device, |word| self.device(word))?,
            when: self.schedule(table.when)?,
        };
        let tiers = self.tiers(table.links, table.then, table.none)?;
        let web = matches.is_web().then_some(Direction::Down);
        let class = Class {
            policy: self.policy(table.policy, tiers.as_deref())?,
            name: table.name,
            granularity: table.granularity,
            tiers,
            when_none: table.none.unwrap_or_default(),
            direction: table.direction.or(web),
            flows_per_host: self.quota(table.flows_per_host)?,
            on_return: table.on_return,
            stick: table.stick,
            except: self.except(table.except)?,
            forget: self.forget(table.forget)?,
        };
        Ok(Rule { matches, class })
    }

    fn forget(&self, written: Option<Span>) -> Result<Option<Duration>, BadInput> {
        let allowed = SESSION_MIN..=SESSION_MAX;
        match written {
            Some(Span(time)) if !allowed.contains(&time) => {
                Err(self.bad(&["forget"], "allowed: 10s to 48h"))
            }
            written => Ok(written.map(|Span(time)| time)),
        }
    }

    /// Parses the values of a key at this position; an error names the wrong value.
    fn each<T>(
        &self,
        key: &str,
        written: Option<Words>,
        value: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, BadInput> {
        let Some(Words(words)) = written else {
            return Ok(Vec::new());
        };
        if words.is_empty() {
            return Err(self.bad(&[key], "an empty list; leave the key out for any"));
        }
        let one = |(index, word): (usize, &String)| {
            value(word).map_err(|problem| {
                let index = index.to_string();
                let within = [self.table, &[key, &index]].concat();
                match self.source.span(&within) {
                    Some(_) => self.source.bad(&within, problem),
                    None => self.bad(&[key], problem),
                }
            })
        };
        words.iter().enumerate().map(one).collect()
    }

    fn device(&self, name: &str) -> Result<String, String> {
        let lan = || self.site.lan.iter().map(String::as_str);
        match lan().any(|device| device == name) {
            true => Ok(name.to_owned()),
            false => Err(format!(
                "not a LAN device; allowed: {}{}",
                lan().collect::<Vec<_>>().join(", "),
                did_you_mean(name, lan())
            )),
        }
    }

    fn schedule(&self, written: Option<Words>) -> Result<Option<Schedule>, BadInput> {
        let window = |text: &str| {
            text.parse::<Schedule>()
                .map_err(|problem| problem.to_string())
        };
        let windows = self.each("when", written, window)?;
        Ok((!windows.is_empty()).then(|| windows.iter().collect()))
    }

    /// Reads `links`, and `then` as one tier or several.
    fn tiers(
        &self,
        links: Option<Words>,
        then: Option<Tiers>,
        none: Option<WhenNone>,
    ) -> Result<Option<Vec<Vec<String>>>, BadInput> {
        let Some(Words(first)) = links else {
            return match then {
                Some(_) => Err(self.bad(&["then"], "write the links to use first as links = […]")),
                None => Ok(None),
            };
        };
        let Tiers(rest) = then.unwrap_or_default();
        if first.is_empty() {
            return match none {
                _ if !rest.is_empty() => Err(self.bad(&["links"], "no link, but some to use then")),
                Some(WhenNone::Drop | WhenNone::Kernel) => Ok(Some(Vec::new())),
                _ => Err(self.bad(
                    &["links"],
                    r#"no link; leave the key out for all, or write none = "drop" or "kernel""#,
                )),
            };
        }
        let tiers = [vec![first], rest].concat();
        if tiers.len() > TIERS_MAX {
            let allowed = format!("at most {} tiers are allowed behind links", TIERS_MAX - 1);
            return Err(self.bad(&["then"], allowed));
        }
        let mut seen: Vec<&str> = Vec::new();
        for (tier, names) in tiers.iter().enumerate() {
            let key = ["links", "then"][usize::from(tier > 0)];
            if names.is_empty() {
                return Err(self.bad(&[key], "a tier without links"));
            }
            for name in names {
                self.check_link(name)
                    .map_err(|problem| self.bad(&[key], problem))?;
                if seen.contains(&name.as_str()) {
                    return Err(self.bad(&[key], format!("{name} is there twice")));
                }
                seen.push(name);
            }
        }
        Ok(Some(tiers))
    }

    fn check_link(&self, name: &str) -> Result<(), String> {
        let known = || self.site.links.iter().map(|link| link.name.as_str());
        if known().any(|link| link == name) {
            return Ok(());
        }
        Err(format!(
            "no link has the name {name}; allowed: {}{}",
            known().collect::<Vec<_>>().join(", "),
            did_you_mean(name, known())
        ))
    }

    /// Checks that each of its links declares what the policy needs.
    fn policy(
        &self,
        written: Option<Typed<Algorithm>>,
        tiers: Option<&[Vec<String>]>,
    ) -> Result<Option<Typed<Algorithm>>, BadInput> {
        let Some(typed) = written else {
            return Ok(None);
        };
        let key = [self.table, &["policy"]].concat();
        let typed = typed.as_typed(self.source.text(&key));
        if typed.policy.needs_node() && !self.site.node {
            let problem =
                format!("{typed} measures round trips to a fixed node: name one in probe.node");
            return Err(self.source.bad(&key, problem));
        }
        let need = typed.policy.needs_rate();
        let is_used = |link: &&LinkSpec| {
            tiers.is_none_or(|tiers| tiers.iter().any(|tier| tier.contains(&link.name)))
        };
        let mut used = self.site.links.iter().filter(is_used);
        match used.find(|link| !need.is_met_by(link)) {
            Some(link) => Err(self.source.bad(
                &key,
                format!(
                    "{typed} needs {need} of every link, and link.{} has none",
                    link.name
                ),
            )),
            None => Ok(Some(typed)),
        }
    }

    fn quota(&self, flows: Option<u32>) -> Result<Option<u32>, BadInput> {
        match flows {
            Some(0) => Err(self.bad(
                &["flows_per_host"],
                r#"1 or more; links = [] and none = "drop" refuse all"#,
            )),
            flows => Ok(flows),
        }
    }

    fn except(&self, ports: Option<Vec<u16>>) -> Result<Option<Vec<u16>>, BadInput> {
        match ports.as_deref().map_or(Ok(()), check_except) {
            Ok(()) => Ok(ports),
            Err(problem) => Err(self.bad(&["except"], problem)),
        }
    }
}

/// Refuses more ports than the programs can store.
pub fn check_except(ports: &[u16]) -> Result<(), String> {
    match ports.len() <= EXCEPT_MAX && !ports.contains(&0) {
        true => Ok(()),
        false => Err(format!(
            "at most {EXCEPT_MAX} ports from 1 to 65535 are allowed"
        )),
    }
}

fn origin(word: &str) -> Result<Origin, String> {
    match word {
        "self" => Ok(Origin::Host),
        word => prefix(word)
            .map(Origin::Prefix)
            .map_err(|problem| format!(r#"{problem}; "self" is the gateway's own traffic"#)),
    }
}

fn prefix(word: &str) -> Result<Prefix, String> {
    word.parse().map_err(|bad: BadPrefix| bad.to_string())
}

fn protocol(word: &str) -> Result<u8, String> {
    protocol_of(word).ok_or_else(|| {
        let names = PROTOCOLS.map(|(name, _)| name);
        format!("allowed: {}{}", names.join(", "), did_you_mean(word, names))
    })
}

fn ports(word: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let port = |text: &str| text.trim().parse().ok().filter(|port| *port > 0);
    match (port(first), port(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => Err(r#"write a port from 1 to 65535, or a range like "5000-5010""#.to_owned()),
    }
}

fn dscp(word: &str) -> Result<u8, String> {
    dscp_of(word).ok_or_else(|| {
        let names = DSCPS.map(|(name, _)| name);
        format!(
            "a number from 0 to 63 or one of {}{}",
            names.join(", "),
            did_you_mean(word, names)
        )
    })
}

/// One word of [`Words`].
struct Word(String);

/// An element of [`Tiers`]. Beside lists, a link alone is a tier.
enum LinkOrTier {
    Link(String),
    Tier(Vec<String>),
}

read_either!(Word, Words, Tiers, LinkOrTier);

impl Either for Word {
    const EXPECTED: &'static str = "a text or a whole number";

    fn of_text<E: Error>(text: &str) -> Result<Self, E> {
        Ok(Word(text.to_owned()))
    }

    fn of_whole<E: Error>(number: i64) -> Result<Self, E> {
        Ok(Word(number.to_string()))
    }
}

impl Either for Words {
    const EXPECTED: &'static str = "a text, a whole number, or a list of them";

    fn of_text<E: Error>(text: &str) -> Result<Self, E> {
        Ok(Words(vec![text.to_owned()]))
    }

    fn of_whole<E: Error>(number: i64) -> Result<Self, E> {
        Ok(Words(vec![number.to_string()]))
    }

    fn of_list<'de, A: SeqAccess<'de>>(words: A) -> Result<Self, A::Error> {
        let words: Vec<Word> = list(words)?;
        Ok(Words(words.into_iter().map(|Word(word)| word).collect()))
    }
}

impl Either for Tiers {
    const EXPECTED: &'static str =
        r#"links, like ["lte"], or tiers of them, like [["lte"], ["radio"]]"#;

    fn of_text<E: Error>(link: &str) -> Result<Self, E> {
        Ok(Tiers(vec![vec![link.to_owned()]]))
    }

    fn of_list<'de, A: SeqAccess<'de>>(parts: A) -> Result<Self, A::Error> {
        let parts: Vec<LinkOrTier> = list(parts)?;
        let links = parts.iter().all(|part| matches!(part, LinkOrTier::Link(_)));
        let names = parts.into_iter().map(|part| match part {
            LinkOrTier::Link(link) => vec![link],
            LinkOrTier::Tier(tier) => tier,
        });
        Ok(Tiers(match links {
            true => vec![names.flatten().collect()],
            false => names.collect(),
        }))
    }
}

impl Either for LinkOrTier {
    const EXPECTED: &'static str = "a link or a list of links";

    fn of_text<E: Error>(link: &str) -> Result<Self, E> {
        Ok(LinkOrTier::Link(link.to_owned()))
    }

    fn of_list<'de, A: SeqAccess<'de>>(links: A) -> Result<Self, A::Error> {
        list(links).map(LinkOrTier::Tier)
    }
}
