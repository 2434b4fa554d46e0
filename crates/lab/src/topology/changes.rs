//! What happens to a running laboratory: lines fail and are mended, devices go and come, addresses change.

use std::net::IpAddr;
use std::time::Instant;

use anabranch_scenario::{Change, Direction, Family, Fault, Place};
use anabranch_testbed::emulator::{End, Link};

use super::gateway::Running;
use super::lay::{address_family, address_wan, host, lead_lan, route_back, route_lan, wan};
use super::{Lab, LabError, Result};

impl Lab {
    /// Makes a link's last mile a blackhole. Returns when it took effect.
    pub fn cut(&self, link: &str) -> Result<Instant> {
        self.change(self.link(link)?, None, Change::Cut)
    }

    /// Makes a link's last mile whole again. Returns when it took effect.
    pub fn restore(&self, link: &str) -> Result<Instant> {
        self.change(self.link(link)?, None, Change::Restore)
    }

    /// Lets a fault happen at once, whatever its time. Returns when it took effect.
    pub fn apply(&self, fault: &Fault) -> Result<Instant> {
        self.change(self.hop(fault)?, fault.direction, fault.change)
    }

    fn change(&self, line: &Link, direction: Option<Direction>, change: Change) -> Result<Instant> {
        let at = line.apply(direction, change)?;
        let is_told = !matches!(self.under_test, Running::Speakers(_));
        if is_told && matches!(change, Change::Cut | Change::Restore) {
            self.announce()?;
        }
        Ok(at)
    }

    /// Has the internet send to the LAN by the first of the ISPs that know it and whose lines are whole; by the first of all if
    /// there is none. In the field BGP does this, in its own time; so does a peer that speaks it.
    pub(super) fn announce(&self) -> Result<()> {
        let knows = |index: &usize| self.spec.isps[*index].routed;
        let all: Vec<usize> = (0..self.spec.isps.len()).filter(knows).collect();
        let mut chosen = all.first().copied();
        for index in all.into_iter().rev() {
            if self.is_whole(index)? {
                chosen = Some(index);
            }
        }
        let Some(index) = chosen else { return Ok(()) };
        let mut families = self.spec.isps[index].accesses_of(self.spec.families);
        families.try_for_each(|(family, _)| route_lan(index, family, &self.spec, &self.internet))
    }

    fn is_whole(&self, index: usize) -> Result<bool> {
        let mut lines = [Some(&self.links[index]), self.second_hop(index)]
            .into_iter()
            .flatten();
        lines.try_fold(true, |whole, line| Ok(whole && !line.is_cut()?))
    }

    /// The emulated line that a fault concerns.
    pub(crate) fn hop(&self, fault: &Fault) -> Result<&Link> {
        match fault.place {
            Place::LastMile => self.link(&fault.link),
            Place::Beyond => self.beyond(&fault.link),
        }
    }

    /// Deletes the gateway's device of a link.
    pub fn unplug(&self, link: &str) -> Result<()> {
        let device = self.device(link)?;
        self.gateway.ip(&format!("link delete {device}"))?;
        Ok(())
    }

    /// Makes the device that [`Lab::unplug`] deleted again, with its address and route.
    pub fn replug(&self, link: &str) -> Result<()> {
        let index = self.index(link)?;
        let device = wan(index);
        let near = End {
            namespace: &self.gateway,
            device: &device,
        };
        self.links[index].replug(near)?;
        self.routers[index].ip("neigh flush dev customer")?;
        address_wan(index, &self.spec, &self.gateway)
    }

    /// Gives the gateway another external address on a link, in the same network: what a DHCP server does.
    pub fn readdress(&mut self, link: &str, address: impl Into<IpAddr>) -> Result<()> {
        let (index, address) = (self.index(link)?, address.into());
        let family = Family::from(address);
        let isp = &mut self.spec.isps[index];
        let Some(access) = &mut isp.access[family] else {
            return Err(LabError::NoSuchFamily {
                link: link.into(),
                family,
            });
        };
        let old = std::mem::replace(&mut access.address, address);
        let (access, device) = (*access, wan(index));
        self.internet.ip(&format!("route delete {}", host(old)))?;
        route_back(index, access, &self.spec, &self.internet)?;
        if self.spec.isps[index].routed {
            lead_lan(access, &self.routers[index])?;
        }
        let prefix_len = access.prefix_len;
        self.gateway
            .ip(&format!("address delete {old}/{prefix_len} dev {device}"))?;
        address_family(index, access, &self.gateway)
    }
}
