//! What a peer decides: which link is the way to where, and what it sends of its own to know that.

use std::collections::BTreeMap;

use anabranch_core::LinkId;
use anabranch_policy::paths::Prefix;

/// A packet of a peer's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Whose lines it takes.
    pub link: LinkId,
    /// Which of them.
    pub journey: Journey,
    /// With headers.
    pub bytes: u32,
    /// To be told by when it arrives.
    pub token: u32,
}

/// The way of a peer's own packet over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journey {
    /// Over the last mile and back.
    Neighbour,
    /// Beyond all lines and back.
    Far,
    /// From the site, and not back.
    Up,
    /// To the site, and not back.
    Down,
}

/// Which link is the way to where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Where no prefix is known: hosts have these in turn, by their number. At least one.
    pub(crate) hosts: Vec<LinkId>,
    pub(crate) prefixes: BTreeMap<Prefix, LinkId>,
}

impl Table {
    pub(crate) fn by_host(hosts: Vec<LinkId>) -> Table {
        Table {
            hosts,
            prefixes: BTreeMap::new(),
        }
    }

    /// Of what host number `host` sends to an address of `to`.
    pub fn link(&self, host: u32, to: Prefix) -> LinkId {
        let known = self.prefixes.get(&to).copied();
        known.unwrap_or_else(|| self.hosts[host as usize % self.hosts.len()])
    }
}

/// The way of the internet to a host of the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inward {
    /// By which it comes.
    pub link: LinkId,
    /// The provider that has sent it on through a tunnel.
    pub through: Option<LinkId>,
}
