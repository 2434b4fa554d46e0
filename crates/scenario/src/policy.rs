//! Who chooses, in a scenario: any policy of the catalogue, or a peer in the gateway's place.

use std::fmt;

use anabranch_core::Algorithm;
use anabranch_core::catalogue::{self, ExtendError, Needs, Page, Row, Target};
use anabranch_core::multilink::Spread;
use anabranch_peers::{Peer, catalogue as peers};
use serde::Serialize;

/// How a path is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The gateway's, over the links of a site.
    Gateway(Algorithm),
    /// Packet by packet in proportion to rates (deficit round robin), over the links of a site without NAT.
    Packet,
    /// Something else in the place of the gateway of a site.
    Peer(Peer),
    /// Over the sublinks of a trunk.
    Trunk(Spread),
}

impl Policy {
    /// The policy that `text` names, with its parameter after it if it takes one there: `flowlet 50ms`, `BGP 60s`. `None` if the
    /// name is nobody's.
    pub fn parse(target: Target, text: &str) -> Option<Result<Policy, String>> {
        match catalogue::parse(target, text) {
            Some(policy) => Some(policy.map(Policy::from)),
            None if target == Target::Link => Some(peers::parse(text)?.map(Policy::Peer)),
            None => None,
        }
    }

    /// What may be written for each policy of this kind of target.
    pub fn spellings(target: Target) -> impl Iterator<Item = String> {
        let of_peers = peers::ROWS.iter().filter(move |_| target == Target::Link);
        let of_catalogue = catalogue::of(target).flat_map(Row::spellings);
        of_catalogue.chain(of_peers.flat_map(peers::Row::spellings))
    }

    /// What has to be there.
    pub fn needs(&self) -> Needs {
        match self.listed() {
            Ok(policy) => policy.needs(),
            Err(peer) => peer.needs(),
        }
    }

    /// Whether it knows classes of traffic.
    pub fn asks_rules(&self) -> bool {
        matches!(self, Policy::Gateway(_))
    }

    /// As the catalogue of what runs on a router has it, which has no peers.
    fn listed(&self) -> Result<catalogue::Policy, Peer> {
        match *self {
            Policy::Gateway(algorithm) => Ok(catalogue::Policy::Gateway(algorithm)),
            Policy::Packet => Ok(catalogue::Policy::Packet),
            Policy::Trunk(spread) => Ok(catalogue::Policy::Trunk(spread)),
            Policy::Peer(peer) => Err(peer),
        }
    }
}

impl From<catalogue::Policy> for Policy {
    fn from(policy: catalogue::Policy) -> Self {
        match policy {
            catalogue::Policy::Gateway(algorithm) => Policy::Gateway(algorithm),
            catalogue::Policy::Packet => Policy::Packet,
            catalogue::Policy::Trunk(spread) => Policy::Trunk(spread),
        }
    }
}

impl fmt::Display for Policy {
    /// As it may be written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.listed() {
            Ok(policy) => policy.fmt(f),
            Err(peer) => peer.fmt(f),
        }
    }
}

/// What people are told of every policy that a scenario may name: those of links, with the peers last, then those of sublinks.
pub fn pages() -> impl Iterator<Item = Page> {
    let of = |target| catalogue::of(target).map(Row::page);
    let of_links = of(Target::Link).chain(peers::ROWS.iter().map(peers::Row::page));
    of_links.chain(of(Target::Sublink))
}

/// Adds a program's own policies: [`catalogue::extend`], which knows no peers.
///
/// # Errors
/// As that, and if a peer has the name.
pub fn extend(rows: Vec<Row>) -> Result<(), ExtendError> {
    for &Row { name: own, .. } in &rows {
        if let Some(peers::Row { name: taken, .. }) = peers::find(own) {
            return Err(ExtendError::NameTaken { own, taken });
        }
    }
    catalogue::extend(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_hashed_and_shown_as_the_catalogue_has_it() {
        for row in catalogue::rows() {
            let policy = Policy::from(row.policy);
            let [listed, ours] = [
                serde_json::to_value(row.policy),
                serde_json::to_value(policy),
            ];
            assert_eq!(listed.unwrap(), ours.unwrap(), "{}", row.name);
            assert_eq!(policy.to_string(), row.policy.to_string());
        }
    }

    #[test]
    fn no_policy_of_ones_own_takes_a_peers_name() {
        let Some(row) = catalogue::find(Target::Link, "RR") else {
            panic!("a row of the table");
        };
        let own = Row {
            name: "ecmp",
            ..*row
        };
        let refused = ExtendError::NameTaken {
            own: "ecmp",
            taken: "ECMP",
        };
        assert_eq!(extend(vec![own]), Err(refused));
    }
}
