//! From the version before, which left IPv6 to the kernel: it had no flows that could come over.

use anabranch_dataplane::Sizes;

use super::both::{EXTERNAL, SERVER, connections::pair};
use crate::{addresses::IPV6, common::settings, former, site::Site, *};

#[test]
fn connections_are_balanced_from_the_upgrade_on() {
    let mut site = Site::bare(&IPV6);
    former::start(&site, settings(), Sizes::default());
    let listener = listen(&site.internet, (SERVER, 8080));
    assert!(site.start(Sizes::default()), "adopted");
    assert!(!former::folder(&site).exists());
    let mut pairs = [pair(&site, &listener), pair(&site, &listener)];
    for (client, server) in &mut pairs {
        echo_once(client, server, b"upgraded");
    }
    let seen = pairs
        .each_ref()
        .map(|(_, server)| server.peer_addr().unwrap().ip());
    assert_ne!(seen[0], seen[1]);
    assert!(seen.iter().all(|address| EXTERNAL.contains(address)));
}
