//! Devices are found by their index, wherever they stand.

use std::net::SocketAddrV4;

use anabranch_dataplane::Role;

use crate::{common::*, frame::*, rig::*};

#[test]
fn a_device_whose_place_is_taken_is_found_behind_it() {
    let mut rig = Rig::new();
    // The rig's own device is the loopback, whose index is 1: of 256 places both have the same.
    rig.add_device("other", 257);
    let other = Role::Link(anabranch_core::LinkId(1));
    rig.plane().attach(257, other, false, 1300).unwrap();
    rig.connect(client(4000), server(80));
    rig.plane().detach(257).unwrap();
    rig.connect(SocketAddrV4::new(SECOND_CLIENT, 4000), server(80));
}
