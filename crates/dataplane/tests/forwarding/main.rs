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
mod former;
mod ipv4;
mod ipv6;
mod site;

use std::{
    io::{ErrorKind, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use anabranch_testbed::netns::Namespace;
use site::echo_once;

/// Of every wait: enough for an emulated processor.
const PATIENCE: Duration = Duration::from_secs(60);

fn listen(namespace: &Namespace, at: (IpAddr, u16)) -> TcpListener {
    namespace.run(|| TcpListener::bind(at).unwrap()).unwrap()
}

fn connect(namespace: &Namespace, to: impl Into<SocketAddr>) -> TcpStream {
    let to = to.into();
    let stream = namespace
        .run(|| TcpStream::connect_timeout(&to, PATIENCE).unwrap())
        .unwrap();
    patient(&stream);
    stream
}

fn patient(stream: &TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
}

fn udp_socket(namespace: &Namespace, at: (IpAddr, u16)) -> UdpSocket {
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

/// A counter of a namespace's stack, of all protocols that have it: those of IPv4 in columns, those of IPv6 in lines.
fn snmp(namespace: &Namespace, counter: &str) -> u64 {
    let read = |file| namespace.exec("cat", &[file]).unwrap();
    let report = read("/proc/net/snmp");
    let lines: Vec<Vec<&str>> = report
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let columns = lines
        .chunks(2)
        .flat_map(|pair| pair[0].iter().copied().zip(pair[1].iter().copied()));
    let report = read("/proc/net/snmp6");
    let named = report.lines().filter_map(|line| {
        let (name, value) = line.split_once(char::is_whitespace)?;
        let (_, name) = name.split_once('6')?;
        Some((name, value.trim()))
    });
    columns
        .chain(named)
        .filter(|(name, _)| *name == counter)
        .map(|(_, value)| value.parse::<u64>().unwrap())
        .sum()
}
