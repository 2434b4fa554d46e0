//! What is special about the place of an attack.

use std::time::Duration;

/// The link that may be broken; attacks from outside come by the first.
pub(super) const BROKEN: usize = 1;

/// What the gateway has beside it, how it is configured, and what is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scene {
    /// Nothing.
    Plain,
    /// The gateway has routing rules of others, which may speak of every flow.
    BesideRules,
    /// The gateway has a container that answers questions, from outside by its links' addresses, too.
    Container,
    /// One link carries pings and questions to resolvers, and nothing else.
    Captive,
    /// Everybody but the gateway knows its neighbours for good: their tables are the same kernel's, and not attacked.
    KnownNeighbours,
    /// Links follow router advertisements.
    Advertised,
    /// The gateway learns how fast destinations answer, and the first link is the nearest to all of them.
    Learning,
    /// In the gateway's place stands a balancer, and beyond its one link the servers of a service.
    Service,
}

impl Scene {
    /// Further lines of the configuration. As many prefixes as a flood has destinations would take minutes.
    pub fn settings(self) -> &'static str {
        match self {
            Self::Learning => "policy = \"passive\"\nlimits.prefixes = 256\n",
            Self::Container => "nat.forwards = \"kernel\"\n",
            _ => "",
        }
    }

    /// Whether a link is nearer than the others: the innocents' new connections should go by it.
    pub fn has_nearest_link(self) -> bool {
        self == Self::Learning
    }

    /// For tables to fill, before the innocents begin. A datagram that is answered holds its place in the connection table
    /// once it was sent again two seconds later.
    pub fn head_start(self) -> Duration {
        Duration::from_secs(if self == Self::Container { 6 } else { 1 })
    }

    /// The link that is broken.
    pub fn broken(self) -> Option<usize> {
        (self == Self::Captive).then_some(BROKEN)
    }
}
