//! The interface of a trunk's loop to its data path and its host, so that it can be tested without a kernel.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;

use anabranch_api::Paths;
use anabranch_core::multilink::{Counters, SublinkId};
use anabranch_dataplane::trunk::{SublinkPath, Trunk};
use anabranch_dataplane::{Error, ReasonCount};
use anabranch_policy::abi::{Carried, Spreading};
use anabranch_policy::spread::Table;

use super::config::Config;
use super::queues::{self, DeviceQueue};
use crate::config::TRUNK;
use crate::host::Settings;
use crate::lock::Claims;
use crate::observe::{Monitor, Netlink, Running, Snapshot};
use crate::preflight;

/// The data path; each method is that of [`Trunk`].
pub(crate) trait Plane {
    fn set_spreading(&mut self, spreading: &Spreading) -> Result<(), Error>;
    fn spreading(&self) -> Result<Spreading, Error>;
    fn set_sublink(&mut self, sublink: SublinkId, path: Option<SublinkPath>) -> Result<(), Error>;
    fn set_table(&mut self, table: &Table) -> Result<(), Error>;
    fn table(&self) -> Result<Table, Error>;
    fn volumes(&self) -> Result<Box<Counters>, Error>;
    fn carried(&self) -> Result<Vec<Carried>, Error>;
    fn reasons(&self) -> Result<Vec<ReasonCount>, Error>;
    fn attach(&mut self, ifindex: u32) -> Result<(), Error>;
    fn detach(&mut self, ifindex: u32) -> Result<(), Error>;
    fn attached(&self) -> Result<Vec<u32>, Error>;
    fn close(self) -> Result<(), Error>;
}

/// The host.
pub(crate) trait Surroundings {
    /// The present devices and addresses.
    fn snapshot(&mut self) -> impl Future<Output = anyhow::Result<Snapshot>>;
    /// Returns when they have changed. Cancel-safe.
    fn changed(&mut self) -> impl Future<Output = anyhow::Result<()>>;
    /// Sets the devices whose carriers are polled.
    fn watch(&mut self, known: Running);
    /// The queues of the devices, by ifindex.
    fn queues(&mut self) -> impl Future<Output = anyhow::Result<BTreeMap<u32, DeviceQueue>>>;
    /// Checks that this host can do what a configuration says, and claims its devices for this instance.
    fn check(&mut self, config: &Config) -> impl Future<Output = Result<(), crate::Error>>;
    /// Loosens reverse-path filtering, so that packets are accepted whose answers leave by another device.
    fn loosen(&mut self, devices: &[&str]) -> anyhow::Result<()>;
    /// Saves which devices belong to this instance. Devices that left the configuration are released, if
    /// `is_all_told`.
    fn keep_claims(&mut self, config: &Config, is_all_told: bool) -> anyhow::Result<()>;
    /// Restores what was changed.
    fn restore(self) -> impl Future<Output = anyhow::Result<()>>;
}

impl Plane for Trunk {
    fn set_spreading(&mut self, spreading: &Spreading) -> Result<(), Error> {
        self.set_spreading(spreading)
    }

    fn spreading(&self) -> Result<Spreading, Error> {
        self.spreading()
    }

    fn set_sublink(&mut self, sublink: SublinkId, path: Option<SublinkPath>) -> Result<(), Error> {
        self.set_sublink(sublink, path)
    }

    fn set_table(&mut self, table: &Table) -> Result<(), Error> {
        self.set_table(table)
    }

    fn table(&self) -> Result<Table, Error> {
        self.table()
    }

    fn volumes(&self) -> Result<Box<Counters>, Error> {
        self.volumes()
    }

    fn carried(&self) -> Result<Vec<Carried>, Error> {
        self.carried()
    }

    fn reasons(&self) -> Result<Vec<ReasonCount>, Error> {
        self.reasons()
    }

    fn attach(&mut self, ifindex: u32) -> Result<(), Error> {
        self.attach(ifindex)
    }

    fn detach(&mut self, ifindex: u32) -> Result<(), Error> {
        self.detach(ifindex)
    }

    fn attached(&self) -> Result<Vec<u32>, Error> {
        self.attached()
    }

    fn close(self) -> Result<(), Error> {
        self.close()
    }
}

/// This host.
pub(crate) struct RealHost {
    netlink: Netlink,
    monitor: Monitor,
    settings: Settings,
    claims: Rc<RefCell<Claims>>,
}

/// Takes over the state of an earlier process, for a trunk.
pub(crate) fn host(paths: &Paths, claims: &Rc<RefCell<Claims>>) -> anyhow::Result<RealHost> {
    let netlink = Netlink::connect()?;
    Ok(RealHost {
        monitor: Monitor::connect(&netlink)?,
        netlink,
        settings: Settings::adopt(&paths.state_of(TRUNK))?,
        claims: Rc::clone(claims),
    })
}

impl Surroundings for RealHost {
    async fn snapshot(&mut self) -> anyhow::Result<Snapshot> {
        self.netlink.snapshot().await
    }

    async fn changed(&mut self) -> anyhow::Result<()> {
        self.monitor.changed().await
    }

    fn watch(&mut self, known: Running) {
        self.monitor.watch(known);
    }

    async fn queues(&mut self) -> anyhow::Result<BTreeMap<u32, DeviceQueue>> {
        queues::read(&self.netlink).await
    }

    async fn check(&mut self, config: &Config) -> Result<(), crate::Error> {
        preflight::check_trunk(config, &self.netlink).await?;
        self.claims.borrow_mut().add(TRUNK, &config.devices())
    }

    fn loosen(&mut self, devices: &[&str]) -> anyhow::Result<()> {
        self.settings.loosen(devices.iter().copied())
    }

    fn keep_claims(&mut self, config: &Config, is_all_told: bool) -> anyhow::Result<()> {
        let mut claims = self.claims.borrow_mut();
        claims.keep_for(TRUNK, &config.devices(), is_all_told)
    }

    async fn restore(self) -> anyhow::Result<()> {
        self.settings.restore()
    }
}
