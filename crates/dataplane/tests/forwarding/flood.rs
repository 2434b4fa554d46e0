//! A flood of first packets beside connections that live.

use std::io::Read;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use socket2::{Domain, SockAddr, SockAddrStorage, Socket, Type};

use crate::{common::*, connections::pair, site::Site, *};

const LIVE: usize = 1000;
const SYNS: u32 = 200_000;

pub fn allow_descriptors(count: u64) {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    if soft < count {
        setrlimit(Resource::RLIMIT_NOFILE, count.min(hard), hard).unwrap();
    }
}

/// An Ethernet frame with a SYN of an invented LAN host to an invented server.
fn syn(number: u32, gateway_mac: [u8; 6]) -> [u8; 54] {
    // Fibonacci hashing: the same frames at every run, spread over all addresses and ports.
    let spread = number.wrapping_mul(0x9e37_79b1);
    let mut frame = [0; 54];
    frame[..6].copy_from_slice(&gateway_mac);
    frame[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 9, 8, 0]);
    let (ip, tcp) = frame[14..].split_at_mut(20);
    ip[..4].copy_from_slice(&[0x45, 0, 0, 40]);
    ip[8..10].copy_from_slice(&[64, 6]);
    ip[12..16].copy_from_slice(&[10, 0, 0, 10 + (spread >> 24) as u8 % 240]);
    ip[16..20].copy_from_slice(&[20, (spread >> 16) as u8, (spread >> 8) as u8, spread as u8]);
    let sum = !sum_of(ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    tcp[..2].copy_from_slice(&(1024 + (spread % 64000) as u16).to_be_bytes());
    tcp[2..4].copy_from_slice(&80u16.to_be_bytes());
    tcp[4..8].copy_from_slice(&spread.to_be_bytes());
    tcp[12..14].copy_from_slice(&[0x50, 0x02]);
    frame
}

pub fn sum_of(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks_exact(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// A socket that sends frames out of `device`.
pub fn frame_socket(device: &str) -> Socket {
    let ethernet = (libc::ETH_P_IP as u16).to_be();
    let socket = Socket::new(Domain::PACKET, Type::RAW, None).unwrap();
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: sockaddr_ll fits the storage, and all its bits may be zero.
    let address = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = ethernet;
    address.sll_ifindex = nix::net::if_::if_nametoindex(device).unwrap() as i32;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the storage holds a sockaddr_ll of this length.
    socket
        .bind(&unsafe { SockAddr::new(storage, length) })
        .unwrap();
    socket
}

pub fn mac_of(namespace: &anabranch_testbed::netns::Namespace, device: &str) -> [u8; 6] {
    let text = namespace
        .exec("ip", &["-o", "link", "show", device])
        .unwrap();
    let mut words = text
        .split_whitespace()
        .skip_while(|word| *word != "link/ether");
    let mac = words.nth(1).unwrap_or_else(|| panic!("{text}"));
    let bytes: Vec<u8> = mac
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect();
    bytes.try_into().unwrap()
}

#[test]
fn a_flood_of_syns_costs_no_live_connection_and_the_books_balance_after_it() {
    allow_descriptors(4096);
    let mut site = Site::new();
    site.internet.ip("route add blackhole 20.0.0.0/8").unwrap();
    let listener = listen(&site.internet, (SERVER, 8080));
    let mut pairs: Vec<_> = (0..LIVE).map(|_| pair(&site, &listener)).collect();
    assert_eq!(site.plane().confirmed().unwrap(), LIVE as u64);

    let mac = mac_of(&site.gateway, "lan0");
    let mut echoed = 0;
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            site.client
                .run(|| {
                    let socket = frame_socket("eth0");
                    (0..SYNS)
                        .filter(|number| socket.send(&syn(*number, mac)).is_ok())
                        .count()
                })
                .unwrap()
        });
        while !flood.is_finished() {
            let (client, server) = &mut pairs[echoed % LIVE];
            echo_once(client, server, b"during");
            echoed += 1;
        }
        assert_eq!(flood.join().unwrap(), SYNS as usize);
    });
    println!("{echoed} echoes during the flood");
    for (client, server) in &mut pairs {
        echo_once(client, server, b"after");
    }
    let dispatched: u64 = site
        .counters()
        .iter()
        .map(|link| link.flows.dispatched)
        .sum();
    assert!(dispatched >= u64::from(SYNS), "every SYN was a flow");
    let evicted = site.plane().sweep().unwrap().evicted;
    assert!(evicted > u64::from(SYNS) / 2, "{evicted} evicted");
    let present = site.plane().flows().unwrap().len() as u64;
    assert_eq!(site.live(), present);

    for (mut client, server) in pairs {
        drop(server);
        client.read_to_end(&mut Vec::new()).unwrap();
    }
    let mut impatient = settings();
    (impatient.embryo_ns, impatient.tcp_transitory_ns) = (0, 0);
    site.plane().set_settings(&impatient).unwrap();
    eventually("nothing is left", || {
        site.plane().sweep().unwrap();
        site.plane().flows().unwrap().is_empty() && site.live() == 0
    });
}
