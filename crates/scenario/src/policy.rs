//! Who chooses, in a scenario: any policy of the catalogue, or a peer in the gateway's place.

use std::fmt;

use anabranch_core::Algorithm;
use anabranch_core::catalogue::{self, ExtendError, Facts, Page, Row, TARGETS, TargetKind};
use anabranch_core::multilink::Spread;
use anabranch_peers::{Peer, catalogue as peers};
use serde::Serialize;

/// How a path is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Something else in the place of the gateway of a site.
    Peer(Peer),
    /// A policy of the product, as the catalogue has it.
    #[serde(untagged)]
    Product(catalogue::Policy),
}

impl Policy {
    /// Packet by packet over the links of a site without NAT.
    pub const PACKET: Policy = Policy::Product(catalogue::Policy::Packet);

    /// A gateway's, over the links of a site.
    pub const fn gateway(algorithm: Algorithm) -> Policy {
        Policy::Product(catalogue::Policy::Gateway(algorithm))
    }

    /// Over the sublinks of a trunk.
    pub const fn trunk(spread: Spread) -> Policy {
        Policy::Product(catalogue::Policy::Trunk(spread))
    }

    /// Of a gateway's policy.
    pub fn algorithm(self) -> Option<Algorithm> {
        match self {
            Policy::Product(catalogue::Policy::Gateway(algorithm)) => Some(algorithm),
            _ => None,
        }
    }

    /// Of a trunk's policy.
    pub fn spread(self) -> Option<Spread> {
        match self {
            Policy::Product(catalogue::Policy::Trunk(spread)) => Some(spread),
            _ => None,
        }
    }

    /// The policy that `text` names, with its parameter after it if it takes one there: `flowlet 50ms`, `BGP 60s`. `None` if the
    /// name is nobody's.
    pub fn parse(target: TargetKind, text: &str) -> Option<Result<Policy, String>> {
        match catalogue::parse(target, text) {
            Some(policy) => Some(policy.map(Policy::Product)),
            None if target == TargetKind::Link => Some(peers::parse(text)?.map(Policy::Peer)),
            None => None,
        }
    }

    /// What may be written for each policy of this kind of target.
    pub fn spellings(target: TargetKind) -> impl Iterator<Item = String> {
        let of_peers = peers::ROWS
            .iter()
            .filter(move |_| target == TargetKind::Link);
        let of_catalogue = catalogue::of(target).flat_map(Row::spellings);
        of_catalogue.chain(of_peers.flat_map(peers::Row::spellings))
    }

    /// What it says of itself.
    pub fn facts(&self) -> &dyn Facts {
        match self {
            Policy::Peer(peer) => peer,
            Policy::Product(policy) => policy.facts(),
        }
    }
}

impl fmt::Display for Policy {
    /// As it may be written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Peer(peer) => peer.fmt(f),
            Policy::Product(policy) => policy.fmt(f),
        }
    }
}

/// What people are told of every policy, kind of target by kind of target, the peers behind those of links.
pub fn pages() -> impl Iterator<Item = Page> {
    let of_peers = |target| {
        let pages = peers::ROWS.iter().map(peers::Row::page);
        pages.filter(move |page| page.target == target)
    };
    let of = move |target| catalogue::of(target).map(Row::page).chain(of_peers(target));
    TARGETS.iter().flat_map(move |row| of(row.target))
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
            let policy = Policy::Product(row.policy);
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
        let Some(row) = catalogue::find(TargetKind::Link, "RR") else {
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
