//! Path MTU discovery and hops, seen through the gateway.

use std::net::Ipv4Addr;

use anabranch_testbed::netns::Namespace;

use crate::site::Site;

const FAR: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 77);

/// A host behind a router of the internet, over a hop of `mtu` bytes.
fn far_host(site: &Site, mtu: u32) -> Namespace {
    let far = Namespace::create("far").unwrap();
    site.internet.veth("far0", &far, "eth0").unwrap();
    site.internet
        .add_address("far0", Ipv4Addr::new(100, 64, 0, 1).into(), 24)
        .unwrap();
    far.add_address("eth0", Ipv4Addr::new(100, 64, 0, 2).into(), 24)
        .unwrap();
    far.add_address("lo", FAR.into(), 32).unwrap();
    site.internet.set_mtu("far0", mtu).unwrap();
    far.set_mtu("eth0", mtu).unwrap();
    far.ip("route add default via 100.64.0.1").unwrap();
    site.internet
        .ip(&format!("route add {FAR} via 100.64.0.2"))
        .unwrap();
    site.internet
        .set_sysctl("net/ipv4/ip_forward", "1")
        .unwrap();
    far
}

#[test]
fn tracepath_finds_the_mtu_of_the_link_and_of_a_hop_behind_it_and_every_hop() {
    let mut site = Site::new();
    site.set_link_mtu(0, 1400);
    site.install(0b01);
    let _far = far_host(&site, 1300);
    let report = site
        .client
        .exec("tracepath", &["-n", "-m", "6", &FAR.to_string()])
        .unwrap();
    let says = |line: &str, words: &[&str]| words.iter().all(|word| line.contains(word));
    for words in [
        &["10.0.0.1", "pmtu 1400"][..],
        &["10.0.0.1", "ms"],
        &["203.0.113.1", "pmtu 1300"],
        &["198.51.100.77", "reached"],
        &["Resume: pmtu 1300 hops 3 back 3"],
    ] {
        assert!(
            report.lines().any(|line| says(line, words)),
            "{words:?} in\n{report}"
        );
    }
}

#[test]
fn a_connection_through_a_narrow_hop_learns_its_mtu() {
    use std::io::{Read, Write};
    let mut site = Site::new();
    site.install(0b01);
    let far = far_host(&site, 1300);
    // The far end offers a segment size that its hop does not take, as behind a tunnel.
    far.ip("route replace default via 100.64.0.1 advmss 1460")
        .unwrap();
    let listener = crate::listen(&far, (FAR, 8080));
    let mut client = crate::connect(&site.client, (FAR, 8080));
    let (mut server, _) = listener.accept().unwrap();
    crate::patient(&server);
    let mut got = vec![0; 200_000];
    std::thread::scope(|scope| {
        scope.spawn(|| client.write_all(&[7; 200_000]).unwrap());
        server.read_exact(&mut got).unwrap();
    });
    assert!(got.iter().all(|byte| *byte == 7));
    assert!(site.reason("error-in") > 0, "a router told the client");
}
