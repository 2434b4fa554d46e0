//! The host, as far as a member changes it.

use std::cell::RefCell;
use std::rc::Rc;

use anabranch_api::Paths;

use super::config::Config;
use crate::config::MEMBER;
use crate::error::BadInput;
use crate::host::Settings;
use crate::lock::Claims;
use crate::observe::{Monitor, Netlink, Snapshot};

/// The host, as the loop uses it.
pub(crate) struct Host {
    pub(super) netlink: Netlink,
    pub(super) monitor: Monitor,
    pub(super) settings: Settings,
    pub(super) claims: Rc<RefCell<Claims>>,
}

impl Host {
    /// Takes over what an earlier process has changed.
    pub fn adopt(paths: &Paths, claims: &Rc<RefCell<Claims>>) -> anyhow::Result<Self> {
        let netlink = Netlink::connect()?;
        Ok(Self {
            monitor: Monitor::connect(&netlink)?,
            netlink,
            settings: Settings::adopt(&paths.state_of(MEMBER))?,
            claims: Rc::clone(claims),
        })
    }
}

/// Undoes what an earlier process has changed on the host.
pub(crate) async fn forget(paths: &Paths) -> anyhow::Result<()> {
    restore(
        Settings::adopt(&paths.state_of(MEMBER))?,
        &Netlink::connect()?,
    )
    .await
}

/// Takes the addresses away first: until then clients' packets may need the settings.
pub(super) async fn restore(mut settings: Settings, netlink: &Netlink) -> anyhow::Result<()> {
    let taken = settings
        .set_addresses(netlink, &Snapshot::default(), &[])
        .await;
    settings.restore()?;
    taken
}

/// Refuses a configuration that contradicts the state of the host.
pub(crate) fn check(config: &Config, host: &Snapshot) -> Result<(), BadInput> {
    for (i, name) in config.devices.iter().enumerate() {
        let bad = |problem: &str| Err(config.bad(&format!("devices[{i}] = {name:?}: {problem}")));
        match host.devices.get(name) {
            None => {
                let known: Vec<&str> = host.devices.keys().map(String::as_str).collect();
                return bad(&format!("no such device; there are {}", known.join(", ")));
            }
            Some(device) if device.layer3 => {
                return bad(
                    "packets on it have no Ethernet header; name one by which balancers reach this server",
                );
            }
            Some(_) => {}
        }
    }
    Ok(())
}
