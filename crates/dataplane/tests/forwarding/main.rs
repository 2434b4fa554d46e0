//! The real programs between real sockets, in namespaces.
//!
//! What holds for both families stands in `both`, and is run as `ipv4::both` and as `ipv6::both`; what one of them alone has,
//! beside it in `ipv4` or `ipv6`.

// The files of `both` are compiled once for each family.
#![allow(clippy::duplicate_mod)]

#[path = "../common/site.rs"]
#[allow(dead_code, reason = "addresses for other tests too")]
mod addresses;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/former.rs"]
mod former;
mod ipv4;
mod ipv6;
mod site;

use std::{
    io::{ErrorKind, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use anabranch_testbed::{netns::Namespace, wait::until};
use site::echo_once;

/// Of every wait: enough for an emulated processor.
const PATIENCE: Duration = Duration::from_secs(60);

fn listen(namespace: &Namespace, at: (IpAddr, u16)) -> TcpListener {
    namespace.listen(at).unwrap()
}

fn connect(namespace: &Namespace, to: impl Into<SocketAddr>) -> TcpStream {
    namespace.connect(to, PATIENCE).unwrap()
}

fn patient(stream: &TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
}

fn udp_socket(namespace: &Namespace, at: (IpAddr, u16)) -> UdpSocket {
    namespace.udp(at, PATIENCE).unwrap()
}

/// What arrives, and from where.
#[track_caller]
fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = vec![0; 65536];
    let (length, from) = socket.recv_from(&mut buffer).unwrap();
    buffer.truncate(length);
    (buffer, from)
}

/// Nothing arrives that was sent before: what is sent now by `marker` comes first.
#[track_caller]
fn hears_nothing_before(socket: &UdpSocket, marker: impl FnOnce()) {
    marker();
    assert_eq!(receive(socket).0, b"marker");
}

#[track_caller]
fn eventually(what: &str, holds: impl FnMut() -> bool) {
    until(what, PATIENCE, holds);
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Packets a namespace's stack found damaged.
fn checksum_errors(namespace: &Namespace) -> u64 {
    namespace.protocol_counter("InCsumErrors").unwrap()
}
