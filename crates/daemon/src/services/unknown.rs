//! Packets without an entry: those of unknown connections, and new ones above a limit (`service.NAME.unknown` and `insert_limit`).

use anabranch_policy::abi;
use serde::Deserialize;

/// As many as the table has room for: it holds 262 144 connections, and one that has ended or was never answered keeps its place for a
/// minute.
pub(super) const INSERT_LIMIT: u32 = 4000;
const INSERT_LIMIT_MAX: u32 = 10_000_000;

/// What becomes of a packet that belongs to no known connection and opens none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unknown {
    /// The host answers: mostly by a RST, so that the client knows at once (RFC 9293 section 3.10.7.1).
    #[default]
    Host,
    /// It is dropped.
    Drop,
    /// It goes to the server to which its hash leads.
    Hash,
    /// The same, but to the former owner of a row that changed lately.
    Peer,
}

impl Unknown {
    /// Whether packets without an entry go by rows of hashes.
    pub fn goes_by_rows(self) -> bool {
        matches!(self, Self::Hash | Self::Peer)
    }
}

impl From<Unknown> for abi::Unknown {
    fn from(unknown: Unknown) -> Self {
        match unknown {
            Unknown::Host => Self::Host,
            Unknown::Drop => Self::Drop,
            Unknown::Hash => Self::Hash,
            Unknown::Peer => Self::Peer,
        }
    }
}

/// How many connections a second get entries; none: as many as there is room for.
pub(super) fn insert_limit(unknown: Unknown, written: Option<u32>) -> Result<Option<u32>, String> {
    match written {
        None => Ok((unknown != Unknown::Host).then_some(INSERT_LIMIT)),
        Some(limit) if (1..=INSERT_LIMIT_MAX).contains(&limit) => Ok(written),
        Some(_) => Err(format!(
            "connections a second: 1 to {INSERT_LIMIT_MAX} are allowed"
        )),
    }
}
