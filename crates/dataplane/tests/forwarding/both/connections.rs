//! TCP: who is seen, and that no byte is lost or damaged.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    os::fd::AsRawFd,
};

use socket2::{Socket, Type};

use super::*;

/// Answers every connection with the address it sees, until `connections` were served.
fn serve_addresses(listener: TcpListener, connections: usize) {
    for stream in listener.incoming().take(connections) {
        let mut stream = stream.unwrap();
        let peer = stream.peer_addr().unwrap().to_string();
        stream.write_all(peer.as_bytes()).unwrap();
    }
}

fn ask_address(site: &Site) -> SocketAddr {
    let mut answer = String::new();
    connect(&site.client, (SERVER, 8080))
        .read_to_string(&mut answer)
        .unwrap();
    answer.parse().unwrap()
}

#[test]
fn connections_alternate_between_the_links_and_come_from_their_addresses() {
    let mut site = site();
    let listener = listen(&site.internet, (SERVER, 8080));
    let seen: Vec<IpAddr> = std::thread::scope(|scope| {
        scope.spawn(|| serve_addresses(listener, 10));
        (0..10).map(|_| ask_address(&site).ip()).collect()
    });
    assert!(
        seen.chunks(2).all(|pair| pair[0] != pair[1]),
        "round-robin alternates: {seen:?}"
    );
    let links: BTreeSet<_> = seen.into_iter().collect();
    assert_eq!(links, EXTERNAL.into_iter().collect());
    eventually("every flow that ended was counted", || site.live() == 0);
}

const TRANSFER_BYTES: usize = 20 << 20;
const CHUNK: usize = 1 << 16;

/// Chunk `number` of every transfer.
fn chunk(number: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; CHUNK];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes
}

pub fn send_all(mut stream: TcpStream) {
    for number in 0..TRANSFER_BYTES / CHUNK {
        stream.write_all(&chunk(number)).unwrap();
    }
}

pub fn receive_all(mut stream: TcpStream, mut at_chunk: impl FnMut(usize)) {
    let mut got = vec![0; CHUNK];
    for number in 0..TRANSFER_BYTES / CHUNK {
        at_chunk(number);
        stream.read_exact(&mut got).unwrap();
        assert!(
            got == chunk(number),
            "chunk {number} arrives as it was sent"
        );
    }
}

/// Both ends of a connection through the gateway.
pub fn pair(site: &Site, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = connect(&site.client, listener.local_addr().unwrap());
    let (server, _) = listener.accept().unwrap();
    patient(&server);
    (client, server)
}

#[test]
fn large_transfers_arrive_whole_both_ways_with_offloads_on_and_off() {
    let site = site();
    let listener = listen(&site.internet, (SERVER, 8080));
    for offloads in [true, false] {
        site.set_offloads(offloads);
        for _ in 0..2 {
            let (client, server) = pair(&site, &listener);
            let (client_too, server_too) =
                (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::scope(|scope| {
                scope.spawn(|| send_all(server));
                scope.spawn(|| receive_all(server_too, |_| ()));
                scope.spawn(|| send_all(client_too));
                receive_all(client, |_| ());
            });
        }
        for namespace in [&site.client, &site.internet, &site.gateway] {
            assert_eq!(checksum_errors(namespace), 0, "offloads {offloads}");
        }
    }
}

#[test]
fn a_connection_is_refused_by_who_refuses_it() {
    let mut site = site();
    let refused = site.client.connect((SERVER, 9), PATIENCE);
    assert_eq!(
        refused.unwrap_err().kind(),
        std::io::ErrorKind::ConnectionRefused
    );
    eventually("the flow is closed", || site.live() == 0);
}

#[test]
fn an_idle_host_whose_flow_is_forgotten_is_told_when_it_speaks() {
    let mut site = site();
    let listener = listen(&site.internet, (SERVER, 8080));
    let (mut client, mut server) = pair(&site, &listener);
    echo_once(&mut client, &mut server, b"before");
    let mut impatient = settings();
    impatient.tcp_established_ns = 0;
    site.plane().set_settings(&impatient).unwrap();
    eventually("the flow is swept", || {
        site.plane().sweep().unwrap();
        site.plane().flows().unwrap().is_empty()
    });
    client.write_all(b"after").unwrap();
    let error = client.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

/// A connection from this end, whose SYN has this sequence number. An earlier one of the end may wait for its last acknowledgement.
fn connect_with(namespace: &Namespace, from: (IpAddr, u16), isn: u32) -> TcpStream {
    let connect = || -> std::io::Result<TcpStream> {
        let socket = Socket::new(domain(), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from(from).into())?;
        for (option, value) in [
            (libc::TCP_REPAIR, 1),
            (libc::TCP_REPAIR_QUEUE, TCP_SEND_QUEUE),
            (libc::TCP_QUEUE_SEQ, isn),
            (libc::TCP_REPAIR, 0),
        ] {
            set_tcp_option(&socket, option, value)?;
        }
        socket.connect_timeout(&SocketAddr::from((SERVER, 8080)).into(), PATIENCE / 2)?;
        Ok(socket.into())
    };
    let mut connected = None;
    eventually("the end is free", || {
        connected = match namespace.run(connect).unwrap() {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => None,
            other => Some(other.unwrap()),
        };
        connected.is_some()
    });
    let stream = connected.unwrap();
    patient(&stream);
    stream
}

/// Of `TCP_REPAIR_QUEUE`.
const TCP_SEND_QUEUE: u32 = 2;

fn set_tcp_option(socket: &Socket, option: i32, value: u32) -> std::io::Result<()> {
    let (fd, length) = (socket.as_raw_fd(), size_of_val(&value) as u32);
    let value = std::ptr::from_ref(&value).cast();
    // SAFETY: `value` leads to so many bytes.
    match unsafe { libc::setsockopt(fd, libc::IPPROTO_TCP, option, value, length) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Which a server keeps for a minute: who has closed first, and with timestamps a later SYN would be taken for the next one
/// (RFC 6191).
#[test]
fn a_port_is_used_again_towards_a_server_that_has_it_in_time_wait() {
    let mut site = site();
    let listener = listen(&site.internet, (SERVER, 8080));
    site.client
        .set_sysctl("net/ipv4/tcp_timestamps", "0")
        .unwrap();
    let connect = |site: &Site, from, isn| {
        let client = connect_with(&site.client, from, isn);
        let (server, peer) = listener.accept().unwrap();
        (client, server, peer)
    };
    let (mut client, server, first) = connect(&site, (CLIENT, 4000), 3 << 30);
    drop(server);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    drop(client);
    eventually("the connection is over", || site.live() == 0);

    // The same ends again, by the other link: the gateway forgets what it knew.
    let (_client, _server, second) = connect(&site, (CLIENT, 4000), (3 << 30) + 1_000_000);
    assert_ne!(first, second);
    let (mut client, mut server, third) = connect(&site, (SECOND_CLIENT, 4000), 2 << 30);
    assert_eq!(first, third);
    echo_once(&mut client, &mut server, b"at once");
    assert_eq!(site.reason("challenge"), 1);
}

/// Of [`kernel_nat`].
pub const FALLBACK_MARK: u32 = 7;

/// The gateway's kernel forwards everything, and translates what leaves the first link.
pub fn kernel_nat(gateway: &Namespace) {
    forwards(gateway);
    for device in ["all", "wan0", "lan0"] {
        let key = format!("net/ipv4/conf/{device}/rp_filter");
        gateway.set_sysctl(&key, "0").unwrap();
    }
    let version = match FAMILY {
        Family::V4 => "-4",
        Family::V6 => "-6",
    };
    let marked = format!("{version} rule add fwmark {FALLBACK_MARK} lookup 100");
    gateway.ip(&marked).unwrap();
    let isp = ISP[0];
    gateway
        .ip(&format!("route add default via {isp} dev wan0 table 100"))
        .unwrap();
    let rules = format!(
        "table {NFT} nat {{
            chain post {{
                type nat hook postrouting priority 100
                oifname wan0 masquerade
            }}
            chain forward {{
                type filter hook forward priority 0
                ct state invalid drop
            }}
        }}"
    );
    gateway.nft(&rules).unwrap();
}

#[test]
fn a_host_over_its_quota_is_carried_by_the_kernels_nat() {
    let mut site = site();
    kernel_nat(&site.gateway);
    let mut strict = settings();
    (strict.quota_per_host, strict.fallback_mark) = (0, FALLBACK_MARK);
    site.plane().set_settings(&strict).unwrap();

    let listener = listen(&site.internet, (SERVER, 8080));
    let (mut client, mut server) = pair(&site, &listener);
    assert_eq!(server.peer_addr().unwrap().ip(), EXTERNAL[0]);
    echo_once(&mut client, &mut server, b"by the kernel");
    assert_eq!(site.reason("fallback-quota"), 1);
    assert!(site.reason("fallback-unknown") > 0);
    assert!(site.plane().flows().unwrap().is_empty());
}

/// Calls from a port of its own, while the other end calls, too.
fn call(from: (IpAddr, u16), to: SocketAddr) -> TcpStream {
    let socket = Socket::new(domain(), Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(from).into()).unwrap();
    socket.connect_timeout(&to.into(), PATIENCE).unwrap();
    let stream = TcpStream::from(socket);
    patient(&stream);
    stream
}

#[test]
fn two_hosts_that_call_each_other_are_connected_though_no_call_is_heard() {
    let mut site = site();
    // As a NAT before the other end drops what it was not asked for.
    let rules = format!(
        "table {NFT} nat_of_others {{
            chain input {{
                type filter hook input priority 0
                tcp dport 5000 tcp flags & (syn | ack) == syn drop
            }}
        }}"
    );
    let (client, internet) = (&site.client, &site.internet);
    internet.nft(&rules).unwrap();
    let plane = site.plane.as_mut().unwrap();
    std::thread::scope(|scope| {
        let first = || call((CLIENT, 4000), (SERVER, 5000).into());
        let caller = scope.spawn(move || client.run(first).unwrap());
        eventually("the call has left", || !plane.flows().unwrap().is_empty());
        let external = plane.flows().unwrap()[0].external;
        let second = || call((SERVER, 5000), external);
        let mut called = internet.run(second).unwrap();
        let mut caller = caller.join().unwrap();
        echo_once(&mut caller, &mut called, b"both have called");
    });
    assert_eq!(site.reason("bad-handshake"), 1, "the first call back waits");
}
