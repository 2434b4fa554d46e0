//! Devices are found by their index, wherever they stand.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use anabranch_core::LinkId;
use anabranch_dataplane::Role;
use anabranch_policy::abi;

use super::*;

#[test]
fn a_device_whose_place_is_taken_is_found_behind_it() {
    let mut rig = Rig::new();
    // The rig's own device is the loopback, whose index is 1: of 256 places both have the same.
    rig.add_device("other", 257);
    let other = Role::Link(LinkId(1));
    rig.plane().attach(257, other, false, 1300).unwrap();
    rig.connect(client(4000), server(80));
    rig.plane().detach(257).unwrap();
    rig.connect(SocketAddr::new(SECOND_CLIENT, 4000), server(80));
}

#[test]
fn a_device_that_cannot_be_attached_leaves_its_place_to_others() {
    let mut rig = Rig::new();
    rig.add_device("other", 257);
    let other = Role::Link(LinkId(1));
    for absent in (2..=abi::DEVICE_STEPS + 1).map(|n| n * abi::DEVICE_PLACES + 1) {
        let refused = rig.plane().attach(absent, other, false, 1300);
        refused.expect_err("no such device");
    }
    rig.plane().attach(257, other, false, 1300).unwrap();
}

/// The kernel would answer a flow's packet with a RST.
#[test]
fn a_link_is_known_all_the_while_its_lan_devices_change() {
    const ROUNDS: u32 = 300;
    let mut rig = Rig::new();
    rig.add_device("other", 300);
    rig.role_of_link(0);
    let to_the_host = udp(server(53), SocketAddr::new(EXTERNAL[0], 9), b"?").frame();
    let mut changer = rig.another_plane();
    let ended = AtomicBool::new(false);
    let mut runner = rig.another_plane();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let address = GATEWAY_LAN;
            for mtu in [1300, 1400].into_iter().cycle() {
                changer
                    .attach(300, Role::lan([address]), false, mtu)
                    .unwrap();
                if ended.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for _ in 0..ROUNDS {
            runner.run("wan", &to_the_host, 1000).unwrap();
        }
        ended.store(true, Ordering::Relaxed);
    });
    let reasons = rig.plane().reasons().unwrap();
    let unknown = reasons
        .iter()
        .find(|reason| reason.name == "not-configured");
    assert_eq!(unknown.unwrap().packets, 0);
}
