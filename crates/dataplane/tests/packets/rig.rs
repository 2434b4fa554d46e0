//! The loaded programs without devices: packets go in by `BPF_PROG_TEST_RUN`, in a namespace of their own, and what
//! comes out is looked at together with the one reason it was counted for.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    mem::offset_of,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, AsRawFd},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anabranch_core::{Choice, ClassId, DataPlane, Family, LinkId};
use anabranch_dataplane::{
    Build, FlowRow, Forwards, Gateway, LinkPath, Marked, Role, Route, Settings, Sizes, Swept,
    Verdict,
};
use anabranch_policy::{
    abi,
    paths::{Paths, Prefix},
};
use anabranch_testbed::{
    netns::{Entered, Namespace},
    pins::PinFolder,
};
use aya::maps::{Array, HashMap, Map, MapData, lpm_trie::LpmTrie};
use proptest::{strategy::Strategy, test_runner::TestCaseResult};

use crate::{
    common::{round_robin, settings},
    former,
    frame::{self, Seen, Segment, tcp},
    pool::{Loaded, Maps},
    property::runner,
    site::{SITES, Site},
};

/// The loopback device, on which `BPF_PROG_TEST_RUN` lets packets arrive.
const LOOPBACK: u32 = 1;
pub const MTU: u32 = 1500;

/// What became of a packet.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// As `anabranch status` prints it.
    pub reason: String,
    /// As the program left it: forwarded, or the answer to its sender.
    pub frame: Vec<u8>,
    action: u32,
    mark: u32,
}

const TC_ACT_SHOT: u32 = 2;
pub const TC_ACT_REDIRECT: u32 = 7;
const TC_ACT_UNSPEC: u32 = u32::MAX;

impl Outcome {
    /// The packet, which must have left for `reason`.
    #[track_caller]
    pub fn sent(&self, reason: &str) -> Seen {
        assert_eq!(
            (self.reason.as_str(), self.action),
            (reason, TC_ACT_REDIRECT)
        );
        frame::read(&self.frame)
    }

    /// The answer to the packet, which must have been refused for `reason`.
    #[track_caller]
    pub fn answered(&self, reason: &str) -> Seen {
        self.sent(reason)
    }

    /// Refusals are answered as often as the rate limit allows.
    pub fn was_answered(&self) -> bool {
        self.action == TC_ACT_REDIRECT
    }

    /// What a mark bids the kernel with the packet, which must have been passed for `reason`.
    #[track_caller]
    pub fn marked(&self, reason: &str) -> u32 {
        self.passed(reason);
        self.mark
    }

    #[track_caller]
    pub fn dropped(&self, reason: &str) {
        assert_eq!((self.reason.as_str(), self.action), (reason, TC_ACT_SHOT));
    }

    #[track_caller]
    pub fn passed(&self, reason: &str) {
        assert_eq!((self.reason.as_str(), self.action), (reason, TC_ACT_UNSPEC));
    }
}

/// The gateway, told of two links, without a device in sight.
pub struct Rig {
    plane: Option<Gateway>,
    pins: Arc<PinFolder>,
    /// Of a gateway that other tests may use when this one has ended.
    maps: Option<Maps>,
    role: Option<Role>,
    counted: Vec<u64>,
    /// Of the gateway in its LAN.
    addresses: Vec<IpAddr>,
    routes: Vec<Route>,
    /// The links at whose prefix the outside may begin, as bits.
    open: u32,
    /// Both links are on one segment.
    shares_segment: bool,
    /// Fragments that wait for the first of their datagram.
    waiting: usize,
    /// Connections race: packets send copies through the loopback device, behind themselves.
    races: bool,
    _inside: Entered,
    namespace: Namespace,
}

pub fn small() -> Sizes {
    Sizes {
        flows_max: 4096,
        embryos_max: 4096,
        hosts_max: 1024,
        prefixes_max: 1024,
    }
}

impl Rig {
    pub fn new() -> Self {
        let Loaded { plane, pins, maps } = Loaded::take().unwrap();
        Self::of(plane, pins, Some(maps))
    }

    /// With this choice installed for both families.
    pub fn choosing(choice: &Choice) -> Self {
        let mut rig = Rig::new();
        rig.install(choice);
        rig
    }

    pub fn sized(sizes: Sizes) -> Self {
        Self::built(sizes, Build::default())
    }

    /// With the programs of the former version. Its flows are not to be looked at.
    pub fn former() -> Self {
        Self::built(small(), former::build())
    }

    fn built(sizes: Sizes, build: Build) -> Self {
        let pins = PinFolder::name("packets");
        let build = Build {
            piecewise: true,
            ..build
        };
        let (plane, _) = Gateway::open_build(&pins, sizes, build).unwrap();
        Self::of(plane, Arc::new(pins), None)
    }

    fn of(plane: Gateway, pins: Arc<PinFolder>, maps: Option<Maps>) -> Self {
        let namespace =
            Namespace::create("packets").expect("these tests need root and network namespaces");
        let inside = namespace.enter().unwrap();
        let mut rig = Rig {
            plane: Some(plane),
            pins,
            maps,
            role: None,
            counted: Vec::new(),
            addresses: SITES.map(|site| site.gateway_lan).into(),
            routes: Vec::new(),
            open: 0,
            shares_segment: false,
            waiting: 0,
            races: false,
            _inside: inside,
            namespace,
        };
        rig.plane().set_settings(&settings()).unwrap();
        for site in SITES {
            rig.tell_links(site.external, [MTU; 2]);
        }
        rig.install(&round_robin(0b11));
        rig.counted = rig.counts();
        rig
    }

    /// Tells of both links for the family of these addresses; what was told of routes in it is forgotten.
    pub fn tell_links(&mut self, external: [IpAddr; 2], mtu: [u32; 2]) {
        let family = Family::from(external[0]);
        let site = site_of(family);
        let lan = on_device(LOOPBACK, None);
        self.routes
            .retain(|route| Family::from(route.prefix.0) != family);
        self.routes.extend([
            route(site.lan, lan),
            route(
                site.host(site.gateway_lan),
                Verdict::LocalInLan { ifindex: LOOPBACK },
            ),
        ]);
        for (link, external) in external.into_iter().enumerate() {
            self.tell_link(link as u16, external, mtu[link], None);
            if site.external.contains(&external) {
                self.routes.push(route(site.host(external), Verdict::Local));
            }
        }
        self.set_routes();
    }

    /// Tells of one link for the family of its address.
    pub fn tell_link(
        &mut self,
        link: u16,
        external: IpAddr,
        mtu: u32,
        prefix: Option<(Ipv6Addr, u8)>,
    ) {
        let family = Family::from(external);
        let path = LinkPath {
            external,
            gateway: Some(site_of(family).isp[usize::from(link)]),
            prefix,
            inbound: self.open >> link & 1 == 1,
            ifindex: LOOPBACK,
            mtu,
            point_to_point: false,
            shares_segment: self.shares_segment,
        };
        self.plane()
            .set_link(LinkId(link), family, Some(&path))
            .unwrap();
        let (IpAddr::V6(lan), length) = site_of(family).lan else {
            return;
        };
        let image = prefix.and_then(|prefix| anabranch_dataplane::beyond(prefix, (lan, length)));
        if let Some((network, length)) = image {
            let link = LinkId(link);
            let image = (network.into(), length);
            self.routes
                .push(route(image, Verdict::Prefix { link, lan }));
            self.set_routes();
        }
    }

    /// Links of which a prefix is told from now on let the outside begin there.
    pub fn let_in(&mut self, links: u32) {
        self.open = links;
    }

    /// Both links are on one segment from now on.
    pub fn share_segment(&mut self) {
        self.shares_segment = true;
        for site in SITES {
            self.tell_links(site.external, [MTU; 2]);
        }
    }

    fn set_routes(&mut self) {
        let plane = self.plane.as_mut().expect("it lives as long as the rig");
        plane.set_routes(&self.routes).unwrap();
    }

    /// Some of the LAN is behind another device, which takes packets of `mtu` bytes. Its packets still arrive where all do.
    pub fn add_lan(&mut self, prefix: (IpAddr, u8), ifindex: u32, mtu: u32) {
        self.add_device("lan", ifindex);
        let role = self.lan_role();
        self.plane().attach(ifindex, role, false, mtu).unwrap();
        let lan = on_device(ifindex, None);
        self.routes.push(route(prefix, lan));
        self.set_routes();
    }

    /// Some of the LAN is behind a router in it.
    pub fn add_router(&mut self, prefix: (IpAddr, u8), router: IpAddr) {
        let behind = on_device(LOOPBACK, Some(router));
        self.routes.push(route(prefix, behind));
        self.set_routes();
    }

    /// A specific route goes over a link, by a router of its own there or to neighbours on the link.
    pub fn add_link_route(&mut self, prefix: (IpAddr, u8), link: u16, via: Option<IpAddr>) {
        let link = LinkId(link);
        self.routes.push(route(prefix, Verdict::Link { link, via }));
        self.set_routes();
    }

    /// It is there no more.
    pub fn remove_route(&mut self, prefix: (IpAddr, u8)) {
        self.routes.retain(|route| route.prefix != prefix);
        self.set_routes();
    }

    /// The gateway has no address of its own in the LAN.
    pub fn have_no_address(&mut self) {
        self.addresses.clear();
    }

    fn lan_role(&self) -> Role {
        Role::lan(self.addresses.iter().copied())
    }

    pub fn plane(&mut self) -> &mut Gateway {
        self.plane.as_mut().expect("it lives as long as the rig")
    }

    pub fn set(&mut self, change: impl FnOnce(&mut Settings)) {
        let mut settings = settings();
        change(&mut settings);
        self.plane().set_settings(&settings).unwrap();
    }

    /// For both families.
    pub fn install(&mut self, choice: &Choice) {
        for family in Family::ALL {
            self.install_for(family, choice);
        }
    }

    /// The same, where that has connections race.
    pub fn race(&mut self, choice: &Choice) {
        self.races = true;
        self.install(choice);
    }

    pub fn install_for(&mut self, family: Family, choice: &Choice) {
        self.plane()
            .install(ClassId::DEFAULT, family, choice)
            .unwrap();
    }

    /// Lets frames arrive on a link, for those who run programs by themselves.
    pub fn role_of_link(&mut self, link: u16) {
        self.become_role(Role::Link(LinkId(link)));
    }

    /// One more device in the rig's namespace.
    pub fn add_device(&self, name: &str, ifindex: u32) {
        let add = format!("link add {name} index {ifindex} type veth peer name {name}-end");
        self.namespace.ip(&add).unwrap();
    }

    fn become_role(&mut self, role: Role) {
        if self.role != Some(role) {
            self.plane().attach(LOOPBACK, role, false, MTU).unwrap();
            self.role = Some(role);
        }
    }

    fn counts(&mut self) -> Vec<u64> {
        let reasons = self.plane().reasons().unwrap();
        reasons.iter().map(|reason| reason.packets).collect()
    }

    /// A frame arrives from the LAN.
    #[track_caller]
    pub fn lan_sends(&mut self, frame: &[u8]) -> Outcome {
        self.lan_sends_marked(frame, Marked::ByOthers(0))
    }

    /// The same with a mark.
    #[track_caller]
    pub fn lan_sends_marked(&mut self, frame: &[u8], marked: Marked) -> Outcome {
        let role = self.lan_role();
        self.arrive("lan", role, frame, marked)
    }

    /// The copy for a link of a SYN that races.
    #[track_caller]
    pub fn lan_copies(&mut self, link: u16, frame: &[u8]) -> Outcome {
        let role = self.lan_role();
        self.arrive(
            "lan",
            role,
            frame,
            Marked::ByPrograms(abi::RIVAL_MARK | u32::from(link)),
        )
    }

    /// The copy of a SYN/ACK that has won, by the link of a loser.
    #[track_caller]
    pub fn link_loses(&mut self, link: u16, frame: &[u8]) -> Outcome {
        self.arrive(
            "wan",
            Role::Link(LinkId(link)),
            frame,
            Marked::ByPrograms(abi::LOSER_MARK),
        )
    }

    /// Ends the test's use of the gateway, which forgets everything: what it still knows.
    pub fn forgotten(mut self) -> Vec<(String, Vec<u8>)> {
        let plane = self.plane.take().unwrap();
        let (pins, maps) = (Arc::clone(&self.pins), self.maps.take().unwrap());
        let mut loaded = Loaded { plane, pins, maps }.renew().unwrap();
        let routes = Map::LpmTrie(self.pinned("routes"));
        let routes: LpmTrie<_, abi::Addr, abi::Route> = routes.try_into().unwrap();
        assert_eq!(routes.keys().count(), 0);
        loaded.maps.held().unwrap()
    }

    /// Many frames arrive from the LAN, each of which leaves it.
    #[track_caller]
    pub fn lan_floods(&mut self, frames: impl Iterator<Item = Vec<u8>>) {
        let role = self.lan_role();
        self.become_role(role);
        for frame in frames {
            let ran = self.plane().run("lan", &frame, 1).unwrap();
            assert_eq!(ran.action, TC_ACT_REDIRECT);
        }
        self.counted = self.counts();
    }

    /// Many frames arrive from the LAN: how many left for which reason.
    #[track_caller]
    pub fn lan_pours(&mut self, frames: impl Iterator<Item = Vec<u8>>) -> BTreeMap<String, u64> {
        let role = self.lan_role();
        self.pours("lan", role, frames)
    }

    /// The same of a link.
    #[track_caller]
    pub fn link_pours(
        &mut self,
        link: u16,
        frames: impl Iterator<Item = Vec<u8>>,
    ) -> BTreeMap<String, u64> {
        self.pours("wan", Role::Link(LinkId(link)), frames)
    }

    fn pours(
        &mut self,
        program: &'static str,
        role: Role,
        frames: impl Iterator<Item = Vec<u8>>,
    ) -> BTreeMap<String, u64> {
        self.become_role(role);
        for frame in frames {
            self.plane().run(program, &frame, 1).unwrap();
        }
        self.rose().into_iter().collect()
    }

    /// How often packets left for each reason since this was asked.
    fn rose(&mut self) -> Vec<(String, u64)> {
        let reasons = self.plane().reasons().unwrap();
        let counted = reasons.iter().map(|reason| reason.packets).collect();
        let before = std::mem::replace(&mut self.counted, counted);
        let rose = reasons.into_iter().zip(before);
        rose.map(|(reason, before)| (reason.name, reason.packets - before))
            .collect()
    }

    /// A frame arrives on a link.
    #[track_caller]
    pub fn link_brings(&mut self, link: u16, frame: &[u8]) -> Outcome {
        self.link_brings_marked(link, frame, Marked::ByOthers(0))
    }

    /// The same with a mark.
    #[track_caller]
    pub fn link_brings_marked(&mut self, link: u16, frame: &[u8], marked: Marked) -> Outcome {
        self.arrive("wan", Role::Link(LinkId(link)), frame, marked)
    }

    /// A frame of a LAN host to another's external address comes back, by the link of that address.
    #[track_caller]
    pub fn comes_back(&mut self, frame: &[u8]) -> Outcome {
        self.comes_back_by(link_of(frame::read(frame).dst()), frame)
    }

    /// The same by the link it was turned to.
    #[track_caller]
    pub fn comes_back_by(&mut self, link: u16, frame: &[u8]) -> Outcome {
        self.arrive("wan", Role::Link(LinkId(link)), frame, TURNED)
    }

    /// The same of a frame that may be cut: how many pieces left for which reason.
    #[track_caller]
    pub fn comes_back_in_pieces(&mut self, frame: &[u8]) -> BTreeMap<String, u64> {
        let link = link_of(frame::read(frame).dst());
        self.become_role(Role::Link(LinkId(link)));
        self.plane().run_marked("wan", frame, TURNED).unwrap();
        self.rose().into_iter().collect()
    }

    #[track_caller]
    fn arrive(
        &mut self,
        program: &'static str,
        role: Role,
        frame: &[u8],
        marked: Marked,
    ) -> Outcome {
        self.become_role(role);
        let ran = self.plane().run_marked(program, frame, marked).unwrap();
        let mut rose = self.rose();
        rose.retain(|(_, times)| *times > 0);
        let left: u64 = rose.iter().map(|(_, times)| times).sum();
        let waiting = self.fragments_waiting();
        let waited = std::mem::replace(&mut self.waiting, waiting);
        // A first fragment sends those that waited for it through the loopback device, behind itself; where that is also
        // the device they leave by, they come in once more.
        let released = waited.saturating_sub(self.waiting) as u64;
        // The same of the one copy that a race over two links sends of a SYN, or of its answer.
        let most = released + u64::from(self.races);
        assert!(
            (1 + released..=1 + 2 * most).contains(&left),
            "every packet leaves for one counted reason: {rose:?}, {released} released"
        );
        Outcome {
            reason: rose[0].0.clone(),
            frame: ran.packet,
            action: ran.action,
            mark: ran.mark,
        }
    }

    /// Mean time of the program on a frame that it leaves as it was, in nanoseconds.
    pub fn time(&mut self, program: &'static str, role: Role, frame: &[u8]) -> f64 {
        /// Each lowers the TTL, which begins at 255.
        const REPEAT: u32 = 200;
        const RUNS: u32 = 500;
        self.become_role(role);
        let mut total = Duration::ZERO;
        for _ in 0..RUNS {
            total += self.plane().run(program, frame, REPEAT).unwrap().took;
        }
        self.counted = self.counts();
        total.as_nanos() as f64 / f64::from(RUNS)
    }

    pub fn flows(&mut self) -> Vec<FlowRow> {
        self.plane().flows().unwrap()
    }

    /// Entries of unconfirmed flows.
    pub fn embryos(&self) -> usize {
        let is_embryo = |flow: &abi::Flow| flow.state & abi::STATE_CONFIRMED == 0;
        let entries = self.flow_map("flows");
        let entries = entries.iter().map(|entry| entry.unwrap().1);
        entries.filter(is_embryo).count()
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

    fn fragments_waiting(&self) -> usize {
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

    fn pinned(&self, name: &str) -> MapData {
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

    /// The kernel itself forwards a packet of `remote` to `local`, as the program at the egress of the LAN devices hears.
    pub fn kernel_forwards(&self, protocol: u8, local: SocketAddr, remote: SocketAddr) {
        let pins = self.pins.join(format!("v{}", abi::ABI_VERSION));
        let mut forwards = Forwards::open(&pins).unwrap();
        forwards.enter(protocol, local, remote).unwrap();
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
        entry.embryo -= by.as_micros() as u32;
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

    /// The gateway's process ends without a word, and another takes over.
    pub fn restart(&mut self) {
        self.plane = Some(self.another_plane());
        self.role = None;
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

    /// Embryos that have a place in the order of their host, and those that have none.
    pub fn ordered(&self) -> (usize, u32) {
        let order = Map::HashMap(self.pinned("embryo_order"));
        let order: HashMap<_, [u32; 2], abi::FlowKey> = order.try_into().unwrap();
        let unordered: Array<_, u32> = Map::Array(self.pinned("unordered")).try_into().unwrap();
        let counts = unordered.iter().map(|count| count.unwrap());
        (order.keys().count(), counts.sum())
    }

    /// Another handle on the same gateway, for another thread.
    pub fn another_plane(&self) -> Gateway {
        let (plane, adopted) = Gateway::open(&self.pins, small()).unwrap();
        assert!(adopted);
        plane
    }

    /// The namespace whose loopback device the packets arrive on.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
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

    /// Runs a property, on this rig for all cases.
    #[track_caller]
    pub fn for_all<S: Strategy>(
        &mut self,
        cases: u32,
        strategy: S,
        test: impl FnMut(&mut Rig, S::Value) -> TestCaseResult,
    ) {
        let shared = RefCell::new((self, test));
        let outcome = runner(cases, 200).run(&strategy, |value| {
            let (rig, test) = &mut *shared.borrow_mut();
            test(rig, value)
        });
        if let Err(failure) = outcome {
            panic!("{failure}");
        }
    }

    /// A frame from the LAN, which is translated and leaves by a link.
    #[track_caller]
    pub fn translates_out(&mut self, frame: &[u8]) -> Seen {
        self.lan_sends(frame).sent("translated-out")
    }

    /// A frame from a link, which is translated and goes to its LAN host.
    #[track_caller]
    pub fn translates_in(&mut self, link: u16, frame: &[u8]) -> Seen {
        self.link_brings(link, frame).sent("translated-in")
    }

    /// Sends the SYN of a TCP connection through the gateway: what it was translated to, and its link.
    #[track_caller]
    pub fn open(&mut self, local: SocketAddr, remote: SocketAddr) -> Connection {
        let syn = tcp(local, remote, "S", LOCAL_ISN, 0);
        let sent = self.translates_out(&syn.frame());
        Connection {
            local,
            remote,
            external: sent.src(),
            link: link_of(sent.src()),
        }
    }

    /// The rest of the handshake of a connection whose SYN was sent.
    #[track_caller]
    pub fn confirm(&mut self, connection: &Connection) {
        let answer = connection.answer("SA", REMOTE_ISN, LOCAL_ISN + 1);
        self.translates_in(connection.link, &answer.frame());
        let ack = connection.say("A", LOCAL_ISN + 1, REMOTE_ISN + 1);
        self.translates_out(&ack.frame());
    }

    /// Opens a TCP connection through the gateway.
    #[track_caller]
    pub fn connect(&mut self, local: SocketAddr, remote: SocketAddr) -> Connection {
        let connection = self.open(local, remote);
        self.confirm(&connection);
        connection
    }
}

impl Rig {
    /// Of the links in `routed` none translates either family; the choice is among those in `usable`.
    pub fn routed(routed: u32, usable: u64) -> Self {
        let mut rig = Rig::new();
        rig.set(|s| s.routed = of_both(routed));
        rig.install(&round_robin(usable));
        rig
    }

    /// Packets and bytes sent over each link.
    pub fn sent_over(&mut self) -> [u64; 2] {
        let links = self.plane().counters().unwrap();
        [0, 1].map(|link: usize| links[link].carried().tx_packets)
    }

    /// Packets that each brought, and those that acknowledged something new.
    pub fn brought_by(&mut self) -> [(u64, u64); 2] {
        let links = self.plane().counters().unwrap();
        [0, 1].map(|link: usize| {
            let traffic = links[link].carried();
            (traffic.rx_packets, traffic.rx_progress)
        })
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let Some(plane) = self.plane.take() else {
            return;
        };
        match self.maps.take().filter(|_| !std::thread::panicking()) {
            Some(maps) => {
                let pins = Arc::clone(&self.pins);
                Loaded { plane, pins, maps }.give_back().unwrap();
            }
            None => {
                plane.close().ok();
            }
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

const TURNED: Marked = Marked::ByPrograms(abi::HAIRPIN_MARK);

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

/// One of a flow's two entries.
#[derive(Clone, Copy, Debug)]
pub enum Half {
    Lan,
    Link,
}

fn on_device(ifindex: u32, via: Option<IpAddr>) -> Verdict {
    Verdict::Lan { ifindex, via }
}

fn route(prefix: (IpAddr, u8), verdict: Verdict) -> Route {
    Route { prefix, verdict }
}

fn site_of(family: Family) -> &'static Site {
    SITES[family.index()]
}

/// Links by their bits, for both families.
pub fn of_both(links: u32) -> u32 {
    let places = Family::ALL.map(|family| links << abi::link_place(0, family));
    places.into_iter().sum()
}

pub const LOCAL_ISN: u32 = 1_000_000;
pub const REMOTE_ISN: u32 = 3_000_000_000;

/// The four ends of a connection through the gateway.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub external: SocketAddr,
    pub link: u16,
}

impl Connection {
    /// A segment of the LAN host.
    pub fn say(&self, flags: &str, seq: u32, ack: u32) -> Segment {
        tcp(self.local, self.remote, flags, seq, ack)
    }

    /// A segment of the remote end, as it arrives on the link.
    pub fn answer(&self, flags: &str, seq: u32, ack: u32) -> Segment {
        tcp(self.remote, self.external, flags, seq, ack)
    }
}

/// The link an external endpoint belongs to.
#[track_caller]
pub fn link_of(external: SocketAddr) -> u16 {
    let site = site_of(external.ip().into());
    let found = site
        .external
        .iter()
        .position(|address| *address == external.ip());
    found.unwrap_or_else(|| panic!("{external} is no link's")) as u16
}

/// A network card that misbehaves.
pub const FLOODER: [u8; 6] = [2, 0, 0, 0, 0, 0x66];
