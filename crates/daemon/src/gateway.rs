//! The gateway's part of the loop: one task owns the data path, the balancer and the view of the host, and takes in turn
//! what happens.
//!
//! What happens is: the host changes, a probe is answered, somebody asks, a signal comes, time passes. None of it blocks
//! for long, and nothing else touches the state. All is generic over the data path ([`Plane`]) and over the rest of
//! the world ([`Surroundings`]), so that its tests run on virtual time without a kernel.

mod answers;
mod endings;
mod returns;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anabranch_core::rules::file::Remark;
use anabranch_core::rules::{Class, Moment, WhenNone, active, compile};
use anabranch_core::{
    ClassCounters, ClassId, Family, LinkId, LinkState, ProbeRequest, Question, Reach, TargetSpec,
    Time, Whom,
};
use anabranch_policy::PerFamily;
use anabranch_policy::abi::link_place;
use anyhow::Context;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Span;

use crate::classes::ClassSlots;
use crate::config::{Config, Configuration, GATEWAY, LINKS_MAX, Link};
use crate::control::Call;
use crate::driver::{Driver, ProbeOrder};
use crate::error::with_causes;
use crate::host::{Conversation, Moved, Return, RuleWay, Way, Ways};
use crate::meter::Meter;
use crate::neighbours::Survey;
use crate::observe::{Attachment, Desired, Grace, LinkView, MassKey, Snapshot, Uses};
use crate::plane::{self, Ended, LinkPath, Plane, Route, Swept, Verdict, Walk, Which};
use crate::probe::{Answer, Inquiry, Target, Via};
use crate::shell::{Role, Shell};
use crate::slots::{Orders, Slots};
use crate::view;
use anabranch_api::{Finding, ReasonCount, Request, Response, Severity};
use answers::{admin, list_flows, list_prefixes, words};
use endings::{External, Left, Lingering};
use returns::Returning;

/// Sweeping takes one part in this many of a processor's time, at most, while there is room in the table.
const SWEEP_REST: u32 = 200;
/// A table that was empty is swept this often.
const SWEEP_REST_EMPTY: Duration = Duration::from_secs(5);
/// The host is looked at this often even if netlink is silent.
const LOOK_TICKS: u64 = 30;
/// The host's own UDP that did not pause is looked at so often.
const MOVE_TICKS: u64 = 5;
/// Probes under way; more would mean that answers are never given up.
const PROBES_MAX: usize = 1024;

/// The world around the loop.
pub trait Surroundings {
    /// Devices, addresses and routes as they stand.
    fn snapshot(&mut self) -> impl Future<Output = anyhow::Result<Snapshot>>;
    /// Returns when they have changed. Cancel-safe.
    fn changed(&mut self) -> impl Future<Output = anyhow::Result<()>>;
    /// Whether anything is carried: how soon a lost carrier has to be seen.
    fn rest(&mut self, is_quiet: bool);
    /// Tells the data path of these destinations, and of the prefixes of masses: they are written beside the loop.
    fn set_routes(&mut self, routes: &[Route], masses: &[(MassKey, Verdict)])
    -> anyhow::Result<()>;
    /// Makes routing rules, settings and the fallback as `desired` wants them. Returns what could not be done.
    fn apply(
        &mut self,
        config: &Config,
        desired: &Desired,
        ways: &Ways,
    ) -> impl Future<Output = Vec<anyhow::Error>>;
    /// What stands beside the gateway on this host.
    fn survey(
        &self,
        config: &Config,
        host: Snapshot,
    ) -> impl Future<Output = anyhow::Result<Vec<Finding>>> + Send + 'static;
    /// Something that the survey reads has changed, and netlink does not tell of it; asked often.
    fn has_other_neighbours(&self) -> bool;
    /// Nothing that others have here treats packets otherwise which no connection is known of; asked for every probe.
    fn lets_untracked_pass(&self) -> bool;
    /// Whether a firewall or NAT of others looks at connections, as far as the last survey knows.
    fn others_track(&self) -> bool;
    /// Whether this host can do as a configuration says; its devices are the instance's from here on.
    fn check(&mut self, config: &Config) -> impl Future<Output = Result<(), crate::Error>>;
    /// Asks over one link.
    fn probe(
        &self,
        inquiry: Inquiry,
        via: Via,
    ) -> impl Future<Output = Option<Answer>> + Send + 'static;
    /// Asks a destination by a segment that a RST with this number answers.
    fn ask(&self, to: SocketAddr, from_port: u16, number: u32, via: &Via);
    /// Remembers the numbers of the links beyond this process. What is remembered already costs nothing.
    fn keep_slots(&mut self, slots: &Slots) -> anyhow::Result<()>;
    /// Remembers whose the devices are beyond this process, and lets go of those that left the configuration and have
    /// no program.
    fn keep_claims(&mut self, config: &Config, has_stale_programs: bool) -> anyhow::Result<()>;
    /// Remembers what was ordered, also beyond a clean stop; else the orders of before.
    fn keep_orders(&mut self, orders: &Orders) -> anyhow::Result<()>;
    /// The time of the week, as the host's clock and time zone have it.
    fn moment(&self) -> Moment;
    /// The ports of the host's own sockets.
    fn ephemeral_ports(&self) -> anyhow::Result<[u16; 2]>;
    /// Mark of what the kernel's own NAT carries; 0 if nothing. [`apply`](Self::apply) may find that it can.
    fn fallback_mark(&self, config: &Config) -> u32;
    /// Somebody took away what guards the host, or set back what it needs; asked often.
    fn has_lost_guard(&mut self) -> bool;
    /// Has the host's own UDP leave `address`, which `link` has or had.
    fn abandon(&self, link: &str, address: IpAddr);
    /// The same of conversations that had no packet for `idle` and are `meant`, since a better link has returned.
    fn move_idle(
        &self,
        returned: Arc<Mutex<Return>>,
        idle: Duration,
        is_meant: impl Fn(&Conversation) -> bool + Send + 'static,
    ) -> impl Future<Output = anyhow::Result<Moved>> + Send + 'static;
    /// What the host lacks, and what cannot be done without.
    fn lacks(&self) -> Option<String>;
    /// Entries of the kernel's connection table, and how many there may be.
    fn connection_table(&self) -> Option<(u64, u64)>;
    /// What the host's own filter has dropped for us.
    fn drops(&self) -> anyhow::Result<Vec<ReasonCount>>;
    /// Puts back what was changed.
    fn restore(self) -> impl Future<Output = anyhow::Result<()>>;
}

/// The gateway and all that its loop owns.
pub struct GatewayRole<P, S> {
    pub(crate) shell: Shell,
    pub(crate) config: Config,
    pub(crate) slots: Slots,
    pub(crate) classes: ClassSlots,
    orders: Orders,
    pub(crate) plane: P,
    pub(crate) driver: Driver,
    /// The host as it was seen last; rules and routes follow it at once.
    seen: Desired,
    /// What the data path has been told of the host.
    pub(crate) told: Desired,
    /// Devices that an earlier daemon left its programs on.
    inherited: BTreeSet<u32>,
    pub(crate) meter: Meter,
    /// What the last sweep saw.
    pub(crate) swept: Swept,
    pub(crate) surroundings: S,
    /// The last addresses of every link, known while the link is away.
    externals: BTreeMap<(LinkId, Family), External>,
    /// Paths that are kept though something of them is missing for a moment.
    grace: Grace,
    /// Which addresses and routers of IPv6 the links have used.
    uses: Uses,
    /// External addresses of before, which their devices still have, and flows too.
    lingering: Vec<Lingering>,
    /// Addresses of links that are left, until the host's own traffic is led elsewhere.
    abandoned: Vec<(LinkId, IpAddr)>,
    /// Links that the host's own UDP is to leave in its pauses.
    returning: BTreeMap<(LinkId, Family), Returning>,
    moves: JoinSet<((LinkId, Family), anyhow::Result<Moved>)>,
    /// As the data path knows it.
    fallback_mark: u32,
    /// The links without NAT, as bits; as the data path knows them.
    routed: u32,
    /// How far new flows are as the kernel's routing rules say; unknown until the host has been seen.
    routes_kernel: Option<u32>,
    /// The rules that hold and the devices by name, as the data path knows them; none: other rules wait to be told.
    told_rules: Option<(u64, BTreeMap<String, u32>)>,
    /// As the host knows them.
    ways: Ways,
    ticks: u64,
    sweep_at: Instant,
    /// One at most, and how long it took.
    sweeps: JoinSet<(Result<Swept, plane::Error>, Duration)>,
    endings: JoinSet<(Left, Result<Ended, plane::Error>)>,
    /// Orders that are carried out when these flows have ended.
    unanswered: Vec<(oneshot::Sender<Response>, Response)>,
    probes: JoinSet<(ProbeOrder, Option<Answer>)>,
    /// What somebody else than who was asked answered last.
    pub(crate) wrong_answers: BTreeMap<(LinkId, Family), String>,
    /// What stands beside the gateway.
    pub(crate) survey: Survey,
    /// One at most.
    surveys: JoinSet<anyhow::Result<Vec<Finding>>>,
    /// Who wants to know how all is, answered after the survey that began with the question.
    asking: Vec<oneshot::Sender<Response>>,
    /// Those whose survey is done.
    surveyed: Vec<oneshot::Sender<Response>>,
    /// As the last survey found it.
    others_track: bool,
    /// The local port of questions to destinations: none that NAT gives away.
    asks_from: u16,
}

impl<P: Plane, S: Surroundings> GatewayRole<P, S> {
    /// `former` are the slots of an earlier daemon, and the orders it was given. Nothing is told to anybody yet.
    pub fn new(
        config: Config,
        instance: &str,
        (former, mut orders): (Slots, Orders),
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

    // ---- time passes

    /// Does what the balancer wants, has flows ended and sends its probes.
    fn turn_balancer(&mut self) -> anyhow::Result<()> {
        let now = self.shell.now();
        let due = self.driver.turn(now, &mut self.plane)?;
        if due.lengths {
            self.shell.look_soon();
        }
        self.end_returns();
        for ending in due.ended {
            let leaves = ending.which == Which::All && ending.classes.contains(ClassId::DEFAULT);
            let external = self.externals.get(&(ending.link, ending.family));
            if let Some(external) = external.filter(|_| leaves) {
                self.abandoned.push((ending.link, external.address));
            }
            if let Which::Udp { .. } = ending.which {
                self.begin_return(ending);
            }
            self.end_flows(ending);
        }
        for order in due.probes {
            self.send(order);
        }
        for question in due.questions {
            self.ask(&question)?;
        }
        Ok(())
    }

    fn sweep(&mut self) -> anyhow::Result<()> {
        let is_early = Instant::now() < self.sweep_at && !self.plane.is_pressed()?;
        if is_early || !self.sweeps.is_empty() {
            return Ok(());
        }
        let walker = self.plane.walker();
        self.sweeps.spawn_blocking(move || {
            let began = std::time::Instant::now();
            (walker.sweep(), began.elapsed())
        });
        Ok(())
    }

    fn swept(
        &mut self,
        (swept, took): (Result<Swept, plane::Error>, Duration),
    ) -> anyhow::Result<()> {
        self.swept = swept?;
        let rest = match self.swept.met {
            0 => SWEEP_REST_EMPTY,
            _ => took * SWEEP_REST,
        };
        self.sweep_at = Instant::now() + rest;
        Ok(())
    }

    // ---- probes

    fn send(&mut self, order: ProbeOrder) {
        let asked = &order.request;
        let path = self.path_of(asked.link, asked.family);
        let known = self.link_of(asked.link).zip(path);
        let Some((link, path)) = known.filter(|_| self.probes.len() < PROBES_MAX) else {
            return;
        };
        let Some(inquiry) = self.inquiry_of(asked) else {
            return;
        };
        let view = self.told.links.get(&asked.link);
        let resolvers = view.map(|view| view.paths[asked.family].resolvers.clone());
        let via = Via {
            device: link.device.clone(),
            source: path.external,
            resolvers: resolvers.unwrap_or_default(),
            untracked: self.surroundings.lets_untracked_pass(),
        };
        let answer = self.surroundings.probe(inquiry, via);
        self.probes.spawn(async move { (order, answer.await) });
    }

    /// What comes back tells the programs.
    fn ask(&mut self, question: &Question) -> anyhow::Result<()> {
        let path = self.path_of(question.link, Family::from(question.to.ip()));
        let Some((link, path)) = self.link_of(question.link).zip(path) else {
            return Ok(());
        };
        let via = Via {
            device: link.device.clone(),
            source: path.external,
            resolvers: Vec::new(),
            untracked: self.surroundings.lets_untracked_pass(),
        };
        let number = rand::random();
        let answered = self.plane.ask(question, self.asks_from, number)?;
        self.driver.handle_question(question, answered);
        self.surroundings
            .ask(question.to, self.asks_from, number, &via);
        Ok(())
    }

    fn inquiry_of(&self, asked: &ProbeRequest) -> Option<Inquiry> {
        let view = self.told.links.get(&asked.link);
        let view = view.map(|view| &view.paths[asked.family]);
        match asked.whom {
            Whom::Node => self.config.node.clone().map(Inquiry::Target),
            Whom::Target(index) => {
                let (target, _) = view?.targets.get(index)?;
                Some(Inquiry::Target(target.clone()))
            }
            Whom::Host { host, bytes } => {
                let host = *view?.far_hosts().get(host)?;
                Some(Inquiry::Length { host, bytes })
            }
        }
    }

    fn probed(&mut self, (order, answer): (ProbeOrder, Option<Answer>)) {
        let now = self.shell.now();
        match answer {
            None => {}
            Some(Answer::Expected(round_trip)) => self.driver.handle_answer(now, order, round_trip),
            Some(Answer::Inconclusive) => self.driver.handle_inconclusive(order),
            Some(Answer::Wrong(words)) => {
                let path = (order.request.link, order.request.family);
                self.wrong_answers.insert(path, words);
                self.driver.handle_wrong_answer(now, order);
            }
        }
    }

    pub(crate) fn link_of(&self, id: LinkId) -> Option<&Link> {
        self.config.link(self.slots.name(id)?)
    }

    pub(crate) fn path_of(&self, id: LinkId, family: Family) -> Option<&LinkPath> {
        self.told.links.get(&id)?.path(family)
    }

    /// Whether a link has a family, had it once, or is to have it, as far as `view` goes. Without any it is one of IPv4.
    pub(crate) fn is_of(&self, id: LinkId, family: Family, view: Option<&LinkView>) -> bool {
        let knows = |family: Family| {
            self.link_of(id).is_some_and(|link| link.names(family))
                || view.is_some_and(|view| view.path(family).is_some())
                || self.externals.contains_key(&(id, family))
        };
        knows(family) || family == Family::V4 && !knows(Family::V6)
    }

    // ---- the host changes

    /// Looks at the host and tells the data path what differs from what it was told.
    async fn look(&mut self) -> anyhow::Result<()> {
        self.shell.troubles.begin_look();
        self.keep_state();
        let mut snapshot = match self.surroundings.snapshot().await {
            Ok(snapshot) => snapshot,
            Err(error) => {
                self.shell.put_off(&format!("host: {error:#}"));
                return Ok(());
            }
        };
        self.uses.tell(&self.config, &self.slots, &mut snapshot);
        let mut wanted = Desired::derive(&self.config, &self.slots, &snapshot);
        let (now, patience) = (self.shell.now(), self.config.availability.grace);
        self.grace.hold(now, patience, &snapshot, &mut wanted);
        self.uses.note(&snapshot, &wanted);
        for (id, view) in &wanted.links {
            for (family, path) in view.paths.iter() {
                let spec = |(target, reach): &(Target, Reach)| TargetSpec {
                    reach: *reach,
                    kind: target.kind(),
                };
                let specs: Vec<_> = path.targets.iter().map(spec).collect();
                self.driver.set_targets(*id, family, &specs);
            }
        }
        self.shorten(&mut wanted);
        self.seen = wanted.of_host();
        self.survey.see(&self.config, snapshot);
        // Of no concern to the data path.
        self.told.rules.clone_from(&wanted.rules);
        self.told.beside.clone_from(&wanted.beside);
        let has_turned = self.routed != self.routed_links();
        if wanted != self.told || has_turned || self.shell.has_rest() || self.has_stale_programs() {
            self.tell(wanted)?;
        }
        self.ways = self.ways();
        // Even if nothing is new: somebody may have flushed the routing rules.
        self.apply_to_host().await;
        let has_stale_programs = self.has_stale_programs();
        let kept = self
            .surroundings
            .keep_claims(&self.config, has_stale_programs);
        if let Err(error) = kept {
            self.shell.put_off(&format!("{error:#}"));
        }
        Ok(())
    }

    /// Where longer packets do not come through, links have the MTU of what comes through: TCP's segments are as long as that allows.
    fn shorten(&mut self, wanted: &mut Desired) {
        let now = self.shell.now();
        for (id, view) in &mut wanted.links {
            for (family, path) in view.paths.iter_mut() {
                let hosts = path.far_hosts().len();
                if let Ok(path) = &mut path.path {
                    self.driver.set_length(now, *id, family, path.mtu, hosts);
                    let found = self.driver.path_mtu(*id, family);
                    path.mtu = path.mtu.min(found.unwrap_or(u32::MAX));
                }
            }
        }
    }

    /// While flows are being ended, what is lost and nothing else: their packets need the addresses they have, and a link
    /// that is back keeps no flow of before.
    fn tell(&mut self, wanted: Desired) -> anyhow::Result<()> {
        self.lose_links(&wanted)?;
        self.shell.told(self.endings.is_empty());
        if self.shell.has_rest() {
            return Ok(());
        }
        self.tell_routing(&wanted)?;
        self.tell_links(&wanted)?;
        self.end_lingering(&wanted);
        self.tell_routes(wanted.routes, wanted.masses);
        for name in &wanted.absent_lan {
            if !self.told.absent_lan.contains(name) {
                tracing::warn!("{}", absent(name));
            }
        }
        self.told.absent_lan = wanted.absent_lan;
        self.told.ask_kernel = wanted.ask_kernel;
        self.told.beyond_room = wanted.beyond_room;
        self.gain_links(&wanted.links);
        let before = std::mem::replace(&mut self.told.links, wanted.links);
        self.turn_balancer()?;
        self.tell_rules()?;
        self.tell_devices(&wanted.attachments);
        self.tell_own_macs(&wanted.own_macs);
        self.forget_links(before.into_keys())?;
        Ok(())
    }

    /// Beyond this process. Without room for it the gateway forwards all the same.
    fn keep_state(&mut self) {
        let slots = self.surroundings.keep_slots(&self.slots);
        let kept = slots.and_then(|()| self.surroundings.keep_orders(&self.orders));
        if let Err(error) = kept {
            self.shell.put_off(&format!(
                "{error:#}: make room there, or a crash forgets the orders and what was changed on the host"
            ));
        }
    }

    /// Takes links that are gone out of the choice, and has their flows ended.
    fn lose_links(&mut self, wanted: &Desired) -> anyhow::Result<()> {
        let now = self.shell.now();
        for (id, family, view) in paths(&wanted.links) {
            let state = view.state(family);
            if state != LinkState::Present {
                self.driver.handle_link_state(now, id, family, state);
            }
        }
        if self.told.links.is_empty() {
            Ok(())
        } else {
            self.turn_balancer()
        }
    }

    fn gain_links(&mut self, links: &BTreeMap<LinkId, LinkView>) {
        let now = self.shell.now();
        for (id, family, view) in paths(links) {
            if view.state(family) == LinkState::Present {
                self.driver
                    .handle_link_state(now, id, family, LinkState::Present);
            }
        }
    }

    /// Which class new flows are of, once the choices of all classes are installed: devices come and go, schedules too.
    fn tell_rules(&mut self) -> anyhow::Result<()> {
        let at = self.surroundings.moment();
        let devices = self.seen.attachments.iter();
        let devices = devices.map(|(ifindex, attachment)| (attachment.device.clone(), *ifindex));
        let told = (active(&self.config.rules, at), devices.collect());
        if self.told_rules.as_ref() == Some(&told) {
            return Ok(());
        }
        let ifindex = |name: &str| told.1.get(name).copied();
        let mut rules = compile(&self.config.rules, at, ifindex)?;
        let classes = self.classes.of_rules(&self.config);
        // The place before the first rule's is the default class's.
        for (place, class) in rules.class.iter_mut().skip(1).zip(classes) {
            *place = class.0;
        }
        self.plane.set_rules(&rules)?;
        self.told_rules = Some(told);
        Ok(())
    }

    /// A device may vanish between the look and the attachment: the next look sees that.
    fn tell_devices(&mut self, wanted: &BTreeMap<u32, Attachment>) {
        let stale = self.stale_programs(wanted);
        for ifindex in stale {
            match self.plane.detach(ifindex) {
                Ok(()) => {
                    self.told.attachments.remove(&ifindex);
                    self.inherited.remove(&ifindex);
                }
                Err(error) => self.shell.put_off(&self.not_detached(ifindex, &error)),
            }
        }
        for (ifindex, attachment) in wanted {
            if self.told.attachments.get(ifindex) == Some(attachment) {
                continue;
            }
            match self
                .plane
                .attach(*ifindex, attachment.role, attachment.layer3, attachment.mtu)
            {
                Ok(()) => {
                    self.told.attachments.insert(*ifindex, attachment.clone());
                }
                Err(error) => self.shell.put_off(&self.not_attached(attachment, &error)),
            }
        }
    }

    /// Devices that have, or may have, a program that is not `wanted`.
    fn stale_programs(&self, wanted: &BTreeMap<u32, Attachment>) -> BTreeSet<u32> {
        let known = self.told.attachments.keys().chain(&self.inherited);
        known
            .filter(|ifindex| !wanted.contains_key(ifindex))
            .copied()
            .collect()
    }

    fn has_stale_programs(&self) -> bool {
        !self.stale_programs(&self.seen.attachments).is_empty()
    }

    fn not_attached(&self, attachment: &Attachment, error: &plane::Error) -> String {
        let device = &attachment.device;
        let place = match attachment.role {
            plane::Role::Lan { .. } => format!("LAN device {device}"),
            plane::Role::Link(id) => {
                let link = self.slots.name(id).unwrap_or("?");
                format!("link {link}, device {device}")
            }
        };
        format!(
            "{place}: its packets are not forwarded: {}; tried again every second",
            with_causes(error)
        )
    }

    fn not_detached(&self, ifindex: u32, error: &plane::Error) -> String {
        let known = self.told.attachments.get(&ifindex);
        let device = known.map_or_else(
            || format!("number {ifindex} of an earlier run"),
            |known| known.device.clone(),
        );
        format!(
            "device {device}: its packets still meet the program: {}; tried again every second",
            with_causes(error)
        )
    }

    /// Those that are no longer configured.
    fn forget_links(&mut self, ids: impl Iterator<Item = LinkId>) -> anyhow::Result<()> {
        for id in ids.filter(|id| self.slots.name(*id).is_none()) {
            for family in Family::ALL {
                self.plane.set_link(id, family, None)?;
                self.externals.remove(&(id, family));
            }
        }
        Ok(())
    }

    /// Which links have no NAT: those that had flows of the other kind have ended them. And whether routing rules of others may
    /// speak of the LAN.
    fn tell_routing(&mut self, wanted: &Desired) -> anyhow::Result<()> {
        let now = (self.routed_links(), Some(plane::routes_kernel(wanted)));
        if (self.routed, self.routes_kernel) != now {
            (self.routed, self.routes_kernel) = now;
            self.set_settings()?;
        }
        Ok(())
    }

    /// As configured, as bits.
    fn routed_links(&self) -> u32 {
        let routed = self.config.links.iter().filter(|link| !link.nat);
        routed
            .filter_map(|link| self.slots.id(&link.name))
            .flat_map(|id| Family::ALL.map(|family| link_place(id.0, family)))
            .fold(0, |bits, place| bits | 1 << place)
    }

    fn is_routed(&self, id: LinkId, family: Family) -> bool {
        self.routed & (1 << link_place(id.0, family)) != 0
    }

    fn tell_routes(&mut self, routes: Vec<Route>, masses: Vec<(MassKey, Verdict)>) {
        match self.surroundings.set_routes(&routes, &masses) {
            Ok(()) => (self.told.routes, self.told.masses) = (routes, masses),
            Err(error) => self.shell.put_off(&format!(
                "routes: the programs know those of before: {error:#}; tried again every second"
            )),
        }
    }

    /// What an earlier process has set is compared, too.
    fn tell_own_macs(&mut self, macs: &BTreeSet<(u32, [u8; 6])>) {
        if let Err(error) = self.plane.set_own_macs(macs) {
            self.shell.put_off(&format!(
                "hardware addresses of devices above those of the gateway: their frames are left to the kernel: {}; tried again every second",
                with_causes(&error)
            ));
        }
    }

    /// New paths.
    fn tell_links(&mut self, wanted: &Desired) -> anyhow::Result<()> {
        for (id, family, view) in paths(&wanted.links) {
            let told = self
                .told
                .links
                .get(&id)
                .map(|told| &told.paths[family].path);
            let path = &view.paths[family].path;
            if told == Some(path) {
                continue;
            }
            let name = self.slots.name(id).unwrap_or("?");
            self.plane.set_link(id, family, path.as_ref().ok())?;
            match path {
                Ok(path) => {
                    tell_path(name, path);
                    self.take_external(id, family, path.into(), &view.paths[family].others);
                }
                Err(missing) if self.is_of(id, family, Some(view)) => {
                    tracing::info!("link {name}: {missing}");
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// As the classes' choices and the rules that hold have them.
    fn ways(&self) -> Ways {
        let held = match &self.told_rules {
            Some((held, _)) => *held,
            None => active(&self.config.rules, self.surroundings.moment()),
        };
        let rules = self
            .config
            .rules
            .iter()
            .zip(self.classes.of_rules(&self.config));
        let rules = rules.enumerate().filter(|(place, (rule, _))| {
            held & (1 << (place + 1)) != 0 && !rule.matches.own_traffic().is_empty()
        });
        Ways {
            first_usable: PerFamily::from_fn(|family| self.first_usable(ClassId::DEFAULT, family)),
            alive: PerFamily::from_fn(|family| self.driver.alive(family)),
            rules: rules
                .map(|(place, (rule, class))| RuleWay {
                    place,
                    class,
                    way: PerFamily::from_fn(|family| self.way(&rule.class, class, family)),
                })
                .collect(),
        }
    }

    fn way(&self, class: &Class, id: ClassId, family: Family) -> Way {
        match (self.first_usable(id, family), class.when_none) {
            (Some(link), _) => Way::Link(link),
            (None, WhenNone::Drop) => Way::Refused,
            // No link of the default class is left either.
            (None, WhenNone::Any | WhenNone::Kernel) => Way::Kernel,
        }
    }

    fn first_usable(&self, class: ClassId, family: Family) -> Option<LinkId> {
        self.driver.first_usable(&self.config, class, family)
    }

    async fn apply_to_host(&mut self) {
        let failed = self
            .surroundings
            .apply(&self.config, &self.seen, &self.ways);
        for error in failed.await {
            self.shell.put_off(&format!("host: {error:#}"));
        }
        let mark = self.surroundings.fallback_mark(&self.config);
        if mark == self.fallback_mark {
            return;
        }
        if let Err(error) = self.set_settings() {
            self.shell.put_off(&format!("{error:#}"));
        }
    }

    // ---- neighbours

    /// Once a second at most, however fast the host changes.
    fn survey_neighbours(&mut self) {
        if self.survey.is_due() || self.surroundings.has_other_neighbours() {
            self.begin_survey();
        }
    }

    fn begin_survey(&mut self) {
        if self.surveys.is_empty() {
            let survey = self.surroundings.survey(&self.config, self.survey.take());
            self.surveys.spawn(survey);
        }
    }

    /// Without an answer what was found before stands, until the next.
    fn surveyed(&mut self, found: anyhow::Result<Vec<Finding>>) {
        // The guard is another where nobody needs connections tracked.
        let others_track = self.surroundings.others_track();
        if std::mem::replace(&mut self.others_track, others_track) != others_track {
            self.shell.look_soon();
        }
        match found {
            Ok(found) => self.survey.tell(found),
            Err(error) => tracing::debug!("survey of the host: {error:#}"),
        }
        self.surveyed.append(&mut self.asking);
    }

    // ---- orders

    /// Not before the host has been seen: the programs of an earlier process go on as they were told until then.
    fn set_settings(&mut self) -> anyhow::Result<()> {
        let Some(routes_kernel) = self.routes_kernel else {
            return Ok(());
        };
        let mark = self.surroundings.fallback_mark(&self.config);
        let ephemeral = self.surroundings.ephemeral_ports()?;
        let settings = plane::settings(&self.config, ephemeral, mark, self.routed, routes_kernel);
        self.plane.set_settings(&settings)?;
        self.fallback_mark = mark;
        Ok(())
    }

    /// An order is carried out when it is answered, and the flows that it ends have ended.
    async fn carry_out(
        &mut self,
        reply: oneshot::Sender<Response>,
        response: Response,
    ) -> anyhow::Result<()> {
        self.turn().await?;
        if self.endings.is_empty() {
            // Whoever asked may have gone.
            let _ = reply.send(response);
        } else {
            self.unanswered.push((reply, response));
        }
        Ok(())
    }

    /// A start at which nothing works has failed. Where something does, the next tick tries the rest again.
    fn check_start(&self) -> anyhow::Result<()> {
        let is_seen = !self.seen.links.is_empty();
        let is_attached = !self.told.attachments.is_empty() || self.seen.attachments.is_empty();
        let troubles: Vec<&str> = self.shell.troubles.met().collect();
        anyhow::ensure!(
            is_seen && is_attached,
            "nothing could be set up: {}",
            troubles.join("; ")
        );
        Ok(())
    }
}

fn tell_warnings(config: &Config) {
    for remark in &config.remarks {
        if let Remark::Warning(text) = remark {
            tracing::warn!("{text}");
        }
    }
}

/// Numbers for the classes of a configuration, by what the data path has of classes.
fn class_slots<P: Plane>(plane: &P, config: &Config) -> anyhow::Result<ClassSlots> {
    let counters = plane.class_counters()?;
    let live = |id: ClassId| counters.get(id.index()).map_or(0, ClassCounters::live);
    Ok(ClassSlots::of(config, &plane.class_names()?, live))
}

fn absent(lan_device: &str) -> String {
    format!(
        "LAN device {lan_device}: it does not exist yet; its hosts have no gateway until it does"
    )
}

impl<P: Plane, S: Surroundings> Role for GatewayRole<P, S> {
    type Config = Config;
    const NAME: &str = GATEWAY;
    const AT_WORK: &str = "forwarding";

    fn span() -> Span {
        tracing::error_span!(GATEWAY)
    }

    fn config_of(configuration: &Configuration) -> Option<Config> {
        configuration.gateway.as_deref().cloned()
    }

    fn answers(request: &Request) -> bool {
        matches!(
            request,
            Request::Flows { .. }
                | Request::Prefixes { .. }
                | Request::Explain { .. }
                | Request::Link { .. }
        )
    }

    /// Devices are attached last, when the first choice is installed.
    async fn start(&mut self) -> anyhow::Result<()> {
        tell_warnings(&self.config);
        self.plane.set_class_names(&self.classes.names())?;
        // An earlier daemon may have had links and devices that this configuration has not.
        self.forget_links(all_links())?;
        self.inherited = self.plane.attached()?.into_iter().collect();
        self.look().await?;
        self.check_start()?;
        self.survey_neighbours();
        self.end_stale_flows()
    }

    fn shell(&self) -> &Shell {
        &self.shell
    }

    fn work(&self) -> String {
        view::work(self)
    }

    fn alarms(&self) -> Vec<String> {
        let problems = view::problems(self).into_iter();
        let problems = problems.filter(|problem| problem.fails);
        let findings = self.survey.found().iter();
        let findings = findings.filter(|finding| finding.severity != Severity::Note);
        problems
            .map(|problem| problem.to_string())
            .chain(self.troubles())
            .chain(findings.map(ToString::to_string))
            .collect()
    }

    fn troubles(&self) -> Vec<String> {
        let standing = self.shell.standing().into_iter();
        let absent = self.seen.absent_lan.iter().map(|name| absent(name));
        standing
            .chain(absent)
            .chain(self.surroundings.lacks())
            .collect()
    }

    async fn event(&mut self) -> anyhow::Result<()> {
        tokio::select! {
            changed = self.surroundings.changed() => {
                changed?;
                self.shell.look_soon();
            }
            Some(done) = self.probes.join_next() => self.probed(done?),
            Some(done) = self.sweeps.join_next() => self.swept(done?)?,
            Some(done) = self.endings.join_next() => self.ended(done?)?,
            Some(done) = self.moves.join_next() => self.moved(done?),
            Some(done) = self.surveys.join_next() => self.surveyed(done?),
        }
        Ok(())
    }

    fn tick(&mut self) -> anyhow::Result<()> {
        self.ticks += 1;
        self.sweep()?;
        self.tell_rules()?;
        self.survey_neighbours();
        let traffic = all_links().map(|id| self.driver.counters(id).carried());
        self.meter.tick(self.shell.uptime(), traffic);
        self.surroundings.rest(self.driver.is_quiet());
        let (now, patience) = (self.shell.now(), self.config.availability.grace);
        let alive = self.driver.alive(Family::V6);
        let tries_others = self.uses.turn(now, &self.told.links, alive);
        if tries_others || self.grace.is_over(now, patience) {
            self.shell.look_soon();
        }
        if self.ticks.is_multiple_of(MOVE_TICKS) {
            self.move_idle();
        }
        if self.surroundings.has_lost_guard() || self.ticks.is_multiple_of(LOOK_TICKS) {
            self.shell.look_soon();
        }
        self.shell.look_again_after_trouble();
        Ok(())
    }

    fn turn_at(&self) -> Instant {
        self.shell.instant(self.driver.next_turn())
    }

    /// Looks at the host if it changed, turns the balancer, and moves the fallback and what the host itself sends to the first
    /// links that are usable.
    async fn turn(&mut self) -> anyhow::Result<()> {
        if self.shell.take_look() {
            self.look().await?;
        }
        let asking = std::mem::take(&mut self.surveyed);
        if !asking.is_empty() {
            let now = self.shell.now();
            self.driver.read_counters(now, &mut self.plane)?;
        }
        self.turn_balancer()?;
        if self.told_rules.is_none() {
            self.tell_rules()?;
        }
        let ways = self.ways();
        if ways != self.ways {
            self.ways = ways;
            self.apply_to_host().await;
        }
        for (link, address) in std::mem::take(&mut self.abandoned) {
            let name = self.slots.name(link).unwrap_or("of before");
            self.surroundings.abandon(name, address);
        }
        // Whoever reads of a verdict finds the host as it follows from it.
        for reply in asking {
            self.tell_status(reply);
        }
        Ok(())
    }

    async fn answer(&mut self, (request, reply): Call) -> anyhow::Result<()> {
        let is_order = matches!(request, Request::Link { .. });
        let response = match request {
            Request::Flows { limit } => {
                list_flows(self.plane.walker(), limit, reply);
                return Ok(());
            }
            Request::Prefixes { limit } => {
                list_prefixes(self.plane.walker(), self.driver.listed(), limit, reply);
                return Ok(());
            }
            Request::Status => {
                self.asking.push(reply);
                self.begin_survey();
                return Ok(());
            }
            Request::Link {
                name,
                action,
                force,
            } => self.order(&name, action, force)?,
            Request::Explain { from, to, proto } => self.explain(from, to, proto),
            // The instance's.
            Request::Reload | Request::Stop { .. } => return Ok(()),
        };
        if is_order {
            return self.carry_out(reply, response).await;
        }
        // Whoever asked may have gone.
        let _ = reply.send(response);
        Ok(())
    }

    async fn check_config(&mut self, config: &Config) -> Result<(), crate::Error> {
        self.surroundings.check(config).await
    }

    /// Other links and manners, while the flows of links that stay go on.
    async fn adopt_config(
        &mut self,
        config: Config,
        reply: oneshot::Sender<Response>,
    ) -> anyhow::Result<()> {
        tell_warnings(&config);
        let slots = self.slots.assign(config.names());
        let now = self.shell.now();
        let classes = class_slots(&self.plane, &config)?;
        self.driver.reconfigure(now, &config, &slots, &classes)?;
        if config.limits.flows > self.config.limits.flows {
            tracing::warn!(
                "limits.flows = {}: more room needs a restart after a clean stop",
                config.limits.flows
            );
        }
        if u64::from(config.limits.prefixes) > self.plane.walker().prefixes_max() {
            tracing::warn!(
                "limits.prefixes = {}: more room needs a restart after a clean stop",
                config.limits.prefixes
            );
        }
        self.orders.keep(&slots);
        (self.config, self.slots, self.classes) = (config, slots, classes);
        self.plane.set_class_names(&self.classes.names())?;
        self.told_rules = None;
        self.set_settings()?;
        self.look().await?;
        tracing::info!(
            "configuration reloaded: {} links, policy {}",
            self.config.links.len(),
            self.config.policy
        );
        self.carry_out(reply, Response::Done).await
    }

    /// Flows that are being ended get there first.
    async fn close(mut self) -> anyhow::Result<()> {
        while self.endings.join_next().await.is_some() {}
        let closed = self.plane.close().context("detach the data path");
        let restored = self.surroundings.restore().await;
        restored.context("put the host back")?;
        closed
    }
}

fn any_of([first, last]: [u16; 2]) -> u16 {
    let ports = u32::from(last.saturating_sub(first)) + 1;
    first + (rand::random::<u32>() % ports) as u16
}

/// Every link with each family.
fn paths(links: &BTreeMap<LinkId, LinkView>) -> impl Iterator<Item = (LinkId, Family, &LinkView)> {
    let links = links.iter();
    links.flat_map(|(id, view)| Family::ALL.map(|family| (*id, family, view)))
}

fn tell_path(link: &str, path: &LinkPath) {
    let LinkPath { external, mtu, .. } = path;
    let by = path.gateway.map(|gateway| format!(" by {gateway}"));
    let prefix = path
        .prefix
        .map(|(network, length)| format!(", with {network}/{length}"));
    tracing::info!(
        "link {link}: {external}{}{}, MTU {mtu}",
        by.unwrap_or_default(),
        prefix.unwrap_or_default()
    );
}

pub(crate) fn all_links() -> impl Iterator<Item = LinkId> {
    (0..LINKS_MAX as u16).map(LinkId)
}

#[cfg(test)]
mod tests;
