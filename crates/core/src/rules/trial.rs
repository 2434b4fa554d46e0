//! Finds which rule takes a flow, and which fields of the rules before it do not match.

use std::net::{IpAddr, Ipv4Addr};

use anabranch_policy::abi::BePort;
use anabranch_policy::{Rules, Traits};

use super::compile::{DoesNotFit, active, compile};
use super::dscp::dscp_name;
use super::matches::{Matches, protocol_name};
use super::schedule::Moment;
use super::{RULES_MAX, Rule};

/// All rules compiled together, and each field of each rule compiled by itself, so that `ab_class_of` decides every question.
pub struct Trial<'a> {
    rules: &'a [Rule],
    lan: &'a [String],
    together: Box<Rules>,
    fields: Vec<Vec<(&'static str, Box<Rules>)>>,
}

/// The first packet of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// None: the gateway's host itself.
    pub from: Option<IpAddr>,
    /// 0 if the protocol has no ports.
    pub source_port: u16,
    /// Destination.
    pub to: IpAddr,
    /// 0 if the protocol has no ports.
    pub port: u16,
    /// IP protocol.
    pub protocol: u8,
    /// Below 64.
    pub dscp: u8,
    /// The device from which it comes; none: one that no rule names.
    pub device: Option<String>,
}

/// The result of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The index of the rule that takes the flow; none: the default class.
    pub taken: Option<usize>,
    /// For each rule before it, the keys that do not match.
    pub passed: Vec<Vec<&'static str>>,
}

impl Sample {
    /// The value of the flow for a key of rules.
    fn value(&self, key: &str, at: Option<Moment>) -> String {
        let port = |port: u16| match port {
            0 => "none".to_owned(),
            port => port.to_string(),
        };
        match key {
            "from" => self.from.map_or("self".to_owned(), |from| from.to_string()),
            "to" => self.to.to_string(),
            "protocol" => protocol_name(self.protocol),
            "ports" => port(self.port),
            "source_ports" => port(self.source_port),
            "dscp" => dscp_name(self.dscp),
            "device" => self.device.clone().unwrap_or("none".to_owned()),
            _ => at.map_or(String::new(), |at| at.to_string()),
        }
    }
}

impl Rule {
    /// For each key that does not match, the flow's value and what the rule requires.
    pub fn misses(&self, missed: &[&str], sample: &Sample, at: Option<Moment>) -> Vec<String> {
        let fields = self.matches.fields();
        let wanted = |key: &str| {
            let field = fields.iter().find(|(field, _)| *field == key);
            field.map_or("", |(_, values)| values)
        };
        let miss = |key: &&str| format!("{key}: {}, not {}", sample.value(key, at), wanted(key));
        missed.iter().map(miss).collect()
    }
}

type Only = fn(&Matches) -> Matches;

/// Each key that the programs compare, and how a rule is reduced to that key.
const FIELDS: [(&str, Only); 7] = [
    ("from", |m| Matches {
        from: m.from.clone(),
        ..Matches::default()
    }),
    ("to", |m| Matches {
        to: m.to.clone(),
        ..Matches::default()
    }),
    ("protocol", |m| Matches {
        protocols: m.protocols.clone(),
        ..Matches::default()
    }),
    ("ports", |m| Matches {
        ports: m.ports.clone(),
        ..Matches::default()
    }),
    ("source_ports", |m| Matches {
        source_ports: m.source_ports.clone(),
        ..Matches::default()
    }),
    ("dscp", |m| Matches {
        dscp: m.dscp.clone(),
        ..Matches::default()
    }),
    ("device", |m| Matches {
        devices: m.devices.clone(),
        ..Matches::default()
    }),
];

impl<'a> Trial<'a> {
    /// `rules` on a gateway with these LAN devices.
    pub fn new(rules: &'a [Rule], lan: &'a [String]) -> Result<Self, DoesNotFit> {
        let ifindex = |name: &str| Some(number_of(lan, Some(name)));
        let at = Moment::new(0, 0);
        let alone = |matches: Matches| {
            let rule = Rule {
                matches,
                class: Default::default(),
            };
            compile(&[rule], at, ifindex)
        };
        let fields_of = |rule: &Rule| {
            let fields = FIELDS.iter();
            fields
                .map(|(key, only)| Ok((*key, alone(only(&rule.matches))?)))
                .collect()
        };
        Ok(Trial {
            rules,
            lan,
            together: compile(rules, at, ifindex)?,
            fields: rules.iter().map(fields_of).collect::<Result<_, _>>()?,
        })
    }

    /// The rule of a flow that opens at this time.
    pub fn verdict(&mut self, sample: &Sample, at: Moment) -> Verdict {
        let traits = &self.traits(sample);
        self.together.active = active(self.rules, at);
        let class = usize::from(self.together.class_of(traits));
        let taken = class.checked_sub(1);
        let before = taken.unwrap_or(RULES_MAX);
        let passed = self.rules.iter().zip(&self.fields).take(before);
        Verdict {
            taken,
            passed: passed
                .map(|(rule, fields)| missed(rule, fields, traits, at))
                .collect(),
        }
    }

    fn traits(&self, sample: &Sample) -> Traits {
        let device = || number_of(self.lan, sample.device.as_deref());
        Traits {
            src: sample.from.unwrap_or(Ipv4Addr::UNSPECIFIED.into()).into(),
            dst: sample.to.into(),
            sport: BePort::new(sample.source_port),
            dport: BePort::new(sample.port),
            proto: sample.protocol,
            dscp: sample.dscp,
            zero: 0,
            ifindex: sample.from.map_or(0, |_| device()),
        }
    }
}

/// Numbers LAN devices from 1. All unknown devices have the same number.
fn number_of(lan: &[String], device: Option<&str>) -> u32 {
    let known = lan.iter().position(|known| Some(known.as_str()) == device);
    1 + known.unwrap_or(lan.len()) as u32
}

fn missed(
    rule: &Rule,
    fields: &[(&'static str, Box<Rules>)],
    traits: &Traits,
    at: Moment,
) -> Vec<&'static str> {
    let misses = fields
        .iter()
        .filter(|(_, alone)| alone.class_of(traits) == 0);
    let out_of_hours = active(std::slice::from_ref(rule), at) == 0;
    let keys = misses.map(|(key, _)| *key);
    keys.chain(out_of_hours.then_some("when")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Class;

    #[test]
    fn a_flow_is_told_what_it_misses_of_the_rules_it_passes() {
        let rule = |matches: Matches| Rule {
            matches,
            class: Class::default(),
        };
        let rules = [
            rule(Matches {
                protocols: vec![17],
                ports: vec![5060..=5061],
                when: Some("sat".parse().unwrap()),
                ..Matches::default()
            }),
            rule(Matches {
                devices: vec!["guests".to_owned()],
                ..Matches::default()
            }),
            rule(Matches {
                to: vec![Ipv4Addr::new(203, 0, 113, 7).into()],
                ..Matches::default()
            }),
        ];
        let lan = ["lan", "guests"].map(str::to_owned);
        let mut trial = Trial::new(&rules, &lan).unwrap();
        let flow = Sample {
            from: Some(Ipv4Addr::new(192, 168, 1, 20).into()),
            source_port: 49152,
            to: Ipv4Addr::new(203, 0, 113, 7).into(),
            port: 5060,
            protocol: 6,
            dscp: 0,
            device: Some("lan".to_owned()),
        };
        let verdict = trial.verdict(&flow, "mon 09:00".parse().unwrap());
        assert_eq!(verdict.taken, Some(2));
        assert_eq!(verdict.passed, [vec!["protocol", "when"], vec!["device"]]);
        let other = Sample {
            to: Ipv4Addr::new(203, 0, 113, 8).into(),
            protocol: 1,
            ..flow
        };
        let verdict = trial.verdict(&other, "sat 09:00".parse().unwrap());
        assert_eq!(verdict.taken, None);
        assert_eq!(
            verdict.passed,
            [vec!["protocol", "ports"], vec!["device"], vec!["to"]]
        );
    }
}
