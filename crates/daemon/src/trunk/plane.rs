//! What a trunk's loop needs of its data path and of the world around it, so that it can be tested without a kernel.

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

/// The data path; every method as of [`Trunk`].
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

/// The world around the loop.
pub(crate) trait Surroundings {
    /// Devices and addresses as they stand.
    fn snapshot(&mut self) -> impl Future<Output = anyhow::Result<Snapshot>>;
    /// Returns when they have changed. Cancel-safe.
    fn changed(&mut self) -> impl Future<Output = anyhow::Result<()>>;
    /// Whose carriers are to be watched.
    fn watch(&mut self, known: Running);
    /// What waits on the devices, by ifindex.
    fn queues(&mut self) -> impl Future<Output = anyhow::Result<BTreeMap<u32, DeviceQueue>>>;
    /// Whether this host can do as a configuration says; its devices are the instance's from here on.
    fn check(&mut self, config: &Config) -> impl Future<Output = Result<(), crate::Error>>;
    /// Lets packets in that the host would answer over another device.
    fn loosen(&mut self, devices: &[&str]) -> anyhow::Result<()>;
    /// Remembers whose the devices are beyond this process; those that left the configuration are let go of, if
    /// `is_all_told`.
    fn keep_claims(&mut self, config: &Config, is_all_told: bool) -> anyhow::Result<()>;
    /// Puts back what was changed.
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

/// As an earlier process left it, for a trunk.
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
