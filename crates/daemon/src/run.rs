//! From a configuration file to a running gateway, and back.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anabranch_core::rules::Moment;
use anabranch_core::rules::file::Remark;
use anabranch_dataplane::Gateway;
use anyhow::Context;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, Signal, signal};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::config::{Config, Configuration};
use crate::error::Error;
use crate::gateway::{GatewayRole, Surroundings};
use crate::host::ids::Ids;
use crate::host::{self, Conversation, Host, Moved, Return, Ways};
use crate::lock::{Claims, Lock, Numbers};
use crate::neighbours;
use crate::observe::{Desired, MassKey, Monitor, Netlink, Snapshot};
use crate::plane::{self, Route, Verdict};
use crate::preflight::{check_devices, check_host};
use crate::privileges;
use crate::probe::{self, Answer, Inquiry, Via};
use crate::shell;
use crate::slots::{Orders, Slots};
use crate::trunk;
use anabranch_api::ReasonCount;
use anabranch_api::{Finding, Paths};

/// Ample for every map, device and probe.
const DESCRIPTORS: u64 = 65_536;
/// Whoever asks how all is waits no longer for what stands beside.
const SURVEY_MAX: Duration = Duration::from_secs(5);

/// Runs the gateway or trunk of the calling thread's network namespace until SIGTERM or SIGINT; then the host is as it
/// was. `ready` is called once packets are forwarded.
///
/// After any other end the data path goes on by itself, and the next run takes it over.
///
/// # Errors
/// [`Error::BadInput`] before anything was changed; anything else later.
pub fn run(config: &Path, paths: &Paths, ready: impl FnOnce()) -> Result<(), Error> {
    ignore_reloads();
    raise_descriptors();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    runtime.block_on(run_here(config, paths, ready))
}

/// Until they are listened to: the configuration is read after that. By itself SIGHUP ends a process.
fn ignore_reloads() {
    // SAFETY: no handler runs.
    let ignored = unsafe { signal(Signal::SIGHUP, SigHandler::SigIgn) };
    ignored.expect("SIGHUP is a signal that may be ignored");
}

/// Every map, program, device and probe has a descriptor, and what a shell begins with is little.
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

async fn run_here(path: &Path, paths: &Paths, ready: impl FnOnce()) -> Result<(), Error> {
    // First of all: a reload that is ordered during the start is done after it.
    let signals = shell::signals()?;
    let config = Configuration::load(path)?;
    check_host(&config).await?;
    let lock = Lock::take(paths)?;
    let mut claims = Claims::take(paths, &config.devices())?;
    let numbers = Numbers::take(paths)?;
    lock.tell();
    match config {
        Configuration::Gateway(config) => {
            tell_warnings(&config);
            let gateway = open(*config, paths, numbers.ids(), &mut claims).await?;
            shell::serve(gateway, paths, signals, ready).await
        }
        Configuration::Trunk(config) => {
            let trunk = trunk::open(config, paths, numbers.ids(), &mut claims).await?;
            shell::serve(trunk, paths, signals, ready).await
        }
    }
}

fn tell_warnings(config: &Config) {
    for remark in &config.remarks {
        if let Remark::Warning(text) = remark {
            tracing::warn!("{text}");
        }
    }
}

async fn open<'a>(
    config: Config,
    paths: &Paths,
    ids: Ids,
    claims: &'a mut Claims,
) -> anyhow::Result<GatewayRole<Gateway, RealHost<'a>>> {
    let opened = Gateway::open(paths.pins(), plane::sizes(&config)).context("data path")?;
    let (plane, (netlink, monitor, host)) = adopt_host(paths, ids, opened, Gateway::close).await?;
    if plane.1 {
        tracing::info!("took over the flows of an earlier run");
    }
    netlink.write_routes(plane.0.route_table().context("routes")?)?;
    let former = (host.slots().clone(), host.orders().clone());
    let neighbours = neighbours::Reader::default();
    let host = RealHost {
        netlink,
        monitor,
        host,
        claims,
        config_path: config.path.clone(),
        stateless: neighbours.stateless(),
        neighbours: Arc::new(Mutex::new(neighbours)),
    };
    GatewayRole::new(config, paths.instance(), former, plane, host)
}

/// What the loop of either kind works on beside its data path.
pub(crate) type HostParts = (Netlink, Monitor, Host);

/// After the load, before there are threads. If it fails, `close` undoes the load, unless that took over an earlier
/// run's data path.
pub(crate) async fn adopt_host<P>(
    paths: &Paths,
    ids: Ids,
    (plane, adopted): (P, bool),
    close: impl FnOnce(P) -> Result<(), anabranch_dataplane::Error>,
) -> anyhow::Result<((P, bool), HostParts)> {
    let adopt = async {
        privileges::drop_loading()?;
        let host = Host::adopt(paths, ids).await?;
        let netlink = Netlink::connect()?;
        let monitor = Monitor::connect(&netlink)?;
        Ok((netlink, monitor, host))
    };
    match adopt.await {
        Ok(parts) => Ok(((plane, adopted), parts)),
        Err(error) if adopted => Err(error),
        Err(error) => {
            close(plane).context("detach the data path")?;
            Err(error)
        }
    }
}

/// This host.
struct RealHost<'a> {
    netlink: Netlink,
    monitor: Monitor,
    host: Host,
    claims: &'a mut Claims,
    config_path: PathBuf,
    /// Locked while a survey is under way.
    neighbours: Arc<Mutex<neighbours::Reader>>,
    stateless: neighbours::Stateless,
}

impl Surroundings for RealHost<'_> {
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

    async fn reload(&mut self) -> Result<Config, Error> {
        let config = Configuration::load(&self.config_path)?;
        check_devices(&config).await?;
        match config {
            Configuration::Gateway(config) => {
                let host = self.netlink.snapshot().await?;
                let found = self.survey(&config, host).await?;
                neighbours::refuse(&config, &found)?;
                self.claims.add(&config.devices())?;
                tell_warnings(&config);
                Ok(*config)
            }
            Configuration::Trunk(config) => Err(config
                .bad("it is of a trunk now; stop the gateway first")
                .into()),
        }
    }

    fn probe(
        &self,
        inquiry: Inquiry,
        via: Via,
    ) -> impl Future<Output = Option<Answer>> + Send + 'static {
        probe::probe(inquiry, via)
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
        if !has_stale_programs {
            self.claims.keep_only(&config.devices());
        }
        self.claims.keep()
    }

    fn keep_orders(&mut self, orders: &Orders) -> anyhow::Result<()> {
        self.host.set_orders(orders.clone())
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
