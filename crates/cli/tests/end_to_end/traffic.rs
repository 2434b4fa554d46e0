//! Programs that people use, over all links at once.

use std::io;
use std::net::UdpSocket;
use std::str::FromStr;
use std::thread;

use anabranch_api::GatewayStatus;
use anabranch_lab::topology::{Anabranch, Lab, SERVER};
use anabranch_scenario::Families;
use anabranch_testbed::netns::{Exit, Namespace};
use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{Name, RData, Record};

use crate::house::{
    House, PAGE_BYTES, binary, by_link, flows, status, take_turn, three_links, until, until_quiet,
    with_probes,
};
use crate::programs::{curl, iperf, iperf_server, run, seen};

#[test]
fn a_thousand_downloads_use_every_link_for_its_rate_and_none_fails_and_no_flow_stays() {
    const CURLS: usize = 20;
    let house = House::new("");
    let sources = house.lab.client_addresses();
    let fetched: Vec<_> = thread::scope(|scope| {
        let curls: Vec<_> = (0..CURLS)
            .map(|index| sources[index % sources.len()].to_string())
            .map(|source| {
                let clients = house.lab.clients();
                scope.spawn(move || {
                    curl(clients, &["--interface", &source], PAGE_BYTES, 1000 / CURLS)
                })
            })
            .collect();
        curls
            .into_iter()
            .flat_map(|curl| curl.join().unwrap())
            .collect()
    });
    let counts = by_link(&house.lab, seen(&fetched));
    assert_eq!(counts.values().sum::<usize>(), 1000);
    for (link, share) in [
        ("fiber", 3.0 / 6.0),
        ("cable", 2.0 / 6.0),
        ("lte", 1.0 / 6.0),
    ] {
        let part = counts.get(link).copied().unwrap_or(0) as f64 / 1000.0;
        // By available bandwidth, measured every 0.1 s under load that comes and goes: roughly is all it can be.
        assert!(
            (0.5 * share..2.0 * share).contains(&part),
            "{link} of {share:.2} of the rate: {counts:?}"
        );
    }
    // Counted packet by packet, and found by the sweep of every second.
    until_quiet(&house.gateway);
    until("the tables hold no live flow", || {
        status(&house.gateway).flows.live == 0
    });
    let told: GatewayStatus = serde_json::from_value(house.gateway.status().unwrap()).unwrap();
    let opened: u64 = told.links.iter().map(|link| link.flows.opened).sum();
    assert!(opened >= 1000, "{told:?}");
    assert!(
        told.links.iter().all(|link| link.flows.live == 0),
        "{told:?}"
    );
}

#[test]
fn iperf3_gets_the_rate_of_several_links_in_both_directions() {
    let house = House::new("policy = \"WRR\"\ndefault.stick = false");
    let _server = iperf_server(house.lab.internet(), house.lab.server().ip());
    let server = house.lab.server().ip();
    let down_bps = iperf(house.lab.clients(), server, 3, &["--reverse"]);
    let up_bps = iperf(house.lab.clients(), server, 3, &[]);
    // Five connections in turn by the rates: whichever one is iperf3's own control, the streams take three links.
    assert!(
        down_bps > 24e6,
        "{down_bps} bit/s is what fiber alone would give"
    );
    assert!(
        up_bps > 12e6,
        "{up_bps} bit/s is what fiber alone would give"
    );
    let mut links: Vec<u16> = flows(&house.gateway).iter().map(|flow| flow.link).collect();
    links.sort_unstable();
    links.dedup();
    assert_eq!(links.len(), 3);
}

anabranch_testbed::in_both_families!(
    Families:
    dig_and_ping_get_every_answer,
    tracepath_finds_a_path_of_1300_bytes_and_uploads_fit_into_it,
);

fn dig_and_ping_get_every_answer(families: Families) {
    let house = House::with(families, "policy = \"RR\"\ndefault.stick = false");
    let address = house.lab.server().ip();
    serve_dns(&house.lab);
    let clients = house.lab.clients();
    for number in 0..9 {
        let server = format!("@{address}");
        let name = format!("host{number}.anabranch.test");
        let (exit, text) = run(
            clients,
            "dig",
            &[&server, "+short", "+tries=1", "+time=5", &name, "A"],
        );
        assert_eq!((exit, text.trim()), (Exit::Code(0), "192.0.2.77"), "{name}");
    }
    let words = [
        "-q",
        "-c",
        "20",
        "-i",
        "0.05",
        "-W",
        "5",
        &address.to_string(),
    ];
    let (exit, text) = run(clients, "ping", &words);
    assert_eq!(exit, Exit::Code(0), "{text}");
    assert!(
        text.contains("20 packets transmitted, 20 received"),
        "{text}"
    );
    let links: Vec<String> = flows(&house.gateway)
        .iter()
        .filter(|flow| flow.proto == "udp")
        .map(|flow| flow.link.to_string())
        .collect();
    assert!(
        ["0", "1", "2"]
            .iter()
            .all(|link| links.iter().any(|other| other == link)),
        "{links:?}"
    );
}

/// Answers every question with 192.0.2.77, for as long as the test's process lives.
fn serve_dns(lab: &Lab) {
    let address = lab.server().ip();
    let socket = lab
        .internet()
        .run(|| UdpSocket::bind((address, 53)))
        .unwrap()
        .unwrap();
    thread::spawn(move || -> io::Result<()> {
        let mut packet = [0; 1500];
        loop {
            let (length, client) = socket.recv_from(&mut packet)?;
            let mut message = Message::from_vec(&packet[..length]).map_err(io::Error::other)?;
            message.set_message_type(MessageType::Response);
            let name = message
                .query()
                .map_or(Name::root(), |query| query.name().clone());
            message.add_answer(Record::from_rdata(
                name,
                60,
                RData::A(A::from_str("192.0.2.77").unwrap()),
            ));
            socket.send_to(&message.to_vec().map_err(io::Error::other)?, client)?;
        }
    });
}

fn tracepath_finds_a_path_of_1300_bytes_and_uploads_fit_into_it(families: Families) {
    let mut spec = three_links();
    spec.families = families;
    spec.isps
        .iter_mut()
        .for_each(|isp| isp.path_mtu_bytes = 1300);
    let house = House::of(&spec, "");
    let (_, text) = run(
        house.lab.clients(),
        "tracepath",
        &["-n", "-m", "4", &house.lab.server().ip().to_string()],
    );
    assert!(text.contains("pmtu 1300"), "{text}");
    let _server = iperf_server(house.lab.internet(), house.lab.server().ip());
    let up_bps = iperf(house.lab.clients(), house.lab.server().ip(), 2, &[]);
    assert!(up_bps > 1e6, "{up_bps} bit/s");
}

#[test]
fn no_checksum_is_wrong_with_or_without_offloads() {
    let _turn = take_turn();
    for offloads in [true, false] {
        let cables = Cables::new(offloads);
        let _server = iperf_server(&cables.internet, SERVER.into());
        for options in [
            &["--reverse"][..],
            &[],
            &["--udp", "--bitrate", "20M"],
            &["--udp", "--bitrate", "20M", "--reverse"],
        ] {
            let goodput_bps = iperf(&cables.client, SERVER.into(), 1, options);
            assert!(
                goodput_bps > 10e6,
                "offloads {offloads}, {options:?}: {goodput_bps} bit/s"
            );
        }
        for namespace in [&cables.client, &cables.internet] {
            let damaged = namespace.protocol_counter("InCsumErrors").unwrap();
            assert_eq!(damaged, 0, "offloads {offloads}");
        }
    }
}

/// A client, the gateway and the internet on plain cables, because the emulator carries finished packets only.
struct Cables {
    _gateway: Anabranch,
    _box: Namespace,
    client: Namespace,
    internet: Namespace,
}

impl Cables {
    fn new(offloads: bool) -> Self {
        let [client, inside, internet] =
            ["client", "gateway", "internet"].map(|label| Namespace::create(label).unwrap());
        for (far, device, network) in [
            (&client, "lan0", [10, 80, 0]),
            (&internet, "wan0", [100, 64, 0]),
        ] {
            let [a, b, c] = network;
            inside.veth(device, far, device).unwrap();
            for (namespace, host) in [(&inside, 1), (far, 2)] {
                namespace
                    .add_address(device, [a, b, c, host].into(), 24)
                    .unwrap();
                namespace.set_offloads(device, offloads).unwrap();
            }
        }
        internet.add_address("lo", SERVER.into(), 32).unwrap();
        client.ip("route add default via 10.80.0.1").unwrap();
        inside.ip("route add default via 100.64.0.2").unwrap();
        let text = "lan = [\"lan0\"]\nlink.fiber = { device = \"wan0\", down = \"1gbit\", up = \"1gbit\" }\n";
        let gateway =
            Anabranch::start(&inside, &binary(), &with_probes(text, (SERVER, 80).into())).unwrap();
        Self {
            _gateway: gateway,
            _box: inside,
            client,
            internet,
        }
    }
}
