//! From a configuration file to a running gateway, and back.

use std::future::Future;
use std::path::{Path, PathBuf};

use anabranch_core::LinkId;
use anabranch_dataplane::Gateway;
use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::config::{Config, Configuration};
use crate::control::Server;
use crate::daemon::{Daemon, Signal, Surroundings};
use crate::error::Error;
use crate::host::{self, Host};
use crate::lock::Lock;
use crate::notify::notify;
use crate::observe::{Desired, Monitor, Netlink, Snapshot};
use crate::paths::Paths;
use crate::plane;
use crate::preflight::check_host;
use crate::probe::{self, Outcome, Target, Via};
use crate::slots::Slots;
use crate::trunk;

pub(crate) const CALLS_WAITING_MAX: usize = 16;

/// Runs the gateway or trunk of the calling thread's network namespace until SIGTERM or SIGINT; then the host is as it
/// was. `ready` is called once packets are forwarded.
///
/// After any other end the data path goes on by itself, and the next run takes it over.
///
/// # Errors
/// [`Error::BadInput`] before anything was changed; anything else later.
pub fn run(config: &Path, paths: &Paths, ready: impl FnOnce()) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    runtime.block_on(run_here(config, paths, ready))
}

async fn run_here(path: &Path, paths: &Paths, ready: impl FnOnce()) -> Result<(), Error> {
    let config = Configuration::load(path)?;
    check_host(&config).await?;
    match config {
        Configuration::Gateway(config) => run_gateway(*config, paths, ready).await,
        Configuration::Trunk(config) => trunk::run(config, paths, ready).await,
    }
}

async fn run_gateway(config: Config, paths: &Paths, ready: impl FnOnce()) -> Result<(), Error> {
    let _lock = Lock::take(paths)?;
    let mut signals = Signals::listen()?;
    let host = RealHost::adopt(&config.path, paths).await?;
    let former = host.host.slots().clone();
    let (gateway, adopted) =
        Gateway::open(paths.pins(), plane::sizes(&config)).context("data path")?;
    if adopted {
        tracing::info!("took over the flows of an earlier run");
    }
    let (calls, mut requests) = mpsc::channel(CALLS_WAITING_MAX);
    let server = Server::listen(&paths.socket(), calls)?;
    let mut daemon = Daemon::new(config, paths.instance(), &former, (gateway, adopted), host)?;
    if let Err(error) = daemon.start().await {
        if !adopted {
            stop(daemon).await?;
        }
        return Err(error.into());
    }
    tracing::info!("forwarding");
    ready();
    notify("READY=1");
    let served = daemon.run(&mut requests, &mut signals.receiver).await;
    notify("STOPPING=1");
    drop(server);
    served?;
    stop(daemon).await?;
    tracing::info!("stopped; the host is as it was");
    Ok(())
}

/// Detaches the data path first: what is still under way must not meet a host half put back.
async fn stop(daemon: Daemon<Gateway, RealHost>) -> anyhow::Result<()> {
    let (gateway, host) = daemon.into_parts();
    let closed = gateway.close().context("detach the data path");
    host.host
        .restore(&host.netlink)
        .await
        .context("put the host back")?;
    closed
}

/// The signals of this process, as the loop wants them.
pub(crate) struct Signals {
    pub(crate) receiver: mpsc::Receiver<Signal>,
}

impl Signals {
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let (sender, receiver) = mpsc::channel(1);
        for (kind, meaning) in [
            (SignalKind::hangup(), Signal::Reload),
            (SignalKind::terminate(), Signal::Stop),
            (SignalKind::interrupt(), Signal::Stop),
        ] {
            let mut stream = signal(kind).context("listen to signals")?;
            let sender = sender.clone();
            tokio::spawn(async move {
                while stream.recv().await.is_some() && sender.send(meaning).await.is_ok() {}
            });
        }
        Ok(Self { receiver })
    }
}

/// This host.
struct RealHost {
    netlink: Netlink,
    monitor: Monitor,
    host: Host,
    config_path: PathBuf,
}

impl RealHost {
    async fn adopt(config_path: &Path, paths: &Paths) -> anyhow::Result<Self> {
        Ok(Self {
            netlink: Netlink::connect()?,
            monitor: Monitor::connect()?,
            host: Host::adopt(paths).await?,
            config_path: config_path.to_owned(),
        })
    }
}

impl Surroundings for RealHost {
    async fn snapshot(&mut self) -> anyhow::Result<Snapshot> {
        self.netlink.snapshot().await
    }

    async fn changed(&mut self) -> anyhow::Result<()> {
        self.monitor.changed().await
    }

    async fn apply(
        &mut self,
        config: &Config,
        desired: &Desired,
        first_usable: Option<LinkId>,
    ) -> anyhow::Result<()> {
        self.monitor.watch(desired.running());
        self.host
            .apply(&self.netlink, config, desired, first_usable)
            .await
    }

    async fn reload(&mut self) -> Result<Config, Error> {
        let config = Configuration::load(&self.config_path)?;
        check_host(&config).await?;
        match config {
            Configuration::Gateway(config) => Ok(*config),
            Configuration::Trunk(config) => Err(config
                .bad("it is of a trunk now; stop the gateway first")
                .into()),
        }
    }

    fn probe(
        &self,
        target: Target,
        via: Via,
    ) -> impl Future<Output = Option<Outcome>> + Send + 'static {
        probe::probe(target, via)
    }

    fn keep_slots(&mut self, slots: &Slots) -> anyhow::Result<()> {
        self.host.set_slots(slots.clone())
    }

    fn ephemeral_ports(&self) -> anyhow::Result<[u16; 2]> {
        host::ephemeral_ports()
    }

    fn fallback_mark(&self, config: &Config) -> u32 {
        self.host.fallback_mark(config)
    }
}
