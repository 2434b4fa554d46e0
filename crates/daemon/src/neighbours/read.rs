//! Reads a [`Scene`] from the kernel: queueing disciplines and their filters by netlink, nftables by `nft` whenever its
//! generation has changed, the rest from files.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anabranch_api::Finding;
use anabranch_core::Family;
use anabranch_policy::PerFamily;
use anyhow::Context;
use futures_util::TryStreamExt;
use netlink_packet_route::tc::{TcAttribute, TcMessage, TcOption};
use rtnetlink::Handle;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::dhcp::DhcpClient;
use super::netfilter::Ruleset;
use super::qdiscs::IngressQdisc;
use super::{Conntrack, FULL_PERCENT, NeighbourTable, Scene, dhcp, findings};
use crate::config::Config;
use crate::host::neighbour_table::{self, Fill};
use crate::host::{Undone, connections_by_source, nft};
use crate::observe::{Netlink, Snapshot};

/// Prefix of the names of all Anabranch filters.
const OUR_FILTERS: &str = "anabranch/";
/// If nftables changes all the time, as with bans of addresses, nft is run no more often than this, ...
const LISTED_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// ... and at most this fraction of the time.
const LISTING_REST: u32 = 300;
/// How long a neighbour table counts as full after it has refused an entry.
const FULL_FOR: Duration = Duration::from_secs(60);
/// Number of hosts that are named if the kernel's connection table is full.
const SOURCES_TOLD: usize = 3;
const LEGACY: [&str; 2] = ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"];

/// Reads neighbours. It reads nftables only if that has changed.
#[derive(Debug, Default)]
pub struct Reader {
    /// The generation of nftables that was read last.
    listed: Option<u32>,
    ruleset: Ruleset,
    stateless: Stateless,
    /// Earliest time at which nftables may be read again.
    rests_until: Option<Instant>,
    /// The hosts with most connections, and when they may be counted again.
    sources: Vec<(IpAddr, u64)>,
    counts_again: Option<Instant>,
    /// Refused entries of the neighbour tables at the last survey, and until when each counts as full.
    refused: PerFamily<Option<u64>>,
    full_until: PerFamily<Option<Instant>>,
}

/// The generation of nftables in which no firewall or NAT of others treats packets of the host differently if they have no
/// connection entry, as far as was read. The most common firewall drops packets that arrive and belong to no connection.
#[derive(Debug, Clone, Default)]
pub struct Stateless {
    read: Arc<Mutex<Option<u32>>>,
    generation: nft::Generation,
}

impl Stateless {
    /// Whether the present nftables is the one that was read, by its generation. A firewall that was added since counts at once,
    /// and so does one that cannot be read.
    pub fn holds(&self) -> bool {
        self.read()
            .is_some_and(|read| self.generation.now() == Some(read))
    }

    /// The same for nftables as it was when last read. Later changes, also of our own table, are read within seconds.
    pub fn held(&self) -> bool {
        self.read().is_some()
    }

    fn read(&self) -> Option<u32> {
        let read = *self.read.lock().expect("nobody panics with it");
        read.filter(|_| legacy_tables().is_empty())
    }

    fn set(&self, generation: Option<u32>) {
        *self.read.lock().expect("nobody panics with it") = generation;
    }
}

impl Reader {
    /// Surveys the host for a gateway with this configuration. `undone` has the settings of a running gateway that others set back.
    ///
    /// Uses a netlink connection of its own: a socket carries one dump at a time, and the gateway must not wait for a survey.
    pub async fn survey(
        &mut self,
        config: &Config,
        host: &Snapshot,
        undone: Vec<Undone>,
    ) -> anyhow::Result<Vec<Finding>> {
        self.list_nftables().await;
        let conntrack = self.conntrack().await;
        let netlink = Netlink::connect()?;
        let scene = Scene {
            ingress: ingress(&netlink.handle).await?,
            netfilter: self.ruleset.clone(),
            legacy_tables: legacy_tables(),
            dhcp_clients: dhcp_clients(host.clone()).await?,
            conntrack,
            full_neighbour_tables: self.full_neighbour_tables(),
            undone,
        };
        Ok(findings(config, host, &scene))
    }

    /// Whether nftables has changed and may be read.
    pub fn is_outdated(&self) -> bool {
        let rests = self.rests_until.is_some_and(|until| Instant::now() < until);
        !rests && self.stateless.generation.now() != self.listed
    }

    /// What was found about it, shared with later readings.
    pub fn stateless(&self) -> Stateless {
        self.stateless.clone()
    }

    /// The connection table. If it is nearly full, the hosts are counted, which takes a second for a million connections.
    async fn conntrack(&mut self) -> Option<Conntrack> {
        let (entries, places) = conntrack()?;
        let mut table = Conntrack {
            entries,
            places,
            sources: Vec::new(),
        };
        if !table.is_nearly_full() {
            self.sources.clear();
            return Some(table);
        }
        if self.counts_again.is_none_or(|at| at <= Instant::now()) {
            let began = Instant::now();
            let counted = tokio::task::spawn_blocking(connections_by_source).await;
            match counted
                .map_err(anyhow::Error::from)
                .and_then(|counted| counted)
            {
                Ok(sources) => self.sources = most(sources),
                Err(error) => tracing::debug!("connections are not counted: {error:#}"),
            }
            let rest = (began.elapsed() * LISTING_REST).max(LISTED_AGAIN_AFTER);
            self.counts_again = Some(Instant::now() + rest);
        }
        table.sources.clone_from(&self.sources);
        Some(table)
    }

    /// The neighbour tables that are full, with the devices that have most of their entries.
    fn full_neighbour_tables(&mut self) -> Vec<NeighbourTable> {
        let tables = Family::ALL.map(|family| self.full_neighbour_table(family));
        let told = tables.into_iter().map(|told| {
            told.unwrap_or_else(|error| {
                tracing::debug!("neighbours are not counted: {error:#}");
                None
            })
        });
        told.flatten().collect()
    }

    fn full_neighbour_table(&mut self, family: Family) -> anyhow::Result<Option<NeighbourTable>> {
        let Fill {
            entries,
            places,
            refused,
        } = neighbour_table::fill(family)?;
        let before = self.refused[family].replace(refused);
        if before.is_some_and(|before| refused > before) {
            self.full_until[family] = Some(Instant::now() + FULL_FOR);
        }
        let was_full = self.full_until[family].is_some_and(|until| Instant::now() < until);
        if !was_full && entries * 100 < places * FULL_PERCENT {
            return Ok(None);
        }
        Ok(Some(NeighbourTable {
            family,
            entries,
            places,
            devices: most(neighbour_table::by_device(family)?),
        }))
    }

    /// Reads nftables. Without nft, or without nftables in the kernel, there is nothing to read.
    async fn list_nftables(&mut self) {
        if !self.is_outdated() {
            return;
        }
        let began = Instant::now();
        let generation = self.stateless.generation.now();
        match list().await {
            Ok(ruleset) => {
                let is_stateless = !ruleset.tells_untracked_apart();
                self.stateless.set(generation.filter(|_| is_stateless));
                self.ruleset = ruleset;
            }
            Err(error) => {
                self.stateless.set(None);
                tracing::debug!("the survey cannot read nftables: {error:#}");
            }
        }
        self.listed = generation;
        let rest = (began.elapsed() * LISTING_REST).max(LISTED_AGAIN_AFTER);
        self.rests_until = Some(Instant::now() + rest);
    }
}

/// Runs in a thread, because a host may have thousands of processes.
async fn dhcp_clients(host: Snapshot) -> anyhow::Result<Vec<DhcpClient>> {
    let clients = spawn_blocking(move || dhcp::clients(Path::new("/"), &host)).await;
    clients.context("look for DHCP clients")
}

/// All chains and rules of nftables.
pub async fn list() -> anyhow::Result<Ruleset> {
    let json = nft::ask(&["--json", "--terse", "list", "ruleset"]).await?;
    let mut ruleset = Ruleset::parse(&json).context("read what nft lists")?;
    let unnamed: Vec<[String; 3]> = ruleset
        .without_devices()
        .map(|names| names.map(str::to_owned))
        .collect();
    for names in unnamed {
        let [family, table, chain] = &names;
        let text = nft::ask(&["--terse", "list", "chain", family, table, chain]).await?;
        ruleset.name_devices([family, table, chain], &text);
    }
    Ok(ruleset)
}

/// Ingress queueing disciplines with filters that are not ours.
async fn ingress(netlink: &Handle) -> anyhow::Result<Vec<IngressQdisc>> {
    let qdiscs = netlink.qdisc().get().execute();
    let qdiscs: Vec<TcMessage> = qdiscs.try_collect().await.context("list qdiscs")?;
    let mut foreign = BTreeMap::new();
    for qdisc in &qdiscs {
        let Some(kind) = kind(qdisc).filter(|kind| ["ingress", "clsact"].contains(kind)) else {
            continue;
        };
        let ifindex = qdisc.header.index;
        let filters = netlink.traffic_filter(ifindex).get().ingress();
        // The device may have vanished meanwhile.
        let filters: Vec<TcMessage> = filters.execute().try_collect().await.unwrap_or_default();
        if kind == "ingress" || filters.iter().any(is_foreign) {
            foreign.insert(ifindex, kind.to_owned());
        }
    }
    let foreign = foreign.into_iter();
    Ok(foreign
        .map(|(ifindex, kind)| IngressQdisc {
            ifindex: ifindex.unsigned_abs(),
            kind,
        })
        .collect())
}

fn kind(message: &TcMessage) -> Option<&str> {
    message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            TcAttribute::Kind(kind) => Some(kind.as_str()),
            _ => None,
        })
}

/// The head of a list of filters has no content except its kind.
fn is_foreign(filter: &TcMessage) -> bool {
    let options = filter
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            TcAttribute::Options(options) => Some(options),
            _ => None,
        });
    let is_named_ours = |option: &TcOption| match option {
        TcOption::Other(attribute) => {
            use rtnetlink::packet_core::Nla;
            let mut value = vec![0; attribute.value_len()];
            attribute.emit_value(&mut value);
            value.starts_with(OUR_FILTERS.as_bytes())
        }
        _ => false,
    };
    options.is_some_and(|options| !options.iter().any(is_named_ours))
}

fn legacy_tables() -> Vec<String> {
    let texts = LEGACY.map(|path| fs::read_to_string(path).unwrap_or_default());
    let mut tables: Vec<String> = texts
        .iter()
        .flat_map(|text| text.lines())
        .map(str::to_owned)
        .collect();
    tables.sort();
    tables.dedup();
    tables
}

/// The greatest counts first.
fn most<T: Ord>(counted: BTreeMap<T, u64>) -> Vec<(T, u64)> {
    let mut counted: Vec<_> = counted.into_iter().collect();
    counted.sort_by_key(|(_, entries)| Reverse(*entries));
    counted.truncate(SOURCES_TOLD);
    counted
}

/// Number of entries in the kernel's connection table, and the maximum; none if it tracks no connections.
pub fn conntrack() -> Option<(u64, u64)> {
    let read = |name: &str| {
        let path = format!("/proc/sys/net/netfilter/nf_conntrack_{name}");
        fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    Some((read("count")?, read("max")?))
}
