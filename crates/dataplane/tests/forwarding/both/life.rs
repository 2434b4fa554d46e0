//! Links that end, processes that die, and a clean end.

use std::io::Read;

use anabranch_core::LinkId;
use anabranch_dataplane::{Gateway, Sizes, programs_at};
use anabranch_policy::abi::ABI_VERSION;
use aya::programs::TcAttachType;
use nix::net::if_::if_nametoindex;

use super::{
    connections::{pair, receive_all, send_all},
    *,
};

#[test]
fn a_load_that_fails_leaves_nothing_or_what_another_version_left() {
    let impossible = Sizes {
        hosts_max: 0,
        ..Sizes::default()
    };
    let mut site = site();
    let ours = site.pins.join(format!("v{ABI_VERSION}"));
    let theirs = site.pins.join("v0");
    let mut connection = pair(&site, &listen(&site.internet, (SERVER, 8080)));
    drop(site.plane.take());
    std::fs::rename(&ours, &theirs).unwrap();

    assert!(Gateway::open(&site.pins, impossible).is_err());
    assert!(theirs.exists() && !ours.exists());
    echo_once(&mut connection.0, &mut connection.1, b"as before");

    assert!(!site.start(Sizes::default()), "not adopted");
    assert!(!theirs.exists() && ours.exists());
    site.stop().unwrap();
    assert!(Gateway::open(&site.pins, impossible).is_err());
    assert!(!site.pins.exists());
}

/// The link of a connection, as its server sees it.
fn link_of(server: &TcpStream) -> u16 {
    let peer = server.peer_addr().unwrap().ip();
    let found = EXTERNAL.iter().position(|address| peer == *address);
    found.expect("one of ours") as u16
}

/// RFC 5382 REQ-4: for six seconds nobody is told that nobody listens, whether or not a LAN host has a connection there.
#[test]
fn a_stranger_who_calls_an_external_endpoint_meets_silence() {
    const SILENCE: Duration = Duration::from_millis(6100);
    let site = site();
    let (_client, server) = pair(&site, &listen(&site.internet, (SERVER, 8080)));
    let mapped = server.peer_addr().unwrap();
    let nobodys = SocketAddr::new(mapped.ip(), mapped.port() ^ 1);
    let call = |to: SocketAddr| {
        let internet = &site.internet;
        internet.run(move || TcpStream::connect_timeout(&to, SILENCE).unwrap_err())
    };
    std::thread::scope(|scope| {
        let calls = [mapped, nobodys].map(|to| scope.spawn(move || call(to).unwrap()));
        for call in calls {
            assert_eq!(call.join().unwrap().kind(), ErrorKind::TimedOut);
        }
    });
}

#[test]
fn when_a_link_ends_its_clients_are_told_at_once_and_those_of_the_other_notice_nothing() {
    let mut site = site();
    let listener = listen(&site.internet, (SERVER, 8080));
    let mut pairs: Vec<_> = (0..2).map(|_| pair(&site, &listener)).collect();
    pairs.sort_by_key(|(_, server)| link_of(server));
    let [
        (mut dying, mut dying_server),
        (mut living, mut living_server),
    ] = pairs.try_into().unwrap();
    echo_once(&mut dying, &mut dying_server, b"before");
    echo_once(&mut living, &mut living_server, b"before");

    std::thread::scope(|scope| {
        let told = scope.spawn(|| dying.read(&mut [0]).unwrap_err().kind());
        site.install(0b10);
        let ended = site.end_flows(LinkId(0));
        assert_eq!((ended.tcp, ended.udp), (1, 0));
        assert_eq!(told.join().unwrap(), ErrorKind::ConnectionReset);
    });
    echo_once(&mut living, &mut living_server, b"after");
    let (mut next, mut next_server) = pair(&site, &listener);
    assert_eq!(link_of(&next_server), 1);
    echo_once(&mut next, &mut next_server, b"anew");
}

#[test]
fn a_connection_whose_client_cannot_be_told_counts_as_what_it_is() {
    let mut site = site();
    site.install(0b01);
    let listener = listen(&site.internet, (SERVER, 8080));
    let (mut client, mut server) = pair(&site, &listener);
    echo_once(&mut client, &mut server, b"before");
    let mute = format!(
        "table {NFT} mute {{ chain c {{ type filter hook output priority 0; policy drop; }}; }}"
    );
    site.gateway.nft(&mute).unwrap();
    let ended = site.end_flows(LinkId(0));
    assert_eq!((ended.tcp, ended.udp), (1, 0));
}

#[test]
fn a_client_that_has_not_acknowledged_everything_is_told_too() {
    let mut site = site();
    site.install(0b01);
    let listener = listen(&site.internet, (SERVER, 8080));
    let (mut client, server) = pair(&site, &listener);
    std::thread::scope(|scope| {
        // The server sends as fast as it can while the link ends.
        let mut sender = server.try_clone().unwrap();
        scope.spawn(move || while sender.write_all(&[7; 65536]).is_ok() {});
        let mut buffer = vec![0; 65536];
        let mut got = 0;
        while got < 1 << 20 {
            got += client.read(&mut buffer).unwrap();
        }
        site.install(0b10);
        site.end_flows(LinkId(0));
        // What had arrived may still be read.
        let error = client.read_to_end(&mut buffer).unwrap_err();
        server.shutdown(std::net::Shutdown::Both).ok();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn udp_moves_to_another_link_when_its_own_ends() {
    let mut site = site();
    site.install(0b01);
    let client = udp_socket(&site.client, (CLIENT, 4000));
    let server = udp_socket(&site.internet, (SERVER, 53));
    client.send_to(b"first", (SERVER, 53)).unwrap();
    assert_eq!(receive(&server).1.ip(), EXTERNAL[0]);
    site.install(0b10);
    let ended = site.end_flows(LinkId(0));
    assert_eq!((ended.tcp, ended.udp), (0, 1));
    client.send_to(b"second", (SERVER, 53)).unwrap();
    let (_, external) = receive(&server);
    assert_eq!(external.ip(), EXTERNAL[1]);
    server.send_to(b"answer", external).unwrap();
    assert_eq!(receive(&client).0, b"answer");
}

/// Kernel ids of the programs at a device's ingress.
fn attached(site: &Site, device: &str) -> Vec<u32> {
    site.gateway
        .run(|| programs_at(if_nametoindex(device).unwrap(), TcAttachType::Ingress).unwrap())
        .unwrap()
}

#[test]
fn forwarding_outlives_the_process_and_the_next_one_adopts_every_flow() {
    let mut site = site();
    let listener = listen(&site.internet, (SERVER, 8080));
    let idle = pair(&site, &listener);
    let (client, server) = pair(&site, &listener);
    let before = site.plane().flows().unwrap();
    let programs = attached(&site, "lan0");
    assert_eq!(programs.len(), 1);
    std::thread::scope(|scope| {
        scope.spawn(|| send_all(server));
        let site = &mut site;
        receive_all(client, |number| match number {
            // Pins keep everything; the handle alone goes.
            20 => drop(site.plane.take()),
            60 => {
                let adopted = site.start(Sizes::default());
                assert!(adopted);
            }
            _ => (),
        });
    });
    let after = site.plane().flows().unwrap();
    let of = |rows: &[anabranch_dataplane::FlowRow]| -> Vec<_> {
        rows.iter()
            .map(|row| (row.local, row.external, row.remote, row.link))
            .collect()
    };
    assert_eq!(of(&before), of(&after));
    assert_eq!(site.plane().flows_max(), 4096, "tables keep their sizes");
    let replaced = attached(&site, "lan0");
    assert_eq!(replaced.len(), 1);
    assert_ne!(programs, replaced);
    let (mut client, mut server) = idle;
    echo_once(&mut client, &mut server, b"still here");
}

#[test]
fn a_clean_end_leaves_no_pins_and_no_programs() {
    let mut site = site();
    for device in ["lan0", "wan0", "wan1"] {
        assert_eq!(attached(&site, device).len(), 1, "{device}");
    }
    site.stop().unwrap();
    assert!(!site.pins.exists());
    for device in ["lan0", "wan0", "wan1"] {
        eventually("the program is gone", || attached(&site, device).is_empty());
    }
}
