//! What the balancer returns: probes to send, events, and when to call it again.

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
    /// The link by which it leaves.
    pub link: LinkId,
    /// The address family of the probe.
    pub family: Family,
    /// Unique among the probes of this link and family to the same target.
    pub id: ProbeId,
    /// From this time on the probe counts as lost; on a loaded link it does so [`Config::queue_max`](crate::Config::queue_max) later. The caller
    /// reports answers up to then, and for as long again: a late answer still shows that the link works.
    pub deadline: Time,
    /// What the probe is for, and its target.
    pub whom: Whom,
}

/// The purpose and target of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Whom {
    /// To see whether the link works: the index of the target in the list of [`Balancer::set_targets`](super::Balancer::set_targets).
    Target(usize),
    /// To measure the round-trip time to the fixed node.
    Node,
    /// To find the path MTU: a packet that must not be fragmented goes to a far host, whose answer has to be as long. How many far hosts there are
    /// is set by [`Balancer::set_length`](super::Balancer::set_length).
    Host {
        /// Index in the list of far hosts.
        host: usize,
        /// Length of the packet, IP header included.
        bytes: u32,
    },
}

/// What has changed, for people and for the data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The link has lost a probe, and is still used.
    Suspected {
        /// The link.
        link: LinkId,
        /// The address family.
        family: Family,
        /// The evidence.
        suspicion: Suspicion,
    },
    /// The link answers probes, but carries no connection that users open; new flows take other links.
    Captive {
        /// The link.
        link: LinkId,
        /// The address family.
        family: Family,
    },
    /// The link is used again.
    LinkUp {
        /// The link.
        link: LinkId,
        /// The address family.
        family: Family,
        /// Time since it went down.
        down_for: Duration,
    },
    /// The link is down.
    LinkDown {
        /// The link.
        link: LinkId,
        /// The address family.
        family: Family,
        /// Time since the last packet or answer came in by it.
        after: Duration,
        /// The evidence.
        cause: DownCause,
    },
    /// The path MTU has changed: longer packets vanish, although the device allows them.
    PathMtu {
        /// The link.
        link: LinkId,
        /// The address family.
        family: Family,
        /// None: packets as long as the device allows arrive again.
        found: Option<FoundMtu>,
    },
    /// End the flows that a class has on a link. The choices that send them to another link were polled before.
    EndFlows {
        /// The class whose flows these are.
        class: ClassId,
        /// The link.
        link: LinkId,
        /// The address family.
        family: Family,
    },
    /// Forget UDP flows that were idle for `idle`: their next packet binds them to a better link of their class.
    MoveUdp {
        /// The class whose flows these are.
        class: ClassId,
        /// The link.
        link: LinkId,
        /// The address family.
        family: Family,
        /// Time without a packet in either direction.
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
    /// A popular destination is to be probed: [`Balancer::poll_question`](super::Balancer::poll_question).
    Question(ClassId),
    /// A deadline or a waiting time has ended: [`Balancer::handle_timeout`](super::Balancer::handle_timeout).
    Timeout(LinkId, Family),
}

/// A path MTU that was found because longer packets vanish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundMtu {
    /// The longest packet that arrives, IP header included.
    pub bytes: u32,
    /// Every other link whose device allows longer packets shows the same. The cause may then be that the probed hosts answer none.
    pub is_alike: bool,
}
