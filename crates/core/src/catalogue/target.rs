//! What policies choose among: a row for each kind of target, with all that files and people are told of it.

use serde::{Serialize, Serializer};

/// A kind of target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Access lines of a site.
    Link,
    /// Lines of a trunk.
    Sublink,
}

/// What differs between kinds of targets, but for what runs their policies.
#[derive(Debug)]
pub struct TargetRow {
    /// Which.
    pub target: Target,
    /// One of them, as programs are told it.
    pub word: &'static str,
    /// Several of them, for people.
    pub plural: &'static str,
    /// The key of a configuration that names their policy, for people.
    pub key: &'static str,
    /// The policy where none is named.
    pub default: &'static str,
}

/// Every kind, in the order of [`Target`].
pub static TARGETS: [TargetRow; 2] = [
    TargetRow {
        target: Target::Link,
        word: "link",
        plural: "links",
        key: "`policy` of a gateway, and of each of its classes",
        default: "WSDM",
    },
    TargetRow {
        target: Target::Sublink,
        word: "sublink",
        plural: "sublinks",
        key: "`scheme` of a trunk",
        default: "DHFV",
    },
];

impl Target {
    /// What is known of it.
    pub fn row(self) -> &'static TargetRow {
        &TARGETS[self as usize]
    }
}

/// As its word.
impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.row().word)
    }
}
