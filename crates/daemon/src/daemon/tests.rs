use std::path::Path;
use std::sync::{Arc, Mutex};

use anabranch_core::{Choice, DataPlane, Ended, LinkCounters};
use anabranch_policy::abi::{Gauge, Traffic};
use tokio::sync::{Notify, mpsc};

use super::*;
use crate::Error;
use crate::control::LinkState as Shown;
use crate::error::BadInput;
use crate::observe::tests::{FIBER, LAN, LTE, device, host, route};
use crate::paths::Paths;
use crate::plane::{Error as PlaneError, Explanation, Proto, ReasonCount, Role, Route, Settings};
use crate::probe::DEFAULT_TARGETS;
use crate::service::{Signal, serve, take_turns};

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
    /// The links that take new flows, as bits.
    Choice(u32),
    /// The external address.
    Link(u8, Option<String>),
    Attach(u32),
    Detach(u32),
    Ended(u8),
    /// UDP flows without a packet for so long.
    Moved(u8, Duration),
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
    config: Option<Result<Config, Error>>,
    first_usable: Option<LinkId>,
    orders: Orders,
    slots: Slots,
    /// Nothing more can be kept.
    is_full: bool,
    fallback_mark: u32,
    /// Targets that answer on no link.
    filtered: Vec<Target>,
    sent: u64,
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
            LinkCounters { traffic, flows }
        };
        Ok(vec![carried("wan0"), carried("ppp0")])
    }

    fn install(&mut self, choice: &Choice) -> Result<(), PlaneError> {
        self.tell(Told::Choice(choice.usable))
    }

    fn end_flows(&mut self, link: LinkId) -> Result<Ended, PlaneError> {
        self.walker().end_flows(link, Which::All)
    }
}

struct FakeWalker(Shared);

impl Walk for FakeWalker {
    fn sweep(&self) -> Result<Swept, PlaneError> {
        Ok(Swept::default())
    }

    fn end_flows(&self, link: LinkId, which: Which) -> Result<Ended, PlaneError> {
        let hold = self.0.lock().unwrap().flows_hold.clone();
        let _free = hold.blocking_lock();
        self.0.lock().unwrap().told.push(match which {
            Which::All => Told::Ended(link.0),
            Which::Udp { idle } => Told::Moved(link.0, idle),
        });
        Ok(Ended::default())
    }

    fn flows(&self) -> Result<Vec<FlowRow>, PlaneError> {
        Ok(Vec::new())
    }
}

impl Plane for FakePlane {
    type Walker = FakeWalker;

    fn set_settings(&mut self, _: &Settings) -> Result<(), PlaneError> {
        self.tell(Told::Settings)
    }

    fn set_link(&mut self, link: LinkId, path: Option<&LinkPath>) -> Result<(), PlaneError> {
        self.tell(Told::Link(
            link.0,
            path.map(|path| path.external.to_string()),
        ))
    }

    fn set_routes(&mut self, _: &[Route]) -> Result<(), PlaneError> {
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

    fn flows_max(&self) -> u64 {
        1000
    }

    fn explain(
        &mut self,
        _: std::net::SocketAddr,
        _: std::net::SocketAddr,
        _: Proto,
    ) -> Result<Explanation, PlaneError> {
        Err(PlaneError::ShortExplanation(0))
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

    async fn apply(
        &mut self,
        _: &Config,
        _: &Desired,
        first_usable: Option<LinkId>,
    ) -> Vec<anyhow::Error> {
        self.world.lock().unwrap().first_usable = first_usable;
        Vec::new()
    }

    async fn reload(&mut self) -> Result<Config, Error> {
        self.world
            .lock()
            .unwrap()
            .config
            .take()
            .expect("a configuration to reload")
    }

    fn probe(
        &self,
        target: Target,
        via: Via,
    ) -> impl Future<Output = Option<Duration>> + Send + 'static {
        let world = self.world.lock().unwrap();
        let dead = world.dead.contains(&via.device.as_str()) || world.filtered.contains(&target);
        async move {
            let round_trip = Duration::from_millis(10);
            tokio::time::sleep(round_trip).await;
            (!dead).then_some(round_trip)
        }
    }

    fn keep_slots(&mut self, slots: &Slots) -> anyhow::Result<()> {
        self.keep(|world| world.slots = slots.clone())
    }

    fn keep_orders(&mut self, orders: &Orders) -> anyhow::Result<()> {
        self.keep(|world| world.orders = orders.clone())
    }

    fn ephemeral_ports(&self) -> anyhow::Result<[u16; 2]> {
        Ok([32_768, 60_999])
    }

    fn drops(&self) -> anyhow::Result<Vec<plane::ReasonCount>> {
        Ok(Vec::new())
    }

    fn fallback_mark(&self, _: &Config) -> u32 {
        self.world.lock().unwrap().fallback_mark
    }

    fn has_lost_guard(&self) -> bool {
        false
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
    calls: mpsc::Sender<Call>,
    _signals: mpsc::Sender<Signal>,
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
        let (calls, mut requests) = mpsc::channel(1);
        let (signals, mut orders) = mpsc::channel(1);
        tokio::spawn(async move {
            take_turns(&mut daemon, &mut requests, &mut orders)
                .await
                .unwrap()
        });
        let rig = Self {
            world,
            changed,
            calls,
            _signals: signals,
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
        self.calls.send((request, reply)).await.unwrap();
        response.await.unwrap()
    }

    async fn status(&self) -> crate::control::Status {
        match self.call(Request::Status).await {
            Response::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    async fn change_host(&self, change: impl FnOnce(&mut Snapshot)) {
        change(&mut self.world.lock().unwrap().host);
        self.changed.notify_one();
        self.pass(Duration::from_millis(10)).await;
    }

    async fn reload(&self, text: &str) -> Response {
        self.world.lock().unwrap().config =
            Some(Config::parse(Path::new("a.toml"), text).map_err(Error::from));
        self.call(Request::Reload).await
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

fn daemon(world: &Shared, changed: &Arc<Notify>, adopted: bool) -> Daemon<FakePlane, FakeHost> {
    daemon_of(CONFIG, world, changed, adopted)
}

fn daemon_of(
    text: &str,
    world: &Shared,
    changed: &Arc<Notify>,
    adopted: bool,
) -> Daemon<FakePlane, FakeHost> {
    let orders = world.lock().unwrap().orders.clone();
    let surroundings = FakeHost {
        world: world.clone(),
        changed: changed.clone(),
    };
    let plane = (FakePlane(world.clone()), adopted);
    Daemon::new(
        config(text),
        "test",
        (Slots::default(), orders),
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
    let served = serve(daemon, &paths, orders, || is_ready = true).await;
    assert!(!paths.socket().exists(), "{}", paths.socket().display());
    (is_ready, served)
}

fn config(text: &str) -> Config {
    Config::parse(Path::new("a.toml"), text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn at_the_start_devices_are_attached_when_links_and_choice_are_known() {
    let rig = Rig::start().await;
    let told = rig.told();
    let place = |wanted: &Told| {
        told.iter()
            .position(|told| told == wanted)
            .unwrap_or_else(|| panic!("{wanted:?} in {told:?}"))
    };
    assert!(place(&Told::Settings) < place(&Told::Link(0, Some("203.0.113.2".into()))));
    assert!(place(&Told::Link(1, Some("198.51.100.7".into()))) < place(&Told::Choice(0b11)));
    assert!(place(&Told::Choice(0b11)) < place(&Told::Attach(FIBER)));
    let status = rig.status().await;
    assert!(
        status
            .links
            .iter()
            .all(|link| link.state == Shown::Up && link.usable),
        "{status:?}"
    );
    assert_eq!((status.flows.live, status.flows.limit), (8, 1000));
}

#[tokio::test(start_paused = true)]
async fn a_stop_detaches_the_data_path_before_the_host_is_put_back() {
    let world = world();
    let (is_ready, served) = serve_once(&world, false).await;
    served.unwrap();
    assert!(is_ready);
    let told = &world.lock().unwrap().told;
    assert!(told.ends_with(&[Told::Closed, Told::Restored]), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_flows_that_are_being_ended() {
    let world = world();
    let mut daemon = daemon(&world, &Arc::default(), false);
    daemon.start().await.unwrap();
    let held = hold_flows(&world).await;
    world.lock().unwrap().told.clear();
    let (reply, _) = oneshot::channel();
    let order = Request::Link {
        name: "fiber".into(),
        action: LinkAction::Down,
        force: false,
    };
    daemon.answer((order, reply)).await.unwrap();
    let stopped = tokio::spawn(daemon.close());
    tokio::task::yield_now().await;
    assert_eq!(world.lock().unwrap().told, [Told::Choice(0b10)]);
    drop(held);
    stopped.await.unwrap().unwrap();
    assert_eq!(
        world.lock().unwrap().told[1..],
        [Told::Ended(0), Told::Closed, Told::Restored]
    );
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_is_undone_unless_flows_of_an_earlier_run_would_end() {
    for adopted in [false, true] {
        let world = world();
        world.lock().unwrap().stubborn = vec![LAN, FIBER, LTE];
        let (is_ready, served) = serve_once(&world, adopted).await;
        let error = served.unwrap_err().to_string();
        assert_eq!(
            (is_ready, error.as_str()),
            (
                false,
                "nothing could be set up: no device has index 2; no device has index 3; no device has index 4"
            )
        );
        let told = &world.lock().unwrap().told;
        let is_undone = told.ends_with(&[Told::Closed, Told::Restored]);
        assert_eq!(is_undone, !adopted, "{told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_goes_on_without_a_device_that_refuses_and_has_it_later() {
    for adopted in [false, true] {
        let world = world();
        world.lock().unwrap().stubborn = vec![FIBER];
        let rig = Rig::start_in(CONFIG, world, adopted).await;
        let told = rig.told();
        assert!(told.contains(&Told::Attach(LAN)), "{told:?}");
        assert!(!told.contains(&Told::Attach(FIBER)), "{told:?}");
        rig.world.lock().unwrap().stubborn.clear();
        rig.pass(Duration::from_secs(2)).await;
        assert_eq!(rig.told(), [Told::Attach(FIBER)]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_adopting_daemon_lets_go_of_devices_that_left_the_configuration() {
    assert!(
        Rig::start_adopting(true)
            .await
            .told()
            .contains(&Told::Detach(77))
    );
    assert!(!Rig::start().await.told().contains(&Told::Detach(77)));
}

#[tokio::test(start_paused = true)]
async fn a_dead_link_leaves_the_choice_before_its_flows_end_and_returns_when_it_answers() {
    let rig = Rig::start().await;
    rig.told();
    rig.world.lock().unwrap().dead = vec!["wan0"];
    rig.pass(Duration::from_secs(1)).await;
    assert_eq!(rig.told(), [Told::Choice(0b10), Told::Ended(0)]);
    assert_eq!(
        rig.world.lock().unwrap().first_usable,
        Some(LinkId(1)),
        "the fallback moves too"
    );
    rig.world.lock().unwrap().dead.clear();
    rig.pass(Duration::from_secs(3)).await;
    assert_eq!(rig.told(), [Told::Choice(0b11)]);
}

#[tokio::test(start_paused = true)]
async fn flows_of_an_address_that_was_renewed_end_once_the_new_one_is_known() {
    let rig = Rig::start().await;
    rig.told();
    rig.change_host(|host| {
        host.devices
            .insert("wan0".into(), device(FIBER, &["203.0.113.99/24"]));
    })
    .await;
    assert_eq!(
        rig.told(),
        [Told::Link(0, Some("203.0.113.99".into())), Told::Ended(0)]
    );
    rig.change_host(|host| host.routes[0] = route("0.0.0.0/0", FIBER, Some("203.0.113.8"), 1))
        .await;
    assert_eq!(
        rig.told(),
        [Told::Link(0, Some("203.0.113.99".into()))],
        "another gateway ends no flow"
    );
}

#[tokio::test(start_paused = true)]
async fn flows_of_a_former_address_end_also_if_the_link_was_away_in_between() {
    let rig = Rig::start().await;
    rig.change_host(|host| drop(host.devices.insert("wan0".into(), device(FIBER, &[]))))
        .await;
    rig.told();
    rig.change_host(|host| {
        drop(
            host.devices
                .insert("wan0".into(), device(FIBER, &["203.0.113.99/24"])),
        )
    })
    .await;
    assert_eq!(
        rig.told(),
        [Told::Link(0, Some("203.0.113.99".into())), Told::Ended(0)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_device_that_is_deleted_and_made_anew_keeps_its_flows_from_the_others() {
    let rig = Rig::start().await;
    rig.told();
    rig.change_host(|host| drop(host.devices.remove("ppp0")))
        .await;
    assert_eq!(
        rig.told(),
        [
            Told::Choice(0b01),
            Told::Ended(1),
            Told::Link(1, None),
            Told::Detach(LTE)
        ]
    );
    assert_eq!(rig.status().await.links[1].state, Shown::Absent);
    rig.world.lock().unwrap().stubborn = vec![9];
    rig.change_host(|host| {
        host.devices
            .insert("ppp0".into(), device(9, &["198.51.100.7/24"]));
        host.routes[1] = route("0.0.0.0/0", 9, Some("198.51.100.1"), 200);
    })
    .await;
    assert_eq!(rig.told(), [Told::Link(1, Some("198.51.100.7".into()))]);
    rig.world.lock().unwrap().stubborn.clear();
    rig.pass(Duration::from_secs(3)).await;
    let told = rig.told();
    assert!(told.contains(&Told::Attach(9)), "tried again: {told:?}");
    assert!(
        told.contains(&Told::Choice(0b11)),
        "used once it has answered: {told:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_device_that_cannot_be_let_go_of_is_tried_again() {
    let rig = Rig::start().await;
    rig.world.lock().unwrap().stubborn = vec![LTE];
    let complete = rig.world.lock().unwrap().host.clone();
    rig.change_host(|host| drop(host.devices.remove("ppp0")))
        .await;
    rig.told();
    rig.world.lock().unwrap().stubborn.clear();
    rig.pass(Duration::from_secs(2)).await;
    assert_eq!(rig.told(), [Told::Detach(LTE)]);
    rig.change_host(|host| *host = complete).await;
    assert!(rig.told().contains(&Told::Attach(LTE)));
}

#[tokio::test(start_paused = true)]
async fn the_data_path_learns_when_the_kernels_own_nat_can_be_used() {
    let rig = Rig::start().await;
    rig.told();
    rig.world.lock().unwrap().fallback_mark = 1;
    rig.pass(Duration::from_secs(LOOK_TICKS)).await;
    assert_eq!(rig.told(), [Told::Settings]);
}

#[tokio::test(start_paused = true)]
async fn a_reload_changes_what_it_must_and_nothing_else() {
    let rig = Rig::start().await;
    rig.told();
    let Response::Refused { message } = rig.reload("lan = 1").await else {
        panic!("not refused")
    };
    assert!(message.starts_with("a.toml: lan = 1: "), "{message}");
    assert_eq!(rig.told(), []);

    let Response::Done = rig.reload(&CONFIG.replace("rr", "lcf")).await else {
        panic!("refused")
    };
    assert_eq!(rig.told(), [Told::Settings, Told::Choice(0b11)]);

    let without: String = CONFIG
        .lines()
        .filter(|line| !line.contains("fiber"))
        .map(|line| format!("{line}\n"))
        .collect();
    let Response::Done = rig.reload(&without).await else {
        panic!("refused")
    };
    assert_eq!(
        rig.told(),
        [
            Told::Settings,
            Told::Choice(0b10),
            Told::Ended(0),
            Told::Detach(FIBER),
            Told::Link(0, None)
        ]
    );
    assert_eq!(
        rig.status().await.links[0].slot,
        1,
        "a name keeps its number"
    );
}

#[tokio::test(start_paused = true)]
async fn a_link_that_comes_back_while_its_flows_are_being_ended_is_used_after_them() {
    let rig = Rig::start().await;
    let held = hold_flows(&rig.world).await;
    rig.told();
    rig.world.lock().unwrap().host.devices.remove("ppp0");
    rig.changed.notify_one();
    rig.pass_meanwhile(Duration::from_millis(500)).await;
    assert_eq!(rig.told(), [Told::Choice(0b01)]);
    assert_eq!(rig.status().await.links[1].state, Shown::Absent);

    rig.world.lock().unwrap().host = host();
    rig.changed.notify_one();
    rig.pass_meanwhile(Duration::from_secs(3)).await;
    assert_eq!(rig.told(), [], "it keeps its address, and is not used");
    drop(held);
    rig.pass(Duration::from_secs(3)).await;
    assert_eq!(rig.told(), [Told::Ended(1), Told::Choice(0b11)]);
}

#[tokio::test(start_paused = true)]
async fn while_flows_are_being_ended_the_other_link_is_watched_and_questions_are_answered() {
    let rig = Rig::start().await;
    let held = hold_flows(&rig.world).await;
    rig.told();
    let order = Request::Link {
        name: "fiber".into(),
        action: LinkAction::Down,
        force: false,
    };
    let (reply, mut response) = oneshot::channel();
    rig.calls.send((order, reply)).await.unwrap();
    rig.pass_meanwhile(Duration::from_millis(100)).await;
    assert_eq!(rig.told(), [Told::Choice(0b10)]);
    rig.world.lock().unwrap().dead = vec!["ppp0"];
    rig.pass_meanwhile(Duration::from_secs(1)).await;
    assert_eq!(rig.status().await.links[1].state, Shown::Down);
    assert!(response.try_recv().is_err(), "the order is not carried out");
    drop(held);
    assert!(matches!(response.await.unwrap(), Response::Done));
    assert_eq!(rig.told(), [Told::Ended(0)]);
}

#[tokio::test(start_paused = true)]
async fn a_link_that_was_down_is_not_trusted_after_a_reload() {
    let rig = Rig::start().await;
    rig.world.lock().unwrap().dead = vec!["wan0"];
    rig.pass(Duration::from_secs(1)).await;
    rig.told();
    let Response::Done = rig.reload(&CONFIG.replace("rr", "lcf")).await else {
        panic!("refused")
    };
    rig.pass(Duration::from_secs(2)).await;
    let choices: Vec<Told> = rig
        .told()
        .into_iter()
        .filter(|told| matches!(told, Told::Choice(_)))
        .collect();
    assert_eq!(choices, [Told::Choice(0b10)]);
}

#[tokio::test(start_paused = true)]
async fn an_order_takes_a_link_out_and_brings_it_back() {
    let rig = Rig::start().await;
    rig.told();
    let order = |action| Request::Link {
        name: "fiber".into(),
        action,
        force: false,
    };
    rig.call(order(LinkAction::Drain)).await;
    assert_eq!(rig.told(), [Told::Choice(0b10)], "its flows live on");
    rig.call(order(LinkAction::Down)).await;
    assert_eq!(rig.told(), [Told::Ended(0)]);
    assert_eq!(rig.status().await.links[0].state, Shown::Disabled);
    rig.call(order(LinkAction::Up)).await;
    assert_eq!(rig.told(), [Told::Choice(0b11)]);
    let Response::Refused { message } = rig
        .call(Request::Link {
            name: "dsl".into(),
            action: LinkAction::Up,
            force: false,
        })
        .await
    else {
        panic!("not refused")
    };
    assert_eq!(message, r#"no link "dsl"; there are: fiber, lte"#);
    let refused = Error::from(BadInput::new(message));
    assert_eq!(refused.exit_code(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_there_is_used_and_the_rest_joins_when_it_comes() {
    let world = world();
    let complete = std::mem::take(&mut world.lock().unwrap().host);
    let rig = Rig::start_in(CONFIG, world, false).await;
    assert!(rig.told().contains(&Told::Choice(0)), "nothing is there");
    rig.change_host(|host| {
        let mut now = complete.clone();
        now.devices.remove("ppp0");
        *host = now;
    })
    .await;
    rig.pass(Duration::from_secs(2)).await;
    let told = rig.told();
    assert!(
        told.contains(&Told::Choice(0b01)) && told.contains(&Told::Attach(LAN)),
        "{told:?}"
    );
    assert_eq!(rig.status().await.links[1].state, Shown::Absent);
    rig.change_host(|host| *host = complete.clone()).await;
    assert!(rig.told().contains(&Told::Choice(0b11)));
}

#[tokio::test(start_paused = true)]
async fn the_last_link_that_works_is_taken_away_only_by_force() {
    let rig = Rig::start().await;
    let order = |name: &str, action, force| Request::Link {
        name: name.into(),
        action,
        force,
    };
    rig.call(order("fiber", LinkAction::Drain, false)).await;
    rig.told();
    for action in [LinkAction::Drain, LinkAction::Down] {
        let Response::Refused { message } = rig.call(order("lte", action, false)).await else {
            panic!("not refused")
        };
        assert_eq!(
            message,
            "link lte is the last that works: without it no new flow is forwarded; --force orders it nevertheless"
        );
    }
    assert_eq!(rig.told(), []);
    rig.call(order("lte", LinkAction::Drain, true)).await;
    assert_eq!(rig.told(), [Told::Choice(0)]);
}

#[tokio::test(start_paused = true)]
async fn orders_outlive_the_daemon() {
    let first = Rig::start().await;
    let order = |action| Request::Link {
        name: "fiber".into(),
        action,
        force: false,
    };
    first.call(order(LinkAction::Drain)).await;
    let world = world();
    world.lock().unwrap().orders = first.world.lock().unwrap().orders.clone();
    let next = Rig::start_in(CONFIG, world, true).await;
    assert_eq!(next.status().await.links[0].state, Shown::Drained);
    assert!(!next.told().contains(&Told::Choice(0b11)));
    next.call(order(LinkAction::Up)).await;
    assert!(next.world.lock().unwrap().orders.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_order_that_cannot_be_kept_is_refused_and_changes_nothing() {
    let rig = Rig::start().await;
    rig.told();
    rig.world.lock().unwrap().is_full = true;
    let order = || Request::Link {
        name: "fiber".into(),
        action: LinkAction::Drain,
        force: false,
    };
    let Response::Refused { message } = rig.call(order()).await else {
        panic!("not refused")
    };
    assert_eq!(
        message,
        "link fiber is as it was, as no order can be kept: write state.json: no space; make room there, then order again"
    );
    rig.world.lock().unwrap().is_full = false;
    rig.pass(Duration::from_secs(3)).await;
    assert_eq!(rig.told(), []);
    assert!(rig.world.lock().unwrap().orders.is_empty());
    assert!(matches!(rig.call(order()).await, Response::Done));
    assert_eq!(rig.told(), [Told::Choice(0b10)]);
}

#[tokio::test(start_paused = true)]
async fn without_room_for_its_state_the_gateway_starts_and_reloads_and_keeps_it_later() {
    let world = world();
    world.lock().unwrap().is_full = true;
    let rig = Rig::start_in(CONFIG, world, false).await;
    assert!(rig.told().contains(&Told::Choice(0b11)));
    let reloaded = rig.reload(&CONFIG.replace("lte", "cable")).await;
    assert!(matches!(reloaded, Response::Done), "{reloaded:?}");
    rig.world.lock().unwrap().is_full = false;
    rig.pass(Duration::from_secs(3)).await;
    let kept = rig.world.lock().unwrap().slots.clone();
    assert_eq!(kept.id("cable"), Some(LinkId(2)), "{kept:?}");
}

#[tokio::test(start_paused = true)]
async fn where_resolvers_are_filtered_the_gateway_is_asked_and_status_says_so() {
    let world = world();
    world.lock().unwrap().filtered = DEFAULT_TARGETS.to_vec();
    let rig = Rig::start_in(CONFIG, world, false).await;
    rig.pass(Duration::from_secs(10)).await;
    let fiber = rig.status().await.links.remove(0);
    let named: Vec<_> = fiber
        .probe
        .targets
        .iter()
        .map(|target| (target.target.as_str(), target.near))
        .collect();
    assert_eq!(named[4], ("icmp:203.0.113.1", true));
    // Traffic is proof already: both links carry some.
    assert_eq!((fiber.state, fiber.usable), (Shown::Up, true));
}

#[tokio::test(start_paused = true)]
async fn udp_flows_leave_a_metered_link_when_another_is_back() {
    let metered = CONFIG.replace("device = \"ppp0\"", "device = \"ppp0\", metered = true");
    let rig = Rig::start_in(&metered, world(), false).await;
    rig.pass(Duration::from_secs(10)).await;
    rig.world.lock().unwrap().dead = vec!["wan0"];
    rig.pass(Duration::from_secs(2)).await;
    rig.told();
    rig.world.lock().unwrap().dead.clear();
    rig.pass(Duration::from_secs(8)).await;
    let second = Duration::from_secs(1);
    assert_eq!(
        rig.told(),
        [
            Told::Choice(0b01),
            Told::Moved(1, second),
            Told::Moved(1, second),
            Told::Moved(1, second),
            Told::Moved(1, Duration::ZERO)
        ]
    );
}
