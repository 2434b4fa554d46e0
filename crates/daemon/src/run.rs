//! Starts the roles that a configuration file names, and stops them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anabranch_api::{Finding, Paths, ReasonCount};
use anabranch_core::Family;
use anabranch_core::checks::{Ask, Outcome};
use anabranch_core::rules::Moment;
use anabranch_dataplane::member::Member;
use anabranch_dataplane::services::Services;
use anabranch_dataplane::trunk::Trunk;
use anabranch_dataplane::{Gateway, Pinned};
use anyhow::Context;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, Signal, signal};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::checking::make_test;
use crate::commands::{Commands, Helper};
use crate::config::{Config, Configuration, GATEWAY, MEMBER, SERVICE, TRUNK};
use crate::error::Error;
use crate::gateway::{GatewayRole, Surroundings};
use crate::host::ids::Ids;
use crate::host::{self, Conversation, Host, Moved, Return, Settings, Ways};
use crate::lock::{Claims, Lock, Numbers};
use crate::member::{self, MemberRole};
use crate::neighbours;
use crate::observe::{Desired, MassKey, Monitor, Netlink, Snapshot};
use crate::plane::{self, Route, Verdict};
use crate::preflight::{check_hooks, check_host};
use crate::privileges;
use crate::probe::{self, Answer, Inquiry, Via};
use crate::services::{self, ServicesRole};
use crate::shell::{self, Opened};
use crate::slots::{Orders, Slots, Tested};
use crate::trunk::{self, TrunkRole};

/// Limit of file descriptors: more than all maps, devices and probes need.
const DESCRIPTORS: u64 = 65_536;
/// How long a request for the status waits for a survey of neighbours, at most.
const SURVEY_MAX: Duration = Duration::from_secs(5);

/// Runs the roles of a file in the calling thread's network namespace until SIGTERM or SIGINT, then restores the host.
/// `ready` is called once packets are forwarded.
///
/// After any other end the data path continues by itself, and the next run takes it over.
///
/// # Errors
/// [`Error::BadInput`] before anything was changed; anything else later.
pub fn run(config: &Path, paths: &Paths, ready: impl FnOnce()) -> Result<(), Error> {
    // The helper is forked before this process opens or changes anything or drops privileges, because it inherits what there is
    // now.
    let helper = Helper::start();
    ignore_reloads();
    raise_descriptors();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    runtime.block_on(run_here(config, paths, helper, ready))
}

/// Ignores SIGHUP until a handler is installed: by default it would end the process, and the configuration is read later anyway.
fn ignore_reloads() {
    // SAFETY: no handler runs.
    let ignored = unsafe { signal(Signal::SIGHUP, SigHandler::SigIgn) };
    ignored.expect("SIGHUP is a signal that may be ignored");
}

/// Raises the limit of descriptors: each map, program, device and probe needs one, and the limit that a shell sets is low.
fn raise_descriptors() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(now, most)| {
        setrlimit(
            Resource::RLIMIT_NOFILE,
            now.max(most.min(DESCRIPTORS)),
            most,
        )
    });
    if let Err(error) = raised {
        tracing::debug!("the limit of open files stays as it is: {error}");
    }
}

async fn run_here(
    path: &Path,
    paths: &Paths,
    helper: anyhow::Result<Helper>,
    ready: impl FnOnce(),
) -> Result<(), Error> {
    // Signals first: a reload that is ordered during the start is done after it.
    let signals = shell::signals()?;
    let config = Configuration::load(path)?;
    check_host(&config).await?;
    let lock = Lock::take(paths)?;
    let claims = Rc::new(RefCell::new(Claims::take(paths, &config.devices())?));
    let numbers = Numbers::take(paths)?;
    lock.tell();
    let commands = Commands::by(helper);
    let roles = open(config, paths, numbers.ids(), &claims, commands).await?;
    shell::serve(roles, path, paths, signals, ready).await
}

/// A data path, and whether it was adopted from an earlier run.
type Loaded<P> = anyhow::Result<(P, bool)>;

/// Loads the programs of all roles first, since the privileges for that are dropped then. A role that cannot start does not affect
/// the others.
async fn open(
    config: Configuration,
    paths: &Paths,
    ids: Ids,
    claims: &Rc<RefCell<Claims>>,
    commands: Commands,
) -> anyhow::Result<Vec<Opened>> {
    let Configuration {
        gateway,
        services,
        trunk,
        member,
    } = config;
    let pins = paths.pins();
    let gateway = gateway.map(|config| {
        let loaded = Gateway::open(pins, plane::sizes(&config)).context("data path");
        (*config, loaded)
    });
    let services = services.map(|config| {
        let loaded = Services::open(pins, config.connections_max).context("data path");
        (config, loaded)
    });
    let trunk = trunk.map(|config| (config, Trunk::open(pins).context("data path")));
    let member = member.map(|config| (config, Member::open(pins).context("data path")));
    let is_loaded = gateway.as_ref().is_some_and(|(_, loaded)| loaded.is_ok())
        || services.as_ref().is_some_and(|(_, loaded)| loaded.is_ok())
        || trunk.as_ref().is_some_and(|(_, loaded)| loaded.is_ok())
        || member.as_ref().is_some_and(|(_, loaded)| loaded.is_ok());
    if !is_loaded {
        // Nothing was changed, so the programs of an earlier run continue.
        let gateway = gateway.and_then(|(_, loaded)| loaded.err());
        let services = services.and_then(|(_, loaded)| loaded.err());
        let trunk = trunk.and_then(|(_, loaded)| loaded.err());
        let member = member.and_then(|(_, loaded)| loaded.err());
        let failed = gateway.or(services).or(trunk).or(member);
        return failed.map_or_else(|| Ok(Vec::new()), Err);
    }
    if let Err(error) = privileges::drop_loading() {
        gateway.map_or(Ok(()), |(_, loaded)| undo(loaded, Gateway::close))?;
        services.map_or(Ok(()), |(_, loaded)| undo(loaded, Services::close))?;
        trunk.map_or(Ok(()), |(_, loaded)| undo(loaded, Trunk::close))?;
        member.map_or(Ok(()), |(_, loaded)| undo(loaded, Member::close))?;
        return Err(error);
    }
    if gateway.is_none() {
        tell_left(GATEWAY, forget_gateway(paths, ids).await);
    }
    if services.is_none() {
        services::forget(paths);
        let forgotten = anabranch_dataplane::remove(pins, Pinned::Services);
        tell_left(SERVICE, forgotten.map_err(Into::into));
    }
    if trunk.is_none() {
        tell_left(TRUNK, forget_trunk(paths));
    }
    if member.is_none() {
        tell_left(MEMBER, forget_member(paths).await);
    }
    let mut roles = Vec::new();
    if let Some((config, loaded)) = gateway {
        let host = gateway_host(paths, ids, claims, commands.clone());
        let role = |plane, host| begin_gateway(config, paths, plane, host);
        roles.push(Opened::new(begin(loaded, Gateway::close, host, role).await));
    }
    if let Some((config, loaded)) = services {
        let host = async { services::Host::connect(claims, commands) };
        let role = |plane, host| ServicesRole::new(config, paths, plane, host);
        roles.push(Opened::new(
            begin(loaded, Services::close, host, role).await,
        ));
    }
    if let Some((config, loaded)) = trunk {
        let host = async { trunk::host(paths, claims) };
        let role = |plane, host| TrunkRole::new(config, paths.instance(), plane, host);
        roles.push(Opened::new(begin(loaded, Trunk::close, host, role).await));
    }
    if let Some((config, loaded)) = member {
        let host = async { member::Host::adopt(paths, claims) };
        let role = |plane, host| Ok(MemberRole::new(config, paths.instance(), plane, host));
        roles.push(Opened::new(begin(loaded, Member::close, host, role).await));
    }
    Ok(roles)
}

/// Creates a role from its loaded programs and the host. If the host cannot be opened, the programs are unloaded.
async fn begin<P, H, R>(
    loaded: Loaded<P>,
    close: impl FnOnce(P) -> Result<(), anabranch_dataplane::Error>,
    host: impl Future<Output = anyhow::Result<H>>,
    role: impl FnOnce((P, bool), H) -> anyhow::Result<R>,
) -> anyhow::Result<R> {
    let loaded = loaded?;
    match host.await {
        Ok(host) => role(loaded, host),
        Err(error) => {
            undo(Ok(loaded), close)?;
            Err(error)
        }
    }
}

/// Unloads the programs, unless they were loaded by an earlier run.
fn undo<P>(
    loaded: Loaded<P>,
    close: impl FnOnce(P) -> Result<(), anabranch_dataplane::Error>,
) -> anyhow::Result<()> {
    match loaded {
        Ok((plane, false)) => close(plane).context("detach the data path"),
        _ => Ok(()),
    }
}

/// Removes what an earlier gateway left behind that was not stopped cleanly.
async fn forget_gateway(paths: &Paths, ids: Ids) -> anyhow::Result<()> {
    anabranch_dataplane::remove(paths.pins(), Pinned::Gateway)?;
    let host = Host::adopt(paths, ids).await?;
    host.restore(&Netlink::connect()?).await
}

/// The same for a trunk.
fn forget_trunk(paths: &Paths) -> anyhow::Result<()> {
    anabranch_dataplane::remove(paths.pins(), Pinned::Trunk)?;
    Settings::adopt(&paths.state_of(TRUNK))?.restore()
}

/// The same for a member.
async fn forget_member(paths: &Paths) -> anyhow::Result<()> {
    anabranch_dataplane::remove(paths.pins(), Pinned::Member)?;
    member::forget(paths).await
}

fn tell_left(role: &str, forgotten: anyhow::Result<()>) {
    if let Err(error) = forgotten {
        tracing::warn!(
            "this instance is no {role} any more, and something that it has changed as one stays: {error:#}"
        );
    }
}

async fn gateway_host(
    paths: &Paths,
    ids: Ids,
    claims: &Rc<RefCell<Claims>>,
    commands: Commands,
) -> anyhow::Result<RealHost> {
    let neighbours = neighbours::Reader::default();
    let host = Host::adopt(paths, ids).await?;
    let netlink = Netlink::connect()?;
    Ok(RealHost {
        monitor: Monitor::connect(&netlink)?,
        netlink,
        host,
        claims: Rc::clone(claims),
        commands,
        stateless: neighbours.stateless(),
        neighbours: Arc::new(Mutex::new(neighbours)),
    })
}

fn begin_gateway(
    config: Config,
    paths: &Paths,
    plane: (Gateway, bool),
    host: RealHost,
) -> anyhow::Result<GatewayRole<Gateway, RealHost>> {
    if plane.1 {
        tracing::info!("took over the flows of an earlier run");
    }
    let routes = plane.0.route_table().context("routes")?;
    host.netlink.write_routes(routes)?;
    let (slots, orders) = (host.host.slots().clone(), host.host.orders().clone());
    let former = (slots, orders, host.host.tested().clone());
    GatewayRole::new(config, paths.instance(), former, plane, host)
}

/// The environment variables that tell a command about the link it checks.
fn about((link, family): &(String, Family), via: &Via) -> BTreeMap<String, String> {
    let about = [
        ("LINK", Some(link.clone())),
        ("FAMILY", Some(family.to_string())),
        ("DEVICE", via.device.clone()),
        ("ADDRESS", Some(via.source.to_string())),
    ];
    let about = about.into_iter();
    about
        .filter_map(|(name, value)| Some((format!("ANABRANCH_{name}"), value?)))
        .collect()
}

/// This host.
struct RealHost {
    netlink: Netlink,
    monitor: Monitor,
    host: Host,
    claims: Rc<RefCell<Claims>>,
    commands: Commands,
    /// Locked while a survey is running.
    neighbours: Arc<Mutex<neighbours::Reader>>,
    stateless: neighbours::Stateless,
}

impl Surroundings for RealHost {
    async fn snapshot(&mut self) -> anyhow::Result<Snapshot> {
        self.netlink.snapshot().await
    }

    async fn changed(&mut self) -> anyhow::Result<()> {
        self.monitor.changed().await
    }

    fn rest(&mut self, is_quiet: bool) {
        self.monitor.rest(is_quiet);
    }

    fn set_routes(
        &mut self,
        routes: &[Route],
        masses: &[(MassKey, Verdict)],
    ) -> anyhow::Result<()> {
        self.netlink.tell_routes(routes, masses)
    }

    async fn apply(
        &mut self,
        config: &Config,
        desired: &Desired,
        ways: &Ways,
    ) -> Vec<anyhow::Error> {
        self.monitor.watch(desired.running());
        self.host.set_others_track(self.others_track());
        self.host.apply(&self.netlink, config, desired, ways).await
    }

    fn survey(
        &self,
        config: &Config,
        host: Snapshot,
    ) -> impl Future<Output = anyhow::Result<Vec<Finding>>> + Send + 'static {
        let neighbours = Arc::clone(&self.neighbours);
        let (config, undone) = (config.clone(), self.host.undone());
        let survey = async move {
            let mut neighbours = neighbours.lock().await;
            neighbours.survey(&config, &host, undone).await
        };
        async {
            timeout(SURVEY_MAX, survey)
                .await
                .context("survey the host")?
        }
    }

    fn has_other_neighbours(&self) -> bool {
        let idle = self.neighbours.try_lock();
        idle.is_ok_and(|neighbours| neighbours.is_outdated())
    }

    fn others_track(&self) -> bool {
        !self.stateless.held()
    }

    fn lets_untracked_pass(&self) -> bool {
        self.stateless.holds()
    }

    async fn check(&mut self, config: &Config) -> Result<(), Error> {
        let host = self.netlink.snapshot().await?;
        check_hooks(&host, &config.devices())?;
        let found = self.survey(config, host).await?;
        neighbours::refuse(config, &found)?;
        self.claims.borrow_mut().add(GATEWAY, &config.devices())
    }

    fn probe(
        &self,
        inquiry: Inquiry,
        via: Via,
    ) -> impl Future<Output = Option<Answer>> + Send + 'static {
        probe::probe(inquiry, via)
    }

    fn test(
        &self,
        ask: Ask<(String, Family)>,
        via: Via,
    ) -> impl Future<Output = Outcome> + Send + 'static {
        let about = about(&ask.subject, &via);
        make_test(ask.test, via, ask.timeout, self.commands.clone(), about)
    }

    fn ask(&self, to: SocketAddr, from_port: u16, number: u32, via: &Via) {
        if let Err(error) = probe::ask_for_reset(to, from_port, number, via) {
            tracing::debug!(device = via.device, %to, %error, "question not sent");
        }
    }

    fn keep_slots(&mut self, slots: &Slots) -> anyhow::Result<()> {
        self.host.set_slots(slots.clone())
    }

    fn keep_claims(&mut self, config: &Config, has_stale_programs: bool) -> anyhow::Result<()> {
        let mut claims = self.claims.borrow_mut();
        claims.keep_for(GATEWAY, &config.devices(), !has_stale_programs)
    }

    fn keep_orders(&mut self, orders: &Orders) -> anyhow::Result<()> {
        self.host.set_orders(orders.clone())
    }

    fn keep_tested(&mut self, tested: &Tested) -> anyhow::Result<()> {
        self.host.set_tested(tested.clone())
    }

    fn ephemeral_ports(&self) -> anyhow::Result<[u16; 2]> {
        host::ephemeral_ports()
    }

    fn moment(&self) -> Moment {
        host::moment()
    }

    fn fallback_mark(&self, config: &Config) -> u32 {
        self.host.fallback_mark(config)
    }

    fn has_lost_guard(&mut self) -> bool {
        self.host.has_lost_guard() || self.host.has_other_settings()
    }

    fn abandon(&self, link: &str, address: IpAddr) {
        let link = link.to_owned();
        tokio::task::spawn_blocking(move || match host::leave(address) {
            Ok(0) => {}
            Ok(count) => {
                tracing::info!("link {link}: moving {count} UDP conversations of this host's");
            }
            Err(error) => tracing::warn!(
                "link {link}: UDP of this host's from {address} stays with it: {error:#}"
            ),
        });
    }

    fn move_idle(
        &self,
        returned: Arc<std::sync::Mutex<Return>>,
        idle: Duration,
        is_meant: impl Fn(&Conversation) -> bool + Send + 'static,
    ) -> impl Future<Output = anyhow::Result<Moved>> + Send + 'static {
        let moved = tokio::task::spawn_blocking(move || {
            let mut returned = returned.lock().expect("one at a time");
            returned.move_idle(idle, is_meant)
        });
        async { moved.await? }
    }

    fn lacks(&self) -> Option<String> {
        self.host.lacks()
    }

    fn connection_table(&self) -> Option<(u64, u64)> {
        neighbours::connection_table()
    }

    fn drops(&self) -> anyhow::Result<Vec<ReasonCount>> {
        self.host.drops()
    }

    async fn restore(self) -> anyhow::Result<()> {
        self.host.restore(&self.netlink).await
    }
}
