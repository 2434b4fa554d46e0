//! Path MTU discovery and hops, seen through the gateway.

use std::io::{Read, Write};

use super::*;

/// Beyond a router of the internet.
fn far_address() -> IpAddr {
    nth(SERVER, 67)
}

/// A host behind a router of the internet, over a hop of `mtu` bytes.
fn far_host(site: &Site, mtu: u32) -> Namespace {
    let far = Namespace::create("far").unwrap();
    site.internet.veth("far0", &far, "eth0").unwrap();
    far.set_ipv6(true).unwrap();
    let (_, length) = SITE.lan;
    let (near, hop) = (SITE.router, nth(SITE.router, 1));
    site.internet.add_address("far0", near, length).unwrap();
    far.add_address("eth0", hop, length).unwrap();
    let (address, host) = SITE.host(far_address());
    far.add_address("lo", address, host).unwrap();
    site.internet.set_mtu("far0", mtu).unwrap();
    far.set_mtu("eth0", mtu).unwrap();
    far.ip(&format!("route add default via {near}")).unwrap();
    site.internet
        .ip(&format!("route add {address} via {hop}"))
        .unwrap();
    forwards(&site.internet);
    far
}

#[test]
fn tracepath_finds_the_mtu_of_the_link_and_of_a_hop_behind_it_and_every_hop() {
    let mut site = site();
    site.set_link_mtu(0, 1400);
    site.install(0b01);
    let _far = far_host(&site, 1300);
    let report = site
        .client
        .exec("tracepath", &["-n", "-m", "6", &far_address().to_string()])
        .unwrap();
    let [gateway, isp, far] = [GATEWAY_LAN, ISP[0], far_address()].map(|hop| hop.to_string());
    let says = |line: &str, words: &[&str]| words.iter().all(|word| line.contains(word));
    for words in [
        &[&*gateway, "pmtu 1400"][..],
        &[&gateway, "ms"],
        &[&isp, "pmtu 1300"],
        &[&far, "reached"],
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
    let mut site = site();
    site.install(0b01);
    let far = far_host(&site, 1300);
    // The far end offers a segment size that its hop does not take, as behind a tunnel.
    let advmss = 1500 - SITE.ip_header - 20;
    let near = SITE.router;
    far.ip(&format!("route replace default via {near} advmss {advmss}"))
        .unwrap();
    let listener = listen(&far, (far_address(), 8080));
    let mut client = connect(&site.client, (far_address(), 8080));
    let (mut server, _) = listener.accept().unwrap();
    patient(&server);
    let mut got = vec![0; 200_000];
    std::thread::scope(|scope| {
        scope.spawn(|| client.write_all(&[7; 200_000]).unwrap());
        server.read_exact(&mut got).unwrap();
    });
    assert!(got.iter().all(|byte| *byte == 7));
    assert!(site.reason("error-in") > 0, "a router told the client");
}
