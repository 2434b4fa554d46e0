//! What LAN hosts, LAN devices and links hold: as the programs count it, and as the flows themselves say.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;

use anabranch_policy::abi::{self, Flow, FlowKey, Gauges, Host, HostKey, Table};
use anyhow::Result;
use aya::maps::{Array, Map, MapData};

use crate::read::{TCP, pod};
use crate::site::{HOSTS_MAX, Told, family_of, is_within};
use anabranch_dataplane::raw::RawMap;

/// Who a LAN packet counts against: the sender's MAC on the device its address is routed to, or the address if that is
/// behind a router, of IPv6 the network. `ifindex` is that device's.
pub fn sender(ifindex: u32, mac: [u8; 6], address: IpAddr) -> HostKey {
    host(
        ifindex,
        mac,
        address.into(),
        is_within(address, family_of(address).behind_router),
    )
}

/// Who a flow or a permission of LAN address `local` counts against.
pub fn holder(flow: &Flow, local: abi::Addr) -> HostKey {
    let is_behind = flow.state & abi::STATE_VIA_ROUTER != 0;
    host(flow.lan_ifindex, flow.mac, local, is_behind)
}

fn host(ifindex: u32, mac: [u8; 6], address: abi::Addr, is_behind_router: bool) -> HostKey {
    let mut key = HostKey {
        ifindex,
        mac,
        ..HostKey::default()
    };
    if is_behind_router {
        // Of IPv6 a /64.
        let kept = if address.ip().is_ipv6() { 8 } else { 16 };
        key.address.0[..kept].copy_from_slice(&address.0[..kept]);
    }
    key
}

/// A LAN device as a whole.
pub fn device(ifindex: u32) -> HostKey {
    HostKey {
        address: abi::Addr([0xff; 16]),
        ifindex,
        ..HostKey::default()
    }
}

/// What a LAN host, or its device, may not have more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Flows of the host.
    Quota,
    /// UDP and ICMP mappings of the host.
    Mappings,
    /// Flows of the device.
    Device,
    /// Unanswered flows of the device, where the host has none that could go.
    Unconfirmed,
    /// New flows of the host for the kernel's NAT, of all hosts, and segments of unknown flows.
    Fallbacks,
    /// The same of all hosts together.
    AllFallbacks,
    /// Segments of the host for flows that nobody knows.
    Unknown,
    /// Flows in the main table, and hosts that are counted.
    Table,
    /// LAN hosts that are counted.
    Hosts,
}

/// What the rates of a host, and of all, let pass at once.
const FALLBACKS_OF_HOST: u32 = 8 * 64;
const FALLBACKS_OF_ALL: u32 = 4 * 1024;
const UNKNOWN_OF_HOST: u32 = 4 * 256;

/// What a host has given to the kernel's NAT since the round began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Paid {
    flows: u32,
    unknown: u32,
}

/// By host.
#[derive(Default)]
pub struct Payments(HashMap<HostKey, Paid>);

impl Payments {
    /// A packet of the host has left for this reason.
    pub fn add(&mut self, host: HostKey, reason: &str) {
        let paid = self.0.entry(host).or_default();
        match reason {
            "FALLBACK_UNKNOWN" => paid.unknown += 1,
            "REFUSED_RATE_ALL" => paid.flows += 1,
            name if name.starts_with("FALLBACK_") => paid.flows += 1,
            _ => {}
        }
    }

    /// Whether the rate behind a refusal may be used up.
    pub fn are_at(&self, host: &HostKey, limit: Limit) -> bool {
        let paid = self.0.get(host).copied().unwrap_or_default();
        match limit {
            Limit::Fallbacks => paid.flows >= FALLBACKS_OF_HOST,
            Limit::Unknown => paid.unknown >= UNKNOWN_OF_HOST,
            _ => self.0.values().map(|paid| paid.flows).sum::<u32>() >= FALLBACKS_OF_ALL,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    flows: i64,
    mappings: u32,
    permissions: u32,
    /// Of a device: LAN entries in the table of unconfirmed flows.
    unconfirmed: u32,
}

fn live_flows(host: &Host) -> i64 {
    host.opened.wrapping_sub(host.closed).cast_signed()
}

fn counted(host: &Host) -> Held {
    Held {
        flows: live_flows(host),
        mappings: host.mappings,
        permissions: host.permissions,
        unconfirmed: host.unconfirmed,
    }
}

/// What flows hold.
#[derive(Default)]
struct Holdings {
    holders: HashMap<HostKey, Held>,
    /// Live flows of each link.
    links: HashMap<u16, i64>,
    confirmed: u64,
}

impl Holdings {
    fn of<'a>(entries: impl Iterator<Item = (&'a FlowKey, &'a Flow)>) -> Self {
        let mut all = Holdings::default();
        for (key, flow) in entries {
            if flow.state & abi::STATE_PERMISSION != 0 {
                let host = all.holders.entry(holder(flow, flow.other_local));
                host.or_default().permissions += 1;
            } else if key.side == abi::SIDE_LAN {
                all.add(key, flow);
            }
        }
        all
    }

    fn add(&mut self, key: &FlowKey, flow: &Flow) {
        let is_live = flow.state & abi::STATE_CLOSED == 0;
        let is_confirmed = flow.state & abi::STATE_CONFIRMED != 0;
        self.confirmed += u64::from(is_confirmed);
        let host = self.holders.entry(holder(flow, key.local)).or_default();
        host.flows += i64::from(is_live);
        host.mappings += u32::from(is_live && key.proto != TCP);
        if flow.state & abi::STATE_SHARED != 0 {
            let device = self.holders.entry(device(flow.lan_ifindex)).or_default();
            device.flows += i64::from(is_live);
            device.unconfirmed += u32::from(!is_confirmed);
        }
        *self.links.entry(flow.link.into()).or_default() += i64::from(is_live);
    }
}

/// The programs' counters.
pub struct Shares {
    hosts: RawMap,
    gauges: RawMap,
    host: aya::maps::HashMap<MapData, HostKey, Host>,
    table: Array<MapData, Table>,
}

impl Shares {
    /// Those pinned in `pins`.
    pub fn open(pins: &Path) -> Result<Self> {
        let hosts = pins.join("hosts");
        Ok(Shares {
            host: Map::HashMap(MapData::from_pin(&hosts)?).try_into()?,
            hosts: RawMap::open(&hosts)?,
            gauges: RawMap::open(&pins.join("gauges"))?,
            table: Map::Array(MapData::from_pin(pins.join("table"))?).try_into()?,
        })
    }

    /// Whether a host has reached a limit on what it, or its device, holds.
    pub fn are_at(&self, told: &Told, host: &HostKey, limit: Limit) -> bool {
        let counted = |key: &HostKey| self.host.get(key, 0).unwrap_or_default();
        let device = || counted(&device(host.ifindex));
        match limit {
            Limit::Quota => live_flows(&counted(host)) >= told.quota.into(),
            Limit::Mappings => counted(host).mappings >= told.mappings_per_host(),
            Limit::Device => told.device > 0 && live_flows(&device()) >= told.device.into(),
            Limit::Table => self.confirmed() >= told.full.into(),
            Limit::Hosts => self.table().hosts >= HOSTS_MAX.into(),
            _ => told.device > 0 && device().unconfirmed >= told.device / 2,
        }
    }

    fn table(&self) -> Table {
        self.table.get(&0, 0).unwrap_or_default()
    }

    /// Flows of the main table.
    fn confirmed(&self) -> u64 {
        let table = self.table();
        table.confirmed.wrapping_sub(table.forgotten)
    }

    /// An error in words where a counter is not what the flows say, or beyond its limit.
    pub fn look<'a>(
        &mut self,
        told: &Told,
        entries: impl Iterator<Item = (&'a FlowKey, &'a Flow)>,
    ) -> Result<Result<(), String>> {
        let mut held = Holdings::of(entries);
        let mut verdict = Ok(());
        self.hosts.for_each(|key, value| {
            let key: HostKey = pod(key);
            let flows = held.holders.remove(&key).unwrap_or_default();
            let count = counted(&pod(value));
            let judged =
                is_held(&key, count, flows).and_then(|()| keeps_to_share(&key, flows, told));
            verdict = std::mem::replace(&mut verdict, Ok(())).and(judged);
        })?;
        if let Some((key, flows)) = held.holders.into_iter().next() {
            verdict = Err(format!("{key:?} is not counted, and holds {flows:?}"));
        }
        self.gauges.for_each(|_, value| {
            let gauges: Gauges = pod(value);
            for (link, gauge) in (0..).zip(&gauges.target) {
                let flows = held.links.get(&link).copied().unwrap_or_default();
                let live = gauge.opened.wrapping_sub(gauge.closed).cast_signed();
                if live != flows && verdict.is_ok() {
                    verdict = Err(format!("link {link} has {flows} flows, and counts {live}"));
                }
            }
        })?;
        let confirmed = self.confirmed();
        if confirmed != held.confirmed && verdict.is_ok() {
            let flows = held.confirmed;
            verdict = Err(format!(
                "{flows} flows are confirmed, and {confirmed} counted"
            ));
        }
        Ok(verdict)
    }
}

fn is_held(key: &HostKey, count: Held, flows: Held) -> Result<(), String> {
    match count == flows {
        true => Ok(()),
        false => Err(format!("{key:?} holds {flows:?}, and {count:?} is counted")),
    }
}

fn keeps_to_share(key: &HostKey, held: Held, told: &Told) -> Result<(), String> {
    let is_device = *key == device(key.ifindex);
    let flows = if is_device { told.device } else { told.quota };
    let is_within = held.flows <= flows.into()
        && held.permissions <= told.quota
        && (!is_device || held.unconfirmed <= told.device / 2);
    match is_within {
        true => Ok(()),
        false => Err(format!("{key:?} holds {held:?}, more than its share")),
    }
}
