//! Frames that a device hears beside its own.

use std::collections::BTreeSet;

use super::*;

const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 0x99, 0x99];
/// RFC 9568 section 7.3.
const VIRTUAL_ROUTER: [u8; 6] = [0, 0, 0x5e, 0, 1, 51];
/// What all frames of the rig arrive on.
const DEVICE: u32 = 1;

#[test]
fn a_frame_for_another_machine_is_left_to_the_kernel_and_opens_nothing() {
    let mut rig = Rig::new();
    for ip in [
        udp(client(4000), server(53), b"x"),
        tcp(client(4000), server(80), "S", LOCAL_ISN, 0).ip(),
        echo(CLIENT, SERVER, 1, b"x"),
    ] {
        rig.lan_sends(&sent_to(OTHER_MAC, ip.frame()))
            .passed("other-host");
    }
    assert!(rig.flows().is_empty());
    let connection = rig.connect(client(4000), server(80));
    let answer = connection.answer("A", REMOTE_ISN + 1, LOCAL_ISN + 1);
    rig.link_brings(connection.link, &sent_to(OTHER_MAC, answer.frame()))
        .passed("other-host");
    rig.translates_in(connection.link, &answer.frame());
}

#[test]
fn a_frame_for_a_virtual_router_on_the_device_is_as_one_for_the_device() {
    let mut rig = Rig::new();
    let query = sent_to(VIRTUAL_ROUTER, udp(client(4000), server(53), b"x").frame());
    rig.lan_sends(&query).passed("other-host");
    let masters = BTreeSet::from([(DEVICE, VIRTUAL_ROUTER), (DEVICE + 1, OTHER_MAC)]);
    rig.plane().set_own_macs(&masters).unwrap();
    rig.translates_out(&query);
    // What is above another device is not above this one.
    rig.lan_sends(&sent_to(OTHER_MAC, query.clone()))
        .passed("other-host");
    rig.plane().set_own_macs(&BTreeSet::new()).unwrap();
    rig.lan_sends(&query).passed("other-host");
}

/// With the Ethernet header that it had on the device of the LAN.
#[test]
fn what_comes_back_by_a_redirect_goes_on_whatever_its_hardware_address() {
    let mut rig = Rig::new();
    let sent = rig.lan_sends(&udp(client(4000), server(53), b"x").frame());
    let external = sent.sent("translated-out").src();
    let other = SocketAddr::new(SECOND_CLIENT, 4000);
    let turned = rig.lan_sends(&udp(other, external, b"x").frame());
    turned.sent("hairpin");
    rig.comes_back(&sent_to(OTHER_MAC, turned.frame))
        .sent("translated-in");
}
