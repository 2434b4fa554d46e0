//! The page of a policy: its row and the facts about it, for people.

use std::time::Duration;

use super::{Cost, Facts, Needs, Parameter, Parts, Row, Sent, TargetKind, default};
use crate::measure::Distance;

/// The page of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// As files, commands and reports write it.
    pub name: &'static str,
    /// Another name for it.
    pub alias: Option<&'static str>,
    /// In a few words.
    pub meaning: &'static str,
    /// Where it is defined.
    pub source: &'static str,
    /// The kind of targets that it chooses among.
    pub target: TargetKind,
    /// The key of a configuration that may name it; none if it is only for scenarios.
    pub key: Option<&'static str>,
    /// Whether it is used if none is named.
    pub is_default: bool,
    /// The tuple as files may write it.
    pub tuple: Option<String>,
    /// Its parts, by their names in files.
    pub parts: Parts,
    /// What the measure is divided by, if anything.
    pub divided_by: Option<&'static str>,
    /// What targets are compared by, in words.
    pub measured: &'static str,
    /// How far away its measure looks.
    pub distance: Distance,
    /// Time between two measurements, if they are periodic.
    pub period: Option<Duration>,
    /// Its parameters, with their defaults.
    pub parameters: Vec<Parameter>,
    /// What must be declared or configured for it.
    pub needs: Needs,
    /// What it costs.
    pub cost: Cost,
    /// What it sends in order to measure.
    pub sent: Sent,
    /// Which sites it suits, and which not.
    pub suits: Vec<&'static str>,
}

impl Page {
    /// The page of a policy that is not the default and has no other name.
    pub fn new(
        name: &'static str,
        meaning: &'static str,
        source: &'static str,
        facts: &dyn Facts,
    ) -> Page {
        Page {
            name,
            alias: None,
            meaning,
            source,
            target: facts.target(),
            key: facts.is_configurable().then(|| facts.target().row().key),
            is_default: false,
            tuple: facts.tuple(),
            parts: facts.parts(),
            divided_by: facts.divided_by(),
            measured: facts.measured(),
            distance: facts.distance(),
            period: facts.period(),
            parameters: facts.parameters(),
            needs: facts.needs(),
            cost: facts.cost(),
            sent: facts.sent(),
            suits: facts.suits(),
        }
    }
}

impl Row {
    /// Its page.
    pub fn page(&self) -> Page {
        let page = Page::new(self.name, self.meaning, self.source, self.policy.facts());
        Page {
            alias: self.alias,
            is_default: default(page.target) == self,
            ..page
        }
    }
}
