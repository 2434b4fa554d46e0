//! Rules and classes as files write them, key by key: what results are written with and hashed by, and what gateways are
//! told.

use std::fmt;

use serde::{Serialize, Serializer};

use super::Rule;
use super::class::{Class, WhenNone};
use super::matches::Matches;
use crate::algorithm::{Algorithm, word_of_granularity};
use crate::link::{Direction, OnReturn};

/// What stands behind a key. Names, networks, ports and words of the file need no escapes.
#[derive(Serialize)]
#[serde(untagged)]
enum Value {
    Word(String),
    Words(Vec<String>),
    Tiers(Vec<Vec<String>>),
    Number(u32),
    Numbers(Vec<u16>),
    Flag(bool),
    Policy(Algorithm),
}

impl fmt::Display for Value {
    /// As TOML.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Word(word) => write!(f, "{word:?}"),
            Value::Words(words) => write!(f, "{words:?}"),
            Value::Tiers(tiers) => write!(f, "{tiers:?}"),
            Value::Number(number) => write!(f, "{number}"),
            Value::Numbers(numbers) => write!(f, "{numbers:?}"),
            Value::Flag(flag) => write!(f, "{flag}"),
            Value::Policy(algorithm) => f.write_str(&algorithm.written()),
        }
    }
}

type Keys = Vec<(&'static str, Value)>;

impl Rule {
    /// As a `[[rule]]` that [`file::rules`](super::file::rules) reads as this one.
    pub fn written(&self) -> String {
        table("[[rule]]", self.keys())
    }

    fn keys(&self) -> Keys {
        let name = ("name", Value::Word(self.class.name.clone()));
        let keys = [name].into_iter().chain(self.matches.keys());
        keys.chain(self.class.keys()).collect()
    }
}

impl Class {
    /// As a `[default]` that [`file::default_class`](super::file::default_class) reads as this one.
    pub fn written(&self) -> String {
        table("[default]", self.keys())
    }

    /// All but the name.
    fn keys(&self) -> Keys {
        let (first, then) = match self.tiers.as_deref() {
            None => (None, None),
            Some([]) => (Some(Vec::new()), None),
            Some([first, then @ ..]) => (Some(first.clone()), Some(then.to_vec())),
        };
        let then = then.filter(|tiers| !tiers.is_empty());
        let policy = self.policy.as_ref().map(|typed| typed.policy);
        let granularity = self.granularity.map(word_of_granularity);
        let word = |word: &str| Value::Word(word.to_owned());
        let keys = [
            ("policy", policy.map(Value::Policy)),
            ("granularity", granularity.map(word)),
            ("links", first.map(Value::Words)),
            ("then", then.map(Value::Tiers)),
            ("none", self.when_none.word().map(word)),
            ("direction", self.direction.map(|way| word(way.word()))),
            ("flows_per_host", self.flows_per_host.map(Value::Number)),
            ("on_return", self.on_return.map(|then| word(then.word()))),
            ("stick", self.stick.map(Value::Flag)),
            ("except", self.except.clone().map(Value::Numbers)),
        ];
        let said = |(key, value): (_, Option<Value>)| Some((key, value?));
        keys.into_iter().filter_map(said).collect()
    }
}

impl Matches {
    fn keys(&self) -> Keys {
        let fields = self.words().into_iter();
        fields
            .map(|(key, words)| (key, Value::Words(words)))
            .collect()
    }
}

impl WhenNone {
    /// None for what is so by default.
    fn word(self) -> Option<&'static str> {
        match self {
            WhenNone::Any => None,
            WhenNone::Drop => Some("drop"),
            WhenNone::Kernel => Some("kernel"),
        }
    }
}

impl Direction {
    fn word(self) -> &'static str {
        match self {
            Direction::Down => "down",
            Direction::Up => "up",
        }
    }
}

impl OnReturn {
    fn word(self) -> &'static str {
        match self {
            OnReturn::Stay => "stay",
            OnReturn::Idle => "idle",
            OnReturn::Move => "move",
        }
    }
}

fn table(head: &str, keys: Keys) -> String {
    let lines = keys
        .into_iter()
        .map(|(key, value)| format!("{key} = {value}\n"));
    format!("{head}\n{}", lines.collect::<String>())
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.keys())
    }
}

/// Without its name.
impl Serialize for Class {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.keys())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use anabranch_config::Source;
    use serde::Deserialize;

    use super::super::file::{self, DefaultTable, RuleTable, Site};
    use crate::link::LinkSpec;

    const FILE: &str = r#"
[[rule]]
name = "all-keys"
from = ["self", "192.168.1.0/24"]
to = "203.0.113.7"
protocol = ["tcp", "udp"]
ports = [873, "5000-5010"]
source_ports = "1024-65535"
dscp = ["ef", 3]
device = "eth0"
when = ["mon-fri 08:00-18:00", "sat,sun", "22:00-06:00", "mon-sun"]
policy = { name = "mine", measure = "carried", dispatch = "weighted", period = "500ms" }
granularity = "host"
links = ["fiber", "cable"]
then = [["lte"], ["radio"]]
none = "drop"
direction = "up"
flows_per_host = 200
on_return = "idle"
stick = true
except = [80, 443]
[[rule]]
name = "refused"
policy = "RR"
links = []
none = "kernel"
[[rule]]
name = "rest"
direction = "down"
on_return = "move"
[default]
links = "lte"
on_return = "stay"
stick = false
"#;

    #[derive(Deserialize)]
    struct File {
        rule: Vec<RuleTable>,
        default: DefaultTable,
    }

    #[test]
    fn what_is_written_is_read_as_the_same() {
        let links = ["fiber", "cable", "lte", "radio"].map(|name| LinkSpec {
            name: name.to_owned(),
            ..LinkSpec::default()
        });
        let site = Site {
            links: &links,
            lan: &["eth0".to_owned()],
            node: false,
        };
        let read = |text: &str| {
            let source = Source::parse(Path::new("rules.toml"), text).unwrap();
            let file: File = source.read().unwrap_or_else(|error| panic!("{error}"));
            let mut rules = file::rules(&source, file.rule, site).unwrap();
            for rule in &mut rules {
                let policy = rule.class.policy.as_mut();
                // What people are shown of a policy decides nothing.
                policy.into_iter().for_each(|typed| typed.name.clear());
            }
            let default = file::default_class(&source, file.default, site).unwrap();
            (rules, default)
        };
        let (rules, default) = read(FILE);
        let written: String = rules.iter().map(|rule| rule.written()).collect();
        assert_eq!(read(&(written + &default.written())), (rules, default));
    }
}
