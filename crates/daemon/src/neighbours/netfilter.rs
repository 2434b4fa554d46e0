//! Findings about netfilter: rules that balanced packets never meet, although somebody intended that.
//!
//! The output of `nft --json` is read only as far as needed: at which hook each chain is, which rules are reached from it, the
//! devices and ports that they match, and whether they filter, redirect, translate or mark.

use std::collections::BTreeSet;

use anabranch_api::{Finding, Severity};
use serde_json::Value;

use super::{
    FORWARD_FILTER, INGRESS_FILTER, LAN_REDIRECT, LEGACY_IPTABLES, OUR_MARKS, PORT_FORWARD,
    PREROUTING_FILTER, finding, is_handed_over, is_ours,
};
use crate::config::{Config, Forwards};

/// Prefix of the tables of all Anabranch instances.
const OUR_TABLES: &str = "anabranch_";
/// The hooks that packets to and from the host itself pass.
const OWN_HOOKS: [&str; 4] = ["prerouting", "input", "output", "postrouting"];

/// All chains that are not ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ruleset {
    chains: Vec<Chain>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Chain {
    family: String,
    table: String,
    name: String,
    /// None: it is only reached from other chains.
    hook: Option<String>,
    /// Whether its policy is to drop.
    drops: bool,
    /// The devices of an ingress chain; empty if unknown.
    devices: Vec<String>,
    rules: Vec<Rule>,
}

/// One rule, or a jump together with the rule that it leads to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Rule {
    /// Input devices; none: any.
    iif: Option<Vec<String>>,
    /// Output devices; none: any.
    oif: Option<Vec<String>>,
    /// Destination ports.
    ports: Vec<u16>,
    /// Whether it matches the destination address.
    names_destination: bool,
    /// Whether it matches packets that belong to no connection and begin none.
    is_for_invalid: bool,
    filters: bool,
    redirects: bool,
    translates: bool,
    marks: bool,
    mark: Option<u32>,
    /// Whether it depends on connections or marks, translates, or cannot be read.
    tells_untracked_apart: bool,
    jumps: Vec<String>,
    is_docker: bool,
}

/// A rule that is reached from a hook, with the chain at the hook.
struct Reached<'a> {
    chain: &'a Chain,
    rule: Rule,
}

impl Ruleset {
    /// Parses the output of `nft --json list ruleset`.
    pub fn parse(json: &str) -> serde_json::Result<Self> {
        let listed: Value = serde_json::from_str(json)?;
        let mut ruleset = Self::default();
        for item in listed["nftables"].as_array().into_iter().flatten() {
            if let Some(chain) = item.get("chain").and_then(Chain::read) {
                ruleset.chains.push(chain);
            }
            if let Some(rule) = item.get("rule") {
                ruleset.add(rule);
            }
        }
        Ok(ruleset)
    }

    fn add(&mut self, rule: &Value) {
        let is_home = |chain: &&mut Chain| {
            rule["family"] == chain.family.as_str()
                && rule["table"] == chain.table.as_str()
                && rule["chain"] == chain.name.as_str()
        };
        if let Some(chain) = self.chains.iter_mut().find(is_home) {
            chain.rules.push(Rule::read(rule));
        }
    }

    /// A chain that marks packets before they are routed, if there is one.
    pub fn marks_before_routing(&self) -> Option<String> {
        let reached = self.reached("prerouting");
        let marking = reached.into_iter().find(|reached| reached.rule.marks)?;
        Some(marking.chain.to_string())
    }

    /// Whether any rule may treat packets of the host differently if they have a mark and no connection entry. Which
    /// chains lead to which is not considered, because the verdicts of a map may be anywhere.
    pub fn tells_untracked_apart(&self) -> bool {
        let is_own = |chain: &&Chain| {
            let hook = chain.hook.as_deref();
            hook.is_some_and(|hook| OWN_HOOKS.contains(&hook))
        };
        let own = self.chains.iter().filter(is_own);
        let beside = own.flat_map(|own| self.chains.iter().filter(|one| one.is_of_table(own)));
        let mut rules = beside.flat_map(|chain| &chain.rules);
        rules.any(|rule| rule.tells_untracked_apart)
    }

    /// Chains that drop what comes to the host and no rule of theirs accepts.
    pub fn input_filters(&self) -> impl Iterator<Item = String> {
        let chains = self.chains.iter();
        let filters = chains.filter(|chain| chain.drops && chain.hook.as_deref() == Some("input"));
        filters.map(ToString::to_string)
    }

    /// Ingress chains without devices: older versions of nft omit these in JSON.
    pub fn without_devices(&self) -> impl Iterator<Item = [&str; 3]> {
        let unnamed = self
            .chains
            .iter()
            .filter(|chain| chain.hook.as_deref() == Some("ingress") && chain.devices.is_empty());
        unnamed.map(|chain| [&*chain.family, &*chain.table, &*chain.name])
    }

    /// Sets the devices of such a chain. `text` is the output of `nft list chain`.
    pub fn name_devices(&mut self, [family, table, name]: [&str; 3], text: &str) {
        let mut lines = text.lines().filter(|line| line.contains("hook ingress"));
        let hook = lines
            .next()
            .and_then(|line| line.split(" priority ").next());
        let quoted = hook.unwrap_or_default().split('"').skip(1).step_by(2);
        let devices: Vec<String> = quoted.map(str::to_owned).collect();
        let mut chains = self.chains.iter_mut();
        let is_it = |chain: &&mut Chain| {
            chain.family == family && chain.table == table && chain.name == name
        };
        if let Some(chain) = chains.find(is_it) {
            chain.devices = devices;
        }
    }

    /// The rules that packets at a hook may reach, over any jumps.
    fn reached(&self, hook: &str) -> Vec<Reached<'_>> {
        let mut all = Vec::new();
        let hooked = self.chains.iter();
        for chain in hooked.filter(|chain| chain.hook.as_deref() == Some(hook)) {
            let mut seen = BTreeSet::from([chain.name.as_str()]);
            let mut waiting: Vec<Rule> = chain.rules.clone();
            while let Some(rule) = waiting.pop() {
                for target in &rule.jumps {
                    let beyond = self
                        .chains
                        .iter()
                        .find(|other| other.is_of_table(chain) && other.name == *target);
                    if let Some(beyond) = beyond.filter(|beyond| seen.insert(&beyond.name)) {
                        waiting.extend(beyond.rules.iter().map(|behind| rule.then(behind)));
                    }
                }
                all.push(Reached { chain, rule });
            }
        }
        all
    }
}

impl Chain {
    /// None for one of ours.
    fn read(chain: &Value) -> Option<Self> {
        let text = |key: &str| Some(chain.get(key)?.as_str()?.to_owned());
        let table = text("table")?;
        let is_foreign = !table.starts_with(OUR_TABLES);
        is_foreign.then_some(())?;
        Some(Self {
            family: text("family")?,
            table,
            name: text("name")?,
            hook: text("hook"),
            drops: chain["policy"] == "drop",
            devices: words(&chain["dev"]),
            rules: Vec::new(),
        })
    }

    fn is_of_table(&self, other: &Self) -> bool {
        (&self.family, &self.table) == (&other.family, &other.table)
    }
}

impl std::fmt::Display for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Chain {
            family,
            table,
            name,
            ..
        } = self;
        write!(f, "chain {name} of table {family} {table}")
    }
}

impl Rule {
    fn read(rule: &Value) -> Self {
        let is_docker = |key: &str| {
            let name = rule[key].as_str().unwrap_or_default();
            name.to_ascii_lowercase().starts_with("docker")
        };
        let mut read = Self {
            is_docker: is_docker("chain") || is_docker("table"),
            tells_untracked_apart: tells_untracked_apart(&rule["expr"]),
            ..Self::default()
        };
        for statement in rule["expr"].as_array().into_iter().flatten() {
            for (kind, value) in statement.as_object().into_iter().flatten() {
                read.take(kind, value);
            }
        }
        read
    }

    fn take(&mut self, kind: &str, value: &Value) {
        match kind {
            "match" => self.take_match(value),
            "drop" | "reject" | "queue" => self.filters = true,
            "redirect" | "tproxy" => self.redirects = true,
            "dnat" => self.translates = true,
            "jump" | "goto" => self.jumps.extend(words(&value["target"])),
            "mangle" if value["key"]["meta"]["key"] == "mark" => {
                self.marks = true;
                self.mark = value["value"]
                    .as_u64()
                    .and_then(|mark| mark.try_into().ok());
            }
            "vmap" => self.take_verdicts(&value["data"]),
            // An iptables target for which nft has no syntax of its own.
            "xt" => match value["name"].as_str().unwrap_or_default() {
                "DROP" | "REJECT" | "NFQUEUE" => self.filters = true,
                "REDIRECT" | "TPROXY" => self.redirects = true,
                "DNAT" => self.translates = true,
                "MARK" | "CONNMARK" => self.marks = true,
                _ => {}
            },
            _ => {}
        }
    }

    fn take_match(&mut self, value: &Value) {
        let (left, right) = (&value["left"], &value["right"]);
        let is_equal = value["op"] == "==" || value["op"] == "in";
        match left["meta"]["key"].as_str() {
            Some("iifname" | "iif") if is_equal => self.iif = Some(words(right)),
            Some("oifname" | "oif") if is_equal => self.oif = Some(words(right)),
            _ => {}
        }
        let field = left["payload"]["field"].as_str();
        let is_type = left["fib"]["flags"].to_string().contains("daddr");
        self.names_destination |= field == Some("daddr") || is_type;
        if field == Some("dport") {
            self.ports.extend(numbers(right));
        }
        if left["ct"]["key"] == "state" {
            self.is_for_invalid |= is_equal && words(right) == ["invalid"];
        }
    }

    /// Adds the verdicts of a map that is written in the rule.
    fn take_verdicts(&mut self, data: &Value) {
        let pairs = data["set"].as_array().into_iter().flatten();
        for verdict in pairs.filter_map(|pair| pair.get(1)?.as_object()) {
            for (kind, value) in verdict {
                self.take(kind, value);
            }
        }
    }

    /// This rule together with a rule `behind` to which it jumps.
    fn then(&self, behind: &Self) -> Self {
        let mut both = behind.clone();
        both.iif = both.iif.or(self.iif.clone());
        both.oif = both.oif.or(self.oif.clone());
        if both.ports.is_empty() {
            both.ports.clone_from(&self.ports);
        }
        both.names_destination |= self.names_destination;
        both.is_for_invalid |= self.is_for_invalid;
        both.is_docker |= self.is_docker;
        both
    }

    /// Whether packets between the LAN and links can match it, as far as devices decide.
    fn is_of(&self, devices: &[&str]) -> bool {
        let names_one = |named: &Option<Vec<String>>| {
            let named = named.as_ref();
            named.is_none_or(|named| {
                named
                    .iter()
                    .any(|name| devices.iter().any(|d| fits(name, d)))
            })
        };
        names_one(&self.iif) && names_one(&self.oif)
    }
}

/// Whether any expression or statement in it is about connections, translation or marks, or is an iptables one for which nft has no
/// syntax.
fn tells_untracked_apart(value: &Value) -> bool {
    const STATEFUL: [&str; 6] = ["ct", "xt", "snat", "dnat", "masquerade", "redirect"];
    match value {
        Value::Array(values) => values.iter().any(tells_untracked_apart),
        Value::Object(fields) => fields.iter().any(|(key, value)| {
            STATEFUL.contains(&key.as_str())
                || key.starts_with("ct ")
                || (key == "key" && value == "mark")
                || tells_untracked_apart(value)
        }),
        _ => false,
    }
}

/// Whether a device matches a name, which may end in a star.
fn fits(name: &str, device: &str) -> bool {
    match name.strip_suffix('*') {
        Some(begin) => device.starts_with(begin),
        None => name == device,
    }
}

/// The texts of a value: one, a list, or a set.
fn words(value: &Value) -> Vec<String> {
    let all = value.get("set").unwrap_or(value);
    match all {
        Value::String(word) => vec![word.clone()],
        Value::Array(all) => all
            .iter()
            .filter_map(|word| Some(word.as_str()?.to_owned()))
            .collect(),
        _ => Vec::new(),
    }
}

/// The numbers of a value, both ends of a range.
fn numbers(value: &Value) -> Vec<u16> {
    let all = ["set", "range"].iter().find_map(|key| value.get(key));
    match all.unwrap_or(value) {
        Value::Array(all) => all.iter().flat_map(numbers).collect(),
        one => one
            .as_u64()
            .and_then(|port| port.try_into().ok())
            .into_iter()
            .collect(),
    }
}

pub fn findings(config: &Config, ruleset: &Ruleset) -> Vec<Finding> {
    let mut all = forward_filters(config, ruleset);
    all.extend(ingress_filters(config, ruleset));
    all.extend(early_filters(config, ruleset));
    all.extend(translations(config, ruleset));
    all.extend(our_marks(ruleset));
    all
}

const WHERE_TO_FILTER: &str = "refuse by a [[rule]] of ours with links = [] and none = \"drop\", or hand what this chain is to judge to the \
                               kernel with links = [] and none = \"kernel\"";

fn forward_filters(config: &Config, ruleset: &Ruleset) -> Vec<Finding> {
    let reached = ruleset.reached("forward");
    let hooked = ruleset.chains.iter();
    let forward = hooked.filter(|chain| chain.hook.as_deref() == Some("forward"));
    let filters = forward.filter_map(|chain| {
        let own = reached
            .iter()
            .filter(|reached| std::ptr::eq(reached.chain, chain));
        let filtering = own.filter(|reached| reached.is_filter(config));
        let [mut by_others, mut by_docker] = [false; 2];
        for reached in filtering {
            by_docker |= reached.rule.is_docker;
            by_others |= !reached.rule.is_docker;
        }
        let has_docker = by_docker || ruleset.is_docker(chain);
        match (by_others, has_docker, chain.drops) {
            (true, _, _) | (false, false, true) => Some(forward_filter(chain)),
            (false, true, true) => Some(docker_filter(config, chain)),
            _ => None,
        }
    });
    filters.collect()
}

fn forward_filter(chain: &Chain) -> Finding {
    finding(
        Severity::Trouble,
        FORWARD_FILTER,
        chain.to_string(),
        "it filters what is forwarded, and balanced packets pass it by: what it forbids is not forbidden to the LAN".to_owned(),
        WHERE_TO_FILTER.to_owned(),
    )
}

fn docker_filter(config: &Config, chain: &Chain) -> Finding {
    let lan = config.lan.first().map_or("LAN", String::as_str);
    finding(
        Severity::Note,
        FORWARD_FILTER,
        chain.to_string(),
        "Docker lets it drop what is forwarded for others: balanced packets pass it by, what the kernel itself forwards for the LAN is lost"
            .to_owned(),
        format!("iptables -I DOCKER-USER -i {lan} -j ACCEPT, and the same with -o"),
    )
}

/// Filters at the ingress of devices, which come after our programs.
fn ingress_filters(config: &Config, ruleset: &Ruleset) -> Vec<Finding> {
    let devices = config.devices();
    let is_at_ours = |chain: &Chain| {
        let mut named = chain.devices.iter();
        chain.devices.is_empty() || named.any(|name| devices.contains(&name.as_str()))
    };
    let reached = ruleset.reached("ingress");
    let chains: BTreeSet<String> = reached
        .iter()
        .filter(|reached| {
            is_at_ours(reached.chain) && (reached.rule.filters || reached.chain.drops)
        })
        .map(|reached| reached.chain.to_string())
        .collect();
    let filter = |chain| {
        let meaning = "it stands behind our programs: balanced packets never come to it";
        finding(
            Severity::Trouble,
            INGRESS_FILTER,
            chain,
            meaning.to_owned(),
            WHERE_TO_FILTER.to_owned(),
        )
    };
    chains.into_iter().map(filter).collect()
}

fn early_filters(config: &Config, ruleset: &Ruleset) -> Vec<Finding> {
    let reached = ["prerouting", "postrouting"].map(|hook| ruleset.reached(hook));
    let filtering = reached
        .iter()
        .flatten()
        .filter(|reached| reached.is_filter(config));
    let chains: BTreeSet<String> = filtering.map(|reached| reached.chain.to_string()).collect();
    let filter = |chain| {
        finding(
            Severity::Note,
            PREROUTING_FILTER,
            chain,
            "balanced packets pass by what it drops".to_owned(),
            WHERE_TO_FILTER.to_owned(),
        )
    };
    chains.into_iter().map(filter).collect()
}

/// Rules that lead packets to another host or to a service of this one.
fn translations(config: &Config, ruleset: &Ruleset) -> Vec<Finding> {
    let lan: Vec<&str> = config.lan.iter().map(String::as_str).collect();
    let links: Vec<&str> = config
        .links
        .iter()
        .map(|link| link.device.as_str())
        .collect();
    let reached = ruleset.reached("prerouting");
    let found = reached.iter().filter_map(|Reached { chain, rule }| {
        let is_for_us = rule.names_destination || rule.translates && rule.iif.is_none();
        if !(rule.redirects || rule.translates) {
            None
        } else if rule.is_of(&lan) && !is_for_us && !is_handed_over(config, &rule.ports) {
            Some(lan_redirect(chain, &rule.ports))
        } else if rule.translates && rule.is_of(&links) && config.nat.forwards == Forwards::Drop {
            Some(port_forward(chain, rule))
        } else {
            None
        }
    });
    found.collect()
}

fn lan_redirect(chain: &Chain, ports: &[u16]) -> Finding {
    let written: Vec<String> = ports.iter().map(u16::to_string).collect();
    let (subject, matches) = if ports.is_empty() {
        (chain.to_string(), String::new())
    } else {
        let ports = written.join(", ");
        (
            format!("{chain}, ports {ports}"),
            format!("ports = [{ports}], "),
        )
    };
    finding(
        Severity::Trouble,
        LAN_REDIRECT,
        subject,
        "it redirects what the LAN sends, and balanced packets pass it by".to_owned(),
        format!(
            "write [[rule]] {matches}links = [], none = \"kernel\": the kernel carries these connections, and the redirection works"
        ),
    )
}

fn port_forward(chain: &Chain, rule: &Rule) -> Finding {
    let severity = if rule.is_docker {
        Severity::Note
    } else {
        Severity::Trouble
    };
    finding(
        severity,
        PORT_FORWARD,
        chain.to_string(),
        "it forwards ports to hosts behind this one, and what comes by a link for them is dropped"
            .to_owned(),
        "write nat.forwards = \"kernel\" if they are to be reached from outside".to_owned(),
    )
}

fn our_marks(ruleset: &Ruleset) -> Vec<Finding> {
    let hooks = ["prerouting", "forward", "output", "postrouting", "input"];
    let reached = hooks.iter().flat_map(|hook| ruleset.reached(hook));
    let marked = reached.filter_map(|Reached { chain, rule }| {
        let mark = rule.mark.filter(|mark| is_ours(*mark))?;
        Some(finding(
            Severity::Refused,
            OUR_MARKS,
            chain.to_string(),
            format!("it gives packets the mark {mark:#x}, which is one of ours: another balancer is at work"),
            "stop it, or give its marks another first byte than 0xa8 to 0xaf".to_owned(),
        ))
    });
    marked.collect()
}

/// Tables of legacy iptables, which nftables does not show.
pub fn legacy(tables: &[String]) -> Option<Finding> {
    (!tables.is_empty()).then(|| {
        finding(
            Severity::Note,
            LEGACY_IPTABLES,
            format!("table {}", tables.join(", ")),
            "the former iptables is in use beside nftables: balanced packets pass by its rules, and the survey cannot read them"
                .to_owned(),
            "look at them with iptables-legacy -S, and move to nftables or iptables-nft".to_owned(),
        )
    })
}

impl Reached<'_> {
    /// Whether it drops or rejects packets that a gateway could balance.
    fn is_filter(&self, config: &Config) -> bool {
        self.rule.filters && !self.rule.is_for_invalid && self.rule.is_of(&config.devices())
    }
}

impl Ruleset {
    /// Whether Docker has chains in the chain's table.
    fn is_docker(&self, chain: &Chain) -> bool {
        let mut others = self.chains.iter().filter(|other| other.is_of_table(chain));
        others.any(|other| other.name.starts_with("DOCKER"))
    }
}
