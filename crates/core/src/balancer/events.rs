//! What the balancer asks for, tells, and when it is to be called.

use std::time::Duration;

use anabranch_policy::Family;

use crate::availability::{DownCause, Suspicion};
use crate::class::ClassId;
use crate::link::LinkId;
use crate::targets::ProbeId;
use crate::time::Time;

/// A probe to send over its link at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeRequest {
    /// Over which it is sent.
    pub link: LinkId,
    /// In which.
    pub family: Family,
    /// Of no other probe of this link and family to the same.
    pub id: ProbeId,
    /// The balancer counts it as lost from here on, or [`Config::queue_max`](crate::Config::queue_max) later on a loaded link. It wants to hear of
    /// answers up to then and for as long again.
    pub deadline: Time,
    /// Who is asked.
    pub whom: Whom,
}

/// Whom a probe asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Whom {
    /// Whether the link works: the target of this place in the list of [`Balancer::set_targets`](super::Balancer::set_targets).
    Target(usize),
    /// How long a round trip takes: the fixed node.
    Node,
    /// How long packets may be: the far host of this place in the list of which [`Balancer::set_length`](super::Balancer::set_length) tells, by a packet of so many
    /// bytes, IP header included, that nobody may fragment. Its answer is to be as long.
    Host {
        /// In the list.
        host: usize,
        /// Of the packet.
        bytes: u32,
    },
}

/// What people and the data path should hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The link has missed a probe, and is still used.
    Suspected {
        /// Which.
        link: LinkId,
        /// For which.
        family: Family,
        /// Why.
        suspicion: Suspicion,
    },
    /// The link answers, and carries nothing of what users begin; new flows take others.
    Captive {
        /// Which.
        link: LinkId,
        /// For which.
        family: Family,
    },
    /// The link is used again.
    LinkUp {
        /// Which.
        link: LinkId,
        /// For which.
        family: Family,
        /// Since it went down.
        down_for: Duration,
    },
    /// `after`: since it was last heard.
    LinkDown {
        /// Which.
        link: LinkId,
        /// For which.
        family: Family,
        /// Since it was last heard.
        after: Duration,
        /// Why.
        cause: DownCause,
    },
    /// Packets that are longer do not come through, though its device allows more.
    PathMtu {
        /// On which link.
        link: LinkId,
        /// Of which.
        family: Family,
        /// None: whatever its device allows comes through again.
        found: Option<FoundMtu>,
    },
    /// End the flows that a class has on a link: another link takes them, and the choices that say so were polled before.
    EndFlows {
        /// Of which class.
        class: ClassId,
        /// On which link.
        link: LinkId,
        /// Of which.
        family: Family,
    },
    /// Forget UDP flows that had no packet for `idle`: their next one binds them to a better link of their class.
    MoveUdp {
        /// Of which class.
        class: ClassId,
        /// On which link.
        link: LinkId,
        /// Of which.
        family: Family,
        /// Without a packet of either direction.
        idle: Duration,
    },
}

/// Why the balancer wants to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wakeup {
    /// Read the counters: [`Balancer::handle_counters`](super::Balancer::handle_counters).
    Counters,
    /// A probe is due: [`Balancer::poll_probe`](super::Balancer::poll_probe).
    Probe(LinkId, Family),
    /// A destination is to be asked: [`Balancer::poll_question`](super::Balancer::poll_question).
    Question(ClassId),
    /// A deadline or a patience ends: [`Balancer::handle_timeout`](super::Balancer::handle_timeout).
    Timeout(LinkId, Family),
}

/// What a path's packets are kept to, because longer ones vanish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundMtu {
    /// So long they may be.
    pub bytes: u32,
    /// Every other link that could carry longer ones shows the same: it may be that the hosts which are asked answer none.
    pub is_alike: bool,
}
