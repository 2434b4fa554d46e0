//! The real programs between real sockets, in namespaces.

#[path = "../common/mod.rs"]
mod common;
mod former;
mod site;

mod connections;
mod datagrams;
mod flood;
mod fragments;
mod hairpin;
mod layer3;
mod life;
mod paths;
mod upgrade;

use std::{
    io::{ErrorKind, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use anabranch_testbed::netns::Namespace;
use site::echo_once;

/// Of every wait: enough for an emulated processor.
const PATIENCE: Duration = Duration::from_secs(60);

fn listen(namespace: &Namespace, at: (Ipv4Addr, u16)) -> TcpListener {
    namespace.run(|| TcpListener::bind(at).unwrap()).unwrap()
}

fn connect(namespace: &Namespace, to: (Ipv4Addr, u16)) -> TcpStream {
    let stream = namespace
        .run(|| TcpStream::connect_timeout(&to.into(), PATIENCE).unwrap())
        .unwrap();
    patient(&stream);
    stream
}

fn patient(stream: &TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
}

fn udp_socket(namespace: &Namespace, at: (Ipv4Addr, u16)) -> UdpSocket {
    let socket = namespace.run(|| UdpSocket::bind(at).unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
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
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not in {PATIENCE:?}: {what}");
        std::thread::yield_now();
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Packets a namespace's stack found damaged.
fn checksum_errors(namespace: &Namespace) -> u64 {
    snmp(namespace, "InCsumErrors")
}

/// A counter of a namespace's stack, of all protocols that have it.
fn snmp(namespace: &Namespace, counter: &str) -> u64 {
    let report = namespace.exec("cat", &["/proc/net/snmp"]).unwrap();
    let lines: Vec<Vec<&str>> = report
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let columns = lines
        .chunks(2)
        .flat_map(|pair| pair[0].iter().zip(&pair[1]));
    columns
        .filter(|(name, _)| **name == counter)
        .map(|(_, value)| value.parse::<u64>().unwrap())
        .sum()
}
