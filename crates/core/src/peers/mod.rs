//! What others put in the place of a gateway like ours: what a site is compared with.
//!
//! Scenarios name a [`Peer`] where they name a policy. No configuration does: a peer is another program, or nothing but routes.

use serde::Serialize;

use crate::catalogue::{Parts, Policy};

/// Something else in the gateway's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Peer {
    /// The first link carries all, whatever becomes of it.
    OneLink,
    /// nftables gives each connection a random mark, and the mark a link, whatever becomes of that.
    Nftables,
    /// One route of the Linux kernel with all links as next hops, by a hash of addresses and ports.
    Ecmp,
}

impl Peer {
    /// Whether the simulator has it.
    pub fn is_simulated(self) -> bool {
        match self {
            Peer::OneLink | Peer::Nftables | Peer::Ecmp => false,
        }
    }

    pub(crate) fn parts(self) -> Parts {
        let (measure, dispatch, granularity) = match self {
            Peer::OneLink => ("none", "none", "connection"),
            Peer::Nftables => ("none", "random", "connection"),
            Peer::Ecmp => ("none", "hash", "connection"),
        };
        Parts {
            measure,
            dispatch,
            granularity,
        }
    }

    /// What it keeps beside the flow table.
    pub(crate) fn state(self) -> &'static str {
        match self {
            Peer::OneLink | Peer::Ecmp => "nothing",
            Peer::Nftables => "a mark for each connection",
        }
    }
}

impl From<Peer> for Policy {
    fn from(peer: Peer) -> Self {
        Policy::Peer(peer)
    }
}
