//! Whose a LAN entry is.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use anabranch_policy::abi::{BePort, FlowKey};
use anabranch_policy::trace;

#[test]
fn traces_are_in_the_upper_half_never_none_and_tell_the_ports_of_a_host_apart() {
    let of = |port| {
        trace(&FlowKey {
            local: Ipv4Addr::new(192, 168, 0, 7).into(),
            remote: Ipv4Addr::new(203, 0, 113, 9).into(),
            local_port: BePort::new(port),
            remote_port: BePort::new(443),
            proto: 6,
            ..FlowKey::default()
        })
    };
    let traces: HashSet<u32> = (0..=u16::MAX).map(of).collect();
    assert!(traces.iter().all(|trace| trace & 0x1_ffff == 0x1_0000));
    // One bit of sixteen says that there is one.
    assert_eq!(traces.len(), 1 << 15);
}
