//! A daemon on virtual time, among fakes of everything around it. What is tried is told in the modules.

mod asked;
mod checked;
mod classed;
mod ordered;
mod routed;
mod started;
mod told;

use std::collections::BTreeSet;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anabranch_core::checks::{Ask, Outcome, ProbeTarget};
use anabranch_core::rules::Moment;
use anabranch_core::{
    Choice, ClassCounters, ClassId, ClassSet, DataPlane, Ended, LinkCounters, PerFamily, Question,
};
use anabranch_policy::abi::{Gauge, Rules, Traffic};
use tokio::sync::{Notify, mpsc};

use anabranch_api::{FlowRow, LinkAction};

use super::role::LOOK_TICKS;
use super::*;
use crate::Error;
use crate::config::Configuration;
use crate::error::BadInput;
use crate::host::{Conversation, Return, Way};
use crate::observe::tests::{FIBER, LAN, LTE, device, host, route};
use crate::observe::{MassKey, Snapshot};
use crate::plane::{Error as PlaneError, Role, Route, Settings, Verdict, Walk, Which};
use crate::probe::{Answer, DEFAULT_TARGETS, Inquiry, Via};
use crate::shell::{Opened, Order, Place, Role as _, Signal, serve, take_turns};
use anabranch_api::LinkState as Shown;
use anabranch_api::Paths;
use anabranch_api::{Explanation, PrefixRow, Proto, ReasonCount, Request};

const CONFIG: &str = r#"
lan = ["lan0"]
policy = "rr"
link.fiber = { device = "wan0", down = "10mbit", up = "10mbit" }
link.lte = { device = "ppp0", down = "10mbit", up = "10mbit" }
"#;

/// What the data path was told.
#[derive(Debug, Clone, PartialEq)]
enum Told {
    Settings,
    /// The same, with these links without NAT, as bits.
    Routed(u32),
    /// The same, and to ask the kernel's routing about new flows, as bits.
    RoutesKernel(u32),
    /// The links that take new flows, as bits.
    Choice(u64),
    /// The same of a class that rules name.
    ClassChoice(u8, u64),
    /// The external address.
    Link(u16, Option<String>),
    Attach(u32),
    Detach(u32),
    Ended(u16),
    /// UDP flows without a packet for so long.
    Moved(u16, Duration),
    Closed,
    /// The host, not the data path.
    Restored,
}

/// Everything around the daemon: a kernel, a host, the internet.
#[derive(Default)]
struct World {
    told: Vec<Told>,
    /// Links that lose every packet.
    dead: Vec<&'static str>,
    /// Devices to which nothing can be attached, and from which nothing can be taken.
    stubborn: Vec<u32>,
    host: Snapshot,
    neighbours: Vec<Finding>,
    ways: Ways,
    /// Addresses whose sockets were told, and which link the host's own traffic took then.
    abandoned: Vec<(String, Option<LinkId>)>,
    /// The host's own UDP, and how often it was looked at.
    conversations: Vec<Conversation>,
    looked: usize,
    orders: Orders,
    slots: Slots,
    /// Nothing more can be kept.
    is_full: bool,
    /// Devices that are claimed, and devices that left the configuration and still are.
    claims: Vec<String>,
    /// What the data path keeps of classes: their names, and how many flows live.
    class_names: BTreeMap<ClassId, String>,
    class_flows: BTreeMap<ClassId, u64>,
    /// As they are listed.
    flows: Vec<FlowRow>,
    /// Links whose flows have ended, and of which classes.
    ended: Vec<(LinkId, ClassSet)>,
    /// Classes that have had a choice.
    installed: ClassSet,
    /// The rules that hold, and the class of each.
    rules: (u64, Vec<u8>),
    /// Hours after nine on Monday.
    hour: u16,
    /// What the program says of any flow.
    explanation: Option<Explanation>,
    lacks: Option<String>,
    fallback_mark: u32,
    /// Targets that answer on no link.
    filtered: Vec<ProbeTarget>,
    /// By device: longer packets vanish there.
    carries: BTreeMap<&'static str, u32>,
    /// As the data path has the MTU of its IPv4.
    mtu: Option<u32>,
    /// No probe leaves the host.
    sends_nothing: bool,
    /// Tests that were made; which link's come out otherwise than well, and how; and what is kept of them.
    tests: usize,
    test: Option<(String, Outcome)>,
    tested: Tested,
    sent: u64,
    /// The time of the programs' clock, and when flows were to have begun that ended.
    now: Duration,
    ended_before: Vec<Duration>,
    /// Flows end while nobody holds this.
    flows_hold: Arc<tokio::sync::Mutex<()>>,
}

type Shared = Arc<Mutex<World>>;

struct FakePlane(Shared);

impl FakePlane {
    fn move_device(&self, ifindex: u32) -> Result<(), PlaneError> {
        match self.0.lock().unwrap().stubborn.contains(&ifindex) {
            true => Err(PlaneError::NoDevice { ifindex }),
            false => Ok(()),
        }
    }

    fn tell(&self, told: Told) -> Result<(), PlaneError> {
        self.0.lock().unwrap().told.push(told);
        Ok(())
    }
}

impl DataPlane for FakePlane {
    type Error = PlaneError;

    /// Both links have four open flows and send a packet between two readings; live ones hear one, too.
    fn counters(&mut self) -> Result<Vec<LinkCounters>, PlaneError> {
        let mut world = self.0.lock().unwrap();
        world.sent += 1;
        let carried = |device| {
            let heard = if world.dead.contains(&device) {
                0
            } else {
                world.sent
            };
            let traffic = Traffic {
                tx_packets: world.sent,
                rx_packets: heard,
                rx_progress: heard,
                ..Traffic::default()
            };
            let flows = Gauge {
                dispatched: 9,
                opened: 9,
                closed: 5,
            };
            LinkCounters {
                traffic: PerFamily::only(Family::V4, traffic),
                flows,
            }
        };
        Ok(vec![carried("wan0"), carried("ppp0")])
    }

    fn install(
        &mut self,
        class: ClassId,
        family: Family,
        choice: &Choice,
    ) -> Result<(), PlaneError> {
        if family != Family::V4 {
            return Ok(());
        }
        let usable = choice.usable.word[0];
        self.0.lock().unwrap().installed.extend([class]);
        self.tell(match class {
            ClassId::DEFAULT => Told::Choice(usable),
            ClassId(class) => Told::ClassChoice(class, usable),
        })
    }

    fn end_flows(
        &mut self,
        class: ClassId,
        family: Family,
        link: LinkId,
    ) -> Result<Ended, PlaneError> {
        let class = ClassSet::from_iter([class]);
        let walker = self.walker();
        walker.end_flows(link, family, class, Which::All, walker.now())
    }
}

struct FakeWalker(Shared);

impl Walk for FakeWalker {
    fn now(&self) -> Duration {
        self.0.lock().unwrap().now
    }

    fn sweep(&self) -> Result<Swept, PlaneError> {
        Ok(Swept::default())
    }

    fn end_flows(
        &self,
        link: LinkId,
        _: Family,
        classes: ClassSet,
        which: Which,
        opened_before: Duration,
    ) -> Result<Ended, PlaneError> {
        let hold = self.0.lock().unwrap().flows_hold.clone();
        // At the start, the loop waits itself.
        let _free = hold.try_lock().unwrap_or_else(|_| hold.blocking_lock());
        let mut world = self.0.lock().unwrap();
        world.ended.push((link, classes));
        world.ended_before.push(opened_before);
        world.told.push(match which {
            Which::All => Told::Ended(link.0),
            Which::Udp { idle } => Told::Moved(link.0, idle),
        });
        Ok(Ended::default())
    }

    fn flows(&self) -> Result<Vec<FlowRow>, PlaneError> {
        Ok(self.0.lock().unwrap().flows.clone())
    }

    fn prefixes(&self) -> Result<Vec<PrefixRow>, PlaneError> {
        Ok(Vec::new())
    }

    fn known_prefixes(&self) -> Result<u64, PlaneError> {
        Ok(3)
    }

    fn prefixes_max(&self) -> u64 {
        100
    }
}

impl Plane for FakePlane {
    type Walker = FakeWalker;

    fn set_settings(&mut self, settings: &Settings) -> Result<(), PlaneError> {
        self.tell(match (settings.routed, settings.routes_kernel) {
            (0, 0) => Told::Settings,
            (0, kernel) => Told::RoutesKernel(kernel),
            (routed, _) => Told::Routed(routed),
        })
    }

    fn set_link(
        &mut self,
        link: LinkId,
        family: Family,
        path: Option<&LinkPath>,
    ) -> Result<(), PlaneError> {
        if family != Family::V4 {
            return Ok(());
        }
        if link == LinkId(0) {
            self.0.lock().unwrap().mtu = path.map(|path| path.mtu);
        }
        self.tell(Told::Link(
            link.0,
            path.map(|path| path.external.to_string()),
        ))
    }

    fn set_own_macs(&mut self, _: &BTreeSet<(u32, [u8; 6])>) -> Result<(), PlaneError> {
        Ok(())
    }

    fn attach(&mut self, ifindex: u32, _: Role, _: bool, _: u32) -> Result<(), PlaneError> {
        self.move_device(ifindex)?;
        self.tell(Told::Attach(ifindex))
    }

    fn detach(&mut self, ifindex: u32) -> Result<(), PlaneError> {
        self.move_device(ifindex)?;
        self.tell(Told::Detach(ifindex))
    }

    fn attached(&self) -> Result<Vec<u32>, PlaneError> {
        Ok(vec![77])
    }

    fn is_pressed(&self) -> Result<bool, PlaneError> {
        Ok(false)
    }

    fn walker(&self) -> Arc<FakeWalker> {
        Arc::new(FakeWalker(self.0.clone()))
    }

    fn class_names(&self) -> Result<BTreeMap<ClassId, String>, PlaneError> {
        Ok(self.0.lock().unwrap().class_names.clone())
    }

    fn set_class_names(&mut self, names: &BTreeMap<ClassId, String>) -> Result<(), PlaneError> {
        self.0.lock().unwrap().class_names.clone_from(names);
        Ok(())
    }

    fn set_rules(&mut self, rules: &Rules) -> Result<(), PlaneError> {
        let mut world = self.0.lock().unwrap();
        for class in rules.class {
            let choice = world.installed.contains(ClassId(class));
            assert!(choice, "class {class} has no choice yet");
        }
        world.rules = (rules.active, rules.class[1..].to_vec());
        Ok(())
    }

    fn class_counters(&self) -> Result<Vec<ClassCounters>, PlaneError> {
        let world = self.0.lock().unwrap();
        let counters = |id| {
            let mut counters = ClassCounters::default();
            counters.counts.opened = world.class_flows.get(&id).copied().unwrap_or(0);
            counters
        };
        Ok((0..64).map(ClassId).map(counters).collect())
    }

    fn flows_max(&self) -> u64 {
        1000
    }

    fn explain(
        &mut self,
        _: std::net::SocketAddr,
        _: std::net::SocketAddr,
        _: Proto,
    ) -> Result<Explanation, PlaneError> {
        let explanation = self.0.lock().unwrap().explanation.clone();
        explanation.ok_or(PlaneError::ShortExplanation(0))
    }

    fn ask(&mut self, _: &Question, _: u16, _: u32) -> Result<bool, PlaneError> {
        Ok(true)
    }

    fn reasons(&self) -> Result<Vec<ReasonCount>, PlaneError> {
        Ok(Vec::new())
    }

    fn close(self) -> Result<(), PlaneError> {
        self.tell(Told::Closed)
    }
}

struct FakeHost {
    world: Shared,
    changed: Arc<Notify>,
}

impl FakeHost {
    fn keep(&self, what: impl FnOnce(&mut World)) -> anyhow::Result<()> {
        let mut world = self.world.lock().unwrap();
        anyhow::ensure!(!world.is_full, "write state.json: no space");
        what(&mut world);
        Ok(())
    }
}

impl Surroundings for FakeHost {
    async fn snapshot(&mut self) -> anyhow::Result<Snapshot> {
        Ok(self.world.lock().unwrap().host.clone())
    }

    async fn changed(&mut self) -> anyhow::Result<()> {
        self.changed.notified().await;
        Ok(())
    }

    fn rest(&mut self, _: bool) {}

    fn set_routes(&mut self, _: &[Route], _: &[(MassKey, Verdict)]) -> anyhow::Result<()> {
        Ok(())
    }

    async fn apply(&mut self, _: &Config, _: &Desired, ways: &Ways) -> Vec<anyhow::Error> {
        self.world.lock().unwrap().ways.clone_from(ways);
        Vec::new()
    }

    fn survey(
        &self,
        _: &Config,
        _: Snapshot,
    ) -> impl Future<Output = anyhow::Result<Vec<Finding>>> + Send + 'static {
        let found = self.world.lock().unwrap().neighbours.clone();
        async move { Ok(found) }
    }

    fn others_track(&self) -> bool {
        true
    }

    fn lets_untracked_pass(&self) -> bool {
        false
    }

    fn has_other_neighbours(&self) -> bool {
        false
    }

    async fn check(&mut self, _: &Config) -> Result<(), Error> {
        Ok(())
    }

    fn probe(
        &self,
        inquiry: Inquiry,
        via: Via,
    ) -> impl Future<Output = Option<Answer>> + Send + 'static {
        let world = self.world.lock().unwrap();
        let device = via.device.as_deref().expect("a link has a device");
        let is_lost = match inquiry {
            Inquiry::Target(target) => world.filtered.contains(&target),
            Inquiry::Length { bytes, .. } => {
                let carries = world.carries.get(device);
                carries.is_some_and(|carries| bytes > *carries)
            }
        };
        let dead = is_lost || world.dead.contains(&device);
        let sends_nothing = world.sends_nothing;
        async move {
            if sends_nothing {
                return Some(Answer::Inconclusive);
            }
            let round_trip = Duration::from_millis(10);
            tokio::time::sleep(round_trip).await;
            (!dead).then_some(Answer::Expected(round_trip))
        }
    }

    fn ask(&self, _: SocketAddr, _: u16, _: u32, _: &Via) {}

    fn keep_slots(&mut self, slots: &Slots) -> anyhow::Result<()> {
        self.keep(|world| world.slots = slots.clone())
    }

    fn keep_orders(&mut self, orders: &Orders) -> anyhow::Result<()> {
        self.keep(|world| world.orders = orders.clone())
    }

    fn test(
        &self,
        ask: Ask<(String, Family)>,
        _: Via,
    ) -> impl Future<Output = Outcome> + Send + 'static {
        let mut world = self.world.lock().unwrap();
        world.tests += 1;
        let (link, family) = &ask.subject;
        let outcome = match &world.test {
            Some((failing, outcome)) if failing == link && *family == Family::V4 => outcome.clone(),
            _ => Outcome::Success,
        };
        async { outcome }
    }

    fn keep_tested(&mut self, tested: &Tested) -> anyhow::Result<()> {
        self.keep(|world| world.tested = tested.clone())
    }

    fn ephemeral_ports(&self) -> anyhow::Result<[u16; 2]> {
        Ok([32_768, 60_999])
    }

    fn drops(&self) -> anyhow::Result<Vec<ReasonCount>> {
        Ok(Vec::new())
    }

    fn connection_table(&self) -> Option<(u64, u64)> {
        None
    }

    fn moment(&self) -> Moment {
        Moment::new(0, (9 + self.world.lock().unwrap().hour) * 60)
    }

    fn fallback_mark(&self, _: &Config) -> u32 {
        self.world.lock().unwrap().fallback_mark
    }

    fn has_lost_guard(&mut self) -> bool {
        false
    }

    fn keep_claims(&mut self, config: &Config, has_stale_programs: bool) -> anyhow::Result<()> {
        self.keep(|world| {
            if !has_stale_programs {
                world.claims.clear();
            }
            let devices = config.devices().into_iter().map(str::to_owned);
            world.claims.extend(devices);
            world.claims.sort();
            world.claims.dedup();
        })
    }

    fn abandon(&self, _: &str, address: IpAddr) {
        let mut world = self.world.lock().unwrap();
        let first = world.ways.first_usable[Family::V4];
        world.abandoned.push((address.to_string(), first));
    }

    fn move_idle(
        &self,
        _: Arc<Mutex<Return>>,
        idle: Duration,
        is_meant: impl Fn(&Conversation) -> bool + Send + 'static,
    ) -> impl Future<Output = anyhow::Result<Moved>> + Send + 'static {
        let mut world = self.world.lock().unwrap();
        world.looked += 1;
        let meant = world.conversations.iter().filter(|known| is_meant(known));
        let (idle, busy): (Vec<_>, Vec<_>) = meant.copied().partition(|known| known.idle >= idle);
        world.conversations.retain(|known| !idle.contains(known));
        let moved = Moved {
            moved: idle.len(),
            left: busy.len(),
        };
        async move { Ok(moved) }
    }

    fn lacks(&self) -> Option<String> {
        self.world.lock().unwrap().lacks.clone()
    }

    async fn restore(self) -> anyhow::Result<()> {
        self.world.lock().unwrap().told.push(Told::Restored);
        Ok(())
    }
}

/// A daemon that runs on virtual time.
struct Rig {
    world: Shared,
    changed: Arc<Notify>,
    orders: mpsc::Sender<Order>,
}

impl Rig {
    async fn start() -> Self {
        Self::start_adopting(false).await
    }

    async fn start_adopting(adopted: bool) -> Self {
        Self::start_in(CONFIG, world(), adopted).await
    }

    async fn start_in(text: &str, world: Shared, adopted: bool) -> Self {
        let changed = Arc::new(Notify::new());
        let mut daemon = daemon_of(text, &world, &changed, adopted);
        daemon.start().await.unwrap();
        let (orders, mut taken) = mpsc::channel(1);
        tokio::spawn(async move {
            take_turns(&mut daemon, &mut taken, &Place::default())
                .await
                .unwrap()
        });
        let rig = Self {
            world,
            changed,
            orders,
        };
        rig.pass(Duration::from_secs(3)).await;
        rig
    }

    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Lets time pass while flows are being ended: the clock does not run by itself then.
    async fn pass_meanwhile(&self, time: Duration) {
        const STEP: Duration = Duration::from_millis(10);
        for _ in 0..time.as_millis() / STEP.as_millis() {
            tokio::time::advance(STEP).await;
        }
    }

    async fn call(&self, request: Request) -> Response {
        let (reply, response) = oneshot::channel();
        self.order(Order::Answer((request, reply))).await;
        response.await.unwrap()
    }

    async fn order(&self, order: Order) {
        self.orders.send(order).await.unwrap();
    }

    async fn status(&self) -> anabranch_api::GatewayStatus {
        match self.call(Request::Status).await {
            Response::Status(status) => *status.gateway.unwrap(),
            other => panic!("{other:?}"),
        }
    }

    async fn change_host(&self, change: impl FnOnce(&mut Snapshot)) {
        change(&mut self.world.lock().unwrap().host);
        self.changed.notify_one();
        self.pass(Duration::from_millis(10)).await;
    }

    async fn reload(&self, text: &str) -> Response {
        self.begin_reload(text).await.await.unwrap()
    }

    async fn begin_reload(&self, text: &str) -> oneshot::Receiver<Response> {
        let (checked, said) = oneshot::channel();
        let configuration = Configuration::parse(Path::new("a.toml"), text).unwrap();
        self.order(Order::Check(Arc::new(configuration), checked))
            .await;
        said.await.unwrap().unwrap();
        let (reply, response) = oneshot::channel();
        self.order(Order::Adopt(reply)).await;
        response
    }

    /// What was told since the last call.
    fn told(&self) -> Vec<Told> {
        std::mem::take(&mut self.world.lock().unwrap().told)
    }
}

/// Flows that are to end do not, until the guard goes.
async fn hold_flows(world: &Shared) -> tokio::sync::OwnedMutexGuard<()> {
    let hold = world.lock().unwrap().flows_hold.clone();
    hold.lock_owned().await
}

fn world() -> Shared {
    let world = Shared::default();
    world.lock().unwrap().host = host();
    world
}

fn daemon(
    world: &Shared,
    changed: &Arc<Notify>,
    adopted: bool,
) -> GatewayRole<FakePlane, FakeHost> {
    daemon_of(CONFIG, world, changed, adopted)
}

fn daemon_of(
    text: &str,
    world: &Shared,
    changed: &Arc<Notify>,
    adopted: bool,
) -> GatewayRole<FakePlane, FakeHost> {
    let (orders, tested) = {
        let world = world.lock().unwrap();
        (world.orders.clone(), world.tested.clone())
    };
    let surroundings = FakeHost {
        world: world.clone(),
        changed: changed.clone(),
    };
    let plane = (FakePlane(world.clone()), adopted);
    GatewayRole::new(
        config(text),
        "test",
        (Slots::default(), orders, tested),
        plane,
        surroundings,
    )
    .unwrap()
}

/// From start to stop, which is asked for at once. Whether it was ready, and how it ended.
async fn serve_once(world: &Shared, adopted: bool) -> (bool, Result<(), Error>) {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::under(dir.path(), dir.path(), "a").unwrap();
    let daemon = daemon(world, &Arc::default(), adopted);
    let (signals, orders) = mpsc::channel(1);
    signals.send(Signal::Stop).await.unwrap();
    let mut is_ready = false;
    let role = vec![Opened::new(Ok(daemon))];
    let file = Path::new("a.toml");
    let served = serve(role, file, &paths, orders, || is_ready = true).await;
    assert!(!paths.socket().exists(), "{}", paths.socket().display());
    (is_ready, served)
}

fn config(text: &str) -> Config {
    Config::parse(Path::new("a.toml"), text).unwrap()
}
