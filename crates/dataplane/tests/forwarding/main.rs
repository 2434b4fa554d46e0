//! The real programs between real sockets, in namespaces.

#[path = "../common/mod.rs"]
mod common;
mod site;

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use common::*;
use site::Site;

const PATIENCE: Duration = Duration::from_secs(5);

/// Answers every connection with the address it sees, until `connections` were served.
fn serve_addresses(listener: TcpListener, connections: usize) {
    for stream in listener.incoming().take(connections) {
        let mut stream = stream.unwrap();
        let peer = stream.peer_addr().unwrap().to_string();
        stream.write_all(peer.as_bytes()).unwrap();
    }
}

fn ask_address(server: SocketAddr) -> SocketAddr {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.parse().unwrap()
}

#[test]
fn connections_alternate_between_the_links_and_come_from_their_addresses() {
    let mut site = Site::new();
    let server = SocketAddr::from((SERVER, 8080));
    let listener = site
        .internet
        .run(|| TcpListener::bind(server).unwrap())
        .unwrap();
    let seen: Vec<IpAddr> = std::thread::scope(|scope| {
        scope.spawn(|| serve_addresses(listener, 10));
        site.client
            .run(|| (0..10).map(|_| ask_address(server).ip()).collect())
            .unwrap()
    });
    assert!(
        seen.chunks(2).all(|pair| pair[0] != pair[1]),
        "round-robin alternates: {seen:?}"
    );
    let links: BTreeSet<_> = seen.into_iter().collect();
    assert_eq!(links, EXTERNAL.into_iter().map(IpAddr::from).collect());
    assert_eq!(
        site.live(),
        0,
        "every flow that ended was counted: {:?}",
        site.plane().flows()
    );
}
