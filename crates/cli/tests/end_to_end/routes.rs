//! Traffic that is not to be balanced: specific routes, the box's own, and what comes in.

use std::net::{IpAddr, SocketAddr};

use anabranch_lab::topology::{HttpServer, Lab};
use anabranch_scenario::Direction;
use anabranch_testbed::netns::Namespace;

use crate::house::{House, by_link, counted};
use crate::programs::{curl, curl_url, seen};

const OFFICE: [u8; 4] = [203, 0, 113, 1];
const OTHER_SERVER: [u8; 4] = [198, 51, 100, 20];

#[test]
fn a_specific_route_wins_over_balancing_through_a_device_and_over_a_link() {
    let house = House::new("policy = \"RR\"");
    let House { lab, gateway, .. } = &house;
    let office = Namespace::create("office").unwrap();
    lab.gateway().veth("vpn0", &office, "vpn0").unwrap();
    lab.gateway()
        .add_address("vpn0", [172, 31, 0, 1].into(), 30)
        .unwrap();
    office
        .add_address("vpn0", [172, 31, 0, 2].into(), 30)
        .unwrap();
    office.add_address("lo", OFFICE.into(), 32).unwrap();
    office.ip("route add 10.80.0.0/16 via 172.31.0.1").unwrap();
    let _office_server =
        HttpServer::start(&office, &[SocketAddr::from((OFFICE, 80))], &[100]).unwrap();
    lab.gateway()
        .ip("route add 203.0.113.0/24 via 172.31.0.2")
        .unwrap();
    lab.internet()
        .add_address("lo", OTHER_SERVER.into(), 32)
        .unwrap();
    let _other = HttpServer::start(
        lab.internet(),
        &[SocketAddr::from((OTHER_SERVER, 80))],
        &[100],
    )
    .unwrap();
    lab.gateway()
        .ip("route add 198.51.100.20/32 via 100.64.1.1 dev wan1")
        .unwrap();

    // The daemon hears of the routes while it runs; the first downloads may come too early for it.
    let to_office = || curl_url(lab.clients(), &[], "http://203.0.113.1/bytes/100?[1-6]");
    crate::house::until("the office is reached", || {
        to_office().iter().all(|each| each.seen.is_ok())
    });
    let client = lab.client_addresses()[0];
    assert!(
        seen(&to_office()).iter().all(|address| *address == client),
        "through the tunnel untranslated"
    );
    let explained = || {
        let said = gateway
            .ask(&[
                "explain",
                "--from",
                "10.80.1.1",
                "--to",
                "198.51.100.20:80",
                "--json",
            ])
            .unwrap();
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        let word = |key: &str| said[key].as_str().unwrap_or_default().to_owned();
        (word("link"), word("why"))
    };
    let by_route = ("cable".to_owned(), "a specific route names it".to_owned());
    crate::house::until("the route over one link is known", || {
        explained() == by_route
    });
    let to_other = || curl_url(lab.clients(), &[], "http://198.51.100.20/bytes/100?[1-6]");
    assert_eq!(
        by_link(lab, seen(&to_other())),
        [("cable".to_owned(), 6)].into()
    );
    assert!(counted(gateway, "destination is local or has a specific route") > 0);
    // The flows that had to go by cable count for it: the others catch up.
    let rest = by_link(lab, seen(&curl(lab.clients(), &[], 100, 12)));
    assert!(rest.len() > 1, "the rest is balanced: {rest:?}");
}

#[test]
fn the_boxs_own_traffic_leaves_by_the_link_it_belongs_to_and_guests_are_answered_over_theirs() {
    let house = House::new("");
    let House { lab, .. } = &house;
    let by_default = by_link(lab, seen(&curl(lab.gateway(), &[], 100, 3)));
    assert_eq!(
        by_default,
        [("fiber".to_owned(), 3)].into(),
        "the main table's choice"
    );
    for (address, name) in lab.external_addresses() {
        let device = lab.device(&name).unwrap();
        for bound in [address.to_string(), device] {
            let taken = by_link(
                lab,
                seen(&curl(lab.gateway(), &["--interface", &bound], 100, 2)),
            );
            assert_eq!(taken, [(name.clone(), 2)].into(), "bound to {bound}");
        }
    }
    let _box_server = HttpServer::start(
        lab.gateway(),
        &["0.0.0.0:8080".parse().unwrap()],
        &[100, 50_000],
    )
    .unwrap();
    for (address, name) in lab.external_addresses() {
        let carried = answer_over(lab, address, &name);
        assert!(
            carried > 50_000,
            "{name} carried {carried} bytes of the answer"
        );
    }
    let from_lan = curl_url(lab.clients(), &[], "http://10.80.0.1:8080/bytes/100?[1-2]");
    assert_eq!(seen(&from_lan), [lab.client_addresses()[0]; 2]);
}

/// Downloads from the box by one of its external addresses; bytes that the link took towards the internet.
fn answer_over(lab: &Lab, address: IpAddr, link: &str) -> u64 {
    let carried = || {
        lab.link(link)
            .unwrap()
            .fates(Direction::Up)
            .unwrap()
            .delivered
            .bytes
    };
    let before = carried();
    let guest = ["--interface", "198.51.100.10"];
    seen(&curl_url(
        lab.internet(),
        &guest,
        &format!("http://{address}:8080/bytes/50000?[1-1]"),
    ));
    carried() - before
}
