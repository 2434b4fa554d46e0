//! A flood of first packets beside connections that live.

use std::io::Read;

use super::{connections::pair, *};
use anabranch_frames::{frame_socket, sent_by, sent_to, tcp};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

const LIVE: usize = 1000;
const SYNS: u32 = 200_000;
/// One network card, and so one host whatever its addresses.
const FLOODER: [u8; 6] = [2, 0, 0, 0, 0, 9];

pub fn allow_descriptors(count: u64) {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    if soft < count {
        setrlimit(Resource::RLIMIT_NOFILE, count, hard.max(count)).unwrap();
    }
}

/// An Ethernet frame with a SYN of an invented LAN host to an invented server.
fn syn(number: u32, gateway_mac: [u8; 6]) -> Vec<u8> {
    // Fibonacci hashing: the same frames at every run, spread over all addresses and ports.
    let spread = number.wrapping_mul(0x9e37_79b1);
    let from = nth(SITE.lan.0, 10 + (spread >> 24) % 240);
    let to = nth(SITE.internet, spread & 0x00ff_ffff);
    let from = (from, 1024 + (spread % 64000) as u16);
    let syn = tcp(from, (to, 80), "S", spread, 0).frame();
    sent_by(FLOODER, sent_to(gateway_mac, syn))
}

#[test]
fn a_flood_of_syns_costs_no_live_connection_and_the_books_balance_after_it() {
    allow_descriptors(4096);
    let mut site = site();
    let nowhere = format!(
        "route add blackhole {}/{}",
        SITE.internet,
        SITE.host(SERVER).1 - 24
    );
    site.internet.ip(&nowhere).unwrap();
    let listener = listen(&site.internet, (SERVER, 8080));
    let mut pairs: Vec<_> = (0..LIVE).map(|_| pair(&site, &listener)).collect();
    assert_eq!(site.plane().confirmed().unwrap(), LIVE as u64);

    let mac = site.gateway.mac("lan0").unwrap();
    let mut echoed = 0;
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            site.client
                .run(|| {
                    let socket = frame_socket("eth0").unwrap();
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
    (impatient.unconfirmed_ns, impatient.tcp_transitory_ns) = (0, 0);
    site.plane().set_settings(&impatient).unwrap();
    eventually("nothing is left", || {
        site.plane().sweep().unwrap();
        site.plane().flows().unwrap().is_empty() && site.live() == 0
    });
}
