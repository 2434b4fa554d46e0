//! Packets that are cut on their way, which those of IPv6 never are (RFC 8200 section 4.5).

use super::both::{datagrams::*, *};
use crate::*;

#[test]
fn packets_longer_than_the_link_that_may_be_fragmented_are_cut_and_arrive_whole() {
    let mut site = site();
    site.set_offloads(false);
    for link in 0..2 {
        site.set_link_mtu(link, 1400);
        // The ISP's side takes no more either.
        site.internet.set_mtu(&format!("isp{link}"), 1400).unwrap();
    }
    let client = udp_socket(&site.client, (CLIENT, 4000));
    let server = udp_socket(&site.internet, (SERVER, 53));
    may_fragment(&client);
    for length in [1372, 1373, 1472, 4000, 9000] {
        exchange(&client, &server, length);
    }
    for reason in ["too-long-to-fragment", "too-big-out", "fragment-overlap"] {
        assert_eq!(site.reason(reason), 0, "{reason}");
    }
    assert_eq!(checksum_errors(&site.internet), 0);
}

#[test]
fn datagrams_longer_than_the_lan_takes_that_may_be_fragmented_are_cut_and_arrive_whole() {
    let mut site = site();
    site.set_offloads(false);
    site.set_lan_mtu(1300);
    let client = udp_socket(&site.client, (CLIENT, 4000));
    let server = udp_socket(&site.internet, (SERVER, 53));
    may_fragment(&client);
    may_fragment(&server);
    for length in [1272, 1273, 1472, 4000, 9000] {
        exchange(&client, &server, length);
    }
    assert_eq!(site.reason("too-big-in"), 0);
    assert_eq!(checksum_errors(&site.client), 0);
}
