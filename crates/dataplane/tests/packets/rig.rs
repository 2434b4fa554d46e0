//! The loaded programs without devices: packets go in by `BPF_PROG_TEST_RUN`, in a namespace of their own, and what
//! comes out is looked at together with the one reason it was counted for.

mod connection;
mod packets;
mod tables;
mod told;

use std::{cell::RefCell, net::IpAddr, sync::Arc};

use anabranch_core::{Choice, Family};
use anabranch_dataplane::{Build, Gateway, Role, Route, Sizes};
use anabranch_policy::abi;
use anabranch_testbed::{
    netns::{Entered, Namespace},
    pins::PinFolder,
};
use aya::maps::{Map, lpm_trie::LpmTrie};
use proptest::{strategy::Strategy, test_runner::TestCaseResult};

pub use self::connection::{Connection, LOCAL_ISN, REMOTE_ISN, link_of};
pub use self::packets::{Outcome, TC_ACT_REDIRECT};
pub use self::tables::Half;
use crate::{
    common::{round_robin, settings},
    former,
    pool::{Loaded, Maps},
    property::runner,
    site::{SITES, Site},
};

/// The loopback device, on which `BPF_PROG_TEST_RUN` lets packets arrive.
const LOOPBACK: u32 = 1;
pub const MTU: u32 = 1500;

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
        unconfirmed_max: 4096,
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

    /// Of the links in `routed` none translates either family; the choice is among those in `usable`.
    pub fn routed(routed: u32, usable: u64) -> Self {
        let mut rig = Rig::new();
        rig.set(|s| s.routed = of_both(routed));
        rig.install(&round_robin(usable));
        rig
    }

    pub fn plane(&mut self) -> &mut Gateway {
        self.plane.as_mut().expect("it lives as long as the rig")
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

    /// The gateway's process ends without a word, and another takes over.
    pub fn restart(&mut self) {
        self.plane = Some(self.another_plane());
        self.role = None;
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

fn site_of(family: Family) -> &'static Site {
    SITES[family.index()]
}

/// Links by their bits, for both families.
pub fn of_both(links: u32) -> u32 {
    let places = Family::ALL.map(|family| links << abi::link_place(0, family));
    places.into_iter().sum()
}

/// A network card that misbehaves.
pub const FLOODER: [u8; 6] = [2, 0, 0, 0, 0, 0x66];
