//! The balancer as a state machine: counters, probe results and link states in; choices, probes and events out.
//!
//! What is a link's stands apart from what is a class's ([`links`], [`class`]): whether a link works and what it carries
//! is the same for all classes, what is made of it is each one's own. Whether it works is asked for each address family by
//! itself; its load is of both.

mod class;
mod links;
mod own;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use anabranch_policy::abi::{self, MAX_CLASSES, TIERS_MAX};
use anabranch_policy::paths::Prefix;
use anabranch_policy::{Choice, Family, PerFamily};

use self::class::Class;
pub use self::class::UDP_PAUSE;
pub use self::links::FoundMtu;
use self::links::{Link, Links, Path};
use crate::availability::{DownCause, ProbeId, State, Suspicion};
use crate::bandwidth::AvailableBandwidth;
use crate::class::{ClassId, ClassSpec, Classes};
use crate::config::{Config, ConfigError};
use crate::link::{Admin, LinkCounters, LinkId, LinkSet, LinkSpec, LinkState, RateNeed};
use crate::quality::{FlowQuality, ProbeQuality};
use crate::survey::{Opening, Question, Survey};
use crate::targets::{Kind, TargetRecord, TargetSpec};
use crate::time::Time;

/// Why no balancer can be built of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum BuildError {
    #[error("there are {0} links, allowed: 1 to {max}", max = abi::MAX_LINKS)]
    LinkCount(usize),
    #[error(
        "policy `{algorithm}` needs {need} of link `{link}`: declare it, or choose a policy that needs no rate"
    )]
    RateMissing {
        algorithm: String,
        link: String,
        need: RateNeed,
    },
    #[error("policy `{0}` measures round trips to a fixed node: name one in `probe.node`")]
    NodeMissing(String),
    #[error("link `{link}` has a rate of 0, allowed: 1 bit/s and more, or none")]
    RateZero { link: String },
    #[error("link `{link}` has weight {weight}, allowed: {min} to {max}", min = abi::WEIGHT_MIN, max = abi::WEIGHT_MAX)]
    WeightRange { link: String, weight: u32 },
    #[error("link `{link}` has no weight but others have: give every link a weight, or none")]
    WeightsMixed { link: String },
    #[error("there is no default class")]
    DefaultMissing,
    #[error("{0} is beyond the last, which is {max}", max = MAX_CLASSES - 1)]
    ClassRange(ClassId),
    #[error("{class} has {tiers} tiers, allowed: at most {TIERS_MAX}")]
    TierCount { class: ClassId, tiers: usize },
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// A probe to send over its link at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeRequest {
    /// Over which it is sent.
    pub link: LinkId,
    /// In which.
    pub family: Family,
    /// Of no other probe of this link and family to the same.
    pub id: ProbeId,
    /// The balancer counts it as lost from here on, or [`Config::queue_max`] later on a loaded link. It wants to hear of
    /// answers up to then and for as long again.
    pub deadline: Time,
    /// Who is asked.
    pub whom: Whom,
}

/// Whom a probe asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Whom {
    /// Whether the link works: the target of this place in the list of [`Balancer::set_targets`].
    Target(usize),
    /// How long a round trip takes: the fixed node.
    Node,
    /// How long packets may be: the far host of this place in the list of which [`Balancer::set_length`] tells, by a packet of so many
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
    /// Read the counters: [`Balancer::handle_counters`].
    Counters,
    /// A probe is due: [`Balancer::poll_probe`].
    Probe(LinkId, Family),
    /// A destination is to be asked: [`Balancer::poll_question`].
    Question(ClassId),
    /// A deadline or a patience ends: [`Balancer::handle_timeout`].
    Timeout(LinkId, Family),
}

/// One link for display.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkStatus {
    /// Which.
    pub link: LinkId,
    /// As configured.
    pub name: String,
    /// What the operator wants of it.
    pub admin: Admin,
    /// As configured.
    pub metered: bool,
    /// What is left in each direction (Peng eq. 6); none where no rate is declared.
    pub available_up_bps: Option<u64>,
    /// The same towards the LAN.
    pub available_down_bps: Option<u64>,
    /// As it stands in the default class's choice, without a unit.
    pub weight: u32,
    /// As of the last reading.
    pub counters: LinkCounters,
    /// What its flows tell of the last minute.
    pub recent: FlowQuality,
    /// What the fixed node says of it, if it is asked.
    pub node: Option<NodeStatus>,
    /// How it fares for each family.
    pub paths: PerFamily<PathStatus>,
}

/// Round trips to the fixed node over one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// Of the node.
    pub family: Family,
    /// Questions, since the beginning.
    pub sent: u64,
    /// The last to have ended; none before the first has.
    pub round_trip: Option<Duration>,
}

/// One link for one family, for display.
#[derive(Clone, Debug, PartialEq)]
pub struct PathStatus {
    /// A suspicion shows when its first probe is lost, as in [`Event::Suspected`].
    pub state: State,
    /// When it was last taken away, or came back, by itself or by order. Suspicions change nothing.
    pub since: Time,
    /// Takes new flows of some class.
    pub usable: bool,
    /// Lost and all probes of the window.
    pub probes_lost: usize,
    /// The size of that window so far.
    pub probes_judged: usize,
    /// All that were ever to be sent, ...
    pub probes_sent: u64,
    /// ... and of those what never left the host.
    pub probes_not_sent: u64,
    /// Smoothed; none before the first answer.
    pub round_trip: Option<Duration>,
    /// In the order of [`Balancer::set_targets`].
    pub targets: Vec<TargetRecord>,
    /// Nothing beyond the access line answers.
    pub near_only: bool,
    /// Until when it answers without being used, or captive.
    pub held_until: Option<Time>,
    /// How often it went down of late, and the first of those times.
    pub falls: usize,
    /// None without a fall.
    pub first_fall: Option<Time>,
    /// How often it went down within the last hour.
    pub falls_within_an_hour: usize,
    /// When anything was heard last.
    pub heard: Time,
    /// What probes tell of the last minute.
    pub recent: ProbeQuality,
    /// Ways of asking that somebody filters, while others are answered.
    pub filtered: Vec<Kind>,
    /// The target that shows that somebody else answers for pages.
    pub portal: Option<usize>,
    /// Longer packets do not come through, though its device allows more.
    pub mtu: Option<FoundMtu>,
}

/// One class for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassStatus {
    /// Which.
    pub class: ClassId,
    /// As configured; none: every link.
    pub tiers: Option<Vec<LinkSet>>,
    /// Take its new flows of each family.
    pub usable: PerFamily<LinkSet>,
    /// As they stand in its choice, in the order of the links' ids, without a unit.
    pub weights: Vec<u32>,
}

/// The balancer of one gateway.
///
/// Four kinds of methods, none of which blocks, reads a clock or does IO:
/// - *getters*: [`status`](Self::status), [`class_status`](Self::class_status), [`usable`](Self::usable);
/// - *`handle_…`* take what happened, each with the time it happened at;
/// - *commands* take what the operator wants: [`set_admin`](Self::set_admin), [`reconfigure`](Self::reconfigure);
/// - *`poll_…`* say what is to be done.
///
/// After any `handle_…` or command, poll in this order until each is empty: [`poll_choice`](Self::poll_choice) (install
/// it), [`poll_probe`](Self::poll_probe) (send it), [`poll_event`](Self::poll_event) (it holds events back while a choice
/// waits, so that no flow ends before the links that take its successor are known), and wait until
/// [`poll_timeout`](Self::poll_timeout). At the start, tell every link's state, then the counters: there is no choice
/// before the first counters.
#[derive(Debug)]
pub struct Balancer {
    config: Config,
    links: Links,
    /// The default class, and what others there are.
    classes: BTreeMap<ClassId, Class>,
    /// Of the classes that survey their destinations.
    surveys: BTreeMap<ClassId, Survey>,
    events: VecDeque<Event>,
}

impl Balancer {
    /// A balancer over `links`, in the order of their ids, all absent.
    pub fn new(
        now: Time,
        classes: Classes,
        links: Vec<LinkSpec>,
        config: Config,
    ) -> Result<Self, BuildError> {
        config.validate()?;
        check_links(&links)?;
        check_classes(&classes, &links, &config)?;
        let count = links.len();
        let surveys = classes.iter().filter_map(|(id, spec)| {
            let active = spec.algorithm.active?;
            Some((*id, Survey::new(now, active)))
        });
        let surveys = surveys.collect();
        let class = |(id, spec)| (id, Class::new(now, spec, count));
        let mut balancer = Balancer {
            links: Links::new(now, links, &config),
            classes: classes.into_iter().map(class).collect(),
            surveys,
            events: VecDeque::new(),
            config,
        };
        balancer.listen();
        Ok(balancer)
    }

    fn listen(&mut self) {
        let classes = &self.classes;
        let is_per_packet = |link| classes.values().any(|class| class.spreads_over(link));
        self.links.listen(is_per_packet);
        let asks = classes.values().any(Class::needs_node);
        self.links.node = self.config.node.filter(|_| asks);
    }

    // ---- getters

    /// The links that take new flows of a class.
    pub fn usable(&self, class: ClassId, family: Family) -> LinkSet {
        let class = self.classes.get(&class);
        let usable = class.map(|class| class.paths()[family].usable);
        usable.unwrap_or_default()
    }

    /// The links that carry packets of a family, whether or not new flows take them.
    pub fn alive(&self, family: Family) -> LinkSet {
        let alive = self.links.iter().filter(|(_, link)| link.is_alive(family));
        alive.map(|(id, _)| id).collect()
    }

    /// Longer packets do not come through, though the link's device allows more.
    pub fn path_mtu(&self, link: LinkId, family: Family) -> Option<u32> {
        let found = self.links.found_mtu(link, family)?;
        Some(found.bytes)
    }

    /// New flows of some family find no link that works without this one.
    pub fn is_last(&self, link: LinkId) -> bool {
        Family::ALL.into_iter().any(|family| {
            let mut others = self.links.iter().filter(|(id, _)| *id != link);
            self.takes_flows(link, family) && !others.any(|(_, link)| link.is_alive(family))
        })
    }

    /// Of any class.
    fn takes_flows(&self, link: LinkId, family: Family) -> bool {
        let mut classes = self.classes.values();
        classes.any(|class| class.paths()[family].usable.contains(link))
    }

    /// Every link for display, in the order of their ids.
    pub fn status(&self, now: Time) -> Vec<LinkStatus> {
        self.links
            .iter()
            .map(|(id, link)| self.link_status(now, id, link))
            .collect()
    }

    /// Every class for display, in the order of their ids.
    pub fn class_status(&self) -> Vec<ClassStatus> {
        let classes = self.classes.iter();
        classes.map(|(id, class)| class.status(*id)).collect()
    }

    fn link_status(&self, now: Time, id: LinkId, link: &Link) -> LinkStatus {
        let default = self.classes.get(&ClassId::DEFAULT);
        LinkStatus {
            link: id,
            name: link.spec.name.clone(),
            admin: link.admin,
            metered: link.spec.metered,
            available_up_bps: link.load.up().map(AvailableBandwidth::bps),
            available_down_bps: link.load.down().map(AvailableBandwidth::bps),
            weight: default.map_or(abi::WEIGHT_MAX, |class| class.weight(id)),
            counters: link.counters,
            recent: link.recent.quality(now),
            node: self.links.node.map(|family| NodeStatus {
                family,
                sent: link.rounds.sent(),
                round_trip: link.rounds.last(),
            }),
            paths: PerFamily::from_fn(|family| {
                let usable = self.takes_flows(id, family);
                let mtu = self.links.found_mtu(id, family);
                path_status(now, &link.paths[family], usable, mtu)
            }),
        }
    }

    /// Whether some class surveys its destinations.
    pub fn surveys(&self) -> bool {
        !self.surveys.is_empty()
    }

    /// What these classes probe.
    pub fn listed(&self) -> BTreeSet<Prefix> {
        self.surveys.values().flat_map(Survey::listed).collect()
    }

    /// Questions that were ever asked.
    pub fn asked(&self) -> u64 {
        self.surveys.values().map(Survey::asked).sum()
    }

    // ---- what happened

    /// Connections that were opened.
    pub fn handle_openings(&mut self, openings: &[Opening]) {
        for opening in openings {
            if let Some(survey) = self.surveys.get_mut(&opening.class) {
                survey.note(opening.to);
            }
        }
    }

    /// The counters of every link, in the order of their ids. Counters that run backwards begin anew.
    pub fn handle_counters(&mut self, now: Time, counters: &[LinkCounters]) {
        let first = self.links.counted.is_none();
        self.links.handle_counters(now, counters);
        for class in self.classes.values_mut() {
            if first {
                class.begin_window(now, &self.links);
            } else if class.period_end().is_some_and(|end| end <= now) {
                class.end_period(now, &self.links);
            }
        }
        self.settle(now);
    }

    /// A probe was answered, in time or not: anything came back that only who was asked could have sent. Nothing needs to
    /// be told of probes without an answer.
    pub fn handle_answer(&mut self, now: Time, probe: &ProbeRequest, round_trip: Duration) {
        let Some(link) = self.links.get_mut(probe.link) else {
            return;
        };
        match probe.whom {
            Whom::Target(_) => {
                let path = &mut link.paths[probe.family];
                path.availability.answer(now, probe.id, round_trip);
                self.settle(now);
            }
            Whom::Node if link.rounds.answer(probe.id, round_trip) => self.end_rounds(now),
            Whom::Node => {}
            Whom::Host { .. } => {
                let period = link.length_period(&self.config);
                let path = &mut link.paths[probe.family];
                path.mtu.answer(now, probe.id, period);
            }
        }
    }

    /// A round trip to the fixed node has ended: links are compared anew.
    fn end_rounds(&mut self, now: Time) {
        let classes = self.classes.values_mut();
        for class in classes.filter(|class| class.is_back_to_back()) {
            class.end_period(now, &self.links);
        }
    }

    /// Whether the question before this one, to the same end over the same link, was answered.
    pub fn handle_question(&mut self, question: &Question, answered: bool) {
        if let Some(survey) = self.surveys.get_mut(&question.class) {
            survey.hear(question.to, answered);
        }
    }

    /// A probe proves nothing: it never left this host, for a reason of the host's own, or its answer is shorter than asked for.
    pub fn handle_inconclusive(&mut self, probe: &ProbeRequest) {
        let Some(link) = self.links.get_mut(probe.link) else {
            return;
        };
        let path = &mut link.paths[probe.family];
        match probe.whom {
            Whom::Target(_) => path.availability.withdraw(probe.id),
            Whom::Host { .. } => path.mtu.withdraw(probe.id),
            Whom::Node => {}
        }
    }

    /// A probe was answered by somebody else than who was asked: a page is not as it should be.
    pub fn handle_wrong_answer(&mut self, now: Time, probe: &ProbeRequest) {
        if let (Some(link), Whom::Target(_)) = (self.links.get_mut(probe.link), probe.whom) {
            let path = &mut link.paths[probe.family];
            path.availability.answer_wrong(now, probe.id);
            self.settle(now);
        }
    }

    /// A link's device, carrier, address or gateway came or went. Of a family that it was never told of, a link is absent.
    pub fn handle_link_state(&mut self, now: Time, link: LinkId, family: Family, state: LinkState) {
        let Some(link) = self.links.get_mut(link) else {
            return;
        };
        link.paths[family].availability.set_link_state(now, state);
        self.settle(now);
    }

    /// Whom probes over this link may ask; at least one. A link begins with one far target.
    pub fn set_targets(&mut self, link: LinkId, family: Family, specs: &[TargetSpec]) {
        if let Some(link) = self.links.get_mut(link) {
            link.paths[family].availability.set_targets(specs);
        }
    }

    /// How long packets may be on the link's device, and how many far hosts there are to ask how long they may be beyond it.
    pub fn set_length(&mut self, now: Time, link: LinkId, family: Family, mtu: u32, hosts: usize) {
        if let Some(link) = self.links.get_mut(link) {
            link.paths[family].mtu.set(now, mtu, hosts);
        }
    }

    /// The time of [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Time) {
        for (_, link) in self.links.iter_mut() {
            for path in link.paths.values_mut() {
                path.availability.tick(now, &link.load);
            }
        }
        self.settle(now);
        let ended = self
            .links
            .iter_mut()
            .filter_map(|(_, link)| link.rounds.tick(now).then_some(()));
        if ended.count() > 0 {
            self.end_rounds(now);
        }
    }

    // ---- what the operator wants

    /// Takes a link out of use, or back, even if it is held down. A link the operator drains or takes down is not used even if no other is left.
    pub fn set_admin(&mut self, now: Time, link: LinkId, admin: Admin) {
        let Some(link) = self.links.get_mut(link) else {
            return;
        };
        link.set_admin(now, admin);
        self.settle(now);
    }

    /// Other classes, other links, other thresholds. A link that keeps its place and its name goes on as it is: known to be
    /// up or down, taken away or not. But one that gets NAT or loses it is absent until its state is told, and its flows end
    /// for good, so tell that when they have. A class that keeps its number goes on too, and so does its window if it shares out
    /// the same links by the same algorithm. If the new configuration is refused, nothing changes.
    pub fn reconfigure(
        &mut self,
        now: Time,
        classes: Classes,
        links: Vec<LinkSpec>,
        config: Config,
    ) -> Result<(), BuildError> {
        let mut before = std::mem::replace(self, Balancer::new(now, classes, links, config)?);
        let same_links = self.links.specs().eq(before.links.specs());
        let both = self.links.specs().zip(before.links.specs());
        let is_same = |now: &LinkSpec, before: &LinkSpec| {
            (&now.name, now.routed) == (&before.name, before.routed)
        };
        let stays: Vec<bool> = both.map(|(now, before)| is_same(now, before)).collect();
        self.links.succeed(before.links, &self.config);
        self.listen();
        self.events = before.events;
        for (id, survey) in &mut self.surveys {
            let same = |survey: &Survey, before: &Survey| survey.active() == before.active();
            if let Some(before) = before
                .surveys
                .remove(id)
                .filter(|before| same(survey, before))
            {
                *survey = before;
            }
        }
        for (id, class) in &mut self.classes {
            if let Some(before) = before.classes.remove(id) {
                class.succeed(before, &stays, same_links);
            }
        }
        self.settle(now);
        Ok(())
    }

    // ---- what is to be done

    /// The choice of a class for a family to install, if it differs from its last.
    pub fn poll_choice(&mut self) -> Option<(ClassId, Family, Choice)> {
        let mut classes = self.classes.iter_mut();
        classes.find_map(|(id, class)| {
            let (family, choice) = class.poll_choice()?;
            Some((*id, family, choice))
        })
    }

    /// The next probe that is due.
    pub fn poll_probe(&mut self, now: Time) -> Option<ProbeRequest> {
        self.poll_availability(now)
            .or_else(|| self.poll_rounds(now))
            .or_else(|| self.poll_lengths(now))
    }

    fn poll_lengths(&mut self, now: Time) -> Option<ProbeRequest> {
        let request = self.next_length(now);
        self.events.extend(self.links.tell_lengths());
        request
    }

    fn next_length(&mut self, now: Time) -> Option<ProbeRequest> {
        let config = &self.config;
        self.links.iter_mut().find_map(|(link, state)| {
            let period = state.length_period(config);
            let mut paths = state.paths.iter_mut();
            paths.find_map(|(family, path)| {
                let long = path.next_length(now, period)?;
                Some(ProbeRequest {
                    link,
                    family,
                    id: long.id,
                    deadline: long.deadline,
                    whom: Whom::Host {
                        host: long.host,
                        bytes: long.bytes,
                    },
                })
            })
        })
    }

    fn poll_rounds(&mut self, now: Time) -> Option<ProbeRequest> {
        let family = self.links.node?;
        let mut links = self
            .links
            .iter_mut()
            .filter(|(_, link)| link.is_eligible(family));
        links.find_map(|(link, state)| {
            let (id, deadline) = state.rounds.next_probe(now)?;
            Some(ProbeRequest {
                link,
                family,
                id,
                deadline,
                whom: Whom::Node,
            })
        })
    }

    fn poll_availability(&mut self, now: Time) -> Option<ProbeRequest> {
        self.links.iter_mut().find_map(|(id, link)| {
            let mut paths = link.paths.iter_mut();
            let (family, probe) = paths.find_map(|(family, path)| {
                let probe = path.availability.next_probe(now, &link.load)?;
                Some((family, probe))
            })?;
            Some(ProbeRequest {
                link: id,
                family,
                id: probe.id,
                deadline: probe.deadline,
                whom: Whom::Target(probe.target_index),
            })
        })
    }

    /// The next question that is due to a destination that is used much.
    pub fn poll_question(&mut self, now: Time) -> Option<Question> {
        let classes = &self.classes;
        self.surveys.iter_mut().find_map(|(class, survey)| {
            let usable = |to: SocketAddr| {
                let paths = classes.get(class).map(|class| class.paths());
                paths.map_or_else(LinkSet::default, |paths| {
                    paths[Family::from(to.ip())].usable
                })
            };
            let (link, to) = survey.poll(now, usable)?;
            Some(Question {
                class: *class,
                link,
                to,
            })
        })
    }

    /// The next event; none while a choice waits to be polled.
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.classes.values().any(Class::has_pending) {
            None
        } else {
            self.events.pop_front()
        }
    }

    /// When to call next, and why.
    pub fn poll_timeout(&self) -> (Time, Wakeup) {
        let counters = self.links.read_due(self.config.poll);
        let links = self.links.iter();
        let paths = links.flat_map(|(id, link)| {
            let paths = link.paths.iter();
            paths.flat_map(move |(family, path)| path_timeouts(id, family, path))
        });
        paths
            .chain(self.rounds())
            .chain(self.period_end())
            .chain(self.questions())
            .fold((counters, Wakeup::Counters), Ord::min)
    }

    /// Of round trips to the fixed node.
    fn rounds(&self) -> impl Iterator<Item = (Time, Wakeup)> {
        let families = self.links.node.into_iter();
        families.flat_map(|family| {
            let links = self
                .links
                .iter()
                .filter(move |(_, link)| link.is_eligible(family));
            links.flat_map(move |(id, link)| {
                let probe = link.rounds.probe_due();
                let probe = probe.map(|at| (at, Wakeup::Probe(id, family)));
                let timeout = link.rounds.timeout();
                let timeout = timeout.map(|at| (at, Wakeup::Timeout(id, family)));
                [probe, timeout].into_iter().flatten()
            })
        })
    }

    fn questions(&self) -> impl Iterator<Item = (Time, Wakeup)> {
        let surveys = self.surveys.iter();
        surveys.map(|(class, survey)| (survey.due(), Wakeup::Question(*class)))
    }

    /// Of the class whose measuring period ends first. Where nothing is carried there is nothing to measure: it ends with the next
    /// reading, unless a policy of one's own is to be asked.
    fn period_end(&self) -> Option<(Time, Wakeup)> {
        self.links.counted?;
        let is_quiet = self.is_quiet();
        let classes = self.classes.values();
        let classes = classes.filter(|class| !is_quiet || class.has_own_policy());
        let ends = classes.filter_map(Class::period_end);
        ends.min().map(|at| (at, Wakeup::Counters))
    }

    /// Nothing was carried of late: whoever drives the balancer may look around less often.
    pub fn is_quiet(&self) -> bool {
        self.links.is_quiet()
    }

    // ---- rules

    /// Brings events and choices up to date with the links' states.
    fn settle(&mut self, now: Time) {
        self.events.extend(self.links.settle(now));
        let mut default = None;
        for class in self.classes.values_mut() {
            class.settle(now, &self.links, default.as_ref());
            default.get_or_insert(*class.paths());
        }
        self.move_flows(now);
    }

    /// A link that is used again before anybody heard of its flows' end keeps them, as does one whose flows nobody takes any more.
    fn move_flows(&mut self, now: Time) {
        if self.links.counted.is_none() {
            return;
        }
        let (classes, links) = (&mut self.classes, &self.links);
        self.events.retain(|event| match event {
            Event::EndFlows {
                class,
                link,
                family,
            } => {
                let class = classes.get_mut(class);
                class.is_some_and(|class| class.still_ends(links, *link, *family))
            }
            Event::MoveUdp {
                class,
                link,
                family,
                ..
            } => {
                let class = classes.get(class);
                class.is_some_and(|class| !class.paths()[*family].usable.contains(*link))
            }
            _ => true,
        });
        for (id, class) in &mut self.classes {
            class.end_flows(*id, &self.links, &mut self.events);
            class.move_flows(now, *id, &self.links, &mut self.events);
        }
    }
}

fn path_status(now: Time, path: &Path, usable: bool, mtu: Option<FoundMtu>) -> PathStatus {
    let availability = &path.availability;
    let (probes_lost, probes_judged) = availability.loss();
    let (falls, first_fall) = availability.falls(now);
    PathStatus {
        state: path.shown_state(),
        since: path.changed,
        usable,
        probes_lost,
        probes_judged,
        probes_sent: availability.probes_sent(),
        probes_not_sent: availability.probes_not_sent(),
        round_trip: availability.round_trip(),
        targets: availability.targets().to_vec(),
        near_only: availability.is_near_only(now),
        held_until: availability.held_until(),
        falls,
        first_fall,
        falls_within_an_hour: availability.falls_within_an_hour(now),
        heard: availability.heard(),
        recent: availability.quality(now),
        filtered: availability.filtered(),
        portal: availability.portal(),
        mtu,
    }
}

fn path_timeouts(
    link: LinkId,
    family: Family,
    path: &Path,
) -> impl Iterator<Item = (Time, Wakeup)> + use<> {
    let timeout = path.availability.next_timeout();
    let length = path.length_due();
    let probe = move |at| (at, Wakeup::Probe(link, family));
    let probes = [path.availability.probe_due(), length]
        .into_iter()
        .flatten();
    let timeout = timeout.map(|at| (at, Wakeup::Timeout(link, family)));
    probes.map(probe).chain(timeout)
}

fn check_links(links: &[LinkSpec]) -> Result<(), BuildError> {
    if links.is_empty() || links.len() > abi::MAX_LINKS {
        return Err(BuildError::LinkCount(links.len()));
    }
    let weighted = links.iter().any(|spec| spec.weight.is_some());
    for spec in links {
        let link = spec.name.clone();
        if spec.rate_up_bps == Some(0) || spec.rate_down_bps == Some(0) {
            return Err(BuildError::RateZero { link });
        }
        match spec.weight {
            Some(weight) if !(abi::WEIGHT_MIN..=abi::WEIGHT_MAX).contains(&weight) => {
                return Err(BuildError::WeightRange { link, weight });
            }
            None if weighted => return Err(BuildError::WeightsMixed { link }),
            _ => {}
        }
    }
    Ok(())
}

fn check_classes(classes: &Classes, links: &[LinkSpec], config: &Config) -> Result<(), BuildError> {
    if !classes.contains_key(&ClassId::DEFAULT) {
        return Err(BuildError::DefaultMissing);
    }
    for (&class, spec) in classes {
        if class.index() >= MAX_CLASSES {
            return Err(BuildError::ClassRange(class));
        }
        let tiers = spec.tiers.as_ref().map_or(0, Vec::len);
        if tiers > TIERS_MAX {
            return Err(BuildError::TierCount { class, tiers });
        }
        if spec.algorithm.needs_node() && config.node.is_none() {
            return Err(BuildError::NodeMissing(spec.algorithm.to_string()));
        }
        check_rates(spec, links)?;
    }
    Ok(())
}

/// A class needs to know the rates of the links that it names.
fn check_rates(spec: &ClassSpec, links: &[LinkSpec]) -> Result<(), BuildError> {
    let need = spec.algorithm.needs_rate();
    let mut named = (0..)
        .map(LinkId)
        .zip(links)
        .filter(|(id, _)| spec.names(*id));
    match named.find(|(_, link)| !need.is_met_by(link)) {
        None => Ok(()),
        Some((_, link)) => Err(BuildError::RateMissing {
            algorithm: spec.algorithm.to_string(),
            link: link.name.clone(),
            need,
        }),
    }
}
