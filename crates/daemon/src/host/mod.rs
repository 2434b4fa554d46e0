//! Changes of the host beside the data path, and how they are undone.
//!
//! These are policy routing, forwarding, and the nftables table that filters and translates what the kernel forwards. The former
//! value of a setting is written to the state file before the setting is changed. So if the daemon is killed, the next one finds
//! the file, and restores everything when it stops cleanly. Rules and routes carry our protocol number, and need no such record.

mod announce;
mod clock;
mod connections;
pub mod ids;
pub(crate) mod neighbour_table;
mod netlink;
mod next_hops;
pub(crate) mod nft;
mod own_addresses;
mod own_udp;
mod routing;
mod settings;
mod sockets;
mod state;
mod sysctl;
mod undone;
mod wireguard;

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::net::IpAddr;

use anabranch_core::{Family, LinkId, LinkSet};
use anabranch_policy::PerFamily;
use anyhow::Context;

use crate::aside;
use crate::config::{Config, Fallback, Forwards, GATEWAY, Link};
use crate::observe::{Desired, Netlink};
use crate::slots::{Orders, Slots, Tested};
use anabranch_api::Paths;
use anabranch_api::ReasonCount;
pub use clock::moment;
pub use connections::Conversation;
pub use connections::by_source as connections_by_source;
use ids::Ids;
pub(crate) use netlink::number_of;
use next_hops::NextHop;
use nft::{Guard, GuardedLink};
pub use own_udp::{Moved, Return, leave};
use routing::{Memory, Routing};
pub use routing::{RuleWay, Way, Ways};
pub use settings::Settings;
pub(crate) use sockets::{connections_to, listening};
pub use sysctl::ephemeral_ports;
pub(crate) use sysctl::in_force;
pub use undone::Undone;

/// The settings of the host that the daemon changes.
pub struct Host {
    ids: Ids,
    nft_table: String,
    nft_loaded: Option<String>,
    generation: nft::Generation,
    others_track: bool,
    /// The generation of nftables in which our table was last seen.
    guarded: Option<u32>,
    /// Whether another table with the name of ours was reported.
    is_former_told: bool,
    /// Why nftables cannot be used; none if it can.
    nft_missing: Option<String>,
    is_missing_said: bool,
    settings: Settings,
    /// What is known of our routing rules.
    memory: PerFamily<Memory>,
    /// The links that carried packets the last time.
    alive: PerFamily<LinkSet>,
    next_hops: next_hops::Kept,
}

impl Host {
    /// Takes over the state of an earlier daemon of this instance. Changes nothing.
    pub async fn adopt(paths: &Paths, ids: Ids) -> anyhow::Result<Self> {
        let settings = Settings::adopt(&paths.state_of(GATEWAY))?;
        let nft_table = format!("anabranch_{}", paths.instance());
        let nft_missing = missing_nft(&nft_table).await;
        Ok(Self {
            ids,
            nft_table,
            nft_loaded: None,
            generation: nft::Generation::default(),
            others_track: true,
            guarded: None,
            is_former_told: false,
            nft_missing,
            is_missing_said: false,
            settings,
            memory: PerFamily::default(),
            alive: PerFamily::default(),
            next_hops: next_hops::Kept::default(),
        })
    }

    /// The links' numbers as last saved.
    pub fn slots(&self) -> &Slots {
        &self.settings.state.slots
    }

    /// Saves the links' numbers.
    pub fn set_slots(&mut self, slots: Slots) -> anyhow::Result<()> {
        self.settings.state.slots = slots;
        self.settings.save()
    }

    /// The operator's orders as last saved.
    pub fn orders(&self) -> &Orders {
        &self.settings.state.orders
    }

    /// Saves the operator's orders. If that fails, the former ones stay saved.
    pub fn set_orders(&mut self, orders: Orders) -> anyhow::Result<()> {
        let before = std::mem::replace(&mut self.settings.state.orders, orders);
        self.settings
            .save()
            .inspect_err(|_| self.settings.state.orders = before)
    }

    /// The results of checks as last saved.
    pub fn tested(&self) -> &Tested {
        &self.settings.state.tested
    }

    /// Saves the results of checks.
    pub fn set_tested(&mut self, tested: Tested) -> anyhow::Result<()> {
        self.settings.state.tested = tested;
        self.settings.save()
    }

    /// Packet mark for the kernel's own NAT; 0 if it is not available.
    pub fn fallback_mark(&self, config: &Config) -> u32 {
        if self.falls_back(config) {
            self.ids.fallback_mark()
        } else {
            0
        }
    }

    fn falls_back(&self, config: &Config) -> bool {
        config.nat.fallback == Fallback::Kernel && self.nft_missing.is_none()
    }

    /// Whether another program flushed nftables, and our table with it.
    pub fn has_lost_guard(&mut self) -> bool {
        let generation = self.generation.now();
        let is_as_seen = generation.is_some() && generation == self.guarded;
        if self.nft_loaded.is_none() || is_as_seen {
            return false;
        }
        let is_there = nft::counted(&self.nft_table).map(|counters| !counters.is_empty());
        self.guarded = generation.filter(|_| matches!(is_there, Ok(true)));
        matches!(is_there, Ok(false))
    }

    /// Whether another program changed a setting of ours, or removed the neighbour entries that we keep.
    pub fn has_other_settings(&self) -> bool {
        self.settings.watch.differs() || self.next_hops.differs()
    }

    /// Settings of ours that others have undone lately.
    pub fn undone(&self) -> Vec<Undone> {
        self.settings.watch.undone()
    }

    /// Packets that our nftables table has dropped.
    pub fn drops(&self) -> anyhow::Result<Vec<ReasonCount>> {
        nft::reasons(&self.nft_table)
    }

    /// Sets whether firewalls or NAT of others use connection tracking. If so, our table may use it, too.
    pub fn set_others_track(&mut self, others_track: bool) {
        self.others_track = others_track;
    }

    /// Sets rules, tables, settings and nftables as in `desired`; `ways` are the routes of the fallback and of the host's
    /// own traffic. Returns what could not be done. Without our nftables table, forwarding is not enabled.
    pub async fn apply(
        &mut self,
        netlink: &Netlink,
        config: &Config,
        desired: &Desired,
        ways: &Ways,
    ) -> Vec<anyhow::Error> {
        self.ask_for_nft().await;
        let (slots, falls_back) = (&self.settings.state.slots, self.falls_back(config));
        let mut failed = Vec::new();
        for family in Family::ALL {
            let routing =
                Routing::derive(self.ids, family, config, slots, desired, ways, falls_back);
            let memory = &mut self.memory[family];
            failed.extend(routing.apply(self.ids, netlink, memory).await);
        }
        self.leave(config, ways);
        let guarded = self.set_guard(config, desired).await;
        let set = guarded.and_then(|()| self.set_sysctls(config, desired));
        failed.extend(set.err());
        let kept = self.keep_next_hops(next_hops::of_links(
            config,
            &self.settings.state.slots,
            desired,
        ));
        failed.extend(kept.err());
        failed
    }

    /// Router advertisements are set first: when a host begins to forward, it drops what it learned from routers on devices that
    /// ignore advertisements.
    fn set_sysctls(&mut self, config: &Config, desired: &Desired) -> anyhow::Result<()> {
        let mut changes = Vec::new();
        for device in config.links.iter().map(|link| &link.device) {
            changes.push(sysctl::advertisements(device)?);
        }
        for family in Family::ALL {
            let mut links = desired.links.values();
            if family == Family::V4 || links.any(|view| view.path(family).is_some()) {
                changes.push(sysctl::forwarding(family)?);
            }
        }
        let slots = &self.settings.state.slots;
        for link in &config.links {
            let view = slots.id(&link.name).and_then(|id| desired.links.get(&id));
            if view.is_some_and(|view| view.path(Family::V4).is_some()) {
                changes.push(sysctl::loose_filter(&link.device)?);
            }
        }
        let contested = desired.beside.contested(config, slots);
        let mut announced = Vec::new();
        for link in &contested {
            let speaks = sysctl::answers_for_itself(&link.device)?;
            if speaks.iter().any(Option::is_some) {
                announced.clone_from(&contested);
            }
            changes.extend(speaks);
        }
        self.settings.change(changes)?;
        self.announce(&announced, desired);
        Ok(())
    }

    /// Saves next hops. While they change, both the old and the new ones are in the record.
    fn keep_next_hops(&mut self, wanted: BTreeSet<NextHop>) -> anyhow::Result<()> {
        let former = self.settings.state.next_hops.clone();
        if !former.is_superset(&wanted) {
            self.settings.state.next_hops.extend(wanted.iter().cloned());
            self.settings.save()?;
        }
        let kept = self.next_hops.keep(&wanted, &former);
        kept.context("keep next hops of links in the neighbour table")?;
        if self.settings.state.next_hops != wanted {
            self.settings.state.next_hops = wanted;
            self.settings.save()?;
        }
        Ok(())
    }

    /// Deletes others' connections over dead links, so that they continue over other links.
    fn leave(&mut self, config: &Config, ways: &Ways) {
        for family in Family::ALL {
            let former = std::mem::replace(&mut self.alive[family], ways.alive[family]);
            for link in &config.links {
                let id = self.settings.state.slots.id(&link.name);
                let is_lost =
                    |id: &LinkId| former.contains(*id) && !ways.alive[family].contains(*id);
                let Some(id) = id.filter(is_lost) else {
                    continue;
                };
                if let Err(error) = connections::forget(family, self.ids.left_mark(id)) {
                    let name = &link.name;
                    tracing::debug!(
                        "link {name}: connections that the kernel forwards stay with it: {error:#}"
                    );
                }
            }
        }
    }

    /// Announces our addresses to neighbours that may have a wrong hardware address for them.
    fn announce(&self, links: &[&Link], desired: &Desired) {
        for link in links {
            let id = self.settings.state.slots.id(&link.name);
            let own = id.and_then(|id| desired.beside.links.get(&id));
            let Some(own) = own else { continue };
            for address in &own.addresses {
                let IpAddr::V4(address) = address else {
                    continue;
                };
                if let Err(error) = announce::announce(own.ifindex, *address) {
                    let name = &link.name;
                    tracing::warn!("link {name}: {address} is not announced: {error}");
                }
            }
        }
    }

    /// Installs our nftables table before the kernel forwards anything, and again if it was flushed.
    async fn set_guard(&mut self, config: &Config, desired: &Desired) -> anyhow::Result<()> {
        if self.nft_missing.is_some() {
            return Ok(());
        }
        let guard = self.guard(config, desired)?;
        let wanted = guard.ruleset(&self.nft_table, &[]);
        if !std::mem::replace(&mut self.is_former_told, true) {
            self.keep_foreign_tables().await;
        }
        let counted = nft::counted(&self.nft_table)?;
        if self.nft_loaded.as_ref() != Some(&wanted) || counted.is_empty() {
            nft::run(&guard.ruleset(&self.nft_table, &counted)).await?;
            self.nft_loaded = Some(wanted);
        }
        Ok(())
    }

    /// A foreign table with the name of ours is written to a file beside the state file, and reported.
    async fn keep_foreign_tables(&self) {
        let foreign = nft::foreign(&self.nft_table).unwrap_or_else(|error| {
            tracing::debug!("{error:#}");
            Vec::new()
        });
        for table in foreign {
            let kept = match self.keep_foreign_table(&table).await {
                Ok(kept) => kept,
                Err(error) => format!("what was in it is lost: {error:#}"),
            };
            let (family, name) = (table.family, &self.nft_table);
            tracing::warn!("nftables table {family} {name} was there {table}: replaced; {kept}");
        }
    }

    /// Returns where it is, in words.
    async fn keep_foreign_table(&self, table: &nft::Foreign) -> anyhow::Result<String> {
        let text = table.text(&self.nft_table).await?;
        let path = self.settings.path.with_extension("nft");
        aside::make_way(&path, "file", Metadata::is_file);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(aside::set_aside(&path))
    }

    /// Checks again whether `nft` is available.
    async fn ask_for_nft(&mut self) {
        if self.nft_missing.is_some() {
            self.nft_missing = missing_nft(&self.nft_table).await;
        }
        if self.nft_missing.is_some() == self.is_missing_said {
            return;
        }
        self.is_missing_said = self.nft_missing.is_some();
        match self.lacks() {
            Some(lacks) => tracing::warn!("{lacks}"),
            None => tracing::info!("nftables can be used again"),
        }
    }

    /// What the host lacks, and what does not work without it.
    pub fn lacks(&self) -> Option<String> {
        let missing = self.nft_missing.as_ref()?;
        Some(format!(
            "nftables cannot be used: {missing}; nothing guards what the kernel itself forwards, and nat.fallback is \"refuse\""
        ))
    }

    fn guard<'a>(&self, config: &'a Config, desired: &'a Desired) -> anyhow::Result<Guard<'a>> {
        let guarded = |link: &'a Link| GuardedLink {
            device: &link.device,
            prefixes: &link.prefixes,
            nat: link.nat,
            marks: self
                .settings
                .state
                .slots
                .id(&link.name)
                .map(|id| [self.ids.arrived_mark(id), self.ids.left_mark(id)]),
        };
        let masquerade = self.falls_back(config).then(ephemeral_ports).transpose()?;
        let public = desired.beside.public.iter();
        Ok(Guard {
            lan: config.lan.iter().map(String::as_str).collect(),
            links: config.links.iter().map(guarded).collect(),
            forwards: config.nat.forwards,
            tracks: masquerade.is_some()
                || config.nat.forwards == Forwards::Kernel
                || self.others_track,
            masquerade,
            conntrack_max: sysctl::conntrack_max(),
            fallback_mark: self.ids.fallback_mark(),
            connection_marks: self.ids.connection_marks(),
            public: public
                .map(|(device, network)| (device.as_str(), *network))
                .collect(),
        })
    }

    /// Restores everything except orders. Continues after a failure, and returns the first.
    pub async fn restore(mut self, netlink: &Netlink) -> anyhow::Result<()> {
        let mut routing = Ok(());
        for family in Family::ALL {
            let (none, memory) = (Routing::none(family), &mut Memory::default());
            let failed = none.apply(self.ids, netlink, memory).await;
            let undone = failed.into_iter().next().map_or(Ok(()), Err);
            routing = routing.and(undone);
        }
        let nat = self.remove_table().await;
        let neighbours = self.keep_next_hops(BTreeSet::new());
        let settings = self.settings.undo();
        routing.and(nat).and(neighbours).and(settings)?;
        self.settings.forget()
    }

    /// Removes our table, of this process or of one that was killed. A foreign table that ours has not replaced is left alone.
    async fn remove_table(&self) -> anyhow::Result<()> {
        let is_there = || nft::counted(&self.nft_table).is_ok_and(|c| !c.is_empty());
        let is_ours = || nft::foreign(&self.nft_table).is_ok_and(|tables| tables.is_empty());
        if self.nft_loaded.is_none() && !is_ours() {
            return Ok(());
        }
        if self.nft_missing.is_none() || is_there() {
            nft::run(&nft::removal(&self.nft_table)).await?;
        }
        Ok(())
    }
}

/// Why the guard cannot be set, if it cannot: on a host that has just started nft may only be slow.
async fn missing_nft(table: &str) -> Option<String> {
    let ruleset = Guard::example().ruleset(table, &[]);
    let refused = nft::check(&ruleset).await.err()?;
    Some(format!("{refused:#}"))
}
