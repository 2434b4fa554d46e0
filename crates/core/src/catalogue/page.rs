//! All that people are told of a policy: its row, and what it says of itself.

use std::time::Duration;

use super::{Cost, Facts, Needs, Parameter, Parts, Row, Sent, TargetKind, default};
use crate::measure::Distance;

/// All that people are told of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// As files, commands and reports write it.
    pub name: &'static str,
    /// Understood as well.
    pub alias: Option<&'static str>,
    /// In a few words.
    pub meaning: &'static str,
    /// Where it is defined.
    pub source: &'static str,
    /// What it chooses among.
    pub target: TargetKind,
    /// The key of a configuration that may name it; none of what is for scenarios alone.
    pub key: Option<&'static str>,
    /// It is used where nothing is named.
    pub is_default: bool,
    /// As files write it without a name.
    pub tuple: Option<String>,
    /// In the words of files.
    pub parts: Parts,
    /// The measure is divided by what links were given.
    pub by_rate: bool,
    /// What paths are compared by, in words.
    pub measured: &'static str,
    /// How far away that looks which paths are compared by.
    pub distance: Distance,
    /// Between two measurements, where a timer says when.
    pub period: Option<Duration>,
    /// What may be set, with its defaults.
    pub parameters: Vec<Parameter>,
    /// What has to be there.
    pub needs: Needs,
    /// What it costs.
    pub cost: Cost,
    /// What is sent for it.
    pub sent: Sent,
    /// Which sites it suits, and which not.
    pub suits: Vec<&'static str>,
}

impl Page {
    /// Of a policy with this name, which is not the default and has no other name.
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
            by_rate: facts.is_by_rate(),
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
    /// What people are told of it.
    pub fn page(&self) -> Page {
        let page = Page::new(self.name, self.meaning, self.source, self.policy.facts());
        Page {
            alias: self.alias,
            is_default: default(page.target) == self,
            ..page
        }
    }
}
