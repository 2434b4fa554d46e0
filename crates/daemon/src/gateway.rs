//! The gateway's role: one task owns the data path, the balancer and the view of the host, and handles one event at a
//! time.
//!
//! Events are: the host changes, a probe is answered, a request or a signal arrives, time passes. Handling one never blocks
//! for long, and nothing else changes the state. All is generic over the data path ([`Plane`]) and over the rest of
//! the world ([`Surroundings`]), so that its tests run on virtual time without a kernel.

mod answers;
mod checked;
mod endings;
mod look;
mod probing;
mod returns;
mod role;
mod surroundings;
mod tell;
mod turns;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use anabranch_api::{Finding, Response};
use anabranch_core::{ClassCounters, ClassId, Family, LinkId, Time};
use anabranch_policy::abi::MAX_LINKS;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::checking::Checking;
use crate::classes::ClassSlots;
use crate::config::{Config, Link};
use crate::driver::{Driver, ProbeOrder};
use crate::host::{Moved, Ways};
use crate::meter::Meter;
use crate::neighbours::Survey;
use crate::observe::{Desired, Grace, LinkView, Uses};
use crate::plane::{self, Ended, LinkPath, Plane, Swept};
use crate::probe::Answer;
use crate::shell::Shell;
use crate::slots::{Orders, Slots, Tested};
use answers::{admin, words};
use endings::{External, Left, Lingering};
use returns::Returning;

pub use surroundings::Surroundings;

/// The gateway and all state that its task owns.
pub struct GatewayRole<P, S> {
    pub(crate) shell: Shell,
    pub(crate) config: Config,
    pub(crate) slots: Slots,
    pub(crate) classes: ClassSlots,
    orders: Orders,
    pub(crate) plane: P,
    pub(crate) driver: Driver,
    /// The host as of the last inspection; rules and routes are updated at once.
    seen: Desired,
    /// The part of it that was written to the data path.
    pub(crate) told: Desired,
    /// Devices with programs of an earlier daemon.
    inherited: BTreeSet<u32>,
    pub(crate) meter: Meter,
    /// The result of the last sweep.
    pub(crate) swept: Swept,
    pub(crate) surroundings: S,
    /// The last addresses of every link, known while the link is away.
    externals: BTreeMap<(LinkId, Family), External>,
    /// Paths that are kept although their address or route is missing for a moment.
    grace: Grace,
    /// Which addresses and routers of IPv6 the links have used.
    uses: Uses,
    /// Former external addresses that are still on their devices, and still used by flows.
    lingering: Vec<Lingering>,
    /// Addresses of links that go out of use, until the host's own traffic is routed elsewhere.
    abandoned: Vec<(LinkId, IpAddr)>,
    /// Links that better ones have replaced, and which the host's own UDP has to leave in its pauses.
    returning: BTreeMap<(LinkId, Family), Returning>,
    moves: JoinSet<((LinkId, Family), anyhow::Result<Moved>)>,
    /// As written to the data path.
    fallback_mark: u32,
    /// The links without NAT, as bits; as written to the data path.
    routed: u32,
    /// The flows for which the kernel's routing rules are queried, as written to the data path; unknown before the first
    /// inspection.
    routes_kernel: Option<u32>,
    /// The active rules and the devices by name, as written to the data path; none: they have to be written again.
    told_rules: Option<(u64, BTreeMap<String, u32>)>,
    /// As written to the host.
    ways: Ways,
    ticks: u64,
    sweep_at: Instant,
    /// The sweep that is running, if any, and how long the last took.
    sweeps: JoinSet<(Result<Swept, plane::Error>, Duration)>,
    endings: JoinSet<(Left, Result<Ended, plane::Error>)>,
    /// Requests that are answered when these flows have ended.
    unanswered: Vec<(oneshot::Sender<Response>, Response)>,
    probes: JoinSet<(ProbeOrder, Option<Answer>)>,
    pub(crate) checks: Checking<checked::Path>,
    /// The last answer that came from another host than the probed one.
    pub(crate) wrong_answers: BTreeMap<(LinkId, Family), String>,
    /// The survey of other programs and hosts.
    pub(crate) survey: Survey,
    /// The survey that is running, if any.
    surveys: JoinSet<anyhow::Result<Vec<Finding>>>,
    /// Requests for the status that wait for the survey that they started.
    asking: Vec<oneshot::Sender<Response>>,
    /// Requests whose survey is done.
    surveyed: Vec<oneshot::Sender<Response>>,
    /// Whether other programs use connection tracking, by the last survey.
    others_track: bool,
    /// The local port of survey probes. NAT gives it to no flow.
    asks_from: u16,
}

impl<P: Plane, S: Surroundings> GatewayRole<P, S> {
    /// `former` has the link numbers of an earlier daemon, the operator's orders, and the results of checks. Nothing is changed
    /// yet.
    pub fn new(
        config: Config,
        instance: &str,
        (former, mut orders, tested): (Slots, Orders, Tested),
        (plane, adopted): (P, bool),
        surroundings: S,
    ) -> anyhow::Result<Self> {
        let slots = former.assign(config.names());
        orders.keep(&slots);
        let classes = class_slots(&plane, &config)?;
        let mut driver = Driver::new(Time::ZERO, &config, &slots, &classes)?;
        for (name, action) in orders.iter() {
            if let Some(id) = slots.id(name) {
                tracing::info!("link {name} {}, by an earlier order", words(action));
                driver.set_admin(Time::ZERO, id, admin(action));
            }
        }
        Ok(Self {
            driver,
            orders,
            seen: Desired::default(),
            told: Desired::default(),
            inherited: BTreeSet::new(),
            meter: Meter::default(),
            swept: Swept::default(),
            shell: Shell::new(instance, adopted),
            externals: BTreeMap::new(),
            grace: Grace::default(),
            uses: Uses::default(),
            lingering: Vec::new(),
            abandoned: Vec::new(),
            returning: BTreeMap::new(),
            moves: JoinSet::new(),
            fallback_mark: 0,
            routed: 0,
            routes_kernel: None,
            told_rules: None,
            ways: Ways::default(),
            ticks: 0,
            sweep_at: Instant::now(),
            sweeps: JoinSet::new(),
            endings: JoinSet::new(),
            unanswered: Vec::new(),
            probes: JoinSet::new(),
            checks: checked::checks(&config, &tested),
            survey: Survey::default(),
            surveys: JoinSet::new(),
            asking: Vec::new(),
            surveyed: Vec::new(),
            others_track: true,
            wrong_answers: BTreeMap::new(),
            asks_from: any_of(surroundings.ephemeral_ports()?),
            config,
            slots,
            classes,
            plane,
            surroundings,
        })
    }

    pub(crate) fn link_of(&self, id: LinkId) -> Option<&Link> {
        self.config.link(self.slots.name(id)?)
    }

    pub(crate) fn path_of(&self, id: LinkId, family: Family) -> Option<&LinkPath> {
        self.told.links.get(&id)?.path(family)
    }

    /// Whether a link has a family, by `view`, by what was seen before, or by the configuration. A link without any counts as IPv4.
    pub(crate) fn is_of(&self, id: LinkId, family: Family, view: Option<&LinkView>) -> bool {
        let knows = |family: Family| {
            self.link_of(id).is_some_and(|link| link.names(family))
                || view.is_some_and(|view| view.path(family).is_some())
                || self.externals.contains_key(&(id, family))
        };
        knows(family) || family == Family::V4 && !knows(Family::V6)
    }
}

/// Numbers the classes of a configuration, keeping the numbers that the data path has.
fn class_slots<P: Plane>(plane: &P, config: &Config) -> anyhow::Result<ClassSlots> {
    let counters = plane.class_counters()?;
    let live = |id: ClassId| counters.get(id.index()).map_or(0, ClassCounters::live);
    Ok(ClassSlots::of(config, &plane.class_names()?, live))
}

fn any_of([first, last]: [u16; 2]) -> u16 {
    let ports = u32::from(last.saturating_sub(first)) + 1;
    first + (rand::random::<u32>() % ports) as u16
}

fn all_links() -> impl Iterator<Item = LinkId> {
    (0..MAX_LINKS as u16).map(LinkId)
}

#[cfg(test)]
mod tests;
