//! What the tables hold, and how tests alter that.

use std::{
    collections::BTreeMap,
    mem::offset_of,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd},
    path::Path,
    time::{Duration, Instant},
};

use anabranch_core::{DataPlane, Family};
use anabranch_dataplane::{FlowRow, Swept};
use anabranch_policy::{
    abi,
    paths::{Paths, Prefix},
};
use aya::maps::{Array, HashMap, Map, MapData};

use super::{Rig, site_of};
use crate::former;

/// One of a flow's two entries.
#[derive(Clone, Copy, Debug)]
pub enum Half {
    Lan,
    Link,
}

impl Rig {
    pub fn flows(&mut self) -> Vec<FlowRow> {
        self.plane().flows().unwrap()
    }

    /// Entries of unconfirmed flows.
    pub fn unconfirmed(&self) -> usize {
        let is_unconfirmed = |flow: &abi::Flow| flow.state & abi::STATE_CONFIRMED == 0;
        let entries = self.flow_map("flows");
        let entries = entries.iter().map(|entry| entry.unwrap().1);
        entries.filter(is_unconfirmed).count()
    }

    /// SYNs that wait are kept no longer.
    pub fn forget_held(&self) {
        let map = Map::LruHashMap(self.pinned("held"));
        let mut held: HashMap<_, abi::FlowKey, [u8; 128]> = map.try_into().unwrap();
        let keys: Vec<_> = held.keys().collect::<Result<_, _>>().unwrap();
        for key in keys {
            held.remove(&key).unwrap();
        }
    }

    pub(super) fn fragments_waiting(&self) -> usize {
        let map = Map::LruHashMap(self.pinned("early"));
        let early: HashMap<_, [u8; 24], [u8; 1576]> = map.try_into().unwrap();
        early.keys().count()
    }

    /// Places of endpoints that hold a remote end.
    pub fn places(&self) -> usize {
        let places = Map::Array(self.pinned("endpoints"));
        let places: Array<MapData, [u32; 6]> = places.try_into().unwrap();
        let held = |[.., trace]: [u32; 6]| trace != 0;
        places
            .iter()
            .filter(|place| held(*place.as_ref().unwrap()))
            .count()
    }

    pub(super) fn pinned(&self, name: &str) -> MapData {
        let path = self.pins.join(format!("v{}/{name}", abi::ABI_VERSION));
        MapData::from_pin(path).unwrap()
    }

    fn flow_map(&self, name: &str) -> HashMap<MapData, abi::FlowKey, abi::Flow> {
        Map::HashMap(self.pinned(name)).try_into().unwrap()
    }

    fn prefixes(&self) -> HashMap<MapData, Prefix, Paths> {
        Map::LruHashMap(self.pinned("prefixes")).try_into().unwrap()
    }

    /// What flows have told of the way to a remote end; nothing is the same as none.
    pub fn paths_to(&self, remote: IpAddr) -> Paths {
        let known = self.prefixes().get(&Prefix::of(remote), 0);
        known.unwrap_or_default()
    }

    /// Has them tell something else.
    pub fn tell_paths(&self, remote: IpAddr, paths: Paths) {
        let mut prefixes = self.prefixes();
        prefixes.insert(Prefix::of(remote), paths, 0).unwrap();
    }

    /// Kernel memory of a table, in bytes.
    pub fn memory_of(&self, name: &str) -> u64 {
        let map = self.pinned(name);
        let number = map.fd().as_fd().as_raw_fd();
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap();
        let told = info.lines().find_map(|line| line.strip_prefix("memlock:"));
        told.unwrap().trim().parse().unwrap()
    }

    /// The SYN of an attempt took its link so much earlier.
    #[track_caller]
    pub fn sent_earlier(&mut self, local: SocketAddr, by: Duration) {
        let earlier = |entry: &mut abi::Flow| entry.tcp.tries -= by.as_micros() as u32;
        self.alter(local, Half::Link, earlier);
    }

    /// A SYN without an ACK came so much earlier over `link` for an attempt of `local`.
    #[track_caller]
    pub fn heard_earlier(&mut self, local: SocketAddr, link: u16, by: Duration) {
        let mut flow = self.flow(local);
        let site = site_of(Family::from(local.ip()));
        flow.link = link;
        flow.external.set_ip(site.external[usize::from(link)]);
        let key = key_of(&flow, Half::Link);
        let mut flows = self.flow_map("flows");
        let mut entry = flows.get(&key, 0).unwrap();
        entry.unconfirmed -= by.as_micros() as u32;
        flows.insert(key, entry, 0).unwrap();
    }

    /// Takes one entry of a flow away, as another CPU that ends it does.
    #[track_caller]
    pub fn evict(&mut self, local: SocketAddr, half: Half) {
        let key = self.key(local, half);
        self.flow_map("flows").remove(&key).unwrap();
    }

    /// Changes one entry of a flow.
    #[track_caller]
    pub fn alter(&mut self, local: SocketAddr, half: Half, change: impl FnOnce(&mut abi::Flow)) {
        let key = self.key(local, half);
        let mut flows = self.flow_map("flows");
        let mut flow = flows.get(&key, 0).unwrap();
        change(&mut flow);
        flows.insert(key, flow, 0).unwrap();
    }

    /// Takes both entries of a confirmed flow away.
    #[track_caller]
    pub fn forget(&mut self, local: SocketAddr, remote: SocketAddr) {
        let ends = (local, remote);
        let rows = self.flows();
        let flow = rows.iter().find(|flow| (flow.local, flow.remote) == ends);
        let path = self.pins.join(format!("v{}/flows", abi::ABI_VERSION));
        let map = Map::HashMap(MapData::from_pin(path).unwrap());
        let mut flows: HashMap<_, abi::FlowKey, abi::Flow> = map.try_into().unwrap();
        for half in [Half::Lan, Half::Link] {
            flows.remove(&key_of(flow.unwrap(), half)).unwrap();
        }
    }

    /// The process of a former version ends without a word, and one of today takes over. Every entry that there was, by its table, and
    /// what it is now; both in the bytes of [`abi::FormerFlow`], without what that does not have.
    pub fn upgrade(&mut self) -> [BTreeMap<String, Vec<u8>>; 2] {
        const BYTES: usize = offset_of!(abi::Flow, bytes);
        (self.plane, self.maps) = (None, None);
        former::leave(&self.pins);
        let folder = former::folder(&self.pins);
        let before = entries::<{ size_of::<abi::FormerFlow>() }>(&folder, |flow| flow.to_vec());
        self.restart();
        let folder = self.pins.join(format!("v{}", abi::ABI_VERSION));
        let now = entries::<{ size_of::<abi::Flow>() }>(&folder, |flow| {
            assert_eq!(flow[BYTES..BYTES + 8], [0; 8]);
            [&flow[..BYTES], &flow[BYTES + 8..]].concat()
        });
        [before, now]
    }

    #[track_caller]
    fn key(&mut self, local: SocketAddr, half: Half) -> abi::FlowKey {
        key_of(&self.flow(local), half)
    }

    /// Live flows of every LAN host, as they are counted.
    pub fn held(&self) -> Vec<i64> {
        let map = Map::HashMap(self.pinned("hosts"));
        let hosts: HashMap<_, abi::HostKey, abi::Host> = map.try_into().unwrap();
        let hosts = hosts.iter().map(|entry| entry.unwrap().1);
        hosts
            .map(|host| host.opened.cast_signed() - host.closed.cast_signed())
            .collect()
    }

    /// Unconfirmed flows that have a place in the order of their host, and those that have none.
    pub fn ordered(&self) -> (usize, u32) {
        let order = Map::HashMap(self.pinned("unconfirmed_order"));
        let order: HashMap<_, [u32; 2], abi::FlowKey> = order.try_into().unwrap();
        let unordered: Array<_, u32> = Map::Array(self.pinned("unordered")).try_into().unwrap();
        let counts = unordered.iter().map(|count| count.unwrap());
        (order.keys().count(), counts.sum())
    }

    /// The flow of a LAN endpoint.
    #[track_caller]
    pub fn flow(&mut self, local: SocketAddr) -> FlowRow {
        let flows = self.flows();
        flows
            .iter()
            .find(|flow| flow.local == local)
            .unwrap_or_else(|| panic!("no flow of {local} in {flows:?}"))
            .clone()
    }

    /// Flows opened and not closed, over all links.
    pub fn live(&mut self) -> i64 {
        let counters = self.plane().counters().unwrap();
        let gauges = counters.iter().map(|link| link.flows);
        gauges
            .map(|gauge| gauge.opened.cast_signed() - gauge.closed.cast_signed())
            .sum()
    }

    pub fn closed(&mut self) -> u64 {
        let counters = self.plane().counters().unwrap();
        counters.iter().map(|link| link.flows.closed).sum()
    }

    pub fn sweep(&mut self) -> Swept {
        self.plane().sweep().unwrap()
    }

    /// Sweeps until `done`: timers of zero run out with the next tick of the kernel's coarse clock.
    #[track_caller]
    pub fn sweep_until(&mut self, mut done: impl FnMut(&mut Rig, &Swept) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(2);
        loop {
            let swept = self.sweep();
            if done(self, &swept) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "not after 2 s of sweeps: {swept:?}, {:?}",
                self.flows()
            );
        }
    }
}

/// What the tables of flows pinned in `folder` hold.
fn entries<const SIZE: usize>(
    folder: &Path,
    formerly: impl Fn([u8; SIZE]) -> Vec<u8>,
) -> BTreeMap<String, Vec<u8>> {
    let of = |table| {
        let map = Map::HashMap(MapData::from_pin(folder.join(table)).unwrap());
        let map: HashMap<_, abi::FlowKey, [u8; SIZE]> = map.try_into().unwrap();
        let entries: Vec<_> = map.iter().map(Result::unwrap).collect();
        entries
            .into_iter()
            .map(move |(key, flow)| (format!("{table} {key:?}"), flow))
    };
    let all = ["flows", "permissions"].into_iter().flat_map(of);
    all.map(|(key, flow)| (key, formerly(flow))).collect()
}

fn key_of(flow: &FlowRow, half: Half) -> abi::FlowKey {
    let (end, side) = match half {
        Half::Lan => (flow.local, abi::SIDE_LAN),
        Half::Link => (flow.external, abi::side_of_link(flow.link)),
    };
    let mut key = abi::FlowKey {
        local: end.ip().into(),
        local_port: abi::BePort::new(end.port()),
        proto: 17,
        side,
        ..Default::default()
    };
    if flow.proto == "tcp" {
        key.remote = flow.remote.ip().into();
        key.remote_port = abi::BePort::new(flow.remote.port());
        key.proto = 6;
    }
    key
}
