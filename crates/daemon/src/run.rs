//! From a configuration file to a running gateway, and back.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anabranch_core::LinkId;
use anabranch_dataplane::Gateway;
use anyhow::Context;

use crate::config::{Config, Configuration};
use crate::daemon::{Daemon, Surroundings};
use crate::error::Error;
use crate::host::{self, Host};
use crate::lock::{Claims, Lock};
use crate::observe::{Desired, Monitor, Netlink, Snapshot};
use crate::paths::Paths;
use crate::plane::{self, ReasonCount};
use crate::preflight::{check_devices, check_host};
use crate::privileges;
use crate::probe::{self, Target, Via};
use crate::service;
use crate::slots::{Orders, Slots};
use crate::trunk;

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
    let _lock = Lock::take(paths)?;
    let claims = Claims::take(paths, &config.devices())?;
    let signals = service::signals()?;
    match config {
        Configuration::Gateway(config) => {
            service::serve(open(*config, paths, claims).await?, paths, signals, ready).await
        }
        Configuration::Trunk(config) => {
            service::serve(trunk::open(config, paths).await?, paths, signals, ready).await
        }
    }
}

async fn open(
    config: Config,
    paths: &Paths,
    claims: Claims,
) -> anyhow::Result<Daemon<Gateway, RealHost>> {
    let (plane, adopted) =
        Gateway::open(paths.pins(), plane::sizes(&config)).context("data path")?;
    let host = match adopt_host(&config, paths, claims).await {
        Ok(host) => host,
        Err(error) if adopted => return Err(error),
        Err(error) => {
            plane.close().context("detach the data path")?;
            return Err(error);
        }
    };
    if adopted {
        tracing::info!("took over the flows of an earlier run");
    }
    let former = (host.host.slots().clone(), host.host.orders().clone());
    Daemon::new(config, paths.instance(), former, (plane, adopted), host)
}

/// After the load, before there are threads.
async fn adopt_host(config: &Config, paths: &Paths, claims: Claims) -> anyhow::Result<RealHost> {
    privileges::drop_loading()?;
    RealHost::adopt(&config.path, paths, claims).await
}

/// This host.
struct RealHost {
    netlink: Netlink,
    monitor: Monitor,
    host: Host,
    claims: Claims,
    config_path: PathBuf,
}

impl RealHost {
    async fn adopt(config_path: &Path, paths: &Paths, claims: Claims) -> anyhow::Result<Self> {
        Ok(Self {
            netlink: Netlink::connect()?,
            monitor: Monitor::connect()?,
            host: Host::adopt(paths).await?,
            claims,
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
        check_devices(&config).await?;
        match config {
            Configuration::Gateway(config) => {
                self.claims.change(&config.devices())?;
                Ok(*config)
            }
            Configuration::Trunk(config) => Err(config
                .bad("it is of a trunk now; stop the gateway first")
                .into()),
        }
    }

    fn probe(
        &self,
        target: Target,
        via: Via,
    ) -> impl Future<Output = Option<Duration>> + Send + 'static {
        probe::probe(target, via)
    }

    fn keep_slots(&mut self, slots: &Slots) -> anyhow::Result<()> {
        self.host.set_slots(slots.clone())
    }

    fn keep_orders(&mut self, orders: &Orders) -> anyhow::Result<()> {
        self.host.set_orders(orders.clone())
    }

    fn ephemeral_ports(&self) -> anyhow::Result<[u16; 2]> {
        host::ephemeral_ports()
    }

    fn fallback_mark(&self, config: &Config) -> u32 {
        self.host.fallback_mark(config)
    }

    fn drops(&self) -> anyhow::Result<Vec<ReasonCount>> {
        self.host.drops()
    }

    async fn restore(self) -> anyhow::Result<()> {
        self.host.restore(&self.netlink).await
    }
}
