//! Where a link's packets go on it: to its gateway, to the router of a specific route, or to neighbours.

use std::io::Read;

use anabranch_core::LinkId;
use anabranch_dataplane::{LinkPath, Route, Verdict};

use super::*;
use crate::site::{echo_once, link_path};

/// The second router on the segment of link 0.
fn router_address() -> IpAddr {
    nth(ISP[0], 7)
}

/// What only that router has.
fn behind_router() -> IpAddr {
    nth(SITE.internet, 77)
}

/// A site whose first link has a second router on its segment.
fn site_with_router() -> (Namespace, Site) {
    let mut site = site();
    site.install(0b01);
    let router = Namespace::create("router").unwrap();
    router.set_ipv6(true).unwrap();
    let (_, length) = SITE.lan;
    let quiet = if ISP[0].is_ipv6() { " nodad" } else { "" };
    site.internet.veth("port", &router, "eth0").unwrap();
    for line in [
        "link add bridge type bridge".to_owned(),
        "link set isp0 master bridge".to_owned(),
        "link set port master bridge".to_owned(),
        format!("address del {}/{length} dev isp0", ISP[0]),
        format!("address add {}/{length} dev bridge{quiet}", ISP[0]),
        "link set bridge up".to_owned(),
    ] {
        site.internet.ip(&line).unwrap();
    }
    router
        .add_address("eth0", router_address(), length)
        .unwrap();
    let (address, host) = SITE.host(behind_router());
    router.add_address("lo", address, host).unwrap();
    (router, site)
}

fn over_the_first_link(prefix: (IpAddr, u8), via: Option<IpAddr>) -> Route {
    let link = LinkId(0);
    Route {
        prefix,
        verdict: Verdict::Link { link, via },
    }
}

/// A client talks to a server at this address, and is seen from the first link.
fn converses(site: &Site, at: &Namespace, address: IpAddr) {
    let listener = listen(at, (address, 8080));
    let mut client = connect(&site.client, listener.local_addr().unwrap());
    let (mut server, seen) = listener.accept().unwrap();
    assert_eq!(seen.ip(), EXTERNAL[0]);
    for word in [b"one", b"two"] {
        echo_once(&mut client, &mut server, word);
    }
    drop(server);
    assert_eq!(client.read(&mut [0; 8]).unwrap(), 0, "the end is heard");
    let socket = udp_socket(&site.client, (CLIENT, 0));
    let echo = udp_socket(at, (address, 53));
    datagrams::exchange(&socket, &echo, 3000);
}

#[test]
fn a_specific_route_leads_to_its_own_router_and_without_one_to_neighbours_on_the_link() {
    let (router, mut site) = site_with_router();
    site.add_routes(&[
        over_the_first_link(SITE.host(behind_router()), Some(router_address())),
        over_the_first_link(SITE.host(router_address()), None),
    ]);
    converses(&site, &router, behind_router());
    converses(&site, &router, router_address());
    converses(&site, &site.internet, SERVER);
}

#[test]
fn a_connection_follows_its_route_to_another_router_on_the_link() {
    let (router, mut site) = site_with_router();
    let prefix = SITE.host(behind_router());
    site.add_routes(&[over_the_first_link(prefix, Some(router_address()))]);
    let listener = listen(&router, (behind_router(), 8080));
    let (mut client, mut server) = connections::pair(&site, &listener);
    echo_once(&mut client, &mut server, b"by one router");
    let (_, length) = SITE.lan;
    let other = nth(ISP[0], 8);
    let key = "net/ipv4/conf/eth0/promote_secondaries";
    router.set_sysctl(key, "1").unwrap();
    router.add_address("eth0", other, length).unwrap();
    site.add_routes(&[over_the_first_link(prefix, Some(other))]);
    let old = router_address();
    router
        .ip(&format!("address del {old}/{length} dev eth0"))
        .unwrap();
    site.gateway.ip("neighbour flush dev wan0").unwrap();
    echo_once(&mut client, &mut server, b"by the other");
}

#[test]
fn on_a_link_without_a_gateway_every_destination_is_a_neighbour() {
    let mut site = site();
    site.install(0b01);
    if SERVER.is_ipv6() {
        forwards(&site.internet);
        let proxy = "net/ipv6/conf/isp0/proxy_ndp";
        site.internet.set_sysctl(proxy, "1").unwrap();
        let neighbour = format!("-6 neighbour add proxy {SERVER} dev isp0");
        site.internet.ip(&neighbour).unwrap();
    }
    let addresses = site.addresses;
    site.in_gateway(|plane| {
        let path = LinkPath {
            gateway: None,
            ..link_path(addresses, 0, 1500)
        };
        plane.set_link(LinkId(0), FAMILY, Some(&path)).unwrap();
    });
    converses(&site, &site.internet, SERVER);
}
