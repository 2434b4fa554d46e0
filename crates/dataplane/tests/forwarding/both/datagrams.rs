//! UDP and ICMP between real sockets.

use super::*;

#[test]
fn ping_goes_through() {
    let mut site = site();
    for size in ["0", "56", "1400", "4000"] {
        let server = SERVER.to_string();
        site.client
            .exec(
                "ping",
                &["-c", "2", "-i", "0.01", "-W", "2", "-s", size, &server],
            )
            .unwrap();
    }
    assert!(site.reason("translated-in") >= 8);
}

#[test]
fn two_servers_see_one_socket_at_one_external_endpoint_and_no_third_may_speak_to_it() {
    let mut site = site();
    let client = udp_socket(&site.client, (CLIENT, 4000));
    let servers = [SERVER, SECOND_SERVER].map(|server| udp_socket(&site.internet, (server, 53)));
    let seen = [SERVER, SECOND_SERVER].map(|server| client.send_to(b"who?", (server, 53)));
    assert!(seen.iter().all(Result::is_ok));
    let seen = servers.each_ref().map(|server| receive(server).1);
    assert_eq!(seen[0], seen[1]);
    for server in &servers {
        server.send_to(b"you", seen[0]).unwrap();
        assert_eq!(receive(&client).0, b"you");
    }
    let link = EXTERNAL
        .iter()
        .position(|address| seen[0].ip() == *address)
        .expect("one of ours");
    let stranger = udp_socket(&site.internet, (ISP[link], 53));
    hears_nothing_before(&client, || {
        stranger.send_to(b"spam", seen[0]).unwrap();
        servers[0].send_to(b"marker", seen[0]).unwrap();
    });
    assert_eq!(site.reason("filtered-in"), 1);
}

#[test]
fn two_lan_hosts_meet_by_their_external_addresses() {
    let mut site = site();
    site.install(0b01);
    let server = udp_socket(&site.internet, (SERVER, 3478));
    let hosts = [CLIENT, SECOND_CLIENT].map(|host| udp_socket(&site.client, (host, 4000)));
    let external = hosts.each_ref().map(|host| {
        host.send_to(b"stun", (SERVER, 3478)).unwrap();
        receive(&server).1
    });
    assert_ne!(external[0], external[1]);
    // Neither has spoken to the other's address before (RFC 4787 REQ-9).
    hosts[0].send_to(b"knock", external[1]).unwrap();
    assert_eq!(receive(&hosts[1]), (b"knock".to_vec(), external[0]));
    hosts[1].send_to(b"hello", external[0]).unwrap();
    assert_eq!(receive(&hosts[0]), (b"hello".to_vec(), external[1]));
    hosts[0].send_to(b"hello too", external[1]).unwrap();
    assert_eq!(receive(&hosts[1]), (b"hello too".to_vec(), external[0]));
    assert_eq!(site.reason("hairpin"), 3);
}

/// Asks until it is refused, as a host does: datagrams and errors may be lost, neighbours' tables full. How often.
#[track_caller]
pub fn ask_until_refused(socket: &UdpSocket) -> u64 {
    let again = Duration::from_millis(200);
    socket.set_read_timeout(Some(again)).unwrap();
    let mut asked = 0;
    eventually("the port is reported closed", || {
        asked += 1;
        // An error that comes late is reported by the next call, whichever that is.
        let answer = socket
            .send(b"anybody?")
            .and_then(|_| socket.recv(&mut [0; 8]));
        let error = answer.unwrap_err();
        assert!(
            is_timeout(&error) || error.kind() == ErrorKind::ConnectionRefused,
            "{error}"
        );
        error.kind() == ErrorKind::ConnectionRefused
    });
    asked
}

#[test]
fn a_closed_port_is_reported_to_the_socket_that_sent_there_in_both_directions() {
    let mut site = site();
    let client = udp_socket(&site.client, (CLIENT, 4000));
    client.connect((SERVER, 9)).unwrap();
    let asked_out = ask_until_refused(&client);
    drop(client);

    let server = udp_socket(&site.internet, (SERVER, 53));
    let client = udp_socket(&site.client, (CLIENT, 4001));
    client.send_to(b"query", (SERVER, 53)).unwrap();
    let (_, external) = receive(&server);
    drop(client);
    server.connect(external).unwrap();
    let asked_in = ask_until_refused(&server);
    let (error_in, error_out) = (site.reason("error-in"), site.reason("error-out"));
    assert!(
        (1..=asked_out).contains(&error_in),
        "{error_in} of {asked_out}"
    );
    assert!(
        (1..=asked_in).contains(&error_out),
        "{error_out} of {asked_in}"
    );
}

/// Sends there and back, and both must arrive whole.
pub fn exchange(client: &UdpSocket, server: &UdpSocket, length: usize) {
    let payload: Vec<u8> = (0..length).map(|i| (i / 7) as u8).collect();
    client
        .send_to(&payload, server.local_addr().unwrap())
        .unwrap();
    let (heard, from) = receive(server);
    assert!(heard == payload, "{length} bytes out");
    server.send_to(&payload, from).unwrap();
    assert!(receive(client).0 == payload, "{length} bytes in");
}

#[test]
fn datagrams_longer_than_a_packet_pass_both_ways() {
    let mut site = site();
    let client = udp_socket(&site.client, (CLIENT, 4000));
    let server = udp_socket(&site.internet, (SERVER, 53));
    for offloads in [true, false] {
        site.set_offloads(offloads);
        for length in [1472, 1473, 4000, 9000, 20_000, 60_000] {
            exchange(&client, &server, length);
        }
    }
    assert_eq!(site.reason("fragment-overlap"), 0);
    assert_eq!(checksum_errors(&site.internet), 0);
    assert_eq!(checksum_errors(&site.client), 0);
}

/// Packets may be fragmented, and the sender does not care: `IP_PMTUDISC_DONT`, `IPV6_PMTUDISC_DONT`.
pub fn may_fragment(socket: &UdpSocket) {
    use std::os::fd::AsRawFd;
    let (level, option, value) = match FAMILY {
        Family::V4 => (
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_DONT,
        ),
        Family::V6 => (
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DONT,
        ),
    };
    // SAFETY: the option takes an int, and `value` is one that lives through the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    assert_eq!(result, 0);
}

#[test]
fn a_local_sender_whose_datagrams_the_gateway_cannot_cut_is_told_to_fragment_by_itself() {
    // Of IPv4, where the checksum is left to the device.
    let told = match FAMILY {
        Family::V4 => "too-long-to-fragment",
        Family::V6 => "too-big-out",
    };
    let mut site = site();
    site.set_offloads(true);
    for link in 0..2 {
        site.set_link_mtu(link, 1400);
    }
    let client = udp_socket(&site.client, (CLIENT, 4000));
    let server = udp_socket(&site.internet, (SERVER, 53));
    may_fragment(&client);
    let payload = [7; 1452];
    repeats_until_heard(&server, &payload, || {
        client.send_to(&payload, (SERVER, 53)).ok();
    });
    assert!(site.reason(told) > 0);
}

#[test]
fn a_sender_outside_whose_datagrams_the_lan_does_not_take_is_told() {
    let mut site = site();
    site.set_lan_mtu(1300);
    let client = udp_socket(&site.client, (CLIENT, 4000));
    learns_the_lan_mtu(&site, &client, 1452);
    assert!(site.reason("too-big-in") > 0);
}

/// Sends again until the datagram is heard: what is too long for the path is lost, and its sender told.
pub fn repeats_until_heard(socket: &UdpSocket, payload: &[u8], mut send: impl FnMut()) {
    let again = Duration::from_millis(100);
    socket.set_read_timeout(Some(again)).unwrap();
    let mut heard = vec![0; payload.len() + 1];
    eventually("the datagram arrives", || {
        send();
        match socket.recv(&mut heard) {
            Ok(length) => heard[..length] == *payload,
            Err(error) => {
                assert!(is_timeout(&error), "{error}");
                false
            }
        }
    });
}

/// The server's datagrams of `length` bytes are too long for the LAN, which takes 1300 bytes, and it hears so.
pub fn learns_the_lan_mtu(site: &Site, client: &UdpSocket, length: usize) {
    let server = udp_socket(&site.internet, (SERVER, 54));
    client.send_to(b"hello", (SERVER, 54)).unwrap();
    let (_, external) = receive(&server);
    server.connect(external).unwrap();
    let payload = vec![7; length];
    eventually("the server learns the LAN's MTU", || {
        // The error of one datagram is reported by the next, or fragments it.
        server.send(&payload).ok();
        site.internet
            .exec("ip", &["route", "get", &external.ip().to_string()])
            .unwrap()
            .contains("mtu 1300")
    });
}

#[test]
fn the_gateways_own_services_answer_the_same_socket_that_speaks_to_the_internet() {
    let site = site();
    let client = udp_socket(&site.client, (CLIENT, 4000));
    let server = udp_socket(&site.internet, (SERVER, 53));
    let local = udp_socket(&site.gateway, (GATEWAY_LAN, 53));
    exchange(&client, &server, 100);
    client.send_to(b"local", (GATEWAY_LAN, 53)).unwrap();
    let (heard, from) = receive(&local);
    assert_eq!(
        (&heard[..], from),
        (&b"local"[..], SocketAddr::from((CLIENT, 4000)))
    );
}
