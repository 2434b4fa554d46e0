//! Devices, addresses and gateways that change under the daemon.

use std::net::{IpAddr, Ipv4Addr};

use anabranch_api::LinkState;
use anabranch_lab::topology::{IspSpec, Lab};
use anabranch_scenario::Direction;

use crate::house::{House, by_link, link, three_links, until, until_state};
use crate::programs::{Downloads, Visitor, curl, seen};

/// Bytes that have left the house over a link.
fn sent_bytes(lab: &Lab, link: &str) -> u64 {
    lab.link(link)
        .unwrap()
        .fates(Direction::Up)
        .unwrap()
        .delivered
        .bytes
}

/// New connections take every link, and each is answered. A link that has just come back begins the turns anew.
fn all_used(lab: &Lab) {
    let used = by_link(lab, seen(&curl(lab.clients(), &[], 100, 12)));
    assert_eq!(used.values().sum::<usize>(), 12, "{used:?}");
    let links: Vec<&str> = used.keys().map(String::as_str).collect();
    assert_eq!(links, ["cable", "fiber", "lte"], "{used:?}");
    assert!(used.values().all(|count| *count >= 2), "{used:?}");
}

#[test]
fn a_device_that_is_deleted_and_made_anew_comes_back_with_another_number() {
    let house = House::new("policy = \"RR\"");
    let House { lab, gateway, .. } = &house;
    let number = |device: &str| {
        lab.gateway()
            .ip(&format!("-oneline link show {device}"))
            .unwrap()
    };
    let before = number("wan2").split(':').next().unwrap().to_owned();
    lab.unplug("lte").unwrap();
    until_state(gateway, "lte", LinkState::Absent);
    let used = by_link(lab, seen(&curl(lab.clients(), &[], 100, 10)));
    assert!(!used.contains_key("lte"), "{used:?}");
    lab.replug("lte").unwrap();
    assert_ne!(number("wan2").split(':').next().unwrap(), before);
    until_state(gateway, "lte", LinkState::Up);
    all_used(lab);
}

#[test]
fn a_renewed_lease_with_another_address_and_another_gateway_is_followed() {
    let mut house = House::new("policy = \"RR\"");
    let address = Ipv4Addr::new(100, 64, 1, 77);
    house.lab.readdress("cable", address).unwrap();
    let House { lab, gateway, .. } = &house;
    until("the new address", || {
        link(gateway, "cable").address == Some(address.into())
    });
    until_state(gateway, "cable", LinkState::Up);
    all_used(lab);

    let next_hop = IpAddr::from([100, 64, 1, 254]);
    let router = lab.router("cable").unwrap();
    router
        .ip("address add 100.64.1.254/24 dev customer")
        .unwrap();
    lab.gateway()
        .ip("route replace default via 100.64.1.254 dev wan1 metric 101")
        .unwrap();
    until("the new gateway", || {
        link(gateway, "cable").gateway == Some(next_hop)
    });
    router
        .ip("address delete 100.64.1.1/24 dev customer")
        .unwrap();
    router
        .ip("address replace 100.64.1.254/24 dev customer")
        .unwrap();
    until_state(gateway, "cable", LinkState::Up);
    all_used(lab);
}

#[test]
fn what_changed_while_no_daemon_ran_is_found_by_the_next_one() {
    let mut house = House::new("policy = \"RR\"");
    let mut visitors = Visitor::many(&house.lab, 6);
    let before = by_link(&house.lab, Visitor::ask_all(&mut visitors));
    assert_eq!(before["cable"], 2);
    house.gateway.kill().unwrap();
    house
        .lab
        .readdress("cable", Ipv4Addr::new(100, 64, 1, 77))
        .unwrap();
    let House { lab, gateway, .. } = &mut house;
    gateway.restart(lab.gateway()).unwrap();
    until_state(gateway, "cable", LinkState::Up);
    let alive: Vec<_> = visitors
        .iter_mut()
        .filter_map(|visitor| visitor.ask().ok())
        .collect();
    let expected = [("fiber", 2), ("lte", 2)].map(|(link, count)| (link.to_owned(), count));
    assert_eq!(
        by_link(lab, alive),
        expected.into(),
        "the flows of the former address have ended"
    );
    all_used(lab);
}

#[test]
fn links_whose_gateways_have_the_same_address_keep_their_traffic_apart() {
    let mut spec = three_links();
    let common = |(isp, index): (&IspSpec, u8)| {
        IspSpec::with_common_next_hop(index, &isp.name, isp.shape.clone())
    };
    spec.isps = spec.isps.iter().zip(0..).map(common).collect();
    let house = House::of(&spec, "policy = \"RR\"");
    let House { lab, gateway, .. } = &house;
    let ((), downloads) = Downloads::during(lab, |downloads| downloads.more(60));
    let used = by_link(lab, seen(&downloads));
    assert_eq!(used.len(), 3, "{used:?}");
    for name in ["fiber", "cable", "lte"] {
        let (counted, carried) = (link(gateway, name).traffic, sent_bytes(lab, name));
        assert_eq!(link(gateway, name).gateway, Some([100, 64, 255, 1].into()));
        // ARP and probes are the box's own; a packet on another link than its flow's would be thousands of bytes.
        let own = carried.abs_diff(counted.tx_bytes);
        assert!(
            own < carried / 4 + 20_000,
            "{name} carried {carried} bytes, its flows sent {}",
            counted.tx_bytes
        );
    }
}
