//! Writes changes of the host to the data path, in the order that keeps each packet of a flow on its link: lost links first,
//! then settings, paths and routes, new links, rules, and devices last.

use std::collections::{BTreeMap, BTreeSet};

use anabranch_core::rules::{active, compile};
use anabranch_core::{Family, LinkId, LinkState};
use anabranch_policy::abi::link_place;

use super::{GatewayRole, Surroundings};
use crate::error::with_causes;
use crate::observe::{Attachment, Desired, LinkView, MassKey};
use crate::plane::{self, LinkPath, Plane, Route, Verdict};

impl<P: Plane, S: Surroundings> GatewayRole<P, S> {
    /// While flows are being ended, only losses are written: packets of these flows need the present addresses, and a link
    /// that comes back must not keep former flows.
    pub(super) fn tell(&mut self, wanted: Desired) -> anyhow::Result<()> {
        self.lose_links(&wanted)?;
        self.shell.told(self.endings.is_empty());
        if self.shell.has_rest() {
            return Ok(());
        }
        self.tell_routing(&wanted)?;
        self.tell_links(&wanted)?;
        self.end_lingering(&wanted);
        self.tell_routes(wanted.routes, wanted.masses);
        for name in &wanted.absent_lan {
            if !self.told.absent_lan.contains(name) {
                tracing::warn!("{}", absent(name));
            }
        }
        self.told.absent_lan = wanted.absent_lan;
        self.told.ask_kernel = wanted.ask_kernel;
        self.told.beyond_room = wanted.beyond_room;
        self.gain_links(&wanted.links);
        let before = std::mem::replace(&mut self.told.links, wanted.links);
        self.turn_balancer()?;
        self.tell_rules()?;
        self.tell_devices(&wanted.attachments);
        self.tell_own_macs(&wanted.own_macs);
        self.forget_links(before.into_keys())?;
        Ok(())
    }

    /// Takes lost links out of the choice, and has their flows ended.
    fn lose_links(&mut self, wanted: &Desired) -> anyhow::Result<()> {
        let now = self.shell.now();
        for (id, family, view) in paths(&wanted.links) {
            let state = view.state(family);
            if state != LinkState::Present {
                self.driver.handle_link_state(now, id, family, state);
            }
        }
        if self.told.links.is_empty() {
            Ok(())
        } else {
            self.turn_balancer()
        }
    }

    fn gain_links(&mut self, links: &BTreeMap<LinkId, LinkView>) {
        let now = self.shell.now();
        for (id, family, view) in paths(links) {
            if view.state(family) == LinkState::Present {
                self.driver
                    .handle_link_state(now, id, family, LinkState::Present);
            }
        }
    }

    /// Writes the rules once the choices of all classes are installed. They change with devices and schedules.
    pub(super) fn tell_rules(&mut self) -> anyhow::Result<()> {
        let at = self.surroundings.moment();
        let devices = self.seen.attachments.iter();
        let devices = devices.map(|(ifindex, attachment)| (attachment.device.clone(), *ifindex));
        let told = (active(&self.config.rules, at), devices.collect());
        if self.told_rules.as_ref() == Some(&told) {
            return Ok(());
        }
        let ifindex = |name: &str| told.1.get(name).copied();
        let mut rules = compile(&self.config.rules, at, ifindex)?;
        let classes = self.classes.of_rules(&self.config);
        // Index 0 is the default class, the first rule follows.
        for (place, class) in rules.class.iter_mut().skip(1).zip(classes) {
            *place = class.0;
        }
        self.plane.set_rules(&rules)?;
        self.told_rules = Some(told);
        Ok(())
    }

    /// Nothing is written before the host has been inspected: adopted programs continue with what they have until then.
    pub(super) fn set_settings(&mut self) -> anyhow::Result<()> {
        let Some(routes_kernel) = self.routes_kernel else {
            return Ok(());
        };
        let mark = self.surroundings.fallback_mark(&self.config);
        let ephemeral = self.surroundings.ephemeral_ports()?;
        let settings = plane::settings(&self.config, ephemeral, mark, self.routed, routes_kernel);
        self.plane.set_settings(&settings)?;
        self.fallback_mark = mark;
        Ok(())
    }

    /// Writes which links have no NAT (links whose NAT changed have ended their flows), and whether routing rules of others may
    /// apply to the LAN.
    fn tell_routing(&mut self, wanted: &Desired) -> anyhow::Result<()> {
        let now = (self.routed_links(), Some(plane::routes_kernel(wanted)));
        if (self.routed, self.routes_kernel) != now {
            (self.routed, self.routes_kernel) = now;
            self.set_settings()?;
        }
        Ok(())
    }

    /// As configured, as bits.
    pub(super) fn routed_links(&self) -> u32 {
        let routed = self.config.links.iter().filter(|link| !link.nat);
        routed
            .filter_map(|link| self.slots.id(&link.name))
            .flat_map(|id| Family::ALL.map(|family| link_place(id.0, family)))
            .fold(0, |bits, place| bits | 1 << place)
    }

    pub(super) fn is_routed(&self, id: LinkId, family: Family) -> bool {
        self.routed & (1 << link_place(id.0, family)) != 0
    }

    /// Writes new and changed paths.
    fn tell_links(&mut self, wanted: &Desired) -> anyhow::Result<()> {
        for (id, family, view) in paths(&wanted.links) {
            let told = self
                .told
                .links
                .get(&id)
                .map(|told| &told.paths[family].path);
            let path = &view.paths[family].path;
            if told == Some(path) {
                continue;
            }
            let name = self.slots.name(id).unwrap_or("?");
            self.plane.set_link(id, family, path.as_ref().ok())?;
            match path {
                Ok(path) => {
                    tell_path(name, path);
                    self.take_external(id, family, path.into(), &view.paths[family].others);
                }
                Err(missing) if self.is_of(id, family, Some(view)) => {
                    tracing::info!("link {name}: {missing}");
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Removes paths of links that are no longer configured.
    pub(super) fn forget_links(&mut self, ids: impl Iterator<Item = LinkId>) -> anyhow::Result<()> {
        for id in ids.filter(|id| self.slots.name(*id).is_none()) {
            for family in Family::ALL {
                self.plane.set_link(id, family, None)?;
                self.externals.remove(&(id, family));
            }
        }
        Ok(())
    }

    fn tell_routes(&mut self, routes: Vec<Route>, masses: Vec<(MassKey, Verdict)>) {
        match self.surroundings.set_routes(&routes, &masses) {
            Ok(()) => (self.told.routes, self.told.masses) = (routes, masses),
            Err(error) => self.shell.report_and_retry(&format!(
                "routes: the programs know those of before: {error:#}; tried again every second"
            )),
        }
    }

    /// Values that an earlier process has set are compared, too.
    fn tell_own_macs(&mut self, macs: &BTreeSet<(u32, [u8; 6])>) {
        if let Err(error) = self.plane.set_own_macs(macs) {
            self.shell.report_and_retry(&format!(
                "hardware addresses of devices above those of the gateway: their frames are left to the kernel: {}; tried again every second",
                with_causes(&error)
            ));
        }
    }

    /// A device may vanish between inspection and attachment: the next inspection notices that.
    fn tell_devices(&mut self, wanted: &BTreeMap<u32, Attachment>) {
        let stale = self.stale_programs(wanted);
        for ifindex in stale {
            match self.plane.detach(ifindex) {
                Ok(()) => {
                    self.told.attachments.remove(&ifindex);
                    self.inherited.remove(&ifindex);
                }
                Err(error) => self
                    .shell
                    .report_and_retry(&self.not_detached(ifindex, &error)),
            }
        }
        for (ifindex, attachment) in wanted {
            if self.told.attachments.get(ifindex) == Some(attachment) {
                continue;
            }
            match self
                .plane
                .attach(*ifindex, attachment.role, attachment.layer3, attachment.mtu)
            {
                Ok(()) => {
                    self.told.attachments.insert(*ifindex, attachment.clone());
                }
                Err(error) => self
                    .shell
                    .report_and_retry(&self.not_attached(attachment, &error)),
            }
        }
    }

    /// Devices that have, or may have, a program that is not `wanted`.
    fn stale_programs(&self, wanted: &BTreeMap<u32, Attachment>) -> BTreeSet<u32> {
        let known = self.told.attachments.keys().chain(&self.inherited);
        known
            .filter(|ifindex| !wanted.contains_key(ifindex))
            .copied()
            .collect()
    }

    pub(super) fn has_stale_programs(&self) -> bool {
        !self.stale_programs(&self.seen.attachments).is_empty()
    }

    fn not_attached(&self, attachment: &Attachment, error: &plane::Error) -> String {
        let device = &attachment.device;
        let place = match attachment.role {
            plane::Role::Lan { .. } => format!("LAN device {device}"),
            plane::Role::Link(id) => {
                let link = self.slots.name(id).unwrap_or("?");
                format!("link {link}, device {device}")
            }
        };
        format!(
            "{place}: its packets are not forwarded: {}; tried again every second",
            with_causes(error)
        )
    }

    fn not_detached(&self, ifindex: u32, error: &plane::Error) -> String {
        let known = self.told.attachments.get(&ifindex);
        let device = known.map_or_else(
            || format!("number {ifindex} of an earlier run"),
            |known| known.device.clone(),
        );
        format!(
            "device {device}: its packets still meet the program: {}; tried again every second",
            with_causes(error)
        )
    }
}

pub(super) fn absent(lan_device: &str) -> String {
    format!(
        "LAN device {lan_device}: it does not exist yet; its hosts have no gateway until it does"
    )
}

/// Every link with each family.
fn paths(links: &BTreeMap<LinkId, LinkView>) -> impl Iterator<Item = (LinkId, Family, &LinkView)> {
    let links = links.iter();
    links.flat_map(|(id, view)| Family::ALL.map(|family| (*id, family, view)))
}

fn tell_path(link: &str, path: &LinkPath) {
    let LinkPath { external, mtu, .. } = path;
    let by = path.gateway.map(|gateway| format!(" by {gateway}"));
    let prefix = path
        .prefix
        .map(|(network, length)| format!(", with {network}/{length}"));
    tracing::info!(
        "link {link}: {external}{}{}, MTU {mtu}",
        by.unwrap_or_default(),
        prefix.unwrap_or_default()
    );
}
