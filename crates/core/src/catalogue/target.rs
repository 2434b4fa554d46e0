//! The kinds of targets: a row for each, with everything that files and people see of it.

use anabranch_config::{BadInput, Source};
use anabranch_policy::abi::{MAX_LINKS, MAX_TARGETS};
use serde::{Serialize, Serializer};

/// A kind of target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// Access lines of a site.
    Link,
    /// Lines of a trunk.
    Sublink,
    /// Hosts behind the address of a service.
    Server,
}

/// What differs between kinds of targets, except for what runs their policies.
#[derive(Debug)]
pub struct TargetRow {
    /// The kind.
    pub target: TargetKind,
    /// The word for one target, for programs.
    pub word: &'static str,
    /// The word for several, for people.
    pub plural: &'static str,
    /// The key of a configuration that names their policy, for people.
    pub key: &'static str,
    /// The policy if none is named.
    pub default: &'static str,
    /// Whether scenarios may have them, so that experiments may have claims about their policies.
    pub has_scenarios: bool,
    /// Maximum number of targets of one gateway, trunk or service. Measurements of destinations are stored for each link, so
    /// fewer links are allowed than the 256 targets of a choice.
    pub max: usize,
}

/// Every kind, in the order of [`TargetKind`].
pub static TARGETS: [TargetRow; 3] = [
    TargetRow {
        target: TargetKind::Link,
        word: "link",
        plural: "links",
        key: "`policy` of a gateway, and of each of its classes",
        default: "WSDM",
        has_scenarios: true,
        max: MAX_LINKS,
    },
    TargetRow {
        target: TargetKind::Sublink,
        word: "sublink",
        plural: "sublinks",
        key: "`scheme` of a trunk",
        default: "DHFV",
        has_scenarios: true,
        max: MAX_LINKS,
    },
    TargetRow {
        target: TargetKind::Server,
        word: "server",
        plural: "servers",
        key: "`policy` of a service",
        default: "RR",
        has_scenarios: false,
        max: MAX_TARGETS,
    },
];

impl TargetKind {
    /// Its row.
    pub fn row(self) -> &'static TargetRow {
        &TARGETS[self as usize]
    }

    /// The tables of these targets that a file has under `key`, in its order. There must be no more than a policy can choose among,
    /// and either all or none must have a `share` (a weight, a rate).
    pub fn tables<N: AsRef<str>, T>(
        self,
        source: &Source<'_>,
        key: &[&str],
        tables: impl IntoIterator<Item = (N, T)>,
        (share, has_share): (&str, impl Fn(&T) -> bool),
    ) -> Result<Vec<(N, T)>, BadInput> {
        let TargetRow {
            word, plural, max, ..
        } = self.row();
        let mut tables: Vec<_> = tables.into_iter().collect();
        if tables.len() > *max {
            let problem = format!("{} {plural}; at most {max} are allowed", tables.len());
            return Err(source.bad(key, problem));
        }
        tables.sort_by_key(|(name, _)| source.position(&[key, &[name.as_ref()]].concat()));
        let lacks = tables.iter().find(|(_, table)| !has_share(table));
        match lacks {
            Some((name, _)) if tables.iter().any(|(_, table)| has_share(table)) => {
                let problem =
                    format!("has no {share} but others have; give every {word} a {share}, or none");
                Err(source.bad(&[key, &[name.as_ref()]].concat(), problem))
            }
            _ => Ok(tables),
        }
    }
}

/// As its word.
impl Serialize for TargetKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.row().word)
    }
}
